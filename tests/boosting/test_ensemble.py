"""Which fits are made, and which are kept."""

from types import SimpleNamespace

import numpy as np
import pytest

import bagwise as bw
from bagwise.boosting.ensemble import Trials, _first_folds
from bagwise.boosting.tuning import Stage


def stage(gain):
    return Stage(10, np.zeros(4), np.ones(4, dtype=bool), np.zeros(4), np.full(3, gain))


def trials(made):
    """Two kinds of two penalties, of which held-out bags like the larger; a job is kind, penalty, effects and fold."""

    class Job(tuple):
        def quick(self):
            return Job((*self, "quick"))

    def jobs(effects):
        folds = range(5)
        return [(kind, p, [Job((kind, p, effects, fold)) for fold in folds]) for kind in ("a", "b") for p in (1.0, 2.0)]

    def fit(some):
        made.extend(some)
        return [SimpleNamespace(stages=[stage(job[1])] if job[0] == "a" or job[2] < 1 else []) for job in some]

    return Trials(jobs, fit)


def test_fits_are_made_once_and_only_for_what_was_chosen():
    made = []
    some = trials(made)
    first = some.of(2, 0.0)
    assert {kind: one.reg_lambda for kind, one in first.items()} == {"a": 2.0, "b": 2.0}
    assert len(made) == len(set(made)) == 2 * 2 * 2
    assert some.of(2, 0.0)["a"].fits == first["a"].fits
    assert len(made) == 8
    whole = some.of(5, 0.0, {"b": first["b"]})
    assert list(whole) == ["b"]
    assert whole["b"].fits[:2] == first["b"].fits
    assert made[8:] == [("b", 2.0, 0.0, fold) for fold in (2, 3, 4)]
    some.of(2, 0.5, first)  # which allow for effects
    assert made[11:] == [(kind, 2.0, 0.5, fold) for kind in ("a", "b") for fold in (0, 1)]
    assert len(some.of(1, 0.0, first)["a"].fits) == 1
    some.of(1, 0.5, first, quick=True)  # others
    assert made[15:] == [(kind, 2.0, 0.5, 0, "quick") for kind in ("a", "b")]


def test_a_kind_in_which_no_tree_grows_is_left_out():
    assert list(trials([]).of(2, 1.0)) == ["a"]


@pytest.mark.parametrize(
    ("held_out", "first"), [([10] * 5, 5), ([95] * 5, 2), ([96] * 5, 1), ([40] * 5, 3), ([500], 1), ([1] * 2, 2)]
)
def test_few_bags_are_all_held_out_before_kinds_are_chosen(held_out, first):
    assert _first_folds([np.zeros(n) for n in held_out]) == first


def test_fits_are_those_of_all_folds_without_what_the_first_have_ruled_out():
    rng = np.random.default_rng(0)
    n = 16_000
    X = rng.normal(size=(n, 3))
    y = (rng.random(n) < 1 / (1 + np.exp(-2 * X[:, 0]))).astype(int)
    ids = bw.random_bags(n, size=16, random_state=0)
    told = []
    model = bw.BagBoostingClassifier(n_estimators=20, n_jobs=1, random_state=0, callback=told.append)
    model.fit(X, bw.aggregate(y, ids), bags=ids)
    assert sum(one["fit"] == 1 for one in told) == 2  # the first fold of both kinds, then the other four
    first, others = (one["fits"] for one in told if one["fit"] == 1)
    assert (first, others % 4) == (2, 0)
    assert len(model.fits_) <= others // 4 <= 2
    assert all(len(fits) == 5 for fits in model.fits_.values())


@pytest.mark.parametrize(("n_bags", "cv", "folds"), [(99, None, 10), (100, None, 5), (99, 3, 3)])
def test_of_few_bags_more_fits_miss_fewer(n_bags, cv, folds):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8 * n_bags, 1))
    ids = bw.random_bags(len(X), size=8, random_state=0)
    y_bag = bw.aggregate(rng.random(len(X)) < 1 / (1 + np.exp(-3 * X[:, 0])), ids)
    model = bw.BagBoostingClassifier(cv=cv, n_estimators=10, kinds=("greedy",), n_jobs=1, random_state=0)
    fits = model.fit(X, y_bag, bags=ids).fits_
    assert {kind: len(own) for kind, own in fits.items()} == {"greedy": folds}
