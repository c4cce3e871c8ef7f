"""The benchmark of formations: how bags are made, baselines, what is stored, what the page says."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import expit, logit
from sklearn.metrics import log_loss, roc_auc_score

import bagwise as bw
from bagwise import datasets
from bagwise.experiments import bench
from bagwise.experiments.bench import FormationsConfig, baselines, methods, plan_formations, targets
from bagwise.experiments.bench.formation_cases import CASES, SOURCES, Data, cases_of
from bagwise.experiments.bench.formation_tables import TRIED
from bagwise.experiments.bench.formations import (
    bags_with_rates,
    deciles,
    labels_with_effects,
    natural_groups,
    sorted_bags,
)
from bagwise.experiments.bench.methods import FORMATION_METHODS, Method, Prediction
from bagwise.experiments.results import read_table, write_chapter

TINY = FormationsConfig(
    datasets=("digits",),
    cases=("rates-strong", "groups", "effects-1"),
    sizes=(16,),
    methods=("ridge", "class_prior", "supervised_logistic"),
    partitions=(3, 4),
)


def tiny(**changes):
    return dataclasses.replace(TINY, **changes)


def bags_of(y, ids):
    return bw.Bags.from_rows(bw.aggregate(y, ids), ids)


# -- making bags --------------------------------------------------------------------------------------------------


def test_bags_with_rates_have_the_rates_that_were_drawn():
    y = (np.arange(40_000) % 4 == 0).astype(int)
    ids = bags_with_rates(y, 20, 0.1, 0.4, random_state=0)
    bags = bags_of(y, ids)
    assert (bags.size == 20).all()  # an id per row: each is used once
    ones = np.rint(20 * bags.proportion)
    np.testing.assert_allclose(20 * bags.proportion, ones)
    rates = np.linspace(0.1, 0.4, 2001)
    expected = stats.binom.pmf(np.arange(21)[:, None], 20, rates).mean(axis=1)  # 0.25, the mean of rates, is that of y
    seen = np.bincount(ones.astype(int), minlength=21)
    some = np.append(seen[:12], seen[12:].sum()), np.append(expected[:12], expected[12:].sum()) * seen.sum()
    assert stats.chisquare(*some).pvalue > 1e-6


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_bags_with_a_rate_far_from_that_of_all_rows_are_as_many_as_these_allow(rate):
    y = np.repeat([0, 1], [700, 300])
    bags = bags_of(y, bags_with_rates(y, 10, rate, rate, random_state=1))
    np.testing.assert_allclose(bags.proportion, rate)
    assert len(bags) == {0.0: 70, 1.0: 30}[rate]


@pytest.mark.parametrize(("size", "low", "high"), [(64, 0.0, 0.5), (512, 0.2, 0.3), (2048, 0.0, 0.5)])
def test_bags_with_rates_are_a_partition_and_keep_the_rate_of_all_rows(size, low, high, seed):
    y = (np.arange(32_561) < 7_841).astype(int)
    ids = bags_with_rates(y, size, low, high, random_state=seed)
    assert ids.max() + 1 == len(y) // size
    assert y[ids >= 0].mean() == pytest.approx(y.mean(), abs=1e-3)
    far = 5 * np.sqrt(0.25 / size)  # five standard deviations of a proportion
    rates = bags_of(y, ids).proportion
    assert rates.min() > low - far
    assert rates.max() < high + far


def test_rows_of_one_label_are_random_in_bags_with_rates():
    rng = np.random.default_rng(0)
    y, x = rng.integers(2, size=20_000), rng.normal(size=20_000)
    ids = bags_with_rates(y, 50, 0.2, 0.8, random_state=2)
    for label in (0, 1):
        rows = (ids >= 0) & (y == label)
        rate = bags_of(y, ids).proportion[ids[rows]]
        assert stats.pearsonr(rate, x[rows]).pvalue > 1e-6
        assert stats.pearsonr(ids[rows], np.flatnonzero(rows)).pvalue > 1e-6  # shuffled


def test_makers_follow_their_seed():
    y, key = np.arange(400) % 2, np.zeros(400)
    for make in (lambda seed: bags_with_rates(y, 8, 0.2, 0.6, seed), lambda seed: sorted_bags([key], 8, seed)):
        np.testing.assert_array_equal(make(5), make(5))
        assert (make(5) != make(6)).any()


@pytest.mark.parametrize(("size", "low"), [(0, 0.1), (8, -0.1)])
def test_wrong_rates_and_sizes_are_refused(size, low):
    with pytest.raises(ValueError, match="must be"):
        bags_with_rates([0, 1], size, low, 0.5)


def test_sorted_bags_are_consecutive_in_the_order_of_columns():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.choice(list("xyz"), 1003), "b": rng.integers(40, size=1003)})
    ids = sorted_bags([table["a"], table["b"]], 10, random_state=0)
    assert np.bincount(ids[ids >= 0]).tolist() == [10] * 100
    order = table.assign(bag=np.where(ids < 0, 100, ids)).sort_values(["a", "b", "bag"])
    assert order["bag"].is_monotonic_increasing  # also of the three rows that are left


def test_natural_groups_are_combinations_with_enough_rows():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.choice(list("xyz"), 900, p=[0.8, 0.15, 0.05]), "b": rng.integers(4, size=900)})
    ids = natural_groups([table["a"], table["b"]])
    size = table.groupby(["a", "b"])["b"].transform("size").to_numpy()
    np.testing.assert_array_equal(ids >= 0, size >= 30)
    assert (ids < 0).any()
    kept = table.assign(bag=ids)[ids >= 0]
    assert (kept.groupby(["a", "b"])["bag"].nunique() == 1).all()
    assert (kept.groupby("bag")[["a", "b"]].nunique() == 1).all(axis=None)
    assert sorted(kept["bag"].unique()) == list(range(kept["bag"].nunique()))


def test_labels_have_the_effects_that_were_drawn():
    ids = np.append(np.repeat(np.arange(400), 500), np.full(2000, -1))
    s = np.full(len(ids), -0.5)
    y, u = labels_with_effects(s, ids, 0.7, random_state=0)
    assert stats.kstest(u / 0.7, "norm").pvalue > 1e-6
    expected = expit(-0.5 + u)
    z = (bags_of(y, ids).proportion - expected) / np.sqrt(expected * (1 - expected) / 500)
    assert stats.chi2.sf((z**2).sum(), 400) > 1e-6
    assert abs(y[ids < 0].mean() - expit(-0.5)) < 5 * np.sqrt(0.25 / 2000)
    _, none = labels_with_effects(s, ids, 0.0, random_state=0)
    assert (none == 0).all()


def test_deciles_are_tenths():
    assert np.bincount(deciles(np.random.default_rng(0).random(1000))).tolist() == [100] * 10


# -- cases --------------------------------------------------------------------------------------------------------


def test_cases_are_named_by_their_beginning():
    assert cases_of(["effects"]) == ["effects-0.25", "effects-0.5", "effects-1"]
    assert cases_of(["rates-weak", "random"]) == ["random", "rates-weak"]


def test_every_case_of_digits_makes_bags_of_its_formation():
    data = Data.of("digits")
    drawn = {name: data.draw(name, 16, lambda number: number) for name in CASES}
    bags = {name: bags_of(one.y, one.ids) for name, one in drawn.items()}
    for name in ("rates-strong", "rates-weak"):
        low, high = data.rates(CASES[name])
        between = (high - low) ** 2 / 12
        expected = between + (0.25 - between) / 16  # of rates, and of labels drawn with them
        assert bags[name].proportion.var() == pytest.approx(expected, rel=4 * np.sqrt(2 / len(bags[name])))
    assert bags["rates-strong"].proportion.std() > 1.2 * bags["rates-weak"].proportion.std()
    assert bags["groups"].size.min() >= 30
    first = data.table.X[:, 36]
    assert (
        bags["sorted"].mean(first[bags["sorted"].order]).std()
        > 3 * bags["random"].mean(first[bags["random"].order]).std()
    )
    np.testing.assert_array_equal(drawn["random"].y_test, data.table.y_test)
    one, other = drawn["effects-1"], drawn["effects-0.25"]
    assert (one.y != data.table.y).any()
    assert set(one.y_test) == {0, 1}
    np.testing.assert_array_equal(one.ids, other.ids)
    s, s_test = data.log_odds
    assert roc_auc_score(one.y, s) > 0.8
    z = (one.y_test - expit(s_test)).sum() / np.sqrt((expit(s_test) * expit(-s_test)).sum())
    assert abs(z) < 5  # drawn from the model as it is


def test_a_ceiling_runs_once_but_where_labels_are_drawn():
    runs = plan_formations(tiny())
    places = [(one.case, one.size, one.partition) for one in runs if one.method == "supervised_logistic"]
    assert places == [("", 1, 0), ("effects-1", 16, 3), ("effects-1", 16, 4)]
    ridge = [(one.case, one.size, one.partition) for one in runs if one.method == "ridge"]
    assert ridge == [
        (case, size, number)
        for number in (3, 4)
        for case, size in (("rates-strong", 16), ("groups", 0), ("effects-1", 16))
    ]
    assert len({one.key for one in runs}) == len(runs)


def test_without_sizes_each_case_has_its_own_and_a_register_has_natural_groups():
    runs = plan_formations(tiny(datasets=("adult", "precincts"), cases=("random", "groups"), sizes=(), partitions=(0,)))
    places = {(one.dataset, one.case, one.size) for one in runs if one.method == "ridge"}
    sizes = {("adult", "random", size) for size in (16, 64, 256, 512)}
    assert places == sizes | {("adult", "groups", 0), ("precincts", "groups", 0)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"datasets": ("moon",)}, "datasets must be .*adult"),
        ({"cases": ("strange",)}, "cases must be .*rates-strong"),
        ({"methods": ("magic",)}, "methods must be .*boosting"),
        ({"sizes": (0,)}, "sizes must be"),
        ({"partitions": ()}, "partitions must be"),
    ],
)
def test_wrong_configs_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        tiny(**changes)


# -- baselines ----------------------------------------------------------------------------------------------------

BASELINES = [baselines.set_classification, baselines.forward_correction]


def mixtures(n=24_000, size=100, low=0.1, high=0.9):
    """Two overlapping classes in bags of different rates."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=n)
    X = rng.normal(size=(n, 2)) + 1.5 * y[:, None] * [1.0, 0.0]
    return X, y, bags_of(y, bags_with_rates(y, size, low, high, random_state=0))


