"""The command of the data holder who has not published yet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

import bagwise
from bagwise.cli.common import Misuse, check_free, show_progress, show_result
from bagwise.cli.options import SOURCE, Json, Mechanism, Seed, parse_names, parse_whole, table_source
from bagwise.cli.tables import Model
from bagwise.utils.parameters import ParameterError

if TYPE_CHECKING:
    import pandas as pd

_PICTURES, _FIGURE = (".png", ".svg", ".pdf"), Path("bagwise-plan.png")


def plan(
    rows: Annotated[int | None, Option(min=2, help="Rows that can be published.")] = None,
    bag_size: Annotated[str | None, Option(help="Rows per bag, as 64 or 16,64,256; if not given, many.")] = None,
    epsilon: Annotated[str, Option(help="Noise on counts, as 1 or 0.5,1,none.")] = "none",
    regret: Annotated[float | None, Option(help="Wanted: square error above that of the best model.")] = None,
    hypotheses: Annotated[int, Option(min=2, help="Candidates to choose from.")] = 100,
    parameters: Annotated[
        int | None, Option(min=1, help="Parameters of a linear model to fit, for what is likely and expected.")
    ] = None,
    prior: Annotated[float, Option(help="Share of positives p.")] = 0.5,
    risk: Annotated[float | None, Option(help="Square error of the best model, at most; else p(1 − p).")] = None,
    formation: Annotated[str, Option(help="How bags come about: random, rates, features or effects.")] = "random",
    rates_sd: Annotated[float | None, Option(help="Of rates: standard deviation of the rates of bags.")] = None,
    effects_sd: Annotated[float | None, Option(help="Of effects: their standard deviation on log odds.")] = None,
    between: Annotated[
        float | None, Option(help="Of features, effects: share of what is to be learned that differs between bags.")
    ] = None,
    noise_scale: Annotated[
        float | None, Option(help="In place of --epsilon: b of Laplace noise, or standard deviation of Gaussian noise.")
    ] = None,
    mechanism: Annotated[
        Mechanism | None, Option(help="How noise is made; discrete-laplace for --epsilon on counts if not told.")
    ] = None,
    sensitivity: Annotated[
        float | None, Option(help="By how much one person can change a report, which --epsilon is divided by.")
    ] = None,
    hidden: Annotated[str | None, Option(metavar="0-9", help="Counts between these will not be shown.")] = None,
    rounded: Annotated[float | None, Option(min=1, help="Counts will be rounded to a multiple of this, as 5.")] = None,
    clamped: Annotated[
        str | None, Option(metavar="0-100", help="What counts below, and above, will be set to.")
    ] = None,
    further: Annotated[
        str | None,
        Option(help="Rows per bag of further tables about the same rows, as 400,5000."),
    ] = None,
    value_sd: Annotated[
        float | None, Option(help="Bags report sums of values of this standard deviation, not counts.")
    ] = None,
    error: Annotated[float, Option(help="Allowed probability of missing the regret.")] = 0.05,
    pilot: Annotated[str | None, Option(help=f"Rows with labels, to try out bags on. {SOURCE}")] = None,
    label: Annotated[str | None, Option(help="Column of labels of the pilot.")] = None,
    positive: Annotated[str | None, Option(help="The label to count, where labels are not 0 and 1.")] = None,
    model: Annotated[Model, Option(help="What the pilot fits.")] = Model.ridge,
    repetitions: Annotated[int, Option(min=2, help="Runs of the pilot at each size and epsilon.")] = 5,
    figure: Annotated[Path, Option(dir_okay=False, help="Picture to write, replaced if there.")] = _FIGURE,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Tell what a bag size and noise would cost, before any label is published.

    Four answers: the regret to be expected on average, the one that is likely kept, the one that a theorem guarantees
    whatever the distribution, and the one below which nobody can be sure to come. With --pilot, a table with labels,
    also the accuracy that a model reaches, by putting it in bags.
    """
    if (pilot is None) != (label is None):
        raise Misuse("a pilot needs both: --pilot, a table with labels, and --label, their column.")
    theirs: dict[str, object] = {"--noise-scale": noise_scale, "--mechanism": mechanism, "--sensitivity": sensitivity}
    theirs |= {"--further": further, "--value-sd": value_sd}
    if pilot is not None and (no_pilot := [option for option, given in theirs.items() if given is not None]):
        said = "a pilot puts labels in one table of random bags, with noise as bagwise bag makes it"
        raise Misuse(f"{no_pilot[0]} does not go with --pilot: {said}.")
    if positive is not None and pilot is None:
        raise Misuse("--positive belongs to --pilot: pass that, too.")
    if not 0 < prior < 1:
        raise Misuse(f"--prior must lie between 0 and 1, got {prior}.")
    if rows is None and regret is None:
        raise Misuse("pass --rows, --regret, or both.")
    if figure.suffix.lower() not in _PICTURES:
        raise Misuse(f"--figure {figure} has an unknown ending: name a file {', '.join(_PICTURES)}.")
    check_free(figure, force=True)
    with show_progress() as progress, table_source(pilot or "") as source:
        from bagwise.planning import sentences
        from bagwise.planning.figure import plan_figure
        from bagwise.tables.intervals import Hidden
        from bagwise.tables.reports import ReportColumns
        from bagwise.theory.reported import Cells
        from bagwise.utils.files import replacing

        sizes, epsilons = tuple(sorted(set(parse_whole(bag_size, "--bag-size")))), _parse_epsilons(epsilon)
        asked: dict[str, Any] = {"rows": rows, "sizes": sizes, "epsilons": epsilons, "regret": regret, "error": error}
        learned: dict[str, Any] = {"hypotheses": hypotheses, "parameters": parameters, "prior": prior, "risk": risk}
        formed: dict[str, Any] = {
            "formation": formation,
            "rates_sd": rates_sd,
            "effects_sd": effects_sd,
            "between": between,
        }
        cells = Hidden.of(ReportColumns(hidden=hidden, rounded=rounded, clamped=clamped))
        reported: dict[str, Any] = {
            "noise_scale": noise_scale,
            "mechanism": None if mechanism is None else mechanism.value,
            "sensitivity": sensitivity,
            "value_sd": value_sd,
            "further": parse_whole(further, "--further"),
            **vars(cells),
        }
        question = bagwise.planning.Question(**asked, **learned, **formed, **reported)
        found = bagwise.planning.curves(question, progress=progress)
        measured = None
        if pilot is not None:
            assert label is not None
            tried: dict[str, Any] = {"sizes": sizes or (16, 64, 256), "epsilons": epsilons, "repetitions": repetitions}
            made: dict[str, Any] = {"model": model.value, "random_state": seed, "progress": progress}
            made["cells"] = Cells(**vars(cells))
            measured = bagwise.planning.pilot(source, label=label, positive=positive, **tried, **made)
        with replacing(figure) as (temporary,):
            plan_figure(found, regret=regret, measured=measured).savefig(temporary, dpi=150)
    lines = [*sentences(question, found), "", *([] if question.sizes else [_table(found), ""])]
    if measured is not None:
        lines += ["Measured in the pilot, with intervals for the next run (90%):", _measured(measured), ""]
    facts: dict[str, Any] = {"curves": _records(found), "pilot": None if measured is None else _records(measured)}
    show_result(as_json, facts | {"figure": str(figure)}, *lines, f"Written: {figure}")


