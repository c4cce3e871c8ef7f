"""
A grid search without labels
============================

The penalty of a pipeline is chosen by cross-validation over bags: scikit-learn's own search, and no label of a row.
"""

import pandas as pd
import sklearn
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import bagwise as bw
from bagwise.cross_validation import BagKFold, label_free_scorer

sklearn.set_config(enable_metadata_routing=True)  # bags find their way to fit, splitter and scorers

log = bw.datasets.synthetic(40_000, random_state=0)
X = pd.get_dummies(log.events, dtype=float)
ids = bw.random_bags(len(X), size=32, random_state=0)  # the data holder's side
y_bag = bw.aggregate(log.y, ids)
train, test = (ids >= 0) & (ids < 900), ids >= 900

search = GridSearchCV(
    Pipeline([("scale", StandardScaler()), ("ridge", bw.BagRidgeClassifier(scaling=0, random_state=0))]),
    {"ridge__alphas": [0.01, 0.1, 1.0]},
    cv=BagKFold(3, random_state=0),
    scoring={metric: label_free_scorer(metric) for metric in ("neg_risk", "accuracy", "auc")},
    refit="neg_risk",
).fit(X[train], y_bag[train], bags=ids[train])

table = pd.DataFrame(search.cv_results_["params"])
for metric in ("neg_risk", "accuracy", "auc"):
    table[metric] = search.cv_results_[f"mean_test_{metric}"]
print(table.round(4).to_string(index=False))
print("chosen:", search.best_params_)
print("accuracy without labels:", bw.evaluate(search, X[test], y_bag[test], bags=ids[test]).accuracy)
print(f"accuracy by the labels:  {(search.predict(X[test]) == log.y[test]).mean():.4f}")