@pytest.mark.parametrize("baseline", BASELINES)
def test_baselines_find_the_classes_where_rates_differ(baseline):
    X, y, bags = mixtures()
    h = baseline(random_state=0).fit(X, bags=bags).predict_proba(X)[:, 1]
    truth = expit(1.5 * (X[:, 0] - 0.75))
    best = roc_auc_score(y, truth)
    assert roc_auc_score(y, h) > best - 0.02
    assert np.mean((h - y) ** 2) < np.mean((truth - y) ** 2) + 0.01


@pytest.mark.parametrize("baseline", BASELINES)
def test_slopes_of_baselines_are_those_of_their_losses(baseline):
    _, _, bags = mixtures(n=2000)
    objective, rng = baseline(random_state=0).objective(bags, 0.5), np.random.default_rng(1)
    own, s = bags.repeat(np.arange(len(bags))), rng.normal(size=bags.n_bagged)

    def at(scores):
        return objective(scores, own, np.random.default_rng(7))

    _, slope, curvature = at(s)
    numeric = (at(s + 1e-5)[0] - at(s - 1e-5)[0]) / 2e-5
    np.testing.assert_allclose(slope, numeric, atol=1e-7)
    assert (curvature > 0).all()


def test_set_losses_are_probabilities_of_the_set():
    """Over all sets, weighed by their shares, densities average to 1 whatever the prediction is."""
    _, _, bags = mixtures(n=2000)
    prior = float(bags.size @ bags.proportion / bags.n_bagged)
    objective = baselines.set_classification(random_state=0).objective(bags, prior)
    for s in (-2.0, 0.3):
        each = np.exp(-objective(np.full(len(bags), s), np.arange(len(bags)), np.random.default_rng(0))[0])
        assert bags.size @ each / bags.n_bagged == pytest.approx(1)


