"""Groups: the choice of k by hand, merging by the binomial rule, users' own groups, and degenerate rows."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor
from scipy import stats
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, clone
from sklearn.cluster import AgglomerativeClustering, Birch, BisectingKMeans, KMeans, MiniBatchKMeans
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, QuantileRegressor
from sklearn.metrics import silhouette_score
from threadpoolctl import threadpool_limits

from hard_rows import LEVEL_WIDTHS, draw
from icqr import CQR, ICQR, GroupPartition, KMeansPartition, ScorePartition, WholePartition, load, prefit, save
from icqr.metrics import coverage_score

CLUSTERERS = [KMeans(n_init=10), MiniBatchKMeans(n_init=3), BisectingKMeans(), Birch(threshold=0.01)]
by_name = {"ids": lambda given: type(given).__name__}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Keep the clusterers that tests fit themselves to one thread, as the partition does."""
    with threadpool_limits(limits=1):
        yield


def fit(partition: Any, X: Any, random_state: int | None = 0, **more: Any) -> Any:
    """Fit a partition that looks neither at y nor at the bounds."""
    return partition.fit(X, np.zeros(len(X)), np.zeros((len(X), 3)), random_state=random_state, **more)


def blobs(k: int = 4, n: int = 60, seed: int = 0, spread: float = 0.05) -> tuple[Any, Any]:
    """Return rows around the corners of a k-gon, and which corner each belongs to."""
    rng = np.random.default_rng(seed)
    corner = np.repeat(np.arange(k), n)
    angle = 2 * np.pi * corner / k
    X = np.column_stack([np.cos(angle), np.sin(angle)]) + spread * rng.normal(size=(k * n, 2))
    return X, corner


def cloud(n: int = 500, columns: int = 3, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=(n, columns))


def same_groups(a: Any, b: Any) -> bool:
    """Return whether two labellings make the same groups, whatever their numbers."""
    pairs = set(zip(np.asarray(a).tolist(), np.asarray(b).tolist(), strict=True))
    return len(pairs) == len(set(a)) == len(set(b))


# -- The choice of k -------------------------------------------------------------------------------------------------


def test_explained_variance_by_hand() -> None:
    # Rows 0, 2, 10, 12 have mean 6 and Σ|x - μ|² = 36 + 16 + 16 + 36 = 104; centroids 1 and 11: 2·25 + 2·25 = 100.
    partition = fit(KMeansPartition(choose=2), np.array([[0.0], [2.0], [10.0], [12.0]]))
    assert partition.path_["explained_variance"].tolist() == pytest.approx([0, 100 / 104])


