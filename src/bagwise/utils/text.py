"""Numbers in sentences."""

from __future__ import annotations


def number_of(count: int, what: str) -> str:
    """So many of something.

    >>> number_of(1, "bag"), number_of(2000, "row")
    ('1 bag', '2,000 rows')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"
