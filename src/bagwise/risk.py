r"""The label-free risk E[(y − h)²] from sums over bags, and what it decides.

For random bags the mean over bags of

.. math:: \ell_j = \sum_c \Bigl( R_{jc}^2 / k_j + (\bar h_c - p_c)^2 - s_j^2/k_j \Bigr)

is the risk of single rows, whether labels are 0/1, real numbers or classes c: the debiased square loss, less what
declared noise of variance :math:`s_j^2` on the counts adds to it. Where a model is chosen, p and E[h] come from the
bags that it was fitted to (`held_out_losses`); where bags are all there is, from these bags (`own_risk`).

Arrays have a bag per line, and a column per class where there are classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.folds import Fold
from bagwise.losses import clip_threshold, debiased_square_of_sums, residual
from bagwise.segment import per_bag
from bagwise.utils.typing import Array, Booleans, Floats, Integers

_FEW_CLIPPED = 0.02  # of the bags; random ones have far fewer beyond the threshold


def bag_losses(
    sums: Floats,
    size: Integers | Floats,
    proportion: Floats,
    *,
    prior: Array,
    mean: Array,
    noise: Floats | None = None,
    clip: Floats | None = None,
) -> Floats:
    r"""(m, …) label-free square loss of each bag, classes added up.

    sums: (m, …) Σ h over each bag; axes beyond those of `proportion`, such as several models, are kept.
    size: (m,) k.  proportion: (m,) or (m, classes) α.  prior, mean: p and E[h], that broadcast against `sums`.
    noise: (m,) s_j²/k_j to be subtracted (see `Bags.noise_per_row`); None where the caller does so.
    clip: threshold on \|R_j\| beyond which a square does not count, (m,) or as `sums`; None does not clip.

    >>> bag_losses(np.array([0.9]), np.array([2]), np.array([0.5]), prior=0.5, mean=0.4, noise=np.array([0.005]))
    array([0.01])
    """

    def against_sums(values: Array) -> Array:
        return values.reshape(values.shape + (1,) * (sums.ndim - values.ndim))

    clip = None if clip is None else against_sums(clip)
    loss: Floats = debiased_square_of_sums(
        sums, against_sums(size), against_sums(proportion), prior=prior, mean=mean, clip=clip
    )
    if proportion.ndim == 2:
        loss = loss.sum(axis=1)
    if noise is not None:
        loss = loss - per_bag(noise * (proportion.size // len(proportion)), loss)
    return loss


def own_risk(
    gap: Floats, size: Integers, noise_variance: Floats | None, *, clip: Floats | None = None
) -> tuple[Any, Floats]:
    r"""The risk with p and E[h] taken from the same bags (see `evaluation.risk`), and the influence of each bag on it.

    gap: (m,) Σ(y − h) of each bag, or (m, …) of several models.  noise_variance: (m,) s_j².
    clip: (m,) threshold on \|R_j\| beyond which a square does not count; None does not clip.
    """
    n, m = float(size.sum()), len(size)
    k = per_bag(size, gap)
    bias = gap.sum(axis=0) / n
    r = gap - k * bias
    square = r**2 / k
    if clip is not None:
        square = square * (abs(r) <= per_bag(clip, gap))
    noise = np.zeros(m) if noise_variance is None else noise_variance
    variance = square.sum(axis=0) / (m - 1) - ((noise / size).sum() - noise.sum() / n) / (m - 1)
    value = (1 - 1 / n) * variance + bias**2 - noise.sum() / n**2
    return value, square - square.mean(axis=0) + 2 * bias * r * m / n


def risk_of(gap: Floats, bags: Bags) -> tuple[float, Floats]:
    """As `own_risk`, of bags whose rows may have weights.  gap: (m,).

    Where every row is a bag of its own, what it reports is the label of all for whom it stands: then this is the mean
    square of rows, each as often as it says.
    """
    if bags.weight is None or bags.equal_size != 1:
        return own_risk(gap, bags.size, bags.noise_variance)
    square = gap**2 / bags.size - bags.noise_per_row
    value = float(square.sum()) / bags.n_people
    return value, (square - bags.size * value) * (len(bags) / bags.n_people)


# -- held-out bags ------------------------------------------------------------------------------------------------


def training_prior(bags: Bags, fold: Fold) -> Floats:
    """(outputs,) p of the training bags."""
    count = per_bag(bags.size, bags.proportion) * bags.proportion
    return np.atleast_1d(count[fold.train].sum(axis=0) / bags.size[fold.train].sum())


def held_out_losses(sums: Floats, mean: Floats, bags: Bags, fold: Fold, *, regret: float | None = None) -> Floats:
    """(m,) losses of the held-out bags; p comes from the training bags, declared noise is subtracted.

    Random bags are hardly ever clipped. Bags grouped by features may be, and a model that explains nothing would gain:
    where many are clipped, none is.

    sums: (m, outputs) Σ h over each held-out bag.  mean: (outputs,) E[h] over the training bags.
    regret: β of the clipping threshold; None does not clip.
    """
    held, p = fold.held_out, training_prior(bags, fold)
    size, proportion, noise = bags.size[held], bags.outputs[held], bags.noise_per_row[held]
    clip: Floats | None = None
    if regret is not None:
        clip = clip_threshold(size, regret=regret, estimated=True, noise_variance=noise * size)[:, None]
        beyond = np.abs(residual(sums, size[:, None], proportion, prior=p, mean=mean)) > clip
        clip = np.where(beyond.mean(axis=0) > _FEW_CLIPPED, np.inf, clip)
    return bag_losses(sums, size, proportion, prior=p, mean=mean, noise=noise, clip=clip)


def held_out_risk(h: Floats, bags: Bags, fold: Fold) -> float:
    """Mean loss of the held-out bags, p and E[h] from the training bags; h: (n_bagged, …) for all, in bag order."""
    sums = bags.sum(h.astype(float))
    mean = np.atleast_1d(sums[fold.train].sum(axis=0) / bags.size[fold.train].sum())
    return float(held_out_losses(sums.reshape(len(bags), -1)[fold.held_out], mean, bags, fold).mean())


@dataclass(frozen=True, eq=False)
class HeldOutValues:
    """What a model of real labels that was fitted to some bags says of others; see `gains.HeldOut` for labels 0 and 1.

    Likelihoods are those of normal means of bags, whose variance is that of a label over k, and declared noise.

    prior: p of the bags it was fitted to.  mean: its E[h] of their rows.  sums: (m,) Σ h over the bags held out.
    bags: those.  spread: the variance of a label.

    >>> bags = Bags.from_rows([3.0, 3.0, 1.0, 1.0], [0, 0, 1, 1])
    >>> part = HeldOutValues(2.0, 2.0, np.array([5.0, 3.0]), bags, 1.0)
    >>> part.gains(np.array([0.0, 1.0, 2.0])).tolist(), part.stretch
    ([[0.0, 0.0], [0.75, 0.75], [1.0, 1.0]], 2.0)
    """

    prior: float
    mean: float
    sums: Floats
    bags: Bags
    spread: float

    @property
    def worth(self) -> Floats:
        """(m,) what bags count: less with declared noise."""
        return np.asarray(self.spread / (self.spread + self.bags.noise_per_row))

    @property
    def deviations(self) -> Floats:
        """(m,) Σ(h − E[h])."""
        return np.asarray(self.sums - self.bags.size * self.mean)

    @property
    def losses(self) -> Floats:
        """(m,) label-free square losses, less declared noise."""
        bags, p, noise = self.bags, self.prior, self.bags.noise_per_row
        return bag_losses(self.sums, bags.size, bags.proportion, prior=p, mean=self.mean, noise=noise)

    @property
    def stretch(self) -> float:
        """By what h − E[h] is to be multiplied, by least squares."""
        weight = self.worth / self.bags.size
        square = float(weight @ self.deviations**2)
        target = self.bags.size * (self.bags.proportion - self.prior)
        return float(weight @ (self.deviations * target)) / square if square > 0 else 1.0

    def log_likelihoods(self, stretches: Floats, *, effect_variance: float = 0.0) -> Floats:
        """(stretches, m) of each bag, for each factor of h − E[h].  effect_variance: not for values."""
        bags = self.bags
        moved = self.deviations[:, None] * stretches
        loss = bag_losses(moved, bags.size, bags.proportion - self.prior, prior=0.0, mean=0.0)
        return np.asarray(-loss.T / (2 * (self.spread + bags.noise_per_row)))

    def constant(self, *, effect_variance: float = 0.0) -> Floats:
        """(m,) of each bag by the mean label alone."""
        return np.asarray(self.log_likelihoods(np.zeros(1))[0])

    def gains(self, stretches: Floats) -> Floats:
        """(stretches, m) the gain of each bag over the mean label."""
        return np.asarray(self.log_likelihoods(stretches) - self.constant())


# -- choice -------------------------------------------------------------------------------------------------------


def clearly_above(losses: Floats, others: Floats, *, errors: float = 1.0) -> Booleans:
    """Where the mean over bags of losses exceeds that of others by more than so many standard errors of the difference.

    losses, others: (m, …) of the same bags, in the same order.

    >>> clearly_above(np.array([[0.3, 0.3], [0.5, 0.1]]), np.array([[0.1], [0.2]]))
    array([ True, False])
    """
    difference = losses - others
    above: Booleans = difference.mean(axis=0) > errors * difference.std(axis=0, ddof=1) / np.sqrt(len(difference))
    return above


def least_of(losses: Sequence[Floats], *, preferred: int = 0, errors: float = 1.0) -> int:
    """The number of the preferred candidate, unless others' risks are clearly lower: then of the lowest of these.

    With few bags the least risk is chance, the more so the more candidates there are; then prior expectation counts.

    losses: (m,) of each candidate. Where some have fewer bags, the first ones are those that all have.

    >>> least_of([np.array([0.2, 0.3, 0.25]), np.array([0.1, 0.2, 0.15]), np.array([0.0, 0.9, 0.3])])
    1
    """
    first, better = losses[preferred], {}
    for number, other in enumerate(losses):
        both = min(len(first), len(other))
        if clearly_above(first[:both], other[:both], errors=errors):
            better[number] = float((first[:both] - other[:both]).mean())
    return max(better, key=lambda number: better[number], default=preferred)
