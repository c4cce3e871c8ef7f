"""Options that commands on tables share: where events and reports are, and what their columns mean."""

from __future__ import annotations

import functools
import inspect
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, get_args

from typer import Argument, Option

import bagwise
from bagwise.cli.common import Misuse, Progress, with_parameters
from bagwise.utils.files import TemporaryFolder, naming_place
from bagwise.utils.parameters import AdviceError, Parameter, ParameterError

Text: TypeAlias = str | None  # of an option that may be left out

_PLACES = {"folder": 0, "events": 1, "reports": 1, "force": 4, "as_json": 4}  # others: 2, and 3 for what tables mean

Joined = Callable[..., AbstractContextManager[Any]]
"""Called with a progress function, maybe with a model: the events and reports of a command, joined, a `BagTable`."""

JoinedAsFarAsPossible = Annotated[Joined, {"on_mismatch": "drop"}]
"""The same, where bags that do not fit are left out by default; defaults of options by name."""

Reported = dict[str, Any]
"""Where reports of rows are, and what their columns mean, as `tables.write_scores` takes it."""

Formation = StrEnum("Formation", "auto random rates features effects")
_FORMATION = "How bags came about: by chance, by rates of the label, by features, by these and unseen effects."
BagFormation = Annotated[Formation, Option("--formation", help=f"{_FORMATION} auto: as the bags themselves tell.")]
Seed = Annotated[int, Option(min=0, help="Seed of every random draw.")]
Json = Annotated[bool, Option("--json", help="Print JSON instead of text.")]
Force = Annotated[bool, Option("--force", help="Replace what is there.")]
ForceBudget = Annotated[
    bool,
    Option("--force-budget", help="With --epsilon: release labels again; what is spent adds up."),
]

SOURCE = "Parquet or CSV file, folder or pattern of such, file.duckdb::table, or - for standard input."
Events = Annotated[str, Argument(help=f"Rows with features and bag keys. {SOURCE}")]
OptionalEvents = Annotated[Text, Argument(help="Rows with features and bag keys; for a model, of other bags.")]
_REPORTS = (
    "One line per bag: keys, count or proportion, or sum or mean of values, maybe size, noise; several tables, if they "
    "are about the same events. To be left out if the events have --proportion or --mean."
)
_REPORTS_OF_ROWS = (
    "Reports of bags of these rows, as fit takes them: rows of such bags get scores that add up to them. Several "
    "tables: the option again for each."
)
_MISMATCH = (
    "Bags that do not fit: error; drop, to leave them out; or drop:unreported,eventless, to leave out such only."
)
Target = StrEnum("Target", "label value")
NullKeys = StrEnum("NullKeys", "none rest")
_ON_COUNTS = "on counts: a number or a column"
_ROLES = "Roles of columns, as a=category,b=ignored; number, category, hashed, time or ignored."
Roles = Annotated[Text, Option(help=_ROLES)]
_HOLD_OUT = (
    "Share of the bags to measure the model on, 0 for none; latest, or latest:0.3: the latest of them, by --time."
)
HoldOut = Annotated[str, Option(help=_HOLD_OUT)]
Latest = Annotated[Text, Option("--time", help="Column of times, or numbers, that --hold-out latest goes by.")]
HELD_OUT = 0.2
Source = Annotated[
    Path | None, Option("--from", file_okay=False, help="Folder of a model of earlier tables, to be refined by these.")
]
Forgetting = Annotated[
    Text, Option(help="Weight of what --from learned, 0 to 1, of linear models; as new bags ask for if not given.")
]
MaxLevels = Annotated[int, Option(min=2, help="Text columns with more values are hashed.")]
Labels = Annotated[Text, Option(help=f"Rows with features and a label each, beside the reports. {SOURCE}")]
Label = Annotated[Text, Option(help="Column of labels in --labels; label if not given.")]
Memory = Annotated[Text, Option(help="Most memory for the tables, such as 2GB.")]


def _column(meaning: str, name: str, *option: str) -> Any:
    """An option that names a column, which is found by itself if it has the usual name."""
    return Option(*option, help=f"{meaning}; {name} if there is one.")


class Mechanism(StrEnum):
    """How noise was made, as options name it."""

    laplace = "laplace"
    discrete_laplace = "discrete-laplace"
    gaussian = "gaussian"