def test_baselines_read_tables_and_say_what_they_are_right_for():
    X, y, bags = mixtures(n=4000)
    table = pd.DataFrame({"x": X[:, 0], "sign": np.where(X[:, 1] > 0, "plus", "minus")})
    for baseline in BASELINES:
        assert "Right for `rates`" in baseline.__doc__
        h = baseline(random_state=0).fit(table, bags=bags).predict_proba(table)[:, 1]
        assert roc_auc_score(y, h) > 0.8
    right = {name: formations for name, (_, formations) in FORMATION_METHODS.items()}
    assert right["set_classification"] == right["forward_correction"] == ("rates",)
    assert right["logistic"] == ("random", "rates", "features", "effects")


# -- running ------------------------------------------------------------------------------------------------------


@pytest.fixture
def add_method(monkeypatch):
    """Adds a method of one's own to the table."""

    def add(name, function, **options):
        found = (Method(label=name, run=function, **options), ("random",))
        monkeypatch.setitem(methods.FORMATION_METHODS, name, found)
        return name

    return add


def test_a_row_is_what_the_method_scores_by_hand(tmp_path):
    config = tiny(cases=("rates-strong",), methods=("ridge",))
    frame = bench.run_formations(config, tmp_path / "formations.parquet")
    split = datasets.digits()
    assert list(frame["partition"]) == [3, 4]
    for one, (_, row) in zip(plan_formations(config), frame.iterrows(), strict=True):
        ids = bags_with_rates(split.y, 16, 0.25, 0.75, random_state=one.seed(0))
        bags = bags_of(split.y, ids)
        model = bw.BagRidgeClassifier(random_state=one.seed(1)).fit(split.X, bags=bags)
        h = model.predict_proba(split.X_test)[:, 1]
        assert row["accuracy"] == pytest.approx(model.score(split.X_test, split.y_test))
        assert row["brier"] == pytest.approx(np.mean((h - split.y_test) ** 2))
        assert row["log_loss"] == pytest.approx(log_loss(split.y_test, h))
        assert row["auc"] == pytest.approx(roc_auc_score(split.y_test, h))
        p, mean = split.y[ids >= 0].mean(), model.predict_proba(split.X)[ids >= 0, 1].mean()
        assert row["prior"] == pytest.approx(p)
        assert row["mean_gap"] == pytest.approx(mean - p)
        assert (row["bags"], row["rows"], row["test_rows"]) == (ids.max() + 1, (ids >= 0).sum(), 597)
        assert row["seconds"] > 0
        assert row["error"] == ""


