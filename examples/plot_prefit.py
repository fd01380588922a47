"""
Can I use a model that is fitted already?
=========================================

Yes. :func:`icqr.prefit` wraps fitted models and never trains them again: all rows that you give then calibrate. Give
rows that the model has not seen.

A point model is enough for :class:`icqr.Naive`. For a width that changes from row to row, wrap a model for the lower
bound, the median and the upper bound.
"""

import matplotlib.pyplot as plt
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.frozen import FrozenEstimator

from icqr import CQR, Naive, prefit
from icqr.datasets import make_heteroscedastic
from icqr.plots import WidthResidualDisplay

X, y = make_heteroscedastic(12_000, random_state=0, return_X_y=True)
known, fresh, test = slice(0, 4000), slice(4000, 8000), slice(8000, None)

# %%
# These models stand for yours. They were fitted some time ago, perhaps by somebody else.

levels = (0.05, 0.5, 0.95)
point = HistGradientBoostingRegressor(random_state=0).fit(X[known], y[known])
boosting = [
    HistGradientBoostingRegressor(loss="quantile", quantile=level, random_state=0).fit(X[known], y[known])
    for level in levels
]
bounds = prefit(lower=boosting[0], median=boosting[1], upper=boosting[2], levels=levels)

# %%
# Calibrate them with fresh rows. No model is trained here. (``FrozenEstimator`` is scikit-learn's own sign for "fitted
# already".)

models = [Naive(FrozenEstimator(point), random_state=0), CQR(bounds, random_state=0)]
for model in models:
    model.fit(X[fresh], y[fresh])

# %%
# Are rows with wide intervals the ones with large errors? Each dot is a new row. The line with marks is the 90 %
# quantile of the errors; it should follow the dotted line, half the width.

figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
for panel, model in zip(panels, models, strict=True):
    WidthResidualDisplay.from_estimator(model, X[test], y[test], ax=panel)
    panel.get_legend().remove()
    panel.set_title(f"{type(model).__name__} around a fitted model", loc="left", pad=6)
panels[1].set_ylabel("")
plt.show()
