"""What reports of bags give away about single labels."""

from dataclasses import dataclass

import numpy as np

from bagwise.utils.typing import Booleans, Floats, Integers

NEARLY = 0.95
"""A guess that is right with this probability is nearly certain."""


@dataclass(frozen=True)
class Leaks:
    """What an onlooker learns who has the reports and knows which rows are in which bag, but nothing else of them.

    Without noise, a row of a bag with proportion α has label 1 with probability α: the *certainty* of the onlooker's
    best guess is max(α, 1 − α), or the largest proportion of a class. Whoever knows more of the rows guesses better.

    Attributes
    ----------
    single_row_bags, pure_bags : int
        Bags of one row, and larger bags without noise that report all 0 or all 1 (one class only).
    revealed_rows : int
        Rows whose label these reports tell.
    nearly_certain_rows : int
        Rows of other bags whose certainty is at least 0.95.
    certainty : tuple of float, or None
        Its quantiles (0, ¼, ½, ¾, 1) over the rows of bags with exact reports; None without them or with real labels.
    exposed_rows, noised_rows : int
        Rows of bags with exact reports, and with declared noise. Whoever knows the other labels of a bag of which the
        report is exact knows the last one, too, which is what differential privacy rules out.
    values : bool
        Whether labels are real numbers.
    hidden_rows : int
        Rows of bags whose counts are hidden, rounded or clamped, without noise.
    """

    single_row_bags: int
    pure_bags: int
    revealed_rows: int
    nearly_certain_rows: int
    certainty: tuple[float, ...] | None
    exposed_rows: int
    noised_rows: int
    values: bool = False
    hidden_rows: int = 0

    @property
    def statements(self) -> tuple[str, ...]:
        """What they say, one by one."""
        pure = "" if self.values else f"{self.pure_bags:,} larger bags all 0 or all 1, "
        lines = [f"{self.single_row_bags:,} bags of one row, {pure}{self.revealed_rows:,} individual labels revealed"]
        if self.certainty is not None:
            lines.append(
                f"the best guess of a row's label from its report is right with probability {self.certainty[2]:.2f} "
                f"(median over rows), {self.certainty[4]:.2f} at most; {self.nearly_certain_rows:,} labels that are "
                f"not revealed are guessed with {NEARLY:.0%} or more"
            )
        if self.exposed_rows:
            rows = "" if not self.noised_rows + self.hidden_rows else f" of {self.exposed_rows:,} rows"
            exact = "without noise" if not self.hidden_rows else "that are exact"
            lines.append(
                f"reports{rows} {exact} are no differential privacy: an insider, who knows all labels of a bag "
                "but one, learns the last"
            )
        if self.hidden_rows:
            lines.append(
                f"counts of {self.hidden_rows:,} rows are hidden, rounded or clamped, which is no differential privacy "
                "either: at the ends of what a count may be, an insider learns the last label"
            )
        if self.noised_rows:
            lines.append(
                f"noise is declared on the reports of {self.noised_rows:,} rows: none makes a label certain; if it "
                "was drawn for an ε, it lets an insider's odds of a label change by a factor of exp(ε) at most (but "
                "for δ)"
            )
        return tuple(lines)

    def __str__(self) -> str:
        return "leaks: " + "\n  ".join(self.statements)


def leaks(
    size: Integers,
    proportion: Floats,
    noise_variance: Floats | None = None,
    *,
    values: bool = False,
    hidden: Booleans | None = None,
) -> Leaks:
    """Leaks of bags from their sizes (m,), proportions (m,) or (m, classes) and noise variances (m,).

    values: whether labels are real numbers, as they must be where a proportion without noise is outside [0, 1].
    hidden: (m,) whether counts are known to lie between two numbers only, to which no noise was added.

    >>> leaks(np.array([4, 2]), np.array([0.25, 1.0])).revealed_rows
    2
    """
    none = np.zeros(len(size), dtype=bool)
    hidden = none if hidden is None else hidden
    plain = ~hidden if noise_variance is None else (noise_variance == 0) & ~hidden
    single, seen = size == 1, proportion[plain]
    # Of labels of other values, no proportion tells one but a single row's.
    real = values or bool(((seen < 0) | (seen > 1)).any())
    sure = np.maximum(proportion, 1 - proportion) if proportion.ndim == 1 else proportion.max(axis=1)
    pure = plain & (sure == 1) & (not real)
    revealed = plain & (pure | single)
    near = plain & ~revealed & (sure >= NEARLY) & (not real)
    certainty = None
    if not real and plain.any():
        quarters = np.quantile(sure[plain], [0, 0.25, 0.5, 0.75, 1], weights=size[plain], method="inverted_cdf")
        certainty = tuple(quarters.tolist())
    return Leaks(
        single_row_bags=int(single.sum()),
        pure_bags=int((pure & ~single).sum()),
        revealed_rows=int(size[revealed].sum()),
        nearly_certain_rows=int(size[near].sum()),
        certainty=certainty,
        exposed_rows=int(size[plain].sum()),
        noised_rows=int(size[~plain & ~hidden].sum()),
        values=real,
        hidden_rows=int(size[hidden].sum()),
    )
