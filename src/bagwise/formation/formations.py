"""What a formation is, and the one that was told of some bags."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class Formation:
    """How bags came about.

    Attributes
    ----------
    name : str
        The word for it.
    assumption : str
        What is assumed.
    losses : tuple of str
        Names of `bagwise.losses.LOSSES` whose minimum is right.
    evaluation : tuple of str
        What is known of single rows without labels: their `risk` from residuals of bags, any expectation by the
        `slope` of bag means on proportions; nothing beyond the bags themselves where it is empty.
    choice : {"risk", "likelihood"}
        What held-out bags are to be compared by.
    """

    name: str
    assumption: str
    losses: tuple[str, ...]
    evaluation: tuple[str, ...]
    choice: str


@dataclass(frozen=True)
class Told:
    """A formation and why it is taken for that of the bags.

    Attributes
    ----------
    name : str
        A key of `bagwise.formation.FORMATIONS`.
    reason : str
        What says so.
    others : tuple of str
        Formations that only a model can tell from this one.
    """

    name: str
    reason: str
    others: tuple[str, ...] = ()

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """From plain data, as another process told it.

        Parameters
        ----------
        record : dict
            The attributes, of which `others` may be a list.

        Returns
        -------
        Told

        Examples
        --------
        >>> Told.of({"name": "rates", "reason": "as asked", "others": ["effects"]}).others
        ('effects',)
        """
        return cls(**{**record, "others": tuple(record["others"])})

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"
