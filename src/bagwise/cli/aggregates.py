"""Commands on tables of counts and label sums by features, where there are no events."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

import bagwise
from bagwise.cli import options
from bagwise.cli.common import check_free, show_progress, show_result

AggregatedModel = StrEnum("AggregatedModel", "logistic ridge")
MissingPairs = StrEnum("MissingPairs", "error independent")
_TABLES = (
    "Folder of tables, or tables: long, with feature_1, value_1, feature_2, value_2, or one for each feature and pair."
)
_EDGES = "JSON file that says where numbers are cut, by feature"


def fit_aggregates(
    tables: Annotated[list[str], Argument(help=_TABLES)],
    out: Annotated[Path, Option(file_okay=False, help="Folder for the model.")] = Path("model"),
    model: Annotated[AggregatedModel, Option(help="ridge is quicker and less exact.")] = AggregatedModel.logistic,
    count: Annotated[str, Option(help="Column of counts.")] = "count",
    sum: Annotated[str, Option(help="Column of label sums.")] = "sum",
    noise_variance: Annotated[
        options.Text,
        Option(
            help="Variance of noise on each count and sum: a number or a column, or one for each table, as 9,400; "
            "without any, repeats tell."
        ),
    ] = None,
    noise_scale: Annotated[
        options.Text,
        Option(help="Scale of Laplace noise, or with --mechanism gaussian its standard deviation; likewise."),
    ] = None,
    epsilon: Annotated[options.Text, Option(help="Epsilon of Laplace noise on each count and sum; likewise.")] = None,
    mechanism: Annotated[options.Mechanism | None, Option(help="How noise was made; laplace if not told.")] = None,
    sensitivity: Annotated[
        options.Text, Option(help="By how much one person changes what --epsilon is about; 1 if not given.")
    ] = None,
    threshold: Annotated[
        float | None, Option(help="Below which counts were left out; the column threshold if there is one.")
    ] = None,
    rows: Annotated[float | None, Option(help="How many rows there are, if better known than by the tables.")] = None,
    rest: Annotated[options.Text, Option(help="Values that stand for all others, as a,b; null does.")] = None,
    edges: Annotated[
        Path | None, Option(dir_okay=False, help=f"{_EDGES}; edges.json of the folder if there is one.")
    ] = None,
    ignore: Annotated[options.Text, Option(help="Columns that are no features, as a,b.")] = None,
    missing_pairs: Annotated[
        MissingPairs, Option(help="What pairs of features without a table are; independent ones may count twice.")
    ] = MissingPairs.error,
    seed: options.Seed = 0,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Learn a model of single rows from noised counts and label sums by one feature and by two, without events.

    bagwise predict and bagwise evaluate take it as any other model. Cells without a line have no rows, or with
    --threshold are hidden.
    """
    from bagwise.tables.aggregated_model import AboutAggregates, facts

    check_free(out, force=force)
    bagwise.saving.check_free(out, force=True)
    with show_progress() as progress:
        progress(0, 2, "reading tables")
        noise: dict[str, Any] = {"noise_variance": noise_variance, "noise_scale": noise_scale, "epsilon": epsilon}
        noise = {name: _one_or_each(one) for name, one in {**noise, "sensitivity": sensitivity}.items()}
        names: dict[str, Any] = {"rest": options.parse_names(rest) or (), "ignore": options.parse_names(ignore) or ()}
        told: dict[str, Any] = {"count": count, "sum": sum, "threshold": threshold, "rows": rows, "edges": edges}
        data = bagwise.tables.read_aggregates(
            tables[0] if len(tables) == 1 else tables, mechanism=mechanism and mechanism.value, **told, **noise, **names
        )
        progress(1, 2, f"fitting {model.value}")
        fitted = bagwise.tables.fit_aggregates(data, model.value, missing_pairs=missing_pairs.value, random_state=seed)
        about = AboutAggregates.of(fitted, data)
        bagwise.saving.save(fitted, out, about=facts(about), force=force)
    show_result(as_json, about, *about.lines, f"Written: {out}")


def _one_or_each(text: str | None) -> str | float | list[str | float] | None:
    """A number or the name of a column; several where there are commas."""
    each = [options.number_or_column(one) for one in options.parse_names(text) or ()]
    return each[0] if len(each) == 1 else [one for one in each if one is not None] or None


def aggregate(
    table: Annotated[str, Argument(help=f"Rows with individual labels. {options.SOURCE}")],
    label: Annotated[str, Option(help="Column of labels, of two values.")],
    out: Annotated[Path, Option(file_okay=False, help="Folder for aggregates.parquet and edges.json.")],
    positive: Annotated[str | None, Option(help="The label to sum, where labels are not 0 and 1.")] = None,
    ignore: Annotated[options.Text, Option(help="Columns that nothing is counted by, as a,b.")] = None,
    edges: Annotated[Path | None, Option(dir_okay=False, help=f"{_EDGES}.")] = None,
    bins: Annotated[
        int | None, Option(min=2, help="Of other numbers with more values, cut at quantiles, which that tells.")
    ] = None,
    max_levels: Annotated[int, Option(min=1, help="Most frequent values of a column with a cell of their own.")] = 64,
    epsilon: Annotated[
        float | None, Option(help="Differential privacy of rows: noise on every cell that no seed repeats.")
    ] = None,
    delta: Annotated[float | None, Option(help="With it noise is Gaussian, less for many tables.")] = None,
    threshold: Annotated[float | None, Option(help="Counts below it are hidden, with their sums.")] = None,
    force: options.Force = False,
    force_budget: options.ForceBudget = False,
    as_json: options.Json = False,
) -> None:
    """Turn rows with labels into counts and label sums by each feature and each pair: the data holder's side."""
    with show_progress() as progress, options.table_source(table) as source:
        for name in ("aggregates.parquet", "edges.json"):
            check_free(out / name, force=force)
        progress(0, None, "counting rows")
        cells: dict[str, Any] = {"edges": edges, "bins": bins, "max_levels": max_levels, "positive": positive}
        noise: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "threshold": threshold}
        noise |= {"force": force, "force_budget": force_budget}
        ignored = options.parse_names(ignore) or ()
        found = bagwise.tables.publish_aggregates(source, out, label=label, ignore=ignored, **cells, **noise)
    show_result(as_json, found, str(found), f"Written: {found.tables}, {found.edges}")
