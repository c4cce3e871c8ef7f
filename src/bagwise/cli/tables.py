"""Commands on tables: bags made, examined, learned from; models judged, used and shown on a page."""

from __future__ import annotations

import math
import shlex
import time
import warnings
from contextlib import nullcontext
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

import bagwise
from bagwise.cli import common, configuration, options
from bagwise.cli.common import Misuse, check_free, show_progress, show_result
from bagwise.cli.distributed import fit_in_processes

Engine = StrEnum("Engine", "here torchrun")
Model = StrEnum(
    "Model",
    {
        "auto": "auto",
        "boosting": "boosting",
        "logistic": "logistic",
        "mean_map": "mean-map",
        "network": "network",
        "ridge": "ridge",
        "sgd": "sgd",
        "tweedie": "tweedie",
    },
)
_NOT_SHOWN = {"out", "force", "as_json", "debug"}  # they say nothing about what is on the page
_SECONDS = 300.0  # that the command may take with auto
_TO_FIT = 0.9  # of the time; the rest is for measuring
ModelFolder = Annotated[Path, Argument(help="Folder that bagwise fit wrote.")]


def bag(
    table: Annotated[str, Argument(help=f"Rows with individual labels. {options.SOURCE}")],
    label: Annotated[str, Option(help="Column of labels; it never reaches the events.")],
    out: Annotated[Path, Option(file_okay=False, help="Folder for events.parquet and reports.parquet.")],
    size: Annotated[int | None, Option(min=1, help="Rows per bag, dealt at random.")] = None,
    by: Annotated[str | None, Option(help="Columns to group by, as a,b; with --size, bags within groups.")] = None,
    min_size: Annotated[int, Option(min=1, help="Reports of smaller bags are withheld.")] = 2,
    positive: Annotated[str | None, Option(help="The label to count, where labels are not 0 and 1.")] = None,
    classes: Annotated[str | None, Option(help="Labels that may occur, as a,b,c; those that do if not given.")] = None,
    epsilon: Annotated[
        float | None, Option(help="Label differential privacy: counts get noise that no seed repeats.")
    ] = None,
    delta: Annotated[float | None, Option(help="With it noise is Gaussian; without, Laplace.")] = None,
    threshold: Annotated[
        float | None, Option(help="Withhold reports whose noised count is below this, which biases what is learned.")
    ] = None,
    seed: Annotated[
        int | None, Option(min=0, help="To deal the same bags again, without --epsilon; secret if not given.")
    ] = None,
    memory: options.Memory = None,
    force: options.Force = False,
    force_budget: options.ForceBudget = False,
    as_json: options.Json = False,
) -> None:
    """Turn rows with labels into events without labels and reports of bags: the data holder's side."""
    if size is None and by is None:
        raise Misuse("say how bags are made: pass --size, --by, or both.")
    if seed is not None and epsilon is not None:
        why = "whoever tries seeds finds it, and with it the order of the rows, which may tell the labels that noise"
        raise Misuse(f"--seed does not go with --epsilon: {why} is to protect; leave it out.")
    with show_progress() as progress, options.table_source(table) as source:
        for name in (bagwise.tables.publish.EVENTS, bagwise.tables.publish.REPORTS):
            check_free(out / name, force=force)
        progress(0, None, "putting rows in bags")
        labels: dict[str, Any] = {"label": label, "positive": positive, "classes": options.parse_names(classes)}
        sizes: dict[str, Any] = {"size": size, "by": options.parse_names(by) or (), "min_size": min_size}
        noise: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "threshold": threshold}
        own = bagwise.tables.connect(memory=memory, ordered=True)
        noise |= {"random_state": seed, "force": force, "force_budget": force_budget}
        held = bagwise.tables.put_in_bags(source, out, **labels, **sizes, **noise, connection=own)
    show_result(as_json, held, str(held), f"Written: {held.events}, {held.reports}")


