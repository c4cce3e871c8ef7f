"""Data sets to try things on; `synthetic` needs no files and knows its own truth, `digits` comes with scikit-learn.

The others are read from the folder that the environment variable `BAGWISE_DATA` names; without it they are downloaded
from their official source once and kept in a cache (see `bagwise.datasets.files`). Downloads are silent outside of
`show_downloads`.
"""

from bagwise.datasets.files import show_downloads
from bagwise.datasets.published import Split, adult, cifar10, criteo, digits, encode, higgs, mnist
from bagwise.datasets.synthetic import AdLog, synthetic

__all__ = [
    "AdLog", "Split", "adult", "cifar10", "criteo", "digits", "encode", "higgs", "mnist", "show_downloads", "synthetic",
]  # fmt: skip
