"""FedSAGD's settings as printed: Appendix A.1–A.3 and Table 7 (splits), Tables 5 and 6 (models)."""

from __future__ import annotations

from collections.abc import Mapping

from fedkeel.papers.recipes.recipe import Assumption, Line, Settings

OURS = "FedSAGD(ours)"  # as Table 2 prints it
DIRICHLET = "DirichletByClient(0.3)"

EMNIST: Settings = {
    "data.name": "emnist-l",
    "data.split": DIRICHLET,
    "data.clients": 500,
    "model.name": "logistic",
    "rounds": 2000,
    "cohort": 5,
    "work.epochs": 20,
    "work.batch_size": 48,
    "work.lr": 0.001,
    "work.weight_decay": 1e-4,
}
CIFAR10: Settings = {
    "data.name": "cifar10",
    "data.split": DIRICHLET,
    "data.clients": 200,
    "model.name": "cnn",
    "rounds": 2000,
    "cohort": 4,
    "work.epochs": 5,
    "work.batch_size": 50,
    "work.lr": 0.1,
    "work.lr_decay": 0.998,
    "work.weight_decay": 1e-4,
}
CIFAR100: Settings = {**CIFAR10, "data.name": "cifar100", "model.name": "resnet18_gn"}
CIFAR100_CNN: Settings = {**CIFAR10, "data.name": "cifar100"}  # A.4 and the last line of Table 5
SHAKESPEARE: Settings = {
    "data.name": "shakespeare",
    "data.options": {"roles": 100, "max_samples": 2000},
    "data.split": "Natural",
    "data.clients": 100,
    "model.name": "char_lstm",
    "rounds": 1000,
    "cohort": 3,
    "work.epochs": 5,
    "work.batch_size": 100,
    "work.lr": 1.0,
    "work.lr_decay": 0.998,
    "work.weight_decay": 1e-4,
}

METHODS: Mapping[str, str] = {
    "FedAvg": "FedAvg",
    "FedProx": "FedProx(mu=0.001)",
    "FedDyn": "FedDyn(alpha=0.01)",
    "SCAFFOLD": "SCAFFOLD",
    "MimeLite": "MimeLite(beta=0.2)",
    "FedAvgM": "FedAvgM(beta=0.9)",
    "FedAdam": "FedAdam(lr=0.1)",
    "FedCM": "FedCM(alpha=0.1)",
    "FedLNAG": "FedLNAG(beta=0.9)",
    "FedANAG": "FedANAG(beta=0.9)",
    "FedACG": "FedACG(lam=0.9)",
    OURS: "FedSAGD(beta=0.9, lam=0.01, mu=0.001)",
}
SHAKESPEARE_METHODS: Mapping[str, str] = {**METHODS, "FedCM": "FedCM(alpha=0.15)"}
# On EMNIST-L the grid search chose 0.1 for FedAvg and 0.001 for all others.
EMNIST_METHODS: Mapping[str, str | Line] = {**METHODS, "FedAvg": Line("FedAvg", {"work.lr": 0.1})}

