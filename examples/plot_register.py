"""
Election and health: from totals to people
==========================================

For an analyst who has a register of people, and totals by precinct of which small ones are hidden: probabilities for
single people, coefficients with intervals, and rates of groups that no total tells.
"""

# %%
# A simulated register of 200 wards whose people differ in age and place. Counts below five are hidden, which leaves an
# interval in their place. Wards are not random sets of people, and have effects of their own that nobody measured.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bagwise as bw

rng = np.random.default_rng(0)
size = rng.integers(30, 120, 200)
ward = np.repeat(np.arange(200), size)
older, urban = rng.normal(size=200)[ward], rng.random(200)[ward]
age = 50 + 8 * older + 12 * rng.normal(size=len(ward))
place = np.where(rng.random(len(ward)) < urban, "town", "country")
unseen = 0.3 * rng.normal(size=200)
chance = 1 / (1 + np.exp(-(-2.2 + 0.05 * (age - 50) + 0.8 * (place == "town") + unseen[ward])))
ill = rng.random(len(ward)) < chance
people = pd.DataFrame({"ward": ward, "age": age.round(), "place": place})

count = np.bincount(ward, ill)
hidden = count < 5
totals = pd.DataFrame({"ward": range(200), "least": np.where(hidden, 0, count), "most": np.where(hidden, 4, count)})
print(f"{hidden.sum()} of 200 counts are hidden")

# %%
# How did the wards come about? Then a logistic model by the likelihood of counts, for which wards may have effects.

data = bw.tables.join(people, totals, low="least", high="most")
print(bw.tables.diagnose(data).verdict)
model = bw.tables.fit(data, "logistic", random_state=0)
print(model.estimator.formation_)

# %%
# Who is ill more often, in town or in the country? Totals mix both. The interval names what it assumes, bounds hold
# whatever is true, and the truth is known here alone.

found = bw.tables.group_rates(model, people, reports=totals, by="place", low="least", high="most")
print(found)

fig, ax = plt.subplots(figsize=(6.4, 2.4), layout="constrained")
for line, one in enumerate(found.rates):
    ax.plot([one.least, one.most], [line, line], color="0.8", linewidth=6, label="bounds" if line == 0 else None)
    ax.plot(
        [one.low, one.high], [line, line], color="#0072B2", linewidth=3, label="95% interval" if line == 0 else None
    )
    ax.plot(ill[place == one.value].mean(), line, "D", color="#D55E00", label="truth" if line == 0 else None)
ax.set_yticks(range(len(found.rates)), [one.value for one in found.rates])
ax.set(xlabel="rate", ylim=(-0.6, len(found.rates) - 0.4))
ax.legend(frameon=False, ncols=3, loc="upper center")
plt.show()
