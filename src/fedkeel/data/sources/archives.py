"""The official files: where they are and their checksums."""

from __future__ import annotations

from fedkeel.data.sources.fetch import Archive

_KRIZ = "https://www.cs.toronto.edu/~kriz/"
CIFAR10 = Archive(
    "cifar-10-python.tar.gz",
    _KRIZ + "cifar-10-python.tar.gz",
    "sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
)
CIFAR100 = Archive(
    "cifar-100-python.tar.gz",
    _KRIZ + "cifar-100-python.tar.gz",
    "sha256:85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
)
EMNIST = Archive(  # 536 MB; its SHA-256 as TensorFlow Datasets publishes it
    "emnist/gzip.zip",
    "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
    "sha256:fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e",
)
TINY = Archive(
    "tiny-imagenet-200.zip",
    "https://cs231n.stanford.edu/tiny-imagenet-200.zip",
    "sha256:6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
)
_IDX = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def _idx_archives(name: str, base: str, digests: tuple[str, str, str, str]) -> tuple[Archive, ...]:
    return tuple(
        Archive(f"{name}/{file}.gz", f"{base}{file}.gz", f"sha256:{digest}")
        for file, digest in zip(_IDX, digests, strict=True)
    )


MNIST = _idx_archives(  # PyTorch's copy: the author's own page no longer gives the files out
    "mnist",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    (
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
)
FASHION = _idx_archives(
    "fashion-mnist",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    (
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
)
