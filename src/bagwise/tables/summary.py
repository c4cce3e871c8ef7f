"""What the lines of bags add up to: the summary, and the errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bagwise.tables.bag_lines import PROBLEMS
from bagwise.tables.bag_table import NOISE, SIZE, Problem, Summary, proportion_columns
from bagwise.tables.engine import execute
from bagwise.tables.keys import Keys
from bagwise.tables.reports import ReportColumns, any_of, as_whole
from bagwise.utils.parameters import AdviceError, Parameter
from bagwise.utils.text import number_of

_EMPTY = "the {} are empty: there must be one line at least."


def summarise(lines: Any, keys: Keys, columns: ReportColumns, connection: Any, *, aligned: bool, drop: bool) -> Summary:
    """The summary of lines of bags; an error where they cannot be used as they are."""
    found = execute(lines.agg(**_figures(lines, keys, columns)), connection)
    for what in ("events", "reports"):
        if not found[what]:
            raise ValueError(_EMPTY.format(what))
    problems = _problems(found, columns, aligned)
    wrong = [problem for problem in problems if not problem.expected]
    hint = _hint(found, columns)
    if wrong and not found["matched"] and not aligned:
        raise ValueError(
            f"no bag of the events has a report ({wrong[0]}): check that the key columns of both tables "
            f"({', '.join(keys.names)}) hold the same values."
        )
    if wrong and not drop:
        more = f" (and {number_of(len(wrong) - 1, 'more kind')} of mismatch)" if len(wrong) > 1 else ""
        way = (", or leave such bags out with ", Parameter("on_mismatch"), "='drop'.")
        raise AdviceError(f"{wrong[0]}{more}: ", *(hint or ["repair the tables"]), *way)
    if found["bags"] < 2:
        said = f" ({problems[0]})" if problems else ""
        what = "one bag" if found["bags"] else "no bag"
        raise AdviceError(f"{what} can be used{said}: at least 2 are needed", *(["; ", *hint] if hint else []), ".")
    return Summary(
        rows=int(found["events"]),
        reports=int(found["reports"]),
        bags=int(found["bags"]),
        used_rows=int(found["used_rows"]),
        smallest=int(found["smallest"]),
        largest=int(found["largest"]),
        prior=tuple(found[f"prior_{number}"] for number in range(len(columns.values))),
        noised=bool(found["noised"]),
        problems=tuple(problems),
    )


def check_not_empty(connection: Any, **tables: Any) -> None:
    """Raise where a table has no line: its columns may then be of any type."""
    for what, table in tables.items():
        first = table.limit(1)
        if not execute(first.agg(n=first.count()), connection)["n"]:
            raise ValueError(_EMPTY.format(what))


def _figures(lines: Any, keys: Keys, columns: ReportColumns) -> dict[str, Any]:
    """All figures of the summary, for one query over the bags."""
    size, used, key = lines[SIZE], lines.used, keys.text(lines)
    names = proportion_columns(columns.classes)
    figures = {
        "events": size.sum().fill_null(0),
        "reports": lines.reports.sum().fill_null(0),
        "keyless_events": size.sum(where=~lines.keyed).fill_null(0),
        "keyless_reports": lines.reports.sum(where=~lines.keyed).fill_null(0),
        "bags": used.sum().fill_null(0),
        "matched": (lines.keyed & size.notnull() & (lines.reports > 0)).sum().fill_null(0),
        "used_rows": size.sum(where=used).fill_null(0),
        "smallest": size.min(where=used),
        "largest": size.max(where=used),
        "noised": lines[NOISE].notnull().any(where=used),
        "usable": lines.usable.sum().fill_null(0),
        "least": lines[names[0]].min(where=lines.usable),
        "greatest": lines[names[0]].max(where=lines.usable),
        "no_counts": any_of(
            (lines[name] != as_whole(lines[name])) | (lines[name] > size) | (lines[name] < 0) for name in names
        ).any(where=lines.usable),
    }
    for number, name in enumerate(names):
        figures[f"prior_{number}"] = (lines[name] * size).sum(where=used) / size.sum(where=used)
    for name in PROBLEMS:
        figures[f"{name}_bags"] = lines[name].sum().fill_null(0)
        figures[f"{name}_rows"] = size.sum(where=lines[name]).fill_null(0)
        figures[f"{name}_key"] = key.min(where=lines[name])
    return figures


def _problems(found: Mapping[str, Any], columns: ReportColumns, aligned: bool) -> list[Problem]:
    words = dict(PROBLEMS)
    if columns.count is not None:
        words["outside"] = "with a count below 0 or above the number of rows though no noise is declared"
    if aligned:
        rest = {"sizes": columns.size, "noises": columns.noise, "markers": columns.suppressed}
        also = [name for name, column in rest.items() if isinstance(column, str)]
        words["repeated"] = f"with two different {' or '.join(['proportions', *also])} on their rows"
    problems = [
        Problem(text, int(found[f"{name}_bags"]), int(found[f"{name}_rows"]), found[f"{name}_key"], name == "withheld")
        for name, text in words.items()
        if found[f"{name}_bags"]
    ]
    if found["keyless_reports"]:
        problems.append(Problem("of the reports without a key", 0, int(found["keyless_reports"]), ""))
    if found["keyless_events"]:
        problems.append(Problem("of the events without a key", 0, int(found["keyless_events"]), "", True))
    return sorted(problems, key=lambda problem: problem.expected)


def _hint(found: Mapping[str, Any], columns: ReportColumns) -> list[str]:
    """What proportions far outside [0, 1] may be."""
    if columns.proportion is None or 2 * found["outside_bags"] <= found["usable"]:
        return []
    if not found["no_counts"]:
        return ["if these are counts, name the column as such (", Parameter("count"), ")"]
    if found["least"] >= 0 and found["greatest"] <= 100:
        return ["if these are percentages, divide them by 100"]
    return []
