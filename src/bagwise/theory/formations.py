r"""What a bag is worth, by how bags came about: its information about functions a square distance apart.

Let h* be the truth and h a function with E[(h − h*)²] = β. Where sums over a bag are normal, as they are in large ones,
a choice between the two from m bags errs with probability :math:`\Phi(-\sqrt{m \beta J}/2)`. J is the information of a
bag; everything that a plan expects follows from it.
"""

from dataclasses import dataclass
from math import sqrt

from bagwise.theory.bounds import EPSILON, SIZE, laplace_variance
from bagwise.theory.reported import (
    CONSTRAINTS,
    MECHANISMS,
    Cells,
    average_variance_of_cells,
    variance_of_cells,
)
from bagwise.utils.parameters import NONE, Constraint, Parameter, ParameterError, check_parameters, number, one_of

RANDOM, RATES, FEATURES, EFFECTS = "random", "rates", "features", "effects"
_CONSTRAINTS = {
    "size": SIZE,
    "epsilon": EPSILON,
    "prior": Constraint(
        "a number between 0 and 1, no nearer to them than 1e-9", number(least=1e-9, most=1 - 1e-9).holds
    ),
    "risk": number(least=1e-30) | NONE,
    "formation": one_of(RANDOM, RATES, FEATURES, EFFECTS),
    "rates_sd": number(above=0, most=0.5) | NONE,
    "effects_sd": number(above=0, most=100) | NONE,
    "between": number(least=0, most=1) | NONE,
    "mechanism": one_of(*MECHANISMS) | NONE,
    **dict.fromkeys(("noise_scale", "sensitivity", "value_sd"), number(least=1e-12, most=1e15) | NONE),
    **CONSTRAINTS,
}
_BELONG = {"rates_sd": (RATES,), "effects_sd": (EFFECTS,), "between": (FEATURES, EFFECTS)}
_NEEDED = {RATES: "rates_sd", EFFECTS: "effects_sd"}
_ROUNDING = 1 + 1e-9


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """How bags come about and what is done to what they report, whatever their size: see `PlannedBags`."""

    prior: float = 0.5
    risk: float | None = None
    formation: str = RANDOM
    rates_sd: float | None = None
    effects_sd: float | None = None
    between: float | None = None
    noise_scale: float | None = None
    mechanism: str | None = None
    sensitivity: float | None = None
    hidden: tuple[float, float] | None = None
    rounded: float | None = None
    clamped: tuple[float, float] | None = None
    value_sd: float | None = None


