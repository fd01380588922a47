"""
What are groups by difficulty?
==============================

Clusters group rows that look alike. :class:`icqr.ScorePartition` groups rows that are alike in what counts for an
offset: how far their y tends to fall outside the raw bounds. This *difficulty* is learned from training rows, by models
that have not seen the row, and then cut into groups of equal size.

We use straight lines for data that follow a sine, so that there is something to mend.
"""

import matplotlib.pyplot as plt
from sklearn.linear_model import QuantileRegressor

from icqr import CQR, ICQR, ScorePartition, prefit
from icqr.datasets import make_sine_spread
from icqr.plots import GroupMapDisplay

data, test = make_sine_spread(14_000, random_state=0), make_sine_spread(4000, random_state=1)
levels = (0.05, 0.5, 0.95)
lines = [QuantileRegressor(quantile=level, alpha=0).fit(data.X[:2000], data.y[:2000]) for level in levels]
bounds = prefit(lower=lines[0], median=lines[1], upper=lines[2], levels=levels)
X, y = data.X[2000:], data.y[2000:]
one = CQR(bounds, coverage=0.9, random_state=0).fit(X, y)
grouped = ICQR(bounds, coverage=0.9, partition=ScorePartition(n_groups=6), random_state=0).fit(X, y)

# %%
# Left: the groups, from 0 (easy) to 5 (hard). Right: the true coverage of every row, known here because the data are
# drawn from a known law.

figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
GroupMapDisplay.from_estimator(grouped, test.X, features=["x1", "x2"], ax=panels[0])
for model, color, marker in ((one, "#0072B2", "D"), (grouped, "#D55E00", "o")):
    truth = test.coverage(test.X, model.predict_interval(test.X))
    label = f"{type(model).__name__}: {100 * abs(truth - 0.9).mean():.1f} points off on average"
    panels[1].scatter(test.X["x1"], truth, s=3, color=color, marker=marker, label=label)
panels[1].axhline(0.9, color="black", linestyle="--", linewidth=1)
panels[1].set(xlabel="x1", ylabel="true coverage of the row")
panels[1].yaxis.set_major_formatter("{x:.0%}")
panels[1].set_title("One offset, or one per group", loc="left", pad=6)
panels[1].set_ylim(0.5, 1)
panels[1].legend(markerscale=3)
plt.show()

# %%
# With six groups the coverage of single rows comes nearer to 90 %. It jumps where one group ends and the next begins.
# The groups and their offsets:

grouped.groups_[["group", "n", "offset_lower", "promised", "rule"]].round(3)
