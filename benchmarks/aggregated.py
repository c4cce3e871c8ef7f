"""Models of single rows from noised tables of counts beside logistic regression on the rows: log loss and Brier score.

    python benchmarks/aggregated.py [data …]

Data are adult (fitted to its training rows, measured on its test rows) and criteo (fitted to the first 64,000 rows,
measured on the last 16,000, with the 30 most frequent values of each category). Numbers are cut into tenths. Tables are
by every feature and every pair; on every count and every sum there is Gaussian noise, three draws each; last, as in
Criteo's challenge on aggregated data, noise of 17 and counts below 10 hidden. Then noise that differs from table to
table, declared as it is or once as the mean variance. Methods were chosen on Adult and on the first 64,000 rows of
Criteo. Writes docs/results/aggregated.json, and prints it as the tables of docs/aggregated.md.
"""

import json
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss

from bagwise import AggregatedLogisticClassifier, AggregatedRidgeClassifier, datasets
from bagwise.data import Aggregates
from bagwise.gains import NoBetterThanConstantWarning
from bagwise.linear import NoiseDiffersWarning
from bagwise.linear.one_hot import OneHotMoments

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "aggregated.json"
CASES = ((0, None), (5, None), (17, None), (50, None), (17, 10))  # standard deviation of noise, threshold
UNEQUAL = {  # standard deviations of noise by the numbers of a table's features
    "17, 1,000 of one pair": lambda features: 1000 if features == (0, 1) else 17,
    "17, 300 of all tables by a feature": lambda features: 300 if 0 in features else 17,
    "17, 300 by single features": lambda features: 300 if len(features) == 1 else 17,
    "50, 0 by single features": lambda features: 0 if len(features) == 1 else 50,
}
DRAWS, BINS, LEVELS = 3, 10, 30
SAMPLED, SWEEPS, PENALTY = 20_000, 60, 30.0
NAMES = {
    "logistic": "logistic",
    "ridge": "ridge",
    "one-way": "logistic, no tables of pairs",
    "sampled": "logistic on rows sampled from a log-linear model",
    "rows": "logistic regression on the rows",
}
DECLARED = {"by table": "logistic, declared by table", "once": "logistic, declared once, as the mean variance"}


def split(name):
    """Rows of text and binned numbers to learn from and to measure on, labels, and where numbers are cut."""
    found = getattr(datasets, name)()
    X, X_test, edges = found.X, found.X_test, {}
    if name == "adult":
        X, X_test = (one.drop(columns=["fnlwgt", "education-num"]) for one in (X, X_test))
    for column in X.select_dtypes("number"):
        edges[column] = np.unique(np.nanquantile(X[column], np.arange(1, BINS) / BINS)).tolist()
    return X, found.y, X_test, found.y_test, edges


def one_hot(data, X):
    """(n, cells) rows in cells."""
    cells = np.stack([one.cells(X[one.name]) + data.first[i] for i, one in enumerate(data.features)], axis=1)
    pointers = np.arange(0, cells.size + 1, cells.shape[1])
    return sparse.csr_matrix((np.ones(cells.size), cells.ravel(), pointers), shape=(len(X), data.width))