@dataclass(frozen=True, kw_only=True)
class PlannedBags(Circumstances):
    r"""Bags of one size and one formation, and the noise on their counts.

    Parameters
    ----------
    size : int
        Rows per bag k.
    epsilon : float or None
        Of discrete Laplace noise on the counts, None without noise.
    prior : float
        Share of positives p.
    risk : float or None
        r = E[(y − h)²] of the best model, at most; p(1 − p), which always holds, if None.
    formation : {"random", "rates", "features", "effects"}
        How rows came together.
    rates_sd : float or None
        For "rates": standard deviation σ of the rates of bags, without what chance adds to their proportions.
    effects_sd : float or None
        For "effects": standard deviation τ of what moves the log odds of all rows of a bag.
    between : float or None
        For "features" and "effects": share ι of the variance of what is to be learned that lies between bags. 0, which
        None is, is for what bags do not differ in, 1 for what all rows of a bag have in common.
    noise_scale : float or None
        In place of `epsilon`: b of Laplace noise, the standard deviation of Gaussian noise.
    mechanism : {"discrete-laplace", "laplace", "gaussian"} or None
        How noise is made; None takes discrete Laplace noise for `epsilon` on counts, Laplace noise elsewhere.
    sensitivity : float or None
        By how much one person can change what is reported, which ε is divided by; 1 for counts if None.
    hidden, rounded, clamped : tuple, float, tuple, each or None
        How counts are made less exact, noised ones after the noise (see `bagwise.theory.reported.Cells`).
    value_sd : float or None
        Bags report sums of values of this standard deviation, in place of counts: then `prior` does not matter, and
        `risk` is the variance that the best model leaves, that of the values at most.
    """

    size: int
    epsilon: float | None = None

    def __post_init__(self) -> None:
        check_parameters(self, _CONSTRAINTS)
        self._check_noise()
        self._check_values()
        for name, formations in _BELONG.items():
            if getattr(self, name) is not None and self.formation not in formations:
                which = f" {' or '.join(formations)}, not to {self.formation}."
                raise ParameterError(name, "belongs to ", Parameter("formation"), which)
        needed = _NEEDED.get(self.formation)
        if needed is not None and getattr(self, needed) is None:
            raise ParameterError(needed, "is needed where ", Parameter("formation"), f" is {self.formation}.")
        most = self.label_variance
        if self.risk is not None and self.risk > most * _ROUNDING:
            what = "p(1 − p)" if self.value_sd is None else "the variance of the values"
            raise ParameterError("risk", f"must be at most {what} = {most:.4g}, got {self.risk:g}.")
        if self.rates_sd is not None and self.rates_sd**2 > most * _ROUNDING:
            raise ParameterError("rates_sd", f"must be at most √(p(1 − p)) = {sqrt(most):.4g}, got {self.rates_sd:g}.")

    def _check_noise(self) -> None:
        """Raise unless it is told how much noise there is, once."""
        if self.epsilon is not None and self.noise_scale is not None:
            raise ParameterError("epsilon", "and ", Parameter("noise_scale"), " say the same: give one of them.")
        if self.epsilon is None:
            if self.sensitivity is not None:
                raise ParameterError("sensitivity", "is what ", Parameter("epsilon"), " is about: give that, too.")
            if self.mechanism is not None and self.noise_scale is None:
                ways = Parameter("epsilon"), " or ", Parameter("noise_scale")
                raise ParameterError("mechanism", "says how noise is made: give how much, by ", *ways, ".")
        if self.mechanism == "gaussian" and self.epsilon is not None:
            raise ParameterError(
                "epsilon", "alone does not tell the scale of Gaussian noise: give ", Parameter("noise_scale"), "."
            )
        if self.mechanism == MECHANISMS[0] and self.noise_scale is not None:
            raise ParameterError("mechanism", f"{MECHANISMS[0]} goes with ", Parameter("epsilon"), ": give that.")

    def _check_values(self) -> None:
        """Raise where values are planned with what is about counts."""
        if self.value_sd is None:
            return
        for name in ("hidden", "rounded", "clamped"):
            if getattr(self, name) is not None:
                raise ParameterError(name, "is about counts, and does not go with ", Parameter("value_sd"), ".")
        if self.mechanism == MECHANISMS[0]:
            raise ParameterError("mechanism", f"{MECHANISMS[0]} is for counts: values take laplace or gaussian.")
        if self.epsilon is not None and self.sensitivity is None:
            raise ParameterError("sensitivity", "of sums of values is needed: the largest value of one person, say.")
        if self.formation in (RATES, EFFECTS):
            said = f"{self.formation} is about labels 0 and 1: plan values for random or features."
            raise ParameterError("formation", said)

    @property
    def kind_of_noise(self) -> str:
        """The mechanism that was asked for, or the usual one."""
        usual = MECHANISMS[0] if self.epsilon is not None and self.value_sd is None else "laplace"
        return self.mechanism or usual

    @property
    def noise_variance(self) -> float:
        """s²: of the noise on what a bag reports."""
        if self.epsilon is None:
            scale = self.noise_scale or 0.0
            return scale**2 * (1 if self.mechanism == "gaussian" else 2)
        one = self.epsilon / (self.sensitivity or 1.0)
        return laplace_variance(one) if self.kind_of_noise == MECHANISMS[0] else 2 / one**2

    @property
    def cells(self) -> Cells:
        """How counts are made less exact."""
        return Cells(self.hidden, self.rounded, self.clamped)

    @property
    def plain(self) -> bool:
        """Whether bags report counts, exact or with discrete Laplace noise, which theorems are for."""
        return self.plain_noise and not self.cells and self.value_sd is None

    @property
    def plain_noise(self) -> bool:
        """Whether noise, if any, is discrete Laplace."""
        return self.noise_variance == 0 or self.kind_of_noise == MECHANISMS[0]

    @property
    def label_variance(self) -> float:
        """p(1 − p), the risk of the constant p: no regret above it is to be expected of anyone. Of values, theirs."""
        return self.prior * (1 - self.prior) if self.value_sd is None else self.value_sd**2

    @property
    def best_risk(self) -> float:
        """r: as given, or p(1 − p)."""
        return self.label_variance if self.risk is None else self.risk

    @property
    def dispersion(self) -> float:
        r"""u: by how much proportions spread more than those of random bags, :math:`1 + (k-1)\,\sigma^2/p(1-p)`."""
        return 1 + (self.size - 1) * (self.rates_sd or 0.0) ** 2 / self.label_variance


