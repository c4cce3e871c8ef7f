"""What an evaluation tells: numbers, what is known and what is not, in words and in HTML."""

from dataclasses import dataclass
from html import escape
from typing import Any

from bagwise.bag_fit import BagFit
from bagwise.formation import Told
from bagwise.metrics import METRICS, Curve, Estimate


@dataclass(frozen=True, eq=False)
class ClassEvaluation:
    """One of several classes against the rest.

    Attributes
    ----------
    auc, calibration, roc : Estimate, Curve, Curve or None
        None where too few labels are of this class.
    """

    auc: Estimate | None = None
    calibration: Curve | None = None
    roc: Curve | None = None


@dataclass(frozen=True, eq=False)
class RowGroup:
    """A group of rows, of which something is told.

    Attributes
    ----------
    value : str
        What rows of the group have in common.
    n_rows : int
        How many of them are in bags that report something.
    """

    value: str
    n_rows: int


@dataclass(frozen=True, eq=False)
class GroupRate(RowGroup):
    """The rate of positive labels, or the mean value, in a group of rows.

    Attributes
    ----------
    value, n_rows : str, int
        As of a `RowGroup`; of rows with weights, people.
    rate : Estimate
        Share of positive labels among them, or their mean value.
    prediction : float
        The model's mean prediction for them.
    """

    rate: Estimate
    prediction: float


class Drawn:
    """What an evaluation shows as a picture."""

    def plot(self, ax: Any = None) -> Any:
        """Draw the calibration, of single rows or of bags, as `BagCalibrationDisplay` does.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to; a figure of its own by default.

        Returns
        -------
        BagCalibrationDisplay
        """
        from bagwise.displays import BagCalibrationDisplay

        evaluation: Any = self  # of labels, or of values
        return BagCalibrationDisplay(evaluation).plot(ax)


@dataclass(frozen=True, eq=False)
class Evaluation(Drawn):
    """Label-free evaluation of a model on bags.

    Attributes
    ----------
    formation : Told
        How bags came about, and why that is thought: it decides what they tell.
    n_bags, n_rows : int
        What was used.
    level : float
        Of the intervals.
    bags : BagFit
        How the model fits bags, and what follows from that alone; there in every formation.
    brier, accuracy, log_loss, auc : Estimate or None
        Of single rows (for several classes, Brier is summed over them and AUC the mean of classes against the rest);
        None if bags do not tell.
    calibration, roc : Curve or None
        For two classes; None otherwise, or if bags do not tell.
    classes : tuple of ClassEvaluation
        One for each of several classes.
    groups : tuple of GroupRate
        Rates of the groups asked for (`by`), the largest first.
    n_strata, n_labels : int
        Strata that were measured by themselves; rows whose labels were given.
    own_bags : bool
        Whether the model was fitted to these very bags.
    impossible : tuple of str
        Metrics that would lie beyond what is possible by more than their error (see `Estimate.leaves`), or are not
        determined: what was assumed of the bags does not hold, or they are too few.
    """

    formation: Told
    n_bags: int
    n_rows: int
    level: float
    bags: BagFit
    brier: Estimate | None = None
    accuracy: Estimate | None = None
    log_loss: Estimate | None = None
    auc: Estimate | None = None
    calibration: Curve | None = None
    roc: Curve | None = None
    classes: tuple[ClassEvaluation, ...] = ()
    groups: tuple[GroupRate, ...] = ()
    n_strata: int = 1
    n_labels: int = 0
    own_bags: bool = False
    impossible: tuple[str, ...] = ()

    @property
    def withheld(self) -> bool:
        """Whether there are no numbers of single rows, since bags do not tell them."""
        return self.accuracy is None

    @property
    def doubt(self) -> str | None:
        """Why the numbers are missing, or flatter, in a sentence; None where nothing speaks against them."""
        if self.own_bags and not self.n_labels:
            return "The model was fitted to these very bags: measured on them it looks better than it is."
        if not self.withheld:
            return None
        if self.impossible:
            named = " and ".join(METRICS[name] for name in self.impossible)
            why = f"the {named} would lie beyond what is possible, as where bags are too few or of another formation"
        else:
            why = self.formation.reason
        return f"How good this model is for single rows cannot be told from these bags: {why}."

    @property
    def known(self) -> str:
        """What is known of the model, and what is not, in a sentence."""
        inside = f"between {self.bags.least_accuracy.low:.3f} and {self.bags.most_accuracy.high:.3f}"
        if self.n_labels:
            return f"Known of single rows from {self.n_labels:,} labels, in every formation."
        if not self.withheld:
            return f"Known of single rows, if bags are what they look like ({self.formation.name})."
        fits = "fits" if self.bags.gain.low > 0 else "does not clearly fit"
        return (
            f"Known of bags only: the model {fits} them better than the mean label does; its accuracy on single rows "
            f"lies {inside} whatever is true, and would be {self.bags.implied['accuracy']:.3f} if it is right."
        )

    def _repr_html_(self) -> str:
        numbers = {METRICS[name]: getattr(self, name) for name in METRICS}
        if self.withheld:
            numbers = {"log-likelihood of a bag over that of the mean label": self.bags.gain}
        rows = "".join(f"<tr><th>{name}</th><td>{one}</td></tr>" for name, one in numbers.items() if one is not None)
        told = [f"{self.formation}.", *([self.doubt] if self.doubt else []), self.known]
        return f"<table>{rows}</table>" + "".join(f"<p>{escape(one)}</p>" for one in told)

    def __str__(self) -> str:
        lines = [f"{self.formation}", f"from {self.n_bags} bags, {self.level:.0%} intervals"]
        estimates = {name: getattr(self, name) for name in METRICS}
        lines += [f"{name:<10}{one}" for name, one in estimates.items() if one is not None]
        if self.withheld:
            lines += [f"{'gain':<10}{self.bags.gain} log-likelihood of a bag over that of the mean label", self.known]
        return "\n".join([*lines, *([self.doubt] if self.doubt else [])])
