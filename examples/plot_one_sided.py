"""
How do I guarantee a minimum?
=============================

Sometimes only one side matters: the least that a plant will produce, the most that a repair will cost. With
``side="lower"`` the upper bound is infinite and all of the allowed error is spent on the lower one. So the bound is
nearer to y than the lower end of a two-sided interval with the same coverage.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from icqr import AutoICQR
from icqr.datasets import make_sine_spread

data, test = make_sine_spread(6000, random_state=0), make_sine_spread(4000, random_state=1)
at_least = AutoICQR(coverage=0.95, side="lower", random_state=0).fit(data.X, data.y)
both = AutoICQR(coverage=0.95, random_state=0).fit(data.X, data.y)
kept = test.y >= at_least.predict_interval(test.X)[:, 0]
print(f"{kept.mean():.1%} of new rows reach their guaranteed minimum; 95 % were promised.")

# %%
# Both bounds along ``x1``, with ``x2`` held at 0.5:

along = pd.DataFrame({"x1": np.linspace(0, 1, 400), "x2": 0.5})
figure, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
shown = np.random.default_rng(0).choice(len(test.y), 800, replace=False)
minimum = at_least.predict_interval(along)[:, 0]
ax.plot(test.X["x1"].iloc[shown], test.y.iloc[shown], ".", color="#767676", markersize=4, label="new rows")
ax.fill_between(along["x1"], *both.predict_interval(along).T, alpha=0.2, color="#0072B2", label="95 % interval")
ax.plot(along["x1"], minimum, color="#D55E00", linewidth=2, label="95 % minimum")
ax.set(xlabel="x1", ylabel="y")
ax.set_title("A minimum that 95 % of the rows reach", loc="left")
ax.legend(loc="lower left", ncols=3, frameon=False)
plt.show()

# %%
# ``side="upper"`` gives a maximum in the same way.
