"""
How do I promise coverage for my own segments?
==============================================

If you answer for a column (a region, a customer segment, a product line), make its values the groups.
``GroupPartition("segment")`` gives each segment an offset from its own calibration rows. Coverage is then promised in
each of them. No other setting promises that.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import train_test_split

from icqr import CQR, AutoICQR, GroupPartition
from icqr.datasets import make_heteroscedastic
from icqr.plots import GroupCoverageDisplay

# %%
# Customers of four segments. The segment changes how much y spreads around what the other columns say. The model may
# see that too, but 4 % of the rows are "public", and a model does not learn much about them.

rng = np.random.default_rng(0)
X, y = make_heteroscedastic(12_000, random_state=0, return_X_y=True)
X["segment"] = rng.choice(["private", "small business", "industry", "public"], len(X), p=[0.5, 0.3, 0.16, 0.04])
spread = X["segment"].map({"private": 0.5, "small business": 0.8, "industry": 1.5, "public": 3.0})
y = y + spread * rng.standard_t(4, len(X)) * X["x2"]
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, random_state=0)

# %%
# One offset for all rows, against one for each segment:

models = {
    "CQR": CQR(coverage=0.9, random_state=0).fit(X_train, y_train),
    "own groups": AutoICQR(coverage=0.9, partition=GroupPartition("segment"), random_state=0).fit(X_train, y_train),
}
figure, ax = plt.subplots(figsize=(8, 3.8), layout="constrained")
GroupCoverageDisplay.from_estimator(models, X_test, y_test, ax=ax)
plt.show()

# %%
# What each segment is promised, and on how many calibration rows the promise stands:

models["own groups"].groups_[["rule", "n", "offset_lower", "offset_upper", "promised", "guarantee"]].round(3)
