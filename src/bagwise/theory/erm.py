r"""Clipped empirical risk in numbers: the bags with which it finds a hypothesis of regret below β.

Let h have regret μ ≥ β and :math:`\hat h^\star` be the best of the class. With :math:`D = R(h) - R(\hat h^\star)` and
:math:`S = R(h) + R(\hat h^\star)` the difference of their losses on a bag is :math:`DS/k` but for a constant and for
clipping, and it is chosen wrongly only if the mean of such differences over the bags falls below 0.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import exp, log, sqrt

from scipy import optimize

from bagwise.theory import bounds
from bagwise.theory.bounds import HYPOTHESES, PROBLEM, REGRET, SIZE, Bound, laplace_variance
from bagwise.utils.parameters import NONE, check_parameters, number


@dataclass(frozen=True, kw_only=True)
class HypothesisClass:
    r"""A finite class to choose from by the clipped empirical risk.

    Parameters
    ----------
    hypotheses, size : int
        Their number \\|H\\|, and the rows per bag k.
    regret, error : float
        Target β, and δ, the allowed probability of missing it.
    distance : float
        γ* = E[(ĥ* − h*)²] of the best hypothesis from the truth; 0 where the truth is in the class.
    known : bool
        Whether p and E[h] are known; if not, half of the bags are set aside to estimate them.
    risk : float or None
        Of the best hypothesis, at most; ¼ + γ*, which is always true, if None.
    epsilon : float or None
        Of discrete Laplace noise on the counts, None without noise.
    """

    hypotheses: int
    size: int
    regret: float
    error: float = 0.05
    distance: float = 0.0
    known: bool = True
    risk: float | None = None
    epsilon: float | None = None

    def __post_init__(self) -> None:
        own = {"hypotheses": HYPOTHESES, "distance": number(least=0, most=1), "risk": number(least=0, most=1) | NONE}
        check_parameters(self, {**PROBLEM, **own})

    @property
    def separation(self) -> float:
        r"""E[(h − ĥ*)²] of a hypothesis of regret β, at most :math:`(\sqrt{\beta + \gamma^*} + \sqrt{\gamma^*})^2`.

        This solves the proof's quadratic inequality; the proof goes on to 4γ* + 2β.
        """
        return (sqrt(self.regret + self.distance) + sqrt(self.distance)) ** 2

    @property
    def log_clip(self) -> float:
        """log(2/θ), or log(6/θ) where means are estimated, with θ = β/16k²."""
        return log((2 if self.known else 6) * 16 * self.size**2 / self.regret)

    @property
    def sum_square(self) -> float:
        """E[s²] of the sum s of two centred residuals of a row, at most (√(L* + β) + √L*)²."""
        best = 0.25 + self.distance if self.risk is None else self.risk
        return (sqrt(best + self.regret) + sqrt(best)) ** 2


def erm_bound(problem: HypothesisClass) -> Bound:
    r"""Bags with which the clipped empirical risk misses regret β with probability δ at most.

    Bernstein's inequality for each of at most \|H\| hypotheses: :math:`\exp\bigl(-m t^2 / 2(V + 2Ct/3)\bigr)` with

    * *range* C = T²/k, T the clipping threshold (√(8k log(2/θ)), plus what noise may add): a clipped square is at most
      C, so differences lie within ±C but for a constant (the proof's range);
    * *bias* t = β − E[X(h); clipped]: clipping the better hypothesis only helps. X ≤ 4k, and a residual is beyond T
      with probability :math:`2e^{-T^2/2k}` by Hoeffding, whose terms have range 2 (the proof allows θ, and both
      hypotheses to lose);
    * *variance* V: the three cases both kept, one kept, other kept exclude each other, so no factor 4 is lost, and
      :math:`E[D^2S^2]/k^2 \le \gamma\,(3\tfrac{k-1}{k} E[s^2] + \tfrac{16}{k})` replaces the proof's
      :math:`32\gamma\log\tfrac{2}{\theta}`, since D and S are sums of k independent centred terms; noise of variance s²
      adds 4γs²/k.

    Where p and E[h] are estimated on m/2 bags set aside, a residual moves by kε_h, ε_h the error of Ê[h] − p̂. With
    probability 1 − δ/2 all \|ε_h\| ≤ u (Hoeffding) and all \|ε_h − ε_*\| ≤ w (Bernstein); then t loses
    (k+1)u² + 2u√γ + 2w√γ*, and √V gains 2u√(kγ) + w√(kE[s²] + 4s²) + 2kuw. (The proof takes
    E[(E_j(h₂) − E_j(h₁))²] = kγ there, which holds for centred sums only; so no constants are traced for this case.)

    *By the proof*, known means: bias 8kθ, second moment :math:`144\gamma\log\tfrac{2}{\theta} + 128k^2\theta`,
    γ ≤ 4γ* + 2β, range 8 log(2/θ) + 1 to either side, Bernstein at t = β/2.

    The constants that come with it are `log_clip`, `separation` and `sum_square`.

    Examples
    --------
    >>> bound = erm_bound(HypothesisClass(hypotheses=60, size=64, regret=0.01))
    >>> f"{bound.value:.3g}, by the proof {bound.by_proof:.3g}"
    '1.29e+05, by the proof 2.71e+07'
    """
    if problem.known:
        rate = _rate(problem, slack=0.0, spread=0.0)
        value = bounds.least_bags(lambda m: m * rate >= log(problem.hypotheses / problem.error))
    else:
        value = bounds.least_bags(lambda m: _estimated(problem, m))
    return Bound(
        value=value,
        by_proof=_by_proof(problem) if problem.known and problem.epsilon is None else None,
        theorem="Theorem 'erm_square': clipped empirical risk over a finite class",
        assumptions=(
            "the truth is in the class" if problem.distance == 0 else f"γ* is at most {problem.distance:g}",
            "independent bags of equal size, rows drawn at random",
            "p and E[h] are known" if problem.known else "p and E[h] are estimated on half of the bags",
        ),
        constants={"log_clip": problem.log_clip, "separation": problem.separation, "sum_square": problem.sum_square},
    )


def erm_regret(bags: float, *, hypotheses: int, size: int, **options: float | bool | None) -> float:
    """The regret that so many `bags` guarantee, infinite where they guarantee none up to 1.

    `hypotheses`, `size` and `options` are the fields of `HypothesisClass` but `regret`.

    Examples
    --------
    >>> round(erm_regret(1_000_000, hypotheses=60, size=64), 5)
    0.00143
    """

    def needed(regret: float) -> float:
        return erm_bound(HypothesisClass(hypotheses=hypotheses, size=size, regret=regret, **options)).value  # type: ignore[arg-type]

    return bounds.least_regret(needed, bags)


def sample_complexity(size: int, regret: float) -> dict[str, float]:
    """Bags that methods need, by order of growth alone, without constants and logarithms.

    In rows, which are k times as many: ours k/β², or k/β where the truth is in the class (theorem 'erm_square');
    EasyLLP k²/β² (Busa-Fekete et al., 2023); Li et al. (2024) k³/β, with the truth in the class and noiseless labels.

    Parameters
    ----------
    size, regret : int, float
        Rows per bag k and target β.

    Returns
    -------
    dict of str to float
        By method. Only ratios between sizes or regrets mean something.

    Examples
    --------
    >>> sample_complexity(64, 0.01)["EasyLLP"] / sample_complexity(8, 0.01)["EasyLLP"]
    8.0
    """
    check_parameters({"size": size, "regret": regret}, {"size": SIZE, "regret": REGRET})
    return {
        "ours, the truth in the class": 1 / regret,
        "ours": 1 / regret**2,
        "EasyLLP": size / regret**2,
        "Li et al., the truth in the class": size**2 / regret,
    }


def _rate(problem: HypothesisClass, *, slack: float, spread: float) -> float:
    """Exponent per bag of Bernstein's inequality; slack: u, spread: w of estimated means."""
    k, gamma, noise = problem.size, problem.separation, laplace_variance(problem.epsilon)
    rows = sqrt((8 if problem.known else 18) * k * problem.log_clip)
    more = sqrt(noise / 2) * problem.log_clip
    ceiling = (rows + more) ** 2 / k
    if rows <= k * slack:
        return 0.0
    far, noisy = 2 * exp(-((rows - k * slack) ** 2) / (2 * k)), 0.0
    lost = 4 * k * far
    if problem.epsilon is not None:  # (R + e)² ≤ 2R² + 2e², where R or e is large
        noisy = bounds.laplace_tail(more, problem.epsilon)
        of_noise = noise * far + bounds.laplace_tail_square(more, problem.epsilon) + (k + (k * slack) ** 2) * noisy
        lost = 2 * lost + 2 * of_noise / k
    bias = (k + 1) * slack**2 + 2 * slack * sqrt(gamma) + 2 * spread * sqrt(problem.distance)
    gap = problem.regret - lost - bias
    if gap <= 0:
        return 0.0
    kept = sqrt(gamma * (3 * (k - 1) / k * problem.sum_square + 16 / k + 4 * noise / k))
    moved = 2 * slack * sqrt(k * gamma) + spread * sqrt(k * problem.sum_square + 4 * noise) + 2 * k * slack * spread
    variance = (kept + moved) ** 2 + 2 * ceiling**2 * min(1.0, far + noisy)
    return gap**2 / (2 * (variance + 2 * ceiling * gap / 3))


def _estimated(problem: HypothesisClass, bags: float) -> bool:
    """Whether so many bags suffice when half of them estimate p and E[h]: δ/4 for rows, δ/8 for noise, δ/8 for w."""
    aside = bags // 2
    if aside < 1:
        return False
    rows, error, count = aside * problem.size, problem.error, problem.hypotheses
    slack = sqrt(2 * log(8 * count / error) / rows) + _noise_of_sum(problem.epsilon, aside, error / 8) / rows
    tail = log(16 * count / error)
    spread = sqrt(2 * problem.separation * tail / rows) + 4 * tail / (3 * rows)
    rate = _rate(problem, slack=slack, spread=spread)
    return (bags - aside) * rate >= log(2 * count / error)


@lru_cache(maxsize=4096)  # a search over regrets asks the same again and again
def _noise_of_sum(epsilon: float | None, bags: float, error: float) -> float:
    """What the sum of so many noises exceeds with probability `error` at most, to either side (Chernoff)."""
    if epsilon is None:
        return 0.0
    target = log(2 / error)

    def reached(rate: float) -> float:
        return (target + bags * bounds.laplace_log_mgf(rate, epsilon)) / rate

    found = optimize.minimize_scalar(reached, bounds=(1e-9 * epsilon, (1 - 1e-9) * epsilon), method="bounded")
    return float(found.fun)


def _by_proof(problem: HypothesisClass) -> float:
    beta, log_clip = problem.regret, problem.log_clip
    gamma = 4 * problem.distance + 2 * beta
    second = 144 * gamma * log_clip + 8 * beta  # 128 k²θ = 8β
    reach = 2 * (8 * log_clip + 1)
    return 8 * (second + reach * beta / 6) / beta**2 * log(problem.hypotheses / problem.error)
