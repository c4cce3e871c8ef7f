"""Events and reports wherever they live: files, DuckDB, Spark, a warehouse.

An *events* table has features and the keys of bags, one line per row, and no labels; a *reports* table has one line per
bag. `join` checks that the two fit, in the engine; `fit` learns from them; the `TableModel` that comes out scores rows
of other tables. `put_in_bags` is the data holder's side: it makes the two tables out of one with labels.
"""

from bagwise.data.shards import Shards
from bagwise.estimators import MODELS
from bagwise.tables import moments, publish
from bagwise.tables.bag_table import BagTable, Problem, Summary
from bagwise.tables.engine import connect
from bagwise.tables.evaluation import diagnose, evaluate, evaluate_shards, sensitivity, split
from bagwise.tables.gather import write_shards
from bagwise.tables.join import join
from bagwise.tables.metadata import about, doubt_of, evaluation_facts, risk_of, was_seen, withhold
from bagwise.tables.model import Recipe, TableModel, features_of, fit
from bagwise.tables.publish import put_in_bags
from bagwise.tables.scoring import write_scores
from bagwise.tables.sources import read

__all__ = [
    "MODELS",
    "BagTable",
    "Problem",
    "Recipe",
    "Shards",
    "Summary",
    "TableModel",
    "about",
    "connect",
    "diagnose",
    "doubt_of",
    "evaluate",
    "evaluate_shards",
    "evaluation_facts",
    "features_of",
    "fit",
    "join",
    "moments",
    "publish",
    "put_in_bags",
    "read",
    "risk_of",
    "sensitivity",
    "split",
    "was_seen",
    "withhold",
    "write_scores",
    "write_shards",
]
