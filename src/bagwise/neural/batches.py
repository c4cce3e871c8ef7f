"""Batches of whole bags.

Bags are shuffled in every pass and cut into batches of about as many rows as asked for. Each batch holds two bags or
more, however large they are, since the mean prediction is estimated on the *other* bags of a batch: bags larger than a
batch come two or three together, and memory is what these need.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from bagwise import segment
from bagwise.bags import Bags
from bagwise.bags.pieces import stretch
from bagwise.utils.parameters import check_parameters, whole
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.typing import ArrayLike, Integers, NDArray


def cut(size: Integers, rows: int) -> NDArray[np.int64]:
    """Where to cut a sequence of bags into batches of about `rows` rows: batch b holds bags cuts[b] to cuts[b + 1].

    Batches are as even as whole bags allow, so that none is a small remainder, and hold two bags or more.

    >>> cut(np.full(10, 4), 12)
    array([ 0,  3,  7, 10])
    >>> cut(np.array([1, 1, 50, 1, 1]), 4)
    array([0, 3, 5])
    """
    ends = np.cumsum(size)
    m, total = len(size), int(ends[-1])
    batches = max(1, min(m // 2, round(total / rows)))
    number = np.arange(1, batches)
    wanted = number * total / batches
    after = np.minimum(np.searchsorted(ends, wanted), m - 1)
    before = np.where(after > 0, ends[after - 1], 0)
    cuts = after + (ends[after] - wanted <= wanted - before)  # the nearer end of the bag that is met
    cuts = np.maximum.accumulate(np.maximum(cuts - 2 * number, 0)) + 2 * number
    return np.concatenate([[0], np.minimum(cuts, m - 2 * (batches - number)), [m]]).astype(np.int64)


class BagBatchSampler:
    """Rows of whole bags in batches, in a new order of bags each time it is iterated over.

    As `batch_sampler` of a torch `DataLoader` it yields lists of row numbers; let the data set return each row's number
    too and `bags_of` gives the batch's `Bags` for the loss. In a loop without a loader `batches` yields the `Bags`
    themselves, and ``X[batch.order]`` are their rows.

    Parameters
    ----------
    bags : Bags
        Two or more.
    rows : int, default 1024
        About how many rows a batch has (see `cut`).
    random_state : int, numpy.random.Generator or None
        For the order of the bags.

    Examples
    --------
    >>> bags = Bags.from_rows([0.5, 1.0, 0.5, 0.0], ["a", "b", "a", "c"])
    >>> sampler = BagBatchSampler(bags, rows=4, random_state=0)
    >>> list(sampler), len(sampler)
    ([[3, 0, 2, 1]], 1)
    >>> sampler.bags_of([3, 0, 2, 1]).proportion
    array([0. , 0.5, 1. ])
    """

    def __init__(self, bags: Bags, *, rows: int = 1024, random_state: RandomState = None) -> None:
        check_parameters({"rows": rows}, {"rows": whole(1)})
        if len(bags) < 2:
            raise ValueError("there is one bag only: a batch needs at least 2.")
        self.bags, self.rows = bags, rows
        self._rng = generator(random_state)

    def __len__(self) -> int:
        """Batches in one pass."""
        return len(cut(self.bags.rows, self.rows)) - 1

    def __iter__(self) -> Iterator[list[int]]:
        """Row numbers of each batch, bag after bag."""
        for batch in self.batches():
            yield batch.order.tolist()

    def batches(self) -> Iterator[Bags]:
        """One pass over the bags.

        Yields
        ------
        Bags
            Those of a batch; `order` points into the whole table.
        """
        index = self._rng.permutation(len(self.bags))
        for start, stop in pairwise(cut(self.bags.rows[index], self.rows)):
            yield self.bags.take(index[start:stop])

    def bags_of(self, rows: ArrayLike) -> Bags:
        """The bags of a batch.

        Parameters
        ----------
        rows : array of shape (n,)
            Row numbers as the sampler gave them.

        Returns
        -------
        Bags
            The bags that these rows are, in their order.
        """
        place = segment.to_numpy(rows)
        code = self.bags.code[place]
        first = np.flatnonzero(np.diff(code, prepend=-1))
        batch = self.bags.take(code[first])
        if not np.array_equal(batch.order, place):
            raise ValueError("rows are not those of whole bags, bag after bag: pass a batch's rows as they were given.")
        return batch


class BagTensors:
    """Rows in bag order on a device, dealt out in batches of whole bags. What training loops run on.

    X: (n_bagged, …) rows in bag order.  bags: theirs.  Nothing is checked and little is built per batch: a small
    network's step takes less than a millisecond.
    """

    def __init__(self, X: Tensor, bags: Bags) -> None:
        self.X, self.bags = X, replace(bags, order=np.arange(bags.n_bagged), n_rows=bags.n_bagged)

    def epoch(
        self, rng: np.random.Generator, rows: int, chosen: Integers | None = None
    ) -> Iterator[tuple[Tensor, Bags]]:
        """One pass over the chosen bags (all by default): each batch's rows and bags."""
        index, equal = rng.permutation(len(self.bags) if chosen is None else chosen), self.bags.equal_size
        for batch in deal(replace(self.bags.take(index).like(self.X), equal_size=equal), rows):
            place = torch.from_numpy(batch.order).to(self.X.device)
            if equal is None:
                yield self.X.index_select(0, place), batch
            else:  # longer stretches of memory are faster to gather
                by_bag = self.X.reshape(len(self.bags), -1)
                yield by_bag.index_select(0, place[::equal] // equal).view(-1, *self.X.shape[1:]), batch


def deal(bags: Bags, rows: int) -> Iterator[Bags]:
    """The bags, one after the other, in batches of about `rows` rows."""
    for start, stop in pairwise(cut(np.diff(bags.offsets), rows).tolist()):
        yield stretch(bags, start, stop)
