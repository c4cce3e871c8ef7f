"""Bags: which rows form which bag, and what each bag reported."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from array_api_compat import is_torch_array

from bagwise import segment
from bagwise.bags import reading
from bagwise.bags.grouped_rows import GroupedRows
from bagwise.bags.intervals import Intervals
from bagwise.bags.labelled import without_labelled
from bagwise.bags.overlap import Overlap, Shared
from bagwise.bags.reading import as_labels, check_finite, read_rows
from bagwise.bags.reports import Reports, read_reports
from bagwise.bags.weights import offsets_of_rows, weights_of_rows, whole_people
from bagwise.utils.parameters import ParameterError, check_parameters, one_of
from bagwise.utils.typing import Array, ArrayLike, Floats, Integers, NDArray

_BEFORE_SEVERAL = "is given to each of several groupings, before bagwise.bags.several puts them together."


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Bags(GroupedRows):
    """Rows grouped in bags, with the mean label each bag reported. Immutable.

    Build one with `Bags.from_rows` (a proportion on every row), `Bags.from_reports` (a table of reports) or
    `Bags.singletons` (every row its own bag: ordinary supervision).

    Attributes
    ----------
    keys : ndarray of shape (m,)
        The bags' ids, sorted.
    order, offsets : ndarray of int
        The table's row numbers in bag order, those in no bag left out: bag j is ``order[offsets[j]:offsets[j + 1]]``.
    size : ndarray of shape (m,)
        Number of rows kⱼ; with weights, of the people whom they stand for.
    proportion : ndarray of shape (m,) or (m, classes)
        Mean label αⱼ of each bag.
    noise_variance : ndarray of shape (m,) or None
        Variance sⱼ² of the zero-mean noise on the reported *count* kⱼ αⱼ (on each class's count if there are classes),
        or None where no noise was declared.
    interval : Intervals or None
        Between which numbers counts lie, where some are hidden, rounded or clamped; `proportion` and `noise_variance`
        of such bags then say about as much (see `bagwise.bags.intervals`). None where all counts are known.
    overlap : Overlap or None
        What bags have in common, where they are of several groupings (see `several`); None where no row is in two.
    weight, offset : ndarray of shape (n_bagged,) or None
        For how many people each row stands, and what is added to its log odds, in bag order (see `with_weights`,
        `with_offset`); None where every row stands for one, and nothing is added.
    n_rows, equal_size : int
        Rows of the table, those in no bag included; and how many rows all bags have where it is one number, else None.

    Examples
    --------
    >>> bags = Bags.from_rows([0.5, 0.5, 1.0], ["a", "a", "b"])
    >>> len(bags), bags.size, bags.proportion
    (2, array([2, 1]), array([0.5, 1. ]))
    >>> bags.sum(np.array([0.1, 0.2, 0.9]))
    array([0.3, 0.9])
    """

    keys: NDArray[Any]
    proportion: Array
    noise_variance: Array | None = None
    interval: Intervals | None = None
    overlap: Overlap | None = None

    # -- building ------------------------------------------------------------------------------------------------

    @classmethod
    def from_rows(cls, y: ArrayLike, ids: ArrayLike, *, noise_variance: ArrayLike | None = None) -> Bags:
        """Bags from row-aligned proportions.

        Parameters
        ----------
        y : array-like of shape (n,) or (n, classes)
            Proportions, constant in a bag.
        ids : array-like of shape (n,)
            The bag of each row. Rows whose id is −1, None or NaN are in no bag and their `y` is not read.
        noise_variance : float or array-like of shape (n,), optional
            Variance of the noise on the bags' counts: one number for all bags or, like `y`, row-aligned.

        Returns
        -------
        Bags
            In the order of their sorted ids.
        """
        return cls.build(**read_rows(y, ids, noise_variance))

    @classmethod
    def from_reports(
        cls,
        ids: ArrayLike,
        reports: Mapping[str, Any] | Any,
        *,
        key: str = "bag",
        proportion: str | list[str] = "proportion",
        count: str | list[str] | None = None,
        size: str | None = None,
        noise_variance: str | None = None,
        low: str | list[str] | None = None,
        high: str | list[str] | None = None,
        on_mismatch: Literal["error", "drop"] = "error",
        sample_weight: ArrayLike | None = None,
    ) -> Bags:
        """Bags from the rows' ids and a table of reports, one line per bag.

        Parameters
        ----------
        ids : array-like of shape (n,)
            The bag of each row, as in `from_rows`.
        reports : dict of columns, or a pandas, polars or Arrow table
            One line per bag; the other arguments name its columns.
        key : str
            The bags' ids.
        proportion, count : str or list of str
            Proportions, or counts in their place: proportions are counts over the number of rows. A list of columns,
            one per class, makes proportions (m, classes).
        size, noise_variance : str, optional
            Reported sizes, which must equal the number of rows; variances of the noise on counts.
        low, high : str or list of str, optional
            In place of `proportion` and `count`, or beside `count` where that is missing: the least and the greatest
            count that a bag may have; lists of columns, one per class, for classes.
        on_mismatch : {"error", "drop"}
            "drop" leaves out reports without rows and treats rows without a report as rows in no bag.
        sample_weight : array-like of shape (n,), optional
            For how many people each row stands (see `with_weights`), whom counts and sizes then count.

        Returns
        -------
        Bags
            In the order of their sorted ids.

        Examples
        --------
        >>> Bags.from_reports(["a", "a", "b"], {"bag": ["b", "a"], "count": [1, 1]}, count="count").proportion
        array([0.5, 1. ])
        >>> hidden = {"bag": ["b", "a"], "least": [1, 0], "most": [1, 1]}
        >>> Bags.from_reports(["a", "a", "b"], hidden, low="least", high="most").interval.open
        array([ True, False])
        """
        check_parameters({"on_mismatch": on_mismatch}, {"on_mismatch": one_of("error", "drop")})
        columns: Any = {"proportion": proportion, "count": count, "size": size, "noise_variance": noise_variance}
        given, ends = read_reports(
            Reports(reports, key), ids, sample_weight, **columns, low=low, high=high, drop=on_mismatch == "drop"
        )
        bags = cls.build(**given)
        return bags if ends is None else bags.with_intervals(*ends)

    def with_weights(self, weight: ArrayLike) -> Bags:
        """The same bags, of which a row stands for several people with the same features.

        Whatever is counted then counts people: a row of weight 3 is the same as three such rows in its bag. Their
        labels are independent given the features, so that survey weights, by which one person's label stands for those
        of others, are no such weights: they make reports seem surer than they are.

        Parameters
        ----------
        weight : array-like of shape (n_rows,)
            Numbers of people, not negative, in the order of the table; need not be whole. Those of rows in no bag are
            not read.

        Returns
        -------
        Bags
            With the same proportions, now of people.

        Examples
        --------
        >>> bags = Bags.from_rows([0.25, 0.25, 1.0], ["a", "a", "b"]).with_weights([3, 1, 2])
        >>> bags.size, bags.sum(np.array([1.0, 0.0, 1.0]))
        (array([4., 2.]), array([3., 2.]))
        """
        if self.overlap is not None:
            raise ParameterError("sample_weight", _BEFORE_SEVERAL)
        made = self._of_rows(weight=weights_of_rows(weight, self.n_rows, self.order, self.offsets, self.keys))
        return made if self.interval is None else made._within(self.interval)

    def with_offset(self, offset: ArrayLike) -> Bags:
        """The same bags, of which something is added to the log odds of each row, such as the log of its exposure.

        Log-linear models of values (`BagTweedieRegressor`) add it to the logarithm of the value that they expect.

        Parameters
        ----------
        offset : array-like of shape (n_rows,)
            Finite numbers, in the order of the table; those of rows in no bag are not read.

        Returns
        -------
        Bags
        """
        if self.overlap is not None:
            raise ParameterError("offset", _BEFORE_SEVERAL)
        return self._of_rows(offset=offsets_of_rows(offset, self.n_rows, self.order))

    def _of_rows(self, **of_rows: Floats) -> Bags:
        """The same bags, with weights or an offset of rows."""
        given = (self.keys, self.order, self.offsets, self.proportion, self.noise_variance, self.n_rows)
        known = (of_rows.get("weight", self.weight), of_rows.get("offset", self.offset))
        return Bags.build(*given, self.__dict__.get("code"), self.interval, *known)

    def with_intervals(self, low: ArrayLike, high: ArrayLike) -> Bags:
        """The same bags, of whose counts no more is known than between which numbers they lie.

        Parameters
        ----------
        low, high : array-like of shape (m,) or (m, classes)
            The least and the greatest count that each bag may have, in the order of `keys`; equal where it is known.
            Where noise is declared, of the noised count; infinite where it has no end. Counts of classes add up to the
            bag: without noise, ends become as tight as those of the other classes make them.

        Returns
        -------
        Bags
            Whose `proportion` and `noise_variance` say about as much to whoever reads these alone.

        Examples
        --------
        >>> bags = Bags.from_rows([0.0] * 4, [0, 0, 1, 1]).with_intervals([0, 1], [1, 1])
        >>> bags.interval.open, float(bags.noise_variance[1])
        (array([ True, False]), 0.0)
        >>> parties = Bags.from_rows([[0.0, 0.0, 0.0]] * 4, [0] * 4).with_intervals([[0, 2, 0]], [[4, 2, 1]])
        >>> parties.interval.low, parties.interval.high
        (array([[1., 2., 0.]]), array([[2., 2., 1.]]))
        """
        ends = [self._end(name, end) for name, end in (("low", low), ("high", high))]
        return self._within(Intervals(ends[0], ends[1], np.array(self.declared_noise)))

    def _end(self, name: str, end: ArrayLike) -> Floats:
        """Ends of intervals, of the shape of proportions."""
        given, shape = reading.as_numbers(end), self.proportion.shape
        if given.shape not in ((), shape):
            raise ParameterError(name, f"must be a number or have shape {shape}, got {given.shape}.")
        return np.broadcast_to(given, shape).copy()

    def _within(self, interval: Intervals) -> Bags:
        """The same bags, of whose counts intervals and their noise alone are known."""
        interval.check(self.size, self.keys)
        interval = interval.tightened(self.size)
        count, noise = interval.as_counts(self.size)
        proportion = count / segment.per_bag(self.size, count)
        given = (self.keys, self.order, self.offsets, proportion, noise, self.n_rows, self.__dict__.get("code"))
        made = Bags.build(*given, interval if interval.open.any() else None, self.weight, self.offset)
        return replace(made, overlap=self.overlap)

    @classmethod
    def singletons(cls, y: ArrayLike) -> Bags:
        """Every row its own bag, in the order of the rows; `y` holds individual labels (n,) or (n, classes).

        Examples
        --------
        >>> Bags.singletons([0, 1, 1]).proportion
        array([0., 1., 1.])
        """
        y = as_labels(y).copy()  # the caller's array stays writable
        n = len(y)
        if n == 0:
            raise ValueError("the table is empty: there must be at least one row.")
        rows = np.arange(n)
        check_finite(y, rows, "label")
        return cls.build(rows, rows, np.arange(n + 1), y, None, n, rows)

    def with_labels(self, labels: ArrayLike) -> Bags:
        """The same with individual labels of some rows: these leave their bag, whose report is less by them.

        A labelled row is then a bag of its own. Nothing that was reported is lost, and nothing counts twice. Where rows
        have weights, a label is that of all for whom the row stands; of a row in no bag, that is one person.

        Parameters
        ----------
        labels : array-like of shape (n,)
            0 or 1, or the number of the class, of rows whose label is known; NaN for others.

        Returns
        -------
        Bags
            Numbered anew: what is left of these bags first, then the labelled rows in the order of the table.

        Examples
        --------
        >>> bags = Bags.from_rows([0.5, 0.5, 0.5, 0.5], [0, 0, 0, 0]).with_labels([np.nan, 1, np.nan, np.nan])
        >>> bags.size, (bags.size * bags.proportion).round(6)
        (array([3, 1]), array([1., 1.]))
        """
        given, of_rows, interval = without_labelled(self, labels)
        made = Bags.build(**given)
        made = made if of_rows["weight"] is None else made.with_weights(of_rows["weight"])
        made = made if of_rows["offset"] is None else made.with_offset(of_rows["offset"])
        return made if interval is None else made._within(interval.take(made.keys))

    @classmethod
    def build(
        cls,
        keys: NDArray[Any],
        order: Integers,
        offsets: NDArray[np.int64],
        proportion: Floats,
        noise_variance: Floats | None,
        n_rows: int,
        codes: Integers | None = None,
        interval: Intervals | None = None,
        weight: Floats | None = None,
        offset: Floats | None = None,
    ) -> Bags:
        """Bags from what they are made of, which must fit together: see the attributes.

        Parameters
        ----------
        keys, order, offsets, proportion, noise_variance, n_rows, interval, weight, offset
            As the attributes.
        codes : array of shape (n,), optional
            The number of each row's bag, −1 for rows in none, where it is known.

        Returns
        -------
        Bags
            These bags; the arrays given may no longer be written to.
        """
        if noise_variance is not None:
            reading.check_noise(noise_variance, keys)
        if codes is not None:
            codes = codes.astype(np.int32 if len(keys) < 2**31 else np.int64)  # half as much to read in `sum_table`
        if interval is not None and not np.all(whole_people(weight, offsets)):
            said = "must hold whole numbers where counts are hidden, rounded or clamped."
            raise ParameterError("sample_weight", said)
        size = rows = np.diff(offsets)
        equal = int(rows[0]) if len(rows) and (rows == rows[0]).all() else None
        if weight is not None:
            size = segment.sum_sorted(weight, offsets, equal_size=equal)
        frozen = (keys, offsets, size, proportion, noise_variance, codes, None if codes is None else order, weight)
        for array in frozen:  # the order of bags that were taken is theirs alone, and torch wants to index with it
            if array is not None:
                array.flags.writeable = False
        reported: Any = {"proportion": proportion, "noise_variance": noise_variance, "interval": interval}
        of_rows: Any = {"order": order, "offsets": offsets, "weight": weight, "offset": offset, "n_rows": n_rows}
        bags = cls(keys=keys, size=size, equal_size=equal, **reported, **of_rows)
        if codes is not None:
            bags.__dict__["code"] = codes  # already known: fill the cache of `code`
        return bags

    # -- reading -------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        kind = "" if self.proportion.ndim == 1 else f", {self.proportion.shape[1]} classes"
        noised = "" if not self.declared_noise.any() else ", noised"
        noised += "" if self.weight is None else f", standing for {self.n_people:,g}"
        noised += "" if self.interval is None else f", {np.count_nonzero(self.interval.open)} counts not known exactly"
        return f"<Bags: {len(self)} bags, {self.n_bagged} of {self.n_rows} rows{kind}{noised}>"

    @property
    def outputs(self) -> Floats:
        """(m, classes) proportions, one column where there are no classes."""
        columns: Floats = self.proportion if self.proportion.ndim == 2 else self.proportion[:, None]
        return columns

    def of_class(self, label: int) -> Bags:
        """The same bags, of labels that are 1 in one of the classes and 0 in all others.

        Parameters
        ----------
        label : int
            The number of the class.

        Returns
        -------
        Bags

        Examples
        --------
        >>> Bags.from_rows([[0.5, 0.0, 0.5]] * 2, [0, 0]).of_class(2).proportion
        array([0.5])
        """
        one = replace(self, proportion=self.proportion[:, label])
        if self.interval is None:
            return one
        interval = Intervals(self.interval.low[:, label], self.interval.high[:, label], self.interval.noise)
        return replace(one, interval=None)._within(interval)

    @property
    def declared_noise(self) -> Floats:
        """(m,) variance of the noise that was added to counts, and 0 where none was; nothing of what is hidden."""
        if self.interval is not None:
            return self.interval.noise
        return np.zeros(len(self)) if self.noise_variance is None else segment.to_numpy(self.noise_variance)

    @property
    def noise_per_row(self) -> Floats:
        """(m,) s_j²/k_j, what declared noise adds to the debiased square of each bag; 0 where none was declared."""
        return np.zeros(len(self)) if self.noise_variance is None else self.noise_variance / self.size

    @property
    def fingerprint(self) -> str:
        """A checksum of sizes and reports in the order of keys, by which bags are known again.

        >>> one, other = Bags.from_rows([0.5, 0.5, 1.0], [0, 0, 1]), Bags.from_rows([0.5, 1.0, 0.5], [3, 7, 3])
        >>> one.fingerprint == other.fingerprint
        True
        """
        reports = np.column_stack([self.size, self.outputs]).astype(float)
        return hashlib.sha256(np.ascontiguousarray(reports).tobytes()).hexdigest()

    def take(self, index: ArrayLike | slice) -> Bags:
        """The chosen bags alone, in the order given, in O(rows chosen); their `order` still points into the table.

        `index` holds whole numbers or booleans, or is a slice.

        Examples
        --------
        >>> bags = Bags.from_rows([0.5, 1.0, 0.5], [7, 8, 7])
        >>> bags.take([1, 0]).order
        array([1, 0, 2], dtype=int32)
        """
        chosen: Any = index if isinstance(index, slice) else np.atleast_1d(index)
        if not isinstance(chosen, slice) and len(chosen) == 0:
            chosen = chosen.astype(np.intp)  # an empty list is one of floats
        order, offsets = segment.take(self.order, self.offsets, chosen)
        proportion = segment.to_numpy(self.proportion)[chosen]
        noise = None if self.noise_variance is None else segment.to_numpy(self.noise_variance)[chosen]
        interval = None if self.interval is None else self.interval.take(chosen)
        weight, offset = (
            None if one is None else segment.take(segment.to_numpy(one), self.offsets, chosen)[0]
            for one in (self.weight, self.offset)
        )
        given = (self.keys[chosen], order, offsets, proportion, noise, self.n_rows, None, interval)
        some = Bags.build(*given, weight, offset)
        return some if self.overlap is None else replace(some, overlap=self.overlap.take(chosen))

    @property
    def shared(self) -> Shared | None:
        """Which bags have rows in common, None where none has."""
        if self.overlap is None:
            return None
        return Shared(self.overlap.table, self.overlap.row[self.order], self.offsets)

    def apart(self) -> Bags:
        """The same bags of a table in which a row stands once for each of its bags, bag after bag."""
        if self.overlap is None:
            raise ValueError("no row is in two bags: there is nothing to take apart.")
        rows, codes = np.arange(self.n_bagged), self.repeat(np.arange(len(self)))
        given = (self.keys, rows, self.offsets, self.proportion, self.noise_variance, self.n_bagged, codes)
        overlap = Overlap(self.overlap.table, self.overlap.row[self.order], apart=True)
        return replace(Bags.build(*given, self.interval, self.weight, self.offset), overlap=overlap)

    def like(self, values: Array) -> Bags:
        """The same bags with what they report in the library, type and device of `values`, an array or tensor."""
        if not is_torch_array(values) and not is_torch_array(self.proportion):
            return self
        names = ("size", "proportion", "noise_variance", "weight", "offset")
        told: dict[str, Any] = {name: segment.as_like(getattr(self, name), values) for name in names}
        return replace(self, **told)

    def check_predictions(self, h: Array) -> None:
        """Raise unless `h`, in bag order, has one prediction per row of the bags, and the classes of proportions."""
        if h.shape[0] != self.n_bagged:
            raise ValueError(
                f"the bags hold {self.n_bagged} rows but {h.shape[0]} predictions were given: "
                "pass one per row of the bags, in bag order (h[bags.order])."
            )
        if tuple(h.shape[1:]) != tuple(self.proportion.shape[1:]):
            wanted = ", ".join(["n", *map(str, self.proportion.shape[1:])]) + "," * (self.proportion.ndim == 1)
            raise ValueError(
                f"predictions have shape {tuple(h.shape)} but the bags' proportions {tuple(self.proportion.shape)}: "
                f"pass predictions of shape ({wanted})."
            )

    def check_proportions(self) -> None:
        """Raise unless proportions are those of binary labels or of classes: in [0, 1], and summing to 1 over classes.

        Bags with declared noise may report anything finite.
        """
        if self.noise_variance is None:
            reading.check_proportions(segment.to_numpy(self.proportion), self.keys)
