"""Adversarial input: each has a stated answer, an error before any model is fitted or a defined result."""

from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor
from scipy import sparse
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from threadpoolctl import threadpool_limits

from icqr import (
    CQR,
    ICQR,
    QR,
    GroupPartition,
    KMeansPartition,
    Naive,
    PermutationImportance,
    QuantileModel,
    ResidualQuantiles,
    ScorePartition,
    prefit,
)

METHODS = (Naive, QR, CQR, ICQR)
# QR and CQR ask the same quantile models as ICQR, which also looks for groups in the columns.
MOST_WORK = (Naive, ICQR, *(pytest.param(method, marks=pytest.mark.slow) for method in (QR, CQR)))
CALIBRATED = (Naive, CQR, ICQR)
RNG = np.random.default_rng(0)
X = pd.DataFrame({"a": RNG.uniform(size=60), "b": RNG.uniform(size=60), "c": RNG.choice(["x", "y"], size=60)})
Y = RNG.normal(size=60) + 3 * X["a"].to_numpy()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Starting threads takes longer than fitting a few rows."""
    with threadpool_limits(limits=1):
        yield


class Recorder(RegressorMixin, BaseEstimator):
    """A model that counts its fits, of the mean and of quantiles: all predictions are `scale` times a level."""

    fits = 0

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def fit(self, X: Any, y: Any) -> Self:
        Recorder.fits += 1
        self.fitted_ = True
        return self

    def predict(self, X: Any) -> Any:
        return np.zeros(len(X))

    def predict_quantiles(self, X: Any, levels: Any) -> Any:
        return np.tile(self.scale * np.asarray(levels), (len(X), 1))


def quick() -> HistGradientBoostingRegressor:
    return HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=2, random_state=0)


@cache
def fitted(method: Any) -> Any:
    """Return the method fitted on the rows above; tests must not change it."""
    return method(quick(), coverage=0.8, random_state=0).fit(X, Y)


def refused(method: Any, X: Any, y: Any, message: str, kind: Any = ValueError, **parameters: Any) -> None:
    """Check that `fit` raises, and that no model was fitted before."""
    model = method(**{"estimator": Recorder(), "coverage": 0.8, "random_state": 0, **parameters})
    before = Recorder.fits
    with pytest.raises(kind, match=message):
        model.fit(X, y)
    assert Recorder.fits == before


def gives_intervals(model: Any, X: Any, y: Any, **fit_params: Any) -> np.ndarray:
    intervals = model.fit(X, y, **fit_params).predict_interval(X)
    assert intervals.shape == (len(X), 2)
    assert np.isfinite(intervals).all()
    assert (intervals[:, 0] <= intervals[:, 1]).all()
    return np.asarray(intervals)


# -- Parameters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("coverage", "message"),
    [
        (90, r"coverage must be strictly between 0 and 1, got 90; did you mean 0\.9\?"),
        (0, "coverage must be strictly between 0 and 1, got 0; for nine times out of ten pass 0.9"),
        (1, "coverage must be strictly between 0 and 1, got 1"),
        (-0.1, "coverage must be strictly between 0 and 1, got -0.1"),
        (np.nan, "coverage must be strictly between 0 and 1, got nan"),
        ("0.9", r"coverage must be a number strictly between 0 and 1, got '0\.9' \(str\)"),
        (None, r"coverage must be a number strictly between 0 and 1, got None"),
        ([0.8, 0.9], "coverage must be a number strictly between 0 and 1, got"),
    ],
)
def test_a_coverage_that_is_none_is_refused(method: Any, coverage: Any, message: str) -> None:
    refused(method, X, Y, message, coverage=coverage)


@pytest.mark.parametrize("coverage", [90, "0.9", [0.5, 90], []], ids=str)
def test_a_coverage_that_is_none_is_refused_when_predicting(coverage: Any) -> None:
    with pytest.raises(ValueError, match="coverage must be"):
        fitted(CQR).predict_interval(X, coverage=coverage)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"conformity": "cqr_r"}, "conformity must be one of 'cqr', 'cqr-r', 'cqr-m', got 'cqr_r'"),
        ({"symmetric": "no"}, "symmetric must be one of True, False, got 'no'"),
        ({"side": "left"}, "side must be one of 'both', 'lower', 'upper', got 'left'"),
        ({"ties": "broken"}, "ties must be one of 'covered', 'random', got 'broken'"),
        ({"small_groups": None}, "small_groups must be one of 'pooled', 'infinite', 'error', got None"),
        ({"side": "lower", "symmetric": False}, "symmetric=False needs two bounds, but side='lower' has one; use"),
        ({"y_min": 2, "y_max": 1}, "y_min and y_max must be numbers or None, y_min the smaller, got y_min=2 and"),
        ({"y_min": "0"}, "y_min and y_max must be numbers or None, .* got y_min='0'"),
        ({"y_min": np.nan}, "y_min and y_max must be numbers or None, .* got y_min=nan"),
        ({"y_max": 1.0}, "y must lie between y_min=-inf and y_max=1; row .* is"),
        ({"calibration_size": 1.5}, r"calibration_size must be a share .* got 1\.5"),
        ({"calibration_size": 60}, "calibration_size=60 of n_samples=60 rows must leave"),
        ({"random_state": "seed"}, "'seed' cannot be used to seed"),
        ({"partition": "best"}, r"partition must be KMeansPartition\(\), ScorePartition.* got 'best'"),
        ({"partition": KMeansPartition}, "partition must be .* got <class"),
        ({"partition": KMeansPartition(choose="best")}, "choose must be one of .* got 'best'"),
        ({"partition": KMeansPartition(data="all")}, r"partition\.data must be 'train' or 'calibration', got 'all'"),
        ({"partition": GroupPartition("d")}, "there is no column 'd'; columns are"),
        ({"importance": "permutation"}, r"importance must be PermutationImportance\(\) or None, got 'permutation'"),
        ({"importance": PermutationImportance}, "importance must be .* got <class"),
        ({"importance": SimpleNamespace(compute=min)}, "importance must be .* got namespace"),
        ({"partition": KMeansPartition(choose=True)}, "choose must be one of .* got True"),
        ({"importance": PermutationImportance(n_repeats=0)}, "n_repeats must be"),
        ({"importance": PermutationImportance(data="test")}, r"importance\.data must be .* got 'test'"),
    ],
    ids=str,
)
def test_parameters_are_checked_before_any_work(parameters: dict[str, Any], message: str) -> None:
    refused(ICQR, X, Y, message, **parameters)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (HistGradientBoostingRegressor, r"estimator must be an instance, got the class Hist.*; pass Hist.*\(\)"),
        ("lightgbm", r"estimator must be a regressor, for example Hist.*\(\), got 'lightgbm'"),
    ],
)
def test_an_estimator_is_an_instance_of_a_regressor(method: Any, estimator: Any, message: str) -> None:
    refused(method, X, Y, message, estimator=estimator)


@pytest.mark.parametrize("method", [QR, CQR, ICQR])
def test_a_model_of_the_mean_is_refused_where_quantiles_are_needed(method: Any) -> None:
    refused(method, X, Y, "Ridge can't predict quantiles. Models that can: .* use Naive", estimator=Ridge())


def test_parameters_are_checked_before_a_new_calibration() -> None:
    model = ICQR(quick(), 0.8, partition=GroupPartition("c"), random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match="small_groups must be one of"):
        model.set_params(small_groups="merge").calibrate(X, Y)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("ask", ["predict", "predict_interval", "explain", "group_shift", "certificate"])
def test_asking_before_fit_says_so(method: Any, ask: str) -> None:
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        getattr(method(), ask)(*([] if ask == "certificate" else [X]))
    assert not hasattr(method(), "groups_")


# -- Tables ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("table", "message", "kind"),
    [
        (X[:0], r"Found array with 0 sample\(s\)", ValueError),
        (np.empty((0, 2)), r"Found array with 0 sample\(s\)", ValueError),
        (X[[]], r"0 feature\(s\)", ValueError),
        (X["a"].to_numpy(), "Expected 2D array, got 1D array", ValueError),
        (np.zeros((60, 2, 2)), "dim 3", ValueError),
        (sparse.csr_array(np.ones((60, 2))), "[Ss]parse", TypeError),
        (pd.concat([X, X], axis=1), "Column names must be unique; these appear more than once: a, b, c", ValueError),
        (X.assign(a=[np.inf, *X["a"][1:]]), "Column 'a' is infinite in row 0", ValueError),
        (X[["a"]].to_numpy() + np.inf, "infinity", ValueError),
        (X.assign(c=pd.to_timedelta(range(60), unit="D")), "Column 'c' holds durations", TypeError),
        (X.assign(c=[{}] * 60), "Column 'c'.* must be a string, a number or a date, got dict", TypeError),
    ],
    ids=["no rows", "no rows", "no columns", "1-D", "3-D", "sparse", "twice", "infinite", "inf", "durations", "dicts"],
)
def test_tables_that_cannot_be_used_are_refused(method: Any, table: Any, message: str, kind: Any) -> None:
    # With a model that takes tables as they come (a pipeline, say) durations are its own business.
    with pytest.raises(kind, match=message):
        method(quick(), coverage=0.8, random_state=0).fit(table, Y[: len(table)])


@pytest.mark.parametrize("column", ["a", "b"])
def test_a_bad_value_names_its_row_wherever_the_split_puts_it(column: str) -> None:
    for row in (0, 20, 41, 59):
        table = X.assign(**{column: np.where(np.arange(60) == row, np.inf, X[column])})
        with pytest.raises(ValueError, match=f"Column '{column}' is infinite in row {row}"):
            CQR(quick(), coverage=0.8, random_state=0).fit(table, Y)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("new", "message"),
    [
        (X[["a", "b"]], r"X lacks columns that it had in fit: 'c'; its columns are \['a', 'b'\]$"),
        (X.rename(columns={"a": "A"}), r"X lacks columns that it had in fit: 'a'; .*; did you mean 'A'\?"),
        (X.to_numpy()[:, :2], "X has 2 features, but .* is expecting 3"),
        (X.assign(a="text"), "Column 'a' held numbers in training and now holds something else"),
        (X.assign(a=pd.Timestamp("2020-01-01")), "Column 'a' held numbers in training and now holds dates"),
    ],
    ids=["missing", "renamed", "fewer", "text", "dates"],
)
# An array has no names: scikit-learn warns before it counts.
@pytest.mark.filterwarnings("ignore:X does not have valid feature names:UserWarning")
def test_other_columns_are_refused_when_predicting(method: Any, new: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fitted(method).predict_interval(new)


def test_numbers_as_names_are_names_unless_they_only_count() -> None:
    numbered = X[["a", "b"]].set_axis([0, 1], axis=1)
    model = CQR(quick(), coverage=0.8, random_state=0).fit(numbered, Y)
    np.testing.assert_array_equal(model.predict_interval(numbered[[1, 0]]), model.predict_interval(numbered))
    with pytest.raises(ValueError, match=r"the columns it had in fit: \[1, 0\], got columns numbered from 0 to 1"):
        CQR(quick(), coverage=0.8, random_state=0).fit(numbered[[1, 0]], Y).predict_interval(numbered)


@pytest.mark.parametrize("method", CALIBRATED)
def test_calibration_rows_are_checked_before_any_work(method: Any) -> None:
    before = Recorder.fits
    for calibration, message in (
        ({"X_calibration": X}, "go together, got X_calibration alone"),
        ({"y_calibration": Y}, "go together, got y_calibration alone"),
        ({"X_calibration": X[["a", "b"]], "y_calibration": Y}, "calibration rows: X lacks columns .*: 'c'"),
        ({"X_calibration": X, "y_calibration": Y[:-1]}, "got 60 and 59"),
        ({"X_calibration": X[:3], "y_calibration": Y[:3]}, "needs at least 4 calibration rows .* n_samples=3"),
    ):
        with pytest.raises(ValueError, match=message):
            method(Recorder(), 0.8, random_state=0).fit(X, Y, **calibration)
    assert Recorder.fits == before


def test_unusable_values_in_calibration_rows_are_seen_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HistGradientBoostingRegressor, "fit", lambda *args, **kwargs: pytest.fail("was fitted"))
    with pytest.raises(ValueError, match="Column 'a' held numbers in training and now holds something else"):
        ICQR(quick(), coverage=0.8, random_state=0).fit(X, Y, X_calibration=X.assign(a="text"), y_calibration=Y)


# -- Targets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.where(np.arange(60) == 7, np.nan, Y), "y must be finite; 1 of 60 values .* the first in row 7"),
        (np.where(np.arange(60) == 7, np.inf, Y), "y must be finite; 1 of 60 values .* the first in row 7"),
        (Y[:-1], "X and y must have the same number of rows, got 60 and 59"),
        (Y.astype(str), "y must hold numbers: row 0 is .* Convert it first, for example by pd.to_numeric"),
        (None, "requires y to be passed"),
        (np.column_stack([Y, Y]), "y should be a 1d array"),
    ],
    ids=["NaN", "infinite", "shorter", "text", "None", "two columns"],
)
def test_targets_that_cannot_be_used_are_refused(method: Any, y: Any, message: str) -> None:
    refused(method, X, y, message)


@pytest.mark.parametrize("method", METHODS)
def test_rows_and_targets_belong_together_by_position_not_by_label(method: Any) -> None:
    expected = fitted(method).predict_interval(X)
    shuffled = pd.Series(Y, index=np.random.default_rng(1).permutation(60))
    for y in (Y.tolist(), shuffled):
        np.testing.assert_array_equal(gives_intervals(method(quick(), 0.8, random_state=0), X, y), expected)


@pytest.mark.parametrize("method", METHODS)
# y is constant, so no column matters and one group is right.
@pytest.mark.filterwarnings("ignore:One group only:UserWarning")
def test_a_constant_target_gives_intervals_of_no_width(method: Any) -> None:
    intervals = gives_intervals(method(quick(), 0.8, random_state=0), X, np.full(60, 3.0))
    np.testing.assert_allclose(intervals, 3.0)


# -- Too few rows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", CALIBRATED)
@pytest.mark.parametrize(
    ("n", "parameters", "message"),
    [
        (1, {}, "n_samples=1 rows must leave at least one row to calibrate with and one to train on"),
        (2, {}, "coverage=0.8 needs at least 4 calibration rows for a finite interval, got n_samples=1"),
        (9, {}, "needs at least 4 calibration rows for a finite interval, got n_samples=3. Give more of them"),
        (24, {"coverage": 0.9}, "needs at least 9 calibration rows for a finite interval, got n_samples=8"),
        (60, {"coverage": 0.99}, "needs at least 99 calibration rows for a finite interval, got n_samples=20"),
    ],
)
def test_too_few_rows_say_how_many_are_needed(method: Any, n: int, parameters: dict[str, Any], message: str) -> None:
    refused(method, X[:n], Y[:n], message, **parameters)


def test_one_offset_per_side_needs_more_rows() -> None:
    refused(CQR, X[:24], Y[:24], "with one offset per side needs at least 9 .* n_samples=8", symmetric=False)
    CQR(Recorder(), 0.8, symmetric=False, random_state=0).fit(X[:27], Y[:27])


@pytest.mark.parametrize("method", CALIBRATED)
def test_a_coverage_beyond_the_rows_is_refused_when_predicting(method: Any) -> None:
    with pytest.raises(ValueError, match=r"coverage=0\.99 needs at least 99 calibration rows .* n_samples=20"):
        fitted(method).predict_interval(X, coverage=0.99)


def test_fresh_calibration_rows_must_be_enough() -> None:
    with pytest.raises(ValueError, match=r"needs at least 4 calibration rows .* n_samples=3"):
        CQR(quick(), 0.8, random_state=0).fit(X, Y).calibrate(X[:3], Y[:3])


@pytest.mark.parametrize("method", METHODS)
# One training row makes one group.
@pytest.mark.filterwarnings("ignore:One group only:UserWarning")
def test_two_rows_of_five_thousand_columns(method: Any) -> None:
    wide = np.random.default_rng(0).normal(size=(2, 5000))
    model = quick() if method is ICQR else Recorder()  # boosting bins 5,000 columns slowly: once is enough
    gives_intervals(method(model, 0.5, random_state=0), wide, [0.0, 1.0])


# -- Columns as people have them -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", MOST_WORK)
@pytest.mark.parametrize(
    "column",
    [
        np.ones(60),
        np.full(60, np.nan),
        np.where(np.arange(60) % 3 == 0, np.nan, 1.0),
        np.arange(60),
        np.arange(60) % 2 == 0,
        pd.array([*range(59), None], dtype="Int64"),
        pd.array([True, None] * 30, dtype="boolean"),
        np.array(["x", None, 3] * 20, dtype=object),
        pd.Categorical(["x", "y", None] * 20),
        ["the same"] * 60,
        [f"id {i}" for i in range(60)],
    ],
    ids=["constant", "NaN", "gaps", "int", "bool", "Int64", "boolean", "object", "category", "text", "ids"],
)
def test_columns_of_any_kind_are_taken(method: Any, column: Any) -> None:
    gives_intervals(method(quick(), 0.8, random_state=0), X.assign(b=column), Y)


@pytest.mark.parametrize("method", METHODS)
def test_a_new_category_is_a_missing_value(method: Any) -> None:
    new, missing = (fitted(method).predict_interval(X.assign(c=value)) for value in ("z", None))
    np.testing.assert_array_equal(new, missing)


@pytest.mark.parametrize("method", METHODS)
def test_rows_given_many_times_are_taken(method: Any) -> None:
    gives_intervals(method(quick(), 0.8, random_state=0), pd.concat([X[:3]] * 20), np.tile(Y[:3], 20))


@pytest.mark.filterwarnings("ignore:The quantile model predicts the same:UserWarning")  # in CQR, which says it too
def test_a_model_that_no_column_matters_to_gives_one_group_and_says_why() -> None:
    reason = "One group only, as in CQR: all importances are zero.*Perhaps the quantile model predicts the same"
    with pytest.warns(UserWarning, match=reason):
        model = ICQR(Recorder(), 0.8, random_state=0, partition=KMeansPartition()).fit(
            X, Y, X_calibration=X[::-1], y_calibration=Y[::-1]
        )
    assert len(model.groups_) == 1
    alone = CQR(Recorder(), 0.8, random_state=0).fit(X, Y, X_calibration=X[::-1], y_calibration=Y[::-1])
    np.testing.assert_array_equal(model.predict_interval(X), alone.predict_interval(X))


@pytest.mark.parametrize("rows", [X, X[["a"]].to_numpy()])
def test_calibrating_with_the_training_rows_is_warned_of(rows: Any) -> None:
    with pytest.warns(UserWarning, match="the calibration rows are the training rows") as caught:
        CQR(quick(), 0.8, random_state=0).fit(rows, Y, X_calibration=rows, y_calibration=Y)
    assert caught[0].filename == __file__


@pytest.mark.parametrize(("weight", "shown"), [(np.nan, "nan"), (-1.0, "-1"), (np.inf, "inf")])
def test_weights_that_are_none_are_refused(weight: float, shown: str) -> None:
    weights = np.ones(len(Y))
    weights[3] = weight
    with pytest.raises(ValueError, match=f"sample_weight must be finite and not negative, got {shown} in row 3"):
        CQR(quick(), 0.8, random_state=0).fit(X, Y, sample_weight=weights)


@pytest.mark.parametrize("levels", [(0.9, 0.1), (5, 50, 95), (), (0.5, 0.5)])
def test_levels_that_are_none_are_refused(levels: Any) -> None:
    with pytest.raises(ValueError, match="levels must be quantile levels strictly between 0 and 1, in ascending order"):
        QuantileModel(quick()).fit(X, Y, levels)
    with pytest.raises(ValueError, match="levels must be quantile levels"):
        ResidualQuantiles(quick(), levels).fit(X, Y)


def test_a_constant_median_alone_leaves_the_groups() -> None:
    counts = np.where((X["a"] > 0.6) & (Y > 1), Y, 0.0)  # more than half are 0
    model = ICQR(quick(), 0.8, random_state=0).fit(X, counts)
    assert model.importances_["share"].sum() == pytest.approx(1)


# -- Scales ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", MOST_WORK[1:])
@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e-30, 1e30, 1e150, 1e300])
def test_targets_of_any_scale_are_covered(method: Any, scale: float) -> None:
    y = Y * scale
    intervals = gives_intervals(method(quick(), 0.8, random_state=0), X, y)
    covered = (intervals[:, 0] <= y) & (y <= intervals[:, 1])
    assert 0.5 < covered.mean() < 1


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_the_default_regressor_takes_a_target_of_any_scale(scale: float) -> None:
    gives_intervals(Naive(quick(), 0.8, random_state=0), X, Y * scale)


@pytest.mark.parametrize("method", MOST_WORK)
@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_columns_of_any_scale_are_taken(method: Any, scale: float) -> None:
    gives_intervals(method(quick(), 0.8, random_state=0), X.assign(a=X["a"] * scale), Y)


@pytest.mark.parametrize("method", [Naive, QR, CQR, ICQR])
def test_a_weight_too_few_is_named_before_the_split(method: Any) -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"one weight for each of the 100 rows of X, got shape \(99,\)"):
        method(random_state=0).fit(rng.uniform(size=(100, 2)), rng.uniform(size=100), sample_weight=np.ones(99))


def test_a_fraction_as_coverage_is_named_in_errors() -> None:
    model = QR(quick(), coverage=Fraction(9, 10), random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match=r"QR predicts the levels it was fitted for, coverage=9/10; got coverage=0\.8"):
        model.predict_interval(X, 0.8)


@pytest.mark.filterwarnings("ignore:The argument 'eval_set' is deprecated")
def test_weights_of_evaluation_rows_are_not_those_of_the_rows() -> None:
    model = LGBMRegressor(n_estimators=2, min_child_samples=5, n_jobs=1, verbosity=-1, random_state=0)
    evaluated = {"eval_set": [(X[:20], Y[:20])], "eval_sample_weight": [np.ones(20)]}
    gives_intervals(CQR(model, 0.8, random_state=0), X, Y, **evaluated)


def stump() -> HistGradientBoostingRegressor:
    return quick().set_params(max_iter=1)


@pytest.mark.parametrize(
    "model",
    [
        ICQR(stump(), 0.8),
        ICQR(stump(), 0.8, partition=ScorePartition()),
        CQR(ResidualQuantiles(stump()), 0.8),
        CQR(TransformedTargetRegressor(ResidualQuantiles(stump()), func=np.cbrt, inverse_func=lambda t: t**3), 0.8),
        Naive(stump(), 0.8),
    ],
)
@pytest.mark.parametrize("row", [0, *(pytest.param(row, marks=pytest.mark.slow) for row in (30, 59))])
@pytest.mark.filterwarnings("ignore::UserWarning")  # of small groups, and of a column that says little
def test_a_rare_text_among_numbers_may_be_in_any_row(model: Any, row: int) -> None:
    mixed = X["b"].astype(object)
    mixed[row] = "n/a"
    for seed in (0, 1, 2):
        gives_intervals(clone(model).set_params(random_state=seed), X.assign(b=mixed), Y)


def test_naive_needs_a_regressor() -> None:
    bounds = prefit(lower=np.ravel, median=np.ravel, upper=np.ravel, levels=(0.05, 0.5, 0.95))
    with pytest.raises(ValueError, match="estimator must be a regressor"):
        Naive(bounds).fit(np.arange(100.0)[:, None], np.arange(100.0))


def test_swapped_arguments_of_fit_are_named() -> None:
    X = pd.DataFrame({"a": np.arange(50.0), "b": 1.0})
    with pytest.raises(ValueError, match=r"X and y look swapped: X has the shape \(50,\) and y \(50, 2\)"):
        CQR(random_state=0).fit(X["a"], X)


@pytest.mark.parametrize(
    ("texts", "advice"),
    [
        ([f"{1 + day % 28:02}.03.{2000 + day}" for day in range(40)], "pd.to_datetime makes it dates"),
        ([*map(str, range(39)), "unknown"], "read as numbers: pd.to_numeric"),
    ],
)
def test_text_that_is_meant_as_something_else_is_warned_of(texts: list[str], advice: str) -> None:
    X = pd.DataFrame({"column": texts * 10})
    with pytest.warns(UserWarning, match=advice):
        QR(random_state=0).fit(X, np.arange(400.0))


def test_codes_and_names_may_be_categories() -> None:
    X = pd.DataFrame({"code": [*map(str, range(40))] * 10, "city": ["Bern", "Rom"] * 200})
    QR(random_state=0).fit(X, np.arange(400.0))  # a warning would be an error
