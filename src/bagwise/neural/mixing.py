r"""Mixed bags: random shares of the rows of two bags as one bag, whose count both tell, up to a known variance.

Of bag j, of which :math:`m_j` of :math:`k_j` rows are taken at random, the count of the rows taken is put at

.. math:: \hat c_j = m_j p + w_j k_j (\alpha_j - p), \qquad w_j = \frac{1 + (m_j - 1)\theta}{1 + (k_j - 1)\theta}

θ is the share of the variance of labels that lies between bags, their intraclass correlation. With v = p(1 − p), labels
of two rows of a bag have the covariance θv, so that for *any* function g of a row

.. math::
    \mathrm{Cov}\Bigl(\hat c_j, \sum_{\text{taken}} g\Bigr) = \mathrm{Cov}\Bigl(\sum_{\text{taken}} y,
    \sum_{\text{taken}} g\Bigr), \qquad
    \mathrm{Var}(\hat c_j) - \mathrm{Var}\Bigl(\sum_{\text{taken}} y\Bigr) = (k_j - m_j)(1 - \theta)\, w_j v

in random bags (θ = 0) and where rates differ, P(x given y) being the same in all bags. So :math:`\hat c_j` is to losses
what a count with declared noise of that variance is: square losses keep their minimum, and the count likelihood knows
how far the mixed bag is to be believed. Noise of the report itself adds :math:`w_j^2 s_j^2`. The counts of both parts,
and their variances, add up.

In random bags :math:`\hat c_j` carries the whole deviation of the bag, and the rows left out are noise. MixBag (Asanomi
et al., 2023) takes :math:`m_j \alpha_j`, within an interval of the hypergeometric law: that is :math:`w_j = m_j / k_j`,
right where rates differ widely (θ = 1). In random bags it draws predictions towards p by that factor, and so does the
interval, which is centred there. Where bags are formed by features, functions that vary between bags ask for another w
than those that vary within them: no count suits all, and bags are not mixed. Losses are added to those of bags, with
some weight: mixing tells nothing new of labels, it is another way to look at the same reports.

Several classes: v is the covariance matrix of the labels of a row, and θ lies along the axes on which it and the
covariance of rates are diagonal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from scipy import linalg

from bagwise import segment
from bagwise.bags import Bags
from bagwise.utils.parameters import ParameterError
from bagwise.utils.typing import Floats, Integers

LOSSES_OF_MIXED = (  # others ask for counts between 0 and the size of a bag, which those of mixed bags need not be
    "debiased_square",
    "li_square",
    "matching_square",
    "easyllp",
    "easyllp_square",
    "centred_log",
    "centred_square",
    "count_likelihood",
)
FORMATIONS_OF_MIXED = ("random", "rates")
LEAST_BAGS = 4  # of a batch: mixed bags are two or more, as the mean prediction is estimated on the others
_MOST_BETWEEN = 1 - 1e-6
_LEAST_VARIANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Mixing:
    """How bags of a batch are mixed.

    weight: of the mean loss of mixed bags.  onto: (outputs, axes) deviations of counts to axes on which the covariances
    of labels and of rates are diagonal, and back: (axes, outputs).  between: (axes,) θ.
    """

    weight: float
    onto: Floats
    back: Floats
    between: Floats

    @classmethod
    def of(cls, weight: float, variance: Floats, rates: Floats) -> Self:
        """variance, rates: (outputs, outputs) covariance of the labels of a row, and of the rates of bags."""
        values, vectors = linalg.eigh(variance)
        kept = values > _LEAST_VARIANCE
        scale = np.sqrt(values[kept])
        whiten = vectors[:, kept] / scale
        between, turn = linalg.eigh(whiten.T @ rates @ whiten)
        back = (vectors[:, kept] * scale) @ turn
        return cls(weight, whiten @ turn, back.T, np.clip(between, 0.0, _MOST_BETWEEN))

    def counts(self, deviation: Floats, size: Integers, taken: Integers, noise: Floats) -> tuple[Floats, Floats]:
        """(m, outputs) by how much the counts of rows taken exceed what p says, and (m,) the variance of their noise.

        deviation: (m, outputs) k (α − p).  size, taken: (m,) rows, and how many of them are taken.  noise: (m,) s².

        >>> mixing = Mixing.of(1.0, np.array([[0.25]]), np.array([[0.0]]))
        >>> mixing.counts(np.array([[2.0]]), np.array([8]), np.array([6]), np.zeros(1))  # random: all of the deviation
        (array([[2.]]), array([0.5]))
        >>> mixing = Mixing.of(1.0, np.array([[0.25]]), np.array([[0.25]]))
        >>> mixing.counts(np.array([[2.0]]), np.array([8]), np.array([6]), np.zeros(1))[0].round(3)  # as of MixBag
        array([[1.5]])
        """
        own = [(1 + (each[:, None] - 1) * self.between) for each in (taken, size)]
        share = own[0] / own[1]
        left_out = (size - taken)[:, None] * (1 - self.between) * share
        apart = (left_out * (self.back**2).sum(axis=1) + noise[:, None] * share**2).sum(axis=1)
        return deviation @ self.onto * share @ self.back, apart / max(len(self.between), 1)

    def mixed(self, bags: Bags, prior: float | Floats) -> tuple[torch.Tensor, Bags]:
        """Places of rows among those of a batch, and the mixed bags that they are: each bag with the one after it.

        None of them where the batch has fewer than four bags. What is drawn comes from torch's global generator.
        """
        pairs = len(bags) // 2 if len(bags) >= LEAST_BAGS else 0
        size = np.diff(bags.offsets[: 2 * pairs + 1])
        share = torch.rand(pairs, dtype=torch.float64, device="cpu").numpy()
        taken = np.maximum(np.ceil(np.stack([share, 1 - share], axis=1).reshape(-1) * size), 1).astype(np.int64)
        place = _some(size, taken)
        ends = np.cumsum(taken)[1::2]
        rows = taken.reshape(-1, 2).sum(axis=1)
        p = np.atleast_1d(segment.to_numpy(prior)).astype(float)
        reported = segment.to_numpy(bags.outputs)[: 2 * pairs].astype(float)
        noise = np.zeros(2 * pairs) if bags.noise_variance is None else segment.to_numpy(bags.noise_variance)
        deviation, apart = self.counts(size[:, None] * (reported - p), size, taken, noise[: 2 * pairs])
        proportion = p + deviation.reshape(pairs, 2, len(p)).sum(axis=1) / rows[:, None]
        mixed = replace(
            bags,
            keys=np.arange(pairs),
            order=np.arange(len(place)),
            offsets=np.concatenate([[0], ends]),
            size=rows,
            proportion=proportion if bags.proportion.ndim == 2 else proportion[:, 0],
            noise_variance=apart.reshape(pairs, 2).sum(axis=1),
            offset=None if bags.offset is None else bags.offset[place],
            n_rows=len(place),
            equal_size=None,
        )
        return torch.from_numpy(place), mixed


def _some(size: Integers, taken: Integers) -> Integers:
    """Places of as many rows of each bag as are taken, drawn without replacement."""
    total = int(size.sum())
    bag = np.repeat(np.arange(len(size)), size)
    order = np.argsort(bag + torch.rand(total, dtype=torch.float64, device="cpu").numpy())
    rank = np.arange(total) - np.repeat(np.cumsum(size) - size, size)
    return np.asarray(order[rank < np.repeat(taken, size)])


def label_covariance(prior: float | Floats) -> Floats:
    """(outputs, outputs) covariance of the labels of a row, of mean p."""
    p = np.atleast_1d(prior)
    return np.array([[p[0] * (1 - p[0])]]) if len(p) == 1 else np.diag(p) - np.outer(p, p)


def rate_covariance(bags: Bags) -> Floats:
    r"""(outputs, outputs) covariance of the rates of bags, by what proportions vary beyond chance and declared noise.

    With Σ that of the labels of a row, a bag's deviation of α from p has the covariance Ω(1 − 1/k) + Σ/k + s²/k², which
    is solved for Ω, bags weighted by their sizes.

    >>> rates = np.repeat([0.2, 0.6, 0.2, 0.6], 50)
    >>> rate_covariance(Bags.from_rows(rates, np.arange(200) // 50)).round(3)  # 0.053, and 0.24/50 of chance
    array([[0.05]])
    """
    size, m = bags.size.astype(float), len(bags)
    p = size @ bags.outputs / size.sum()
    apart = bags.outputs - p
    noise = np.eye(len(p)) * float((bags.declared_noise / size).sum())
    found = (apart.T * size) @ apart * (m / max(m - 1, 1)) - m * label_covariance(p) - noise
    return np.asarray(found / max(float((size - 1).sum()), 1.0))


def check_mixing(loss: str, formation: str, bags: Bags, *, values: bool, batch_bags: int) -> None:
    """Raise where mixed bags would say something else than bags do.  batch_bags: most bags of a batch."""
    if loss not in LOSSES_OF_MIXED:
        raise ParameterError(
            "mix_bags",
            f"makes counts that may lie outside of a bag, which the loss {loss!r} cannot take: choose one of "
            f"{', '.join(LOSSES_OF_MIXED)}.",
        )
    right = FORMATIONS_OF_MIXED[: 1 if values else 2]
    if formation not in right:
        raise ParameterError(
            "mix_bags",
            f"is right where the formation is {' or '.join(right)}, and that of these bags is {formation}: leave it "
            "out, or name the formation if you know better.",
        )
    if bags.weight is not None or bags.interval is not None or bags.overlap is not None:
        raise ParameterError(
            "mix_bags",
            "is for counts that are known, of rows that stand for one and are in one bag: leave it out.",
        )
    if batch_bags < LEAST_BAGS:
        raise ParameterError(
            "mix_bags",
            f"needs batches of {LEAST_BAGS} bags, and these have {batch_bags}: raise batch_rows, or leave it out.",
        )
