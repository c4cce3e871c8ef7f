"""Boosted trees for real labels, as a scikit-learn estimator."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bagwise.base import BagRegressor
from bagwise.boosting.dataset import Table
from bagwise.boosting.fitting import BoostingFit
from bagwise.boosting.links import IDENTITY, LOG, prediction_of
from bagwise.data.rows import Reads
from bagwise.explanation.contributions import VALUE, Contributions, mean_of
from bagwise.log_odds import Rows
from bagwise.nonnegative import NONNEGATIVE, never_negative
from bagwise.utils.parameters import Constraint, ParameterError, one_of
from bagwise.utils.typing import Floats


@dataclass(kw_only=True, eq=False, repr=False)
class BagBoostingRegressor(BoostingFit, BagRegressor):
    r"""Boosted trees for real labels from bags. Parameters and attributes as `BagBoostingClassifier`, and some more.

    Trees go down the square form, whichever `objective` is named; leaf values are solved at the level of bags.

    Trees add up as predictions are or, where labels are never negative, as their logarithms, :math:`h = e^{s}`, which
    suits values of which most are 0 and a few large: held-out bags choose the scale. Predictions of labels that are
    never negative are not either, and the mean prediction of the training rows is p.

    Bags count by :math:`V/(V + s_j^2)`, V the variance of a sum as bags show it and :math:`s_j^2` declared noise; those
    with so much noise that together they are worth no more than a twentieth of the others are left out.

    Parameters
    ----------
    link : {"auto", "identity", "log"}
        The scale on which trees add up; "auto" tries both where labels are never negative.
    nonnegative : bool or "auto"
        Whether labels are never negative; "auto" takes them for that where no bag reports less than 0.

    Attributes
    ----------
    link_ : str
        The scale that held-out bags chose.
    nonnegative_ : bool
        Whether labels were taken for never negative.
    factor_ : float
        What predictions that are not negative are multiplied by, so that their mean in the training rows is p.

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(6400, 2))
    >>> y = np.abs(X[:, 0])
    >>> ids = bw.random_bags(6400, size=8, random_state=0)
    >>> model = BagBoostingRegressor(n_estimators=60, n_jobs=1, random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
    >>> bool(np.corrcoef(model.predict(X), y)[0, 1] > 0.9), bool(model.predict(X).min() >= 0)
    (True, True)
    """

    reads: ClassVar[Reads] = Reads(codes=True, blocks=True, weights=True)
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **BoostingFit._constraints,
        "link": one_of("auto", IDENTITY, LOG),
        "nonnegative": NONNEGATIVE,
    }

    link: str = "auto"
    nonnegative: bool | str = "auto"

    @property
    def link_(self) -> str:
        """The scale on which trees add up."""
        return self._link

    def _links(self, table: Table) -> tuple[str, ...]:
        bags = table.bags
        self.nonnegative_ = never_negative(self.nonnegative, bags.size, bags.proportion, bags.noise_variance)
        if self.link == LOG and not self.nonnegative_:
            raise ParameterError("link", "'log' is for labels that are never negative: take 'identity' or 'auto'.")
        if self.link != "auto":
            return (self.link,)
        return (IDENTITY, LOG) if self.nonnegative_ else (IDENTITY,)

    def _centre(self, rows: Rows | None = None) -> None:
        fits = [fit for fits in self.fits_.values() for fit in fits]
        self.prior_, self.factor_ = fits[0].prior, 1.0
        h = self._joined([fit.trained for fit in fits if fit.trained is not None])
        mean = float(np.average(h, weights=fits[0].weight))
        if self.nonnegative_ and mean > 0:
            self.factor_ = max(float(self.prior_[0]), 0.0) / mean
        for fit in fits:
            fit.trained = fit.weight = None

    def _joined(self, scores: list[Floats]) -> Floats:
        """(n,) the stretched mean of what fits say."""
        p = self.prior_
        h: Floats = (p + self.stretch_ * (np.mean([prediction_of(s, self._link) for s in scores], axis=0) - p))[:, 0]
        return np.maximum(h, 0) if self.nonnegative_ else h

    def _contributions(self, X: Floats) -> Contributions:
        """To values; in proportion where trees add up as logarithms, or values are kept above 0."""
        fits = [(fit, self.n_estimators_[kind]) for kind, fits in self.fits_.items() for fit in fits]
        parts = [fit.contributions(X, n_trees, self.n_jobs).to_predictions() for fit, n_trees in fits]
        found = mean_of(parts).stretched(self.stretch_, self.prior_ * (1 - self.stretch_)).of_one_output()
        if not self.nonnegative_:
            return found.stretched(self.factor_, 0.0)
        return found.through(lambda h: self.factor_ * np.maximum(h, 0), VALUE)

    def _predict_mean(self, X: Floats) -> Floats:
        return np.asarray(self.factor_ * self._joined([s for _, s in self._scores(X)]))
