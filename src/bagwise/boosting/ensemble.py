"""Fits without a fold, of several kinds, of which held-out bags choose those whose mean is the prediction.

The bags of the first folds choose which kinds are worth a fit without each of the others, where they are enough.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from bagwise.bags import Bags
from bagwise.boosting.links import centring
from bagwise.boosting.trees import Boosted, Job
from bagwise.boosting.tuning import Stage, best_stage
from bagwise.folds import Fold
from bagwise.formation import Told, settled
from bagwise.gains import HeldOut, best_stretch, effects_beside_constant, effects_beside_model
from bagwise.log_odds import prior_of, shift_to_reports
from bagwise.risk import bag_losses
from bagwise.utils.sigmoid import sigmoid
from bagwise.utils.typing import Floats

_LEFT = 0.5  # of the variance of effects, below which features explain most of it
_CLEARLY = 1.0  # difference of log-likelihoods, of all bags that are held out, that speaks for one of two
_SPREAD = 0.35  # of stretches about 1, on a logarithmic scale, before any bag is looked at
_ENOUGH = 96  # bags that are held out in the first folds, by which kinds are chosen


@dataclass(frozen=True, eq=False)
class Tried:
    """The fits of a kind without each fold, and what each said of it after the number of trees that was chosen."""

    reg_lambda: float
    fits: list[Boosted]
    stages: list[Stage]

    @property
    def gain(self) -> float:
        """Of all bags held out."""
        return sum(float(stage.gains.sum()) for stage in self.stages)


class Trials:
    """Fits of several kinds without a fold, made when they are asked for.

    jobs: for effects of a variance τ² (None: as bags tell), each kind with each of its penalties, and a job for each
        fold.
    fit: several jobs side by side.
    """

    def __init__(
        self,
        jobs: Callable[[float | None], Sequence[tuple[str, float, list[Job]]]],
        fit: Callable[[Sequence[Job]], Sequence[Boosted]],
    ) -> None:
        self.jobs, self.fit = jobs, fit
        self.made: dict[tuple[float | None, str, float, bool], list[Boosted]] = {}

    def of(
        self,
        n_folds: int,
        effect_variance: float | None,
        chosen: Mapping[str, Tried] | None = None,
        *,
        quick: bool = False,
    ) -> dict[str, Tried]:
        """The fits of each kind without each of the first folds, with the better penalty, if trees can grow in them.

        chosen: the kinds, with their penalties; None for all.  quick: of half the trees, twice as long.
        """
        wanted = {
            (effect_variance, kind, penalty, quick): [job.quick() if quick else job for job in jobs[:n_folds]]
            for kind, penalty, jobs in self.jobs(effect_variance)
            if chosen is None or (kind in chosen and penalty == chosen[kind].reg_lambda)
        }
        missing = {key: jobs[len(self.made.get(key, ())) :] for key, jobs in wanted.items()}
        fits = iter(self.fit([job for jobs in missing.values() for job in jobs]))
        found: dict[str, Tried] = {}
        for key, jobs in missing.items():
            own = self.made.setdefault(key, [])
            own += [next(fits) for _ in jobs]
            _, kind, penalty, _ = key
            if not all(fit.stages for fit in own):
                continue  # nothing varies, or nothing can be cut
            one = Tried(penalty, own[:n_folds], best_stage([fit.stages for fit in own[:n_folds]]))
            if kind not in found or one.gain > found[kind].gain:
                found[kind] = one
        return found


@dataclass(frozen=True, eq=False)
class Ensemble:
    """What held-out bags chose.

    kinds: of fits whose mean log odds, times the stretch, are the prediction.  gains: (m,) of bags held out.
    effect_variance: τ² of effects of bags.  parts: what the mean said of the bags of each fold.
    """

    kinds: dict[str, Tried]
    stretch: float
    gains: Floats
    effect_variance: float
    parts: list[HeldOut]

    @property
    def sample(self) -> Floats:
        """(rows,) mean log odds of the rows that stages hold."""
        stages = [stage for one in self.kinds.values() for stage in one.stages]
        return np.asarray(np.mean([stage.sample for stage in stages], axis=0, dtype=float))

    def centre(self, prior: Floats) -> Floats:
        """(1,) what to add to the stretched log odds so that their mean prediction is p, by the rows of the sample."""
        stage = next(iter(self.kinds.values())).stages[0]
        s = self.stretch * self.sample
        return centring((s if stage.offset is None else s + stage.offset)[:, None], prior, weight=stage.weight)

    @property
    def prior(self) -> float:
        """p of the bags held out, of which some hide their counts: as many as these and the fits expect."""
        means = []
        for part in self.parts:
            s = self.stretch * part.scores
            s = s if part.bags.offset is None else s + part.bags.offset
            b = shift_to_reports(float(part.prior), s, part.bags, effect_variance=self.effect_variance)
            means.append(float(part.bags.average(sigmoid(s + b))))
        return float(np.average(means, weights=[part.bags.n_people for part in self.parts]))

    @property
    def risk(self) -> float:
        """The held-out label-free square loss, right for random bags."""
        return float(np.concatenate([_losses(part, self.stretch) for part in self.parts]).mean())


def choose_ensemble(trials: Trials, folds: Sequence[Fold], bags: Bags, told: Told) -> tuple[Ensemble | None, Told]:
    """The kinds whose mean held-out bags prefer, None where no tree can grow; and the formation that these settle.

    told: the formation, as told without a model.

    Where bags may have effects, fits allow for those that are left, as the bags they watch tell while trees grow; where
    these are few, as all bags tell that quick fits without effects watch, and held-out bags choose between both. Where
    it may be rates that differ, and trees do not explain most of it, fits that allow for effects tell which it is.
    """
    watch = [bags.take(fold.held_out) for fold in folds]
    priors = [prior_of(bags.take(fold.train)) for fold in folds]
    first, whole = _first_folds(watch), len(folds)
    rates, sure = told.name == "rates", told.name not in ("features", "effects") and "effects" not in told.others

    def choose(
        n: int,
        fitted: float | None,
        chosen: Ensemble | None = None,
        *,
        beside: float | None = None,
        quick: bool = False,
    ) -> Ensemble | None:
        """Of fits that allow for effects of a variance `fitted`, where there are such of another variance."""
        tried = trials.of(n, fitted, None if chosen is None else chosen.kinds, quick=quick)
        return _choose_kinds(tried, priors[:n], watch[:n], fitted if beside is None else beside) if tried else None

    many = first == 1  # to be watched by each fit
    if many and not rates and not sure:
        best = choose(first, None)
        best = best and choose(whole, None, best)
        return best, told if best is None else _settled(told, best)
    if (best := choose(first, 0.0, quick=not rates and not sure)) is None:
        return None, told
    if sure:
        return choose(whole, 0.0, best), told
    left = effects_beside_model(best.parts, best.stretch)
    if left <= (_LEFT * effects_beside_constant(best.parts) if rates else 0.0):
        return choose(whole, 0.0, best), replace(told, others=())
    allowing = choose(first, None if many else left, best, quick=many)
    beside = None if many else choose(first, 0.0, best, beside=left, quick=not rates)
    if allowing is None:
        return choose(whole, 0.0, best), told
    rather = settled(told, allowing.parts)
    if rather.name == "rates":
        return choose(whole, 0.0, best), rather
    if beside is not None and beside.gains.sum() > allowing.gains.sum():
        return choose(whole, 0.0, beside, beside=left), rather
    allowing = choose(whole, None, best) if many else choose(whole, left, allowing)
    if allowing is None:
        return choose(whole, 0.0, best), rather
    told = settled(told, allowing.parts)
    return (choose(whole, 0.0, best) if told.name == "rates" else allowing), told


def _settled(told: Told, found: Ensemble) -> Told:
    """The formation, as fits that allow for effects settle it."""
    return settled(told, found.parts) if found.effect_variance else replace(told, others=())


def _first_folds(watch: Sequence[Bags]) -> int:
    """Of how many folds the bags held out choose kinds."""
    held_out = np.cumsum([len(bags) for bags in watch])
    return min(int(np.searchsorted(held_out, _ENOUGH)) + 1, len(watch))


def _choose_kinds(
    tried: Mapping[str, Tried], priors: Sequence[float], watch: Sequence[Bags], effect_variance: float | None
) -> Ensemble:
    """The mean of all kinds, unless bags held out are clearly more likely with some of them.

    effect_variance: τ² of effects of bags, None for those that are left beside the mean of all.
    """
    names, found, total, whole = list(tried), [], [], None
    for kinds in [some for n in range(len(names), 0, -1) for some in combinations(names, n)]:
        chosen = {kind: tried[kind] for kind in kinds}
        parts = _held_out([one.stages for one in chosen.values()], priors, watch)
        if effect_variance is None:
            effect_variance = effects_beside_model(parts)
        if whole is None and effect_variance:
            whole = effects_beside_constant(parts)  # whatever the kinds
        stretch, gains = best_stretch(parts, effect_variance=effect_variance, beside_constant=whole, spread=_SPREAD)
        found.append(Ensemble(chosen, stretch, gains, effect_variance, parts))
        total.append(float(gains.sum()) + (_CLEARLY if len(found) == 1 else 0.0))
    return found[int(np.argmax(total))]


def _held_out(kinds: Iterable[Sequence[Stage]], priors: Sequence[float], watch: Sequence[Bags]) -> list[HeldOut]:
    """What the mean of several kinds of fits says, fold by fold.  kinds: of each, a stage per fold."""
    parts = []
    for stages, prior, bags in zip(zip(*kinds, strict=True), priors, watch, strict=True):
        sample = np.mean([stage.sample[stage.known] for stage in stages], axis=0)
        watched = np.mean([stage.watched for stage in stages], axis=0)
        parts.append(HeldOut(prior, sample, watched, bags, *stages[0].of_sample()))
    return parts


def _losses(part: HeldOut, stretch: float) -> Floats:
    """(m,) label-free square losses of held-out bags; E[h] is p by the shift."""
    bags, p = part.bags, float(part.prior)
    h = sigmoid(part.stretched(np.array([stretch]))[0])
    return bag_losses(bags.sum(h), bags.size, bags.proportion, prior=p, mean=p, noise=bags.noise_per_row)
