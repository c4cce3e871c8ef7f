"""Boosted trees from bags: the fit that classifiers and regressors share."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from bagwise.bags import Bags
from bagwise.base import BagClassifier, BagEstimator
from bagwise.boosting.dataset import LIKELIHOOD, SQUARE, Table, TreeOptions, in_bags
from bagwise.boosting.ensemble import Trials, choose_ensemble
from bagwise.boosting.further import Further
from bagwise.boosting.links import IDENTITY, LOGIT, centring, prediction_of, score_of
from bagwise.boosting.trees import Boosted, Job, Result, side_by_side
from bagwise.boosting.tuning import Path, choose_mean, join, sample_of, seeds_of, some_watched
from bagwise.data.features import TableFeatures
from bagwise.data.rows import BagRows, InMemory, Reads, in_one_piece
from bagwise.data.shuffled import MatrixRows
from bagwise.folds import ENOUGH, Fold, folds_of
from bagwise.formation import Told
from bagwise.gains import tell_gain
from bagwise.linear.moments import telling
from bagwise.log_odds import Rows, prior_of
from bagwise.losses.likelihood import are_counts, check_counts
from bagwise.risk import least_of
from bagwise.utils.parameters import (
    COLUMNS,
    FUNCTION,
    LARGEST,
    LEAVES,
    NONE,
    Constraint,
    ParameterError,
    number,
    one_of,
    several,
    whole,
)
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.typing import Booleans, Floats, Integers

if TYPE_CHECKING:
    from bagwise.distributed import Distributed, Processes

logger = logging.getLogger(__name__)

KINDS = ("greedy", "random")
_SETTLED = ("n_estimators_", "reg_lambda_", "stretch_", "effect_variance_", "gain_", "gain_error_", "risk_")
MANY_ROWS = 2**20
"""Rows in memory beyond which settings are chosen on a sample, if that has many bags, and rows are read in blocks."""
_BESIDES = ("callback", "n_jobs")  # parameters on which nothing that is learned depends
_FOLDS, _FOLDS_OF_FEW, _FEW_BAGS = 5, 10, 100  # the fewer bags there are, the more those are missed that are held out
_PENALTIES = {LIKELIHOOD: (3.0,), SQUARE: (10.0, 100.0)}  # from which to choose, the usual one first


@dataclass(kw_only=True, eq=False, repr=False)
class BoostingFit(TableFeatures, BagEstimator):
    """The fit of classifiers and regressors."""

    reads: ClassVar[Reads] = Reads(codes=True, blocks=True, weights=True, offset=True)
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "objective": one_of("auto", LIKELIHOOD, SQUARE),
        **dict.fromkeys(("n_estimators", "min_child_samples", "max_cat_to_onehot", "n_fits"), whole(1, LARGEST)),
        "early_stopping_rounds": whole(1),
        "num_leaves": LEAVES,
        "cv": whole(2) | NONE,
        **dict.fromkeys(("learning_rate", "colsample_bytree"), number(above=0, most=1)),
        "reg_lambda": several(number(least=0), "a finite number of at least 0, or several") | NONE,
        "cat_smooth": number(least=0),
        "kinds": Constraint(
            f"one or both of {KINDS}",
            lambda kinds: isinstance(kinds, Sequence) and {*kinds} <= {*KINDS} and len({*kinds}) == len(kinds) > 0,
        ),
        "categorical_features": COLUMNS,
        "n_jobs": whole(-1),
        "callback": FUNCTION,
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
    cv: int | None = None
    early_stopping_rounds: int = 30
    categorical_features: Sequence[int] | None = None
    callback: Callable[[dict[str, Any]], object] | None = None
    n_jobs: int = 0
    random_state: RandomState = None

    def fit_rows(self, data: BagRows, *, distributed: Distributed | None = None) -> Self:
        """Learn from bags of rows, in memory or in blocks on disk.

        Parameters
        ----------
        data : BagRows
            Rows as finite numbers, codes of categories, and NaN, such as `bagwise.data.rows.InMemory`, or shards.
        distributed : Distributed, optional
            With which other processes, of two classes, and where checkpoints go. All of them grow every tree, on the
            rows of all; settings are chosen by one, on a sample of whole bags.

        Returns
        -------
        Self
        """
        self._fit_named(self._begin(data), distributed)
        return self

    def _fit_data(self, data: BagRows, distributed: Distributed | None = None) -> None:
        """Rows in several blocks are read one block at a time, after settings are chosen on a sample of whole bags.

        Where the sample holds all bags, it is fitted to as it is.
        """
        if distributed is not None:
            self._fit_together(data, distributed)
            return
        if in_one_piece(data) and self._in_pieces(data):
            data = MatrixRows(data.X, data.bags, data.categorical, data.names)
        some = data if in_one_piece(data) else data.sample()
        if len(some.bags) == len(data.size):
            self._fit_bags(some.X, some.bags)
            return
        rng = generator(self.random_state)
        self._tell_formation(some.X, some.bags)
        self._choose(self._table(some), rng)
        del some
        self.__dict__.pop("fits_", None)  # those to the sample would take memory beside all rows
        self._fit_whole(self._table(data), rng)

    def _in_pieces(self, data: BagRows) -> bool:
        """Whether fits side by side, each with what it knows of all rows, would take several times the table.

        Where bags are so large that a sample would have few of them, all choose, whatever that takes.
        """
        by_counts, n = isinstance(self, BagClassifier) and data.proportion.ndim == 1, data.bags.n_bagged
        many = n > MANY_ROWS and len(data.bags) * data.sample_rows >= ENOUGH * n
        return by_counts and many and data.bags.overlap is None

    def _fit_bags(self, X: Floats, bags: Bags) -> None:
        by_counts = isinstance(self, BagClassifier) and bags.proportion.ndim == 1
        X, bags = in_bags(X, bags if by_counts else telling(bags))  # others would be cut by, too
        rng = generator(self.random_state)
        self._tell_formation(X, bags)
        table = self._table(InMemory(X, bags))
        if self._choose(table, rng):
            self._fit_whole(table, rng)

    def _table(self, rows: BagRows) -> Table:
        return Table.of(rows, self._options(rows), self._categorical())

    def _fit_together(self, data: BagRows, distributed: Distributed) -> None:
        """Settings are chosen by the leading process; then all grow trees on the rows of all."""
        from bagwise.boosting.distributed import Grower, Progress, Task
        from bagwise.distributed.options import settle

        if not isinstance(self, BagClassifier) or data.proportion.ndim == 2:
            raise ValueError("several processes fit boosted trees of two classes: fit values, or more, in one process.")
        if in_one_piece(data):  # in blocks, rows stand in bag order
            data = InMemory(*in_bags(data.X, data.bags), data.categorical)
        depends = {name: value for name, value in self.get_params(deep=False).items() if name not in _BESIDES}
        processes = distributed.processes
        settings = settle(data, depends, distributed, lambda: self._settle(data, processes), together=True)
        for attribute in _SETTLED:
            setattr(self, attribute, settings[attribute])
        self._classes, self._link, self.risks_ = False, IDENTITY, dict[str, Floats]()
        self.updates_: list[Further] = []
        self.formation_, self.prior_ = Told.of(settings["formation"]), np.array(settings["prior"])
        n_jobs = processes.threads(self.n_jobs)
        kinds = {kind: TreeOptions(**one, n_jobs=n_jobs) for kind, one in settings["kinds"].items()}
        tasks = [Task(kinds[kind], self.n_estimators_[kind], seed) for kind, seed in settings["fits"]]
        progress = Progress.last(distributed, len(tasks))
        self.fits_: dict[str, list[Boosted]] = {kind: [] for kind in kinds}
        self.offset_: Floats
        if (known := progress.finished(self.prior_, tasks)) is not None:
            fits, self.offset_ = known
        else:
            grower = Grower.of(data, distributed, tasks[0].options, self._categorical(), self.prior_)
            fits = grower.fits(tasks, progress)
        for (kind, _), fit in zip(settings["fits"], fits, strict=True):
            self.fits_[kind].append(fit)
        if known is None:
            self._centre(grower.parts)
            progress.finish(fits, self.offset_)

    def _settle(self, data: BagRows, processes: Processes) -> dict[str, Any]:
        """What is decided before trees are grown on blocks by several processes, as plain data, each fitting some."""
        from bagwise.boosting.distributed import without_rows

        some, rng = data.sample(), generator(self.random_state)
        self._tell_formation(some.X, some.bags)
        table = self._table(some)
        self._choose(table, rng, processes)
        kinds = {}
        for kind, options in self._kinds(replace(table, rows=data)).items():
            if kind in self.n_estimators_:
                chosen = {"reg_lambda": self.reg_lambda_[kind], "effect_variance": self.effect_variance_}
                kinds[kind] = {name: one for name, one in (vars(options) | chosen).items() if name != "n_jobs"}
        found: dict[str, Any] = {name: getattr(self, name) for name in _SETTLED}
        found |= {"formation": asdict(self.formation_), "prior": [prior_of(without_rows(data))], "kinds": kinds}
        return found | {"fits": [(kind, int(rng.integers(2**31))) for kind in kinds for _ in range(self.n_fits)]}

    # -- choice ---------------------------------------------------------------------------------------------------

    def _choose(self, table: Table, rng: np.random.Generator, processes: Processes | None = None) -> bool:
        """Kinds, penalties, numbers of trees and the stretch of their mean; whether fits to all bags are needed."""
        self._classes, self.risks_ = table.bags.proportion.ndim == 2, dict[str, Floats]()
        self.updates_ = []
        self.gain_ = self.gain_error_ = self.risk_ = float("nan")
        self._folded = False  # whether fits are without a fold each
        self.stretch_, self.effect_variance_, self._link = 1.0, 0.0, self._links(table)[0]
        counts, kinds = isinstance(self, BagClassifier) and not self._classes, self._kinds(table)
        enough = len(table.bags) if counts else ENOUGH
        folds = folds_of(len(table.bags), self._n_folds(table.bags), rng, enough=enough, shared=table.bags.shared)
        self.n_estimators_ = dict.fromkeys(kinds, self.n_estimators)
        self.reg_lambda_ = {kind: self._penalties(options)[0] for kind, options in kinds.items()}
        if not folds:  # two or three bags: nothing to hold out, nothing to choose
            return True
        if counts:
            self._choose_by_likelihood(table, some_watched(folds, table.bags), rng, processes)
        else:
            self._choose_by_risk(table, folds, rng)
        return not counts

    def _n_folds(self, bags: Bags) -> int:
        """Into how many folds bags are cut: more, where they are few and fits without a fold are the ensemble.

        Where rates differ, rows speak for themselves, and few bags are not missed.
        """
        few = len(bags) < _FEW_BAGS and isinstance(self, BagClassifier) and bags.proportion.ndim == 1
        return self.cv or (_FOLDS_OF_FEW if few and self.formation_.name != "rates" else _FOLDS)

    def _penalties(self, options: TreeOptions) -> list[float]:
        """Those to choose from; where labels are 0 and 1, one."""
        usual = _PENALTIES[options.objective][: 1 if options.counts else None]
        return [float(penalty) for penalty in np.atleast_1d(usual if self.reg_lambda is None else self.reg_lambda)]

    def _jobs(
        self,
        table: Table,
        folds: Sequence[Fold],
        seeds: Sequence[int],
        effect_variance: float | None = 0.0,
        *,
        rows: Integers | None = None,
        begin: Floats | None = None,
    ) -> list[tuple[str, float, list[Job]]]:
        """Each of the kinds with each penalty, and its fits without each fold."""
        most, patience = self.n_estimators, self.early_stopping_rounds
        found = []
        for kind, options in (self._kinds(table) if begin is None else self._further_kinds(table)).items():
            for penalty in self._penalties(options):
                of = replace(options, reg_lambda=penalty, effect_variance=effect_variance)
                each = zip(folds, seeds, strict=True)
                jobs = [Job(table, of, most, seed, fold, patience, rows, begin) for fold, seed in each]
                found.append((kind, penalty, jobs))
        return found

    def _side_by_side(
        self, calls: Sequence[Callable[[int], Result]], table: Table, processes: Processes | None = None
    ) -> list[Result]:
        n_jobs = self.n_jobs if processes is None else processes.threads(self.n_jobs)
        return side_by_side(calls, table.rows, n_jobs, partial(self._tell, "choice"))

    def _trials(
        self,
        table: Table,
        folds: Sequence[Fold],
        rng: np.random.Generator,
        begin: Floats | None = None,
        processes: Processes | None = None,
    ) -> Trials:
        """Fits without a fold, by the likelihood.  begin: (n,) log odds of rows that further trees begin at.

        processes: of which each makes some of the fits, whose trees the others are not told.
        """
        rows = sample_of(folds, table.bags)
        jobs = partial(self._jobs, table, folds, seeds_of(folds, rng), rows=rows, begin=begin)

        def fit(some: Sequence[Job]) -> list[Boosted]:
            return self._side_by_side([job.fit for job in some], table, processes)

        if processes is None:
            return Trials(jobs, fit)
        return Trials(jobs, lambda some: processes.divide(some, lambda own: [one.told() for one in fit(own)]))

    def _choose_by_likelihood(
        self, table: Table, folds: Sequence[Fold], rng: np.random.Generator, processes: Processes | None = None
    ) -> None:
        """The fits without a fold are what predictions are the mean of: each of the kinds that held-out bags like."""
        self.prior_ = np.atleast_1d(prior_of(table.bags))
        self.offset_ = np.zeros(1)
        chosen, self.formation_ = choose_ensemble(
            self._trials(table, folds, rng, processes=processes), folds, table.bags, self.formation_
        )
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
        self.fits_, self._folded = {kind: one.fits for kind, one in chosen.kinds.items()}, True
        self.n_estimators_ = {kind: max(stage.n_trees for stage in one.stages) for kind, one in chosen.kinds.items()}
        self.reg_lambda_ = {kind: one.reg_lambda for kind, one in chosen.kinds.items()}
        for one in chosen.kinds.values():
            for fit, stage in zip(one.fits, one.stages, strict=True):
                fit.keep(stage.n_trees)

    def _choose_by_risk(self, table: Table, folds: Sequence[Fold], rng: np.random.Generator) -> None:
        """Penalty and number of trees of each kind, the stretch and the risk of their mean; of the better scale."""
        found = {}
        for link in self._links(table):
            self._link = link
            tried = self._jobs(table, folds, seeds_of(folds, rng))
            paths = self._side_by_side([job.path for *_, each in tried for job in each], table)
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
        self._folded = False
        self._centre()

    def _links(self, table: Table) -> tuple[str, ...]:
        """Scales of real labels to choose from; of classes, each kind has its own."""
        return (IDENTITY,)

    @abstractmethod
    def _centre(self, rows: Rows | None = None) -> None:
        """Make the mean prediction of the training rows p, and let go of what is known of these.

        rows: what means are taken over, where other processes hold some.
        """

    def _tell(self, stage: str, progress: dict[str, Any]) -> None:
        logger.debug("%s", told := {"stage": stage, **progress})
        if self.callback is not None:
            self.callback(told)

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

    @property
    def n_iter_(self) -> int:
        """Trees after each other, as scikit-learn's boosting calls them: the most of `n_estimators_`."""
        return max(self.n_estimators_.values(), default=0)

    @property
    def feature_importances_(self) -> Floats:
        """(features,) shares of what splits on each gained, the mean over fits; of columns as the model reads them."""
        found = [fit.gains(self.n_estimators_[kind]) for kind, fits in self.fits_.items() for fit in fits]
        told = [gains for gains in found if gains.any()]
        return np.asarray(np.mean(told, axis=0) if told else np.zeros(len(self.features_.categories)))

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
