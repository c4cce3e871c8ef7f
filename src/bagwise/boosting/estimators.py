"""Boosted trees from bags, as a scikit-learn estimator: the fit of all, and the classifier."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from bagwise.bags import Bags
from bagwise.base import BagClassifier, BagEstimator
from bagwise.boosting.dataset import LIKELIHOOD, SQUARE, Table, TreeOptions
from bagwise.boosting.ensemble import Tried, choose_ensemble
from bagwise.boosting.further import Further, choose_further
from bagwise.boosting.links import IDENTITY, LOGIT, centring, centring_of_classes, prediction_of, score_of
from bagwise.boosting.trees import Boosted, Job, side_by_side
from bagwise.boosting.tuning import Path, best_stage, choose_mean, join, sample_of, some_watched
from bagwise.data.features import TableFeatures
from bagwise.data.rows import BagRows, InMemory, Reads, in_one_piece
from bagwise.folds import ENOUGH, Fold, folds_of
from bagwise.gains import tell_gain
from bagwise.linear.moments import telling
from bagwise.log_odds import prior_of
from bagwise.losses.likelihood import are_counts, check_counts
from bagwise.risk import least_of
from bagwise.updatable import UpdatableClassifier
from bagwise.updates import Forgetting, Step, check_together
from bagwise.utils.parameters import NONE, Constraint, ParameterError, number, one_of, several, whole
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.typing import Booleans, Floats, Integers

KINDS = ("greedy", "random")
_PENALTIES = {LIKELIHOOD: (3.0,), SQUARE: (10.0, 100.0)}  # from which to choose, the usual one first
_SUREST = 30.0  # log odds beyond which a probability would be rounded to 0 or 1


@dataclass(kw_only=True, eq=False, repr=False)
class BoostingFit(TableFeatures, BagEstimator):
    """The fit of classifiers and regressors."""

    reads: ClassVar[Reads] = Reads(codes=True, blocks=True, weights=True, offset=True)
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "objective": one_of("auto", LIKELIHOOD, SQUARE),
        **dict.fromkeys(("n_estimators", "min_child_samples", "max_cat_to_onehot", "n_fits"), whole(1)),
        "early_stopping_rounds": whole(1),
        **dict.fromkeys(("num_leaves", "cv"), whole(2)),
        **dict.fromkeys(("learning_rate", "colsample_bytree"), number(above=0, most=1)),
        "reg_lambda": several(number(least=0), "a finite number of at least 0, or several") | NONE,
        "cat_smooth": number(least=0),
        "kinds": Constraint(
            f"one or both of {KINDS}",
            lambda kinds: isinstance(kinds, Sequence) and {*kinds} <= {*KINDS} and len({*kinds}) == len(kinds) > 0,
        ),
        "n_jobs": whole(-1),
    }

    formation: str = "auto"
    objective: str = "auto"
    n_estimators: int = 120
    learning_rate: float = 0.2
    num_leaves: int = 8
    min_child_samples: int = 20
    colsample_bytree: float = 0.4
    reg_lambda: float | Sequence[float] | None = None
    max_cat_to_onehot: int = 64
    cat_smooth: float = 10.0
    kinds: Sequence[str] = KINDS
    n_fits: int = 2
    cv: int = 5
    early_stopping_rounds: int = 30
    categorical_features: Sequence[int] | None = None
    callback: Callable[[dict[str, Any]], object] | None = None
    n_jobs: int = 0
    random_state: RandomState = None

    def _fit_data(self, data: BagRows) -> None:
        """Rows in several blocks are read one block at a time, after settings are chosen on a sample of whole bags.

        Where the sample holds all bags, it is fitted to as it is.
        """
        some = data if in_one_piece(data) else data.sample()
        if len(some.bags) == len(data.size):
            self._fit_bags(some.X, some.bags)
            return
        rng = generator(self.random_state)
        self._tell_formation(some.X, some.bags)
        self._choose(self._table(some), rng)
        self._fit_whole(self._table(data), rng)

    def _fit_bags(self, X: Floats, bags: Bags) -> None:
        by_counts = isinstance(self, BagClassifier) and bags.proportion.ndim == 1
        X, bags = _in_bags(X, bags if by_counts else telling(bags))  # others would be cut by, too
        rng = generator(self.random_state)
        self._tell_formation(X, bags)
        table = self._table(InMemory(X, bags))
        if self._choose(table, rng):
            self._fit_whole(table, rng)

    def _table(self, rows: BagRows) -> Table:
        return Table.of(rows, self._options(rows), self._categorical())

    # -- choice ---------------------------------------------------------------------------------------------------

    def _choose(self, table: Table, rng: np.random.Generator) -> bool:
        """Kinds, penalties, numbers of trees and the stretch of their mean; whether fits to all bags are needed."""
        self._classes, self.risks_ = table.bags.proportion.ndim == 2, dict[str, Floats]()
        self.updates_: list[Further] = []
        self.gain_ = self.gain_error_ = self.risk_ = float("nan")
        self.stretch_, self.effect_variance_, self._link = 1.0, 0.0, self._links(table)[0]
        counts, kinds = isinstance(self, BagClassifier) and not self._classes, self._kinds(table)
        enough = len(table.bags) if counts else ENOUGH
        folds = folds_of(len(table.bags), self.cv, rng, enough=enough, shared=table.bags.shared)
        self.n_estimators_ = dict.fromkeys(kinds, self.n_estimators)
        self.reg_lambda_ = {kind: self._penalties(options)[0] for kind, options in kinds.items()}
        if not folds:  # two or three bags: nothing to hold out, nothing to choose
            return True
        if counts:
            self._choose_by_likelihood(table, some_watched(folds, table.bags), rng)
        else:
            self._choose_by_risk(table, folds, rng)
        return not counts

    def _penalties(self, options: TreeOptions) -> list[float]:
        """Those to choose from; where labels are 0 and 1, one."""
        usual = _PENALTIES[options.objective][: 1 if options.counts else None]
        return [float(penalty) for penalty in np.atleast_1d(usual if self.reg_lambda is None else self.reg_lambda)]

    def _jobs(
        self,
        table: Table,
        folds: Sequence[Fold],
        rng: np.random.Generator,
        *,
        kinds: Collection[str] = KINDS,
        effect_variance: float = 0.0,
        rows: Integers | None = None,
        begin: Floats | None = None,
    ) -> list[tuple[str, float, list[Job]]]:
        """Each of the kinds with each penalty, and its fits without each fold."""
        seeds = [int(one) for one in rng.integers(2**31, size=len(folds))]  # every kind and penalty meets the same
        most, patience = self.n_estimators, self.early_stopping_rounds
        found = []
        for kind, options in (self._kinds(table) if begin is None else self._further_kinds(table)).items():
            if kind not in kinds:
                continue
            for penalty in self._penalties(options):
                of = replace(options, reg_lambda=penalty, effect_variance=effect_variance)
                each = zip(folds, seeds, strict=True)
                jobs = [Job(table, of, most, seed, fold, patience, rows, begin) for fold, seed in each]
                found.append((kind, penalty, jobs))
        return found

    def _choose_by_likelihood(self, table: Table, folds: Sequence[Fold], rng: np.random.Generator) -> None:
        """The fits without a fold are what predictions are the mean of: each of the kinds that held-out bags like."""
        self.prior_ = np.atleast_1d(prior_of(table.bags))
        self.offset_: Floats = np.zeros(1)
        fits_of = partial(self._try_kinds, table, folds, rng)
        chosen, self.formation_ = choose_ensemble(fits_of, folds, table.bags, self.formation_)
        if chosen is None:
            self.fits_, self.n_estimators_ = {}, dict.fromkeys(self.n_estimators_, 0)
            if table.bags.offset is not None:  # the mean label of rows without it
                moved = centring(table.bags.offset[:, None], self.prior_, weight=table.bags.weight)
                self.prior_ = prediction_of(moved, LOGIT)
            return
        self.stretch_, self.effect_variance_ = chosen.stretch, chosen.effect_variance
        self.risk_ = chosen.risk if self.formation_.name == "random" else float("nan")
        self.gain_, self.gain_error_ = tell_gain(chosen.gains, stacklevel=6)
        if table.bags.interval is not None:
            self.prior_ = np.atleast_1d(chosen.prior)
        self.offset_ = chosen.centre(self.prior_)
        self.fits_ = {kind: one.fits for kind, one in chosen.kinds.items()}
        self.n_estimators_ = {kind: max(stage.n_trees for stage in one.stages) for kind, one in chosen.kinds.items()}
        self.reg_lambda_ = {kind: one.reg_lambda for kind, one in chosen.kinds.items()}
        for one in chosen.kinds.values():
            for fit, stage in zip(one.fits, one.stages, strict=True):
                fit.keep(stage.n_trees)

    def _try_kinds(
        self,
        table: Table,
        folds: Sequence[Fold],
        rng: np.random.Generator,
        effect_variance: float,
        kinds: Collection[str] = KINDS,
        begin: Floats | None = None,
    ) -> dict[str, Tried]:
        """The fits of each kind without each fold, with the better of its penalties; those in which trees can grow.

        begin: (n,) log odds of rows that further trees begin at.
        """
        rows = sample_of(folds, table.bags)
        tried = self._jobs(table, folds, rng, kinds=kinds, effect_variance=effect_variance, rows=rows, begin=begin)
        jobs = [job for *_, each in tried for job in each]
        fits = iter(side_by_side([job.fit for job in jobs], table.rows, self.n_jobs, partial(self._tell, "choice")))
        found: dict[str, Tried] = {}
        for kind, penalty, each in tried:
            own = [next(fits) for _ in each]
            if not all(fit.stages for fit in own):
                continue  # nothing varies, or nothing can be cut
            one = Tried(penalty, own, best_stage([fit.stages for fit in own]))
            if kind not in found or one.gain > found[kind].gain:
                found[kind] = one
        return found

    def _choose_by_risk(self, table: Table, folds: Sequence[Fold], rng: np.random.Generator) -> None:
        """Penalty and number of trees of each kind, the stretch and the risk of their mean; of the better scale."""
        found = {}
        for link in self._links(table):
            self._link = link
            tried = self._jobs(table, folds, rng)
            jobs = [job for *_, each in tried for job in each]
            paths = side_by_side([job.path for job in jobs], table.rows, self.n_jobs, partial(self._tell, "choice"))
            left, joined = iter(paths), dict[str, dict[float, Path]]()
            for kind, penalty, each in tried:
                joined.setdefault(kind, {})[penalty] = join([next(left) for _ in each])
            found[link] = choose_mean(joined)
        self._link = list(found)[least_of([mean.losses for mean in found.values()])]
        mean = found[self._link]
        self.reg_lambda_ = {kind: choice.reg_lambda for kind, choice in mean.kinds.items()}
        self.n_estimators_ = {kind: choice.n_trees for kind, choice in mean.kinds.items()}
        self.risks_ = {kind: choice.risks for kind, choice in mean.kinds.items()}
        self.stretch_, self.risk_ = mean.stretch, float(mean.losses.mean())

    # -- fits to all bags -----------------------------------------------------------------------------------------

    def _fit_whole(self, table: Table, rng: np.random.Generator) -> None:
        """Fits with what was chosen, each to all bags, that predictions are the mean of."""
        kinds, jobs = self._kinds(table), []
        for kind, n_trees in self.n_estimators_.items():
            of = replace(kinds[kind], reg_lambda=self.reg_lambda_[kind], effect_variance=self.effect_variance_)
            jobs += [Job(table, of, n_trees, int(rng.integers(2**31))) for _ in range(self.n_fits)]
        fits = iter(side_by_side([job.fit for job in jobs], table.rows, self.n_jobs, partial(self._tell, "final")))
        self.fits_ = {kind: [next(fits) for _ in range(self.n_fits)] for kind in self.n_estimators_}
        self._centre()

    def _links(self, table: Table) -> tuple[str, ...]:
        """Scales of real labels to choose from; of classes, each kind has its own."""
        return (IDENTITY,)

    @abstractmethod
    def _centre(self) -> None:
        """Make the mean prediction of the training rows p, and let go of what is known of these."""

    def _tell(self, stage: str, progress: dict[str, Any]) -> None:
        if self.callback is not None:
            self.callback({"stage": stage, **progress})

    def _kinds(self, table: Table) -> dict[str, TreeOptions]:
        """What is tried: where labels are 0 and 1, the likelihood of counts, in random bags greedy trees on the square.

        The square is the likelihood's equal there, and errs in other places: held-out bags like the mean of both.
        """
        counts = isinstance(self, BagClassifier) and not self._classes
        options = replace(self._options(table.rows), counts=counts)
        greedy, random = (IDENTITY, LOGIT) if isinstance(self, BagClassifier) else (self._link, self._link)
        square = {"greedy": replace(options, link=greedy), "random": replace(options, extra_trees=True, link=random)}
        square = {kind: square[kind] for kind in self.kinds}
        offset = table.bags.offset is not None
        if offset and self.objective == SQUARE:
            raise ParameterError("objective", "must be the likelihood where there is an offset of log odds.")
        if (
            not counts
            or self.objective == SQUARE
            or (self.objective == "auto" and not offset and not are_counts(table.bags))
        ):
            return square
        check_counts(table.bags)
        kinds = {kind: replace(each, link=LOGIT, objective=LIKELIHOOD) for kind, each in square.items()}
        if "greedy" in kinds:  # the likelihood hears more of single rows than the square, and may cut finer
            kinds["greedy"] = replace(kinds["greedy"], num_leaves=2 * self.num_leaves)
        both = self.objective == "auto" and self.formation_.name == "random" and not offset
        return kinds | ({"greedy": square["greedy"]} if both and "greedy" in square else {})

    def _further_kinds(self, table: Table) -> dict[str, TreeOptions]:
        """What further trees are: those on log odds, on the likelihood where reports are counts."""
        options = replace(self._options(table.rows), counts=True, link=LOGIT)
        options = replace(options, objective=LIKELIHOOD if are_counts(table.bags) else SQUARE)
        kinds = {"greedy": options, "random": replace(options, extra_trees=True)}
        return {kind: kinds[kind] for kind in self.kinds}

    def _stretched(self, log_odds: Floats) -> Floats:
        """(n, outputs) mean log odds of fits, stretched, and centred."""
        return np.asarray(self.stretch_ * log_odds + self.offset_)

    def used_features(self) -> Booleans | None:
        """Whether a tree is split on each feature."""
        used = [fit.used(self.n_estimators_[kind]) for kind, fits in self.fits_.items() for fit in fits]
        return np.asarray(np.any([np.zeros(len(self.features_.categories), dtype=bool), *used], axis=0))

    def _scores(self, X: Floats) -> list[tuple[Boosted, Floats]]:
        """The fits, and what each says, (n, outputs)."""
        fits = [(fit, self.n_estimators_[kind]) for kind, fits in self.fits_.items() for fit in fits]
        return [(fit, fit.scores(X, n_trees, self.n_jobs)) for fit, n_trees in fits]

    def _log_odds(self, X: Floats) -> Floats:
        """(n, outputs) log odds, by the fits and what updates added to them."""
        found = [fit.log_odds(s) for fit, s in self._scores(X)]
        start = np.tile(score_of(self.prior_, LOGIT), (len(X), 1))
        z = self._stretched(np.mean(found, axis=0)) if found else start
        for update in getattr(self, "updates_", []):  # folders of earlier versions have none
            z = update.log_odds(X, z, self.n_jobs)
        return np.asarray(z)

    def _options(self, rows: BagRows) -> TreeOptions:
        own = ("learning_rate", "num_leaves", "min_child_samples", "colsample_bytree", "max_cat_to_onehot", "n_jobs")
        smooth = self.cat_smooth * float(np.sum(rows.size)) / len(rows.size)
        # The penalty is to be chosen.
        return TreeOptions(**{name: getattr(self, name) for name in own}, reg_lambda=0.0, cat_smooth=smooth)


def _in_bags(X: Floats, bags: Bags) -> tuple[Floats, Bags]:
    """The rows in bags alone: others say nothing, not even where to cut."""
    if bags.n_bagged == len(X):
        return X, bags
    rows = np.flatnonzero(bags.code >= 0)
    place = np.full(len(X), -1)
    place[rows] = np.arange(len(rows))
    return X[rows], replace(bags, order=place[bags.order], n_rows=len(rows))


class BagBoostingClassifier(BoostingFit, UpdatableClassifier):
    """Boosted trees from bags: LightGBM grows them, their leaf values are solved at the level of bags.

    Two classes go up the likelihood of the reported counts, which is right in every formation (see
    `boosting.objectives`); several classes go down the paper's square form, one tree per class and round, right for
    random bags. Tables of pandas, polars or Arrow may hold categories and missing values as they are.

    Bags are held out fold by fold; the fits without a fold are the ensemble whose mean log odds are the prediction, cut
    at the number of trees that held-out bags choose, stretched as they expect it, and shifted so that the mean
    prediction is p. Where rows are too many for memory, settings are chosen so on a sample, and `n_fits` fits of each
    kind to all bags are the ensemble.

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
    cv, early_stopping_rounds : int
        Folds of bags; trees without gain after which a fit stops.
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

    def _centre(self) -> None:
        """That of each fit, then that of their stretched mean."""
        fits = [fit for fits in self.fits_.values() for fit in fits]
        self.prior_ = fits[0].prior
        centre = centring_of_classes if self._classes else centring
        mean = np.mean([fit.centre() for fit in fits], axis=0)
        self.offset_ = np.zeros(1)
        self.offset_ = centre(self._stretched(mean), self.prior_, weight=fits[0].weight)
        for fit in fits:
            fit.weight = None

    def _decision(self, X: Floats) -> Floats:
        return self._log_odds(X)[:, 0]

    def _predict_mean(self, X: Floats) -> Floats:
        h = prediction_of(np.clip(self._log_odds(X), -_SUREST, _SUREST), LOGIT)
        return h if self._classes else h[:, 0]

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
        X, bags = _in_bags(X, bags)
        rng, old = generator(self.random_state), self._log_odds(X)[:, 0]
        folds = some_watched(folds_of(len(bags), self.cv, rng, enough=len(bags)), bags)
        if not folds:
            return Step(f"kept as it was, as of {len(bags)} bags none can be held out", learned=False)
        table = self._table(InMemory(X, bags))
        fits_of = partial(self._try_kinds, table, folds, rng, begin=old)
        tried, _ = choose_ensemble(fits_of, folds, bags, self.formation_)
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