@contextmanager
def table_source(path: str) -> Iterator[str]:
    """A path as it is, or what comes in on standard input, as a file."""
    if path != "-":
        yield path
        return
    with TemporaryFolder() as folder:
        start = sys.stdin.buffer.read(4)
        if not start:
            raise ValueError("standard input is empty: pipe a CSV or Parquet table into it.")
        file = folder / ("input.parquet" if start == b"PAR1" else "input.csv")
        with naming_place({folder: folder.parent}), file.open("wb") as target:
            target.write(start)
            shutil.copyfileobj(sys.stdin.buffer, target)
        yield str(file)


@contextmanager
def _join(
    progress: Progress,
    events: Events,
    reports: Annotated[list[str] | None, Argument(help=_REPORTS)] = None,
    *,
    keys: Annotated[Text, Option(help="Key columns, as a,b; those that both tables have if not given.")] = None,
    count: Annotated[Text, _column("Reports' column of positive counts, or one per class, as a,b,c", "count")] = None,
    proportion: Annotated[Text, _column("Reports' column of proportions, or one per class", "proportion")] = None,
    size: Annotated[Text, _column("Reports' column of sizes, to be checked", "size", "--size")] = None,
    noise_variance: Annotated[Text, _column(f"Variance of noise {_ON_COUNTS}", "noise_variance")] = None,
    noise_scale: Annotated[Text, _column(f"Scale of Laplace noise {_ON_COUNTS}", "noise_scale")] = None,
    epsilon: Annotated[Text, _column(f"Epsilon of Laplace noise {_ON_COUNTS}", "epsilon")] = None,
    suppressed: Annotated[Text, _column("Reports' column that marks withheld reports", "suppressed")] = None,
    target: Annotated[
        Target | None,
        Option(help="What is reported: labels 0 and 1 or classes, or real values, as of purchases; label if not told."),
    ] = None,
    low: Annotated[Text, Option(help="Reports' column of the least count of a bag, or one per class.")] = None,
    high: Annotated[Text, Option(help="Reports' column of the greatest count of a bag, or one per class.")] = None,
    hidden: Annotated[
        Text, Option(help="Between which counts those lie that are not shown (* or none), as 0-9.")
    ] = None,
    rounded: Annotated[float | None, Option(min=1, help="Counts were rounded to a multiple of this, as 5.")] = None,
    clamped: Annotated[Text, Option(help="What counts below and above were set to, as 0-100.")] = None,
    mechanism: Annotated[Mechanism | None, Option(help="How noise was made; laplace if not told.")] = None,
    sensitivity: Annotated[
        Text, Option(help="By how much one person changes a count, which --epsilon is about: a number or a column; 1.")
    ] = None,
    null_keys: Annotated[
        NullKeys | None,
        Option(help="What a report without a key tells of: none, or the rest, all rows that no other does, as * does."),
    ] = None,
    sum: Annotated[Text, _column("Reports' column of sums of values", "sum")] = None,
    mean: Annotated[Text, _column("Reports' column of means of values", "mean")] = None,
    ignore: Annotated[Text, Option(help="Columns of the events that are no features, as a,b.")] = None,
    weight: Annotated[Text, Option(help="Events' column that says for how many people a row stands.")] = None,
    offset: Annotated[Text, Option(help="Events' column added to log odds or logarithms, as that of exposure.")] = None,
    on_mismatch: Annotated[str, Option(help=_MISMATCH)] = "error",
    memory: Memory = None,
    like: Any = None,
    needed: Collection[str] = (),
    rows_alone: bool = False,
) -> Iterator[Any]:
    """Events and reports as the options of a command name them: a `BagTable`; or a `Table` of events without reports.

    like: a model, whose columns mean the same where no option says otherwise.  needed: columns that it may have ignored
    and the command asks for.  rows_alone: whether there may be no reports.
    """
    labels = {"count": count, "proportion": proportion, "sum": sum, "mean": mean, "target": target and target.value}
    noise = {"noise_variance": noise_variance, "noise_scale": noise_scale, "epsilon": epsilon}
    noise |= {"mechanism": mechanism and mechanism.value, "sensitivity": sensitivity}
    noise |= {"null_keys": null_keys and null_keys.value}
    labels |= {"low": low, "high": high, "hidden": hidden, "rounded": rounded, "clamped": clamped}
    told = {"reports": reports, "keys": keys, "size": size, "suppressed": suppressed, "on_mismatch": on_mismatch}
    columns = _columns({**told, **labels, **noise})
    with table_source(events) as source:
        progress(0, None, "joining events and reports")
        ignored, own = parse_names(ignore), bagwise.tables.connect(memory=memory, ordered=rows_alone)
        if rows_alone and not (reports or proportion or mean):
            yield bagwise.tables.read(source, own, what="the table")
            return
        if like is not None and ignored is None and {*like.ignored} & {*needed}:
            like = replace(like, ignored=tuple(name for name in like.ignored if name not in needed))
        columns |= {"weight": weight, "offset": offset, "ignore": ignored, "like": like}
        yield bagwise.tables.join(source, **columns, connection=own)


