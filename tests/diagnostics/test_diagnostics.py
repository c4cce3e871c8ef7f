import tracemalloc
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.stats import binomtest

import bagwise as bw
from bagwise.diagnostics import diagnose


def log(rng, n=6400):
    """Rows with a skewed, a binary, a normal and a categorical feature, and labels that depend on two of them."""
    frame = pd.DataFrame(
        {
            "spend": rng.lognormal(sigma=2, size=n),
            "mobile": rng.random(n) < 0.1,
            "age": rng.normal(40, 10, n),
            "country": np.array(["de", "fr", "us", "jp", "br"])[np.minimum(rng.geometric(0.5, n) - 1, 4)],
        }
    )
    eta = 1 / (1 + np.exp(-(0.05 * (frame["age"] - 40) + 2 * frame["mobile"] - 1)))
    return frame, (rng.random(n) < eta).to_numpy().astype(float)


def by(values, size):
    """Ids of bags of rows that are next to each other in `values`."""
    return np.argsort(np.argsort(values, kind="stable"), kind="stable") // size


# -- random bags -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 32, 640])
def test_random_bags_raise_false_alarms_at_most_at_the_nominal_rate(size, seed):
    rng = np.random.default_rng([seed, size])
    frame, y = log(rng)
    alarms = 0
    for _ in range(30):
        ids = bw.random_bags(len(y), size, rng)
        found = diagnose(frame, bw.aggregate(y, ids), bags=ids, level=0.1, quick_model=False)
        alarms += bool(found.unusual)
        assert found.too_few or found.random == (not found.drifting and found.formation.name == "random")
    assert binomtest(alarms, 30, 0.1, alternative="greater").pvalue > 1e-4


def test_noised_random_bags_stay_random(seed):
    rng = np.random.default_rng([seed, 3])
    frame, y = log(rng)
    alarms = 0
    for _ in range(30):
        ids = bw.random_bags(len(y), 32, rng)
        noise = rng.laplace(scale=2.0, size=200)[np.maximum(ids, 0)] / 32
        noised = bw.aggregate(y, ids) + noise
        found = diagnose(frame, noised, bags=ids, noise_variance=8.0, level=0.1, quick_model=False)
        alarms += not found.random
        assert found.leaks.revealed_rows == 0
    assert binomtest(alarms, 30, 0.1, alternative="greater").pvalue > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("law", ["laplace", "normal"])
def test_noise_that_dominates_raises_false_alarms_at_most_at_the_nominal_rate(law, seed):
    """The square of Laplace noise varies more than that of normal noise with the same variance."""
    rng = np.random.default_rng([seed, 4])
    ids, alarms = np.arange(6400) // 32, 0
    for _ in range(150):
        y = (rng.random(6400) < 0.3).astype(float)
        noise = rng.laplace(scale=10, size=200) if law == "laplace" else rng.normal(scale=200**0.5, size=200)
        noised = bw.aggregate(y, ids) + noise[ids] / 32
        alarms += diagnose(np.empty((6400, 0)), noised, bags=ids, noise_variance=200.0).proportions.p_value < 0.1
    # The p-value is multiplied by four, for the questions asked.
    assert binomtest(int(alarms), 150, 0.1 / 4, alternative="greater").pvalue > 1e-4


@pytest.mark.parametrize("bags", [4, 10, 15])
def test_few_random_bags_raise_false_alarms_at_most_at_the_nominal_rate(bags, seed):
    """Gamma laws gave p-values of a drift that no order of few bags can have, and one alarm in ten."""
    rng, alarms = np.random.default_rng([seed, bags]), 0
    for _ in range(40):
        X, y = rng.normal(size=(bags * 32, 4)), (rng.random(bags * 32) < 0.4).astype(float)
        ids = np.arange(bags * 32) // 32
        found = diagnose(X, bw.aggregate(y, ids), bags=ids, level=0.1, quick_model=False)
        alarms += bool(found.unusual)
        assert found.too_few == (bags < 12)
        if found.too_few:
            assert (found.formation.name, found.sureness) == ("effects", "open")
            assert found.verdict.startswith(f"not told: {bags} bags are too few")
    assert binomtest(alarms, 40, 0.1, alternative="greater").pvalue > 1e-4


