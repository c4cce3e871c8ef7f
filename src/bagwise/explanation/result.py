"""Why scores are what they are: contributions of features, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise.explanation.contributions import LOG_PROBABILITY, LOGITS, ONE_FROM_REST, PREDICTIONS, Contributions
from bagwise.utils.typing import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bagwise.explanation.displays import BagContributionDisplay

_SHOWN = 5  # features in words


@dataclass(frozen=True, eq=False)
class Explanation:
    r"""Scores of rows as sums: :math:`s = b + \sum_i c_i`.

    Attributes
    ----------
    contributions : array of shape (n, features) or (n, features, classes)
        What each feature adds to the score of each row.
    base : float or array of shape (classes,)
        What they are measured from: the score of the mean training row, or the mean score of trees.
    scale : str
        Of scores: "log odds", "log odds of each class", "logits", "probability", "log probability", "value" or
        "logarithm" (of a value).
    names : tuple of str
        Of the features.

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(6400, 2))
    >>> y = (rng.random(6400) < 1 / (1 + np.exp(-2 * X[:, 0]))).astype(int)
    >>> ids = bw.random_bags(6400, size=16, random_state=0)
    >>> model = bw.BagLogisticClassifier(random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
    >>> found = model.explain(X)
    >>> found
    Explanation(6400 rows, 2 features, log odds from 0.00; most: x0, x1)
    >>> bool(np.allclose(found.predictions, model.predict_proba(X)[:, 1]))
    True
    """

    contributions: Floats
    base: Floats | float
    scale: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, found: Contributions, names: Sequence[str]) -> Explanation:
        """Of contributions of features with these `names`."""
        base = float(found.base) if np.ndim(found.base) == 0 else found.base
        return cls(found.values, base, found.scale, tuple(str(name) for name in names))

    @property
    def scores(self) -> Floats:
        """(n,) or (n, classes) what the base and contributions add up to."""
        return np.asarray(self.base + self.contributions.sum(axis=1))

    @property
    def predictions(self) -> Floats:
        """(n,) or (n, classes) predictions of the scores."""
        return np.asarray(PREDICTIONS[self.scale](self.scores))

    @property
    def importances(self) -> dict[str, float]:
        """The mean size of contributions by feature, the largest first; of several classes, the mean over them."""
        size = np.abs(self.contributions).reshape(*self.contributions.shape[:2], -1).mean(axis=(0, 2))
        order = np.argsort(-size, kind="stable")
        return {self.names[i]: float(size[i]) for i in order}

    def gathered(self, names: Sequence[str]) -> Explanation:
        """The same by what features are made of, whose contributions are added up.

        Parameters
        ----------
        names : sequence of str
            For each feature, the name of what it is made of.

        Returns
        -------
        Explanation
        """
        own = list(dict.fromkeys(names))
        found = Contributions(self.contributions, np.asarray(self.base), self.scale)
        return Explanation.of(found.gathered(np.array([own.index(name) for name in names]), len(own)), own)

    def to_frame(self, label: int | None = None) -> Any:
        """A pandas table: a column per feature, then `base` and `score`; of several classes, of that of number `label`.

        Parameters
        ----------
        label : int, optional
            The class; not for scores of one output.

        Returns
        -------
        pandas.DataFrame
        """
        import pandas as pd

        values, base, score = self._of(label)
        frame = pd.DataFrame(values, columns=list(self.names))
        return frame.assign(base=base, score=score)

    def plot(
        self, row: int | None = None, *, label: int | None = None, ax: Axes | None = None
    ) -> BagContributionDisplay:
        """Draw the contributions to the score of one row, or the mean size of those to all.

        Parameters
        ----------
        row : int, optional
            Its number; all if not given.
        label : int, optional
            The class, of several.
        ax : matplotlib Axes, optional
            Where to draw; a figure of its own by default.

        Returns
        -------
        BagContributionDisplay
        """
        from bagwise.explanation.displays import BagContributionDisplay

        return BagContributionDisplay(self, row=row, label=label).plot(ax)

    def of_row(self, row: int, label: int | None = None) -> dict[str, float]:
        """What each feature adds to the score of one row, the largest first.

        Parameters
        ----------
        row : int
            Its number.
        label : int, optional
            The class, of several.

        Returns
        -------
        dict of float
        """
        values = self._of(label)[0][row]
        return {self.names[i]: float(values[i]) for i in np.argsort(-np.abs(values), kind="stable")}

    def _of(self, label: int | None) -> tuple[Floats, float, Floats]:
        """Contributions, base and scores of one output."""
        if self.contributions.ndim == 2:
            if label is not None:
                raise ValueError("label is for models of several classes: leave it out.")
            return self.contributions, float(self.base), self.scores
        base = np.asarray(self.base)
        if label is None or not 0 <= label < len(base):
            raise ValueError(f"label must be the number of a class, from 0 to {len(base) - 1}, got {label!r}.")
        return self.contributions[:, :, label], float(base[label]), self.scores[:, label]

    def __repr__(self) -> str:
        n, d = self.contributions.shape[:2]
        most = ", ".join(list(self.importances)[:_SHOWN]) if n else "–"
        several = self.scale in (ONE_FROM_REST, LOGITS, LOG_PROBABILITY) or self.contributions.ndim == 3
        start = f"{np.size(self.base)} classes" if several else f"from {self.base:.2f}"
        return f"Explanation({n} rows, {d} features, {self.scale} {start}; most: {most})"