@pytest.mark.parametrize("clusterer", [None, KMeans(n_init=10)], **by_name)
def test_path_holds_each_k_and_its_explained_variance(clusterer: Any) -> None:
    X = cloud()
    partition = fit(KMeansPartition(choose=12, clusterer=clusterer, merge=False), X)
    assert partition.path_["k"].tolist() == list(range(1, 13))
    Z, labels = partition.space_.transform(X), partition.assign(X)
    means = np.stack([Z[labels == group].mean(axis=0) for group in range(12)])
    counts = np.bincount(labels)
    mu = Z.mean(axis=0)
    sigma = (counts * ((means - mu) ** 2).sum(axis=1)).sum() / ((Z - mu) ** 2).sum()
    assert partition.path_["explained_variance"].iloc[-1] == pytest.approx(sigma, abs=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_explained_variance_grows_along_the_path(seed: int) -> None:
    path = fit(KMeansPartition(choose=30), cloud(seed=seed), random_state=seed).path_["explained_variance"]
    assert path[0] == pytest.approx(0, abs=1e-12)
    assert np.all(np.diff(path) > 0)


@pytest.mark.parametrize("sigma", [0.3, 0.6, 0.8])
@pytest.mark.parametrize("clusterer", [None, KMeans(n_init=3)], **by_name)
def test_first_k_that_explains_more_than_sigma_is_taken(sigma: float, clusterer: Any) -> None:
    partition = fit(KMeansPartition(explained_variance=sigma, clusterer=clusterer), cloud())
    path = partition.path_["explained_variance"].to_numpy()
    assert np.all(path[:-1] <= sigma)
    assert path[-1] > sigma
    assert partition.k_ == partition.n_groups_ == len(path)


def test_largest_k_is_taken_without_a_warning_when_sigma_is_not_reached() -> None:
    """Coverage holds in larger groups too; `explained_variance_` says how much they explain."""
    partition = fit(KMeansPartition(max_groups=3), cloud())
    assert partition.k_ == 3
    assert partition.explained_variance_ == partition.path_["explained_variance"].iloc[-1] < 0.9
    assert fit(KMeansPartition(), cloud()).explained_variance_ > 0.9


@pytest.mark.parametrize("choose", ["silhouette", "elbow", "explained_variance", 5])
@pytest.mark.parametrize("clusterer", [None, *CLUSTERERS], **by_name)
def test_planted_groups_are_found(choose: Any, clusterer: Any) -> None:
    X, planted = blobs(5)
    partition = fit(KMeansPartition(choose=choose, max_groups=10, clusterer=clusterer), X)
    assert partition.n_groups_ == 5
    assert same_groups(partition.assign(X), planted)
    assert ("silhouette" in partition.path_) == (choose == "silhouette")


def test_silhouette_is_that_of_scikit_learn() -> None:
    X, planted = blobs(4)
    partition = fit(KMeansPartition(choose="silhouette", max_groups=6), X)
    expected = silhouette_score(partition.space_.transform(X), planted)
    assert partition.path_["silhouette"][3] == pytest.approx(expected)


def test_number_of_groups_may_exceed_max_groups() -> None:
    assert fit(KMeansPartition(choose=7, max_groups=3), cloud()).n_groups_ == 7
    assert fit(KMeansPartition(choose=1), cloud()).n_groups_ == 1


# -- From scratch ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own_seed", [None, 11])
def test_clusterer_is_fitted_from_scratch_at_each_k(own_seed: int | None) -> None:
    X = cloud()
    clusterer = KMeans(n_init=10, random_state=own_seed)
    partition = fit(KMeansPartition(explained_variance=0.7, clusterer=clusterer), X, random_state=3)
    Z = (X - X.min(axis=0)) / (X.max(axis=0) - X.min(axis=0))
    seed = 3 if own_seed is None else own_seed
    direct = [KMeans(k, n_init=10, random_state=seed).fit(Z) for k in range(2, partition.k_ + 1)]
    inertia = 1 - partition.path_["explained_variance"].to_numpy()
    total = ((Z - Z.mean(axis=0)) ** 2).sum()
    assert inertia[1:] == pytest.approx([model.inertia_ / total for model in direct], rel=1e-6)
    assert np.array_equal(partition.assign(X), direct[-1].predict(Z))
    assert clusterer.get_params()["random_state"] == own_seed


@pytest.mark.parametrize("clusterer", CLUSTERERS, **by_name)
def test_new_rows_go_where_the_clusterer_predicts(clusterer: Any) -> None:
    X, new = cloud(300, 2), cloud(300, 2, seed=1)
    partition = fit(KMeansPartition(choose=6, clusterer=clusterer), X, random_state=0)
    given = clone(clusterer).set_params(n_clusters=6)
    if "random_state" in given.get_params():
        given.set_params(random_state=0)
    given.fit(partition.space_.transform(X))
    assert same_groups(partition.assign(new), given.predict(partition.space_.transform(new)))


class Gappy(Birch):  # type: ignore[misc]
    """Gives labels 0, 2 and 3 to rows up to 1, and label 1 to rows beyond."""

    def predict(self, X: Any) -> Any:
        return np.where(X[:, 0] > 1, 1, np.array([0, 2, 3])[np.digitize(X[:, 0], [0.3, 0.6])])


def test_cluster_without_training_rows_is_no_group() -> None:
    X = np.linspace(0, 1, 90)[:, None]
    partition = fit(KMeansPartition(choose=4, clusterer=Gappy()), X)
    assert sorted(set(partition.assign(X))) == [0, 1, 2]
    assert partition.assign(np.array([[0.1], [0.5], [0.9], [1.5]])).tolist() == [0, 1, 2, 2]


# -- Degenerate rows -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clusterer", [None, KMeans(n_init=1, init="random"), *CLUSTERERS], **by_name)
@pytest.mark.parametrize("choose", ["explained_variance", "silhouette", "elbow", 9])
def test_fewer_distinct_rows_than_k_make_fewer_groups(clusterer: Any, choose: Any) -> None:
    X = np.repeat([[0.1, 0.7], [0.2, 0.2], [0.9, 0.3]], 20, axis=0)
    partition = fit(KMeansPartition(0.999, max_groups=9, choose=choose, clusterer=clusterer), X)
    assert 1 <= partition.n_groups_ <= 3
    labels = partition.assign(X)
    assert sorted(set(labels)) == list(range(partition.n_groups_))


@pytest.mark.parametrize("choose", ["explained_variance", "silhouette", "elbow", 2])
def test_two_distinct_rows_make_two_groups(choose: Any) -> None:
    X = np.repeat([[0.1], [0.3]], 10, axis=0)
    assert fit(KMeansPartition(choose=choose), X).n_groups_ == 2


@pytest.mark.parametrize(
    ("X", "weights", "reason"),
    [
        (cloud(), np.zeros(3), "all importances are zero"),
        (np.full((20, 2), 0.3), None, "all rows are equal"),
        (np.full((20, 2), np.nan), None, "all rows are equal"),
        (np.column_stack([np.full(20, 0.1), np.arange(20.0)]), np.array([1.0, 0.0]), "all rows are equal"),
    ],
)
def test_nothing_to_group_by_is_one_group_and_says_why(X: Any, weights: Any, reason: str) -> None:
    with pytest.warns(UserWarning, match=f"One group only, as in CQR: {reason}"):
        partition = fit(KMeansPartition(), X, weights=weights)
    assert partition.n_groups_ == 1
    assert partition.assign(X).tolist() == [0] * len(X)
    assert np.all(partition.distance(X) == pytest.approx(0))


def test_rows_that_differ_by_rounding_alone_are_one_group() -> None:
    X = 0.3 + np.spacing(0.3) * np.arange(10.0)[:, None]
    with pytest.warns(UserWarning, match="all rows are equal"):
        partition = fit(KMeansPartition(), X, reference=np.array([[0.0], [1.0]]))
    assert partition.n_groups_ == 1


@pytest.mark.parametrize("scale", [1e-300, 1e-10, 1e10, 1e300, 1.7e308, 5e-324])
@pytest.mark.parametrize("clusterer", [None, KMeans(n_init=3)], **by_name)
def test_scale_of_a_feature_does_not_matter(scale: float, clusterer: Any) -> None:
    planted = np.repeat([0, 1, 2], 20)
    X = np.array([-1.0, 0.0, 1.0])[planted, None] * scale
    partition = fit(KMeansPartition(clusterer=clusterer), X)
    assert same_groups(partition.assign(X), planted)
    assert partition.space_.transform(X).max() == 1


@pytest.mark.parametrize("clusterer", [None, *CLUSTERERS], **by_name)
def test_rows_far_away_belong_to_the_nearest_group(clusterer: Any) -> None:
    X = np.repeat([[0.0], [1e-300]], 20, axis=0)
    partition = fit(KMeansPartition(clusterer=clusterer), X)
    low, high = partition.assign(X)[[0, -1]]
    far = np.array([[-1e300], [1e300], [-1e-290], [1e-290]])
    assert partition.assign(far).tolist() == [low, high, low, high]
    assert np.all(np.isfinite(partition.distance(far)))


def test_two_rows_of_5000_columns() -> None:
    X = cloud(2, 5000)
    partition = fit(KMeansPartition(), X)
    assert sorted(partition.assign(X)) == [0, 1]


# -- The weighted space ----------------------------------------------------------------------------------------------


def space_of(X: Any, weights: Any = None) -> Any:
    """Return the space of a partition that keeps all columns, as one with a clusterer does."""
    weights = None if weights is None else np.array(weights)
    return fit(KMeansPartition(choose=1, clusterer=KMeans(n_init=1)), X, weights=weights).space_


def test_space_scales_and_weighs_each_column() -> None:
    X = np.array([[0.0, 10.0, 7.0], [4.0, 30.0, 7.0], [2.0, 20.0, 7.0]])
    space = space_of(X, [0.5, 0.25, 0.25])
    assert space.transform(X).tolist() == [[0.0, 0.0], [0.5, 0.25], [0.25, 0.125]]  # a constant column weighs nothing
    assert space.transform(np.array([[8.0, 10.0, 9.0]])).tolist() == [[1.0, 0.0]]


def test_missing_values_get_the_median_and_an_empty_column_counts_for_nothing() -> None:
    X = np.array([[0.0, np.nan], [np.nan, np.nan], [1.0, np.nan], [4.0, np.nan]])
    space = space_of(X)
    assert space.transform(X).tolist() == [[0.0], [0.25], [0.25], [1.0]]
    assert space.transform(np.array([[np.nan, 3.0]])).tolist() == [[0.25]]


def test_categories_share_the_weight_of_their_column() -> None:
    X = pd.DataFrame({"city": ["Bern", "Genf", None, "Bern"], "size": [0, 1, 2, 4], "flag": [True, False, True, True]})
    space = space_of(X, [0.5, 0.3, 0.2])
    assert space.transform(X) == pytest.approx(
        np.array([[0.5, 0, 0, 0.2], [0, 0.5, 0.075, 0], [0, 0, 0.15, 0.2], [0.5, 0, 0.3, 0.2]])
    )
    new = pd.DataFrame({"city": ["Rom"], "size": [4], "flag": [False]})
    assert space.transform(new) == pytest.approx(np.array([[0, 0, 0.3, 0]]))  # an unknown category is a missing one


def test_column_of_many_categories_keeps_the_frequent_ones() -> None:
    names = [f"n{j}" for j in range(3000)]
    X = pd.DataFrame({"name": ["often"] * 500 + ["seldom"] * 300 + names})
    said = (
        "Column 'name' has 3,002 categories: K-means groups tell the 100 most frequent apart, and take the other 2,902"
    )
    with pytest.warns(UserWarning, match=said):
        space = space_of(X)
    assert space.transform(X).shape == (len(X), 100)
    with pytest.warns(UserWarning, match=said):
        partition = fit(KMeansPartition(choose=3), X)
    assert partition.n_groups_ == 3
    groups = partition.assign(X)
    assert len(set(groups[:500])) == len(set(groups[500:800])) == 1
    assert groups[0] != groups[500]


def test_groups_that_lump_categories_say_so_once() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.uniform(size=3000), "shop": [f"s{j}" for j in rng.integers(300, size=3000)]})
    y = X["a"].to_numpy() + X["shop"].str[1:].astype(float).to_numpy() / 100
    said = (
        r"Column 'shop' has 300 categories: K-means groups tell the 100 most frequent apart, and take the other 200 "
        r"for one\. Coverage holds in each group all the same"
    )
    model = LGBMRegressor(n_estimators=10, n_jobs=1)
    with pytest.warns(UserWarning, match=said) as caught:
        ICQR(model, partition=KMeansPartition(), random_state=0).fit(X, y)
    assert sum("categories" in str(warning.message) for warning in caught) == 1
    # A column that distances leave out needs no warning.
    assert fit(KMeansPartition(choose=3), X, weights=np.array([1.0, 0.0])).n_groups_ == 3


