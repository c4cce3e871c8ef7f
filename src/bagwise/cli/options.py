"""Options that commands on tables share: where events and reports are, and what their columns mean."""

from __future__ import annotations

import functools
import inspect
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from typing import Annotated, Any

import typer

from bagwise.cli.common import Misuse, Progress, with_parameters
from bagwise.utils.files import TemporaryFolder

_LAST = ("force", "as_json")  # in every command

Joined = Callable[[Progress], AbstractContextManager[Any]]
"""Called with a progress function: the events and reports of a command, joined, a `BagTable`."""

Seed = Annotated[int, typer.Option(min=0, help="Seed of every random draw.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
EvenIfNotRandom = Annotated[
    bool, typer.Option("--even-if-not-random", help="Show numbers all the same where bags are not random: biased ones.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]

Mismatch = StrEnum("Mismatch", "error drop")
SOURCE = "Parquet or CSV file, folder or pattern of such, file.duckdb::table, or - for standard input."
Events = Annotated[str, typer.Argument(help=f"Rows with features and bag keys. {SOURCE}")]
OptionalEvents = Annotated[
    str | None, typer.Argument(help="Rows with features and bag keys; for a model, of other bags.")
]
Reports = Annotated[
    str | None,
    typer.Argument(
        help="One line per bag: keys, count or proportion, maybe size, noise. To be left out if the events have "
        "--proportion."
    ),
]
Keys = Annotated[str | None, typer.Option(help="Key columns, as a,b; those that both tables have if not given.")]


def _column(meaning: str, name: str, *option: str) -> Any:
    """An option that names a column, which is found by itself if it has the usual name."""
    return typer.Option(*option, help=f"{meaning}; {name} if there is one.")


Count = Annotated[str | None, _column("Reports' column of positive counts, or one per class, as a,b,c", "count")]
Proportion = Annotated[str | None, _column("Reports' column of proportions, or one per class", "proportion")]
SizeColumn = Annotated[str | None, _column("Reports' column of sizes, to be checked", "size", "--size")]
NoiseVariance = Annotated[str | None, _column("Variance of noise on counts: a number or a column", "noise_variance")]
NoiseScale = Annotated[str | None, _column("Scale of Laplace noise on counts: a number or a column", "noise_scale")]
Epsilon = Annotated[str | None, _column("Epsilon of Laplace noise on counts: a number or a column", "epsilon")]
Suppressed = Annotated[str | None, _column("Reports' column that marks withheld reports", "suppressed")]
Ignore = Annotated[str | None, typer.Option(help="Columns of the events that are no features, as a,b.")]
OnMismatch = Annotated[Mismatch, typer.Option(help="Bags that do not fit: an error, or left out.")]
Roles = Annotated[
    str | None,
    typer.Option(help="Roles of columns, as a=category,b=ignored; number, category, hashed, time or ignored."),
]
HoldOut = Annotated[float, typer.Option(min=0, max=0.9, help="Share of the bags to measure the model on; 0 for none.")]
MaxLevels = Annotated[int, typer.Option(min=2, help="Text columns with more values are hashed.")]
Memory = Annotated[str | None, typer.Option(help="Most memory for the tables, such as 2GB.")]


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
        with file.open("wb") as target:
            target.write(start)
            shutil.copyfileobj(sys.stdin.buffer, target)
        yield str(file)


@contextmanager
def _join(
    progress: Progress,
    events: Events,
    reports: Reports = None,
    *,
    keys: Keys = None,
    count: Count = None,
    proportion: Proportion = None,
    size: SizeColumn = None,
    noise_variance: NoiseVariance = None,
    noise_scale: NoiseScale = None,
    epsilon: Epsilon = None,
    suppressed: Suppressed = None,
    ignore: Ignore = None,
    on_mismatch: OnMismatch = Mismatch.error,
    memory: Memory = None,
) -> Iterator[Any]:
    """Events and reports as the options of a command name them: a `BagTable`."""
    if reports == "-":
        raise Misuse("only the events can come from standard input: name a file of reports.")
    with table_source(events) as source:
        from bagwise import tables

        progress(0, None, "joining events and reports")
        yield tables.join(
            source,
            reports,
            keys=parse_names(keys),
            count=_one_or_more(count),
            proportion=_one_or_more(proportion),
            size=size,
            noise_variance=_number(noise_variance),
            noise_scale=_number(noise_scale),
            epsilon=_number(epsilon),
            suppressed=suppressed,
            ignore=parse_names(ignore) or (),
            on_mismatch="drop" if on_mismatch is Mismatch.drop else "error",
            connection=tables.connect(memory=memory),
        )


def with_tables(*, first: str = "", required: bool = True) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of `_join`; it takes `joined` in their place, None where no events are named.

    first: an argument of the command that comes before the tables.  required: whether events must be named.
    """
    shared = dict(inspect.signature(_join, eval_str=True).parameters)
    del shared["progress"]
    if not required:
        shared["events"] = shared["events"].replace(annotation=OptionalEvents, default=None)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = dict(inspect.signature(command, eval_str=True).parameters)
        del own["joined"]

        @functools.wraps(command)
        def run(**options: Any) -> None:
            tables = {name: options.pop(name) for name in shared}
            given = [name for name in shared if tables[name] not in (None, shared[name].default)]
            if given and tables["events"] is None:
                option = f"--{given[0].replace('_', '-')}"
                raise Misuse(f"{option} says something about tables: pass events and reports, too.")
            joined = None if tables["events"] is None else functools.partial(_join, **tables)
            command(joined=joined, **options)

        place = {first: 0, "events": 1, "reports": 1, **dict.fromkeys(_LAST, 4)}
        both = {**own, **shared}
        names = sorted(both, key=lambda name: place.get(name, 2 if name in own else 3))
        return with_parameters(run, [both[name] for name in names])

    return decorate


def parse_names(text: str | None) -> list[str] | None:
    """Names separated by commas."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def parse_whole(text: str | None, option: str) -> tuple[int, ...]:
    """Whole numbers of at least 1 separated by commas."""
    names = parse_names(text) or []
    if not all(name.isdecimal() and int(name) for name in names):
        raise Misuse(f"{option} must be whole numbers of at least 1, as in 64 or 16,64,256, got {text}.")
    return tuple(int(name) for name in names)


def parse_roles(text: str | None) -> dict[str, str]:
    """Roles by column, from a=category,b=ignored."""
    pairs = [pair.split("=", 1) for pair in parse_names(text) or ()]
    wrong = [pair for pair in pairs if len(pair) != 2]
    if wrong:
        raise Misuse(f"--roles has {wrong[0][0]!r} without a role: write column=role.")
    return {name.strip(): role.strip() for name, role in pairs}


def _one_or_more(text: str | None) -> str | list[str] | None:
    names = parse_names(text)
    return names[0] if names is not None and len(names) == 1 else names


def _number(text: str | None) -> str | float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text
