"""Pictures of evaluations, in the way of scikit-learn's display classes: `from_estimator`, `from_predictions`, `plot`.

Each is made from held-out bags alone and shows what their formation allows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bagwise.bags import Bags, as_bags
from bagwise.evaluation import Curve, Evaluation, ValueEvaluation, evaluate
from bagwise.plotting import BLUE, GREY, Picture
from bagwise.predictions import fitting_bags, predicted
from bagwise.utils.typing import ArrayLike, Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["BagCalibrationDisplay", "BagFunnelDisplay", "BagRocDisplay"]

_HEIGHT = 4.2


class _OfEvaluation(Picture, ABC):
    """A picture of an evaluation."""

    def __init__(self, evaluation: Evaluation | ValueEvaluation, *, name: str | None = None) -> None:
        self.evaluation, self.name = evaluation, name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike | None = None,
        *,
        bags: ArrayLike | Bags | None = None,
        ax: Axes | None = None,
        **options: Any,
    ) -> Self:
        """Evaluate a model on held-out bags and draw it.

        Parameters
        ----------
        estimator, X, y, bags
            As in `bagwise.evaluate`.
        ax : matplotlib Axes, optional
            Where to draw; a figure of its own by default.
        **options
            Of `bagwise.evaluate`.

        Returns
        -------
        Self
        """
        return cls(evaluate(estimator, X, y, bags=bags, **options), name=type(estimator).__name__).plot(ax)

    @classmethod
    def from_predictions(
        cls,
        h: ArrayLike,
        y: ArrayLike | None = None,
        *,
        bags: ArrayLike | Bags | None = None,
        ax: Axes | None = None,
        **options: Any,
    ) -> Self:
        """Evaluate predictions on held-out bags and draw them.

        Parameters
        ----------
        h : array of shape (n,)
            Probabilities of the positive class; or values, with ``target="value"``.
        y, bags
            As in `bagwise.evaluate`.
        ax : matplotlib Axes, optional
            Where to draw; a figure of its own by default.
        **options
            Of `bagwise.evaluate`.

        Returns
        -------
        Self
        """
        return cls(evaluate(h, None, y, bags=bags, **options)).plot(ax)

    @abstractmethod
    def plot(self, ax: Axes | None = None) -> Self:
        """Draw it; a figure of its own by default."""

    def _points(self, ax: Axes, curve: Curve) -> None:
        error = np.maximum([curve.y - curve.y_low, curve.y_high - curve.y], 0)
        ax.errorbar(curve.x, curve.y, yerr=error, fmt="o-", color=BLUE, capsize=3, label=self.name or "model")


class BagCalibrationDisplay(_OfEvaluation):
    """Mean predictions beside rates of positive labels, or mean values, with intervals.

    Of single rows, in groups of similar predictions, where bags tell these; else of bags with similar mean predictions.

    Parameters
    ----------
    evaluation : Evaluation or ValueEvaluation
        As `bagwise.evaluate` returns it.
    name : str, optional
        Of the model.

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> h, ids = rng.uniform(size=6400), np.arange(6400) // 64
    >>> y_bag = bw.aggregate(rng.random(6400) < h, ids)
    >>> BagCalibrationDisplay.from_predictions(h, y_bag, bags=ids).ax_.get_xlabel()
    'mean prediction of rows'
    """

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to; a figure of its own by default.

        Returns
        -------
        Self
            With `ax_` and `figure_`.
        """
        rows = self.evaluation.calibration
        curve = rows if rows is not None else self.evaluation.bags.calibration
        if curve is None:
            raise ValueError("a calibration curve needs two classes: take one of Evaluation.classes.")
        ax = self._begin(ax, _HEIGHT)
        ends = [float(min(curve.x.min(), curve.y_low.min())), float(max(curve.x.max(), curve.y_high.max()))]
        ax.plot(ends, ends, color=GREY, linestyle="--", linewidth=1, label="calibrated")
        self._points(ax, curve)
        of = "rows" if rows is not None else "bags"
        if isinstance(self.evaluation, ValueEvaluation):
            label = f"mean label of {of}"
        else:
            label = "rate of positives" if rows is not None else "mean proportion"
        ax.set(xlabel=f"mean prediction of {of}", ylabel=label)
        ax.legend(frameon=False)
        return self