def test_estimators_tell_their_formation_and_what_they_warn_of_is_kept(tmp_path, add_method):
    class Model:
        formation_ = bw.formation.Told("rates", "as asked for")
        gain_, gain_error_ = 0.5, 0.1

        def predict_proba(self, X):
            return np.full((len(X), 2), 0.5)

    def warns(task):
        import warnings

        warnings.warn("nothing was found.", UserWarning, stacklevel=1)
        yield Prediction(np.full(len(task.X_test), 0.5), model=Model())

    def fails(task):
        raise ValueError("this cannot work.")

    names = (add_method("warns", warns), add_method("fails", fails))
    frame = bench.run_formations(tiny(cases=("groups",), methods=names, partitions=(1,)), tmp_path / "f.parquet")
    row, failed = frame.iloc[0], frame.iloc[1]
    assert (row["formation"], row["gain"], row["gain_error"]) == ("rates", 0.5, 0.1)
    assert row["warning"] == "nothing was found."
    assert row["mean_gap"] == pytest.approx(0.5 - row["prior"])
    assert failed["error"] == "ValueError: this cannot work."
    assert np.isnan(failed["brier"])


def test_what_is_stored_is_not_computed_again_and_parts_make_one_page(tmp_path, add_method):
    calls = []

    def count(task):
        calls.append((len(task.bags), task.random_state))
        yield Prediction(np.linspace(0, 1, len(task.X_test)))

    name, out = add_method("count", count), tmp_path / "formations.parquet"
    config = tiny(cases=("rates", "groups"), methods=(name,))
    part = dataclasses.replace(config, cases=("groups",), partitions=(3,))
    bench.run_formations(part, out)
    assert len(calls) == 1
    bench.run_formations(config, out)
    assert len(calls) == 6  # two partitions of three cases
    bench.run_formations(config, out)
    assert len(calls) == 6
    assert len(read_table(out)) == 6
    assert list(bench.stored_formations((4,), out)["case"]) == ["rates-strong", "rates-weak", "groups"]
    with pytest.raises(ValueError, match="holds no results"):
        bench.stored_formations((4,), tmp_path / "none.parquet")


