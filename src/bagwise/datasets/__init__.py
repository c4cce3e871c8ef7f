"""Data sets to try things on; `synthetic` needs no files and knows its own truth."""

from bagwise.datasets.images import mnist
from bagwise.datasets.split import Split, encode
from bagwise.datasets.synthetic import AdLog, synthetic
from bagwise.datasets.tabular import adult, criteo, digits

__all__ = ["AdLog", "Split", "adult", "criteo", "digits", "encode", "mnist", "synthetic"]
