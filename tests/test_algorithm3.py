"""`ICQR.as_printed` against a direct transcription of the paper's Algorithms 2 and 3."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.linear_model import LinearRegression
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits

from icqr import ICQR, KMeansPartition, PermutationImportance, prefit
from icqr.importance import median_absolute_error

ALPHA, SIGMA, LARGEST_K = 0.1, 0.9, 50


class Data(NamedTuple):
    """Rows with columns of different scales and importance, and noise that grows with the first."""

    X: Any
    y: Any


def draw(n: int, seed: int) -> Data:
    rng = np.random.default_rng(seed)
    X = np.column_stack(
        [rng.gamma(2, 10, size=n), rng.integers(0, 24, size=n), rng.normal(size=n), rng.uniform(1e3, 1e5, size=n)]
    )
    y = 3 * X[:, 0] + 10 * np.sin(X[:, 1] / 4) + 4 * X[:, 2] + (0.2 * X[:, 0] + 1) * rng.normal(size=n)
    return Data(X, y)


class Quantiles:
    """Lines for the three quantiles, fitted by hand: least squares, moved by the residuals' quantiles."""

    def __init__(self, train: Data) -> None:
        self.line = LinearRegression().fit(train.X, train.y)
        self.shifts = np.quantile(train.y - self.line.predict(train.X), [ALPHA / 2, 0.5, 1 - ALPHA / 2])

    def at(self, index: int) -> Any:
        return lambda X: self.line.predict(X) + self.shifts[index]

    def prefit(self) -> Any:
        return prefit(lower=self.at(0), median=self.at(1), upper=self.at(2), levels=(ALPHA / 2, 0.5, 1 - ALPHA / 2))


def algorithm_2(quantiles: Quantiles, rows: Data, R: int, seed: int) -> Any:
    """Permutation importance by the absolute error of the median, as printed."""
    rng = np.random.default_rng(seed)

    def error(X: Any) -> float:
        return float(np.mean(np.abs(rows.y - quantiles.at(1)(X))))

    E_b = error(rows.X)
    importances = []
    for j in range(rows.X.shape[1]):
        deltas = []
        for _ in range(R):
            permuted = rows.X.copy()
            permuted[:, j] = rng.permutation(permuted[:, j])
            deltas.append(abs(E_b - error(permuted)))
        importances.append(sum(deltas) / R)
    return np.array(importances)


class Algorithm3:
    """Parts 2 to 5 of Algorithm 3, given the importances, line by line."""

    def __init__(self, quantiles: Quantiles, train: Data, cal: Data, importances: Any, seed: int) -> None:
        self.quantiles, self.importances = quantiles, importances
        self.low, self.high = train.X.min(axis=0), train.X.max(axis=0)
        X_cal = self.weighted(cal.X)
        self.centroids = self.select_k(X_cal, seed)
        scores: list[list[float]] = [[] for _ in self.centroids]
        lower, upper = quantiles.at(0)(cal.X), quantiles.at(2)(cal.X)
        for i, y, low, high in zip(self.nearest(X_cal), cal.y, lower, upper, strict=True):
            scores[i].append(max(low - y, y - high))
        self.sizes = [len(cluster) for cluster in scores]
        self.offsets = [self.quantile(cluster) for cluster in scores]

    def weighted(self, X: Any) -> Any:
        return (X - self.low) / (self.high - self.low) * self.importances

    def select_k(self, X: Any, seed: int) -> Any:
        mean = X.mean(axis=0)
        for k in range(2, LARGEST_K + 1):
            with threadpool_limits(limits=1):
                model = KMeans(n_clusters=k, n_init=10, random_state=seed).fit(X)
            n = np.bincount(model.labels_, minlength=k)
            sigma_k = (n * ((model.cluster_centers_ - mean) ** 2).sum(axis=1)).sum() / ((X - mean) ** 2).sum()
            if sigma_k > SIGMA:
                break
        return model.cluster_centers_

    def nearest(self, X: Any) -> Any:
        return np.array([int(np.argmin([np.linalg.norm(x - c) for c in self.centroids])) for x in X])

    @staticmethod
    def quantile(scores: list[float]) -> float:
        rank = math.ceil(round((len(scores) + 1) * (1 - ALPHA), 9))
        return sorted(scores)[rank - 1] if rank <= len(scores) else math.inf

    def intervals(self, X: Any) -> Any:
        q = np.array(self.offsets)[self.nearest(self.weighted(X))]
        return np.column_stack([self.quantiles.at(0)(X) - q, self.quantiles.at(2)(X) + q])