# What the paper prints: A.1 to A.3, Table 7.
STATED = (
    "data.name",
    "data.split",
    "data.clients",
    "cohort",
    "model.name",
    "rounds",
    "work.epochs",
    "work.batch_size",
    "work.lr",
    "FedAvg.lr",
    "FedAvgM.lr",
    "FedAvgM.beta",
    "FedCM.lr",
    "FedANAG.*",
    "SCAFFOLD.lr",
    "MimeLite.lr",
)
# What the paper's runs share where it is silent or contradicts itself; each recipe adds its own.
ASSUMED = (
    Assumption(
        "A.3 says that the clients' rate and its decay are “individually tuned via grid search”. The "
        "rates are "
        "those that it names as selected: 0.1 for FedAvg and 0.001 for all others on EMNIST-L, 0.1 for "
        "all on "
        "CIFAR. We do not search again; `ours/logistic` does.",
        "work.lr",
    ),
    Assumption(
        "No clipping, since none is printed; the public code of FedDyn's and FedACG's authors clips to norm "
        "10.",
        "work.clip",
    ),
    Assumption(
        "The exponent of the weight decay on EMNIST-L is lost in our copy of the paper, and none is printed "
        "for the other data sets: 1e-4 everywhere.",
        "work.weight_decay",
    ),
    Assumption(
        "FedACG's proximal coefficient and FedAdam's β1, β2 and τ are not printed: the library's 0.002, 0.9, "
        "0.99 and 0.001. A.3's 0.9 is taken for FedACG's λ, its momentum.",
        "FedACG.*",
        "FedAdam.*",
    ),
    Assumption(
        "SCAFFOLD is its option II. The number of evaluations changes no run.",
        "SCAFFOLD.option",
        "eval_every",
    ),
    Assumption(
        "FedDyn's α is 0.01 and FedProx's μ is 0.001, as selected on EMNIST-L.", "FedDyn.*", "FedProx.mu"
    ),
    Assumption(
        "The coefficients that our copy of A.3 gives as 0.93, 0.13, 0.153 and 0.23 are read as 0.9β, 0.1β, "
        "0.15β and 0.2β; FedCM's is taken for its α, the weight of the gradient (C.7), MimeLite's for β "
        "of C.8.",
        "FedCM.alpha",
        "MimeLite.beta",
    ),
    Assumption(
        "FedLNAG is Nesterov momentum as in PyTorch at the printed rate. The form of C.5 has a factor 1 − "
        "β = "
        "0.1 on the gradient; it would walk no further than FedAvg, and could not be far less stable, as A.4 "
        "says.",
        "FedLNAG.*",
    ),
    Assumption(
        "FedSAGD's λ and μ are those at which Tables 9 and 10 peak, 0.01 and 0.001; its server rate is 1.",
        "FedSAGD.*",
    ),
    Assumption(
        "The split draws each client's classes from Dirichlet(0.3) without replacement, sizes equal (A.1); "
        "pictures are normalised and not augmented, of which the paper says nothing.",
        "data.split",
        "data.augment",
    ),
    Assumption(
        "Exactly the cohort is drawn in each round, and clients count the same: neither is printed.",
        "weighting",
        "sampling",
    ),
)
ASSUMED_CIFAR = (
    Assumption(
        "For CIFAR only ranges are printed for the decay of the rate (0.995, 0.998, 0.999, 1), FedDyn's α "
        "and "
        "FedProx's μ: 0.998, and α = 0.01, μ = 0.001 as chosen on EMNIST-L, because A.3 says that the "
        "settings "
        "are similar; the momenta and FedAdam's server rate 0.1 are those of EMNIST-L for the same reason.",
        "work.lr_decay",
    ),
)
ASSUMED_CIFAR100 = (
    "The model of CIFAR-100 is ResNet-18 with GroupNorm (two groups) and a 7×7 stem, as A.2 says, although "
    "the last line of Table 5 gives the CNN 100 classes.",
)
ASSUMED_EMNIST = (
    "EMNIST-L: 2,000 rounds as in Table 7, although A.3 says 500 (Table 2 has a target reached in round "
    "1,101); the rates of A.3, 0.1 for FedAvg and 0.001 for all others, although its grid search had all "
    "clients in every round.",
)
ASSUMED_SHAKESPEARE = (
    Assumption(
        "Shakespeare: 1,000 rounds as in Table 7 and Figure 3, although Table 2 prints 2000+; 5 epochs of "
        "the "
        "two that were searched; the decay 0.998 of its range; the natural "
        "split by role, since the Dirichlet split is said of the pictures only.",
        "data.split",
        "data.options",
        "work.lr_decay",
    ),
)

# MNIST has 60,000 pictures: 625 clients of 96, of which 125 never take part, leave EMNIST-L's 500 of 96.
MNIST: Settings = {
    "data.name": "mnist",
    "data.clients": 625,
    "data.held_out": 125,
    "rounds": 500,
    "engine": "stacked",
    "threads": 1,
}
MNIST_NOTE = (
    "EMNIST-L is replaced by MNIST, which is at hand and easier (625 clients of 96 pictures, 125 of them "
    "never take part: 500 clients of 96 as printed)"
)

# The CNN at a fraction of the work: two epochs of five, 30 rounds of 2,000, evaluated every fifth.
SMALL_CIFAR10: Settings = {
    "rounds": 30,
    "eval_every": 5,
    "work.epochs": 2,
    "engine": "serial",
    "threads": 1,
}
SMALL_CIFAR10_NOTE = "CIFAR-10's CNN is as printed, with 30 rounds of 2,000 and two local epochs of five"