def test_missing_data_and_too_few_bags_are_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("BAGWISE_DATA", str(tmp_path / "empty"))
    config = tiny(
        datasets=("digits", "precincts"),
        cases=("random", "rates-strong", "groups"),
        sizes=(200, 512),
        methods=("class_prior",),
        partitions=(0,),
    )
    frame = bench.run_formations(config, tmp_path / "f.parquet").set_index(["dataset", "case", "size"])
    assert frame["error"]["digits", "random", 512] == "skipped: 1,200 rows make too few bags of 512."
    assert frame["error"]["digits", "random", 200] == ""
    assert frame["error"]["digits", "rates-strong", 200] == ""
    assert frame["error"]["precincts", "groups", 0].startswith("skipped: the precinct register is not there")
    text = bench.formations_markdown(frame.reset_index())
    assert "- random, k = 512 (1 run of class prior): skipped: 1,200 rows make too few" in text
    assert "All of it was skipped: the precinct register" in text


# -- the register -------------------------------------------------------------------------------------------------


@pytest.fixture
def register(tmp_path, monkeypatch):
    """Sixteen precincts in the form of the register."""
    rng, lines = np.random.default_rng(0), []
    for number in range(16):
        groups = rng.multinomial(400, rng.dirichlet([2, 1, 1]))
        cross = [
            rng.multinomial(voters, [rate, 0.9 - rate, 0.1])
            for voters, rate in zip(groups, (0.3, 0.8, 0.6), strict=True)
        ]
        parties = np.sum(cross, axis=0)
        lines.append(["AB"[number % 2], f"P{number}", 400, *groups, *parties, *np.concatenate(cross)])
    head = "county precinct total white black natam dem rep non whdem whrep whnon bldem blrep blnon natamdem natamrep"
    table = pd.DataFrame(lines, columns=[*head.split(), "natamnon"], index=np.arange(1, 17))
    (tmp_path / "data" / "precincts").mkdir(parents=True)
    table.to_csv(tmp_path / "data" / "precincts" / "senc.tsv", sep=" ", quoting=2)
    monkeypatch.setenv("BAGWISE_DATA", str(tmp_path / "data"))
    return table


@pytest.mark.slow
def test_groups_of_a_register_are_told_beside_the_truth(tmp_path, register):
    config = tiny(
        datasets=("precincts", "precincts_context"),
        cases=("groups",),
        methods=("logistic", "class_prior"),
        partitions=(0,),
    )
    frame = bench.run_formations(config, tmp_path / "f.parquet")
    assert (frame["error"] == "").all(), frame["error"].tolist()
    assert (frame["bags"] == 16).all()
    assert (frame["rows"] == 6400).all()
    logistic, constant = (
        json.loads(frame[frame["method"] == name]["by_group"].iloc[0]) for name in ("logistic", "class_prior")
    )
    for group, short in (("white", "wh"), ("black", "bl"), ("natam", "natam")):
        truth = register[f"{short}dem"].sum() / register[group].sum()
        assert logistic[group]["truth"] == constant[group]["truth"] == pytest.approx(truth)
        assert abs(logistic[group]["said"] - truth) < 0.1
        assert constant[group]["said"] == pytest.approx(register["dem"].sum() / 6400)
    total = sum(logistic[group]["given_reports"] * register[group].sum() for group in logistic)
    assert total == pytest.approx(register["dem"].sum(), rel=1e-3)
    text = bench.formations_markdown(frame)
    assert "| the truth | " in text
    assert "black, given reports" in text


# -- the page -----------------------------------------------------------------------------------------------------


def stored(method, brier, *, case="rates-strong", size=64, partition=100, accuracy=0.9, dataset="adult", **changes):
    record = {"dataset": dataset, "case": case, "size": size, "method": method, "partition": partition}
    record |= {"accuracy": accuracy, "brier": brier, "log_loss": brier, "auc": 0.9, "mean_gap": 0.001, "seconds": 2.0}
    record |= {"bags": 480, "rows": 30_000, "test_rows": 16_281, "prior": 0.25, "formation": "rates", "by_group": ""}
    return record | {"error": "", "cores": 2, "config": json.dumps({"settings": {}})} | changes