def partition_seed(random_state: int) -> int:
    """Return the seed that ICQR hands to its partition: the last of four drawn from `random_state`."""
    return int(check_random_state(random_state).randint(2**31 - 1, size=4)[3])


@pytest.mark.parametrize("seed", range(4))
def test_as_printed_is_algorithm_3(seed: int) -> None:
    train, cal, new = draw(800, seed), draw(600, 100 + seed), draw(300, 200 + seed)
    quantiles = Quantiles(train)
    model = ICQR.as_printed(quantiles.prefit(), coverage=1 - ALPHA, small_groups="infinite", random_state=seed)
    model.fit(train.X, train.y, X_calibration=cal.X, y_calibration=cal.y)
    importances = model.importances_["mean"].to_numpy()
    printed = Algorithm3(quantiles, train, cal, importances, partition_seed(seed))

    assert len(printed.centroids) > 3
    assert np.array_equal(model.partition_.assign(cal.X), printed.nearest(printed.weighted(cal.X)))
    assert np.array_equal(model.partition_.assign(new.X), printed.nearest(printed.weighted(new.X)))
    groups = model.groups_
    assert groups["n"].tolist() == printed.sizes
    assert groups["offset_lower"].to_numpy() == pytest.approx(printed.offsets, rel=1e-12)
    wide_enough = ~model.explain(new.X)["collapsed"].to_numpy()
    assert wide_enough.mean() > 0.9
    assert model.predict_interval(new.X)[wide_enough] == pytest.approx(printed.intervals(new.X)[wide_enough], rel=1e-12)


def test_importances_are_those_of_algorithm_2() -> None:
    train, cal = draw(800, 0), draw(600, 1)
    quantiles = Quantiles(train)
    R = 100
    model = ICQR.as_printed(
        quantiles.prefit(),
        importance=PermutationImportance(R, error=median_absolute_error, data="calibration", max_rows=None),
        small_groups="infinite",
        random_state=0,
    ).fit(train.X, train.y, X_calibration=cal.X, y_calibration=cal.y)
    printed = algorithm_2(quantiles, cal, R, seed=5)
    standard_error = model.importances_["std"].to_numpy() * math.sqrt(2 / R)
    assert np.all(np.abs(model.importances_["mean"].to_numpy() - printed) <= 4 * standard_error + 1e-12)


def test_as_printed_takes_the_settings_of_the_paper() -> None:
    model = ICQR.as_printed(coverage=0.8)
    assert model.coverage == 0.8
    importance, partition = model.importance, model.partition
    assert isinstance(importance, PermutationImportance)
    assert isinstance(partition, KMeansPartition)
    assert importance.error is median_absolute_error
    assert importance.max_rows is None
    assert not importance.replace
    assert importance.data == partition.data == "calibration"
    assert (partition.explained_variance, partition.max_groups, partition.merge) == (SIGMA, LARGEST_K, False)
    assert partition.clusterer.get_params()["n_init"] == 10


def test_promise_is_approximate_until_fresh_rows_calibrate() -> None:
    train, cal, fresh = draw(800, 0), draw(600, 1), draw(2000, 2)
    model = ICQR.as_printed(Quantiles(train).prefit(), small_groups="infinite", random_state=0)
    model.fit(train.X, train.y, X_calibration=cal.X, y_calibration=cal.y)
    before = model.partition_.assign(fresh.X)
    assert model.certificate().guarantee == "approximate (groups learned from calibration rows)"
    model.calibrate(fresh.X, fresh.y)
    assert model.certificate().guarantee == "group-wise"
    assert np.array_equal(model.partition_.assign(fresh.X), before)
    large = model.groups_["n"] >= 9
    assert (model.groups_["guarantee"] == np.where(large, "group-wise", "certain (infinite interval)")).all()
