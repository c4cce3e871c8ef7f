"""A model's folder: what it tells about itself, and which bags judge it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from bagwise import saving
from bagwise.tables import BagTable, Measurement, TableModel, measure
from bagwise.tables.bag_table import last_bags
from bagwise.tables.evaluation import predict
from bagwise.tables.metadata import About, read_about

_ARRAYS = "holds a model saved from Python, which reads arrays: there is no page on it."


@dataclass(frozen=True, eq=False)
class Stored:
    """A model's folder.

    about: what it tells, without numbers that its bags cannot tell, unless asked for by even_if_not_random.
    versions: of the libraries that saved it.
    """

    folder: Path
    about: About
    versions: Mapping[str, str]
    even_if_not_random: bool = False

    @classmethod
    def of(cls, folder: str | Path, *, even_if_not_random: bool = False) -> Stored:
        """The facts of a folder that `bagwise fit` or `bagwise train` wrote."""
        place = Path(folder)
        found = saving.inspect(place)
        try:
            about = read_about(found.about)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None
        if about is None:
            raise ValueError(f"{place} {_ARRAYS}")
        return cls(place, about.shown(even_if_not_random=even_if_not_random), found.versions, even_if_not_random)

    @property
    def name(self) -> str:
        """Of the folder."""
        return self.folder.name or str(self.folder)

    @cached_property
    def model(self) -> TableModel:
        """The model itself."""
        model = saving.load(self.folder)
        if not isinstance(model, TableModel):
            raise ValueError(f"{self.folder} {_ARRAYS}")
        return model

    def unseen(self, data: BagTable) -> int:
        """How many bags of these tables it was not fitted to: they have the highest numbers (see `tables.split`)."""
        if not self.about.has_seen(data.summary):
            return data.summary.bags
        if self.about.evaluation is None or self.about.refitted:
            return 0
        return min(self.about.evaluation.n_bags, data.summary.bags)

    def judged(self, data: BagTable | None = None, bags: BagTable | None = None) -> Measurement | None:
        """How good it is; None where nobody knows.

        What was measured when it was fitted is not measured again: the folder has it.

        data: tables.  bags: those of them to judge it by; all that it was not fitted to by default.
        """
        told = self.about.measured
        if data is None or not (unseen := self.unseen(data)):
            return told
        predictions = predict(self.model, last_bags(data, unseen) if bags is None else bags)
        asked = told is not None and self.even_if_not_random and told.evaluation.withheld
        if told is not None and predictions.fingerprint == self.about.held_out and not asked:
            return replace(told, predictions=predictions)
        return measure(self.model, predictions, even_if_not_random=self.even_if_not_random)
