"""What every method should beat: proportions taken for labels.

The class prior, the same p for every row, needs no code of ours: scikit-learn's ``DummyClassifier`` does it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import lightgbm as lgb
import numpy as np

from bagwise.bags import Bags
from bagwise.base import BagClassifier
from bagwise.data.features import TableFeatures
from bagwise.data.rows import Reads
from bagwise.explanation.contributions import LOG_ODDS, ONE_FROM_REST, Contributions
from bagwise.utils.deadline import check_time
from bagwise.utils.parameters import COLUMNS, DEEPEST, LARGEST, LEAVES, Constraint, number, whole
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.threads import threads_of
from bagwise.utils.typing import Floats

__all__ = ["GroupPriorClassifier"]


class GroupPriorClassifier(TableFeatures, BagClassifier):
    r"""Every row takes its bag's proportion for its own label, and LightGBM is fitted to these soft labels.

    For rows of training bags the group prior is the proportion itself; new rows have no bag, so a model carries it over
    to them. In random bags :math:`E[\alpha_j \mid x_i] = p + (E[y \mid x_i] - p)/k`: rows are ordered as they should
    be, but predictions stay k times too close to p, and with large k the noise of the proportions outweighs what
    is left. Several classes are learned one by one. Proportions that declared noise took out of [0, 1] are clipped,
    since LightGBM takes no others. Tables may hold categories and missing values as they are.

    Parameters
    ----------
    n_estimators, learning_rate, num_leaves, min_child_samples : int, float, int, int
        As in LightGBM, with its defaults.
    formation : {"auto", "random", "rates", "features", "effects"}
        How bags came about; the fit is the same in all of them.
    categorical_features : sequence of int, optional
        Columns of an array that hold category codes (tables say so by their types).
    n_jobs : int
        Threads, 0 for all.
    random_state : int, Generator or None
        For LightGBM's seed.

    Attributes
    ----------
    boosters_ : list of lightgbm.Booster
        One, or one per class.
    formation_ : Told
        What the bags tell of theirs.
    features_ : FeatureCodes
        The columns of the table it was fitted to, and the levels of their categories.

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(3200, 1))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> ids = bw.random_bags(3200, size=16, random_state=0)
    >>> model = GroupPriorClassifier(n_jobs=1).fit(X, bw.aggregate(y, ids), bags=ids)
    >>> h = model.predict_proba([[-1.0], [1.0]])[:, 1]
    >>> bool(h[0] < h[1] < h[0] + 0.2)  # the truth is 0 and 1
    True
    """

    reads: ClassVar[Reads] = Reads(codes=True, weights=True)
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **dict.fromkeys(("n_estimators", "min_child_samples"), whole(1, LARGEST)),
        "learning_rate": number(above=0),
        "num_leaves": LEAVES,
        "categorical_features": COLUMNS,
        "n_jobs": whole(-1),
    }

    def __init__(
        self,
        *,
        formation: str = "auto",
        n_estimators: int = 100,
        learning_rate: float = 0.1,
        num_leaves: int = 31,
        min_child_samples: int = 20,
        categorical_features: Sequence[int] | None = None,
        n_jobs: int = 0,
        random_state: RandomState = None,
    ) -> None:
        self.formation = formation
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.num_leaves = num_leaves
        self.min_child_samples = min_child_samples
        self.categorical_features = categorical_features
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _fit_bags(self, X: Floats, bags: Bags) -> None:
        options = {
            "objective": "cross_entropy",  # takes labels between 0 and 1
            "learning_rate": self.learning_rate,
            "num_leaves": self.num_leaves,
            "max_depth": DEEPEST,
            "min_data_in_leaf": self.min_child_samples,
            "seed": int(generator(self.random_state).integers(2**31)),
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": threads_of(self.n_jobs),
            "verbosity": -1,
        }
        self._tell_formation(X, bags)
        rows = np.sort(bags.order)
        labels = np.clip(bags.outputs, 0, 1)[bags.code[rows]]  # declared noise may leave [0, 1]
        people = bags.of_table(bags.weight)
        weight = None if people is None else people[rows]
        self._classes: bool = bags.proportion.ndim == 2
        self.boosters_: list[lgb.Booster] = []
        for label in labels.T:
            data = lgb.Dataset(X[rows], label, weight=weight, categorical_feature=self._categorical())
            grown = lgb.train(options, data, num_boost_round=self.n_estimators, callbacks=[lambda _: check_time()])
            self.boosters_.append(grown)

    def _contributions(self, X: Floats) -> Contributions:
        """Shapley values of trees, as LightGBM computes them, to log odds."""
        threads = {"num_threads": threads_of(self.n_jobs)}
        found = np.stack([booster.predict(X, pred_contrib=True, **threads) for booster in self.boosters_], axis=2)
        told = Contributions(found[:, :-1], found[0, -1], ONE_FROM_REST if self._classes else LOG_ODDS)
        return told if self._classes else told.of_one_output()

    def _predict_mean(self, X: Floats) -> Floats:
        h = np.stack([booster.predict(X, num_threads=threads_of(self.n_jobs)) for booster in self.boosters_], axis=1)
        return h if self._classes else h[:, 0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags
