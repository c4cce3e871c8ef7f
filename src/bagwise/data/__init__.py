"""Bags of rows as estimators read them: in memory or in shards on disk, columns as numbers.

An estimator says what it `Reads` and learns from `BagRows`; tables, searches and benchmarks hand it what it can read.
Shards are written from tables and opened by `bagwise.data.shards.Shards`.
"""

from bagwise.data.rows import BagRows, InMemory, Reads

__all__ = ["BagRows", "InMemory", "Reads"]
