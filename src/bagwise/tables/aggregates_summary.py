"""What tables of counts came to, in numbers and in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bagwise.data.aggregates import Aggregates


@dataclass(frozen=True)
class AggregatesSummary:
    """What tables of counts came to, in numbers.

    Attributes
    ----------
    features, pairs, missing_pairs : int
        Features, pairs of features with a table, and without.
    lines, levels : int
        Lines in all, and values of all features.
    rows : float
        By the tables.
    prior : tuple of float
        The mean label.
    noise_variance, least_noise : float
        The largest of a cell, and the least, as declared or told by repeats.
    noise_ratio : float or None
        What repeats tell, in that which is declared; None where they do not.
    declared : bool
        Whether noise was declared.
    threshold : float or None
        Below which counts are hidden.
    differs : bool
        Whether what was declared is not what repeats tell, which is then used.
    """

    features: int
    pairs: int
    missing_pairs: int
    lines: int
    levels: int
    rows: float
    prior: tuple[float, ...]
    noise_variance: float
    least_noise: float
    noise_ratio: float | None
    declared: bool
    threshold: float | None
    differs: bool

    @classmethod
    def of(cls, data: Aggregates, estimator: Any) -> AggregatesSummary:
        """Of tables, and of the estimator that was fitted to them."""
        d, lacking = len(data.features), len(data.pairs_without_table)
        least, largest = data.noise_range or (1.0, 1.0)
        return cls(
            features=d,
            pairs=d * (d - 1) // 2 - lacking,
            missing_pairs=lacking,
            lines=data.lines,
            levels=sum(one.rest for one in data.features),
            rows=float(estimator.rows_),
            prior=(float(estimator.prior_),),
            noise_variance=float(estimator.noise_variance_),
            least_noise=float(estimator.noise_variance_) * (least / largest if largest else 1.0),
            noise_ratio=float(estimator.noise_ratio_) if np.isfinite(estimator.noise_ratio_) else None,
            declared=data.noise_range is not None,
            threshold=data.threshold,
            differs=data.noise_range is not None and estimator.noise_variance_ != largest,
        )

    def __str__(self) -> str:
        said = f"{self.lines:,} counts and sums by {self.features:,} features and {self.pairs:,} pairs of them"
        lines = [f"{said} ({self.levels:,} values), of {self.rows:,.0f} rows, mean label {self.prior[0]:.4g}."]
        if not self.declared:
            how = "as tables that repeat each other tell (none was declared)"
        elif self.noise_ratio is not None and (self.differs or self.noise_variance > 0):
            how = f"as declared; what tables repeat of each other tells {self.noise_ratio:.3g} times that"
            if self.differs:
                how = f"as tables that repeat each other tell: {self.noise_ratio:.3g} times what was declared"
        else:
            how = "as declared"
        much = f"{self.noise_variance:.4g}"
        if self.least_noise < self.noise_variance:
            much = f"{self.least_noise:.4g} to {much}"
        lines.append(f"Noise of variance {much} on each count and each sum, {how}.")
        if self.threshold is None:
            lines.append("Values and pairs of values without a line are taken to have no rows.")
        else:
            lines.append(
                f"Counts below {self.threshold:g} are hidden: what shown ones leave of a value's rows is spread over "
                "its hidden cells as if features were independent there; values that are not shown are one, the rest."
            )
        if self.missing_pairs:
            lines.append(f"{self.missing_pairs:,} pairs of features have no table: they are taken as independent.")
        return "\n".join(lines)