def sampled(data, rng):
    """Logistic regression on rows that Gibbs sampling draws from the log-linear model of the pair tables.

    Its weights follow the difference of the tables and the rows while these are drawn. Returns w and b.
    """
    moments, d = OneHotMoments.of(data), len(data.features)
    target = np.maximum(moments.covariance / moments.rows + np.outer(moments.mean, moments.mean), 0)
    blocks = [data.block(one) for one in range(d)]
    for at in blocks:
        target[at, at] = np.diag(moments.mean[at])
    alone, pairs = np.log(np.maximum(moments.mean, 1e-6)), np.zeros_like(target)
    draw = [rng.choice(at.stop - at.start, SAMPLED, p=moments.mean[at] / moments.mean[at].sum()) for at in blocks]
    cells = np.stack([one + at.start for one, at in zip(draw, blocks, strict=True)], axis=1)
    pointers = np.arange(0, cells.size + 1, d)
    rows = sparse.csr_matrix((np.ones(cells.size), cells.ravel(), pointers), shape=(SAMPLED, data.width))
    for sweep in range(SWEEPS):
        for place, at in enumerate(blocks):
            scores = alone[at] + rows @ pairs[:, at]
            chance = np.exp(scores - scores.max(axis=1, keepdims=True)).cumsum(axis=1)
            new = (chance < rng.random((SAMPLED, 1)) * chance[:, -1:]).sum(axis=1)
            rows.indices.reshape(SAMPLED, d)[:, place] = at.start + new
        there = (rows.T @ rows).toarray() / SAMPLED
        step = 2 * (target - there) / (target + there + 5 / SAMPLED) / (1 + sweep / 20)
        alone += step.diagonal()
        for at in blocks:
            step[at, at] = 0
        pairs += step / np.sqrt(d)

    def loss(at):
        s = at[0] + rows @ at[1:]
        h, said = expit(s), moments.xy + moments.rows * moments.mean * moments.prior
        value = np.logaddexp(0, s).mean() - moments.prior * at[0] - said @ at[1:] / moments.rows
        penalty = PENALTY / moments.rows * at[1:]
        by_w = rows.T @ h / SAMPLED - said / moments.rows + penalty
        return value + penalty @ at[1:] / 2, np.concatenate([[h.mean() - moments.prior], by_w])

    start = np.concatenate([[logit(moments.prior)], np.zeros(data.width)])
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 300}).x
    return found[1:], found[0]


def fitted(method, data, seed):
    """What predicts rows in cells."""
    if method == "sampled":
        w, b = sampled(data, np.random.default_rng(seed))
        return w, b, None
    if method == "one-way":
        data = Aggregates(data.features, data.tables[: len(data.features)], data.noise_variance, data.threshold)
    classifier = AggregatedRidgeClassifier if method == "ridge" else AggregatedLogisticClassifier
    model = classifier(missing_pairs="independent", random_state=seed).fit(data)
    return model.coef_, model.intercept_, None if np.isnan(model.r2_) else model.r2_


def measure(name):
    """A line for each case and method: means over draws of noise."""
    X, y, X_test, y_test, edges = split(name)
    exact = Aggregates.of(X, y, edges=edges, max_levels=LEVELS)
    rows, rows_test = one_hot(exact, X), one_hot(exact, X_test)
    model = LogisticRegression(C=0.3, max_iter=1000).fit(rows, y)
    yield line(name, "rows", 0, None, [model.predict_proba(rows_test)[:, 1]], y_test, [0.0], [None])
    constant = [np.full(len(y_test), y.mean())]
    yield line(name, "constant", 0, None, constant, y_test, [0.0], [None])
    for scale, threshold in CASES:
        # Sampling takes longer the more values there are: of Adult alone.
        for method in ("logistic", "ridge", "one-way", *(("sampled",) if name == "adult" else ())):
            said, seconds, told = [], [], []
            for seed in range(DRAWS if scale else 1):
                rng, data = np.random.default_rng(seed), exact
                if scale:
                    noise = lambda cells, rng=rng: cells + rng.normal(scale=scale, size=cells.shape)  # noqa: B023, E731
                    data = exact.noised(noise, scale**2, threshold=threshold)
                start = time.process_time()
                w, b, r2 = fitted(method, data, seed)
                seconds.append(time.process_time() - start)
                said.append(expit(rows_test @ w + b))
                told.append(r2)
            yield line(name, method, scale, threshold, said, y_test, seconds, told)


