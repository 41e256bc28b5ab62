"""A Transformer of Hugging Face, trained whole and by LoRA.

`pip install "fedkeel[examples]"`, then `python examples/lora.py`. The model is not changed for fedkeel: a
dict of inputs is its keyword arguments, and the loss takes what it returns. With LoRA only the adapters and
the new head are trained, sent and averaged. The model is built from a configuration, so that nothing is
downloaded; put `from_pretrained` in its place.
"""

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForSequenceClassification

import fedkeel as fk

WORDS, LENGTH, TOPICS = 60, 12, 3


def texts(count: int, topic_bias: int, seed: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Texts of word numbers: most words of a text are of its topic, which is what is to be told."""
    generator = torch.Generator().manual_seed(seed)
    odds = torch.ones(TOPICS).index_fill_(0, torch.tensor([topic_bias % TOPICS]), 4.0)
    topic = torch.multinomial(odds, count, replacement=True, generator=generator)
    own = torch.rand(count, LENGTH, generator=generator) < 0.7
    words = torch.randint(1, WORDS // TOPICS, (count, LENGTH), generator=generator)
    other = torch.randint(0, TOPICS, (count, LENGTH), generator=generator)
    ids = words + WORDS // TOPICS * torch.where(own, topic[:, None], other)
    length = torch.randint(LENGTH // 2, LENGTH + 1, (count, 1), generator=generator)
    mask = (torch.arange(LENGTH) < length).long()
    return {"input_ids": ids * mask, "attention_mask": mask}, topic


def transformer(lora: bool) -> nn.Module:
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=LENGTH,
        num_labels=TOPICS,
    )
    model: nn.Module = BertForSequenceClassification(config)
    if lora:
        adapters = LoraConfig(task_type="SEQ_CLS", r=8, lora_alpha=16, target_modules="all-linear")
        model = get_peft_model(model, adapters)
    return model


@fk.mean_over_samples
def loss(output, topic):
    return cross_entropy(output.logits, topic)


@fk.mean_over_samples
def accuracy(output, topic):
    return fk.accuracy(output.logits, topic)


def main(rounds: int = 20) -> dict[str, dict[str, float]]:
    """Train the whole model, then by LoRA; print the accuracy and what a client sends."""
    clients = [texts(40, topic_bias=client, seed=client) for client in range(12)]
    data = fk.Federation.from_arrays(clients, test=texts(500, 0, seed=99), classes=TOPICS)
    found = {}
    for name, lora, lr in (("whole", False, 3e-3), ("LoRA", True, 1e-2)):
        work = fk.Work(epochs=1, batch_size=10, lr=lr, optimizer=fk.AdamW())
        task = fk.Task(lambda lora=lora: transformer(lora), loss, {"accuracy": accuracy})
        row = fk.train(task, data, fk.FedAvg(), rounds=rounds, cohort=4, work=work).history[-1]
        sent = row["bytes_up"] / len(row["cohort"])
        print(f"{name}: accuracy {row['accuracy']:.1%}, {sent / 1000:,.0f} kB from a client per round")
        found[name] = {"accuracy": row["accuracy"], "bytes": sent}
    return found


if __name__ == "__main__":
    main()
