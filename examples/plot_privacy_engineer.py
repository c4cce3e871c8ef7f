"""
Privacy: what a release costs and what it leaks
===============================================

For a data holder who has labels and publishes counts: which bag size and which ε, what the counts give away, and what a
model learns from them. Noise is drawn by OpenDP from the system's secure generator, so that figures differ a little
each time.
"""

# %%
# First without any data: what regret, the accuracy that learning from the release costs, is to be expected?

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bagwise as bw
from bagwise.planning import Question, curves

plan = curves(Question(rows=200_000, epsilons=(1.0, 0.1), regret=0.01, hypotheses=100))
wide = plan[plan["k"].isin([4, 16, 64, 256])].fillna({"epsilon": np.inf})
print(wide.pivot(index="k", columns="epsilon", values="regret_expected").round(4))

# %%
# Bags of 16 rows reveal labels where all of a bag are alike; noise on the counts guards against that.

log = bw.datasets.synthetic(100_000, random_state=0)
X = pd.get_dummies(log.events, dtype=float)
train, test = np.arange(80_000), np.arange(80_000, 100_000)
for size in (4, 16, 64):
    ids = bw.random_bags(len(train), size, random_state=0)
    print(f"bags of {size}:", bw.diagnose(X.iloc[train], bw.aggregate(log.y[train], ids), bags=ids).leaks)

# %%
# Then with the data: release counts for several bag sizes and budgets, fit to each, and measure on rows kept apart,
# which the data holder can. Accuracy of the mean label is the level of a model that learned nothing.

accuracy = {}
for size in (4, 16, 64, 256):
    ids = bw.random_bags(len(train), size, random_state=0)
    for epsilon in (1.0, 0.1):
        released = bw.release(log.y[train], ids, epsilon=epsilon)
        model = bw.BagRidgeClassifier(random_state=0).fit(X.iloc[train], bags=released.bags)
        accuracy[size, epsilon] = model.score(X.iloc[test], log.y[test])

fig, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
for epsilon, colour in ((1.0, "#0072B2"), (0.1, "#D55E00")):
    sizes = [size for size, one in accuracy if one == epsilon]
    ax.plot(sizes, [accuracy[size, epsilon] for size in sizes], "o-", color=colour, label=f"ε = {epsilon:g}")
ax.axhline(1 - log.y[test].mean(), color="0.5", linewidth=1, linestyle="--", label="the mean label")
ax.set_xscale("log")
ax.set_xticks([4, 16, 64, 256], ["4", "16", "64", "256"])
ax.minorticks_off()
ax.set(xlabel="rows of a bag", ylabel="accuracy on rows kept apart")
ax.legend(frameon=False)
plt.show()

# %%
# What was spent, as the release says it itself.

print(released.budget)