def bag_information(bags: PlannedBags) -> float:
    r"""J, the information of a bag that methods for its formation use, noise of variance s² on its count included.

    *Random, features, effects.* Given its rows, a bag's count is Σh* but for a variance of kr + s², to which an effect
    of the bag adds :math:`\tau^2 (\sum h^*(1-h^*))^2 \approx \tau^2 k^2 r^2`, as E[h*(1 − h*)] = r. Functions differ
    on the bag by D = Σ(h − h*), of variance kβ(1 + (k−1)ι) if a share ι lies between bags. So

    .. math:: J = \frac{1 + (k-1)\iota}{r + s^2/k + k \tau^2 r^2}

    Random bags are worth 1/r, whatever their size. Effects are a floor: proportions scatter by r/k + τ²r² around the
    truth, so that bags beyond 1/(τ²r) rows are worth no more, ι/(τ²r²) at most, and less for what they do not differ
    in: m large bags then tell less of it than m small ones.

    *Rates.* Rows of one label are alike in all bags, whose rates have variance σ². Then rows speak, since those of a
    bag with more positives look more like positives: the slope of bag means of any function g on proportions is
    :math:`E[g|1] - E[g|0] = E[g h^*]/v` with v = p(1 − p), which identifies E[y g]. For g = h − h* its estimate has
    variance :math:`(\beta/k) / m\mathrm{Var}(\alpha)`, where proportions spread u = 1 + (k−1)σ²/v times as much as
    those of random bags, and noise attenuates:

    .. math:: J = \frac{u^2}{vu + s^2/k} + \Bigl(\frac{1}{r + s^2/k} - \frac{1}{v + s^2/k}\Bigr)

    The last term is what a model that explains labels inside bags adds, as in random bags; there, u is 1. Without noise
    a bag is worth 1/r + (k−1)σ²/v²: u random bags where h* explains little, and where bags are pure, σ² = v, its k
    labels. Noise matters u times less than in random bags. Weights of rows, 1 + (ρ−p)(h*−p)/v in a bag of rate ρ, are
    taken for 1: where rates and h* differ widely, rows tell somewhat more.

    *Reports as they come.* Where counts are hidden, rounded or clamped, `cost_of_cells` joins s². Sums of values are
    worth what counts are, with r the variance that the best model leaves.

    Parameters
    ----------
    bags : PlannedBags

    Returns
    -------
    float

    Examples
    --------
    >>> bag_information(PlannedBags(size=64, prior=0.25))
    5.33...
    >>> bag_information(PlannedBags(size=64, prior=0.25, formation="rates", rates_sd=0.1))
    23.25...
    >>> bag_information(PlannedBags(size=64, prior=0.25, formation="effects", effects_sd=0.3))
    2.56...
    """
    v, r, noise = bags.label_variance, bags.best_risk, bags.noise_variance / bags.size
    if bags.formation != RATES:
        return _of_counts(bags, noise + cost_of_cells(bags) / bags.size)
    u = bags.dispersion
    slopes, alike, given = ((noise + one / bags.size) for one in _costs_of_rates(bags))
    return u**2 / (v * u + slopes) + 1 / (r + given) - 1 / (v + alike)


