r"""Algorithm 2 in numbers: its constants, the excess risk it guarantees, and the bags for a target."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bagwise.theory.bounds import EPSILON, SIZE, Bound, laplace_variance, least_bags
from bagwise.utils.parameters import check_parameters, number
from bagwise.utils.typing import Floats, Integers


class SGDConstants(NamedTuple):
    """The truncation threshold θ of each bag, in units of ρ_x; ζ, half the smoothness of the loss; and the step η."""

    theta: Floats
    zeta: float
    step: float


def sgd_constants(
    size: Integers, *, rho_w: float, rho_x: float, rho_y: float, risk_bound: float, bags: float | None = None
) -> SGDConstants:
    r"""θ, ζ and η of the theorem for m bags of the given sizes.

    .. math:: \theta_j = \sqrt{\tfrac{8}{k_j} \log \tfrac{9 k_j m (\rho_w\rho_x + \rho_y)^2}{\rho_w^2\rho_x^2}}, \qquad
              \zeta = \max_j (k_j\theta_j^2 + 1)\rho_x^2, \qquad
              \eta = \min\Bigl\{\tfrac{\rho_w}{\sqrt{4\zeta m L^\star}}, \tfrac{1}{4\zeta}\Bigr\}

    The paper has 2ζ where this has 4ζ. The loss has Hessian :math:`2(k c c^T + \mu\mu^T)`, so it is 2ζ-smooth, not
    ζ-smooth, and :math:`\|\nabla\ell\|^2 \le 4\zeta\ell`. The regret is then at most
    :math:`\rho_w^2/2\eta + 2\zeta\eta\sum\ell(w_j)`; for :math:`\eta \le 1/4\zeta` that gives
    :math:`\rho_w^2/\eta + 4\zeta\eta m L^\star`, which the η above minimises.

    Parameters
    ----------
    size : ndarray of shape (m,)
        Rows of each bag.
    rho_w, rho_x, rho_y, risk_bound : float
        Bounds on \|w\|, \|x\|, \|y\| and L*, the risk of the best predictor.
    bags : float, optional
        m, where `size` is that of all of them.

    Returns
    -------
    SGDConstants
        θ of each bag, ζ and η.

    Examples
    --------
    >>> constants = sgd_constants(np.full(100, 64), rho_w=1.0, rho_x=1.0, rho_y=1.0, risk_bound=0.1)
    >>> round(constants.zeta, 1), round(constants.step, 5)
    (99.8, 0.00251)
    """
    m = len(size) if bags is None else bags
    log = np.log(9 * size * m * (rho_w * rho_x + rho_y) ** 2 / (rho_w * rho_x) ** 2)
    zeta = float((8 * log.max() + 1) * rho_x**2)
    step = min(rho_w / np.sqrt(4 * zeta * m * risk_bound), 1 / (4 * zeta))
    return SGDConstants(theta=np.sqrt(8 * log / size), zeta=zeta, step=float(step))


@dataclass(frozen=True, kw_only=True)
class LinearProblem:
    r"""Linear predictors of bounded norm, learned by one pass of Algorithm 2.

    Parameters
    ----------
    size : int
        Rows per bag k.
    rho_w, rho_x, rho_y, risk : float
        Bounds on \\|w\\|, \\|x\\|, \\|y\\| and on L*, the risk of the best predictor, which the step uses.
    epsilon : float or None
        Of discrete Laplace noise on the counts, None without noise.
    """

    size: int
    rho_w: float
    rho_x: float
    rho_y: float = 1.0
    risk: float
    epsilon: float | None = None

    def __post_init__(self) -> None:
        positive = dict.fromkeys(("rho_w", "rho_x", "rho_y", "risk"), number(above=0))
        check_parameters(self, {"size": SIZE, "epsilon": EPSILON, **positive})

    @property
    def bag_risk(self) -> float:
        """L* + s²/k: noise of variance s² on the count adds s²/k to every bag's loss, whatever w is."""
        return self.risk + laplace_variance(self.epsilon) / self.size

    def constants(self, bags: float) -> SGDConstants:
        """One θ, ζ and η for so many bags; with noise the step is that for L* + s²/k."""
        rho = {"rho_w": self.rho_w, "rho_x": self.rho_x, "rho_y": self.rho_y}
        return sgd_constants(np.array([self.size]), **rho, risk_bound=self.bag_risk, bags=bags)


def sgd_excess_risk(problem: LinearProblem, bags: float) -> float:
    r"""Excess risk of the averaged iterate after so many `bags`, in expectation, at most.

    .. math:: \frac{\rho_w^2\rho_x^2}{m} + \frac{\rho_w^2}{\eta m} + 4\zeta\eta L^\star

    The first term is the truncation: a bag's loss is at most :math:`9k(\rho_w\rho_x + \rho_y)^2` and the chance that
    :math:`\|\bar x_j - \mu\| > \theta\rho_x` is at most :math:`e^{-k\theta^2/8}`, which θ makes so small (the lemma on
    the loss; its tail follows from bounded differences, since one row moves :math:`\|\sum (x_i - \mu)\|` by
    :math:`2\rho_x`). The others are the regret of projected gradient steps on losses that are 2ζ-smooth (see
    `sgd_constants`; the paper, with ζ, has 2ζηL*).

    Examples
    --------
    >>> round(sgd_excess_risk(LinearProblem(size=64, rho_w=1.0, rho_x=1.0, risk=0.1), 100_000), 4)
    0.0498
    """
    _, zeta, step = problem.constants(bags)
    travelled = problem.rho_w**2 / (step * bags)
    return float((problem.rho_w * problem.rho_x) ** 2 / bags + travelled + 4 * zeta * step * problem.bag_risk)


def sgd_bound(problem: LinearProblem, regret: float) -> Bound:
    """Bags after which the excess risk is at most `regret` in expectation.

    Examples
    --------
    >>> sgd_bound(LinearProblem(size=64, rho_w=1.0, rho_x=1.0, risk=0.1), 0.1).value
    22943.0
    """
    check_parameters({"regret": regret}, {"regret": number(above=0)})
    return Bound(
        value=least_bags(lambda m: sgd_excess_risk(problem, m) <= regret),
        by_proof=None,
        theorem="Theorem 'sgd-main': Algorithm 2 on linear predictors, in expectation",
        assumptions=(
            "\\|x\\| ≤ ρ_x and \\|y\\| ≤ ρ_y for every row, and the means of x and y are known",
            "independent bags of equal size, rows drawn at random",
            "each bag is used once",
        ),
    )
