"""
How do I tune the model behind the intervals?
=============================================

All methods are scikit-learn estimators, so ``GridSearchCV`` works. Their ``score`` is the negative interval score: the
mean width, plus a fine for every miss. It is the right thing to tune on, because it wants narrow intervals that hold.
A parameter of the model inside is called ``estimator__…``.
"""

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import GridSearchCV, train_test_split

from icqr import CQR
from icqr.datasets import make_heteroscedastic
from icqr.metrics import coverage_score

X, y = make_heteroscedastic(2000, random_state=0, return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=0)

# %%
# Early stopping is a matter of the model inside: ``HistGradientBoostingRegressor(early_stopping=True)`` takes its own
# validation rows from the training rows, never from the calibration rows.

boosting = HistGradientBoostingRegressor(max_iter=60, early_stopping=False)
grid = {"estimator__learning_rate": [0.03, 0.1, 0.3, 0.6], "estimator__max_leaf_nodes": [4, 8, 31]}
search = GridSearchCV(CQR(boosting, coverage=0.9, random_state=0), grid, cv=3).fit(X_train, y_train)
print(search.best_params_)
intervals = search.best_estimator_.predict_interval(X_test)
print(f"{coverage_score(y_test, intervals):.1%} of the test rows are covered.")

# %%
# Each line is one size of the trees.

results = pd.DataFrame(search.cv_results_).rename(columns=lambda name: name.removeprefix("param_estimator__"))
figure, ax = plt.subplots(figsize=(8, 4.2), layout="constrained")
for (leaves, rows), marker in zip(results.groupby("max_leaf_nodes"), "osD", strict=True):
    ax.plot(rows["learning_rate"], -rows["mean_test_score"], marker=marker, label=f"{leaves} leaves")
ax.set(xscale="log", xlabel="learning rate", ylabel="interval score (lower is better)")
ax.set_xticks(grid["estimator__learning_rate"], grid["estimator__learning_rate"])
ax.minorticks_off()
ax.set_title("Interval score in cross-validation", loc="left")
ax.legend()
plt.show()
