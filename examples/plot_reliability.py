"""
Is each coverage as often right as it says?
===========================================

A forecaster who says "70 %" should be right in seven of ten cases. So should intervals, whatever coverage you ask for.
A reliability picture shows the coverage observed against the coverage asked for.

A common recipe is the prediction ± z standard deviations of the training residuals. It goes wrong twice: the model
knows its training rows, so that these residuals are too small; and real errors are seldom normal.
:class:`icqr.AutoICQR` measures the errors on rows that the model has not seen, and takes them as they are.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm
from sklearn.ensemble import HistGradientBoostingRegressor

from icqr import AutoICQR
from icqr.datasets import make_heteroscedastic
from icqr.plots import ReliabilityDisplay

# %%
# Skewed targets, like prices or waiting times: y is the exponential of a heteroscedastic target.

X, log_y = make_heteroscedastic(6000, random_state=0, return_X_y=True)
y = np.exp(log_y)
train, test = slice(0, 3000), slice(3000, None)

# %%
# The recipe, and one fit of :class:`icqr.AutoICQR` that is asked for the same coverages:

levels = np.linspace(0.1, 0.95, 18)
point = HistGradientBoostingRegressor(random_state=0).fit(X[train], y[train])
spread = np.std(y[train] - point.predict(X[train]))
margins = np.outer([-1, 1], norm.ppf((1 + levels) / 2) * spread)
model = AutoICQR(coverage=0.9, random_state=0).fit(X[train], y[train])
intervals = {
    "prediction ± z s": point.predict(X[test])[:, None, None] + margins,
    "AutoICQR": model.predict_interval(X[test], coverage=levels.tolist()),
}

ReliabilityDisplay.from_predictions(y[test], intervals, levels)
plt.show()

# %%
# The recipe covers far more than asked for in the middle, and at 95 % less: most errors are small and a few are huge,
# so that no multiple of one standard deviation fits both. AutoICQR follows the diagonal.
