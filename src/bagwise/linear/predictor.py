"""What linear models share once they are fitted."""

from __future__ import annotations

from bagwise.base import NumericFeatures
from bagwise.utils.typing import Floats


class LinearPredictor(NumericFeatures):
    """h = w·x + b. coef_: (features,), or (classes, features).  intercept_: a number, or (classes,)."""

    coef_: Floats
    intercept_: Floats | float

    def _keep(self, coef: Floats, intercept: Floats, *, classes: bool) -> None:
        """coef: (outputs, features).  intercept: (outputs,).  Without classes there is one output."""
        self.coef_ = coef if classes else coef[0]
        self.intercept_ = intercept if classes else float(intercept[0])

    def _predict_mean(self, X: Floats) -> Floats:
        return X @ self.coef_.T + self.intercept_
