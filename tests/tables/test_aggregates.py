"""Tables of counts and label sums, read, written, and fitted to."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest

import bagwise as bw
from bagwise import tables
from bagwise.data import Aggregates
from bagwise.tables.aggregated_model import AboutAggregates, facts, read_about_aggregates
from tests.linear.test_aggregated import add_noise, noised_by, rows_of


@pytest.fixture
def rows():
    X, y = rows_of(np.random.default_rng(0), 4000, features=3)
    X["f2"] = np.where(X["f2"] > 1, X["f2"] * 10.0, np.nan)
    return pd.DataFrame(X).assign(f1=np.array(list("abcde"))[X["f1"]]), y


@pytest.fixture
def exact(rows):
    return Aggregates.of(*rows)


def same(one, other):
    assert one.features == other.features
    assert (one.noise_variance, one.threshold) == (other.noise_variance, other.threshold)
    for first, second in zip(one.tables, other.tables, strict=True):
        assert first.features == second.features
        assert (first.noise_variance is None) == (second.noise_variance is None)
        if first.noise_variance is not None:
            np.testing.assert_array_equal(first.noise_variance, second.noise_variance)
        np.testing.assert_array_equal(first.count, second.count)
        np.testing.assert_array_equal(first.sum, second.sum)


def wide(rows):
    """A table for each feature and each pair, as an engine makes them."""
    frame, y = rows
    frame, found = frame.assign(y=y), {}
    for place, one in enumerate(frame.columns[:-1]):
        for names in [[one], *([one, other] for other in frame.columns[place + 1 : -1])]:
            grouped = frame.groupby(names, dropna=False)["y"].agg(["size", "sum"]).reset_index()
            found["-".join(names)] = grouped.rename(columns={"size": "count"})
    return found


def test_what_is_written_is_read_as_it_was(exact, tmp_path):
    rng = np.random.default_rng(0)
    for number, data in enumerate((exact, add_noise(exact, 5.0, rng), add_noise(exact, 5.0, rng, threshold=50))):
        tables.write_aggregates(data, tmp_path / str(number), **({} if data.threshold is None else {"threshold": 50}))
        same(tables.read_aggregates(tmp_path / str(number)), data)


def test_one_table_for_each_feature_and_pair_says_the_same(rows, exact, tmp_path):
    for place, (name, table) in enumerate(wide(rows).items()):
        table = table[table.columns[::-1]]
        if place % 2:
            table.to_csv(tmp_path / f"{name}.csv", index=False)
        else:
            table.to_parquet(tmp_path / f"{name}.parquet", index=False)
    same(tables.read_aggregates(tmp_path, noise_variance=0), exact)
    frames = [pl.from_pandas(one) for one in wide(rows).values()]
    same(tables.read_aggregates(frames, noise_variance=0), exact)


def test_columns_as_in_the_challenge_of_criteo(exact, tmp_path):
    tables.write_aggregates(exact, tmp_path)
    lines = pd.read_parquet(tmp_path / "aggregates.parquet").drop(columns="noise_variance")
    renamed = {f"{what}_{side}": f"feature_{side}_{new}" for side in (1, 2) for what, new in
               (("feature", "id"), ("value", "value"))}  # fmt: skip
    lines = lines.rename(columns={**renamed, "sum": "nb_clicks"}).assign(nb_sales=0)
    alone = lines["feature_2_id"].isna()
    singles = lines[alone].drop(columns=["feature_2_id", "feature_2_value"])
    found = tables.read_aggregates([singles, lines[~alone]], sum="nb_clicks", noise_scale=0, mechanism="gaussian")
    same(found, exact)


def test_noise_is_declared_as_for_reports(rows):
    (table, *_) = wide(rows).values()
    read = tables.read_aggregates
    assert read([table]).noise_variance is None
    assert read([table], noise_scale=17, mechanism="gaussian").noise_variance == 289
    assert read([table], noise_scale=17).noise_variance == 578
    assert read([table], epsilon=2, sensitivity=4).noise_variance == 8
    assert read([table.assign(noise_variance=3.0)]).noise_variance == 3
    assert read([table.assign(s=3.0)], noise_scale="s", mechanism="gaussian").noise_variance == 9


def test_each_line_may_have_noise_of_its_own_and_each_table(exact, tmp_path):
    line = {"a": ["x", "y"], "count": [5, 6], "sum": [1, 2]}
    other = {"b": ["z"], "count": [11], "sum": [3]}
    both = {"a": ["x", "y"], "b": ["z", "z"], "count": [6, 5], "sum": [2, 1], "noise_variance": [1.0, 4.0]}
    found = tables.read_aggregates([{**line, "noise_variance": [9.0, None]}, {**other, "epsilon": [1.0]}, both])
    assert (found.noise_variance, found.noise_range) == (None, (0, 9))
    np.testing.assert_array_equal(found.tables[0].noise_variance, [9, 0, np.nan])
    np.testing.assert_array_equal(found.tables[1].noise_variance, [2, np.nan])
    np.testing.assert_array_equal(found.tables[2].noise_variance[:2, 0], [1, 4])
    each = tables.read_aggregates([line, other], noise_scale=[3, 5], mechanism="gaussian")
    np.testing.assert_array_equal(each.tables[0].noise_variance, [9, 9, np.nan])
    np.testing.assert_array_equal(each.tables[1].noise_variance, [25, np.nan])
    assert tables.read_aggregates([line, other], noise_scale=[3, 3], mechanism="gaussian").noise_variance == 9
    with pytest.raises(ValueError, match="noise_variance must be told of table 2 of counts, too, as of the others"):
        tables.read_aggregates([{**line, "noise_variance": [9.0, 9.0]}, other])
    noised = noised_by(exact, lambda table: 10.0 + len(table.features), np.random.default_rng(0))
    tables.write_aggregates(noised, tmp_path)
    same(tables.read_aggregates(tmp_path), noised)


def test_values_that_stand_for_others_and_binned_numbers(tmp_path):
    table = {"age": [0, 1, 2], "count": [5, 6, 7], "sum": [1, 2, 3]}
    pd.DataFrame(table).to_csv(tmp_path / "age.csv", index=False)
    (tmp_path / "edges.json").write_text(json.dumps({"age": [30, 50.5]}))
    other = {"job": ["cook", "other"], "count": [8, 10], "sum": [2, 4]}
    pd.DataFrame(other).to_csv(tmp_path / "job.csv", index=False)
    found = tables.read_aggregates(tmp_path, noise_variance=0, rest="other")
    age, job = found.features
    assert (age.levels, age.edges, job.levels) == (("0", "1", "2"), (30.0, 50.5), ("cook",))
    assert found.tables[1].count.tolist() == [8, 10]
    model = tables.fit_aggregates(found, missing_pairs="independent")
    scored = pd.DataFrame({"age": [10.0, 30, 90, None], "job": ["cook", "judge", "other", None]})
    h = np.concatenate([batch["prediction"].to_numpy() for batch in model.score(tables.read(scored, tables.connect()))])
    weights, b = model.estimator.weights(), np.log(h / (1 - h))
    assert b[0] - b[3] == pytest.approx(
        weights["age"]["0"] - weights["age"][""] + weights["job"]["cook"] - weights["job"][""]
    )
    assert b[1] - b[2] == pytest.approx(weights["age"]["1"] - weights["age"]["2"])


ITSELF = {"feature_1": ["q", "q"], "value_1": [1, 2], "feature_2": ["q", None], "value_2": [1, None]}
LINE = {"a": ["x", "y"], "count": [5, 6], "sum": [1, 2]}


@pytest.mark.parametrize(
    ("changed", "given", "said"),
    [
        ({}, {"count": "n"}, "count must name a column of the table of counts, got 'n': it has a, count, sum"),
        ({"sum": ["1", "b"]}, {}, "column 'sum' holds text: convert it to numbers"),
        ({"count": [5, None]}, {}, "count is missing or infinite in line 2"),
        ({"a": ["x", "x"]}, {}, "there are two lines about x by 'a': there must be one"),
        ({"b": [1, 2], "c": [1, 2]}, {}, r"ignore leaves 3 columns of values in the table of counts \(a, b, c\)"),
        ({"a": ["[1, 5)", "[5, 9)"]}, {}, r"edges must be told for 'a', whose values are ranges of numbers"),
        ({}, {"noise_scale": "s"}, "the table of counts has no column 's' to tell its noise; it has a, count, sum"),
        ({}, {"epsilon": [1, 2]}, "epsilon says 2 things: say one for all, or one for each of the 1 tables"),
        ({"threshold": [3, 4]}, {"epsilon": 1}, "the threshold must be the same on all lines of all tables, got 3, 4"),
        ({"noise_variance": [-1.0, -1.0]}, {}, "the declared noise is not a finite number of at least 0"),
        ({}, {"threshold": 3}, "noise_variance must be told where rare cells are hidden"),
        ({}, {"threshold": -3}, "threshold must be a finite number above 0"),
        ({}, {"edges": {"b": [1]}}, "edges names 'b', by which no table counts: there are a"),
        ({}, {"edges": {"a": [1]}}, "edges of 'a' make the bins 0 to 1, but its tables have the value 'x'"),
        ({}, {"edges": {"a": "no"}}, "edges must be lists of numbers by feature"),
        ({}, {"epsilon": 1, "noise_scale": 2}, "noise_scale and epsilon say the same: give one of them"),
        (ITSELF, {}, "a line is about feature 'q' and itself"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_said(changed, given, said):
    with pytest.raises(ValueError, match=said):
        tables.read_aggregates([{**LINE, **changed}], **given)


def test_files_that_are_not_there_or_broken_are_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no Parquet or CSV file"):
        tables.read_aggregates(tmp_path)
    (tmp_path / "edges.json").write_text("{")
    with pytest.raises(ValueError, match="is no JSON file"):
        tables.read_aggregates([LINE], edges=tmp_path / "edges.json")


def test_rare_values_are_in_the_rest_with_their_pairs(exact):
    shown = exact.noised(lambda cells: cells, 0.0, threshold=900)
    lines = [pd.DataFrame({"f0": [*"01234"], "count": [950, 0, 0, 0, 0], "sum": 300}).iloc[:1]]
    lines.append(pd.DataFrame({"f0": ["0", "9"], "f1": ["a", "a"], "count": [940, 930], "sum": [200, 100]}))
    lines.append(pd.DataFrame({"f1": ["a"], "count": [2000], "sum": [500]}))
    found = tables.read_aggregates(lines, noise_variance=0, threshold=900)
    assert [one.levels for one in found.features] == [("0",), ("a",)]
    assert found.tables[2].count[0, 0] == 940
    assert np.isfinite(found.tables[2].count).sum() == 1
    assert shown.threshold == 900


@pytest.mark.parametrize("model", ["logistic", "ridge"])
def test_a_model_scores_rows_and_is_measured_as_others_are(model, rows, exact, tmp_path):
    frame, y = rows
    fitted = tables.fit_aggregates(exact, model, random_state=0)
    about = AboutAggregates.of(fitted, exact)
    bw.save(fitted, tmp_path / "model", about=facts(about))
    assert read_about_aggregates(bw.saving.inspect(tmp_path / "model").about) == about
    assert read_about_aggregates({}) is None
    with pytest.raises(ValueError, match="did not write"):
        read_about_aggregates({"aggregates": {}})
    again = bw.load(tmp_path / "model")
    found = tables.write_scores(again, frame, tmp_path / "scored.parquet")
    assert found.rows == len(frame)
    h = pd.read_parquet(tmp_path / "scored.parquet")["prediction"].to_numpy()
    np.testing.assert_allclose(h, fitted.estimator.predict_proba(frame)[:, 1], rtol=1e-12)
    data = tables.join(frame.assign(bag=np.arange(len(y))), {"bag": np.arange(len(y)), "count": y}, like=again)
    measured = tables.evaluate(again, data, formation="random")
    assert measured.brier.value == pytest.approx(np.mean((y - h) ** 2), abs=1e-6)
    with pytest.raises(ValueError, match="learns from tables of counts"):
        tables.update(again, data)


def test_what_a_model_tells_is_in_words(exact):
    rng = np.random.default_rng(0)
    noised = add_noise(exact, 5.0, rng)
    text = "\n".join(AboutAggregates.of(tables.fit_aggregates(noised), noised).lines)
    assert "by 3 features and 3 pairs of them" in text
    assert "Noise of variance 25 on each count and each sum, as declared" in text
    assert "R² of single rows by the tables" in text
    by_tables = noised_by(exact, lambda table: 5.0 * len(table.features), rng)
    text = "\n".join(AboutAggregates.of(tables.fit_aggregates(by_tables), by_tables).lines)
    assert "Noise of variance 25 to 100 on each count and each sum, as declared" in text
    hidden = add_noise(exact, 5.0, rng, threshold=50)
    text = "\n".join(AboutAggregates.of(tables.fit_aggregates(hidden), hidden).lines)
    assert "Counts below 50 are hidden" in text
    assert "the tables do not tell, since cells are hidden" in text
    wrong = Aggregates(noised.features, noised.tables, 1.0)
    with pytest.warns(bw.linear.NoiseDiffersWarning):
        model = tables.fit_aggregates(wrong)
    assert "times what was declared" in str(model.summary)
    untold = Aggregates(noised.features, noised.tables[:4], None)
    text = str(tables.fit_aggregates(untold, missing_pairs="independent").summary)
    assert "none was declared" in text
    assert "2 pairs of features have no table" in text


def test_other_models_are_no_models_of_tables(exact):
    with pytest.raises(ValueError, match="model must be one of 'logistic', 'ridge'"):
        tables.fit_aggregates(exact, "boosting")
    with pytest.raises(ValueError, match="must learn from tables of counts, got BagRidgeClassifier"):
        tables.fit_aggregates(exact, bw.BagRidgeClassifier())
