"""Reports in formats of others, made into tables that the other commands read."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

import bagwise
from bagwise.cli import options
from bagwise.cli.common import check_free, show_result

Format = StrEnum(
    "Format",
    {
        "attribution_histogram": "attribution-histogram",
        "clean_room": "clean-room",
        "precincts": "precincts",
        "ad_attribution_kit": "ad-attribution-kit",
    },
)
Shown = StrEnum("Shown", "first last")


def import_(
    format: Annotated[Format, Argument(help="What the files are.")],
    sources: Annotated[list[Path], Argument(help="The files.")],
    out: Annotated[Path, Option(file_okay=False, help="Folder for reports.parquet, and events.parquet if any.")],
    keys: Annotated[str | None, Option(help="Columns that tell the bag, as a,b (clean-room, precincts).")] = None,
    count: Annotated[
        str | None,
        Option(help="Columns of counts, as a,b: of positives or classes (clean-room), of parties (precincts)."),
    ] = None,
    size: Annotated[str | None, Option(help="Column of all rows, or people (clean-room, precincts).")] = None,
    threshold: Annotated[int | None, Option(min=1, help="Below which nothing is shown (clean-room).")] = None,
    groups: Annotated[str | None, Option(help="Columns of people by group, as a,b (precincts).")] = None,
    epsilon: Annotated[float | None, Option(help="Of all buckets that do not say (attribution-histogram).")] = None,
    max_value: Annotated[float | None, Option(help="Most of one conversion (attribution-histogram).")] = None,
    value: Annotated[float | None, Option(help="What each conversion is worth (attribution-histogram).")] = None,
    positive: Annotated[
        str | None, Option(help="Which postbacks count, as high or 32-63; all if not given (ad-attribution-kit).")
    ] = None,
    window: Annotated[
        int | None, Option(min=0, max=2, help="Conversion window; 0 if not given (ad-attribution-kit).")
    ] = None,
    digits: Annotated[
        int | None, Option(min=2, max=4, help="Digits that tell bags apart; 2 if not given (ad-attribution-kit).")
    ] = None,
    shown: Annotated[Shown | None, Option(help="Which digits a shortened source shows (ad-attribution-kit).")] = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Turn reports in a format of others into tables for fit; docs/formats.md tells what each becomes."""
    for name in (bagwise.tables.publish.EVENTS, bagwise.tables.publish.REPORTS):
        check_free(out / name, force=force)
    told = {"keys": options.parse_names(keys), "count": options.parse_names(count), "size": size}
    told |= {"groups": options.parse_names(groups)}
    more: dict[str, Any] = {"threshold": threshold, "epsilon": epsilon, "max_value": max_value, "value": value}
    more |= {"positive": positive, "window": window, "digits": digits, "shown": shown and shown.value}
    found = bagwise.tables.import_reports(format.value, sources, out, force=force, **told, **more)
    files = [str(one) for one in (found.events, found.reports) if one is not None]
    lines = [str(found), f"Written: {', '.join(files)}", f"Go on with: {found.command}"]
    show_result(as_json, {**vars(found), "command": found.command}, *lines)
