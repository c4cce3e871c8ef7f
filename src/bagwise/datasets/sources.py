"""The files of data sets as their publishers give them out: addresses and checksums.

Checksums are those the publishers name, or where they name none, those of the files they give out. Nobody vouches for
the archive around HIGGS.csv.gz, so that its member's checksum alone decides.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Archive:
    """url: where it is published.  checksum: None where those of its members have to do."""

    url: str
    checksum: str | None


@dataclass(frozen=True)
class Official:
    """checksum: `md5:…` or `sha256:…`.  source: the file's address, or the archive that holds it as `member`."""

    checksum: str
    source: str | Archive
    member: str = ""


_ADULT = Archive(
    "https://archive.ics.uci.edu/static/public/2/adult.zip",
    "sha256:7537312dd56c2b98035880805ce99e68183a30ee468aa5329d6df0fbb3cc21bb",
)
_HIGGS = Archive("https://archive.ics.uci.edu/static/public/280/higgs.zip", None)
_CIFAR10 = Archive("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530")
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"  # its first home no longer gives it out


def _mnist(name: str, checksum: str) -> dict[str, Official]:
    return {f"mnist/{name}": Official(checksum, f"{_MNIST}/{name}")}


def _cifar10(name: str, checksum: str) -> dict[str, Official]:
    return {f"cifar10/{name}": Official(checksum, _CIFAR10, f"cifar-10-batches-bin/{name}")}


FILES: dict[str, Official] = {
    "adult/adult.data": Official(
        "sha256:5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d", _ADULT, "adult.data"
    ),
    "adult/adult.test": Official(
        "sha256:a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05", _ADULT, "adult.test"
    ),
    "higgs/HIGGS.csv.gz": Official(
        "sha256:ea302c18164d4e3d916a1e2e83a9a8d07069fa6ebc7771e4c0540d54e593b698", _HIGGS, "HIGGS.csv.gz"
    ),
    **_mnist("train-images-idx3-ubyte.gz", "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    **_mnist("train-labels-idx1-ubyte.gz", "md5:d53e105ee54ea40749a09fcbcd1e9432"),
    **_mnist("t10k-images-idx3-ubyte.gz", "md5:9fb629c4189551a2d022fa330f9573f3"),
    **_mnist("t10k-labels-idx1-ubyte.gz", "md5:ec29112dd5afa0611ce80d1b7f02629c"),
    **_cifar10("data_batch_1.bin", "md5:5dd7e06a14cb22eb9f671a540d1b7c25"),
    **_cifar10("data_batch_2.bin", "md5:5ea93a67294ea407fff1d09f752e9692"),
    **_cifar10("data_batch_3.bin", "md5:942cd6a4bcdd0dd3c604fbe906cb4421"),
    **_cifar10("data_batch_4.bin", "md5:ae636b3ba5c66a11e91e8cb52e771fcb"),
    **_cifar10("data_batch_5.bin", "md5:53f37980c15c3d472c316c40844f3f0d"),
    **_cifar10("test_batch.bin", "md5:803d5f7f4d78ea53de84dbe85f74fb6d"),
}
"""Files by their place in the cache and in the folder `BAGWISE_DATA`."""
