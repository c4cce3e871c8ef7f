"""Sums over rows that several processes hold are those of all rows in one place."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Barrier

import numpy as np
import pytest
from scipy.special import expit

from bagwise.bags import Bags
from bagwise.boosting.links import IDENTITY, LOGIT
from bagwise.boosting.objectives import CountLikelihood, DebiasedSquare
from bagwise.boosting.parts import Parts
from bagwise.log_odds import prior_of, shift_to
from tests.weighted import drawn


def cut(bags: Bags, n_parts: int) -> list[np.ndarray]:
    return np.array_split(np.arange(len(bags)), n_parts)


def together(bags: Bags, n_processes: int, n_parts: int) -> list[Parts]:
    """The parts of each of several processes, which are threads here."""
    meet, said = Barrier(n_processes, timeout=20), {}
    numbers = cut(bags, n_parts)

    def parts(rank: int) -> Parts:
        def gather(own: np.ndarray) -> np.ndarray:
            said[rank] = own
            meet.wait()
            every = np.concatenate([said[one] for one in range(n_processes)])
            meet.wait()
            return every

        mine = np.array_split(np.arange(n_parts), n_processes)[rank]
        return Parts([bags.take(numbers[one]) for one in mine], bags, [numbers[one] for one in mine], gather)

    return [parts(rank) for rank in range(n_processes)]


def known(bags: Bags, kind: str) -> Bags:
    """The bags, of which some is noised, or hidden."""
    rng = np.random.default_rng(3)
    if kind == "hidden":
        count = np.rint(bags.size * bags.proportion)
        open_ = rng.random(len(bags)) < 0.4
        return bags.with_intervals(np.where(open_, 0, count), np.where(open_, np.minimum(9, bags.size), count))
    ids = bags.code
    noise = rng.choice([0.0, 0.0, 4.0], len(bags))
    return Bags.from_rows(bags.proportion[ids], ids, noise_variance=noise[ids])


@pytest.mark.parametrize("kind", ["weighted", "noised", "hidden"])
@pytest.mark.parametrize("which", ["likelihood", "effects", "square", "square of log odds"])
def test_trees_see_the_rows_of_all_processes(kind, which):
    given, rng = drawn("features", n=600, m=30), np.random.default_rng(1)
    bags = given.bags if kind == "weighted" else known(given.repeated, kind)
    n = bags.n_bagged
    leaf, s = rng.integers(0, 5, n), 0.5 * rng.normal(size=n)
    s = expit(s) if which == "square" else s

    def made(parts: Parts, places: slice) -> list[np.ndarray]:
        objective = (
            DebiasedSquare(parts, 0, prior_of(bags), IDENTITY if which == "square" else LOGIT)
            if which.startswith("square")
            else CountLikelihood(parts, prior_of(bags), 0.2 if which == "effects" else 0.0)
        )
        found = []
        for _ in range(2):  # shift, tilts and hidden counts of the second begin at those of the first
            found += [np.ones(1) if one is None else one for one in objective.gradient(s[places])]
            found.append(objective.leaf_values(leaf[places], 5, 3.0))
        return found

    expected = made(Parts.of(bags), slice(None))
    for n_processes in (1, 2, 3):
        processes = together(bags, n_processes, 6)
        ends = np.cumsum([0, *(parts.places[-1].stop for parts in processes)])
        with ThreadPoolExecutor(n_processes) as threads:
            places = [slice(first, last) for first, last in pairwise(ends)]
            said = list(threads.map(made, processes, places))
        for number, one in enumerate(expected):
            if number % 3 == 2:  # leaf values: all know the same
                for own in said:
                    np.testing.assert_array_equal(own[number], said[0][number])
                    np.testing.assert_allclose(own[number], one, rtol=1e-3, atol=1e-5)
            elif len(one) == n:
                joined = np.concatenate([own[number] for own in said])
                np.testing.assert_allclose(joined, one, rtol=1e-3, atol=1e-5)
        if n_processes == 1:
            alone = said[0]
        for number in (2, 5):  # and to the last digit, however many they are
            np.testing.assert_array_equal(said[0][number], alone[number])


def test_the_mean_of_rows_elsewhere_moves_scores_too():
    bags = Bags.from_rows(np.repeat([0.2, 0.6, 0.4], 40), np.repeat([0, 1, 2], 40))
    s = np.random.default_rng(0).normal(size=120)
    processes = together(bags, 2, 3)
    with ThreadPoolExecutor(2) as threads:
        found = threads.map(lambda parts, own: shift_to(0.4, own, rows=parts), processes, (s[:80], s[80:]))
    np.testing.assert_allclose(list(found), shift_to(0.4, s), rtol=1e-9)
