"""Boosted trees from bags, as a scikit-learn classifier."""

import numpy as np
from scipy.special import expit

from bagwise.bags import Bags
from bagwise.boosting.dataset import in_bags
from bagwise.boosting.ensemble import choose_ensemble
from bagwise.boosting.fitting import MANY_ROWS, BoostingFit
from bagwise.boosting.further import choose_further
from bagwise.boosting.links import LOGIT, centring, centring_of_classes, prediction_of, score_of
from bagwise.boosting.tuning import some_watched
from bagwise.data.rows import InMemory
from bagwise.explanation.contributions import LOG_ODDS, ONE_FROM_REST, Contributions, mean_of
from bagwise.folds import folds_of
from bagwise.gains import tell_gain
from bagwise.intervals import TellsIntervals, jackknife_interval
from bagwise.log_odds import SUREST, Rows, prior_of
from bagwise.updatable import UpdatableClassifier
from bagwise.updates import Forgetting, Step, check_together
from bagwise.utils.rng import generator
from bagwise.utils.typing import Floats


class BagBoostingClassifier(BoostingFit, TellsIntervals, UpdatableClassifier):
    """Boosted trees from bags: LightGBM grows them, their leaf values are solved at the level of bags.

    Two classes go up the likelihood of the reported counts, which is right in every formation (see
    `boosting.objectives`); several classes go down the paper's square form, one tree per class and round, right for
    random bags. Tables of pandas, polars or Arrow may hold categories and missing values as they are.

    Bags are held out fold by fold; the fits without a fold are the ensemble whose mean log odds are the prediction, cut
    at the number of trees that held-out bags choose, stretched as they expect it, and shifted so that the mean
    prediction is p. Which kinds are fitted, and whether they allow for effects of bags, the bags of the first folds
    decide where these are 128 or more. Where rows are too many for memory, settings are chosen so on a sample, and
    `n_fits` fits of each kind to all bags are the ensemble.

    Parameters
    ----------
    formation : {"auto", "random", "rates", "features", "effects"}
        How bags came about (see `bagwise.formation`); "auto" lets the bags tell.
    objective : {"auto", "likelihood", "square"}
        What trees go down on; "auto" is the likelihood of counts (in random bags the square for greedy trees, which is
        as good there), and the square where reports are no counts. Several classes and real labels have the square
        only.
    n_estimators : int
        Most trees per fit; how many are kept is chosen by bags held out (see `boosting.tuning`).
    learning_rate, num_leaves, min_child_samples, colsample_bytree, max_cat_to_onehot : float, int, int, float, int
        As in LightGBM; greedy trees on the likelihood have twice as many leaves.
    reg_lambda : float or sequence of float, optional
        Penalty λ of the solve of the leaf values, or several, of which held-out bags choose. None is 3 for the
        likelihood and 10 for the square; where labels are not 0 and 1, the better of 10 and 100.
    cat_smooth : float
        As LightGBM's `cat_smooth` and `cat_l2`, times the mean bag size: the gradient of a row is its bag's residual,
        whose variance grows with k.
    kinds : sequence of str
        What fits to average. "greedy": trees that cut where the gradient asks for it; "random": trees that cut at
        random places (LightGBM's `extra_trees`), which err less where bags are few. Held-out bags may choose some.
    n_fits : int
        Fits of each kind to all bags, where those without a fold are not the ensemble.
    cv : int, optional
        Folds of bags; by default 5, and 10 where labels are 0 and 1, bags fewer than 100 and their rates alike.
    early_stopping_rounds : int
        Trees without gain after which a fit stops.
    categorical_features : sequence of int, optional
        Columns of an array that hold category codes (tables say so by their types).
    callback : callable, optional
        Called after each fit with a dict: stage ("choice", "final"), fit (its number), fits (how many there are).
    n_jobs : int
        Threads, 0 or −1 for all (one where the table is small).
    random_state : int, Generator or None
        For folds and features.

    Attributes
    ----------
    formation_ : Told
        The formation that was used, and why.
    n_estimators_, reg_lambda_ : dict
        What was chosen, by kind.
    gain_, gain_error_ : float
        Log-likelihood of a held-out bag over that of the mean label, and its standard error; NaN where there are fewer
        than 4 bags, or labels are not 0 and 1.
    risk_, risks_ : float, dict
        The held-out label-free risk, NaN where bags are not random or fewer than 4; for several classes, by kind,
        (trees,) that of each number of trees.
    prior_ : array
        p.
    stretch_ : float
        By what log odds are multiplied, as held-out bags ask for (see `bagwise.gains`).
    effect_variance_ : float
        τ² of effects of bags beyond what trees explain, looked for in the formations "features" and "effects".
    offset_ : array
        What is added to the stretched log odds so that the mean prediction of the training rows is p.
    fits_ : dict
        By kind, the fits that predictions are the mean of.
    updates_ : list of Further
        What `partial_fit` added to their log odds, one after the other; `update_` then says what the last came to.
    features_ : FeatureCodes
        The columns of the table it was fitted to, and the levels of their categories.

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(3200, 2))
    >>> y = (X[:, 0] * X[:, 1] > 0).astype(int)  # no linear model learns this
    >>> ids = bw.random_bags(3200, size=8, random_state=0)
    >>> model = BagBoostingClassifier(n_estimators=60, n_jobs=1, random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    def _centre(self, rows: Rows | None = None) -> None:
        """That of each fit, then that of their stretched mean."""
        fits = [fit for fits in self.fits_.values() for fit in fits]
        self.prior_ = fits[0].prior
        mean = np.mean([fit.centre(rows) for fit in fits], axis=0)
        self.offset_ = np.zeros(1)
        mean, weight = self._stretched(mean), fits[0].weight
        if self._classes:
            self.offset_ = centring_of_classes(mean, self.prior_, weight=weight)
        else:
            self.offset_ = centring(mean, self.prior_, weight=weight, rows=rows)
        for fit in fits:
            fit.weight = None

    def _decision(self, X: Floats) -> Floats:
        return self._log_odds(X)[:, 0]

    def _predict_mean(self, X: Floats) -> Floats:
        h = prediction_of(np.clip(self._log_odds(X), -SUREST, SUREST), LOGIT)
        return h if self._classes else h[:, 0]

    def _contributions(self, X: Floats) -> Contributions:
        """To the stretched mean of the log odds of fits, further trees included."""
        fits = [(fit, self.n_estimators_[kind]) for kind, fits in self.fits_.items() for fit in fits]
        start = score_of(self.prior_, LOGIT)
        found = Contributions(np.zeros((len(X), X.shape[1], len(start))), start, LOG_ODDS)
        if fits:
            parts = [fit.log_odds_contributions(X, n_trees, self.n_jobs) for fit, n_trees in fits]
            found = mean_of(parts).stretched(self.stretch_, self.offset_)
        for update in getattr(self, "updates_", []):  # folders of earlier versions have none
            found = update.contributions(X, found, self.n_jobs)
        return found.stretched(1.0, 0.0, ONE_FROM_REST) if self._classes else found.of_one_output()

    def _interval(self, X: Floats, level: float, offset: Floats | float) -> Floats:
        """By the fits without a fold, kinds together: the jackknife over folds on log odds."""
        if self._classes:
            raise ValueError(
                "trees of several classes are fitted to all bags, and intervals come from fits without a fold: take "
                "logistic regression or ridge."
            )
        if getattr(self, "updates_", []) or not getattr(self, "_folded", False):
            raise ValueError(
                "intervals come from fits without a fold, which a model has not that was updated, or fitted to shards, "
                f"to more than {MANY_ROWS:,} rows or by several processes: fit one to a sample of whole bags."
            )
        kinds = [
            [fit.log_odds(fit.scores(X, self.n_estimators_[kind], self.n_jobs)) for fit in fits]
            for kind, fits in self.fits_.items()
        ]
        each = self._stretched(np.mean(kinds, axis=0))[:, :, 0] + offset
        return np.asarray(expit(jackknife_interval(each, each.mean(axis=0), level)))

    def refuses_updates(self) -> str | None:
        """Why there are no updates of several classes."""
        if len(getattr(self, "classes_", ())) <= 2:
            return None
        way = "fit them to the reports of both months together, or take ridge"
        return f"boosted trees of several classes cannot be updated: {way}"

    def cannot_update(self) -> str | None:
        """Why it cannot learn from further bags: whatever folder it is from, its trees suffice."""
        return self.refuses_updates() if not getattr(self, "has_offset_", False) else super().cannot_update()

    def _update_bags(self, X: Floats, bags: Bags, forgetting: Forgetting) -> Step:
        check_together(forgetting, "boosted trees")
        X, bags = in_bags(X, bags)
        rng, old = generator(self.random_state), self._log_odds(X)[:, 0]
        folds = some_watched(folds_of(len(bags), self._n_folds(bags), rng, enough=len(bags)), bags)
        if not folds:
            return Step(f"kept as it was, as of {len(bags)} bags none can be held out", learned=False)
        table = self._table(InMemory(X, bags))
        tried, _ = choose_ensemble(self._trials(table, folds, rng, old), folds, bags, self.formation_)
        found = choose_further(old, bags, folds, tried, self.effect_variance_)
        if found.update is None:
            return Step("kept as it was, which held-out new bags like as well as what was learned from them", False)
        self.updates_ = [*getattr(self, "updates_", []), found.update]
        self.prior_, self.effect_variance_ = np.atleast_1d(prior_of(bags)), found.effect_variance
        self.gain_, self.gain_error_ = tell_gain(found.gains, stacklevel=5)
        n_trees = [max(one.num_trees() for one in fit.boosters) for fit in found.update.fits]
        if not n_trees:
            return Step("log odds stretched and moved to the new bags, which ask for no further trees")
        return Step(f"up to {max(n_trees)} further trees in each of {len(n_trees)} fits to new bags")
