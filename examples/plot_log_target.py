"""
How do I get good intervals for prices?
=======================================

Prices, durations and sales are positive and skewed: errors grow with the size of y. A model of the logarithm fits such
targets better. Put the model into scikit-learn's ``TransformedTargetRegressor``, as you would without intervals. The
intervals come back in the unit of y.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import QuantileRegressor

from icqr import CQR
from icqr.metrics import coverage_score, interval_score
from icqr.plots import IntervalDisplay

# %%
# Made-up flats: the price is a product of area, age and location, and so is its error.

rng = np.random.default_rng(0)
flats = pd.DataFrame({"area": rng.uniform(25, 160, 4000), "age": rng.uniform(0, 80, 4000)})
flats["centre"] = rng.random(4000) < 0.3
log_price = 11.3 + 0.013 * flats["area"] - 0.008 * flats["age"] + 0.4 * flats["centre"]
price = pd.Series(np.exp(rng.normal(log_price, 0.25)), name="price")
train, test = slice(0, 2500), slice(2500, None)

# %%
# The same linear quantile model, of the price and of its logarithm:

line = QuantileRegressor(alpha=0)
in_logs = TransformedTargetRegressor(line, func=np.log, inverse_func=np.exp)
figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
for panel, (title, estimator) in zip(panels, {"price": line, "log price": in_logs}.items(), strict=True):
    model = CQR(estimator, coverage=0.9, random_state=0).fit(flats[train], price[train])
    intervals = model.predict_interval(flats[test])
    score = interval_score(price[test], intervals, coverage=0.9)
    print(f"{title}: covers {coverage_score(price[test], intervals):.1%}, interval score {score:,.0f}")
    IntervalDisplay.from_estimator(model, flats[test], price[test], feature="area", max_points=500, ax=panel)
    panel.set_title(f"A linear model of the {title}", loc="left")
    panel.get_legend().remove()
panels[1].set_ylabel("")
plt.show()

# %%
# The straight lines can't bend: they are wrong for the cheapest and for the dearest flats. In logarithms the same model
# is right, and its interval score is lower. Both cover about 90 %, because both are calibrated.
#
# If a price can't be below some value, say so (``y_min=0``): no interval then goes below it.
