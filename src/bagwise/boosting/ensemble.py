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
_FIRST_FOLDS, _ENOUGH = 2, 128  # folds, and bags held out in them, by which kinds are chosen


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

    jobs: for effects of a variance τ², each kind with each of its penalties, and a job for each fold.
    fit: several jobs side by side.
    """

    def __init__(
        self,
        jobs: Callable[[float], Sequence[tuple[str, float, list[Job]]]],
        fit: Callable[[Sequence[Job]], Sequence[Boosted]],
    ) -> None:
        self.jobs, self.fit = jobs, fit
        self.made: dict[tuple[float, str, float], list[Boosted]] = {}

    def of(self, n_folds: int, effect_variance: float, chosen: Mapping[str, Tried] | None = None) -> dict[str, Tried]:
        """The fits of each kind without each of the first folds, with the better penalty, if trees can grow in them.

        chosen: the kinds, with their penalties; None for all.
        """
        wanted = {
            (effect_variance, kind, penalty): jobs[:n_folds]
            for kind, penalty, jobs in self.jobs(effect_variance)
            if chosen is None or (kind in chosen and penalty == chosen[kind].reg_lambda)
        }
        missing = {key: jobs[len(self.made.get(key, ())) :] for key, jobs in wanted.items()}
        fits = iter(self.fit([job for jobs in missing.values() for job in jobs]))
        found: dict[str, Tried] = {}
        for key, jobs in missing.items():
            own = self.made.setdefault(key, [])
            own += [next(fits) for _ in jobs]
            _, kind, penalty = key
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

    Where bags may have effects, fits of the chosen kinds that allow for those which are left are tried too, and taken
    if held-out bags prefer them. Where it may be rates that differ, and trees do not explain most of it, such fits tell
    which it is.
    """
    watch = [bags.take(fold.held_out) for fold in folds]
    priors = [prior_of(bags.take(fold.train)) for fold in folds]
    first, whole = _first_folds(watch), len(folds)

    def choose(
        n: int, fitted: float, chosen: Ensemble | None = None, *, beside: float | None = None
    ) -> Ensemble | None:
        """Of fits that allow for effects of a variance `fitted`, where there are such of another variance."""
        tried = trials.of(n, fitted, None if chosen is None else chosen.kinds)
        return _choose_kinds(tried, priors[:n], watch[:n], fitted if beside is None else beside) if tried else None

    if (best := choose(first, 0.0)) is None:
        return None, told
    if told.name not in ("features", "effects") and "effects" not in told.others:
        return choose(whole, 0.0, best), told
    left = effects_beside_model(best.parts, best.stretch)
    if left <= (_LEFT * effects_beside_constant(best.parts) if told.name == "rates" else 0.0):
        return choose(whole, 0.0, best), replace(told, others=())
    allowing, beside = choose(first, left, best), choose(first, 0.0, best, beside=left)
    if allowing is None or beside is None:
        return choose(whole, 0.0, best), told
    rather = settled(told, allowing.parts)
    if rather.name == "rates":
        return choose(whole, 0.0, best), rather
    if beside.gains.sum() > allowing.gains.sum():
        return choose(whole, 0.0, beside, beside=left), rather
    if (allowing := choose(whole, left, allowing)) is None:
        return choose(whole, 0.0, best), rather
    told = settled(told, allowing.parts)
    return (choose(whole, 0.0, best) if told.name == "rates" else allowing), told


def _first_folds(watch: Sequence[Bags]) -> int:
    """Of how many folds the bags held out choose kinds."""
    held_out = np.cumsum([len(bags) for bags in watch])
    return int(np.clip(np.searchsorted(held_out, _ENOUGH) + 1, min(_FIRST_FOLDS, len(watch)), len(watch)))


def _choose_kinds(
    tried: Mapping[str, Tried], priors: Sequence[float], watch: Sequence[Bags], effect_variance: float
) -> Ensemble:
    """The mean of all kinds, unless bags held out are clearly more likely with some of them."""
    names, found, total, whole = list(tried), [], [], None
    for kinds in [some for n in range(len(names), 0, -1) for some in combinations(names, n)]:
        chosen = {kind: tried[kind] for kind in kinds}
        parts = _held_out([one.stages for one in chosen.values()], priors, watch)
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
