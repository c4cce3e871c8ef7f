"""Pictures of explanations, in scikit-learn's way: `plot` draws, and sets `ax_` and `figure_`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bagwise.bags import Bags
from bagwise.explanation.dependence import Dependence, partial_dependence
from bagwise.explanation.importance import Importances, permutation_importance
from bagwise.explanation.result import Explanation
from bagwise.plotting import BLUE, GREY, RED, Picture, name_axis, short
from bagwise.utils.typing import ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST = 15  # bars of a picture


class BagContributionDisplay(Picture):
    """What features add to the score of one row, or the mean size of what they add to those of all.

    Parameters
    ----------
    explanation : Explanation
        As `explain` returns it.
    row : int, optional
        The row; all if not given.
    label : int, optional
        The class, of several.

    Examples
    --------
    >>> import bagwise as bw
    >>> X = np.random.default_rng(0).normal(size=(640, 2))
    >>> model = bw.BagRidgeClassifier(random_state=0).fit(X, X[:, 0] > 0)
    >>> BagContributionDisplay.from_estimator(model, X, row=0).ax_.get_xlabel()
    'adds to the log odds'
    """

    def __init__(self, explanation: Explanation, *, row: int | None = None, label: int | None = None) -> None:
        self.explanation, self.row, self.label = explanation, row, label

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, *, row: int | None = None, label: int | None = None, ax: Axes | None = None
    ) -> Self:
        """Explain rows by a model and draw it.

        Parameters
        ----------
        estimator : classifier or regressor
            A fitted model with `explain`.
        X : array or table
            The rows.
        row, label : int, optional
            As of the class.
        ax : matplotlib Axes, optional
            Where to draw; a figure of its own by default.

        Returns
        -------
        Self
        """
        return cls(estimator.explain(X), row=row, label=label).plot(ax)

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
        found = self.explanation
        told = found.importances if self.row is None else found.of_row(self.row, self.label)
        names = list(told)[:_MOST]
        values = np.array([told[name] for name in names])
        ax = self._begin(ax, 1.1 + 0.27 * len(names))
        ax.barh(np.arange(len(names)), values, color=[BLUE if one >= 0 else RED for one in values], height=0.62)
        if self.row is not None:
            ax.axvline(0, color=GREY, linewidth=1)
        adds = "adds to the" if self.row is not None else "mean size of what is added to the"
        name_axis(ax, names, f"{adds} {found.scale}")
        return self


class BagImportanceDisplay(Picture):
    """What held-out bags lose when a column is permuted, with intervals.

    Parameters
    ----------
    importances : Importances
        As `permutation_importance` returns them.

    Examples
    --------
    >>> import bagwise as bw
    >>> X = np.random.default_rng(0).normal(size=(640, 2))
    >>> model = bw.BagRidgeClassifier(random_state=0).fit(X, X[:, 0] > 0)
    >>> BagImportanceDisplay.from_estimator(model, X, X[:, 0] > 0, bags=np.arange(640)).ax_.get_xlabel()
    'square loss of a row lost without it'
    """

    def __init__(self, importances: Importances) -> None:
        self.importances = importances

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
        """Permute columns of held-out rows and draw what bags lose.

        Parameters
        ----------
        estimator, X, y, bags
            As in `permutation_importance`.
        ax : matplotlib Axes, optional
            Where to draw; a figure of its own by default.
        **options
            Of `permutation_importance`.

        Returns
        -------
        Self
        """
        return cls(permutation_importance(estimator, X, y, bags=bags, **options)).plot(ax)

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
        shown = self.importances.columns[:_MOST]
        ax = self._begin(ax, 1.1 + 0.27 * len(shown))
        value, low, high = (np.array([getattr(one.lost, part) for one in shown]) for part in ("value", "low", "high"))
        ax.axvline(0, color=GREY, linewidth=1)
        error = np.maximum([value - low, high - value], 0)
        ax.errorbar(value, np.arange(len(shown)), xerr=error, fmt="o", color=BLUE, capsize=3)
        name_axis(ax, [one.column for one in shown], f"{self.importances.measure} lost without it")
        return self


class BagDependenceDisplay(Picture):
    """The mean prediction by the value of a column.

    Parameters
    ----------
    dependence : Dependence
        As `partial_dependence` returns it.

    Examples
    --------
    >>> import bagwise as bw
    >>> X = np.random.default_rng(0).normal(size=(640, 2))
    >>> model = bw.BagRidgeClassifier(random_state=0).fit(X, X[:, 0] > 0)
    >>> BagDependenceDisplay.from_estimator(model, X, 0).ax_.get_xlabel()
    'x0'
    """

    def __init__(self, dependence: Dependence) -> None:
        self.dependence = dependence

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, column: int | str, *, ax: Axes | None = None, **options: Any
    ) -> Self:
        """Set a column of rows to one value after the other and draw the mean predictions.

        Parameters
        ----------
        estimator, X, column
            As in `partial_dependence`.
        ax : matplotlib Axes, optional
            Where to draw; a figure of its own by default.
        **options
            Of `partial_dependence`.

        Returns
        -------
        Self
        """
        return cls(partial_dependence(estimator, X, column, **options)).plot(ax)

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
        ax, found = self._begin(ax), self.dependence
        lines = found.predictions.reshape(len(found.values), -1)
        colours = [BLUE] if lines.shape[1] == 1 else [f"C{number}" for number in range(lines.shape[1])]
        if found.values.dtype.kind in "fiu":
            for column, colour in zip(lines.T, colours, strict=True):
                ax.plot(found.values, column, "o-", markersize=3, color=colour)
            ax.set(xlabel=short(found.column), ylabel="mean prediction")
        else:
            for column, colour in zip(lines.T, colours, strict=True):
                ax.plot(column, np.arange(len(column)), "o", color=colour)
            name_axis(ax, [str(value) for value in found.values], "mean prediction")
            ax.set(ylabel=short(found.column))
        return self
