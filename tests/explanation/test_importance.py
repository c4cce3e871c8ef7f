"""What bags lose without a column, in every formation; partial dependence; pictures of both."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import expit, logit

import bagwise as bw
from bagwise.explanation.importance import measure_importances
from bagwise.formation import Told

K, M = 16, 200
FORMATIONS = ("random", "rates", "features", "effects")


class Known:
    """A model that is right in what it says of the first column, and takes noise in the second for something."""

    def __init__(self, weights):
        self.weights = np.asarray(weights)

    def predict_proba(self, X):
        h = expit(np.asarray(X, dtype=float) @ self.weights)
        return np.column_stack([1 - h, h])


class KnownValues(Known):
    def predict(self, X):
        return np.asarray(X, dtype=float) @ self.weights

    predict_proba = property()


def bags_of(formation, rng, m=M):
    """Rows of bags of a formation; labels depend on the first column alone."""
    ids = np.repeat(np.arange(m), K)
    X = rng.normal(size=(m * K, 3))
    y = rng.random(m * K) < expit(1.5 * X[:, 0])
    if formation == "random":
        ids = rng.permutation(ids)
    elif formation == "rates":
        # Rows of each label, dealt to bags by rates of their own.
        pool = [list(rng.permutation(np.flatnonzero(y == label))) for label in (0, 1)]
        rate, order = expit(rng.normal(size=m)), []
        for j in range(m):
            for _ in range(K):
                label = int(rng.random() < rate[j])
                order.append((pool[label] or pool[1 - label]).pop())
        X, y = X[order], y[order]
    else:
        X[:, 0] += np.repeat(rng.normal(size=m), K)
        u = 0.7 * np.repeat(rng.normal(size=m), K) if formation == "effects" else 0.0
        y = rng.random(m * K) < expit(1.5 * X[:, 0] + u)
    return X, bw.aggregate(y, ids), ids


def permuted(model, X, y, ids, formation, rng):
    return bw.permutation_importance(model, X, y, bags=ids, formation=formation, n_repeats=2, random_state=rng)


@pytest.mark.parametrize("formation", FORMATIONS)
def test_noise_loses_nothing_on_average_and_what_matters_something(formation, seed):
    """A column of noise that the model uses: its permutation is one more draw of the same law."""
    rng = np.random.default_rng([seed, 1])
    noise, covered, found, trials = [], 0, None, 60
    for _ in range(trials):
        X, y, ids = bags_of(formation, rng, m=60)
        found = {one.column: one for one in permuted(Known([1.5, 0.7, 0.0]), X, y, ids, formation, rng).columns}
        noise.append(found["x1"].lost.value)
        covered += found["x1"].lost.low <= 0 <= found["x1"].lost.high
        assert found["x2"].lost.value == pytest.approx(0, abs=1e-12)  # the model does not look at it
    error = np.std(noise, ddof=1) / np.sqrt(trials)
    assert abs(np.mean(noise)) < 5 * error
    assert stats.binomtest(int(covered), trials, 0.92, alternative="less").pvalue > 1e-6
    X, y, ids = bags_of(formation, rng, m=400)
    told = permuted(Known([1.5, 0.0, 0.0]), X, y, ids, formation, rng)
    assert told.columns[0].column == "x0"
    assert told.columns[0].clear
    assert told.measure == ("square loss of a row" if formation in ("random", "rates") else "log-likelihood of a bag")


@pytest.mark.parametrize("formation", ["random", "rates"])
def test_what_is_lost_is_the_square_loss_of_single_rows(formation, seed):
    """Intervals hold what labels themselves tell of many rows."""
    rng = np.random.default_rng([seed, 2])
    model, truth = Known([1.5, 0.7, 0.0]), np.random.default_rng(0)
    x = truth.normal(size=(400_000, 3))
    p, h = expit(1.5 * x[:, 0]), model.predict_proba(x)[:, 1]
    if formation == "rates":  # labels 0 and 1 in other shares: rows of each are as they were
        wanted = 0.5
        weight = np.where(truth.random(len(p)) < p, wanted / p.mean(), (1 - wanted) / (1 - p.mean()))
        assert np.allclose(weight.mean(), 1, atol=0.01)
    other = model.predict_proba(np.column_stack([truth.permutation(x[:, 0]), x[:, 1:]]))[:, 1]
    lost = float(np.mean((p - other) ** 2 - (p - h) ** 2))
    covered, trials = 0, 40
    for _ in range(trials):
        X, y, ids = bags_of(formation, rng, m=100)
        found = {one.column: one.lost for one in permuted(model, X, y, ids, formation, rng).columns}
        covered += found["x0"].low <= lost <= found["x0"].high
    assert stats.binomtest(int(covered), trials, 0.92, alternative="less").pvalue > 1e-6


def test_values_lose_square_error(seed):
    rng = np.random.default_rng([seed, 3])
    X = rng.normal(size=(6400, 2))
    y = 3 * X[:, 0] + rng.normal(size=6400)
    ids = bw.random_bags(6400, size=16, random_state=rng)
    model = bw.BagRidgeRegressor(random_state=0, nonnegative=False).fit(X, bw.aggregate(y, ids), bags=ids)
    fresh = bw.random_bags(6400, size=16, random_state=rng)
    found = bw.permutation_importance(model, X, bw.aggregate(y, fresh), bags=fresh, random_state=0)
    first = found.columns[0]
    assert first.column == "x0"
    assert abs(first.lost.value - 18) < 5 * first.lost.standard_error  # 2·9 of Var(w(x − x'))
    moved = X + np.repeat(rng.normal(size=(400, 2)), 16, axis=0)
    ids = np.repeat(np.arange(400), 16)
    y = bw.aggregate(moved @ [3, 0], ids)
    found = bw.permutation_importance(model, moved, y, bags=ids, formation="features", random_state=0)
    assert found.measure == "square error of bags"
    assert found.columns[0].column == "x0"
    assert found.columns[0].clear


def test_importances_of_single_rows_are_those_of_labels():
    """One row per bag: the loss is the plain difference of squares."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    y = (rng.random(500) < expit(X[:, 0])).astype(float)
    model, bags = Known([1.0, 0.5]), bw.Bags.singletons(y)
    h = model.predict_proba(X)[:, 1]
    orders = []

    def shuffled(column, order):
        orders.append((column, order))
        moved = X.copy()
        moved[:, column] = X[order, column]
        return model.predict_proba(moved)[:, 1]

    told = Told("random", "rows")
    found = measure_importances(h, bags, shuffled, ["a", "b"], told, values=False, n_repeats=2, random_state=1)
    for number, name in enumerate("ab"):
        losses = [np.mean((y - shuffled(c, order)) ** 2) for c, order in orders[:4] if c == number]
        (one,) = (one for one in found.columns if one.column == name)
        assert one.lost.value == pytest.approx(np.mean(losses) - np.mean((y - h) ** 2), abs=1e-12)


