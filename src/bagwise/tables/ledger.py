"""What releases of labels have spent: a ledger beside each of them, and one of this user, by table.

ε of releases of the same labels add up, whatever folders they lie in. So a release looks into the ledger of its folder,
and into the user's for rows that are the same, before it draws noise; and it is written down before it appears. Rows
are known by a checksum without their labels, which tells no more than the release.
"""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

from bagwise.privacy import Budget
from bagwise.tables.engines.duckdb import DuckDB, connect
from bagwise.tables.table import Table
from bagwise.utils.files import locked, replacing
from bagwise.utils.parameters import AdviceError, Parameter
from bagwise.utils.text import number_of

LEDGER = "ledger.json"
"""The name of the ledger in the folder of a release."""

_VARIABLE = "BAGWISE_LEDGER"  # of the environment: where the user's ledger is


class BudgetError(AdviceError):
    """These labels were released before: a further release adds to what is spent."""


@dataclass(frozen=True)
class Spent:
    """One release, as ledgers have it.

    Attributes
    ----------
    release : str
        Its id, which events and reports carry, too.
    time : str
        When, in UTC.
    rows : str
        A checksum of the rows without their labels, in any order, and of the name of the column of these.
    epsilon, delta : float
        What was spent; delta is 0 for Laplace noise.
    mechanism, neighbours : str
        As in `bagwise.privacy.Budget`.
    """

    rows: str
    epsilon: float
    delta: float
    mechanism: str
    neighbours: str
    release: str = field(default_factory=lambda: uuid4().hex)
    time: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @classmethod
    def of(cls, table: Table, label: str, budget: Budget) -> "Spent":
        """A release of the labels of a table."""
        rows = (table if len(table.columns) > 1 else table.numbered("row")).drop(label)
        engine, native = table.engine, rows.native
        if not isinstance(engine, DuckDB):
            engine = DuckDB(connect())
            native = engine.take(rows.fetch())
        of_budget = (budget.epsilon, budget.delta or 0.0, budget.mechanism, budget.neighbours)
        return cls(sha256(f"{engine.fingerprint(native)} {label}".encode()).hexdigest(), *of_budget)


def check_budget(new: Spent, folder: Path, *, force_budget: bool) -> tuple[Spent, ...]:
    """Releases of these labels, or in this folder, before this one; an error unless these are to be added to.

    Parameters
    ----------
    new : Spent
        The release that is asked for.
    folder : Path
        Where it goes.
    force_budget : bool
        Whether it may add to what is spent.

    Returns
    -------
    tuple of Spent
        In the order of time.
    """
    return _allowed(new, folder, _read(users_ledger()), force_budget)


def spend(new: Spent, folder: Path, *, force_budget: bool) -> tuple[Spent, ...]:
    """Write a release down, in the user's ledger and that of its folder, before it appears.

    Parameters
    ----------
    new, folder, force_budget
        As in `check_budget`, which is asked again: another process may have been faster.

    Returns
    -------
    tuple of Spent
        All releases of these labels, or in this folder, this one included.
    """
    place = users_ledger()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        file = os.fdopen(os.open(place, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8")
    except OSError as error:
        said = f"{place} cannot be written ({(error.strerror or str(error)).lower()}): it is to say what was spent"
        raise OSError(f"{said}; name another file by {_VARIABLE} in the environment.") from error
    with file, locked(file):
        every = (*_allowed(new, folder, _read(place), force_budget), new)
        file.write(json.dumps(asdict(new)) + "\n")
        file.flush()
        os.fsync(file.fileno())
    with replacing(folder / LEDGER) as (temporary,):
        told = {"spent": _sums(every), "releases": [asdict(one) for one in every]}
        temporary.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return every


def in_all(releases: Sequence[Spent]) -> str:
    """What releases have spent together, in words."""
    sums = _sums(releases)
    each = [f"ε = {one['epsilon']:g}" + (f", δ = {one['delta']:g}" if one["delta"] else "") for one in sums]
    if len(sums) == 1:
        return each[0]
    return " and ".join(f"{text} between {one['neighbours']}" for text, one in zip(each, sums, strict=True))


def beside_earlier(releases: Sequence[Spent]) -> str:
    """A sentence on the sum, with a space before it, where the last of some releases was not the first."""
    if len(releases) < 2:
        return ""
    return f" With {number_of(len(releases) - 1, 'earlier release')} it is {in_all(releases)} in all."


def users_ledger() -> Path:
    """Where all releases of this user are written down, one a line."""
    if named := os.environ.get(_VARIABLE):
        return Path(named)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "bagwise" / "ledger.jsonl"


def _allowed(new: Spent, folder: Path, others: Iterable[Spent], force_budget: bool) -> tuple[Spent, ...]:
    here = _read_folder(folder)
    found = {one.release: one for one in (*here, *(one for one in others if one.rows == new.rows))}
    before = sorted(found.values(), key=lambda one: one.time)
    if before and not force_budget:
        which = "the labels of these rows were" if any(one.rows == new.rows for one in before) else f"{folder} was"
        times = "before" if len(before) == 1 else f"{len(before)} times before"
        said = (
            f"{which} released {times}, with {in_all(before)}; with this release it would be {in_all([*before, new])}"
        )
        raise BudgetError(f"{said} in all: to spend that, say so (", Parameter("force_budget"), ").")
    return tuple(before)


def _sums(releases: Iterable[Spent]) -> list[dict[str, Any]]:
    """ε and δ in all, by what they are between."""
    sums: dict[str, dict[str, Any]] = {}
    for one in releases:
        of = sums.setdefault(one.neighbours, {"epsilon": 0.0, "delta": 0.0, "neighbours": one.neighbours})
        of["epsilon"], of["delta"] = of["epsilon"] + one.epsilon, of["delta"] + one.delta
    return list(sums.values())


def _read(place: Path) -> list[Spent]:
    """The user's ledger; a line that a killed process did not end is none."""
    found = []
    for line in place.read_text(encoding="utf-8").splitlines() if place.is_file() else ():
        try:
            found.append(Spent(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return found


def _read_folder(folder: Path) -> list[Spent]:
    try:
        text = (folder / LEDGER).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return []
    try:
        return [Spent(**one) for one in json.loads(text)["releases"]]
    except (ValueError, TypeError, KeyError) as error:
        said = "is damaged, and was to say what earlier releases spent: mend it, or choose another folder"
        raise ValueError(f"{folder / LEDGER} {said}.") from error
