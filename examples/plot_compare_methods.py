"""
Which method should I use on my data?
=====================================

:func:`icqr.compare` judges several methods on the same new rows: how often they hold, how narrow they are, and where
they fall short. Give it fitted models, or intervals of any other library.

The data are made-up daily sales of shops. Their errors grow with the number of visitors.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from icqr import CQR, ICQR, AutoICQR, Naive, compare
from icqr.plots import WidthDisplay

rng = np.random.default_rng(0)
n = 8000
days = pd.DataFrame(
    {
        "visitors": rng.gamma(3, 60, n).round(),
        "discount": rng.choice([0, 5, 10, 20], n, p=[0.6, 0.2, 0.15, 0.05]),
        "temperature": rng.normal(12, 8, n).round(1),
        "region": rng.choice(["north", "south", "west"], n),
    }
)
rate = 0.05 + 0.004 * days["discount"] + 0.02 * (days["region"] == "south")
sales = pd.Series(days["visitors"] * rate * rng.lognormal(0, 0.3, n), name="sales")
old, new = slice(0, 4000), slice(4000, None)

# %%
# Fit each method on the same rows, and compare them on others:

models = [method(coverage=0.9, y_min=0, random_state=0) for method in (Naive, CQR, ICQR, AutoICQR)]
for model in models:
    model.fit(days[old], sales[old])
result = compare(sales[new], models, days[new], reference="CQR", with_excess_risk=False)
print(result.answer)

# %%
# The main numbers. Interval score: the width, plus a fine for every miss.

result.to_frame()[["coverage", "mean_width", "interval_score", "undercovers", "overcovers"]].round(3)

# %%
# How wide the intervals are, and how much that differs from row to row:

WidthDisplay.from_estimator(models, days[new], sales[new])
plt.show()