def test_tables_keep_their_names_and_kinds():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.normal(size=3200), "kind": rng.choice(["a", "b"], 3200)})
    y = rng.random(3200) < expit(2 * table["age"])
    ids = bw.random_bags(3200, size=8, random_state=0)
    model = bw.BagBoostingClassifier(n_estimators=15, cv=2, n_jobs=1, random_state=0)
    model.fit(table, bw.aggregate(y, ids), bags=ids)
    found = bw.permutation_importance(model, table, bw.aggregate(y, ids), bags=ids, random_state=0)
    assert [one.column for one in found.columns] == ["age", "kind"]
    frame = found.to_frame()
    assert list(frame.index) == ["age", "kind"]
    assert list(frame) == ["lost", "standard_error", "low", "high"]
    assert "age" in str(found)
    dependence = bw.partial_dependence(model, table, "kind")
    assert list(dependence.values) == ["a", "b"]
    assert found.plot().ax_.get_yticklabels()[0].get_text() == "age"
    assert dependence.plot().ax_.get_ylabel() == "kind"


def test_partial_dependence_is_the_mean_prediction_of_changed_rows():
    X = np.random.default_rng(0).normal(size=(300, 2))
    model = Known([1.0, -1.0])
    found = bw.partial_dependence(model, X, 1)
    for value, h in zip(found.values, found.predictions, strict=True):
        assert h == pytest.approx(expit(X[:, 0] - value).mean())
    assert (np.diff(found.predictions) < 0).all()
    assert len(found.values) == 20
    assert set(found.values) <= set(X[:, 1])
    line = bw.BagDependenceDisplay(found).plot().ax_.lines[0]
    assert np.array_equal(line.get_ydata(), found.predictions)
    with pytest.raises(ValueError, match="column must be the number or the name of a column of X, got 'age'"):
        bw.partial_dependence(model, X, "age")


def test_the_largest_contributions_are_drawn_first():
    X = np.random.default_rng(0).normal(size=(640, 3))
    model = bw.BagRidgeClassifier(random_state=0).fit(X, X[:, 1] > 0)
    shown = model.explain(X).plot(0)
    assert shown.ax_.get_yticklabels()[0].get_text() == "x1"
    assert np.sign(shown.ax_.patches[0].get_width()) == np.sign(model.explain(X).contributions[0, 1])
    assert logit(model.predict_proba(X)[0, 1]) == pytest.approx(model.explain(X).scores[0])
