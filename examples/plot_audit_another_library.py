"""
Where do another library's intervals fail?
==========================================

:func:`icqr.audit` takes intervals from anywhere: it needs what happened, two bounds per row, and the columns. It looks
for regions on one half of the rows, judges them on the other half, and says in words what it found.

Here we audit the intervals of scikit-learn alone: two gradient boosting models, for the 5 % and the 95 % quantile. This
is a usual way to get 90 % intervals, and nothing calibrates them.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import GradientBoostingRegressor

from icqr import audit
from icqr.datasets import make_heteroscedastic

X, y = make_heteroscedastic(6000, random_state=0, return_X_y=True)
X["weekend"] = np.random.default_rng(0).random(len(X)) < 2 / 7
y = y + 1.5 * X["weekend"] * np.random.default_rng(1).standard_normal(len(X))
train, test = slice(0, 2000), slice(2000, None)
bounds = [
    GradientBoostingRegressor(loss="quantile", alpha=level, n_estimators=200, max_depth=4, random_state=0)
    .fit(X[train], y[train])
    .predict(X[test])
    for level in (0.05, 0.95)
]

# %%
# The findings, the worst first:

intervals = np.sort(np.column_stack(bounds), axis=1)  # two models, so that bounds can cross
result = audit(y[test], intervals, X[test], coverage=0.9, with_excess_risk=False)
for sentence in result.findings[:4]:
    print("-", sentence)

# %%
# The same as a picture: each line says where a region's true coverage very likely is.

regions = result.alarms.head(8).iloc[::-1].reset_index(drop=True)
figure, ax = plt.subplots(figsize=(9, 4.2), layout="constrained")
ax.hlines(regions.index, regions["coverage_lower"], regions["coverage_upper"], color="#D55E00", linewidth=2)
ax.plot(regions["coverage"], regions.index, "o", color="#D55E00")
ax.axvline(0.9, color="black", linestyle="--", linewidth=1)
ax.set_yticks(regions.index, [f"{row.region}  (n = {row.n:,})" for row in regions.itertuples()])
ax.xaxis.set_major_formatter("{x:.0%}")
ax.set(xlabel="coverage", xlim=(None, 0.95))
ax.set_title("Regions that fall short of 90 %", loc="left")
plt.show()

# %%
# Uncalibrated quantile models cover too little everywhere, because they know their training rows. Some regions are much
# worse than the average. ``CQR(prefit(…))`` mends the average, and ``ICQR`` or ``AutoICQR`` the groups.
