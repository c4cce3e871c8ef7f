"""Whole bags cut into even parts; what shards hold is tested where they are read."""

from itertools import pairwise

import numpy as np

from bagwise.data.shard_writing import cuts


def test_cuts_are_even_and_leave_no_part_empty():
    rng = np.random.default_rng(0)
    for _ in range(200):
        size, rows = rng.integers(1, rng.choice([3, 50]), rng.integers(1, 40)), int(rng.integers(1, 60))
        found = cuts(size, rows)
        assert found[0] == 0
        assert found[-1] == len(size)
        assert all(b > a for a, b in pairwise(found))
        assert max(size[a : b - 1].sum() for a, b in pairwise(found)) < rows
