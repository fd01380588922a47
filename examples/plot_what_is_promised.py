"""
What is promised, and what is not?
==================================

A promise about intervals is a promise about an average. What is averaged over? This simulation looks at four answers,
with data whose true law is known: all rows, the rows of a group, one calibration set, a single row.

The raw bounds are straight lines for data that follow a sine: wrong, and wrong in different places in different
directions. :class:`icqr.CQR` and :class:`icqr.ICQR` both get these lines. Both are calibrated 200 times, each time with
800 fresh rows, and we compute the true coverage of each new row's interval.
"""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.linear_model import QuantileRegressor

from icqr import CQR, ICQR, KMeansPartition, prefit
from icqr.datasets import make_sine_spread

train, new = make_sine_spread(2000, random_state=0), make_sine_spread(10_000, random_state=1)
levels = (0.05, 0.5, 0.95)
lines = [QuantileRegressor(quantile=level, alpha=0).fit(train.X, train.y) for level in levels]
bounds = prefit(lower=lines[0], median=lines[1], upper=lines[2], levels=levels)

first = make_sine_spread(800, random_state=2)
models = {
    "CQR": CQR(bounds, coverage=0.9, random_state=0),
    "ICQR": ICQR(bounds, coverage=0.9, partition=KMeansPartition(choose=8), random_state=0),
}
for model in models.values():
    model.fit(train.X, train.y, X_calibration=first.X, y_calibration=first.y)

# %%
# ``truth`` has a row for each calibration and a column for each new row. "Drifted" rows have the same columns, and a
# spread that is larger by half.

drifted = replace(new, scale=lambda Z: 1.5 * new.scale(Z))
truth: dict[str, list] = {"CQR": [], "ICQR": [], "ICQR, drifted": []}
for seed in range(3, 203):
    fresh = make_sine_spread(800, random_state=seed)
    for name, model in models.items():
        intervals = model.calibrate(fresh.X, fresh.y).predict_interval(new.X)
        truth[name].append(new.coverage(new.X, intervals))
    truth["ICQR, drifted"].append(drifted.coverage(new.X, intervals))
truth = {name: np.array(coverages) for name, coverages in truth.items()}

# %%
# The answers, in numbers. Promised are 90 % in the first two rows, and nothing in the others.

groups = models["ICQR"].assign(new.X)
by_group = {name: np.array([truth[name][:, groups == g].mean(axis=1) for g in range(8)]) for name in models}
table = pd.DataFrame(
    {
        "all rows, mean over calibrations": {name: truth[name].mean() for name in models},
        "the worst group, mean over calibrations": {name: by_group[name].mean(axis=1).min() for name in models},
        "all rows, the worst calibration of 20": {name: np.quantile(truth[name].mean(axis=1), 0.05) for name in models},
        "the worst row of 20, mean over calibrations": {
            name: np.quantile(truth[name].mean(axis=0), 0.05) for name in models
        },
        "all rows, after the spread grew by half": {"ICQR": truth["ICQR, drifted"].mean()},
    }
).T
table.map("{:.1%}".format)

# %%
# On the left, each box is a group over 200 calibrations; whiskers hold 90 % of them. On the right, each dot is a row's
# coverage, averaged over calibrations.

figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
for shift, (name, color) in enumerate({"CQR": "#0072B2", "ICQR": "#D55E00"}.items()):
    look = {"patch_artist": True, "boxprops": {"facecolor": color, "alpha": 0.5}, "medianprops": {"color": "black"}}
    places = np.arange(8) + 0.36 * (shift - 0.5)
    panels[0].boxplot(by_group[name].T, positions=places, widths=0.3, whis=(5, 95), showfliers=False, **look)
    panels[1].plot(new.X["x1"][:3000], truth[name].mean(axis=0)[:3000], ".", color=color, markersize=3, label=name)
for panel in panels:
    panel.axhline(0.9, color="black", linestyle="--", linewidth=1)
panels[0].set_xticks(range(8), range(8))
panels[0].set_xlabel("group")
panels[0].set_ylabel("true coverage")
panels[0].yaxis.set_major_formatter("{x:.0%}")
panels[0].set_title("In groups, ICQR's average is 90 %", loc="left")
panels[1].set(xlabel="x1", ylim=(0.6, 1))
panels[1].set_title("In single rows, neither is", loc="left")
panels[1].legend(markerscale=4)
plt.show()

# %%
# ICQR keeps its promise in every group, on average over calibrations. One calibration can be off, and more so in a
# group than overall, because a group has fewer calibration rows. Inside a group coverage still varies from row to row.
# And no calibration holds for data that have changed since.
