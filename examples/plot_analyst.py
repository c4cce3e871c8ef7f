"""
Advertising: a conversion model from two tables
===============================================

For an analyst who has impressions with features, and a table that says how many of each bucket converted, with noise.
What comes out is a probability for each impression, and how good it is, as far as the reports tell.
"""

# %%
# The log is simulated, so that the end can compare with the truth. Its 60,000 impressions are in 600 buckets, each of
# which reports a count with noise of variance 8, as its line declares.

import matplotlib.pyplot as plt
import numpy as np

import bagwise as bw

rng = np.random.default_rng(0)
log = bw.datasets.synthetic(60_000, random_state=0)
bucket = rng.permutation(len(log)) % 600
events = log.events.assign(bucket=bucket, row=np.arange(len(log)))
counts = np.bincount(bucket, weights=log.y) + rng.laplace(scale=2, size=600)
reports = {"bucket": np.arange(600), "count": counts, "noise_variance": np.full(600, 8.0)}

# %%
# Do the tables fit, and how did the buckets come about? That decides what may be concluded from them.

data = bw.tables.join(events, reports, noise_variance="noise_variance")
print(data.summary)
print(bw.tables.diagnose(data).verdict)

# %%
# A fifth of the buckets is held out: the model never sees them, and they measure it, without a label of a row.

train, held_out = bw.tables.split(data, 0.2)
model = bw.tables.fit(train, "boosting", roles={"row": "ignored"}, random_state=0)
found = bw.tables.evaluate(model, held_out)
print(found)

# %%
# Only a simulation knows the labels of single rows: what the reports say of the model, and what is true. The intervals
# are wide. With 120 noised buckets more cannot be known, and they say so.

rows = held_out.rows().fetch()["row"].to_numpy()
y, h = log.y[rows], model.predict_proba(log.events.iloc[rows])[:, 1]
truth = {"accuracy": np.mean((h > 0.5) == y), "brier": np.mean((h - y) ** 2)}
fig, ax = plt.subplots(figsize=(6.4, 2.4), layout="constrained")
for place, (name, value) in enumerate(truth.items()):
    one = getattr(found, name)
    ax.errorbar(
        one.value, place, xerr=[[one.value - one.low], [one.high - one.value]], fmt="o", color="#0072B2", capsize=4
    )
    ax.plot(value, place, "D", color="#D55E00")
ax.set_yticks(range(len(truth)), truth)
ax.set(ylim=(-0.6, 1.6), title="from reports alone, 95% interval (blue); by the labels (orange)")
plt.show()
