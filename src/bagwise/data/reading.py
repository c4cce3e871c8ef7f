"""What estimators read, said once by each, and a table of codes handed over accordingly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bagwise.data.features import Encoding
from bagwise.data.rows import BagRows

if TYPE_CHECKING:
    from bagwise.base import BagEstimator


@dataclass(frozen=True)
class Reads:
    """What an estimator reads, declared as its class attribute `reads`; by default finite numbers in memory.

    Parameters
    ----------
    codes : bool
        Numbers, NaN where one is missing, and codes of categories in the columns that its parameter
        `categorical_features` names. Without it, a table of codes is encoded as finite numbers first.
    blocks : bool
        Data in several blocks, of which it need not hold all in memory (see `bagwise.data.rows`).
    moments : bool
        Moments of folds of bags instead of rows: it has `fit_moments` and `n_folds`.
    """

    codes: bool = False
    blocks: bool = False
    moments: bool = False


def fit_codes(estimator: BagEstimator, codes: BagRows, numbers: BagRows | None = None) -> Encoding | None:
    """Fit an estimator to a table of numbers, codes of categories and NaN, as it reads them.

    Parameters
    ----------
    estimator : BagEstimator
        Its `categorical_features`, where it reads codes, come to name those of the table, too.
    codes : BagRows
        The table.
    numbers : BagRows, optional
        The same table encoded; by default as the data themselves say.

    Returns
    -------
    Encoding or None
        How codes became the numbers that the estimator reads; None where it reads codes, or was given numbers.
    """
    if estimator.reads.codes:
        given = estimator.get_params(deep=False)["categorical_features"] or ()
        estimator.set_params(categorical_features=sorted({*codes.categorical, *given}))
        estimator.fit_rows(codes)
        return None
    encoding = None
    if numbers is None:
        encoding = codes.encoding()
        numbers = codes.encoded(encoding)
    estimator.fit_rows(numbers)
    return encoding
