"""Bags: which rows form which bag, and what each bag reported."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from array_api_compat import is_torch_array

from bagwise import segment
from bagwise.bags import reading
from bagwise.bags.intervals import Intervals
from bagwise.bags.overlap import Overlap, Shared
from bagwise.bags.reading import Reports, as_labels, check_finite, encode_rows, name
from bagwise.bags.weights import offsets_of_rows, weights_of_rows, whole_people
from bagwise.utils.parameters import ParameterError, check_parameters, one_of
from bagwise.utils.typing import Array, ArrayLike, Floats, Integers, NDArray

_ROUNDING = 1e-6  # proportions that went through float32 or a sum may leave [0, 1] by this much

_NO_TENSORS = "is not for tensors: weights of rows are known to losses of NumPy arrays alone."


@dataclass(frozen=True, eq=False, repr=False)
class Bags:
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
    order: Integers
    offsets: NDArray[np.int64]
    size: Array
    proportion: Array
    n_rows: int
    equal_size: int | None
    noise_variance: Array | None = None
    interval: Intervals | None = None
    overlap: Overlap | None = None
    weight: Floats | None = None
    offset: Floats | None = None

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
        y = as_labels(y)
        codes, keys = encode_rows(ids, len(y))
        order, offsets = segment.group(codes, len(keys))
        proportion = reading.constant_in_bag(y, "proportions", keys, order, offsets)
        noise = None
        if noise_variance is not None:
            try:
                noise_rows = np.broadcast_to(np.asarray(noise_variance, dtype=float), len(y))
            except (TypeError, ValueError) as error:
                wanted = f"must be one number or one per row ({len(y)} rows)."
                raise ParameterError("noise_variance", wanted) from error
            noise = reading.constant_in_bag(noise_rows, "noise variances", keys, order, offsets)
        return cls.build(keys, order, offsets, proportion, noise, len(y), codes)

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
        low: str | None = None,
        high: str | None = None,
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
        low, high : str, optional
            In place of `proportion` and `count`, or beside `count` where that is missing: the least and the greatest
            count that a bag may have, of labels 0 and 1.
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
        table = Reports(reports, key)
        codes, keys = encode_rows(ids)
        line, kept = table.match(keys, drop=on_mismatch == "drop")
        codes, keys = reading.keep(codes, keys, kept)
        order, offsets = segment.group(codes, len(keys))
        weight = None
        if sample_weight is not None:
            weight = weights_of_rows(sample_weight, len(codes), order, offsets, keys)
        rows = np.diff(offsets) if weight is None else np.add.reduceat(weight, offsets[:-1])
        if size is not None:
            reading.check_sizes(table.column(size)[line], rows, keys)
        noise = None if noise_variance is None else table.column(noise_variance)[line]
        if low is not None or high is not None:
            if low is None or high is None or isinstance(count, list):
                raise ParameterError("low", "and high are columns of labels 0 and 1 and go together: give both.")
            ends = [table.column(name)[line] for name in (low, high)]
            if count is not None:
                known = table.column(count)[line]
                ends = [np.where(np.isfinite(known), known, end) for end in ends]
            given = cls.build(keys, order, offsets, np.zeros(len(keys)), noise, len(codes), codes, weight=weight)
            return given.with_intervals(*ends)
        value = table.columns(proportion if count is None else count)[line]
        if count is not None:
            value = value / segment.per_bag(rows, value)
        check_finite(value, keys, "proportion")
        return cls.build(keys, order, offsets, value, noise, len(codes), codes, weight=weight)

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
            raise ParameterError("sample_weight", "does not go with several groupings of the same rows: leave one out.")
        made = self._of_rows(weight=weights_of_rows(weight, self.n_rows, self.order, self.offsets, self.keys))
        if self.interval is None:
            return made
        exact = replace(made, noise_variance=self.interval.noise, interval=None)
        return exact.with_intervals(self.interval.low, self.interval.high)

    def with_offset(self, offset: ArrayLike) -> Bags:
        """The same bags, of which something is added to the log odds of each row, such as the log of its exposure.

        Parameters
        ----------
        offset : array-like of shape (n_rows,)
            Finite numbers, in the order of the table; those of rows in no bag are not read.

        Returns
        -------
        Bags
        """
        if self.overlap is not None:
            raise ParameterError("offset", "does not go with several groupings of the same rows: leave one out.")
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
        low, high : array-like of shape (m,)
            The least and the greatest count that each bag may have, in the order of `keys`; equal where it is known.
            Where noise is declared, of the noised count; infinite where it has no end.

        Returns
        -------
        Bags
            Whose `proportion` and `noise_variance` say about as much to whoever reads these alone.

        Examples
        --------
        >>> bags = Bags.from_rows([0.0] * 4, [0, 0, 1, 1]).with_intervals([0, 1], [1, 1])
        >>> bags.interval.open, float(bags.noise_variance[1])
        (array([ True, False]), 0.0)
        """
        if self.proportion.ndim == 2:
            raise ParameterError("low", "and high are for labels 0 and 1: classes have no intervals.")
        ends = [np.broadcast_to(reading.as_numbers(end), len(self)).copy() for end in (low, high)]
        interval = Intervals(ends[0], ends[1], np.array(self.declared_noise))
        interval.check(self.size, self.keys)
        count, noise = interval.as_counts(self.size)
        codes = self.__dict__.get("code")
        given = (self.keys, self.order, self.offsets, count / self.size, noise, self.n_rows)
        made = Bags.build(*given, codes, interval if interval.open.any() else None, self.weight, self.offset)
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

        A labelled row is then a bag of its own. Nothing that was reported is lost, and nothing counts twice.

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
        y = np.asarray(labels, dtype=float)
        if y.shape != (self.n_rows,):
            raise ParameterError(
                "labels", f"must hold one label or NaN per row, shape ({self.n_rows},), got {y.shape}."
            )
        if self.weight is not None or self.offset is not None:
            raise ParameterError("labels", "of rows do not go with weights or an offset: leave one of them out.")
        known = ~np.isnan(y)
        classes = max(self.outputs.shape[1], 2)
        if not np.isin(y[known], np.arange(classes)).all():
            raise ParameterError("labels", f"must be 0 to {classes - 1}, or NaN for rows without a label.")
        told: Floats = np.where(known, y, 0.0)[:, None]
        if self.proportion.ndim == 2:
            told = (y[:, None] == np.arange(classes)).astype(float)
        inside = known & (self.code >= 0)
        taken = np.bincount(self.code[inside], minlength=len(self))
        left, kept = np.empty_like(self.outputs), self.size - taken
        for c in range(left.shape[1]):
            count = np.bincount(self.code[inside], told[inside, c], minlength=len(self))
            left[:, c] = (self.size * self.outputs[:, c] - count) / np.maximum(kept, 1)
        wrong = (kept > 0) & ((left < -_ROUNDING) | (left > 1 + _ROUNDING)).any(axis=1)
        if self.noise_variance is None and wrong.any():
            key = name(self.keys[int(np.argmax(wrong))])
            raise ValueError(f"labels of rows of bag {key} do not fit its report: what is left would be no proportion.")
        ids = np.where(known, len(self) + np.cumsum(known) - 1, self.code)
        rows = np.where(known[:, None], told, left[np.maximum(self.code, 0)])
        noise = None
        if self.noise_variance is not None:
            noise = np.where(known, 0.0, self.noise_variance[np.maximum(self.code, 0)])
        made = Bags.from_rows(rows if self.proportion.ndim == 2 else rows[:, 0], ids, noise_variance=noise)
        if self.interval is None:
            return made
        own = np.bincount(self.code[inside], told[inside, 0], minlength=len(self))  # known ones of each bag
        own = np.concatenate([own, -told[known, 0]])  # labelled rows are their own interval
        ends = [np.append(end, np.zeros(known.sum())) - own for end in (self.interval.low, self.interval.high)]
        exact = replace(made, noise_variance=np.append(self.interval.noise, np.zeros(known.sum()))[made.keys])
        return exact.with_intervals(*(end[made.keys] for end in ends))

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
        if noise_variance is not None and not (good := np.isfinite(noise_variance) & (noise_variance >= 0)).all():
            j = int(np.argmin(good))
            raise ValueError(
                f"bag {name(keys[j])} has noise variance {noise_variance[j]}: it must be finite and not negative."
            )
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
        bags = cls(
            keys, order, offsets, size, proportion, n_rows, equal, noise_variance, interval, None, weight, offset
        )
        if codes is not None:
            bags.__dict__["code"] = codes  # already known: fill the cache of `code`
        return bags

    # -- reading -------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.offsets) - 1

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

    @cached_property
    def code(self) -> Integers:
        """(n_rows,) number of each table row's bag, −1 where it has none; an error if a bag was taken twice."""
        codes = segment.codes_of(self.order, self.offsets, self.n_rows)
        codes.flags.writeable = False
        return codes

    @property
    def fingerprint(self) -> str:
        """A checksum of sizes and reports in the order of keys, by which bags are known again.

        >>> one, other = Bags.from_rows([0.5, 0.5, 1.0], [0, 0, 1]), Bags.from_rows([0.5, 1.0, 0.5], [3, 7, 3])
        >>> one.fingerprint == other.fingerprint
        True
        """
        reports = np.column_stack([self.size, self.outputs]).astype(float)
        return hashlib.sha256(np.ascontiguousarray(reports).tobytes()).hexdigest()

    @property
    def n_bagged(self) -> int:
        """Rows that are in a bag."""
        return int(self.offsets[-1])

    @property
    def rows(self) -> Integers:
        """(m,) rows of each bag, however many people each stands for."""
        return np.asarray(self.size) if self.weight is None else np.diff(self.offsets)

    @property
    def n_people(self) -> float:
        """People whom rows in bags stand for: as many as there are rows, without weights."""
        return self.n_bagged if self.weight is None else float(self.weight.sum())

    def average(self, values: Array) -> Any:
        """The mean of `values` (n_bagged, …) over all rows in bags, each as often as it stands for someone."""
        return values.mean(axis=0) if self.weight is None else self.weight @ values / self.n_people

    def weighted(self, values: Array) -> Array:
        """Each of `values` (n_bagged, …) times the weight of its row; as they are without weights."""
        if self.weight is None:
            return values
        if is_torch_array(values):
            raise ParameterError("sample_weight", _NO_TENSORS)
        return segment.per_bag(self.weight, values) * values

    def of_table(self, of_rows: Floats | None) -> Floats | None:
        """(n_rows,) what `weight` or `offset` says, in the order of the table; 0 for rows in no bag."""
        if of_rows is None:
            return None
        found = np.zeros(self.n_rows)
        found[self.order] = of_rows
        return found

    def sum(self, values: Array) -> Array:
        """Sum per bag (m, …) of `values` (n_bagged, …), one per row of the bags in bag order: an array or a tensor.

        Rows count as often as their weights say.
        """
        values = self.weighted(values)
        return segment.sum_sorted(values, self.offsets, equal_size=self.equal_size)

    def mean(self, values: Array) -> Array:
        """Mean per bag (m, …) of `values` (n_bagged, …), as `sum` takes them."""
        total = self.sum(values)
        return total / segment.per_bag(self.like(values).size, total)

    def sum_table(self, values: NDArray[Any]) -> Floats:
        """Sum per bag (m, …) of `values` (n_rows, …) in table order, rows in no bag included, without sorting them."""
        if len(values) != self.n_rows:
            raise ValueError(f"the bags were built on {self.n_rows} rows but {len(values)} were given.")
        if self.equal_size == 1 and self.n_bagged == self.n_rows:
            values = np.asarray(values, dtype=float)
            return np.asarray(self.weighted(values if self._in_order else values[self.order]))
        if "code" in self.__dict__:  # the whole table: one pass from front to back
            return segment.sum_table(values, self.code, len(self), weight=self.of_table(self.weight))
        chosen = np.asarray(values)[self.order].astype(np.float64, copy=False)
        return np.asarray(segment.sum_sorted(self.weighted(chosen), self.offsets))

    @cached_property
    def _in_order(self) -> bool:
        return bool((self.order == np.arange(self.n_bagged)).all())

    def repeat(self, values: Array) -> Array:
        """Each row's copy (n_bagged, …) of its bag's value, in bag order; `values` (m, …): an array or a tensor."""
        return segment.repeat(values, self.offsets, equal_size=self.equal_size)

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
            None if one is None else segment.take(one, self.offsets, chosen)[0] for one in (self.weight, self.offset)
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
        rows, codes = np.arange(self.n_bagged), np.repeat(np.arange(len(self)), self.size)
        given = (self.keys, rows, self.offsets, self.proportion, self.noise_variance, self.n_bagged, codes)
        overlap = Overlap(self.overlap.table, self.overlap.row[self.order], apart=True)
        return replace(Bags.build(*given, self.interval), overlap=overlap)

    def like(self, values: Array) -> Bags:
        """The same bags with sizes and proportions in the library, type and device of `values`, an array or tensor."""
        if not is_torch_array(values) and not is_torch_array(self.proportion):
            return self
        if self.weight is not None:
            raise ParameterError("sample_weight", _NO_TENSORS)
        given = (self.size, self.proportion, self.noise_variance)
        size, proportion, noise = (segment.as_like(array, values) for array in given)
        return replace(self, size=size, proportion=proportion, noise_variance=noise)

    def check_predictions(self, h: Array) -> None:
        """Raise unless `h`, in bag order, has one prediction per row of the bags, and the classes of proportions."""
        if h.shape[0] != self.n_bagged:
            raise ValueError(
                f"the bags hold {self.n_bagged} rows but {h.shape[0]} predictions were given: "
                "pass one per row of the bags, in bag order (h[bags.order])."
            )
        if self.weight is not None and is_torch_array(h):
            raise ParameterError("sample_weight", _NO_TENSORS)
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
        if self.noise_variance is not None:
            return
        proportion = segment.to_numpy(self.proportion)
        outside = (proportion < -_ROUNDING) | (proportion > 1 + _ROUNDING)
        if outside.any():
            j = int(np.argwhere(outside)[0][0])
            raise ValueError(
                f"bag {name(self.keys[j])} reports proportion {proportion[j]}, outside [0, 1]: pass proportions, "
                "not counts, or declare the noise on the counts with noise_variance."
            )
        total = proportion.sum(axis=1) if proportion.ndim == 2 else np.ones(1)
        if (np.abs(total - 1) > 1e-6).any():
            j = int(np.argmax(np.abs(total - 1) > 1e-6))
            raise ValueError(
                f"bag {name(self.keys[j])} reports class proportions that sum to {total[j]:.6g}: they must sum to 1."
            )
