"""
How do I get several coverages from one fit?
============================================

One fit keeps all calibration scores, so that it can answer for any coverage: ``predict_interval(X, coverage=[…])``
returns an array of shape ``(rows, 2, coverages)``. The intervals are nested: a higher coverage always contains a lower
one.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from icqr import AutoICQR
from icqr.datasets import make_sine_spread
from icqr.metrics import coverage_score

data, test = make_sine_spread(6000, random_state=0), make_sine_spread(4000, random_state=1)
model = AutoICQR(coverage=0.9, random_state=0).fit(data.X, data.y)

# %%
# A fan chart along ``x1``, with ``x2`` held at 0.5. Dashed lines are the true bounds of the 95 % interval.

coverages = [0.5, 0.8, 0.95]
along = pd.DataFrame({"x1": np.linspace(0, 1, 400), "x2": 0.5})
fan = model.predict_interval(along, coverage=coverages)

figure, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
for place in reversed(range(len(coverages))):
    label, alpha = f"{coverages[place]:.0%}", 0.2 + 0.12 * (2 - place)
    ax.fill_between(along["x1"], *fan[:, :, place].T, color="#0072B2", alpha=alpha, linewidth=0, label=label)
ax.plot(along["x1"], model.predict(along), color="#0072B2", label="median")
ax.plot(along["x1"], data.quantile(along, [0.025, 0.975]), "--", color="black", linewidth=1)
ax.set(xlabel="x1", ylabel="y")
ax.set_title("Three coverages from one fit", loc="left")
ax.legend(ncols=2, frameon=False, loc="lower left")
plt.show()

# %%
# Do they hold on new rows?

intervals = model.predict_interval(test.X, coverage=coverages)
for place, coverage in enumerate(coverages):
    print(f"asked for {coverage:.0%}, covered {coverage_score(test.y, intervals[:, :, place]):.1%}")
