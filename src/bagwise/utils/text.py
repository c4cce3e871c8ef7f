"""Numbers in sentences, and text of others."""

import math
import re
from collections.abc import Sequence

LEAST_SHOWN = 1e-300
"""p-value under which no digits are shown."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def decimals_of(*values: float, digits: int = 4) -> int:
    """Places behind the point, 10 at most, with which the largest of some values has so many digits.

    >>> decimals_of(0.012, 0.034), decimals_of(1234567.8), decimals_of(0.0)
    (5, 0, 3)
    """
    most = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    leading = math.floor(math.log10(most)) if most > 0 else 0
    return min(max(digits - 1 - leading, 0), 10)


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


def printable(text: str, keep: str = "\n\t") -> str:
    r"""Text of others as a terminal may show it: control characters, which move it or colour it, as codes.

    >>> printable("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return _CONTROL.sub(lambda one: one[0] if one[0] in keep else repr(one[0])[1:-1], text)


def listed(names: Sequence[str], last: str = "and") -> str:
    """Names in a sentence.

    >>> listed(["a"]), listed(["a", "b", "c"]), listed(["a", "b"], "or")
    ('a', 'a, b and c', 'a or b')
    """
    return f" {last} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def p_digits(p_value: float, digits: int = 2) -> str:
    """A p-value in digits; those that are too small to be computed are not 0.

    >>> p_digits(0.00123), p_digits(0.0)
    ('0.0012', '< 1e-300')
    """
    return f"{p_value:.{digits}g}" if not p_value < LEAST_SHOWN else f"< {LEAST_SHOWN:g}"


def with_error(value: float, error: float) -> str:
    """A signed number and its standard error, to two digits of the error.

    >>> with_error(12.345, 0.567), with_error(-1234.5, 110.0), with_error(0.25, 0.0)
    ('+12.35 ± 0.57', '-1,234 ± 110', '+0.25 ± 0')
    """
    if error <= 0:
        return f"{value:+.2g} ± 0"
    digits = max(0, 1 - math.floor(math.log10(error)))
    return f"{value:+,.{digits}f} ± {error:,.{digits}f}"
