"""
How does ICQR choose its groups?
================================

:class:`icqr.ICQR` asks first which columns move the predictions (permutation importance), multiplies each column by
its importance, and then runs K-means for k = 2, 3, … It takes the first k whose clusters explain more than 90 % of the
variance. This script shows the three steps on one model.
"""

import matplotlib.pyplot as plt

from icqr import ICQR
from icqr.datasets import make_heteroscedastic
from icqr.plots import ExplainedVarianceDisplay, GroupMapDisplay, ImportanceDisplay

X, y = make_heteroscedastic(8000, random_state=0, return_X_y=True)
model = ICQR(coverage=0.9, random_state=0).fit(X, y)

# %%
# Only ``x1`` and ``x2`` have to do with y; the other columns are noise. Importance finds that out, so that noise does
# not shape the groups.

figure, panels = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
ImportanceDisplay.from_estimator(model, ax=panels[0])
ExplainedVarianceDisplay.from_estimator(model, ax=panels[1])
GroupMapDisplay.from_estimator(model, X, ax=panels[2])
panels[1].legend(loc="lower right")
panels[2].get_legend().remove()
panels[2].set_title("Groups", loc="left", pad=6)
plt.show()

# %%
# What a group is, in words, with its calibration rows and its offset:

model.groups_[["group", "n", "offset_lower", "promised", "rule"]].round(3)

# %%
# Other ways to choose: ``KMeansPartition(choose="silhouette")``, ``choose="elbow"``, or a number.
