"""Linear predictions of real labels, which are not negative where labels never are."""

from __future__ import annotations

from typing import Any

import numpy as np

from bagwise.explanation.contributions import VALUE, Contributions, linear_contributions
from bagwise.nonnegative import factor_of, never_negative
from bagwise.numeric import LinearPredictor, check_finite_features
from bagwise.utils.typing import Floats, Integers

_ROWS = 200_000  # that the mean of predictions is known from well enough


class ValuePredictor(LinearPredictor):
    """Linear predictions or, of labels that are never negative, 0 where these are below it, times a factor.

    nonnegative: as asked for.  nonnegative_: whether labels were taken for never negative.  factor_: see `nonnegative`.
    """

    nonnegative: bool | str
    nonnegative_: bool
    factor_: float

    def settle_sign(
        self,
        X: Floats,
        size: Integers,
        mean: Floats,
        noise_variance: Floats | None,
        *,
        rows: Any = slice(None),
        weight: Floats | None = None,
    ) -> None:
        """Set whether predictions are kept above 0, by what bags report, and the factor, by some rows.

        Parameters
        ----------
        X : array of shape (n, features)
            Rows as the model reads them.
        size, mean, noise_variance : array of shape (m,), the last or None
            Of bags, their reports, and the noise that these declare.
        rows : slice or array of int
            Which of X are in bags; all by default.
        weight : array, optional
            For how many each of these rows stands.
        """
        known = getattr(self, "nonnegative_", True)  # an update does not make labels positive that were not
        self.nonnegative_ = known and never_negative(self.nonnegative, size, mean, noise_variance)
        self.factor_ = 1.0
        if self.nonnegative_:
            some = X[rows]
            every = -(-len(some) // _ROWS)
            self.factor_ = factor_of(super()._predict_mean(some[::every]), None if weight is None else weight[::every])

    def _predict_mean(self, X: Floats) -> Floats:
        h = super()._predict_mean(X)
        if not getattr(self, "nonnegative_", False):  # folders of earlier versions do not say
            return h
        check_finite_features(h, X, getattr(self, "feature_names_in_", None))  # kept above 0, infinity would be hidden
        return np.asarray(self.factor_ * np.maximum(h, 0))

    def _contributions(self, X: Floats) -> Contributions:
        """To values; in proportion where these are kept above 0."""
        found = linear_contributions(self, X, VALUE)
        if not getattr(self, "nonnegative_", False):
            return found
        return found.through(lambda h: self.factor_ * np.maximum(h, 0), VALUE)