def measure_unequal(name):
    """A line for each case of noise that differs, and each way to declare it: means over draws of noise."""
    X, y, X_test, y_test, edges = split(name)
    exact = Aggregates.of(X, y, edges=edges, max_levels=LEVELS)
    rows_test = one_hot(exact, X_test)
    for case, scale_of in UNEQUAL.items():
        found = {how: ([], [], []) for how in DECLARED}
        for seed in range(DRAWS):
            rng, tables = np.random.default_rng(seed), []
            for table in exact.tables:
                scale = scale_of(table.features)
                noised = [np.nan_to_num(one) + rng.normal(scale=scale, size=one.shape)
                          for one in (table.count, table.sum)]  # fmt: skip
                tables.append(replace(table, count=noised[0], sum=noised[1],
                                      noise_variance=np.full(table.count.shape, scale**2.0)))  # fmt: skip
            mean = np.concatenate([table.noise_variance.ravel() for table in tables]).mean()
            alike = tuple(replace(table, noise_variance=None) for table in tables)
            told = replace(exact, tables=tuple(tables)), replace(exact, tables=alike, noise_variance=mean)
            for (said, seconds, r2s), data in zip(found.values(), told, strict=True):
                start = time.process_time()
                w, b, r2 = fitted("logistic", data, seed)
                seconds.append(time.process_time() - start)
                said.append(expit(rows_test @ w + b))
                r2s.append(r2)
        for how, (said, seconds, r2s) in found.items():
            yield line(name, how, case, None, said, y_test, seconds, r2s)


def line(name, method, scale, threshold, said, y, seconds, told):
    """The measures of some predictions of the same rows."""
    losses = [log_loss(y, np.clip(h, 1e-6, 1 - 1e-6)) for h in said]
    found = {"data": name, "method": method, "noise": scale, "threshold": threshold, "draws": len(said)}
    found |= {"log_loss": float(np.mean(losses)), "spread": float(np.std(losses))}
    found |= {"brier": float(np.mean([brier_score_loss(y, h) for h in said]))}
    found |= {"seconds": float(np.mean(seconds)), "r2": None if None in told else float(np.mean(told))}
    print(found, flush=True)
    return found


def table(lines):
    """The figures as Markdown."""
    frame = pd.DataFrame(lines)
    text = []
    for name in frame["data"].unique():
        part = frame[frame["data"] == name]
        fixed = {one: part[part["method"] == one].iloc[0] for one in ("rows", "constant")}
        said = [f"{one['log_loss']:.4f} / {one['brier']:.4f}" for one in fixed.values()]
        text.append(f"{name}: logistic regression on the rows {said[0]}, the mean label alone {said[1]}.\n")
        methods = [one for one in NAMES if one in {*part["method"]} and one != "rows"]
        text.append("| noise | " + " | ".join(NAMES[one] for one in methods) + " |")
        text.append("| --- |" + " --- |" * len(methods))
        for scale, threshold in CASES:
            case = part[(part["noise"] == scale) & (part["threshold"].isna() == (threshold is None))]
            cells = [case[case["method"] == one].iloc[0] for one in methods]
            what = f"{scale}" if threshold is None else f"{scale}, counts below {threshold} hidden"
            text.append(
                f"| {what} | " + " | ".join(f"{one['log_loss']:.4f} / {one['brier']:.4f}" for one in cells) + " |"
            )
        text += ["", "| noise | " + " | ".join(DECLARED.values()) + " |", "| --- | --- | --- |"]
        for case in UNEQUAL:
            told = [part[(part["noise"] == case) & (part["method"] == how)].iloc[0] for how in DECLARED]
            text.append(
                f"| {case} | " + " | ".join(f"{one['log_loss']:.4f} / {one['brier']:.4f}" for one in told) + " |"
            )
        text.append("")
    return "\n".join(text)


if __name__ == "__main__":
    for kind in (NoBetterThanConstantWarning, NoiseDiffersWarning):
        warnings.simplefilter("ignore", kind)
    wanted = sys.argv[1:] or ["adult", "criteo"]
    stored = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    kept = [one for one in stored if one["data"] not in wanted]
    lines = kept + [one for name in wanted for how in (measure, measure_unequal) for one in how(name)]
    RESULTS.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")
    print(table(lines))
