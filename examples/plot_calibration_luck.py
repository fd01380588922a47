"""
How many calibration rows do I need?
====================================

"90 % are covered" is true on average over calibration sets. You have one calibration set, and it can be a lucky or an
unlucky one. How lucky depends on one number only: how many rows it has.

:func:`icqr.plan` says how far off one calibration can be. We check it by calibrating one model again and again, on data
whose true law is known.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import QuantileRegressor

from icqr import CQR, plan
from icqr.datasets import make_linear_spread

print(plan(200, coverage=0.9))
print(plan(coverage=0.9, precision=0.02))

# %%
# The model is fitted once. For each size we draw 40 calibration sets, calibrate with each, and compute the true
# coverage of the intervals on 1,000 new rows: ``coverage`` knows the law that y was drawn from, so that no luck of the
# test rows is added.

first, new = make_linear_spread(1000, random_state=0), make_linear_spread(1000, random_state=1)
model = CQR(QuantileRegressor(alpha=0), coverage=0.9, random_state=0).fit(first.X, first.y)
sizes = [50, 100, 200, 500, 1000, 2000]
truth = {}
for size in sizes:
    truth[size] = []
    for seed in range(2, 42):
        draw = make_linear_spread(size, random_state=seed)
        intervals = model.calibrate(draw.X, draw.y).predict_interval(new.X)
        truth[size].append(new.coverage(new.X, intervals).mean())


# %%
# Each dot is one calibration. The band is what :func:`icqr.plan` says: 90 % of calibrations should be inside.

band = plan(coverage=0.9).table.query("50 <= rows <= 5000")
figure, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
ax.fill_between(band["rows"], band["band_lower"], band["band_upper"], alpha=0.2, label="plan: 90 % of calibrations")
rng = np.random.default_rng(0)
for size, coverages in truth.items():
    ax.plot(size * rng.uniform(0.94, 1.06, 40), coverages, "o", color="#D55E00", markersize=4, alpha=0.5)
ax.plot([], [], "o", color="#D55E00", markersize=4, label="one calibration")
ax.axhline(0.9, color="black", linestyle="--", linewidth=1)
ax.set(xscale="log", xlabel="calibration rows", ylabel="true coverage")
ax.set_title("The luck of one calibration set", loc="left")
ax.set_xticks([*sizes, 5000], [f"{size:,}" for size in [*sizes, 5000]])
ax.minorticks_off()
ax.set_yticks([0.8, 0.85, 0.9, 0.95], ["80 %", "85 %", "90 %", "95 %"])
ax.legend(loc="lower right")
plt.show()

# %%
# With groups, the rows of *each group* count. Ten groups of 100 rows have ten bands, each as wide as at 100.
# ``model.explain(X)`` states the band for every row.
