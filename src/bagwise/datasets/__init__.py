"""Data sets to try things on; `synthetic` needs no download and knows its own truth."""

from bagwise.datasets.synthetic import AdLog, synthetic

__all__ = ["AdLog", "synthetic"]
