"""Reports in the formats of others, rewritten as tables that `join` reads.

A format is a function of files and keywords that returns `Read`: the tables, and what to say to `join` about them.
"""

from __future__ import annotations

import inspect
import os
import secrets
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow.parquet as pq

from bagwise.tables.bag_table import is_reserved
from bagwise.tables.engines.duckdb import RELEASE
from bagwise.tables.formats.attribution import attribution_histogram
from bagwise.tables.formats.clean_room import clean_room
from bagwise.tables.formats.files import Read
from bagwise.tables.formats.postbacks import ad_attribution_kit
from bagwise.tables.formats.precincts import precincts
from bagwise.tables.publish import EVENTS, REPORTS
from bagwise.utils.files import replacing
from bagwise.utils.parameters import ParameterError, check_parameters, one_of
from bagwise.utils.text import number_of

Files: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]  # one or several

FORMATS: dict[str, Callable[..., Read]] = {
    "attribution-histogram": attribution_histogram,
    "clean-room": clean_room,
    "precincts": precincts,
    "ad-attribution-kit": ad_attribution_kit,
}
"""Readers by the name of the format."""


@dataclass(frozen=True)
class Imported:
    """What `import_reports` wrote.

    Attributes
    ----------
    format : str
        The format that was read.
    reports, events : Path
        The files; no events where the format has none, which are then yours.
    lines, rows : int
        Lines of the reports, rows of the events.
    options : dict of str to str
        What to tell `join`, by name.
    notes : tuple of str
        What was met.
    """

    format: str
    reports: Path
    events: Path | None
    lines: int
    rows: int
    options: dict[str, str]
    notes: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """The command to go on with; EVENTS stands for a table of yours."""
        told = [word for name, one in self.options.items() for word in (f"--{name.replace('_', '-')}", one)]
        events = "EVENTS" if self.events is None else str(self.events)
        return shlex.join(["bagwise", "fit", events, str(self.reports), *told])

    def __str__(self) -> str:
        rows = "" if self.events is None else f" and {number_of(self.rows, 'event')}"
        return "\n".join([f"{self.format}: {number_of(self.lines, 'report')}{rows}.", *self.notes])


def import_reports(
    format: str, sources: Files, out: str | os.PathLike[str], *, force: bool = True, **options: Any
) -> Imported:
    r"""Rewrite reports in a format of others as `reports.parquet`, and `events.parquet` where the format has rows.

    Parameters
    ----------
    format : {"attribution-histogram", "clean-room", "precincts", "ad-attribution-kit"}
        See docs/formats.md for what each is, and which options it takes.
    sources : path or sequence of path
        The files.
    out : path
        The folder to write to.
    force : bool
        Replace what is there. Without it that stays and is an error, also where another process wrote it meanwhile.
    **options
        What the format takes: columns, thresholds and the like.

    Returns
    -------
    Imported
        The files, and what to tell `join` about them.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "release.csv"
    ...     _ = file.write_text("campaign,buyers\nA,60\n*,9\n")
    ...     found = import_reports("clean-room", file, folder, keys=["campaign"], count=["buyers"])
    >>> found.lines, found.options
    (2, {'keys': 'campaign', 'count': 'buyers'})
    """
    check_parameters({"format": format}, {"format": one_of(*FORMATS)})
    reader = FORMATS[format]
    known = inspect.signature(reader).parameters
    given = {name: one for name, one in options.items() if one is not None}
    if others := [name for name in given if name not in known]:
        raise ParameterError(others[0], f"does not go with the format {format}: leave it out.")
    needed = [name for name, one in known.items() if one.kind is one.KEYWORD_ONLY and one.default is one.empty]
    if absent := [name for name in needed if name not in given]:
        raise ParameterError(absent[0], f"must be given for the format {format} (see docs/formats.md).")
    files = [Path(one) for one in ([sources] if isinstance(sources, (str, os.PathLike)) else sources)]
    if gone := [file for file in files if not file.is_file()]:
        raise FileNotFoundError(f"there is no file {gone[0]}: name the files to import.")
    read = reader(files, **given)
    if taken := [name for name in read.reports.column_names if is_reserved(name)]:
        raise ValueError(f"column {taken[0]!r} has a name that bagwise uses itself: rename it first.")
    reports, events = Path(out) / REPORTS, None if read.events is None else Path(out) / EVENTS
    with replacing(reports, *([] if events is None else [events]), force=force) as aside:
        release = {RELEASE: secrets.token_hex(16)}
        for file, table in zip(aside, (read.reports, read.events), strict=False):
            pq.write_table(table.replace_schema_metadata({**(table.schema.metadata or {}), **release}), file)
    rows = 0 if read.events is None else read.events.num_rows
    return Imported(format, reports, events, read.reports.num_rows, rows, read.options, read.notes)