def cost_of_cells(bags: PlannedBags) -> float:
    r"""e: hiding, rounding and clamping cost as much as noise of this variance on counts; 0 where there is none.

    Counts of bags vary around means of their own, whose rates have variance (v − r)(1 + (k−1)ι)/k, by kr and what
    effects add; information is averaged over these (see `bagwise.theory.reported`).

    >>> round(cost_of_cells(PlannedBags(size=400, prior=0.25, rounded=5)), 1)
    2.0
    >>> cost_of_cells(PlannedBags(size=400, prior=0.25))
    0.0
    """
    if not bags.cells:
        return 0.0
    k, r, v = bags.size, bags.best_risk, bags.label_variance
    spread = (v - r) * (1 + (k - 1) * (bags.between or 0.0)) / k + (bags.rates_sd or 0.0) ** 2
    variance = k * r + (k * r * (bags.effects_sd or 0.0)) ** 2
    noise, how = bags.noise_variance, bags.kind_of_noise
    return average_variance_of_cells(k, bags.prior, spread, variance, bags.cells, noise=noise, mechanism=how)


def _costs_of_rates(bags: PlannedBags) -> tuple[float, float, float]:
    """e where rates of bags differ: of all counts, of those of bags of one rate, and of counts given rows."""
    if not bags.cells:
        return 0.0, 0.0, 0.0
    mean, own = bags.size * bags.prior, bags.size * bags.label_variance
    noise, how = bags.noise_variance, bags.kind_of_noise
    slopes, alike = (
        variance_of_cells(bags.size, mean, variance, bags.cells, noise=noise, mechanism=how)
        for variance in (own * bags.dispersion, own)
    )
    return slopes, alike, cost_of_cells(bags)


def information_limit(bags: PlannedBags) -> float:
    r"""J at the most, for any method.

    By Stam's inequality noise takes no less away than normal noise whose variance is the inverse of its Fisher
    information, for Laplace noise s²/2. Under rates, with D = Σ(h − h*), A = k(α − p) and H = Σ(h* − p) of a bag
    jointly normal, of covariance :math:`kM + k(k-1)\sigma^2 cc^\top`, M that of a row's values and c their slopes, a
    bag holds the information of Cov(D, (A, H)):

    .. math:: \frac{1}{v} \cdot \frac{u^2 - b u (u-1) + b n (u-1)^2}{u (1 - b) + n (1 + b (u-1))}, \qquad
              b = 1 - \frac{r}{v}, \quad n = \frac{s^2}{2kv}

    It exceeds `bag_information` where there is noise, since h* tells the rates of bags, too. Counts that are hidden,
    rounded or clamped hold no more information than those that are not, for which it is.

    >>> bags = PlannedBags(size=64, formation="rates", rates_sd=0.1, risk=0.2)
    >>> round(information_limit(bags) / bag_information(bags), 9)
    1.0
    """
    known = 1 if bags.kind_of_noise == "gaussian" else 0.5
    v, noise = bags.label_variance, known * bags.noise_variance / bags.size
    if bags.formation == RATES:
        u, b, n = bags.dispersion, 1 - bags.best_risk / v, noise / v
        return (u**2 - b * u * (u - 1) + b * n * (u - 1) ** 2) / (u * (1 - b) + n * (1 + b * (u - 1))) / v
    return _of_counts(bags, noise)


def _of_counts(bags: PlannedBags, noise: float) -> float:
    """The information of a count, given the rows; noise: its variance per row."""
    k, r = bags.size, bags.best_risk
    scatter = r + noise + k * (bags.effects_sd or 0.0) ** 2 * r**2
    return (1 + (k - 1) * (bags.between or 0.0)) / scatter