def _columns(given: dict[str, Any]) -> dict[str, Any]:
    """Where reports are and what their columns mean, as `tables.join` takes it, from options of a command."""
    reports = [given["reports"]] if isinstance(given["reports"], str) else given["reports"] or []
    if "-" in reports:
        raise Misuse("only the events can come from standard input: name a file of reports.")
    given = {**given, "reports": None if not reports else reports[0] if len(reports) == 1 else reports}
    read: dict[str, Callable[[Any], Any]] = {"keys": parse_names, "on_mismatch": _parse_mismatch}
    read |= dict.fromkeys(("count", "proportion", "low", "high"), _one_or_more)
    read |= dict.fromkeys(("noise_variance", "noise_scale", "epsilon", "sensitivity"), number_or_column)
    return {name: read.get(name, lambda text: text)(value) for name, value in given.items()}


def with_tables(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that takes `joined` the options of `_join` instead; `joined` is None where no events are named.

    A command that takes `reported` gets those about reports, which are then an option, too.
    """
    own, shared = (dict(inspect.signature(one, eval_str=True).parameters) for one in (command, _join))
    for ours in ("progress", "like", "needed", "rows_alone"):
        del shared[ours]
    if "reported" in own:
        return _with_reports(command, own, shared)
    if "joined" not in own:
        return command
    annotation = own.pop("joined").annotation
    for defaults in getattr(annotation, "__metadata__", ()):
        shared |= {name: shared[name].replace(default=value) for name, value in defaults.items()}
    if NoneType in get_args(annotation):
        shared["events"] = shared["events"].replace(annotation=OptionalEvents, default=None)

    @functools.wraps(command)
    def run(**options: Any) -> None:
        tables = {name: options.pop(name) for name in shared}
        given = [name for name in shared if tables[name] not in (None, shared[name].default)]
        if given and tables["events"] is None:
            option = f"--{given[0].replace('_', '-')}"
            raise Misuse(f"{option} says something about tables: pass events and reports, too.")
        joined = None if tables["events"] is None else functools.partial(_join, **tables)
        command(joined=joined, **options)

    both = {**own, **shared}
    names = sorted(both, key=lambda name: _PLACES.get(name, 2 if name in own else 3))
    return with_parameters(run, [both[name] for name in names])


def _with_reports(
    command: Callable[..., None], own: dict[str, inspect.Parameter], shared: dict[str, inspect.Parameter]
) -> Callable[..., None]:
    del own["reported"]
    of_events = ("ignore", "weight", "offset")  # which mean what they meant to the model
    shared = {name: one for name, one in shared.items() if name not in ("events", "target", *of_events, *own)}
    shared["reports"] = shared["reports"].replace(annotation=Annotated[list[str] | None, Option(help=_REPORTS_OF_ROWS)])

    @functools.wraps(command)
    def run(**options: Any) -> None:
        given = {name: options.pop(name) for name in shared}
        told = [name for name in given if given[name] not in (None, [], shared[name].default)]
        if told and not given["reports"] and given["proportion"] is None and given["mean"] is None:
            option = f"--{told[0].replace('_', '-')}"
            raise Misuse(f"{option} says something about reports: pass --reports, too.")
        command(reported=_columns(given), **options)

    both = {**own, **shared}
    names = sorted(both, key=lambda name: _PLACES.get(name, 2 if name in own else 3) if name != "reports" else 2)
    return with_parameters(run, [both[name] for name in names])


def parse_names(text: str | None) -> list[str] | None:
    """Names separated by commas."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def label_column(label: str | None, labels: str | None) -> str:
    """The column of labels in a table of labelled rows."""
    if label is not None and labels is None:
        raise Misuse("--label names the column of --labels: pass that, too.")
    return label or "label"


def _parse_mismatch(text: str) -> str | list[str]:
    """What is to be done about bags that do not fit, or the kinds of mismatch that are left out."""
    from bagwise.tables.bag_table import MISMATCHES

    if text in ("error", "drop"):
        return text
    kinds = parse_names(text.removeprefix("drop:")) or []
    if not text.startswith("drop:") or not kinds or not {*kinds} <= {*MISMATCHES}:
        listed = ", ".join(MISMATCHES)
        raise Misuse(f"--on-mismatch must be error, drop, or drop: and kinds of mismatch ({listed}), got {text}.")
    return kinds


def parse_whole(text: str | None, option: str) -> tuple[int, ...]:
    """Whole numbers of at least 1 separated by commas."""
    names = parse_names(text) or []
    if not all(name.isdecimal() and int(name) for name in names):
        raise Misuse(f"{option} must be whole numbers of at least 1, as in 64 or 16,64,256, got {text}.")
    return tuple(int(name) for name in names)


class HeldOut(NamedTuple):
    """Which bags are held out: a share of them, at random or the latest."""

    share: float
    by_time: bool

    @classmethod
    def parse(cls, text: str, time: str | None) -> HeldOut:
        """From what options say: 0.2, latest or latest:0.2, and a column of times."""
        word, _, rest = text.partition(":") if text.startswith("latest") else ("", "", text)
        share = rest or (str(HELD_OUT) if text == "latest" else "")
        found = cls(float(share) if re.fullmatch(r"0?\.?[0-9]+", share) else -1.0, word == "latest")
        if word not in ("", "latest") or not 0 <= found.share <= 0.9 or (found.by_time and not found.share):
            raise Misuse(f"--hold-out must be a share from 0 to 0.9, latest, or latest:0.3, got {text}.")
        if time is not None and not found.by_time:
            raise Misuse("--time says which bags are the latest: pass --hold-out latest, too.")
        return found

    def column(self, data: Any, time: str | None) -> str | None:
        """The column that tells which bags are the latest: as named, or the only one of times."""
        if not self.by_time or time is not None:
            return time
        from bagwise.tables.table import is_time

        times = [name for name in (*data.keys, *data.features) if is_time(data.events.schema[name])]
        if len(times) != 1:
            said = (
                f"there are several columns of times ({', '.join(times)})" if times else "there is no column of times"
            )
            raise AdviceError(f"{said}: name the one that bags are held out by (", Parameter("latest"), ").")
        return str(times[0])


def split(data: Any, hold_out: HeldOut, latest: str | None) -> tuple[Any, Any]:
    """Bags to learn from, and bags held out; an error calls the share by the option it is from."""
    if not hold_out.share:
        return data, None
    try:
        return bagwise.tables.split(data, hold_out.share, latest=latest)
    except ParameterError as error:
        if error.parameter != "share":
            raise
        raise ParameterError("hold_out", *error.args[1:]) from None


def parse_roles(text: str | None) -> dict[str, str]:
    """Roles by column, from a=category,b=ignored."""
    pairs = [pair.split("=", 1) for pair in parse_names(text) or ()]
    if wrong := [pair for pair in pairs if len(pair) != 2]:
        raise Misuse(f"--roles has {wrong[0][0]!r} without a role: write column=role.")
    return {name.strip(): role.strip() for name, role in pairs}


def parse_forgetting(text: str | None) -> float | Literal["auto"]:
    """A weight from 0 to 1, or auto."""
    if text in (None, "auto"):
        return "auto"
    with suppress(ValueError):
        if 0 <= (weight := float(text or "")) <= 1:
            return weight
    raise Misuse(f"--forgetting must be auto or a number from 0 to 1, got {text}.")


def _one_or_more(text: str | None) -> str | list[str] | None:
    names = parse_names(text)
    return names[0] if names is not None and len(names) == 1 else names


def number_or_column(text: str | None) -> str | float | None:
    """A number, or the name of a column."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text
