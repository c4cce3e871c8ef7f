"""
What debiasing does
===================

Three losses estimate the square error of single rows from bags. All are right on average. What differs is how much one
bag's value scatters, and how that grows with the bag size.
"""

# %%
# x is uniform, the label is 1 with probability x², and the model under test predicts x³. Its true risk is known.

import matplotlib.pyplot as plt
import numpy as np

import bagwise as bw
from bagwise.losses import debiased_square, easyllp, li_square

rng = np.random.default_rng(0)
sizes, rows = [2, 8, 32, 128, 512], 2**18
prior, mean = 1 / 3, 1 / 4  # E[x²] and E[x³]
x = rng.uniform(size=rows)
y = rng.random(rows) < x**2
h = x**3
risk = float(((y - h) ** 2).mean())

values = {"ours: debiased": [], "Li et al.": [], "EasyLLP": []}
for k in sizes:
    ids = np.arange(rows) // k
    bags = bw.Bags.from_rows(bw.aggregate(y, ids), ids)
    values["ours: debiased"].append(debiased_square(h, bags, prior=prior, mean=mean))
    values["Li et al."].append(li_square(h, bags, prior=prior, mean=mean))
    values["EasyLLP"].append(easyllp(h, bags, prior=prior, loss="square"))

# %%
# The mean of each loss over all bags holds the true square error (grey line) within two standard errors. But the
# larger the bags, the fewer there are and, for two of the losses, the more one bag's value scatters.

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
looks, aside = ("o-", "^--", "D:"), (0.88, 1.0, 1.14)  # a little aside, so that bars do not hide each other
for (name, per_size), look, shift in zip(values.items(), looks, aside, strict=True):
    means = [v.mean() for v in per_size]
    errors = [2 * v.std() / np.sqrt(len(v)) for v in per_size]
    left.errorbar(np.multiply(sizes, shift), means, yerr=errors, fmt=look[0], label=name, capsize=2)
    right.plot(sizes, [v.var() for v in per_size], look, label=name)
left.axhline(risk, color="0.5", linewidth=1)
left.set(xscale="log", xlabel="bag size k", ylabel="mean of the loss ± 2 standard errors")
right.set(xscale="log", yscale="log", xlabel="bag size k", ylabel="variance of one bag's loss")
for axes in (left, right):
    axes.set_xticks(sizes, sizes)
right.legend(frameon=False)
plt.show()
