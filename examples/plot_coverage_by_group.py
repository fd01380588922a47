"""
Do 90 % intervals hold in every part of my data?
================================================

Conformalized quantile regression (CQR) moves all bounds by one offset, so that coverage is right on average over all
rows. If the quantile model is wrong, that is too little: coverage is too high in one part of the data and too low in
another.

We take a model that is wrong on purpose: straight lines, for data that follow a sine.
:class:`icqr.CQR` and :class:`icqr.ICQR` get these same lines and differ in the offsets only.
:class:`icqr.AutoICQR` learns bounds of its own.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import QuantileRegressor

from icqr import CQR, ICQR, AutoICQR, prefit
from icqr.datasets import make_sine_spread
from icqr.plots import GroupCoverageDisplay

data = make_sine_spread(22_000, random_state=0)
levels = (0.05, 0.5, 0.95)
lines = [QuantileRegressor(quantile=level, alpha=0).fit(data.X[:2000], data.y[:2000]) for level in levels]
bounds = prefit(lower=lines[0], median=lines[1], upper=lines[2], levels=levels)

# %%
# The lines are fitted on 2,000 rows. The other 20,000 are for offsets: :class:`icqr.CQR` finds one, and
# ``partition="auto"`` lets :class:`icqr.ICQR` look for groups of rows that need the same offset.

X, y = data.X[2000:], data.y[2000:]
models = [CQR(bounds, random_state=0), ICQR(bounds, partition="auto", random_state=0), AutoICQR(random_state=0)]
for model in models:
    model.fit(X, y)
print(f"ICQR has {models[1].n_groups_} groups, AutoICQR {models[2].n_groups_}.")

# %%
# Now 20,000 new rows are cut into ten slices along ``x1``, and we count how many y are inside in each slice. No model
# knows these slices: they are what somebody else may ask about.

test = make_sine_spread(20_000, random_state=1)
slices = np.minimum((10 * test.X["x1"]).astype(int), 9)
names = {number: f"{number / 10} < x1 < {(number + 1) / 10}" for number in range(10)}
GroupCoverageDisplay.from_estimator(models, test.X, test.y, groups=slices, names=names)
plt.show()

# %%
# All three cover about 90 % of all rows. CQR on lines is off by several points in most slices. The same lines with one
# offset per group come much nearer. Groups can only mend what they can see: inside a group, coverage may still vary.
