"""
Physics: a classifier from a few mixtures
=========================================

For a physicist who has a few large samples, each a mixture of signal and background in a proportion that is known, and
no event whose kind is known: a classifier of single events. The density of a kind is the same in all samples (`rates`).
"""

# %%
# Five simulated samples of 4,000 events, of which 10 to 50% are signal: a narrow peak in mass over a falling
# background, harder in momentum, and a third quantity that tells nothing.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score, roc_curve

import bagwise as bw

rng = np.random.default_rng(0)


def events(rates, n=4000):
    """Features of events, their kinds, and the sample of each."""
    sample = np.repeat(np.arange(len(rates)), n)
    kind = rng.random(len(sample)) < np.asarray(rates)[sample]
    mass = np.where(kind, rng.normal(125, 4, len(sample)), 80 + rng.exponential(40, len(sample)))
    momentum = rng.gamma(np.where(kind, 4.0, 2.0), 20)
    return np.column_stack([mass, momentum, rng.normal(size=len(sample))]), kind.astype(float), sample


X, kind, sample = events([0.1, 0.2, 0.3, 0.4, 0.5])
X_new, kind_new, _ = events([0.3])
proportion = bw.aggregate(kind, sample)  # all that is learned from

# %%
# Boosted trees by the likelihood of the counts, told how the samples came about; beside them trees on the labels of all
# events, which nobody has.

model = bw.BagBoostingClassifier(formation="rates", random_state=0).fit(X, proportion, bags=sample)
labelled = HistGradientBoostingClassifier(random_state=0).fit(X, kind)
scores = {
    "five mixtures, no event labelled": model.predict_proba(X_new)[:, 1],
    "all events labelled": labelled.predict_proba(X_new)[:, 1],
}
for name, score in scores.items():
    print(f"{name}: AUC {roc_auc_score(kind_new, score):.3f}")

# %%
# Five samples are too few for `diagnose` to tell how they came about. That they differ in rates alone is known from how
# they were made, and is why the formation is given above.

print(bw.diagnose(X, proportion, bags=sample).verdict)

# %%

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for (name, score), colour in zip(scores.items(), ("#0072B2", "#D55E00"), strict=True):
    x, y, _ = roc_curve(kind_new, score)
    left.plot(x, y, color=colour, label=name)
left.set(xlabel="background accepted", ylabel="signal accepted")
left.legend(frameon=False, loc="lower right")
chosen = scores["five mixtures, no event labelled"] > 0.5
bins = np.linspace(80, 200, 49)
right.hist(X_new[:, 0], bins, histtype="step", color="0.5", label="all events")
right.hist(X_new[chosen, 0], bins, color="#0072B2", alpha=0.6, label="taken for signal")
right.set(xlabel="mass", ylabel="events")
right.legend(frameon=False)
plt.show()
