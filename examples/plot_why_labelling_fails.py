"""
Why labelling rows with proportions fails
=========================================

The obvious way to learn from bags is to give each row its bag's proportion as a label. The larger the bag, the more
all rows have the same label, and the model learns to say the overall mean. The debiased loss takes that mean apart from
the rest and gives what is left the weight it deserves, so that larger bags cost less.
"""

# %%
# A simulated advertising log, whose individual labels are used to measure only. Bags of growing size are drawn from the
# same rows, and two linear models learn from them: logistic regression on rows labelled with proportions, and ridge on
# the debiased loss.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import bagwise as bw

log = bw.datasets.synthetic(30_000, random_state=0)
X = StandardScaler().fit_transform(pd.get_dummies(log.events, dtype=float))
train, test = slice(0, 20_000), slice(20_000, None)
sizes = [1, 4, 16, 64, 256]


def naive(y_bag):
    """Each row twice, once with each label, weighted by its bag's proportion."""
    twice = np.concatenate([X[train], X[train]])
    labels = np.repeat([1, 0], 20_000)
    model = LogisticRegression(max_iter=200).fit(twice, labels, sample_weight=np.concatenate([y_bag, 1 - y_bag]))
    return model.predict_proba(X[test])[:, 1]


def square_error(h):
    return float(((h - log.y[test]) ** 2).mean())


found = {"rows labelled with proportions": [], "debiased, ridge": []}
for k in sizes:
    ids = bw.random_bags(20_000, size=k, random_state=k)
    y_bag = np.nan_to_num(bw.aggregate(log.y[train], ids), nan=log.y[train].mean())
    found["rows labelled with proportions"].append(square_error(naive(y_bag)))
    model = bw.BagRidgeClassifier(random_state=0).fit(X[train], bw.aggregate(log.y[train], ids), bags=ids)
    found["debiased, ridge"].append(square_error(model.predict_proba(X[test])[:, 1]))

fig, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for (name, values), look in zip(found.items(), ("s--", "o-"), strict=True):
    axes.plot(sizes, values, look, label=name)
axes.axhline(log.y[test].var(), color="0.5", linewidth=1)
axes.annotate("constant guess", (1, log.y[test].var()), (0, -12), textcoords="offset points", color="0.4")
axes.set(xscale="log", xlabel="bag size k", ylabel="square error on single rows", xticks=sizes, xticklabels=sizes)
axes.legend(frameon=False)
plt.show()
