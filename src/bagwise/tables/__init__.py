"""Events and reports wherever they live: files, data frames, DuckDB, Spark, a warehouse.

An *events* table has features and the keys of bags, one line per row, and no labels; a *reports* table has one line per
bag. `join` checks that the two fit, in the engine; `fit` learns from them; the `TableModel` that comes out scores rows
of other tables, and `update` refines it by those that come later. `put_in_bags` is the data holder's side: it makes the
two tables out of one with labels, `import_reports` out of reports in formats of others. Where there are no events but
tables of counts and label sums by features, `read_aggregates` and `fit_aggregates` take their place, and
`publish_aggregates` is the data holder's side.
"""

from bagwise.tables.aggregated_model import fit_aggregates
from bagwise.tables.aggregates import read_aggregates, write_aggregates
from bagwise.tables.aggregates_summary import AggregatesSummary
from bagwise.tables.bag_table import BagTable, Mismatch, Summary
from bagwise.tables.diagnosis import diagnose
from bagwise.tables.disaggregation import group_rates
from bagwise.tables.engines.duckdb import connect
from bagwise.tables.evaluation import Measurement, evaluate, measure
from bagwise.tables.explaining import permutation_importance
from bagwise.tables.fitting import fit
from bagwise.tables.formats import Imported, import_reports
from bagwise.tables.held_out import split
from bagwise.tables.join import join
from bagwise.tables.labels import with_labels
from bagwise.tables.model import TableModel
from bagwise.tables.predictions import sensitivity
from bagwise.tables.publish import Published, put_in_bags
from bagwise.tables.publish_aggregates import PublishedAggregates, publish_aggregates
from bagwise.tables.schema import ColumnMet, ColumnsMet, UnseenValuesWarning
from bagwise.tables.scoring import Scored, write_scores
from bagwise.tables.sources import read
from bagwise.tables.table import Table
from bagwise.tables.updating import Novelty, Updated, update

__all__ = [
    "AggregatesSummary",
    "BagTable",
    "ColumnMet",
    "ColumnsMet",
    "Imported",
    "Measurement",
    "Mismatch",
    "Novelty",
    "Published",
    "PublishedAggregates",
    "Scored",
    "Summary",
    "Table",
    "TableModel",
    "UnseenValuesWarning",
    "Updated",
    "connect",
    "diagnose",
    "evaluate",
    "fit",
    "fit_aggregates",
    "group_rates",
    "import_reports",
    "join",
    "measure",
    "permutation_importance",
    "publish_aggregates",
    "put_in_bags",
    "read",
    "read_aggregates",
    "sensitivity",
    "split",
    "update",
    "with_labels",
    "write_aggregates",
    "write_scores",
]
