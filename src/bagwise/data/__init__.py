"""Bags of rows as estimators read them: in memory or in shards on disk, columns as numbers.

An estimator says what it `Reads` and learns from `BagRows`; tables, searches and benchmarks hand it what it can read.
Shards are written from tables and opened by `bagwise.data.shards.Shards`. Where there are no rows, `Aggregates` holds
counts and label sums by their values.
"""

from bagwise.data.aggregates import Aggregates, CountedFeature, CountTable
from bagwise.data.rows import BagRows, InMemory, Reads

__all__ = ["Aggregates", "BagRows", "CountTable", "CountedFeature", "InMemory", "Reads"]
