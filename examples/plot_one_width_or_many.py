"""
Should every row get an interval of the same width?
===================================================

A point model and one margin for all rows is the simplest prediction interval. It promises 90 %, and keeps that promise
on average. But the average hides a lot: where y is easy to predict the interval is too wide, and where y is hard to
predict it is too narrow.

Here are 16,000 rows whose spread grows along one column, ``x1``. We fit :class:`icqr.Naive`, which has one width, and
:class:`icqr.ICQR`, which has a width for each row and an offset for each group of rows.
"""

import sys

import matplotlib.pyplot as plt
from sklearn.model_selection import train_test_split

from icqr import ICQR, Naive
from icqr.datasets import make_sine_spread
from icqr.metrics import coverage_score
from icqr.plots import IntervalDisplay

data = make_sine_spread(16_000, random_state=0)
X, X_test, y, y_test = train_test_split(data.X, data.y, test_size=0.25, random_state=0)

# %%
# Both models set calibration rows aside by themselves. The test rows are new to them.
# Crosses are test rows that the interval misses.

figure, panels = plt.subplots(1, 2, figsize=(10, 3.9), sharey=True, layout="constrained")
for panel, method in zip(panels, (Naive, ICQR), strict=True):
    model = method(coverage=0.9, random_state=0).fit(X, y)
    IntervalDisplay.from_estimator(model, X_test, y_test, feature="x1", max_points=600, ax=panel)
    thirds = [X_test["x1"] < 1 / 3, X_test["x1"] > 2 / 3]
    easy, hard = (coverage_score(y_test[rows], model.predict_interval(X_test[rows])) for rows in thirds)
    panel.get_legend().remove()
    panel.set_title(f"{method.__name__}: covers {easy:.0%} of the easy third, {hard:.0%} of the hard", loc="left")
panels[1].set_ylabel("")

# sphinx_gallery_start_ignore
if len(sys.argv) == 2:  # the README's picture: python examples/plot_one_width_or_many.py docs/images/naive_and_icqr.png
    figure.savefig(sys.argv[1], dpi=110)
# sphinx_gallery_end_ignore
plt.show()

# %%
# Both methods cover 90 % of all rows. Naive gets there by covering nearly every easy row and by missing many hard
# ones. If a hard row is the one that costs you money, the average is no comfort.