@pytest.mark.parametrize("weights", [[1.0, 2.0], [1.0, np.nan, 0.0], [1.0, -1.0, 1.0], [[1.0, 1.0, 1.0]]])
def test_weights_must_be_one_per_column(weights: Any) -> None:
    with pytest.raises(ValueError, match="weights must be 3 finite numbers, one per column, 0 or more"):
        fit(KMeansPartition(), cloud(), weights=np.array(weights))


def test_weight_decides_which_column_makes_the_groups() -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, size=(400, 2)) + 0.01 * rng.normal(size=(400, 2))
    for column in (0, 1):
        weights = np.where(np.arange(2) == column, 0.99, 0.01)
        assert same_groups(fit(KMeansPartition(), X, weights=weights).assign(X), (X[:, column] > 0.5).astype(int))


def test_reference_rows_set_the_scale() -> None:
    X = np.array([[2.0], [3.0], [np.nan]])
    partition = fit(KMeansPartition(choose=2), X, reference=np.array([[0.0], [10.0], [1.0]]))
    assert partition.space_.transform(X).ravel().tolist() == pytest.approx([0.2, 0.3, 0.1])


# -- Merging ---------------------------------------------------------------------------------------------------------


def planted_line(sizes: list[int]) -> Any:
    """Return rows in as many places on a line, 1 apart, so many in each."""
    return np.repeat(np.arange(len(sizes), dtype=float), sizes)[:, None]


