"""Numbers in sentences."""


def rows_of(smallest: int, largest: int) -> str:
    """How many rows bags have.

    >>> rows_of(1, 1), rows_of(8, 2000)
    ('1 row', '8 to 2,000 rows')
    """
    return number_of(largest, "row") if smallest == largest else f"{smallest:,} to {largest:,} rows"


def number_of(count: int, what: str) -> str:
    """So many of something.

    >>> number_of(1, "bag"), number_of(2000, "row")
    ('1 bag', '2,000 rows')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"
