"""Events and reports wherever they live: files, DuckDB, Spark, a warehouse.

An *events* table has features and the keys of bags, one line per row, and no labels; a *reports* table has one line per
bag. `join` checks that the two fit, in the engine; `fit` learns from them; the `TableModel` that comes out scores rows
of other tables. `put_in_bags` is the data holder's side: it makes the two tables out of one with labels.
"""

from bagwise.data.shards import Shards
from bagwise.tables.bag_table import BagTable, Mismatch, Summary
from bagwise.tables.engine import connect
from bagwise.tables.evaluation import Measurement, diagnose, evaluate, measure, sensitivity, split
from bagwise.tables.gather import write_shards
from bagwise.tables.join import join
from bagwise.tables.metadata import About, about, read_about
from bagwise.tables.model import Recipe, TableModel, features_of, fit
from bagwise.tables.publish import Published, put_in_bags
from bagwise.tables.scoring import write_scores
from bagwise.tables.sources import read

__all__ = [
    "About",
    "BagTable",
    "Measurement",
    "Mismatch",
    "Published",
    "Recipe",
    "Shards",
    "Summary",
    "TableModel",
    "about",
    "connect",
    "diagnose",
    "evaluate",
    "features_of",
    "fit",
    "join",
    "measure",
    "put_in_bags",
    "read",
    "read_about",
    "sensitivity",
    "split",
    "write_scores",
    "write_shards",
]