def diagnose(
    joined: options.JoinedAsFarAsPossible,
    model: Annotated[
        Path | None, Option(metavar="<dir>", help="Folder that bagwise fit wrote: columns mean what they meant to it.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Check that events and reports fit, and tell how bags came about, whether they drift, or leak labels.

    Bags that do not fit are named, kind by kind, and left out, unless --on-mismatch error is given.
    """
    fitted = None if model is None else load_model(model)
    with show_progress() as progress, joined(progress, like=fitted) as data:
        from bagwise.diagnostics.advice import COMMANDS, advice
        from bagwise.tables.fitting import features_of

        progress(1, 2, "looking at the bags")
        features = features_of(data) if fitted is None else fitted.features
        found = bagwise.tables.diagnose(data, features)
    ignored = {one.name: one.note for one in features.columns if one.note}
    facts = {
        "tables": data.summary,
        "ignored": ignored,
        "verdict": found.verdict,
        "formation": found.formation,
        "sureness": found.sureness,
        "strata": found.strata,
        "random_apart_from_drift": found.random_apart,
        "allowed": found.allowed,
        "advice": advice(found, COMMANDS),
        "tests": found.tests,
        "slopes": {"forward": found.evidence.forward, "reverse": found.evidence.reverse},
        "support": found.support,
        "level": found.level,
        "leaks": found.leaks,
    }
    kinds = ",".join(mismatch.kind for mismatch in data.summary.mismatches if not mismatch.expected)
    repair = [f"Repair the tables, or pass --on-mismatch=drop:{kinds} to fit and evaluate."] if kinds else []
    left = [f"Ignored: {name} ({note})." for name, note in ignored.items()]
    show_result(as_json, facts, str(data.summary), *left, *repair, "", found.in_terms(COMMANDS))


def fit(
    context: typer.Context,
    joined: options.Joined,
    out: Annotated[Path, Option(file_okay=False, help="Folder for the model.")] = Path("model"),
    model: Annotated[
        Model | None,
        Option(
            help="auto, the default, tries linear models, boosting and, with torch, networks; held-out bags decide. "
            "Of labels alone: logistic, mean-map. Of values alone: tweedie, which is log-linear."
        ),
    ] = None,
    source: options.Source = None,
    forgetting: options.Forgetting = None,
    hold_out: options.HoldOut = str(options.HELD_OUT),
    latest: options.Latest = None,
    refit: Annotated[
        bool, Option("--refit", help="After measuring, fit once more to all bags, those held out included.")
    ] = False,
    roles: options.Roles = None,
    max_levels: options.MaxLevels = 64,
    engine: Annotated[Engine, Option(help="Where a network or boosting is fitted; torchrun: in several processes.")] = (
        Engine.here
    ),
    processes: Annotated[int | None, Option(min=1, help="Processes of --engine torchrun; 2 if not given.")] = None,
    time_budget: Annotated[
        float | None, Option(min=1, help="Seconds for all of it with auto; 300 if not given.")
    ] = None,
    formation: options.BagFormation = options.Formation.auto,
    labels: options.Labels = None,
    label: options.Label = None,
    loss: Annotated[str | None, Option(help="Loss of a network, by its name in bagwise.losses.LOSSES.")] = None,
    device: Annotated[str | None, Option(help="Device of a network, as cuda or cpu.")] = None,
    settings: configuration.Settings = None,
    config: configuration.Config = None,
    seed: options.Seed = 0,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Learn a model of single rows from events and reports, and measure it on bags held out.

    With --from, a model that was fitted to earlier tables is refined by these, after a look at what has changed.
    """
    began = time.monotonic()
    check_free(out, force=force)
    bagwise.saving.check_free(out, force=True)
    automatic = model in (None, Model.auto)
    if engine is Engine.torchrun and model not in (Model.network, Model.boosting):
        raise Misuse("--engine torchrun fits networks and boosting: pass --model network or --model boosting, too.")
    if processes is not None and engine is not Engine.torchrun:
        raise Misuse("--processes belongs to --engine torchrun: pass that, too.")
    if time_budget is not None and not automatic:
        raise Misuse("--time-budget belongs to --model auto: leave it out, or pass that.")
    if time_budget == math.inf:
        raise Misuse("--time-budget must be a finite number of seconds, of at least 1.")
    held = options.HeldOut.parse(hold_out, latest)
    if refit and not held.share:
        raise Misuse("--refit is for bags that were held out: leave it out, or hold some out.")
    weight, before = options.parse_forgetting(forgetting), None
    label = options.label_column(label, labels)
    chosen = configuration.parse_settings(settings)
    for name, value in (("loss", loss), ("device", device)):
        if value is not None and model is not Model.network:
            raise Misuse(f"--{name} is for networks: pass --model network, too.")
        chosen |= {} if value is None else {name: value}
    if source is not None:
        given = {"--model": model is not None, "--roles": roles, "--max-levels": max_levels != 64}
        given |= {"--engine": engine is not Engine.here, "--time-budget": time_budget is not None}
        given |= {"--set": bool(chosen)}
        if told_too := [option for option, one in given.items() if one]:
            raise Misuse(f"{told_too[0]} does not go with --from: the model is what it was fitted as; leave it out.")
        before = load_model(source)
    elif forgetting is not None:
        raise Misuse("--forgetting belongs to --from: pass the folder of a model of earlier tables, too.")
    with show_progress() as progress, joined(progress, like=before) as data:
        from bagwise.tables import metadata
        from bagwise.tables.evaluation import measure, measure_values
        from bagwise.tables.fitting import DEFAULT_MODEL
        from bagwise.utils.records import as_data

        told: dict[str, Any] = {"roles": options.parse_roles(roles), "max_levels": max_levels}
        told |= {"formation": formation.value, "random_state": seed, "progress": progress}

        updated = None
        if source is not None:
            told_before = metadata.read_about(bagwise.saving.inspect(source).about)
            if told_before is not None and told_before.has_seen(data.summary):
                said = "these look like the tables that the model was fitted to last: they would count twice."
                warnings.warn(said, stacklevel=1)

        def learn(bags: Any, share: float) -> Any:
            """Fit, so that by the end of it no more than a share of the time is over."""
            nonlocal updated
            if before is not None:
                updated = bagwise.tables.update(before, bags, forgetting=weight, progress=progress)
                return updated.model
            if engine is Engine.torchrun:
                return fit_in_processes(bags, str(model), processes or 2, settings=chosen, **told)
            end = began + share * (time_budget or _SECONDS)
            left = max(1.0, end - time.monotonic()) if automatic else None
            name = DEFAULT_MODEL if model is None else model.value
            return bagwise.tables.fit(bags, name, settings=chosen, time_budget=left, **told)

        def labelled(bags: Any) -> Any:
            """The bags to learn from, and labelled rows beside them, which are never measured on."""
            return bags if labels is None else bagwise.tables.with_labels(bags, labels, label=label)

        column = held.column(data, latest)
        train, held_out = options.split(data, held, column)
        train = labelled(train)
        fitted, measured = learn(train, _TO_FIT / 2 if refit else _TO_FIT), None
        if held_out is not None:
            progress(1, 1, "measuring")
            asked: dict[str, Any] = {"formation": formation.value, "held_out": True}
            measured = (measure_values if fitted.target == "value" else measure)(fitted, held_out, **asked)
        if refit:
            train = labelled(data)
            fitted = learn(train, _TO_FIT)
        progress(1, 1, "looking at columns")
        about = metadata.about(fitted, train, measured, seen=data.summary, refitted=refit, latest=column)
        about = replace(about, config=configuration.as_toml(context))
        bagwise.saving.save(fitted, out, about=as_data(about), force=force)
    facts = about if updated is None else {**as_data(about), **common.update_facts(updated)}
    lines = [] if updated is None else [str(updated), ""]
    show_result(as_json, facts, *lines, *common.describe_model(about), f"Written: {out}")


def evaluate(
    folder: ModelFolder,
    joined: options.Joined | None,
    level: Annotated[
        float | None, Option(min=0.5, max=0.999, help="Level of the intervals; 0.95 if not given.")
    ] = None,
    formation: options.BagFormation = options.Formation.auto,
    strata: Annotated[
        str | None, Option(help="Columns of the events inside of whose values bags are random, as campaign,day.")
    ] = None,
    by: Annotated[
        str | None,
        Option(help="Column of the events: rates of positive labels, or mean values, for each of its values."),
    ] = None,
    threshold: Annotated[
        float | None, Option(min=0, max=1, help="Above which a row is said to be positive; 0.5 if not given.")
    ] = None,
    labels: options.Labels = None,
    label: options.Label = None,
    as_json: options.Json = False,
) -> None:
    """Measure a model without labels, or with a few: on the bags held out when it was fitted, or on other tables."""
    from bagwise.evaluation.measures import check_no_labels
    from bagwise.tables.evaluation import measure_values
    from bagwise.tables.metadata import read_about

    label = options.label_column(label, labels)
    about = read_about(bagwise.saving.inspect(folder).about)
    if joined is None:
        stored = None if about is None else about.evaluation or about.values
        if about is None or stored is None:
            raise ValueError(f"{folder} was fitted without holding bags out: pass events and reports of other bags.")
        if level is not None and abs(level - stored.level) > 1e-9:
            raise Misuse(f"what is stored has {stored.level:.0%} intervals: for other ones pass events and reports.")
        given = {"formation": formation is not options.Formation.auto, "strata": strata, "by": by}
        given |= {"labels": labels}
        if told := [name for name, one in {**given, "threshold": threshold is not None}.items() if one]:
            raise Misuse(f"--{told[0]} is for tables to be measured on: pass events and reports, too.")
        show_result(as_json, stored, *common.describe_held_out(about))
        return
    fitted, named = load_model(folder), options.parse_names(strata) or []
    needed = named if by is None else [*named, by]
    with show_progress() as progress, joined(progress, like=fitted, needed=needed) as data:
        if labels is None and about is not None and about.has_seen(data.summary):
            way = "pass tables of other bags, or none to see how it did on the bags held out"
            said = f"these look like the tables that the model was fitted to, which flatter it: {way}."
            warnings.warn(said, stacklevel=1)
        progress(1, 2, "scoring rows")
        if fitted.target == "value":
            check_no_labels(strata=strata, threshold=threshold, labels=labels)
            values = measure_values(fitted, data, formation=formation.value, by=by, level=level or 0.95)
            show_result(as_json, values, *common.describe_evaluation(values))
            return
        asked: dict[str, Any] = {"formation": formation.value, "strata": named, "by": by}
        asked |= {"threshold": 0.5 if threshold is None else threshold, "level": level or 0.95}
        found = bagwise.tables.measure(fitted, data, labels=labels, label=label, **asked).evaluation
    show_result(as_json, found, *common.describe_evaluation(found))


def inspect(
    folder: ModelFolder,
    toml: Annotated[bool, Option("--toml", help="Print the options of its fit, for bagwise fit --config.")] = False,
    as_json: options.Json = False,
) -> None:
    """Tell what a model is, what it was trained on, how good it is and which columns matter."""
    from bagwise.tables.aggregated_model import read_about_aggregates
    from bagwise.tables.metadata import read_about

    found = bagwise.saving.inspect(folder)
    facts = {"kind": found.kind, "format": found.format, "versions": found.versions, **found.about}
    about = read_about(found.about)
    if toml:
        if as_json:
            raise Misuse("--toml and --json are two ways to print: leave one out.")
        if about is None or not about.config:
            raise Misuse(f"{folder} does not tell its options: it was not written by bagwise fit, or by an older one.")
        common.show(about.config.rstrip())
        return
    lines = [f"a {found.kind}, saved from Python"] if about is None else common.describe_model(about)
    lines = lines if (counts := read_about_aggregates(found.about)) is None else counts.lines
    made = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    show_result(as_json, facts, *lines, f"Made with {made}.")


def page(
    context: typer.Context,
    joined: options.Joined | None,
    model: Annotated[
        list[Path] | None, Option(metavar="<dir>", help="Folder that bagwise fit wrote; several, to compare them.")
    ] = None,
    results: Annotated[
        Path | None, Option(file_okay=False, help="Folder that bagwise reproduce wrote; stands alone.")
    ] = None,
    out: Annotated[Path, Option(dir_okay=False, help="HTML file to write.")] = Path("page.html"),
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Write one HTML file to look at and to send: a diagnosis, a model, a comparison, or a reproduction run.

    Tables alone are diagnosed. With --model, the model is judged by the bags of the tables that it was not fitted to;
    their columns mean what they meant to it (the first, of several). Without tables, the page shows what was stored.
    """
    check_free(out, force=force)
    folders = model or []
    if results is not None and (folders or joined is not None):
        raise Misuse("--results stands alone: leave out tables and --model, or write another page for them.")
    if results is None and not folders and joined is None:
        raise Misuse("there is nothing to make a page of: name events and reports, --model, or --results.")
    command = _command(context)
    tables_of: options.Joined = joined or (lambda _, **__: nullcontext())
    first = load_model(folders[0]) if folders and joined is not None else None
    with show_progress() as progress, tables_of(progress, like=first) as data:
        progress(1, 2, "looking at the bags")
        if results is not None:
            made = bagwise.pages.reproduction_page(results, command=command)
        elif not folders:
            made = bagwise.pages.diagnosis_page(data, command=command)
        elif len(folders) == 1:
            made = bagwise.pages.model_page(folders[0], data, command=command)
        else:
            made = bagwise.pages.comparison_page(folders, data, command=command)
        bagwise.pages.write(made, out, force=force)
    said = {"title": made.title, "standing": made.standing, "verdict": made.headline, "remarks": list(made.remarks)}
    facts = {**said, "file": str(out), "bytes": out.stat().st_size}
    show_result(as_json, facts, made.headline, *(f"  {remark}" for remark in made.remarks), f"Written: {out}")


def _command(context: typer.Context) -> str:
    """The command as it was given, to be given again; but where to, which is not what the page shows."""
    words = ["bagwise", "page"]
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if name in _NOT_SHOWN or source is None or source.name != "COMMANDLINE":
            continue
        value = context.params[name]
        for one in value if isinstance(value, (list, tuple)) else [value]:
            option = [] if parameter.param_type_name == "argument" else [parameter.opts[0]]
            words += option if one is True else [*option, str(one)]
    return shlex.join(words)


def load_model(folder: Path) -> bagwise.tables.TableModel:
    """The model in a folder, which reads tables."""
    model = bagwise.saving.load(folder)
    if not isinstance(model, bagwise.tables.TableModel):
        raise ValueError(f"{folder} holds a model saved from Python, which reads arrays: load it there.")
    return model
