"""Four formations by name, and what each of them allows."""

from dataclasses import dataclass

from bagwise.utils.parameters import one_of


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


_LIKELIHOOD = ("count_likelihood",)
_SQUARES = ("debiased_square", "li_square")
_LINEAR = ("easyllp", "easyllp_square", "centred_log", "centred_square")

FORMATIONS = {
    one.name: one
    for one in (
        Formation(
            "random", "a bag is a random set of rows", _LIKELIHOOD + _SQUARES + _LINEAR, ("risk", "slope"), "risk"
        ),
        Formation(
            "rates",
            "rows of one label are alike in all bags, and bags differ in how many of them have it",
            _LIKELIHOOD,
            ("slope",),
            "likelihood",
        ),
        Formation(
            "features",
            "rows with the same features have the same chances in all bags, and bags differ in the features of their "
            "rows",
            _LIKELIHOOD,
            (),
            "likelihood",
        ),
        Formation(
            "effects",
            "bags differ in their features and in something unseen, which moves the log odds of all their rows",
            _LIKELIHOOD,
            (),
            "likelihood",
        ),
    )
}
"""The formations by name, the strictest assumption first."""

FORMATION = one_of("auto", *FORMATIONS)
"""What the parameter `formation` of an estimator may be."""


@dataclass(frozen=True)
class Told:
    """A formation and why it is taken for that of the bags.

    Attributes
    ----------
    name : str
        A key of `FORMATIONS`.
    reason : str
        What says so.
    others : tuple of str
        Formations that only a model can tell from this one.
    """

    name: str
    reason: str
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"