def too_small(count: int, total: int, n_calibration: int, needed: int) -> bool:
    return bool(stats.binom.cdf(needed - 1, n_calibration, count / total) > 0.001)


@pytest.mark.parametrize("n_calibration", [20, 60, 150, 400, 3000])
@pytest.mark.parametrize("needed", [9, 19])
def test_merging_follows_the_binomial_rule(n_calibration: int, needed: int) -> None:
    sizes = [100, 5, 60, 20, 300, 40, 9]
    X = planted_line(sizes)
    partition = fit(KMeansPartition(choose=len(sizes)), X)
    partition.merge_small(n_calibration, needed)

    groups = [(size, float(place), [place]) for place, size in enumerate(sizes)]  # rows, mean, places
    while len(groups) > 1:
        groups.sort()
        rows, mean, places = groups[0]
        if not too_small(rows, sum(sizes), n_calibration, needed):
            break
        near = min(groups[1:], key=lambda group: abs(group[1] - mean))
        merged = rows + near[0]
        groups[groups.index(near)] = (merged, (rows * mean + near[0] * near[1]) / merged, places + near[2])
        del groups[0]

    expected = {frozenset(places) for _, _, places in groups}
    labels = partition.assign(X)
    assert {frozenset(X[labels == g, 0].astype(int)) for g in range(partition.n_groups_)} == expected
    counts = np.bincount(labels, minlength=partition.n_groups_)
    assert len(counts) == 1 or not any(too_small(n, sum(sizes), n_calibration, needed) for n in counts)
    assert partition.k_ == len(sizes)


def test_smallest_group_goes_to_the_nearest_centroid() -> None:
    X = np.repeat([[0.0], [4.0], [10.0]], [300, 3, 300], axis=0)
    partition = fit(KMeansPartition(choose=3), X)
    partition.merge_small(300, 9)
    left, right = partition.assign(X)[[0, -1]]
    assert partition.assign(np.array([[0.0], [4.0], [6.0], [10.0]])).tolist() == [left, left, left, right]
    assert partition.distance(np.array([[4.0]]))[0] == pytest.approx(0)  # its own centroid stays


def prefit_bounds() -> Any:
    def median(X: Any) -> Any:
        return np.asarray(X)[:, 0].astype(float) + np.asarray(X)[:, 1].astype(float)

    return prefit(lower=lambda X: median(X) - 1, median=median, upper=lambda X: median(X) + 1, levels=(0.05, 0.5, 0.95))


def rows_for_icqr(n: int = 600, seed: int = 0) -> tuple[Any, Any]:
    X = cloud(n, 2, seed)
    return X, X.sum(axis=1) + np.random.default_rng(seed + 1).normal(size=n)


@pytest.mark.parametrize("merge", [True, False])
def test_icqr_merges_before_calibration(merge: bool) -> None:
    X, y = rows_for_icqr(300)
    model = ICQR(
        prefit_bounds(), partition=KMeansPartition(choose=12, merge=merge), small_groups="infinite", random_state=0
    ).fit(X, y)
    assert (len(model.groups_) == 12) != merge
    if merge:
        assert model.groups_["n"].min() >= 9


# -- One row at a time, again, elsewhere -----------------------------------------------------------------------------


@pytest.mark.parametrize("clusterer", [None, *CLUSTERERS], **by_name)
def test_same_seed_same_groups(clusterer: Any) -> None:
    X = cloud()
    first, second = (fit(KMeansPartition(choose=8, clusterer=clusterer), X, random_state=4) for _ in range(2))
    assert np.array_equal(first.assign(X), second.assign(X))
    assert np.array_equal(first.centroids_, second.centroids_)


def test_other_seed_other_groups_and_the_global_seed_stays() -> None:
    X = cloud()
    before = np.random.get_state()  # noqa: NPY002
    first, second = (fit(KMeansPartition(choose=8), X, random_state=seed) for seed in (0, 1))
    assert not np.array_equal(first.centroids_, second.centroids_)
    assert str(np.random.get_state()) == str(before)  # noqa: NPY002


@pytest.mark.parametrize("clusterer", [None, KMeans(n_init=1), MiniBatchKMeans(n_init=1)], **by_name)
def test_group_does_not_depend_on_the_rows_it_comes_with(clusterer: Any) -> None:
    # A lattice: many rows lie exactly between two centroids.
    X = np.stack(np.meshgrid(*[np.arange(6.0)] * 3), axis=-1).reshape(-1, 3)
    partition = fit(KMeansPartition(choose=8, clusterer=clusterer), X)
    together = partition.assign(X)
    assert [partition.assign(row[None])[0] for row in X] == together.tolist()
    assert np.array_equal(partition.assign(X[::-1]), together[::-1])
    assert np.array_equal(partition.assign(np.repeat(X, 3, axis=0))[::3], together)


def test_distance_is_to_the_nearest_centroid() -> None:
    X = cloud()
    partition = fit(KMeansPartition(choose=8, merge=False), X)
    Z = partition.space_.transform(X)
    distances = np.sqrt(((Z[:, None] - partition.centroids_) ** 2).sum(axis=2))
    assert partition.distance(X) == pytest.approx(distances.min(axis=1))
    assert np.array_equal(partition.assign(X), distances.argmin(axis=1))


