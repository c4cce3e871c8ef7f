"""Second moments of bags: all that a linear fit needs, in d × d numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from bagwise.utils.typing import Floats, Integers


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over bags of size, centroid x̄ and proportion α, weighted by size. They add up over parts of the data.

    bags: number of bags m.  rows: Σ k.
    x: (d,) Σ k x̄.  y: (c,) Σ k α.
    xx: (d, d) Σ k x̄ x̄ᵀ.  xy: (d, c) Σ k x̄ αᵀ.  yy: (c,) Σ k α².

    >>> part = Moments.of(np.array([[1.0], [6.0]]), np.array([1, 2]), np.array([[0.0], [1.0]]))
    >>> float(part.rows), part.x, part.xx
    (3.0, array([7.]), array([[19.]]))
    """

    bags: int
    rows: float
    x: Floats
    y: Floats
    xx: Floats
    xy: Floats
    yy: Floats

    @classmethod
    def of(cls, sums: Floats, size: Integers, proportion: Floats) -> Moments:
        """From bag sums (m, d), sizes (m,) and proportions (m, c)."""
        root = np.sqrt(size)[:, None]
        scaled = sums / root
        target = proportion * root
        return cls(
            bags=len(size),
            rows=float(size.sum()),
            x=sums.sum(axis=0),
            y=(size[:, None] * proportion).sum(axis=0),
            xx=scaled.T @ scaled,
            xy=scaled.T @ target,
            yy=(target**2).sum(axis=0),
        )

    def __add__(self, other: Moments) -> Moments:
        return Moments(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))

    def __sub__(self, other: Moments) -> Moments:
        return Moments(*(getattr(self, name) - getattr(other, name) for name in self.__dataclass_fields__))

    @property
    def mean_x(self) -> Floats:
        """Mean of x over rows, μ."""
        return self.x / self.rows

    @property
    def mean_y(self) -> Floats:
        """Mean label over rows, p."""
        return self.y / self.rows

    @property
    def variance(self) -> Floats:
        """(d,) mean over bags of k (x̄ − μ)²: for random bags, the variance of each feature."""
        return np.maximum(np.diag(self.xx) - self.rows * self.mean_x**2, 0) / self.bags

    def about(self, mean_x: Floats, mean_y: Floats) -> Self:
        """The same moments with x and y measured from the given points."""
        shift = np.outer(self.x, mean_x)
        return type(self)(
            bags=self.bags,
            rows=self.rows,
            x=self.x - self.rows * mean_x,
            y=self.y - self.rows * mean_y,
            xx=self.xx - shift - shift.T + self.rows * np.outer(mean_x, mean_x),
            xy=self.xy - np.outer(self.x, mean_y) - np.outer(mean_x, self.y) + self.rows * np.outer(mean_x, mean_y),
            yy=self.yy - 2 * self.y * mean_y + self.rows * mean_y**2,
        )

    def centred(self) -> Self:
        """Measured from their own means."""
        return self.about(self.mean_x, self.mean_y)

    def risk(self, coef: Floats) -> Floats:
        r"""Mean over bags of :math:`k_j(\alpha_j - w \cdot \bar x_j)^2`, summed over outputs; coef is (…, d, c)."""
        quadratic: Floats = (coef * (self.xx @ coef - 2 * self.xy)).sum(axis=(-2, -1)) + self.yy.sum()
        return quadratic / self.bags
