"""What the folder of a model tells, checked: facts may come from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bagwise import saving
from bagwise.tables import BagTable, TableModel, doubt_of, split, was_seen, withhold

MEASURES = {"accuracy": "accuracy", "brier": "Brier score", "log_loss": "log loss", "auc": "AUC"}
"""Label-free measures of a model, by name."""
HIGHER_IS_BETTER = ("accuracy", "auc")


@dataclass(frozen=True)
class Stored:
    """A model's folder.

    name: of the folder.  about: the facts, as `tables.about` made them.  versions: of the libraries that saved it.
    even_if_not_random: whether numbers are shown that bags cannot tell, if the file has them.
    """

    folder: Path
    name: str
    about: dict[str, Any]
    versions: Mapping[str, str]
    even_if_not_random: bool = False

    @classmethod
    def of(cls, folder: str | Path, *, even_if_not_random: bool = False) -> Stored:
        """The facts of a folder that `bagwise fit` or `bagwise train` wrote."""
        place = Path(folder)
        found = saving.inspect(place)
        if "columns" not in found.about:
            raise ValueError(f"{place} holds a model saved from Python, which reads arrays: report on it there.")
        _check(place, found.about)
        return cls(place, place.name or str(place), found.about, found.versions, even_if_not_random)

    def load(self) -> TableModel:
        """The model itself."""
        model = saving.load(self.folder)
        if not isinstance(model, TableModel):
            raise ValueError(f"{self.folder} holds a model saved from Python, which reads arrays: report on it there.")
        return model

    @property
    def evaluation(self) -> dict[str, Any] | None:
        """What was measured on bags held out when it was fitted."""
        found = self.about["evaluation"]
        return found if found is None or self.even_if_not_random else withhold(found)

    def unseen(self, data: BagTable) -> int:
        """How many bags of these tables it was not fitted to: they have the highest numbers (see `tables.split`)."""
        if not was_seen(self.about, data.summary):
            return data.summary.bags
        if self.evaluation is None or self.about["refitted"]:
            return 0
        return min(int(self.evaluation["bags"]), data.summary.bags)


def last(data: BagTable, bags: int) -> BagTable:
    """The bags with the highest numbers."""
    return data if bags >= data.summary.bags else split(data, bags / data.summary.bags)[1]


def constant_guess(prior: list[float]) -> dict[str, float]:
    """The measures of one prediction for all rows, where `prior` is right; noise may have put it beyond 0 or 1."""
    prior = [min(max(one, 0.0), 1.0) for one in prior]
    p = [prior[0], 1 - prior[0]] if len(prior) == 1 else prior
    found = {
        "accuracy": max(p),
        "brier": 1 - sum(one**2 for one in p),
        "log_loss": -sum(one * math.log(one) for one in p if one > 0),
    }
    # With two classes the Brier score counts one of them, as everywhere in bagwise.
    return found if len(prior) > 1 else {**found, "brier": prior[0] * (1 - prior[0]), "auc": 0.5}


def _check(place: Path, about: dict[str, Any]) -> None:
    """Raise where facts are not such as bagwise writes."""
    try:
        kinds: dict[str, Any] = {"columns": list, "sensitivity": dict, "trials": list, "prior": list, "keys": list}
        sound = all(isinstance(about[name], kind) for name, kind in kinds.items())
        sound &= all(isinstance(about[name], str) for name in ("model", "estimator", "tables"))
        sound &= all(math.isfinite(float(value)) for value in (*about["sensitivity"].values(), *about["prior"]))
        sound &= all({"name", "role", "levels", "note"} <= column.keys() for column in about["columns"])
        sound &= all(_is_trial(trial) for trial in about["trials"])
        sound &= isinstance(about["refitted"], bool) and int(about["bags"]) >= 0 and int(about["rows"]) >= 0
        measured = about["evaluation"]
        if measured is not None:
            sound &= int(measured["bags"]) > 0 and int(measured["rows"]) > 0
            figures = [measured["level"], measured["randomness"]]
            doubt_of(measured)
            sound &= (measured["accuracy"] is None) == (measured["brier"] is None) == (measured["log_loss"] is None)
            for name in MEASURES:
                if measured[name] is not None:
                    figures += [measured[name][part] for part in ("value", "low", "high")]
            sound &= all(math.isfinite(float(value)) for value in figures)
    except (KeyError, TypeError, ValueError, AttributeError):
        sound = False
    if not sound:
        raise ValueError(f"{place} tells facts that bagwise did not write: fit the model again.")


def _is_trial(trial: Any) -> bool:
    figures = [trial[name] for name in ("risk", "low", "high")]
    texts = (trial["candidate"], trial["note"])
    finite = figures == [None] * 3 or all(math.isfinite(float(one)) for one in figures)
    return finite and all(isinstance(one, str) for one in texts)
