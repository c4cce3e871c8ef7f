"""Images with individual labels: MNIST and CIFAR-10, in their official formats."""

from __future__ import annotations

import gzip
import math

import numpy as np
from numpy.typing import NDArray

from bagwise.datasets.files import file, held, mirror
from bagwise.datasets.split import Split, check_rows
from bagwise.utils.typing import Integers

_MNIST_ROWS = 60_000
_BATCHES, _BATCH = 5, 10_000  # files of CIFAR-10's training images, and images in each
_MACHINES = (0, 1, 8, 9)  # airplane, automobile, ship, truck; the others are animals
_RECORD = np.dtype([("category", np.uint8), ("image", np.uint8, (3, 32, 32))])


def mnist(*, rows: int | None = None, scaled: bool = True) -> Split:
    """Handwritten digits, label 1 for an odd one: 60,000 to learn from, 10,000 to measure on.

    The images have the shape (n, 1, 28, 28).

    Parameters
    ----------
    rows : int, optional
        The first so many training images; all if not given.
    scaled : bool
        To [0, 1]; otherwise the numbers 0 to 255 as published (the paper mentions no scaling).

    Returns
    -------
    Split
    """
    check_rows(rows, _MNIST_ROWS)
    return Split(*_read_mnist("train", rows, scaled), *_read_mnist("t10k", None, scaled))


def cifar10(*, rows: int | None = None, scaled: bool = True) -> Split:
    """Photographs, label 1 for a machine and 0 for an animal: 50,000 to learn from, 10,000 to measure on.

    The images have the shape (n, 3, 32, 32). They come in five files of 10,000, of which only those are needed that
    hold the first `rows` images.

    Parameters
    ----------
    rows : int, optional
        The first so many training images; all if not given.
    scaled : bool
        To [0, 1]; otherwise the numbers 0 to 255 as published (the paper mentions no scaling).

    Returns
    -------
    Split
    """
    n = check_rows(rows, _BATCHES * _BATCH)
    names = [f"cifar10/data_batch_{number}.bin" for number in range(1, math.ceil(n / _BATCH) + 1)]
    there = next((number for number, name in enumerate(names) if not held(name)), 0)
    if mirror() is not None and there > 0:  # before anything is read
        raise FileNotFoundError(
            f"BAGWISE_DATA has no file {names[there]}: put it there, or ask for the first images with "
            f"rows={there * _BATCH} or less."
        )
    X_test, y_test = _read_batches(["cifar10/test_batch.bin"], _BATCH, scaled)
    return Split(*_read_batches(names, n, scaled), X_test, y_test)


def _read_mnist(part: str, rows: int | None, scaled: bool) -> tuple[NDArray[np.float32], Integers]:
    images, digits = (_idx(f"{part}-{name}-ubyte.gz", rows) for name in ("images-idx3", "labels-idx1"))
    return _numbers(images[:, None], scaled), (digits % 2).astype(int)


def _idx(name: str, rows: int | None) -> NDArray[np.uint8]:
    """The first `rows` items of a file in the IDX format: a header that ends with the shape, then the bytes."""
    with gzip.open(file(f"mnist/{name}")) as stream:
        axes = stream.read(4)[3]
        length, *shape = np.frombuffer(stream.read(4 * axes), ">i4").tolist()
        n = length if rows is None else rows
        return np.frombuffer(stream.read(n * math.prod(shape)), np.uint8).reshape(n, *shape)


def _read_batches(names: list[str], n: int, scaled: bool) -> tuple[NDArray[np.float32], Integers]:
    """The first n images in files of CIFAR-10's binary version, and their labels."""
    X, y = np.empty((n, *_RECORD["image"].shape), np.float32), np.empty(n, int)
    for number, name in enumerate(names):
        part = slice(number * _BATCH, (number + 1) * _BATCH)
        records = np.fromfile(file(name), _RECORD, count=len(y[part]))
        _numbers(records["image"], scaled, out=X[part])
        y[part] = np.isin(records["category"], _MACHINES)
    return X, y


def _numbers(pixels: NDArray[np.uint8], scaled: bool, out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
    return np.divide(pixels, np.float32(255 if scaled else 1), out=out, dtype=np.float32)
