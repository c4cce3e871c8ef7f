"""Images with individual labels."""

from __future__ import annotations

import gzip

import numpy as np
from numpy.typing import NDArray

from bagwise.datasets.split import Split, file


def mnist() -> Split:
    """Handwritten digits scaled to [0, 1], label 1 for an odd one: 60,000 to learn from, 10,000 to measure on.

    The images have the shape (n, 1, 28, 28).
    """

    def read(name: str, header: int) -> NDArray[np.uint8]:
        with gzip.open(file(f"mnist/{name}")) as stream:
            return np.frombuffer(stream.read(), np.uint8, offset=header)

    def images(name: str) -> NDArray[np.float32]:
        return read(f"{name}-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28).astype(np.float32) / np.float32(255)

    def odd(name: str) -> NDArray[np.integer]:
        return (read(f"{name}-labels-idx1-ubyte.gz", 8) % 2).astype(int)

    return Split(images("train"), odd("train"), images("t10k"), odd("t10k"))