class BagRocDisplay(_OfEvaluation):
    """The ROC curve of single rows, with intervals of the rate of true positives.

    Parameters
    ----------
    evaluation : Evaluation
        As `bagwise.evaluate` returns it.
    name : str, optional
        Of the model.

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> h, ids = rng.uniform(size=6400), np.arange(6400) // 64
    >>> y_bag = bw.aggregate(rng.random(6400) < h, ids)
    >>> BagRocDisplay.from_predictions(h, y_bag, bags=ids).ax_.get_ylabel()
    'true positive rate'
    """

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to; a figure of its own by default.

        Returns
        -------
        Self
            With `ax_` and `figure_`.
        """
        if isinstance(self.evaluation, ValueEvaluation):
            raise ValueError("values have no ROC curve: it is of labels 0 and 1.")
        curve = self.evaluation.roc
        if curve is None:
            raise ValueError(self.evaluation.doubt or "there is no ROC curve: bags report too few labels of one kind.")
        ax = self._begin(ax, _HEIGHT)
        ax.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1, label="chance")
        self._points(ax, curve)
        area = "" if self.evaluation.auc is None else f"AUC {self.evaluation.auc}"
        ax.set(xlabel="false positive rate", ylabel="true positive rate", title=area)
        ax.legend(frameon=False)
        return self


class BagFunnelDisplay(Picture):
    r"""What bags report less what is predicted for them, by size, with the limits that a right model leaves.

    The proportion of k rows varies about the mean of their predictions by :math:`\overline{h(1-h)}/k`, with declared
    noise besides. Bags beyond the limits have something that the model does not know.

    Parameters
    ----------
    size, gap, limit : array of shape (m,)
        Of each bag: rows, proportion less mean prediction, and how far from 0 it goes in 95% of cases.

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> h, ids = rng.uniform(size=6400), np.arange(6400) // 64
    >>> shown = BagFunnelDisplay.from_predictions(h, bw.aggregate(rng.random(6400) < h, ids), bags=ids)
    >>> bool(0.9 < np.mean(np.abs(shown.gap) < shown.limit) <= 1)
    True
    """

    def __init__(self, size: Floats, gap: Floats, limit: Floats) -> None:
        self.size, self.gap, self.limit = size, gap, limit

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike | None = None,
        *,
        bags: ArrayLike | Bags | None = None,
        noise_variance: ArrayLike | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Predict the rows of held-out bags and draw these.

        Parameters
        ----------
        estimator, X, y, bags, noise_variance
            As in `bagwise.evaluate`.
        ax : matplotlib Axes, optional
            Where to draw; a figure of its own by default.

        Returns
        -------
        Self
        """
        return cls.from_predictions(predicted(estimator, X), y, bags=bags, noise_variance=noise_variance, ax=ax)

    @classmethod
    def from_predictions(
        cls,
        h: ArrayLike,
        y: ArrayLike | None = None,
        *,
        bags: ArrayLike | Bags | None = None,
        noise_variance: ArrayLike | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw held-out bags beside predictions of their rows.

        Parameters
        ----------
        h : array of shape (n,)
            Probabilities of the positive class.
        y, bags, noise_variance
            As in `bagwise.evaluate`.
        ax : matplotlib Axes, optional
            Where to draw; a figure of its own by default.

        Returns
        -------
        Self
        """
        rows = predicted(h, None)
        if rows.ndim == 2:
            raise ValueError("a funnel needs predictions of one class: pass a column of them, and its proportions.")
        given = fitting_bags(rows, as_bags(y, bags, len(rows), noise_variance=noise_variance, whole_labels=True))
        noise = np.zeros(len(given)) if given.noise_variance is None else given.noise_variance
        variance = given.sum_table(rows * (1 - rows)) + noise
        gap = given.proportion - given.sum_table(rows) / given.size
        return cls(given.size.astype(float), gap, 1.96 * np.sqrt(variance) / given.size).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to; a figure of its own by default.

        Returns
        -------
        Self
            With `ax_` and `figure_`.
        """
        ax = self._begin(ax, _HEIGHT)
        order = np.argsort(self.size, kind="stable")
        ax.axhline(0, color=GREY, linewidth=1)
        if np.ptp(self.size):
            for sign in (-1, 1):
                ax.plot(self.size[order], sign * self.limit[order], color=GREY, linestyle="--", linewidth=1)
            ax.plot(self.size, self.gap, "o", color=BLUE, markersize=4)
            ax.set(xscale="log", xlabel="rows of a bag")
        else:  # bags of one size, in the order of their keys
            ax.plot(np.arange(len(self.gap)), self.gap, "o", color=BLUE, markersize=4)
            for sign in (-1, 1):
                ax.plot(np.arange(len(self.gap)), sign * self.limit, color=GREY, linestyle="--", linewidth=1)
            ax.set(xlabel=f"bag, of {int(self.size[0]):,} rows")
        ax.set(ylabel="proportion less mean prediction")
        return self
