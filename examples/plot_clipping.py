"""
What clipping does
==================

A bag's residual R has standard deviation √(kr). Now and then one is far out, and its square decides alone which
hypothesis looks best. The paper's empirical risk leaves out residuals beyond a threshold that a good bag hardly ever
reaches: it costs next to no bias, and a few wrong reports no longer matter.
"""

# %%
# 200 bags of 1,024 rows; three of the reports are wrong and say that all labels, or none, were positive. In small bags
# no residual is ever beyond the threshold, which is made for a guarantee: there, clipping changes nothing.

import matplotlib.pyplot as plt
import numpy as np

import bagwise as bw
from bagwise.losses import clip_threshold, debiased_square, residual

rng = np.random.default_rng(1)
m, k = 200, 1024
x = rng.uniform(size=m * k)
ids = np.arange(m * k) // k
y_bag = bw.aggregate(rng.random(m * k) < x, ids)
wrong = np.isin(ids, [10, 100, 150])
y_bag[wrong] = np.where(y_bag[wrong] > 0.5, 0.0, 1.0)
bags = bw.Bags.from_rows(y_bag, ids)

powers = np.array([0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0])
clip = clip_threshold(k, regret=0.1)
plain, clipped, r = [], [], None
for power in powers:
    h = x**power
    means = {"prior": 0.5, "mean": 1 / (power + 1)}
    plain.append(debiased_square(h, bags, **means).mean())
    clipped.append(debiased_square(h, bags, **means, clip=clip).mean())
    if power == 1.0:
        r = residual(bags.sum(h), bags.size, bags.proportion, **means)

# %%
# Left, the residuals of the true model with the threshold; right, how much worse than the best of them each candidate
# looks, with and without clipping. The truth is the power 1.

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.hist(r, bins=60, color="#56B4E9")
for side in (-clip, clip):
    left.axvline(side, color="#D55E00", linestyle="--")
left.set(xlabel="residual R of a bag", ylabel="bags", yscale="log")
left.annotate("threshold", (clip, 20), (-4, 0), textcoords="offset points", ha="right", color="#D55E00")
right.plot(powers, np.subtract(plain, min(plain)), "s--", label="all bags")
right.plot(powers, np.subtract(clipped, min(clipped)), "o-", label="clipped")
right.axvline(1, color="0.5", linewidth=1)
right.set(xlabel="power of x that is predicted", ylabel="empirical risk above the smallest")
right.legend(frameon=False)
plt.show()
