"""
Why do my intervals cover more than I asked for?
================================================

Counts, and targets that are often zero, have many equal values. Many rows then tie with the offset, and an interval
that contains one of them contains all of them: it covers more than it promises. That is safe, and wider than necessary.
``ties="random"`` draws which intervals leave their ties out, so that coverage is what was promised.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor

from icqr import CQR
from icqr.plots import ReliabilityDisplay

# %%
# Orders a day: a small count, and often none.

rng = np.random.default_rng(0)
X = pd.DataFrame({"visitors": rng.gamma(2, 50, 9000), "discount": rng.random(9000) < 0.2})
orders = pd.Series(rng.poisson(0.02 * X["visitors"] * (1 + X["discount"])), name="orders")
train, test = slice(0, 4000), slice(4000, None)

small = HistGradientBoostingRegressor(max_iter=50)
models = {
    "ties covered": CQR(small, coverage=0.9, random_state=0),
    "ties random": CQR(small, coverage=0.9, ties="random", random_state=0),
}
for model in models.values():
    model.fit(X[train], orders[train])

# %%
# Coverage asked for against coverage observed:

levels = np.linspace(0.3, 0.95, 27).round(3).tolist()
ReliabilityDisplay.from_estimator(models, X[test], orders[test], levels=levels)
plt.show()

# %%
# The price of ``ties="random"``: two equal rows can get different intervals. Where that is not acceptable, keep the
# default and know that coverage is somewhat higher. :class:`icqr.AutoICQR` has bounds that seldom tie with y.
