"""
Measuring a model without labels
================================

The bags that were held out tell how good a model is on single rows: accuracy, calibration and the ROC curve, each with
an interval. Here the labels are known, so the estimates can be compared with the truth.
"""

# %%

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.metrics import roc_curve

import bagwise as bw

log = bw.datasets.synthetic(80_000, random_state=0)
X = pd.get_dummies(log.events, dtype=float).to_numpy()
ids = bw.random_bags(len(X), size=32, random_state=0)
y_bag = bw.aggregate(log.y, ids)
train, test = (ids >= 0) & (ids < 1250), ids >= 1250

model = bw.BagRidgeClassifier(random_state=0).fit(X[train], y_bag[train], bags=ids[train])
found = bw.evaluate(model, X[test], y_bag[test], bags=ids[test])
print(found)

# %%
# The curve that the bags give, its band, and the truth.

h = model.predict_proba(X[test])[:, 1]
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
roc = found.roc
left.plot(roc.x, roc.y, "o-", markersize=3, color="#0072B2", label="from bags alone")
left.fill_between(roc.x, roc.y_low, roc.y_high, color="#0072B2", alpha=0.15, linewidth=0)
left.plot(*roc_curve(log.y[test], h)[:2], "--", color="#D55E00", label="by the labels")
left.plot([0, 1], [0, 1], color="0.7", linewidth=1)
left.set(xlabel="false positive rate", ylabel="true positive rate")
left.legend(frameon=False)

names = ("accuracy", "brier", "auc")
truth = {
    "accuracy": ((h > 0.5) == log.y[test]).mean(),
    "brier": ((h - log.y[test]) ** 2).mean(),
    "auc": np.trapezoid(*roc_curve(log.y[test], h)[1::-1]),
}
right.axhline(0, color="#D55E00", linestyle="--", label="by the labels")
for place, name in enumerate(names):
    estimate = getattr(found, name)
    reach = [[estimate.value - estimate.low], [estimate.high - estimate.value]]
    right.errorbar(place, estimate.value - truth[name], yerr=reach, fmt="o", color="#0072B2", capsize=4, linewidth=2,
                   label="from bags alone, 95 % interval" if place == 0 else None)  # fmt: skip
right.set_xticks(range(len(names)), names)
right.set(xlim=(-0.6, len(names) - 0.4), ylabel="estimate less truth")
right.legend(frameon=False)
plt.show()