def _parse_epsilons(text: str) -> tuple[float | None, ...]:
    try:
        found = [None if one.lower() in ("none", "inf") else float(one) for one in parse_names(text) or []]
    except ValueError:
        raise ParameterError("epsilon", f"must be numbers or none, as in 0.5,1,none, got {text}.") from None
    return tuple(dict.fromkeys(found))


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Lines as JSON: null for what is missing or infinite."""
    return list(frame.astype(object).where(frame.abs() < float("inf"), None).to_dict("records"))


def _table(found: pd.DataFrame) -> str:
    shown = found.assign(epsilon=[f"{e:g}" if e == e else "none" for e in found["epsilon"]])  # missing: no noise
    shown = shown.rename(columns=lambda name: name.replace("_", " "))
    return str(shown.to_string(index=False, formatters=dict.fromkeys(shown.columns.drop("epsilon"), _digits)))


def _digits(value: float) -> str:
    if not value < float("inf"):
        return "–"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2g}"


def _measured(measured: pd.DataFrame) -> str:
    def intervals(name: str) -> list[str]:
        triples = measured[[name, f"{name}_low", f"{name}_high"]].itertuples(index=False)
        return [f"{value:.4f} [{low:.4f}, {high:.4f}]" for value, low, high in triples]

    shown = measured.assign(accuracy=intervals("accuracy"), brier=intervals("brier"))
    return str(shown[["epsilon", "k", "bags", "accuracy", "brier"]].to_string(index=False, na_rep="none"))