def test_four_bags_cannot_drift():
    """Four bags in two halves have three orders: none is rarer than one in three."""
    X = np.arange(256.0)[:, None]
    found = diagnose(X, np.repeat([0.0, 0.25, 0.75, 1.0], 64), bags=np.arange(256) // 64)
    assert all(one.p_value > 0.3 for one in found.drift)
    assert found.proportions.p_value < 1e-6


# -- power --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("column", "size"), [("spend", 8), ("mobile", 64), ("age", 64), ("country", 64)])
def test_bags_sorted_by_a_feature_are_found_and_named(column, size):
    rng = np.random.default_rng(0)
    frame, y = log(rng)
    key = frame[column] if column != "country" else frame[column].map({"de": 0, "fr": 1, "us": 2, "jp": 3, "br": 4})
    ids = rng.permutation(len(y) // size)[by(key.to_numpy() + 1e-9 * rng.random(len(y)), size)]
    found = diagnose(frame, bw.aggregate(y, ids), bags=ids)
    assert not found.random
    assert found.formation.name == "features"
    assert found.verdict.startswith(f"features: bags differ in feature '{column}'")
    assert found.sureness == "clear"
    assert found.features[list(frame).index(column)].p_value < 1e-6
    assert "not known from such bags alone" in found.advice


def moments(place):
    return pd.Series(pd.Timestamp("2024-02-28") + pd.to_timedelta(place, unit="h"))


COLUMNS = {  # a column that sorts as `place` does
    "datetime": moments,
    "datetime with zone": lambda place: moments(place).dt.tz_localize("UTC").dt.tz_convert("Europe/Paris"),
    "date": lambda place: moments(place).dt.date,
    "period": lambda place: moments(place).dt.to_period("D"),
    "timedelta": lambda place: pd.Series(pd.to_timedelta(place, unit="s")),
    "2,000 strings": lambda place: pd.Series([f"user {p * 2000 // 6400:04}" for p in place]),
    "2,000 categories": lambda place: pd.Series(place * 2000 // 6400).astype("category"),
    "objects": lambda place: pd.Series(place, dtype=object),
    "decimals": lambda place: pd.Series([Decimal(int(p)) for p in place]),
    "nullable integers": lambda place: pd.Series(place).astype("Int64"),
    "nullable booleans": lambda place: pd.Series(place < 640).astype("boolean"),
    "numbers and strings": lambda place: pd.Series([int(p) if p < 3200 else f"{p} €" for p in place]),
}


@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize("as_array", [False, True])
def test_columns_of_every_kind_are_tested(kind, as_array):
    rng = np.random.default_rng(0)
    place = rng.permutation(6400)
    frame = pd.DataFrame({"column": COLUMNS[kind](place), "name": "x"})
    X = frame.to_numpy() if as_array else frame
    y = (rng.random(6400) < 0.3).astype(float)
    ids = rng.permutation(100)[place // 64]
    found = diagnose(X, bw.aggregate(y, ids), bags=ids, quick_model=False)
    name, constant = ("feature 0", "feature 1") if as_array else ("feature 'column'", "feature 'name'")
    assert f"features: bags differ in {name}" in found.verdict
    assert bool(found.strata) == (kind == "nullable booleans")  # true in the first ten bags, and nowhere else
    assert found.untestable == (constant,)
    in_order = np.arange(6400) // 64  # random bags, since places are; rows of a bag stand together
    assert diagnose(X, bw.aggregate(y, in_order), bags=in_order, quick_model=False).random


def test_users_who_keep_together_are_found():
    """2,000 users of 3 or 4 rows, whole users put into bags at random: no user is frequent, none is next to another."""
    rng = np.random.default_rng(0)
    user = np.arange(6400) * 2000 // 6400
    ids = (rng.permutation(2000) // 20)[user]
    frame = pd.DataFrame({"user": rng.permutation(2000).astype(str)[user]})
    y = (rng.random(6400) < 0.3).astype(float)
    found = diagnose(frame, bw.aggregate(y, ids), bags=ids)
    assert found.verdict.startswith("features: bags differ in feature 'user'")
    assert found.strata == ()


def test_weakly_grouped_bags_are_found():
    """A feature that explains a twentieth of which bag a row is in."""
    rng = np.random.default_rng(0)
    frame, y = log(rng)
    ids = by(frame["age"].rank() + rng.normal(scale=6000, size=len(y)), 64)
    found = diagnose(frame, bw.aggregate(y, ids), bags=ids)
    assert found.formation.name == "features"
    assert {one.subject for one in found.unusual} >= {"feature 'age'", "feature 'age' given proportions"}


def test_bags_that_differ_in_something_unseen_are_found():
    rng = np.random.default_rng(0)
    frame, y = log(rng)
    ids = rng.permutation(100)[by(y + rng.normal(scale=0.6, size=len(y)), 64)]
    found = diagnose(frame[["spend", "country"]], bw.aggregate(y, ids), bags=ids)
    assert found.formation.name == "effects"  # of the label, the two columns say nothing
    assert found.unusual[0].subject == "proportions"
    assert found.proportions.ratio > 1
    assert "right on average and only wide" in found.advice


def mixture(rng, n=6400):
    """Bags of 64 whose rates differ, of rows that are alike given their label."""
    size, y = 64, np.zeros(n)
    for j, rate in enumerate(rng.uniform(0.1, 0.6, size=n // size)):
        y[j * size : j * size + int(rng.binomial(size, rate))] = 1
    return rng.normal(size=(n, 4)) + y[:, None] * [1.0, -0.5, 0, 0], y, np.arange(n) // size


def test_bags_that_differ_in_rates_are_told_so(seed):
    X, y, ids = mixture(np.random.default_rng(seed))
    found = diagnose(X, bw.aggregate(y, ids), bags=ids)
    assert found.formation.name == "rates"
    assert found.features[0].p_value < 0.01  # bags differ in it, and yet they are not grouped by it
    assert found.evidence.given_proportions.p_value > 0.01
    assert found.evidence.reverse.value == pytest.approx(found.evidence.reverse.expected, rel=0.2)
    assert found.evidence.forward.value > 1.3
    assert "slope" in found.advice
    assert found.allowed.evaluation == ("slope",)


def test_of_several_classes_rates_and_effects_stay_open():
    rng = np.random.default_rng(0)
    X, y, ids = mixture(rng)
    three = np.column_stack([1 - y, y * (X[:, 3] > 0), y * (X[:, 3] <= 0)])
    found = diagnose(X, bw.aggregate(three, ids), bags=ids)
    assert (found.formation.name, found.sureness, found.support) == ("rates", "open", None)
    assert "only a model could tell" in found.sure


@pytest.mark.parametrize("drift", [0.25, 3.0])
def test_drift_is_no_grouping(drift):
    """A feature moves with the order of bags, by more than random bags allow, or by less (found half of the time)."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6400, 3))
    X[:, 1] += drift * np.linspace(-0.5, 0.5, 6400)
    y, ids = (rng.random(6400) < 1 / (1 + np.exp(-X[:, 0]))).astype(float), np.arange(6400) // 64
    found = diagnose(X, bw.aggregate(y, ids), bags=ids)
    assert found.verdict.startswith("drifting along the bag order in feature 1")
    assert ", random otherwise" in found.verdict
    assert ("all together" in found.verdict) == (drift > 1) == (found.formation.name == "features")
    assert not found.random
    assert "hold out the last bags" in found.advice
    shuffled = rng.permutation(100)[ids]  # the same bags in another order do not drift, they differ
    assert diagnose(X, bw.aggregate(y, shuffled), bags=shuffled, quick_model=False).drifting == ()


def test_drift_of_proportions_is_found():
    rng = np.random.default_rng(0)
    n = 6400
    X = rng.normal(size=(n, 2))
    y = (rng.random(n) < 0.5 + 0.15 * np.linspace(-0.5, 0.5, n)).astype(float)
    ids = np.arange(n) // 64
    found = diagnose(X, bw.aggregate(y, ids), bags=ids)
    assert found.verdict.startswith("drifting along the bag order in proportions, random otherwise")
    assert (found.drifting[0].subject, found.drifting[0].name) == ("proportions", "drift of proportions")


def test_bags_that_are_too_even_are_found():
    rng = np.random.default_rng(0)
    frame, y = log(rng)
    ids = np.empty(len(y), dtype=int)
    ids[np.argsort(frame["age"])] = np.tile(rng.permutation(100), 64)  # each bag gets an even spread of ages
    found = diagnose(frame, bw.aggregate(y, ids), bags=ids)
    assert found.formation.name == "features"
    assert "more alike in feature 'age" in found.verdict


# -- strata -------------------------------------------------------------------------------------------------------


def campaigns(rng, bags=200):
    """Random bags of 32 rows inside each of 8 campaigns, which differ in age and in how the label comes about."""
    campaign, n = np.arange(bags) % 8, 32 * bags
    of_row = np.repeat(campaign, 32)
    age = rng.normal(40 + 3 * of_row, 10)
    effect = rng.normal(scale=0.7, size=8)
    y = (rng.random(n) < 1 / (1 + np.exp(-0.05 * (age - 50) - effect[of_row]))).astype(float)
    frame = pd.DataFrame({"age": age, "campaign": np.array(list("abcdefgh"))[of_row], "x": rng.normal(size=n)})
    return frame, y, rng.permutation(bags)[np.repeat(np.arange(bags), 32)]


def test_random_bags_inside_strata_are_found_and_named(seed):
    frame, y, ids = campaigns(np.random.default_rng(seed))
    found = diagnose(frame, bw.aggregate(y, ids), bags=ids)
    assert found.strata == ("campaign",)
    assert found.verdict.startswith("random inside strata of 'campaign'")
    assert "evaluate(…, strata='campaign')" in found.advice
    numbers = np.column_stack([frame["age"], frame["campaign"].map(ord)])
    assert diagnose(numbers, bw.aggregate(y, ids), bags=ids, quick_model=False).strata == (1,)
    assert diagnose(frame.drop(columns="campaign"), bw.aggregate(y, ids), bags=ids, quick_model=False).strata == ()


def test_keys_of_bags_may_be_strata():
    frame, y, ids = campaigns(np.random.default_rng(0))
    key = {"campaign": frame.pop("campaign"), "bag": ids}
    found = diagnose(frame, bw.aggregate(y, ids), bags=ids, keys=key, quick_model=False)
    assert found.strata == ("campaign",)
    assert "feature 'campaign'" not in {one.subject for one in found.tests}
    with pytest.raises(ValueError, match="keys must have a value for each of the 6400 rows"):
        diagnose(frame, bw.aggregate(y, ids), bags=ids, keys={"campaign": ["a"]})


def test_days_are_strata_of_a_time_and_two_columns_may_be_needed():
    rng = np.random.default_rng(0)
    frame, y, ids = campaigns(rng)
    day = rng.integers(5, size=200)
    frame["time"] = moments(24 * day[ids] + rng.uniform(0, 24, size=len(ids)))
    frame["x"] += day[ids]
    found = diagnose(frame, bw.aggregate(y, ids), bags=ids)
    assert set(found.strata) == {"campaign", "time"}
    assert "'campaign' and 'time' combined" in found.advice


def test_bags_that_differ_inside_strata_have_none():
    rng = np.random.default_rng(0)
    frame, y, ids = campaigns(rng)
    frame["x"] += rng.normal(size=200)[ids]
    assert diagnose(frame, bw.aggregate(y, ids), bags=ids).strata == ()


# -- pictures -----------------------------------------------------------------------------------------------------


def test_a_diagnosis_can_be_drawn_and_shown():
    from matplotlib.figure import Figure

    X, y, ids = mixture(np.random.default_rng(0))
    found = diagnose(X, bw.aggregate(y, ids), bags=ids)
    ratios, lines = found.plot().axes
    assert "feature 0" in [label.get_text() for label in ratios.get_yticklabels()]
    assert [label.get_text() for label in lines.get_yticklabels()] == [
        "proportions on predictions",
        "predictions on proportions",
    ]
    figure = Figure()
    few = np.arange(6400) % 8
    assert diagnose(X, bw.aggregate(y, few), bags=few).plot(figure=figure) is figure  # too few bags for a model
    assert len(figure.axes) == 1
    shown = diagnose(pd.DataFrame({"<b>": X[:, 0]}), bw.aggregate(y, ids), bags=ids)._repr_html_()
    assert "<b>rates: " in shown
    assert "feature &#x27;&lt;b&gt;&#x27;" in shown


# -- contents -----------------------------------------------------------------------------------------------------


def test_sizes_and_leaks_are_counted():
    X = np.arange(12.0)[:, None]
    ids = np.array([0, 1, 1, 2, 2, 2, 3, 3, 3, 3, -1, -1])
    y = np.array([1, 0, 0, 1, 1, 1, 0, 1, 0, 1, 1, 1], dtype=float)
    found = diagnose(X, bw.aggregate(y, ids), bags=ids)
    assert (found.n_rows, found.n_bags, found.n_outside) == (10, 4, 2)
    told = found.leaks
    assert (told.single_row_bags, told.pure_bags, told.revealed_rows) == (1, 2, 6)
    assert found.sizes == (1, 1, 2, 3, 4)
    np.testing.assert_array_equal(found.size_histogram, ([1, 2, 3, 4], [1, 1, 1, 1]))
    assert "leaks: 1 bags of one row, 2 larger bags all 0 or all 1, 6 individual labels revealed" in str(found)


def test_arrays_frames_and_arrow_tables_give_the_same():
    rng = np.random.default_rng(0)
    frame, y = log(rng, 640)
    numeric = frame[["spend", "age"]]
    ids = by(numeric["age"].to_numpy(), 16)
    y_bag = bw.aggregate(y, ids)
    as_array = diagnose(numeric.to_numpy(), y_bag, bags=ids, quick_model=False)
    as_frame = diagnose(numeric, y_bag, bags=ids, quick_model=False)
    assert [f.p_value for f in as_array.features] == [f.p_value for f in as_frame.features]
    import pyarrow as pa

    assert diagnose(pa.Table.from_pandas(frame), y_bag, bags=ids).verdict == diagnose(frame, y_bag, bags=ids).verdict


def test_classes_and_real_labels_are_handled():
    rng = np.random.default_rng(0)
    frame, _ = log(rng)
    ids = bw.random_bags(6400, 64, rng)
    classes = (rng.integers(0, 3, 6400)[:, None] == np.arange(3)).astype(float)
    assert diagnose(frame, bw.aggregate(classes, ids), bags=ids).random
    real = diagnose(frame, bw.aggregate(rng.normal(50, 10, 6400), ids), bags=ids)
    assert np.isnan(real.proportions.p_value)
    assert real.random
    assert "\nnot testable: proportions of real labels\n" in str(real)


def test_what_is_not_testable_is_said():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"constant": 0.0, "rare": 0.0, "lists": [[i] for i in range(640)], "age": rng.random(640)})
    frame.loc[[3, 5], "rare"] = 1  # the two unusual rows share a bag
    ids = np.arange(640) // 16
    y = bw.aggregate((rng.random(640) < 0.5).astype(float), ids)
    found = diagnose(frame, y, bags=ids)
    assert [np.isnan(f.p_value) for f in found.features[:4]] == [True, True, True, False]
    assert found.untestable == ("feature 'constant'", "feature 'rare'", "feature 'lists'")
    assert found.random
    assert "\nnot testable: feature 'constant', feature 'rare', feature 'lists'\n" in str(found)
    many = diagnose(np.zeros((640, 13)), y, bags=ids)
    assert "feature 9 and 3 more\n" in str(many)
    assert "not testable" not in str(diagnose(frame[["age"]], y, bags=ids))


def test_bags_of_one_row_cannot_differ_from_random_ones():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(640, 1)), (rng.random(640) < 0.5).astype(float)
    found = diagnose(X, y)
    assert np.isnan(found.features[0].ratio)
    assert np.isnan(found.features[0].p_value)
    assert found.untestable == ("proportions", "feature 0")


def test_without_features_proportions_are_tested():
    rng = np.random.default_rng(0)
    y = np.sort(rng.random(640) < 0.5).astype(float)
    ids = rng.permutation(40)[np.arange(640) // 16]
    for X in (np.empty((640, 0)), pd.DataFrame(index=range(640))):
        found = diagnose(X, bw.aggregate(y, ids), bags=ids)
        assert found.formation.name == "rates"
        assert found.sureness == "open"
        assert found.features == ()


def test_columns_of_the_same_name_are_told_apart():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.random((640, 2)), columns=["age", "age"])
    ids = rng.permutation(40)[by(frame.iloc[:, 1], 16)]
    found = diagnose(frame, bw.aggregate((rng.random(640) < 0.5).astype(float), ids), bags=ids)
    assert "bags differ in feature 'age' (column 1)" in found.verdict


def test_an_evaluation_by_residuals_is_right_where_effects_leave_features_alone(seed):
    """What the advice says: residuals are right on average, and the slope on proportions is too flat."""
    rng = np.random.default_rng([seed, 5])
    found, flat = [], []
    for _ in range(40):
        x, ids = rng.normal(size=6400), np.arange(6400) // 64
        y = (rng.random(6400) < 1 / (1 + np.exp(-x - rng.normal(size=100)[ids]))).astype(float)
        h = 1 / (1 + np.exp(-x))
        bags = bw.Bags.from_rows(bw.aggregate(y, ids), ids)
        found.append(bw.evaluation.label_linear(h, h, bags).value - (y * h).mean())
        reverse, p = bw.formation.slopes(h, bags)[1], y.mean()
        flat.append(p * h.mean() + p * (1 - p) * reverse.value - (y * h).mean())
    assert abs(np.mean(found)) < 5 * np.std(found) / np.sqrt(40)
    assert np.mean(flat) < -5 * np.std(flat) / np.sqrt(40)


@pytest.mark.parametrize(
    ("X", "y", "ids", "message"),
    [
        (sparse.csr_array(np.zeros((4, 1))), [0.5] * 4, [0, 0, 1, 1], "X is sparse: pass X.toarray"),
        (np.zeros((4, 1), dtype=complex), [0.5] * 4, [0, 0, 1, 1], "feature 0 of X holds complex numbers"),
        (np.array([[1j]] * 4, dtype=object), [0.5] * 4, [0, 0, 1, 1], "feature 0 of X holds complex numbers"),
        (
            pd.DataFrame({"a": [pd.NaT] + [pd.Timestamp(0)] * 3}),
            [0.5] * 4,
            [0, 0, 1, 1],
            "feature 'a' of X contains NaN",
        ),
        (
            pd.DataFrame({"a": [None, 1, 2, 3]}).astype("Int64"),
            [0.5] * 4,
            [0, 0, 1, 1],
            "feature 'a' of X contains NaN",
        ),
        (np.zeros((4, 1)), [0.5] * 4, [0] * 4, "one bag only"),
        (np.zeros(4), [0.5] * 4, [0, 0, 1, 1], "two dimensions"),
        (np.array([[0.0], [np.nan], [0], [0]]), [0.5] * 4, [0, 0, 1, 1], "feature 0 of X contains NaN"),
        (np.zeros((4, 1)), [0.5] * 3, [0, 0, 1, 1], "X has 4 rows but y has 3"),
    ],
)
def test_wrong_input_gets_one_clear_sentence(X, y, ids, message):
    with pytest.raises(ValueError, match=message):
        diagnose(X, y, bags=ids)


@pytest.mark.parametrize("level", [0.0, 1, 5, "a", None])
def test_a_level_is_a_number_between_0_and_1(level):
    with pytest.raises(ValueError, match="level must be a number between 0 and 1, got"):
        diagnose(np.zeros((4, 1)), [0.5] * 4, bags=[0, 0, 1, 1], level=level)


# -- what it takes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "most"), [("numbers", 1.5), ("categories", 5)])
def test_it_holds_little_beside_the_table(kind, most):
    rng = np.random.default_rng(0)
    n = 100_000
    X = pd.DataFrame(rng.normal(size=(n, 10)))
    if kind == "categories":  # of which 30 are compared one by one
        X = pd.DataFrame({name: np.char.add("c", rng.integers(0, 30, n).astype(str)).astype(object) for name in "abc"})
    ids = bw.random_bags(n, size=50, random_state=0)
    y_bag = bw.aggregate(rng.random(n) < 0.3, ids)
    tracemalloc.start()
    diagnose(X, y_bag, bags=ids, quick_model=False)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < most * 8 * 10 * n  # each square, product and category would be a column
