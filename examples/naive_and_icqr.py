"""Draw the README's picture: intervals of Naive and of ICQR on rows whose spread grows along one feature."""

import sys

from matplotlib.figure import Figure
from sklearn.model_selection import train_test_split

from icqr import ICQR, Naive
from icqr.datasets import make_sine_spread
from icqr.metrics import coverage_score
from icqr.plots import IntervalDisplay


def main(file: str = "naive_and_icqr.png") -> None:
    data = make_sine_spread(16_000, random_state=0)
    X, X_test, y, y_test = train_test_split(data.X, data.y, test_size=0.25, random_state=0)
    figure = Figure(figsize=(10, 3.9), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for panel, method in zip(panels, (Naive, ICQR), strict=True):
        model = method(coverage=0.9, random_state=0).fit(X, y)
        IntervalDisplay.from_estimator(model, X_test, y_test, feature="x1", max_points=600, ax=panel)
        thirds = [X_test["x1"] < 1 / 3, X_test["x1"] > 2 / 3]
        easy, hard = (coverage_score(y_test[rows], model.predict_interval(X_test[rows])) for rows in thirds)
        panel.get_legend().remove()
        panel.set_title(f"{method.__name__}: covers {easy:.0%} of the easy third, {hard:.0%} of the hard", loc="left")
    panels[1].set_ylabel("")
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:])