@pytest.mark.parametrize(
    "partition",
    [
        KMeansPartition(
            0.8, max_groups=9, choose="elbow", clusterer=KMeans(n_init=10), merge=False, data="calibration"
        ),
        GroupPartition(["a", "b"]),
        WholePartition(),
    ],
    **by_name,
)
def test_clone_and_pickle(partition: Any) -> None:
    copy = clone(partition)
    assert str(copy.get_params()) == str(partition.get_params())
    X = pd.DataFrame({"a": np.arange(60) % 4, "b": np.arange(60) % 3})
    fitted = fit(copy, X)
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).assign(X), fitted.assign(X))
    assert not hasattr(clone(fitted), "keys_")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"choose": "gap"}, "choose must be one of .* or a number of groups, got 'gap'"),
        ({"choose": 0}, "choose must be one of"),
        ({"explained_variance": 90}, "explained_variance must be strictly between 0 and 1, got 90"),
        ({"max_groups": 0}, "max_groups must be a whole number, 1 or more, got 0"),
        ({"max_groups": 2.5}, r"max_groups must be a whole number, 1 or more, got 2\.5"),
        ({"merge": "no"}, "merge must be True or False, got 'no'"),
        ({"clusterer": AgglomerativeClustering()}, "clusterer must have a parameter n_clusters and predict"),
    ],
)
def test_wrong_parameters_are_named(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(KMeansPartition(**parameters), cloud())


# -- Users' own groups -----------------------------------------------------------------------------------------------

FRAME = pd.DataFrame(
    {
        "city": ["Bern", "Genf", None, "Bern"],
        "size": [10, 9, 10, 10],
        "mixed": pd.Series([2, "10", np.nan, 1.5], dtype=object),
    }
)


@pytest.mark.parametrize(
    ("by", "expected", "rules"),
    [
        ("city", [0, 1, 2, 0], ["city = Bern", "city = Genf", "city is missing"]),
        (["city"], [0, 1, 2, 0], ["city = Bern", "city = Genf", "city is missing"]),
        ("size", [1, 0, 1, 1], ["size = 9", "size = 10"]),
        ("mixed", [1, 2, 3, 0], ["mixed = 1.5", "mixed = 2", "mixed = 10", "mixed is missing"]),
        (
            ["city", "size"],
            [0, 1, 2, 0],
            ["city = Bern and size = 10", "city = Genf and size = 9", "city is missing and size = 10"],
        ),
        (lambda X: X["size"] > 9, [1, 0, 1, 1], ["group = False", "group = True"]),
        (
            lambda X: [[1, "a", None, 1][i] for i in X.index],
            [0, 1, 2, 0],
            ["group = 1", "group = a", "group is missing"],
        ),
    ],
)
def test_groups_are_the_values_in_order(by: Any, expected: list[int], rules: list[str]) -> None:
    partition = fit(GroupPartition(by), FRAME)
    assert partition.assign(FRAME).tolist() == expected
    assert partition.describe()["rule"].tolist() == rules
    assert partition.n_groups_ == len(rules)


def test_unknown_values_are_no_group() -> None:
    new = pd.DataFrame({"city": ["Rom", None, "Genf", np.nan], "size": [10.0, 9.0, 9.0, 10.0], "mixed": 0})
    assert fit(GroupPartition("city"), FRAME).assign(new).tolist() == [-1, 2, 1, 2]
    assert fit(GroupPartition("size"), FRAME).assign(new).tolist() == [1, 0, 0, 1]  # 10.0 is 10
    assert fit(GroupPartition(["city", "size"]), FRAME).assign(new).tolist() == [-1, -1, 1, 2]
    assert fit(GroupPartition("mixed"), FRAME).assign(new).tolist() == [-1] * 4


@pytest.mark.parametrize(
    ("train", "new", "groups"),
    [
        ([1, 2, 1], ["2", "1.0", "many"], [1, 0, -1]),
        (["1", "2", None], [2, 1, 3], [1, 0, -1]),
        (["1", "2", None], [2, None, 1.5], [1, 2, -1]),
        (["1", "01"], [1, 2], [-1, -1]),
    ],
)
def test_a_group_may_come_as_a_number_or_as_text(train: list[Any], new: list[Any], groups: list[int]) -> None:
    known, rows = (pd.DataFrame({"a": values, "b": "x"}) for values in (train, new))
    assert fit(GroupPartition("a"), known).assign(rows).tolist() == groups
    assert fit(GroupPartition(["a", "b"]), known).assign(rows).tolist() == groups


def test_labels_of_a_function_are_as_they_are() -> None:
    labels = dict(zip(FRAME.index, [1, "1", 1, "b"], strict=True))
    partition = fit(GroupPartition(lambda X: np.array([labels[i] for i in X.index], dtype=object)), FRAME)
    assert partition.assign(FRAME).tolist() == [0, 1, 0, 2]


def test_categorical_and_text_columns_hold_the_same_groups() -> None:
    partition = fit(GroupPartition("city"), FRAME.astype({"city": "category"}))
    assert partition.assign(FRAME).tolist() == [0, 1, 2, 0]


def test_array_columns_go_by_position() -> None:
    X = np.array([[5.0, 1.0], [6.0, np.nan], [5.0, 0.0]])
    assert fit(GroupPartition(0), X).assign(X).tolist() == [0, 1, 0]
    assert fit(GroupPartition(1), X).assign(X).tolist() == [1, 2, 0]
    assert fit(GroupPartition([0, 1]), X).n_groups_ == 3


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("town", r"by='town': there is no column 'town'; columns are \['city', 'size', 'mixed'\]"),
        (pd.Index(["city"]), "by must be the name of a column, a list of names, or a function of X, got Index"),
        (FRAME["city"], "got Series; labels of your own must be a column of X"),
        ([], "got no column"),
        ((), "got no column"),
        ([["city"], ["size"]], "got list; labels"),
        (lambda X: [1, 2], r"by\(X\) must give one label per row, shape \(4,\), got shape \(2,\)"),
        (lambda X: np.zeros((4, 2)), r"by\(X\) must give one label per row"),
    ],
)
def test_wrong_groups_are_named(by: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(GroupPartition(by), FRAME)


def test_own_groups_are_never_merged() -> None:
    X, y = rows_for_icqr()
    labels = (np.arange(600) >= 4).astype(float)  # four rows of one group: too few for a promise
    X = np.column_stack([X, labels])
    with pytest.warns(UserWarning, match="needs 9 calibration rows in each group"):
        model = ICQR(prefit_bounds(), partition=GroupPartition(2), random_state=0).fit(X, y)
    assert model.groups_["rule"].tolist() == ["2 = 0.0", "2 = 1.0"]
    assert not hasattr(model, "importances_")


# -- Anything with fit and assign ------------------------------------------------------------------------------------


class Halves:
    """A user's own partition: no estimator, no attributes that the library knows."""

    def fit(self, X: Any, y: Any, bounds: Any, weights: Any = None, random_state: Any = None) -> Halves:
        assert len(X) == len(y) == len(bounds)
        assert weights.shape == (X.shape[1],)
        assert isinstance(random_state, int)
        self.middle = np.median(X[:, 0])
        return self

    def assign(self, X: Any) -> Any:
        return (X[:, 0] > self.middle).astype(int)


def test_partition_of_the_users_own() -> None:
    X, y = rows_for_icqr()
    own = Halves()
    model = ICQR(prefit_bounds(), partition=own, random_state=0).fit(X, y)
    assert not hasattr(own, "middle")  # the user's object is copied
    assert np.array_equal(model.explain(X)["group"], model.partition_.assign(X))
    assert model.groups_["rule"].str.contains("x0").all()
    assert model.groups_["guarantee"].tolist() == ["group-wise", "group-wise"]


def test_warning_points_to_the_line_that_called_fit() -> None:
    X, y = rows_for_icqr()
    with pytest.warns(UserWarning, match="One group only") as caught:
        ICQR(prefit_bounds(), random_state=0).fit(np.zeros_like(X), np.zeros_like(y))
    assert caught[0].filename == __file__


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_icqr_with_features_at_extreme_scales(scale: float) -> None:
    X, y = rows_for_icqr()
    bounds = prefit(
        lower=lambda X: X[:, 0] / scale - 2, median=lambda X: X[:, 0] / scale, upper=lambda X: X[:, 0] / scale + 2,
        levels=(0.05, 0.5, 0.95),
    )  # fmt: skip
    model = ICQR(bounds, partition=KMeansPartition(choose=3), random_state=0).fit(X * scale, y)
    assert len(model.groups_) == 3
    assert model.groups_["fidelity"].min() > 0.9


class Awkward(Halves):
    """A partition of the user's own whose names for other things are those of KMeansPartition's options."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def merge(self) -> None:
        raise AssertionError("not ours to call")


@pytest.mark.parametrize(
    ("data", "guarantee"),
    [("calibration", "approximate (groups learned from calibration rows)"), (pd.DataFrame({"a": [1]}), "group-wise")],
)
def test_partition_of_the_users_own_may_have_any_attributes(data: Any, guarantee: str) -> None:
    X, y = rows_for_icqr()
    model = ICQR(prefit_bounds(), partition=Awkward(data), random_state=0).fit(X, y)
    assert set(model.explain(X)["guarantee"]) == {guarantee}


def test_a_function_of_the_whole_batch_is_refused() -> None:
    X = pd.DataFrame({"a": np.random.default_rng(0).exponential(size=101)})
    with pytest.raises(ValueError, match="the same label whatever rows it comes with"):
        fit(GroupPartition(lambda X: pd.qcut(X["a"], 4, labels=False)), X)
    assert fit(GroupPartition(lambda X: pd.cut(X["a"], [-1, 1, 99], labels=False)), X).n_groups_ == 2


# -- The nearest centroid --------------------------------------------------------------------------------------------


def test_nearest_centroid_is_that_of_distances_computed_row_by_row() -> None:
    X = np.random.default_rng(0).normal(size=(3000, 5))
    partition = fit(KMeansPartition(choose=30), X)
    low, width = X.min(axis=0), np.ptp(X, axis=0)
    centroids = low + width * partition.centroids_
    middles = (centroids[:15] + centroids[15:]) / 2  # as near to one as to the other, but for rounding
    rows = np.concatenate([X, middles, centroids, 1e9 * X[:50]])
    distances = cdist(partition.space_.transform(rows), partition.centroids_, "sqeuclidean")
    np.testing.assert_array_equal(partition.assign(rows), distances.argmin(axis=1))


# -- Samples of rows and columns -------------------------------------------------------------------------------------


def test_many_rows_give_the_groups_of_a_sample() -> None:
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0], [10.0, 10.0]])
    X = np.repeat(centres, 10_000, axis=0) + rng.normal(scale=0.3, size=(40_000, 2))
    partition = KMeansPartition().fit(X, np.zeros(40_000), np.empty((40_000, 0)), random_state=0)
    assert partition.k_ == 4
    assert partition.counts_.sum() == 10_000
    assert len(np.unique(partition.assign(X[::10_000]))) == 4
    assert partition.path_["explained_variance"].is_monotonic_increasing
    few = KMeansPartition(explained_variance=0.9999, max_groups=4)
    few.fit(X, np.zeros(40_000), np.empty((40_000, 0)), random_state=0)
    assert (few.k_, few.explained_variance_) == (4, pytest.approx(partition.explained_variance_))


def test_columns_with_next_to_no_variance_are_left_out_unless_a_clusterer_is_given() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(500, 3))
    weights = np.array([0.6, 0.39, 0.01])
    arguments = (X, np.zeros(500), np.empty((500, 0)))
    assert KMeansPartition(choose=3).fit(*arguments, weights=weights, random_state=0).space_.columns.tolist() == [0, 1]
    whole = KMeansPartition(choose=3, clusterer=KMeans(n_init=1)).fit(*arguments, weights=weights, random_state=0)
    assert whole.space_.columns.tolist() == [0, 1, 2]


# -- Groups by predicted difficulty ----------------------------------------------------------------------------------

LIGHT = LGBMRegressor(n_estimators=10, n_jobs=1, verbose=-1, random_state=0)
HARD, HARD_Y = draw(900)


def test_hard_rows_and_easy_rows_are_parted() -> None:
    model = ICQR(LEVEL_WIDTHS, partition=ScorePartition(3), random_state=0).fit(HARD, HARD_Y)
    hardest = model.explain(HARD)["group"] == 2
    assert hardest[HARD["city"] == "Rom"].mean() > 0.9
    assert hardest[HARD["city"] != "Rom"].mean() < 0.1
    rome = (HARD["city"] == "Rom").to_numpy()
    one_group = CQR(LEVEL_WIDTHS, random_state=0).fit(HARD, HARD_Y)
    held, before = (coverage_score(HARD_Y[rome], method.predict_interval(HARD[rome])) for method in (model, one_group))
    assert before < 0.75 < 0.8 < held


class Column(BaseEstimator):
    """Predicts its first column at every level: a difficulty that a test can set."""

    def fit(self, X: Any, y: Any) -> Any:
        return self

    def predict_quantiles(self, X: Any, levels: Any) -> Any:
        return np.repeat(X[:, :1], len(levels), axis=1)


def by_column(values: Any, n_groups: int) -> ScorePartition:
    rows = np.asarray(values, dtype=float)[:, None]
    return ScorePartition(n_groups, Column()).fit(rows, np.zeros(len(rows)), np.zeros((len(rows), 3)))


def test_rows_are_cut_at_quantiles_and_equal_difficulties_stay_together() -> None:
    np.testing.assert_array_equal(by_column(np.arange(8.0), 4).edges_, [1, 3, 5])
    np.testing.assert_array_equal(by_column([0, 0, 0, 0, 0, 5], 3).edges_, [0])
    assert by_column(np.zeros(9), 4).n_groups_ == 1
    assert by_column(np.arange(8.0), 1).n_groups_ == 1


def test_small_groups_are_merged_with_their_smaller_neighbour() -> None:
    partition = by_column(np.repeat([0, 1, 2, 3, 4], [40, 5, 30, 20, 5]), 100)
    np.testing.assert_array_equal(partition.counts_, [40, 5, 30, 20, 5])
    partition.merge_small(n_calibration=100, needed=4)
    np.testing.assert_array_equal(partition.counts_, [40, 35, 25])
    np.testing.assert_array_equal(partition.edges_, [0, 2])
    np.testing.assert_array_equal(partition.assign(np.array([[-9.0], [0], [0.1], [2], [3], [99]])), [0, 0, 1, 1, 2, 2])
    assert not any(too_small(count, 100, 100, 4) for count in partition.counts_)
    partition.merge_small(n_calibration=5, needed=9)
    assert partition.n_groups_ == 1


def test_groups_are_large_enough_to_calibrate() -> None:
    model = ICQR(LIGHT, partition=ScorePartition(50), small_groups="error", random_state=0).fit(HARD, HARD_Y)
    assert 3 < model.n_groups_ < 50
    assert model.groups_["n"].min() >= 9


@pytest.mark.slow
def test_scores_are_those_that_are_calibrated_and_out_of_fold() -> None:
    class Recording(ScorePartition):
        def fit(self, *args: Any, **given: Any) -> Any:
            self.given_ = given
            return super().fit(*args, **given)

    by_heart = HistGradientBoostingRegressor(max_iter=50, min_samples_leaf=1, learning_rate=0.5, random_state=0)
    for settings in ({"side": "upper"}, {"conformity": "cqr-r"}, {"symmetric": False}, {"coverage": 0.8}):
        model = ICQR(by_heart, partition=Recording(2), random_state=0, **settings).fit(HARD, HARD_Y)
        given = model.partition_.given_
        assert given["coverage"] == model.coverage
        assert given["scores"].shape == (600, 1 if model.symmetric else 2)
        # Rows that the model knows lie outside as often as they should; rows it has not seen, far more often.
        known = model.conformity_.scores(model._bounds(HARD)[0], HARD_Y)
        assert np.mean(given["scores"].max(axis=1) > 0) > 1.5 * np.mean(known.max(axis=1) > 0)


def test_the_default_score_is_the_distance_out_of_the_bounds() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(500, 1))
    y = x[:, 0] * rng.normal(size=500)
    bounds = np.tile([-1.0, 0, 1], (500, 1))
    scores = np.maximum(bounds[:, 0] - y, y - bounds[:, 2])[:, None]
    one, other = (ScorePartition(3).fit(x, y, bounds, random_state=0, scores=given) for given in (None, scores))
    np.testing.assert_array_equal(one.edges_, other.edges_)


def test_a_model_that_is_fitted_already_is_not_fitted_again() -> None:
    class Once(GradientBoostingRegressor):
        fits = 0

        def fit(self, X: Any, y: Any, **params: Any) -> Any:
            Once.fits += 1
            return super().fit(X, y, **params)

    numbers = HARD[["a"]].to_numpy()
    models = [
        Once(loss="quantile", alpha=level, n_estimators=3, random_state=0).fit(numbers, HARD_Y)
        for level in (0.05, 0.5, 0.95)
    ]
    bounds = prefit(lower=models[0], median=models[1], upper=models[2], levels=(0.05, 0.5, 0.95))
    assert ICQR(bounds, partition=ScorePartition(3), random_state=0).fit(numbers, HARD_Y).n_groups_ == 3
    assert Once.fits == 3


def test_weights_of_rows_reach_the_models_of_the_folds() -> None:
    weights = np.where(HARD["city"] == "Rom", 1e-9, 1.0)
    models = [
        ICQR(LIGHT, partition=ScorePartition(2), random_state=0).fit(HARD, HARD_Y, sample_weight=w)
        for w in (weights, None)
    ]
    assert not np.array_equal(models[0].partition_.edges_, models[1].partition_.edges_)


# -- Determinism and degenerate rows ---------------------------------------------------------------------------------


def test_the_seed_decides_whatever_n_jobs() -> None:
    noisy = LGBMRegressor(n_estimators=5, n_jobs=1, subsample=0.5, subsample_freq=1, verbose=-1, random_state=0)
    first = ICQR(noisy, partition=ScorePartition(), random_state=1).fit(HARD, HARD_Y)
    with joblib.parallel_config(backend="threading"):
        at_once = ICQR(noisy, partition=ScorePartition(), random_state=1, n_jobs=2).fit(HARD, HARD_Y)
    np.testing.assert_array_equal(first.partition_.edges_, at_once.partition_.edges_)
    np.testing.assert_array_equal(first.predict_interval(HARD), at_once.predict_interval(HARD))
    assert not hasattr(first.partition, "edges_")
    assert clone(first).partition.get_params() == {"n_groups": 8, "estimator": None}


def test_a_row_has_its_group_whatever_rows_it_comes_with() -> None:
    partition = ICQR(LIGHT, partition=ScorePartition(), random_state=0).fit(HARD, HARD_Y).partition_
    together = partition.assign(HARD)
    np.testing.assert_array_equal(partition.assign(HARD.iloc[5:6]), together[5:6])
    np.testing.assert_array_equal(partition.assign(HARD.iloc[::-1]), together[::-1])


def test_a_constant_target_gives_one_group() -> None:
    model = ICQR(LIGHT, partition=ScorePartition(), random_state=0).fit(HARD, np.full(len(HARD), 3.0))
    assert model.n_groups_ == 1
    assert model.groups_["rule"].tolist() == ["all rows"]
    np.testing.assert_allclose(model.predict_interval(HARD), 3.0, atol=1e-6)


def test_few_rows_give_one_group() -> None:
    small = HistGradientBoostingRegressor(max_iter=3, min_samples_leaf=5, random_state=0)
    model = ICQR(small, partition=ScorePartition(), random_state=0)
    assert model.fit(HARD[:40], HARD_Y[:40]).n_groups_ == 1


@pytest.mark.parametrize("n_groups", [0, 2.5, True, "many"])
def test_a_number_of_groups_that_is_none_is_refused_before_any_work(n_groups: Any) -> None:
    with pytest.raises(ValueError, match="n_groups must be a whole number, 1 or more, got"):
        ICQR(LIGHT, partition=ScorePartition(n_groups), random_state=0).fit(HARD, HARD_Y)


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (LinearRegression(), "LinearRegression can't predict quantiles"),
        (
            HistGradientBoostingRegressor,
            r"estimator must be a model, HistGradientBoostingRegressor\(…\), got the class",
        ),
    ],
)
def test_an_estimator_that_can_t_predict_quantiles_is_refused_before_any_work(estimator: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ICQR(Unfitted(), partition=ScorePartition(2, estimator), random_state=0).fit(HARD, HARD_Y)


class Unfitted(HistGradientBoostingRegressor):
    """A model that must not be fitted."""

    def fit(self, X: Any, y: Any, **params: Any) -> Any:
        raise AssertionError("fitted before the parameters were checked")


# -- Words and files -------------------------------------------------------------------------------------------------


def test_groups_say_what_they_are() -> None:
    groups = ICQR(LEVEL_WIDTHS, partition=ScorePartition(3), random_state=0).fit(HARD, HARD_Y).groups_
    first, second, third = groups["rule"]
    assert first.startswith("difficulty 1 of 3, the easiest: ")
    assert second.startswith("difficulty 2 of 3: ")
    assert third.startswith("difficulty 3 of 3, the hardest: ")
    assert "city = Rom" in third  # what its rows have in common, in the user's columns
    assert "city = Rom" in groups["features"][2]
    assert groups["fidelity"].between(0.2, 1).all()
    # Two rows of each group, as the user has them.
    for examples in groups["examples"]:
        for row in examples.split("; "):
            assert [part.rsplit(" ", 1)[0] for part in row.split(", ")] == [*HARD.columns[:4]]
    assert "city Rom" in groups["examples"][2]
    assert groups["offset_upper"].idxmax() == 2


@pytest.mark.parametrize(
    "partition",
    [
        pytest.param(ScorePartition(3), marks=pytest.mark.slow),
        ScorePartition(2, QuantileRegressor(alpha=0)),
        pytest.param(ScorePartition(2, LIGHT), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_file_keeps_it(partition: ScorePartition, tmp_path: Any) -> None:
    rows = HARD[["a"]] if isinstance(partition.estimator, QuantileRegressor) else HARD
    model = ICQR(LIGHT, partition=partition, random_state=0).fit(rows, HARD_Y)
    save(model, tmp_path / "model.icqr")
    again = load(tmp_path / "model.icqr")
    np.testing.assert_array_equal(again.predict_interval(rows, [0.6, 0.9]), model.predict_interval(rows, [0.6, 0.9]))
    pd.testing.assert_frame_equal(again.explain(rows), model.explain(rows))
    pd.testing.assert_frame_equal(again.groups_, model.groups_)
    assert repr(again) == repr(model)
    np.testing.assert_array_equal(clone(again).fit(rows, HARD_Y).predict_interval(rows), model.predict_interval(rows))
