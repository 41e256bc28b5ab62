"""A wide net: wrong and unusual values in Python are refused with the thing, the value and the fix.

A call of another signature (a keyword that `train` does not have, an argument left out) is Python's own
TypeError, and what a user's callback raises is the user's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flat
import numpy as np
import pytest
import torch
from selecting import one_in
from torch import nn

import fedkeel as fk

X = np.random.default_rng(0).normal(size=(12, 3)).astype("f4")
Y = np.arange(12) % 4
W = fk.Work(steps=2, batch_size=3, lr=0.1)
F = fk.Federation.from_arrays
D = fk.Dataset.from_arrays


def fed(**options: Any) -> fk.Federation:
    return F([(X, Y)] * 4, **{"test": (X, Y), **options})


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4))


def train(**options: Any) -> fk.Result:
    given: dict[str, Any] = {
        "task": fk.Task(net),
        "federation": fed(),
        "method": fk.FedAvg(),
        "rounds": 2,
        "cohort": 2,
        "work": W,
        "engine": "serial",
        "progress": False,
    }
    return flat.train(**{**given, **options})


def task(**options: Any) -> fk.Result:
    return train(task=fk.Task(net, **options))


def boom(*_: Any) -> Any:
    raise RuntimeError("boom")


class Layered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 4)

    def forward(self, x: Any) -> Any:
        return self.a(x)


class Bad(Layered):
    def forward(self, x: Any) -> Any:
        raise KeyError("oops")


class NoneOut(Layered):
    def forward(self, x: Any) -> Any:
        return None


class Str(Layered):
    def forward(self, x: Any) -> Any:
        return "a"


class Mixed(Layered):
    def __init__(self) -> None:
        super().__init__()
        self.b = nn.Linear(4, 4).double()


class BoolParam(Layered):
    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Parameter(torch.zeros(3, dtype=torch.complex64))


class Lazy(Layered):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.LazyLinear(4)


class Shared(Layered):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 4)
        self.c = self.a

    def forward(self, x: Any) -> Any:
        return self.b(self.c(self.a(x)))


# fmt: off
REFUSED: list[tuple[Callable[[], Any], str]] = [
    # federations
    (lambda: F(None), "clients = None: pass a list with one (x, y) pair per client"),
    (lambda: F(5), "clients = 5: pass a list with one (x, y) pair per client"),
    (lambda: F("ab"), "clients = 'ab': pass a list with one (x, y) pair per client"),
    (lambda: F([X]), "client 0 is a ndarray: give a pair (x, y) of arrays"),
    (lambda: F([(X,)]), "client 0 is a tuple: give a pair (x, y) of arrays"),
    (lambda: F([(X, Y, Y)]), "client 0 is a tuple: give a pair (x, y) of arrays"),
    (lambda: F([(X, Y), (X, Y, Y)]), "client 1 is a tuple: give a pair (x, y) of arrays"),
    (lambda: F([(X, Y), None]), "client 1 is a NoneType: give a pair (x, y) of arrays"),
    (lambda: F({0: (X, Y)}), "clients = a value of type dict: pass a list with one (x, y) pair per client"),
    (lambda: F([(X, None)]), "client 0: cannot make tensors of its arrays: Could not infer dtype of NoneType"),
    (lambda: F([(None, Y)]), "client 0: cannot make tensors of its arrays: Could not infer dtype of NoneType"),
    (lambda: F([(X, Y)], test=X), "the test set is a ndarray: give a pair (x, y) of arrays"),
    (lambda: F([(X, Y)], test=(X, Y, Y)), "the test set is a tuple: give a pair (x, y) of arrays"),
    (lambda: F([(X, Y)], test=(X[:0], Y[:0])), "the test set has no samples: leave it out"),
    (lambda: F([(X, Y)], test=(X, Y[:3])), "the test set: x has shape (12, 3) and y (3,): give one row of y per row of x"),
    (lambda: F([(X, Y)], classes=-1), "classes = -1: give the number of classes, or None for real numbers"),
    (lambda: F([(X, Y)], classes="ten"), "classes = 'ten': give the number of classes, or None for real numbers"),
    (lambda: F([(X, Y)], transfrom=None), "a federation has no option 'transfrom'; did you mean 'transform'?"),
    (lambda: F([(X, Y)], transform=3), "transform = 3: give a function of a batch of inputs, or None"),
    (lambda: F([(X, Y)], augment="flip"), "augment = 'flip': give a function of a batch of inputs, or None"),
    (lambda: F([(X.astype(object), Y)]), "client 0: cannot make tensors of its arrays: can't convert np.ndarray of type"),
    (lambda: F([(X.astype(complex), Y)]), "client 0: an array is complex, which models do not take: give it as torch's"),
    (lambda: F([(np.array(["a"] * 12), Y)]), "client 0: cannot make tensors of its arrays: can't convert np.ndarray of type"),
    (lambda: F([(X, Y.astype(complex))]), "client 0: an array is complex, which models do not take: give it as torch's"),
    (lambda: F([(X, np.where(Y > 2, np.nan, Y))]), "client 0: y[3] holds NaN or infinity: clean or drop that sample"),
    (lambda: F([(X[0, 0], Y)]), "client 0: x has shape () and y (12,): give one row of y per row of x"),
    (lambda: F([(3.0, 1)]), "client 0: x has shape () and y (): give one row of y per row of x"),
    (lambda: F([(X, Y)]).samples(7), "there is no client 7: they are numbered 0 to 0"),
    (lambda: F([(X, Y)]).samples(-1), "there is no client -1: they are numbered 0 to 0"),
    (lambda: F([(X, Y)]).hold_out(1), "cannot hold out 1 of 1 clients: at least one must take part"),
    (lambda: F([(X, Y)] * 3).hold_out(-1), "cannot hold out -1 of 3 clients: at least one must take part"),
    (lambda: F([(X, Y)] * 3).hold_out(1.5), "cannot hold out 1.5 of 3 clients: at least one must take part"),
    (lambda: F([(torch.from_numpy(X).to_sparse(), Y)]), "client 0: an array is sparse, which models do not take: give it as torch's to_dense()"),
    (lambda: fk.Federation.from_datasets(5), "clients = 5: pass a list with one dataset per client"),
    (lambda: fk.Federation.from_datasets([]), "no clients given: pass a list with one dataset per client"),
    (lambda: fk.Federation.from_datasets([iter([1])]), "a list_iterator has no length or index; give a map-style dataset"),
    (lambda: fk.Federation.from_datasets([[(1.0,)]]), "a sample of the dataset is a tuple; make it a pair (input, target), several inputs as a"),
    (lambda: fk.Federation.from_datasets([[(X[0], 0), (X[0][:2], 1)]]), "the dataset's samples do not stack to one tensor: stack expects each tensor to be equal"),
    (lambda: fk.Federation.from_clients(2.0, lambda i: (X, Y)), "from_clients: count = 2.0: give the number of clients, at least 1"),
    (lambda: fk.Federation.from_clients(2, boom), "client 0: load(0) failed with RuntimeError: boom"),
    (lambda: fk.Federation.from_clients(2, lambda i: (X, Y), sizes="ab"), "from_clients: sizes = 'ab': give one whole number per client"),
    (lambda: fk.Federation.from_clients(2, lambda i: (X, Y), sizes=[12, -1]), "client 1 has no samples: leave it out, or split over fewer clients"),
    (lambda: fk.Federation.from_clients(2, lambda i: (X, Y), cache="1GB"), "from_clients: cache = '1GB': give a number of bytes, as in 2**30"),
    (lambda: fk.Federation.from_clients(2, lambda i: (X, Y), sizes=[12, 12.5]), "from_clients: sizes = [12, 12.5]: give one whole number per client"),
    # datasets and splits
    (lambda: D(X, Y[:3]), "arrays: 12 training samples with 3 targets; give each sample one target"),
    (lambda: D(X, None), "arrays: cannot make tensors of its arrays: Could not infer dtype of NoneType"),
    (lambda: D(X, Y, test=3), "the test set is a int: give a pair (x, y) of arrays"),
    (lambda: D(X, Y).split(fk.IID()), "IID(balanced=False, lognormal=0.0) needs to know for how many clients: give their number"),
    (lambda: D(X, Y).split(fk.IID(), clients=0), "IID(balanced=False, lognormal=0.0): clients is 0; it must be a whole number of at least"),
    (lambda: D(X, Y).split(fk.IID(), clients=13), "IID(balanced=False, lognormal=0.0) cannot give 13 clients 1 sample each: the data has"),
    (lambda: D(X, Y).split(fk.IID(), clients=2.5), "IID(balanced=False, lognormal=0.0): clients is 2.5; it must be a whole number of at"),
    (lambda: D(X, Y).split("iid", clients=2), "split: 'iid' is not a split: give one, as in fk.DirichletByClass(0.1)"),
    (lambda: D(X, Y).split(fk.IID, clients=2), "split: <class 'fedkeel.data.partition.IID'> is not a split: give one, as in"),
    (lambda: D(X, Y).split(fk.IID(), clients=2, seed="a"), "the seed of a split is 'a'; use 0 or a positive number"),
    (lambda: D(X, Y).split(fk.IID(), clients=2, seed=-1), "the seed of a split is -1; use 0 or a positive number"),
    (lambda: fk.DirichletByClass(0), "DirichletByClass(alpha=0, min_samples=1): alpha is 0; use a positive number (small:"),
    (lambda: fk.DirichletByClass(float("nan")), "DirichletByClass(alpha=nan, min_samples=1): alpha is nan; use a positive number (small:"),
    (lambda: fk.DirichletByClass("x"), "DirichletByClass(alpha='x', min_samples=1): alpha is 'x'; use a positive number (small:"),
    (lambda: fk.Pathological(0), "Pathological(classes=0): classes is 0; it must be a whole number of at least 1"),
    (lambda: D(X, Y).split(fk.Pathological(9), clients=2), "Pathological(classes=9) asks for more classes than the 4 there are; use at most 4"),
    (lambda: D(X, Y).split(fk.Natural()), "Natural(by='group', max_samples=None, min_samples=1) needs data with natural groups,"),
    (lambda: D(X, X).split(fk.DirichletByClass(0.1), clients=2), "DirichletByClass(alpha=0.1, min_samples=1) needs one class number per sample, not"),
    (lambda: fk.data.load("mnits"), "there is no data set 'mnits'; did you mean 'mnist'?"),
    (lambda: fk.data.load(3), "there is no data set 3; known: cifar10, cifar100, digits, emnist-l, emnist-letters,"),
    (lambda: fk.data.load("digits", size=3), "digits has no option 'size'; it has none"),
    (lambda: fk.data.image_folder("/nowhere"), "there is no folder '/nowhere'; give one with one folder of pictures per class"),
    (lambda: fk.data.add_noise(fed(), fk.data.ChannelGains(0.1)), "noise is for pictures (channels, height, width), but a sample is float32 of shape (3,):"),
    (lambda: fk.data.Augment(pad=-1), "Augment(flip=True, pad=-1): pad is -1; use 0 or a positive whole number of pixels"),
    # local work
    (lambda: fk.Work(epochs=1.5), "Work: epochs = 1.5: input should be a valid integer, got a number with a fractional part"),
    (lambda: fk.Work(epochs=1, batch_size="all"), "Work: batch_size = 'all': input should be a valid integer, unable to parse string as an"),
    (lambda: fk.Work(epochs=1, lr=0), "Work: lr = 0: input should be greater than 0"),
    (lambda: fk.Work(epochs=1, lr=-1), "Work: lr = -1: input should be greater than 0"),
    (lambda: train(work=fk.Work(steps=1, lr=1e300)), "lr = 1e+300: float32 numbers end at 3.4e+38: give a smaller one"),
    (lambda: train(work=fk.Work(steps=1, optimizer=fk.AdamW(weight_decay=1e200))), "weight_decay of AdamW = 1e+200: float32 numbers end at"),
    (lambda: fk.Work(epochs=1, lr="fast"), "Work: lr = 'fast': input should be a valid number, unable to parse string as a number"),
    (lambda: fk.Work(epochs=1, lr=float("inf")), "Work: lr = inf: input should be a finite number"),
    (lambda: fk.Work(epochs=1, weight_decay=-1), "Work: weight_decay = -1: input should be greater than or equal to 0"),
    (lambda: fk.Work(epochs=1, clip=0), "Work: clip = 0: input should be greater than 0"),
    (lambda: fk.Work(epochs=1, optimizer="adam"), "Work: optimizer = 'adam': input should be a dictionary or an instance of AdamW"),
    (lambda: fk.Work(epochs=1, optimizer=torch.optim.AdamW), "Work: optimizer = <class 'torch.optim.adamw.AdamW'>: input should be a dictionary or an"),
    (lambda: fk.Work(epochs=1, last_batch="skip"), "Work: last_batch = 'skip': input should be 'keep', 'drop' or 'merge'"),
    (lambda: fk.AdamW(betas=(2, 1)), "AdamW has no argument 'betas'; did you mean 'beta2'?"),
    (lambda: fk.AdamW(eps=-1), "AdamW: eps = -1: input should be greater than 0"),
    (lambda: train(work=None), "work = None: input should be an instance of Work"),
    (lambda: train(work=5), "work = 5: input should be an instance of Work"),
    (lambda: train(work={"epochs": 1}), "work = {'epochs': 1}: input should be an instance of Work"),
    (lambda: train(work=fk.Work(epochs=1, batch_size=3, optimizer=fk.AdamW()), method=fk.SCAFFOLD()), "optimizer = AdamW: SCAFFOLD(lr=1.0, option='II') asks for the sum of a walk's rates"),
    # tasks
    (lambda: fk.Task(None), "Task: model is NoneType: give a torch.nn.Module, or a function or class that makes one"),
    (lambda: fk.Task("mlp"), "Task: model is str: give a torch.nn.Module, or a function or class that makes one"),
    (lambda: train(task=net()), "task = a Sequential: input should be an instance of Task"),
    (lambda: train(task=fk.Task(Bad)), "Bad fails on a batch of shape (2, 3) and dtype torch.float32 with KeyError: 'oops'"),
    (lambda: train(task=fk.Task(NoneOut)), "NoneOut returns NoneType: its output must be a tensor, or hold some"),
    (lambda: train(task=fk.Task(Str)), "Str returns str: its output must be a tensor, or hold some"),
    (lambda: train(task=fk.Task(Mixed)), "Task: parameters of several dtypes ['torch.float32', 'torch.float64']: convert the"),
    (lambda: train(task=fk.Task(BoolParam)), "Task: parameters of several dtypes ['torch.complex64', 'torch.float32']: convert the"),
    (lambda: train(task=fk.Task(Lazy)), "Task: Lazy does not know the size of 'a.weight' yet (a lazy layer): run a batch"),
    (lambda: train(task=fk.Task(lambda: 3)), "Task: <lambda>.<locals>.<lambda>() gave int: it must give a torch.nn.Module"),
    (lambda: train(task=fk.Task(lambda x: net())), "Task: <lambda>.<locals>.<lambda>() failed with TypeError: <lambda>.<locals>.<lambda>()"),
    (lambda: train(task=fk.Task(boom)), "Task: boom() failed with RuntimeError: boom: give a function without arguments that"),
    (lambda: task(loss="ce"), "Task: loss = 'ce': give a function of (output, target)"),
    (lambda: task(loss=nn.CrossEntropyLoss), "Task: loss is the class CrossEntropyLoss: make one, as in CrossEntropyLoss()"),
    (lambda: task(loss=boom), "the loss does not take outputs of shape (n, 4) with targets of shape (n,) and dtype"),
    (lambda: task(loss=lambda o, t: 3.0), "the loss returns 3.0: it must be a tensor, of which a gradient can be taken"),
    (lambda: task(loss=lambda o, t: o), "the loss has shape (2, 4): it must be one number, as the mean over samples"),
    (lambda: task(loss=lambda o: o.sum()), "the loss does not take outputs of shape (n, 4) with targets of shape (n,) and dtype"),
    (lambda: task(loss=nn.CrossEntropyLoss(reduction="none")), "the loss has shape (2,): it must be one number, as the mean over samples"),
    (lambda: task(loss=nn.MSELoss()), "mse_loss compares each output with the target at the same place, and outputs have shape"),
    (lambda: task(loss=nn.NLLLoss()), "nll_loss takes logarithms of probabilities, which are never positive, but an output is"),
    (lambda: task(loss=lambda o, t: o.argmax(1).float().mean()), "the loss has no gradient with respect to the outputs: compute it from them in torch,"),
    (lambda: task(metrics=[fk.accuracy]), "Task: metrics = [<function"),
    (lambda: task(metrics={"norm": fk.accuracy}), "Task: a metric may not be called 'norm': a run or a probe writes that column; rename"),
    (lambda: task(metrics={"a/b": fk.accuracy}), "Task: a metric may not be called 'a/b': the columns of probes and further models have a"),
    (lambda: task(metrics={3: fk.accuracy}), "Task: a metric is called 3: give it a name, as in 'accuracy'"),
    (lambda: task(metrics={"a": boom}), "the metric 'a' does not take outputs of shape (n, 4) with targets of shape (n,) and"),
    (lambda: task(metrics={"a": lambda o, t: "x"}), "the metric 'a' returns 'x': it must be one number over all samples; give several as"),
    (lambda: task(metrics={"a": lambda o, t: None}), "the metric 'a' returns None: it must be one number over all samples; give several as"),
    (lambda: task(metrics={"a": lambda o, t: o}), "the metric 'a' returns a tensor of shape (2, 4): it must be one number over all"),
    (lambda: task(metrics=None), "Task: metrics = None: give them by name, as in {'accuracy': fk.accuracy}"),
    (lambda: train(task=fk.Task.regression(net)), "mse_loss compares each output with the target at the same place, and outputs have shape"),
    (lambda: train(task=fk.Task(lambda: nn.Linear(3, 4).requires_grad_(False))), "Task: Linear has no trainable parameters: nothing to train (is requires_grad off?)"),
    (lambda: train(task=fk.Task(lambda: nn.Sequential(nn.Flatten(), nn.Linear(3, 3)))), "client 0: y[3] has the label 3, but Sequential has 3 outputs: labels must lie in 0 … 2;"),
    (lambda: train(task=fk.Task(lambda: nn.Linear(4, 4))), "Linear does not take a batch of shape (2, 3) and dtype torch.float32: mat1 and mat2"),
    (lambda: train(task=fk.Task(lambda: nn.Linear(3, 1))), "cross_entropy chooses between the classes of the second axis, but Linear gives outputs"),
    # runs
    (lambda: train(rounds="ten"), "rounds = 'ten': input should be a valid integer"),
    (lambda: train(rounds=2.5), "rounds = 2.5: input should be a valid integer"),
    (lambda: train(rounds=True), "rounds = True: give a number"),
    (lambda: train(cohort="half"), "cohort = 'half': give a count (10) or a fraction of the clients (0.2)"),
    (lambda: train(cohort=-2), "cohort = -2: there are 4 clients, so give 1 to 4"),
    (lambda: train(cohort=float("nan")), "cohort = nan: a fraction lies above 0 and at most at 1; a count is an int"),
    (lambda: train(seed="abc"), "seed = 'abc': input should be a valid integer"),
    (lambda: train(seed=1.5), "seed = 1.5: input should be a valid integer"),
    (lambda: train(weighting="size"), "weighting = 'size': input should be 'uniform' or 'samples'"),
    (lambda: train(eval_every=0), "Evaluation: every = 0: input should be greater than or equal to 1"),
    (lambda: train(threads=0), "threads = 0: input should be greater than or equal to 1"),
    (lambda: train(engine=None), "engine = None: input should be a valid string"),
    (lambda: train(device="gpu"), "device = 'gpu': PyTorch cannot compute there (Expected one of cpu, cuda, ipu, xpu,"),
    (lambda: train(device=None), "Execution: device = None: input should be a valid string"),
    (lambda: train(workers=-1, engine="processes"), "workers = -1: input should be greater than or equal to 1"),
    (lambda: train(run_dir=5), "run_dir = 5: give the path of a directory, or None to keep nothing"),
    (lambda: train(run_dir="/proc/x/y"), "/proc/x: No such file or directory: choose another directory"),
    (lambda: train(run_dir=""), "and no run of fedkeel: choose an empty or new directory"),
    (lambda: train(callbacks=5), "callbacks: 5: give a function of a round's row, or an object with on_settings, on_run_begin,"),
    (lambda: train(callbacks=[5]), "callbacks: 5: give a function of a round's row, or an object with on_settings, on_run_begin,"),
    (lambda: train(callbacks=fk.EarlyStop(0)), "EarlyStop: patience = 0: give a number of evaluations from 1 on"),
    (lambda: train(callbacks=fk.EarlyStop(2, "acc", "max")), "metric = 'acc': the history has no such column; known: accuracy,"),
    (lambda: train(callbacks=fk.EarlyStop), "callbacks: EarlyStop: that is a class: give an object, as in EarlyStop(…)"),
    (lambda: train(probes=5), "probes = 5: give a list, as in [fk.probes.Divergence()]"),
    (lambda: train(probes=["Losses"]), "probes: 'Losses' is not a probe: give one, as in fk.probes.Divergence()"),
    (lambda: train(probes=[fk.probes.Losses]), "probes: <class 'fedkeel.probes.losses.Losses'> is not a probe: give one, as in"),
    (lambda: train(reducer="mean"), "reducer = 'mean' has no add and merge: give one, as in fk.Median()"),
    (lambda: train(reducer=fk.StackReducer), "reducer = StackReducer: that is a class: give an object, as in fk.Median()"),
    (lambda: train(federation=[(X, Y)]), "federation = a list: input should be an instance of Federation"),
    (lambda: train(federation=D(X, Y)), "federation = a Dataset: input should be an instance of Federation"),
    (lambda: train(method=fk.FedAvg), "method = <class 'fedkeel.methods.fedavg.FedAvg'> is not a method: give one, as in"),
    (lambda: train(method=None), "method = None is not a method: give one, as in FedAvg()"),
    (lambda: train(federation=fed(transform=boom)), "transform fails on a batch of shape (2, 3) and dtype torch.float32 with RuntimeError: boom"),
    (lambda: train(federation=fed(transform=lambda x: None)), "transform gives NoneType of a batch of shape (2, 3)"),
    (lambda: train(federation=fed(transform=lambda x: x[:1])), "it must give as many samples as it gets"),
    (lambda: train(callbacks=fk.KeepBest("zzz", "max")), "metric = 'zzz': the history has no such column"),
    (lambda: fk.KeepBest("zzz"), "metric = 'zzz': say which is better: mode='max' where more is"),
    (lambda: fk.EarlyStop(2, "loss", "up"), "mode = 'up': give 'max' where more is better"),
    (lambda: fk.probes.Losses(every=0), "Losses: every = 0"),
    (lambda: fk.probes.Divergence(evry=1), "Divergence has no argument 'evry'; did you mean 'every'?"),
    (lambda: fk.compare(train, []), "nothing to run, or twice the same: methods []"),
    (lambda: fk.compare(train, [5]), "compare: 5 is not a method"),
    (lambda: fk.compare(lambda m, s: 3, [fk.FedAvg()], seeds=1), "the function returned int: give train's result"),
    (lambda: fk.compare(train, [fk.FedAvg()], seeds=[1, 1]), "nothing to run, or twice the same"),
    # methods
    (lambda: fk.FedInit(beta="big"), "Relaxed: beta = 'big': give a finite number or Decayed or Adaptive"),
    (lambda: fk.FedInit(beta=float("inf")), "Relaxed: beta = inf: give a finite number or Decayed or Adaptive"),
    (lambda: fk.FedSAM(rho=-1), "FedSAM: rho = -1: input should be greater than or equal to 0"),
    (lambda: fk.relaxed(fk.FedAvg(), beta=None), "Relaxed: beta = None: give a finite number or Decayed or Adaptive"),
    (fk.stages, "stages() needs methods, as in stages((feddyn, 0.5), fedavg)"),
    (lambda: fk.stages((fk.FedDyn(), False), fk.FedAvg()), "stages: until=False: give a round from 0 on, a fraction, or a rule"),
    (lambda: fk.stages((fk.FedDyn(), -3), fk.FedAvg()), "stages: until=-3: give a round from 0 on, a fraction, or a rule"),
    (lambda: fk.sharp(None), "None is not a method: give one, as in relaxed(SCAFFOLD(), beta=0.1)"),
    (lambda: fk.FedProx(mu=None), "FedProx: mu = None: input should be a valid number"),
    (lambda: fk.MOON(temperature=0), "MOON has no argument 'temperature'; known: mu, tau"),
    (lambda: fk.stages((fk.FedDyn(), "half"), fk.FedAvg()), "stages: until='half': give a round from 0 on, a fraction, or a rule"),
    # results and models
    (lambda: train().evaluate(5), "client 0 is a int: give a pair (x, y) of arrays"),
    (lambda: train().evaluate((X[:, :2], Y)), "evaluate: model, loss or metrics do not take inputs that are float32 of shape (2,) with"),
    (lambda: train().evaluate((X, Y + 9)), "evaluate: model, loss or metrics do not take inputs that are float32 of shape (3,) with"),
    (lambda: train().evaluate((X, Y), device="tpu"), "device = 'tpu': PyTorch cannot compute there (Expected one of cpu, cuda, ipu, xpu,"),
    (lambda: fk.load("/nowhere"), "/nowhere: no run here (manifest.json is missing); `fedkeel runs` lists runs"),
    (lambda: fk.load(5), "load: run_dir = 5: give the path of a run's directory"),
    (lambda: fk.models.mlp(-1), "mlp: inputs = -1: give a whole number of at least 1"),
    (lambda: fk.models.mlp("a"), "mlp: inputs = 'a': give a whole number of at least 1"),
    (lambda: fk.models.build("nonet", shape=(3,), classes=3, seed=0, dtype=torch.float32), "there is no model 'nonet'; known: char_lstm, cnn, lenet, logistic, mlp, resnet18, resnet18_gn,"),
]
# fmt: on

UNUSUAL: list[Callable[[], Any]] = [
    lambda: F([(torch.tensor(X, requires_grad=True), Y)]),
    lambda: F(iter([(X, Y)])),
    lambda: F([(X.tolist(), Y.tolist())]),
    lambda: train(federation=F([(X, Y > 1)] * 4, test=(X, Y > 1))),
    lambda: train(task=fk.Task(Shared)),
    lambda: train(task=fk.Task(lambda: nn.Linear(3, 4).half())),
    lambda: train(task=fk.Task(lambda: nn.Linear(3, 4).double())),
    lambda: train(federation=F([(X[:1], Y[:1])] * 4, test=(X[:1], Y[:1]))),
    lambda: train(federation=F([(X, Y)], test=(X, Y)), cohort=1),
    lambda: train(cohort=1.0, rounds=1),
    lambda: train(cohort=4, sampling="bernoulli"),
    lambda: train(seed=2**70),
    lambda: train(work=fk.Work(steps=50, batch_size=500, lr=0.01)),
    lambda: train(work=fk.Work(epochs=1, batch_size=None, lr=0.01)),
    lambda: train(task=fk.Task(net, metrics={})),
    lambda: train(probes=[fk.probes.Losses(), fk.probes.Losses()]),
    lambda: train(method=fk.stages((fk.FedDyn(), 9), fk.FedAvg())),
    lambda: fk.stages(fk.FedAvg()),
]


@pytest.mark.parametrize(("call", "told"), one_in(3, REFUSED), ids=range(len(REFUSED)))
def test_it_is_refused_with_words_that_help(call: Callable[[], Any], told: str) -> None:
    with pytest.raises(fk.FedkeelError) as caught:
        call()
    assert told in str(caught.value)


@pytest.mark.parametrize("call", UNUSUAL, ids=range(len(UNUSUAL)))
def test_it_is_unusual_and_works(call: Callable[[], Any]) -> None:
    made = call()
    if isinstance(made, fk.Result):
        assert all(np.isfinite(row["train_loss"]) for row in made.history)


def test_there_are_enough_of_them() -> None:
    assert len(REFUSED) + len(UNUSUAL) >= 100
