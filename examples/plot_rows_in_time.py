"""
What if my rows are in time order?
==================================

Yesterday's rows are not tomorrow's. If you draw calibration rows at random, they look like the training rows, and
coverage looks fine until you meet the future. ``fit(..., order=…)`` takes the newest rows for calibration instead:
``order`` is a column's name, or one value per row.

Even so, what was calibrated last year does not hold for ever. ``calibrate`` takes fresh rows and leaves the model as it
is, so that it takes a moment.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from icqr import CQR

# %%
# Demand of a shop over 40 months. It follows temperature and price; its level stays, but from month 12 on it becomes
# less and less predictable.

rng = np.random.default_rng(0)
n = 12_000
sales = pd.DataFrame({"temperature": rng.normal(15, 8, n), "price": rng.uniform(5, 10, n)})
month = np.arange(n) * 40 / n
noise = 4 + 0.35 * np.maximum(month - 12, 0)
demand = 100 + 2 * sales["temperature"] - 6 * sales["price"] + noise * rng.standard_normal(n)
past, future = month < 24, month >= 24

# %%
# The first 24 months are known. We fit twice, with calibration rows drawn at random and with the newest ones.

at_random = CQR(coverage=0.9, random_state=0).fit(sales[past], demand[past])
newest = CQR(coverage=0.9, random_state=0).fit(sales[past], demand[past], order=month[past])

# %%
# Then the future comes, month by month. A third model is calibrated every month with the rows of the last three months.


def covered(model, rows):
    lower, upper = model.predict_interval(sales[rows]).T
    return np.mean((lower <= demand[rows]) & (demand[rows] <= upper))


fresh = CQR(coverage=0.9, random_state=0).fit(sales[past], demand[past], order=month[past])
results = []
for now in range(24, 40):
    last, this = (month >= now - 3) & (month < now), (month >= now) & (month < now + 1)
    fresh.calibrate(sales[last], demand[last])
    results.append([covered(model, this) for model in (at_random, newest, fresh)])
coverage = pd.DataFrame(results, index=range(24, 40), columns=["drawn at random", "the newest", "fresh every month"])

figure, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
for name, marker, color in zip(coverage, "sDo", ("#767676", "#0072B2", "#D55E00"), strict=True):
    ax.plot(coverage[name], marker=marker, color=color, label=f"{name}: {coverage[name].mean():.0%}")
ax.axhline(0.9, color="black", linestyle="--", linewidth=1)
ax.set(xlabel="month", ylabel="coverage in the month")
ax.yaxis.set_major_formatter("{x:.0%}")
ax.legend(title="calibration rows", loc="lower left")
ax.set_title("Coverage of 90 % intervals as time goes on", loc="left")
plt.show()

# %%
# No calibration on old rows keeps up with a drift. The newest rows help, fresh ones every month help most. A little is
# still missing, because three months are a little old, too.
