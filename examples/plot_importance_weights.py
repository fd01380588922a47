"""
What do importance weights change?
==================================

K-means treats all columns alike: ten columns of noise outvote the one column that matters. The paper's idea is to
multiply each column by its importance before clustering. Here are both, on data with two columns that matter and eight
that don't.
"""

import matplotlib.pyplot as plt
import numpy as np

from icqr import ICQR, KMeansPartition
from icqr.datasets import make_heteroscedastic
from icqr.plots import GroupMapDisplay

X, y = make_heteroscedastic(6000, n_features=10, random_state=0, return_X_y=True)
weighted = ICQR(coverage=0.9, partition=KMeansPartition(choose=6), random_state=0).fit(X, y)

# %%
# A partition can also be used by itself. Without weights, all columns count the same.

unweighted = KMeansPartition(choose=6).fit(X, y.to_numpy(), np.empty((len(X), 0)), random_state=0)

figure, panels = plt.subplots(1, 2, figsize=(10, 4.4), sharex=True, sharey=True, layout="constrained")
groups = {"without weights": unweighted.assign(X), "weighted by importance": weighted.assign(X)}
for panel, (title, labels) in zip(panels, groups.items(), strict=True):
    GroupMapDisplay.from_labels(X, labels, ["x1", "x2"], max_points=2500, ax=panel)
    panel.set_title(f"Six clusters, {title}", loc="left")
    panel.get_legend().remove()
plt.show()

# %%
# y depends on ``x1`` and ``x2``. Without weights, the clusters follow chance in the other eight columns, and every one
# of them holds easy and hard rows. With weights, a cluster is a part of this plane, and one offset can fit it.
