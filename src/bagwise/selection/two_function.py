"""The paper's Algorithm 1: which of two models is the true one, from bags; and a tournament of such tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise.bags import Bags
from bagwise.predictions import Hypothesis, as_hypotheses, hypothesis_values
from bagwise.utils.parameters import check_parameters, number
from bagwise.utils.typing import Floats

_CONSTRAINTS = {"delta": number(least=-1, most=1), "beta": number(least=0, most=1)}


@dataclass(frozen=True)
class TwoFunctionTest:
    r"""What the test decided and on which statistic.

    Attributes
    ----------
    choice : int
        0 or 1, the model chosen.
    branch : {"totals", "bags"}
        "totals" where the models' means differ enough to count positives, otherwise "bags".
    statistic : float
        \|A₁\| − \|A₂\| on totals, Q on bags; negative chooses model 0.
    delta, beta : float
        Bias Δ = E[h₀ − h₁] and separation β = E[(h₀ − h₁)²].
    """

    choice: int
    branch: Literal["totals", "bags"]
    statistic: float
    delta: float
    beta: float


def two_function_test(
    h0: Hypothesis, h1: Hypothesis, bags: Bags, *, X: Any = None, delta: float | None = None, beta: float | None = None
) -> TwoFunctionTest:
    """Choose between two models, one of which is the true conditional probability (Algorithm 1).

    Bags of unequal size are allowed; the rule that picks the statistic then uses their mean size.

    Parameters
    ----------
    h0, h1 : array of shape (n_rows,), function or fitted model
        Predictions in table order, or what is applied to `X`.
    bags : Bags
        Random bags of the rows.
    X : array or table, optional
        The rows that functions or models predict.
    delta, beta : float, optional
        E[h₀ − h₁] and E[(h₀ − h₁)²]; where not given they are estimated on all rows, which needs no label.

    Returns
    -------
    TwoFunctionTest

    Examples
    --------
    >>> bags = Bags.from_rows([0.0, 0.0, 1.0, 1.0], [0, 0, 1, 1])
    >>> good, bad = np.array([0.1, 0.2, 0.9, 0.8]), np.array([0.9, 0.8, 0.1, 0.2])
    >>> two_function_test(good, bad, bags).choice
    0
    """
    first, second = (hypothesis_values(h, bags, X) for h in as_hypotheses([h0, h1], bags))
    return _decide(first, second, bags.sum_table(first), bags.sum_table(second), bags, delta, beta)


def _decide(
    first: Floats, second: Floats, sums0: Floats, sums1: Floats, bags: Bags, delta: float | None, beta: float | None
) -> TwoFunctionTest:
    gap = first - second
    delta = float(gap.mean()) if delta is None else delta
    beta = float((gap**2).mean()) if beta is None else beta
    check_parameters({"delta": delta, "beta": beta}, _CONSTRAINTS)
    totals = counts_decide(delta=delta, beta=beta, size=bags.n_bagged / len(bags))
    statistic = float(two_function_statistic(sums0, sums1, bags.size * bags.proportion, totals=totals))
    return TwoFunctionTest(
        choice=int(statistic >= 0), branch="totals" if totals else "bags", statistic=statistic, delta=delta, beta=beta
    )


def counts_decide(*, delta: float, beta: float, size: float) -> bool:
    r"""Whether the models' means differ enough for the total count of positives: \|Δ\| ≥ √(β/2k)."""
    return bool(abs(delta) >= np.sqrt(beta / (2 * size)))


def two_function_statistic(sums0: ArrayLike, sums1: ArrayLike, counts: ArrayLike, *, totals: bool) -> Floats:
    r"""The statistic of Algorithm 1 from bag sums, over the last axis; negative chooses model 0.

    With totals :math:`|A_1| - |A_2|`, :math:`A_s = \sum_j (k\alpha_j - E_{j,s})`; otherwise
    :math:`Q = \sum_j \pm(k\alpha_j - \mu_j)`, :math:`\mu_j = (E_{j,1}+E_{j,2})/2`, with + where
    :math:`E_{j,1} \le E_{j,2}`.

    sums0, sums1: (…, m) sums of each model's predictions.  counts: (…, m) reported counts k_j α_j.

    >>> float(two_function_statistic([0.3, 1.7], [1.7, 0.3], [0, 2], totals=False))
    -2.0
    """
    e0, e1, count = (np.asarray(a, dtype=float) for a in (sums0, sums1, counts))
    statistic: Floats
    if totals:
        statistic = abs((count - e0).sum(axis=-1)) - abs((count - e1).sum(axis=-1))
    else:
        statistic = (np.where(e0 <= e1, 1.0, -1.0) * (count - (e0 + e1) / 2)).sum(axis=-1)
    return statistic


def tournament(hypotheses: Sequence[Hypothesis] | NDArray[Any], bags: Bags, *, X: Any = None) -> int:
    """Number of the hypothesis that survives an elimination tournament of two-function tests.

    The champion so far meets each hypothesis in turn, so that two columns of predictions are held at a time.
    As the paper says, the guarantee is for classes that contain the truth.

    Parameters
    ----------
    hypotheses : sequence of functions or fitted models, or array of shape (n_rows, H)
        Applied to `X`, or predictions in table order.
    bags : Bags
        Random bags of the rows.
    X : array or table, optional
        The rows that functions or models predict.

    Returns
    -------
    int

    Examples
    --------
    >>> bags = Bags.from_rows([0.0, 0.0, 1.0, 1.0], [0, 0, 1, 1])
    >>> tournament(np.array([[0.5, 0.9, 0.1], [0.5, 0.8, 0.2], [0.5, 0.1, 0.9], [0.5, 0.2, 0.8]]), bags)
    2
    """
    given = as_hypotheses(hypotheses, bags)
    columns: Sequence[Any] = list(given.T) if isinstance(given, np.ndarray) else given
    best, champion = 0, hypothesis_values(columns[0], bags, X)
    sums = bags.sum_table(champion)
    for place in range(1, len(columns)):
        challenger = hypothesis_values(columns[place], bags, X)
        challenging = bags.sum_table(challenger)
        if _decide(champion, challenger, sums, challenging, bags, None, None).choice == 1:
            best, champion, sums = place, challenger, challenging
    return best
