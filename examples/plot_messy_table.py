"""
Can my table have gaps, text, dates and rare categories?
========================================================

Yes: hand over the DataFrame as it is. Text columns become categories, dates are features, and missing values reach the
models that take them. A category that comes up for the first time when you predict counts as missing.
:meth:`explain <icqr.ICQR.explain>` says for each row what its interval stands on.

Made-up used cars: ten brands of very different size, the day on which a car was listed, and a mileage that half of the
sellers of old cars leave out. Prices rise by 8 % a year.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from icqr import AutoICQR
from icqr.plots import GroupCoverageDisplay, IntervalDisplay

rng = np.random.default_rng(0)
n = 12_000
brands = ["Alba", "Boreal", "Corvo", "Delta", "Ember", "Fjord", "Gala", "Helio", "Ibis", "Juno"]
size = 0.6 ** np.arange(10)
cars = pd.DataFrame({"brand": rng.choice(brands, n, p=size / size.sum()), "age": rng.gamma(2, 3, n).round(1)})
cars["mileage"] = (12_000 * cars["age"] * rng.lognormal(0, 0.4, n)).round(-2)
days = rng.integers(0, 730, n)
cars["listed"] = pd.Timestamp("2023-01-01") + pd.to_timedelta(days, unit="D")
value = 35_000 - 1_500 * cars["brand"].map(brands.index)
spread = 0.08 + 0.02 * cars["age"].clip(upper=12)
growth = 0.08 * days / 365 - 0.09 * cars["age"] - cars["mileage"] / 4e5 + spread * rng.standard_normal(n)
price = (value * np.exp(growth)).rename("price")
cars.loc[(cars["age"] > 8) & (rng.random(n) < 0.5), "mileage"] = np.nan
cars.head()

# %%
# Fit on two thirds of the rows. Look at some new ones, among them a brand that nobody has seen.

old, new = slice(0, 8000), slice(8000, None)
model = AutoICQR(coverage=0.9, y_min=0, random_state=0).fit(cars[old], price[old])
some = cars[new].head(4).copy()
some.loc[some.index[-1], "brand"] = "Kappa"
pd.concat([some, model.explain(some)[["lower", "median", "upper", "promised", "guarantee"]].round(2)], axis=1)

# %%
# Does it hold where the mileage is missing, and for rare brands?

is_rare = ~cars["brand"].isin(brands[:3])
kinds = np.select([cars["mileage"].isna(), is_rare], ["mileage missing", "rare brand"], "other cars")[new]
figure, panels = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
IntervalDisplay.from_estimator(model, cars[new], price[new], feature="age", max_points=600, ax=panels[0])
panels[0].get_legend().remove()
panels[0].set_title("Price against age", loc="left", pad=6)
intervals = {"AutoICQR": model.predict_interval(cars[new])}
GroupCoverageDisplay.from_predictions(price[new], intervals, kinds, coverage=0.9, ax=panels[1])
plt.show()

# %%
# All three are within two points of 90 %. These kinds of rows are not the model's groups, so nothing is promised for
# them. If you must answer for one of them, make it a group: see :ref:`sphx_glr_gallery_plot_your_own_groups.py`.
