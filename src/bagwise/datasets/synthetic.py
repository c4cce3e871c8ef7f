"""An advertising log in which the true conversion probability of every impression is known.

The world (how much each campaign, country, hour … matters) is always the same; `random_state` draws impressions
from it. Effects bend and interact, so a linear model is decent and not perfect.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, ndtri

from bagwise.utils.parameters import check_parameters, whole
from bagwise.utils.rng import RandomState, generator

_NAMES = {
    "campaign": " ".join(f"c{number:02d}" for number in range(30)),
    "vertical": "retail travel finance games telecom autos food health education real_estate",
    "placement": "feed banner sidebar interstitial video",
    "device": "mobile desktop tablet",
    "browser": "chrome safari edge firefox samsung other",
    "country": "US BR IN DE GB FR MX JP ID IT ES CA TR PL NL AR KR AU SE CO",
}
_LEVELS = {feature: names.split() for feature, names in _NAMES.items()}
"""Levels of the categorical features, the frequent ones first."""
_POWER = {"campaign": 0.7, "vertical": 0.6}
"""How fast the levels' frequencies fall, as 1/rank^power; 1 where nothing is said."""
_INTERCEPT = -2.23  # puts the conversion rate at 0.235
_SPREAD = {"campaign": 0.9, "vertical": 0.7, "placement": 0.6, "device": 0.3, "browser": 0.2, "country": 0.6}
"""Standard deviation of the levels' effects on the log-odds."""


@dataclass(frozen=True, eq=False)
class AdLog:
    """Impressions, their labels, and the probabilities the labels were drawn with.

    Attributes
    ----------
    events : pandas.DataFrame
        One row per impression, features only.
    y : (n,) array
        1 where the impression converted.
    probability : (n,) array
        The true P(y = 1 | features).
    """

    events: pd.DataFrame
    y: NDArray[np.int8]
    probability: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.y)

    @property
    def best_accuracy(self) -> float:
        """Expected accuracy of the best possible rule, which knows the probabilities; nothing does better.

        Examples
        --------
        >>> log = synthetic(1000, random_state=0)
        >>> bool(log.best_accuracy > 1 - log.probability.mean())
        True
        """
        return float(np.maximum(self.probability, 1 - self.probability).mean())


def synthetic(n: int = 200_000, *, random_state: RandomState = None) -> AdLog:
    """Draw `n` impressions of an advertising log, in no particular order.

    Of the impressions 23.5% convert; the constant guess is right on 76.5% of them, the best possible rule on 84%.

    Parameters
    ----------
    n : int
        Number of impressions.
    random_state : int, Generator, RandomState or None
        Seed of the draw.

    Returns
    -------
    AdLog

    Examples
    --------
    >>> log = synthetic(1000, random_state=0)
    >>> log.events.shape, log.y.dtype
    ((1000, 11), dtype('int8'))
    >>> sorted(log.events.select_dtypes("number"))
    ['account_days', 'bid', 'hour', 'past_clicks', 'session_depth']
    """
    check_parameters({"n": n}, {"n": whole(1)})
    rng = generator(random_state)
    events = _impressions(int(n), rng)
    probability = expit(_log_odds(events))
    return AdLog(events, (rng.random(n) < probability).astype(np.int8), probability)


def _impressions(n: int, rng: np.random.Generator) -> pd.DataFrame:
    levels = {}
    for feature, names in _LEVELS.items():
        weight = 1 / np.arange(1, len(names) + 1) ** _POWER.get(feature, 1.0)
        # The last bound, 1, is left out: rounding must not let a draw exceed it.
        codes = np.searchsorted(np.cumsum(weight / weight.sum())[:-1], rng.random(n))
        levels[feature] = pd.Categorical.from_codes(codes, categories=pd.Index(names))
    peak = np.where(levels["device"] == "mobile", 19, 15)  # phones are used later in the day
    numbers = {
        "hour": (rng.normal(peak, 4.5).round() % 24).astype(np.int8),
        "account_days": rng.lognormal(5.0, 1.3, n).clip(0, 5000).astype(np.int32),
        "past_clicks": rng.negative_binomial(0.8, 0.12, n).astype(np.int32),
        "session_depth": rng.geometric(0.22, n).astype(np.int32),
        "bid": rng.gamma(2.0, 0.45, n).round(3),
    }
    return pd.DataFrame({**numbers, **levels})


def _log_odds(events: pd.DataFrame) -> NDArray[np.float64]:
    """Of conversion."""
    world = np.random.default_rng(2025)  # the effects are part of the world, not of the draw

    def effects(levels: int, spread: float) -> NDArray[np.float64]:
        """Normal quantiles in random order: the same spread of effects whatever the draw."""
        return spread * np.asarray(ndtri((world.permutation(levels) + 0.5) / levels))

    code = {feature: events[feature].cat.codes.to_numpy() for feature in _LEVELS}
    depth, bid = events["session_depth"].to_numpy(), events["bid"].to_numpy()
    loyalty = np.log1p(events["past_clicks"].to_numpy()) - 1.6
    age = np.log1p(events["account_days"].to_numpy()) - 5.0
    evening = np.cos(2 * np.pi * (events["hour"].to_numpy() - 20) / 24)
    score: NDArray[np.float64] = _INTERCEPT + 0.95 * loyalty + 0.30 * age + 0.45 * evening + 0.8 * (bid - 0.9)
    score += 0.9 * np.tanh((depth - 3) / 2) - 0.10 * np.maximum(depth - 8, 0)  # interest, then fatigue
    for feature, spread in _SPREAD.items():
        score += effects(len(_LEVELS[feature]), spread)[code[feature]]
    devices = len(_LEVELS["device"])
    score += effects(len(_LEVELS["vertical"]) * devices, 0.5)[code["vertical"] * devices + code["device"]]
    score += 0.5 * loyalty * (events["device"] == "desktop").to_numpy()
    score -= 0.5 * evening * (events["placement"] == "sidebar").to_numpy()
    return score