def test_targets_are_held_against_means_over_partitions():
    frame = pd.DataFrame(
        [
            stored("boosting", 0.09, accuracy=0.860),
            stored("boosting", 0.10, accuracy=0.870, partition=101),
            stored("logistic", 0.108, accuracy=0.850),
            stored("boosting", 0.2, case="random", size=16, accuracy=0.8),
        ]
    )
    lines = targets.reached(frame).splitlines()
    found = next(line for line in lines if line.startswith("| rates differ widely, k = 64 | boosting"))
    assert found.split(" | ")[2:] == [
        "≥ 0.863 / ≤ 0.097",
        "0.8650 ± 0.0050 / 0.0950 ± 0.0050",
        "2",
        "met |",
    ]
    assert "| rates differ widely, k = 64 | logistic | ≥ 0.846 / ≤ 0.107 | 0.8500 / 0.1080 | 1 | not met |" in lines
    assert "| random, k = 16 | boosting | ≥ 0.861 | 0.8000 | 1 | not met |" in lines
    assert "| natural groups | logistic | ≥ 0.826 / ≤ 0.121 | – / – | 0 | not run |" in lines


def test_no_estimator_is_to_be_worse_than_the_constant_where_bags_have_effects():
    rows = [
        stored(method, brier + 0.01 * partition, case="effects-1", partition=partition)
        for method, brier in (("boosting", 0.19), ("logistic", 0.17), ("class_prior", 0.18))
        for partition in (0, 1)
    ]
    text = targets.reached(pd.DataFrame(rows))
    adult = "Adult (income over 50K): effects of sd 1, k = 64"
    assert f"| {adult} | boosting | 0.1950 ± 0.0050 | 0.1850 ± 0.0050 | +0.0100 ± 0.0000 | not met |" in text
    assert f"| {adult} | logistic | 0.1750 ± 0.0050 | 0.1850 ± 0.0050 | -0.0100 ± 0.0000 | met |" in text


def test_probabilities_are_held_to_p_and_to_the_log_loss():
    rows = [
        stored("class_prior", 0.18),
        stored("ridge", 0.10, mean_gap=-0.02),
        stored("boosting", 0.10),
        stored("logistic", 0.10, log_loss=0.5),
    ]
    text = targets.reached(pd.DataFrame(rows))
    assert "| `BagRidgeClassifier` | 0.0200 | 1 | 1 | not met |" in text
    assert "| `BagBoostingClassifier` | 0.0010 | 1 | 1 | met |" in text
    assert "| `BagLogisticClassifier` | 0.0010 | 1 | 0 | not met |" in text


def test_the_page_says_how_it_was_made():
    rows = [
        stored("boosting", 0.09),
        stored("boosting", 0.11, partition=101, formation="effects"),
        stored("set_classification", 0.1, formation=""),
        stored("supervised_lightgbm", 0.088, case="", size=1, partition=0, formation=""),
    ]
    text = bench.formations_markdown(pd.DataFrame(rows))
    assert "2 partitions (no. 100, no. 101)" in text
    tried = f"one of each method, {TRIED['boosting']} of `BagBoostingClassifier`, 2 of U^m set classification"
    assert f"Configurations that ran on any of these partitions: {tried} (Lu et al. 2021)." in text
    assert "No run chooses anything by test labels" in text
    assert "rates from [0, 0.5] and from [0.2, 0.3]" in text
    assert "### Rates differ widely, k = 64\n\nFormation: rates; 480 bags." in text
    line = next(line for line in text.splitlines() if line.startswith("| `BagBoostingClassifier` | 0.9"))
    assert "| 0.1000 ± 0.0100 |" in line
    assert line.endswith("| rates 1, effects 1 | all |")
    assert "| U^m set classification (Lu et al. 2021) | 0.900 | 0.1000 |" in text
    assert "| LightGBM on individual labels ‡ | 0.900 | 0.0880 |" in text


def test_a_chapter_takes_the_place_of_the_one_of_its_title(tmp_path):
    page = tmp_path / "page.md"
    write_chapter("# One\n\nold\n\n## Part\n", page)
    write_chapter("# Two\n\ntext\n", page)
    write_chapter("# One\n\nnew\n", page)
    assert page.read_text(encoding="utf-8") == "# One\n\nnew\n\n# Two\n\ntext\n"


def test_all_data_sets_have_words_for_their_bags():
    assert all(source.grouped_by and (source.cases or source.sorted_by) for source in SOURCES.values())
    assert logit(SOURCES["digits"].rate) == 0
