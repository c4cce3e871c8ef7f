"""What linear models share once they are fitted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bagwise.base import NumericFeatures


class LinearPredictor(NumericFeatures):
    """h = w·x + b. coef_: (features,), or (classes, features).  intercept_: a number, or (classes,)."""

    coef_: NDArray[np.floating]
    intercept_: NDArray[np.floating] | float

    def _keep(self, coef: NDArray[np.floating], intercept: NDArray[np.floating], *, classes: bool) -> None:
        """coef: (outputs, features).  intercept: (outputs,).  Without classes there is one output."""
        self.coef_ = coef if classes else coef[0]
        self.intercept_ = intercept if classes else float(intercept[0])

    def _predict_mean(self, X: NDArray[np.floating]) -> NDArray[np.floating]:
        return X @ self.coef_.T + self.intercept_
