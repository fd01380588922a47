"""Measures of prediction intervals: how often they hold, how wide they are, and where they fail.

Each function takes ``(y, intervals, …)``: ``y`` finite, of shape ``(n,)``; ``intervals`` of shape ``(n, 2)``, lower
and upper bounds side by side, from any library. Intervals are closed: a ``y`` on a bound is covered. Bounds may be
infinite, and each function says what that means for it. ``sample_weight`` is ``(n,)``, not negative; None weighs all
rows alike. ``coverage`` is the promised share (0.9), ``confidence`` that of an exact interval.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

__all__ = [
    "WorstSlab",
    "binomial_interval",
    "coverage_by_group",
    "coverage_gap",
    "coverage_interval",
    "coverage_score",
    "coverage_width_correlation",
    "excess_risk",
    "feature_stratified_coverage",
    "hsic",
    "interval_iou",
    "interval_score",
    "mean_width",
    "pinball_loss",
    "size_stratified_coverage",
    "width_summary",
    "worst_slab_coverage",
]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def coverage_score(y: ArrayLike, intervals: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float:
    r"""Share of rows whose interval holds ``y``: :math:`\frac1n \sum_i 1[l_i \le y_i \le u_i]`.

    An infinite bound covers everything on its side.

    Examples
    --------
    >>> coverage_score([1, 2, 3, 4], [[0, 1], [0, 1], [2, 4], [-float("inf"), 9]])
    0.75
    """
    rows = _check(y, intervals, sample_weight)
    return _mean(rows.covered, rows.weight)


def coverage_interval(
    y: ArrayLike, intervals: ArrayLike, *, confidence: float = 0.95, sample_weight: ArrayLike | None = None
) -> tuple[float, float]:
    r"""Exact (Clopper–Pearson) confidence interval of the true coverage.

    With weights it is approximate: the rows count as Kish's effective number :math:`(\sum w)^2 / \sum w^2` (Korn and
    Graubard, 1998, *Survey Methodology* 24).

    Examples
    --------
    >>> low, high = coverage_interval(range(10), [[0, 8]] * 10)
    >>> round(low, 3), round(high, 3)
    (0.555, 0.997)
    """
    rows = _check(y, intervals, sample_weight)
    n = len(rows.y) if rows.weight is None else float(rows.weight.sum() ** 2 / np.square(rows.weight).sum())
    low, high = binomial_interval(_mean(rows.covered, rows.weight) * n, n, confidence=confidence)
    return float(low), float(high)


def binomial_interval(covered: ArrayLike, n: ArrayLike, *, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Exact confidence interval of a share, from counts (arrays are taken element by element).

    The bounds are quantiles of Beta(k, n − k + 1) and Beta(k + 1, n − k); no rows at all give (0, 1).

    References
    ----------
    Clopper and Pearson (1934), *Biometrika* 26, 404–413.

    Examples
    --------
    >>> low, high = binomial_interval([9, 0], [10, 10])
    >>> low.round(3), high.round(3)
    (array([0.555, 0.   ]), array([0.997, 0.308]))
    """
    k, rows = np.asarray(covered, dtype=float), np.asarray(n, dtype=float)
    if np.any((k < 0) | (k > rows)):
        raise ValueError(f"covered must be between 0 and n in every place, got {k} of {rows}")
    tail = (1 - _check_share("confidence", confidence)) / 2
    # Where the formula has no meaning (k = 0, k = n), 1 stands in for the parameter and `where` for the result.
    low = np.where(k > 0, betaincinv(np.where(k > 0, k, 1), rows - k + 1, tail), 0.0)
    high = np.where(k < rows, betaincinv(k + 1, np.where(k < rows, rows - k, 1), 1 - tail), 1.0)
    return low, high


def mean_width(y: ArrayLike, intervals: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float:
    """Mean of upper − lower; ``y`` is only checked, so that all metrics are called alike.

    One infinite interval makes it infinite, and a warning says how many there are; :func:`width_summary` describes the
    others.

    Examples
    --------
    >>> mean_width([0, 0], [[0, 1], [0, 2]])
    1.5
    """
    rows = _check(y, intervals, sample_weight)
    infinite = np.isinf(rows.width)
    if rows.weight is not None:
        infinite &= rows.weight > 0
    if infinite.any():
        message = f"{infinite.sum()} of {len(rows.y)} intervals are infinite, and so is their mean width"
        warnings.warn(f"{message}; width_summary describes the finite ones", stacklevel=2)
    return _mean(rows.width, rows.weight)


def width_summary(y: ArrayLike, intervals: ArrayLike) -> pd.Series[float]:
    """Eight statistics of the *finite* widths, the number of rows and the number of infinite intervals.

    ``std`` divides by n − 1 and quantiles are interpolated linearly, as in :meth:`pandas.Series.describe`. Read the
    statistics together with ``n_infinite``: they say nothing of those rows. Without finite widths they are NaN.

    Examples
    --------
    >>> width_summary([0, 0, 0, 0], [[0, 1], [0, 2], [0, 3], [0, float("inf")]]).to_dict()
    {'min': 1.0, 'max': 3.0, 'mean': 2.0, 'std': 1.0, 'Q1': 1.5, 'median': 2.0, 'Q3': 2.5, 'IQR': 1.0, 'n': 4.0,
     'n_infinite': 1.0}
    """
    width = _check(y, intervals).width
    finite = pd.Series(width[np.isfinite(width)])
    low, middle, high = finite.quantile([0.25, 0.5, 0.75])
    spread = {"min": finite.min(), "max": finite.max(), "mean": finite.mean(), "std": finite.std()}
    order = {"Q1": low, "median": middle, "Q3": high, "IQR": high - low}
    return pd.Series({**spread, **order, "n": len(width), "n_infinite": len(width) - len(finite)}, dtype=float)


def interval_score(
    y: ArrayLike, intervals: ArrayLike, *, coverage: float, sample_weight: ArrayLike | None = None
) -> float:
    r"""Winkler's score, less is better: :math:`\frac1n\sum_i (u_i-l_i) + \frac{2}{1-coverage}\,dist(y_i, [l_i, u_i])`.

    It is proper for central intervals of the given coverage. An infinite interval makes it infinite.

    References
    ----------
    Winkler (1972), *JASA* 67, 187–191; Gneiting and Raftery (2007), *JASA* 102, 359–378, section 6.2.

    Examples
    --------
    >>> interval_score([1, 3], [[0, 2], [0, 2]], coverage=0.5)
    4.0
    """
    factor = 2 / (1 - _check_share("coverage", coverage))
    rows = _check(y, intervals, sample_weight)
    distance = np.maximum(np.maximum(rows.lower - rows.y, rows.y - rows.upper), 0)
    return _mean(rows.width + factor * distance, rows.weight)


def pinball_loss(
    y: ArrayLike, quantiles: ArrayLike, levels: ArrayLike, sample_weight: ArrayLike | None = None
) -> float:
    r"""Mean over rows and levels of :math:`\max(\tau (y - q), (\tau - 1)(y - q))`.

    Parameters
    ----------
    quantiles : (n, L) array, or (n,) for one level
        Predicted quantiles, one column per level; an infinite one makes the loss infinite.
    levels : (L,) array or number
        Strictly between 0 and 1.

    References
    ----------
    Koenker and Bassett (1978), *Econometrica* 46, 33–50.

    Examples
    --------
    >>> pinball_loss([1, 2], [[0, 3], [2, 2]], levels=[0.5, 0.75])
    0.25
    """
    tau, values = np.atleast_1d(np.asarray(levels, dtype=float)), np.asarray(y, dtype=float)
    predicted = np.asarray(quantiles, dtype=float)
    predicted = predicted[:, None] if predicted.ndim == len(tau) == 1 else predicted
    if not ((tau > 0) & (tau < 1)).all():
        raise ValueError(f"levels must be strictly between 0 and 1, got {tau}")
    if not values.size or predicted.shape != (*values.shape, len(tau)) or predicted.ndim != 2:
        shapes = f"got {predicted.shape} for y of shape {values.shape} and {len(tau)} levels"
        raise ValueError(f"quantiles must have a row per y and a column per level; {shapes}")
    with np.errstate(invalid="ignore"):
        error = values[:, None] - predicted
        losses = np.maximum(tau * error, (tau - 1) * error) @ np.full(len(tau), 1 / len(tau))
        loss = _mean(losses, _check_weight(sample_weight, len(values)))
    if not np.isfinite(loss):  # looked at only now, because models call the loss in loops
        _check_finite("y", values)
        if np.isnan(predicted).any():
            raise ValueError(f"quantiles must not be NaN, got one in row {np.isnan(predicted).any(axis=1).argmax()}")
    return loss


def coverage_by_group(
    y: ArrayLike,
    intervals: ArrayLike,
    groups: ArrayLike,
    *,
    confidence: float = 0.95,
    sample_weight: ArrayLike | None = None,
) -> pd.DataFrame:
    """Coverage in each group, with its exact interval as in :func:`coverage_interval`.

    Parameters
    ----------
    groups : (n,) array
        Labels of any kind; rows without a label are a group of their own.

    Returns
    -------
    pandas.DataFrame
        A row per group: ``n``, ``share`` (of rows, or of weight), ``coverage``, ``coverage_lower``, ``coverage_upper``,
        ``mean_width`` (infinite if one interval is).

    Examples
    --------
    >>> coverage_by_group([1, 2, 3], [[0, 1], [0, 1], [2, 4]], ["a", "a", "b"])[["n", "coverage", "mean_width"]]
           n  coverage  mean_width
    group
    a      2       0.5         1.0
    b      1       1.0         2.0
    """
    rows = _check(y, intervals, sample_weight)
    codes, labels = pd.factorize(_column("groups", groups, len(rows.y)), sort=True, use_na_sentinel=False)
    return _by_code(rows, codes, pd.Index(labels, name="group"), confidence)


def coverage_gap(
    y: ArrayLike,
    intervals: ArrayLike,
    groups: ArrayLike,
    *,
    coverage: float,
    weighted: bool = False,
    sample_weight: ArrayLike | None = None,
) -> float:
    r"""Mean distance of the groups' coverage from the promise: :math:`\sum_g s_g |coverage_g - coverage|`.

    Each group counts alike (:math:`s_g = 1/G`), or by its share of rows if ``weighted``. Small groups are noisy: a gap
    above 0 is expected even of perfect intervals.

    References
    ----------
    Ding et al. (2023), "Class-conditional conformal prediction with many classes", *NeurIPS*.

    Examples
    --------
    >>> coverage_gap([1, 2, 3], [[0, 1], [0, 1], [2, 4]], ["a", "a", "b"], coverage=0.75)
    0.25
    """
    _check_share("coverage", coverage)
    table = coverage_by_group(y, intervals, groups, sample_weight=sample_weight)
    gap = (table["coverage"] - coverage).abs()
    return float((gap * table["share"]).sum() if weighted else gap.mean())


def size_stratified_coverage(
    y: ArrayLike, intervals: ArrayLike, *, n_bins: int = 10, confidence: float = 0.95
) -> pd.DataFrame:
    """Coverage by width: a table like :func:`coverage_by_group` over ``n_bins`` equally large bins of the width.

    Equal widths share a bin, so there may be fewer; infinite widths are the largest. Its smallest ``coverage`` is the
    size-stratified coverage of Angelopoulos and Bates (2023), *Foundations and Trends in Machine Learning* 16.

    Examples
    --------
    >>> size_stratified_coverage([0, 0, 5, 0], [[0, 1], [0, 2], [0, 3], [0, 4]], n_bins=2)["coverage"].to_list()
    [1.0, 0.5]
    """
    rows = _check(y, intervals)
    return _by_code(rows, *_bins(rows.width, n_bins, "width"), confidence)


def feature_stratified_coverage(
    y: ArrayLike, intervals: ArrayLike, feature: ArrayLike, *, n_bins: int = 10, confidence: float = 0.95
) -> pd.DataFrame:
    """Coverage by a feature: a table like :func:`coverage_by_group`.

    A numeric feature is cut in ``n_bins`` equally large bins as in :func:`size_stratified_coverage`, any other has a
    row per value; missing values have a row of their own.

    Examples
    --------
    >>> feature_stratified_coverage([0, 0, 5, 0], [[0, 1]] * 4, [10, 20, 30, 40], n_bins=2)["coverage"].to_dict()
    {Interval(10.0, 20.0, closed='both'): 1.0, Interval(30.0, 40.0, closed='both'): 0.5}
    """
    rows = _check(y, intervals)
    column = _column("feature", feature, len(rows.y))
    name = "feature" if column.name is None else column.name
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        return _by_code(rows, *_bins(column.to_numpy(dtype=float, na_value=np.nan), n_bins, name), confidence)
    codes, labels = pd.factorize(column, sort=True, use_na_sentinel=False)
    return _by_code(rows, codes, pd.Index(labels, name=name), confidence)


def coverage_width_correlation(y: ArrayLike, intervals: ArrayLike) -> float:
    """Pearson's correlation of "covered" and width: 0 if coverage is the same at every x.

    Rows with an infinite width are left out (it has no distance to the others). NaN if all rows are covered, none is,
    or all widths are equal.

    References
    ----------
    Feldman, Bates and Romano (2021), "Improving conditional coverage via orthogonal quantile regression", *NeurIPS*.

    Examples
    --------
    >>> round(coverage_width_correlation([0, 0, 5], [[0, 1], [0, 2], [0, 3]]), 3)
    -0.866
    """
    covered, width = _finite_rows(y, intervals)
    spread = covered.std() * width.std() if len(width) else 0.0
    if spread == 0:
        return float("nan")
    return float(((covered - covered.mean()) * (width - width.mean())).mean() / spread)


def hsic(y: ArrayLike, intervals: ArrayLike) -> float:
    r"""Hilbert–Schmidt independence criterion of "covered" and width: 0 if independent; any dependence raises it.

    :math:`tr(KHLH) / (n-1)^2` with Gaussian kernels :math:`e^{-d^2}` of "covered" and of the width in standard
    deviations, so that the unit of ``y`` does not matter. Its bias is upwards, of order 1/n. Rows with an infinite
    width are left out. MAPIE's ``hsic`` is its root for widths with a standard deviation of 1.

    "Covered" has two values, so this is a quadratic form in the centred "covered"; a grid of the widths with step
    1/1000 and one FFT give it in O(n) memory and O(n log n) time, with an error below 1e-6.

    References
    ----------
    Gretton et al. (2005), *Algorithmic Learning Theory*, 63–77; Feldman, Bates and Romano (2021), *NeurIPS*.

    Examples
    --------
    >>> round(hsic([0, 0, 5, 5], [[0, 1], [0, 1], [0, 2], [0, 2]]), 4)
    0.2758
    """
    covered, width = _finite_rows(y, intervals)
    if len(width) < 2 or np.ptp(width) == 0:
        return 0.0
    place = (width - width.min()) / width.std() * 1000
    cell = np.floor(place).astype(np.int64)
    centred, right = covered - covered.mean(), place - cell
    size = int(cell.max()) + 2
    grid = np.bincount(cell, centred * (1 - right), size) + np.bincount(cell + 1, centred * right, size)
    # Twice the length keeps the circular autocorrelation free of wrap-around; each lag ≠ 0 occurs twice.
    together = np.fft.irfft(np.abs(np.fft.rfft(grid, 2 * size)) ** 2, 2 * size)[:size]
    kernel = np.exp(-((np.arange(size) / 1000) ** 2))
    form = 2 * (together @ kernel) - together[0]
    # The kernel of "covered" is 1 or 1/e; centred, it is 2(1 − 1/e) times the outer product of the centred vector.
    return float(2 * (1 - np.exp(-1)) * form / (len(width) - 1) ** 2)


def interval_iou(
    y: ArrayLike, intervals: ArrayLike, known: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    """Mean overlap with known intervals: length of intersection / length of union; ``y`` is only checked.

    With infinite bounds it is the limit over growing windows [−t, t]: the infinite sides they share over those that
    either has (``[0, ∞)`` and ``(−∞, ∞)``: 1/2). Two equal points overlap wholly.

    Parameters
    ----------
    known : (n, 2) array
        The intervals to compare with, for example the true quantiles of simulated data.

    Examples
    --------
    >>> interval_iou([0, 0], [[0, 2], [0, 1]], [[1, 3], [0, 1]])
    0.6666666666666666
    """
    one, two = _check(y, intervals, sample_weight), _check(y, known, name="known")
    inter = np.maximum(np.minimum(one.upper, two.upper) - np.maximum(one.lower, two.lower), 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        union = one.width + two.width - inter
        overlap = np.where(union > 0, inter / union, one.lower == two.lower)
    overlap = np.where(np.isinf(one.width) | np.isinf(two.width), _shared_sides(one, two), overlap)
    return _mean(overlap, one.weight)


@dataclass(frozen=True)
class WorstSlab:
    """What :func:`worst_slab_coverage` found.

    The slab is ``lower ≤ direction · x ≤ upper`` with x in its own units (categories as 0/1, missing as the median);
    ``coverage``, its exact 95 % ``interval`` and ``n`` are of ``rows``, the measured rows inside.
    """

    coverage: float
    n: int
    interval: tuple[float, float]
    direction: pd.Series[float]
    lower: float
    upper: float
    rows: Integers


def worst_slab_coverage(
    y: ArrayLike,
    intervals: ArrayLike,
    X: Any,
    *,
    mass: float = 0.1,
    n_directions: int = 500,
    random_state: int | None = 0,
) -> WorstSlab:
    """Coverage in the slab of feature space that looks worst.

    1. Half of the rows choose: along each feature and ``n_directions`` random directions, the slab with the least
       coverage among *all* that hold at least ``mass`` of these rows (Dinkelbach's method on cumulative sums).
    2. The other half measure it.

    So the result is an unbiased coverage of the *chosen* slab, not of the worst one, which it may miss; perfect
    intervals give about their coverage, not less. Infinite bounds count as in :func:`coverage_score`. Time is
    O(directions · n log n), memory linear in X.

    Parameters
    ----------
    X : (n, d) array or DataFrame
        Numeric columns are standardized, missing values get the median; other columns become 0/1 columns of their 20
        most frequent values.

    References
    ----------
    Cauchois, Gupta and Duchi (2021), "Knowing what you know", *JMLR* 22; Romano, Sesia and Candès (2020), *NeurIPS*.

    Examples
    --------
    >>> x = np.arange(1000) / 1000
    >>> slab = worst_slab_coverage(np.where(x < 0.2, 2, 0), [[-1, 1]] * 1000, x[:, None])
    >>> slab.coverage, slab.n, round(slab.upper, 1)
    (0.0, 96, 0.2)
    """
    rows = _check(y, intervals)
    design = _numeric(X, len(rows.y))
    centre, scale = design.mean(), design.std(ddof=0)
    points = np.ascontiguousarray(((design - centre) / scale).to_numpy())
    rng = np.random.default_rng(random_state)
    search, measure = np.array_split(rng.permutation(len(rows.y)), 2)
    directions = np.vstack([np.eye(points.shape[1]), rng.normal(size=(n_directions, points.shape[1]))])
    smallest = int(np.ceil(_check_share("mass", mass) * len(search)))
    chosen, cuts = _choose_slab(points[search], rows.covered[search], directions, smallest)
    projection = points[measure] @ chosen
    inside = np.sort(measure[(projection >= cuts[0]) & (projection <= cuts[1])])
    hits, n = int(rows.covered[inside].sum()), len(inside)
    low, high = binomial_interval(hits, n)
    # From standardized features back to their own units, with the largest coefficient ±1.
    direction = chosen / scale
    unit = float(direction.abs().max())
    low_cut, high_cut = ((cut + float(direction @ centre)) / unit for cut in cuts)
    share = hits / n if n else float("nan")
    return WorstSlab(share, n, (float(low), float(high)), direction / unit, low_cut, high_cut, inside)


def excess_risk(
    y: ArrayLike,
    intervals: ArrayLike,
    X: Any,
    *,
    coverage: float,
    classifier: Any = None,
    n_splits: int = 5,
    random_state: int | None = 0,
) -> pd.DataFrame:
    r"""Excess risk of the target coverage (ERT): by how much a classifier of "covered" beats the constant promise.

    With v = 1 if covered, c = ``coverage`` and :math:`\hat p(x)` cross-fitted, the rows of the result are the means of

    - ``l1``: :math:`sign(\hat p - c)(v - c)`, which estimates :math:`E|P(covered|X) - c|` from below;
    - ``squared``: :math:`(c - v)^2 - (\hat p - v)^2`, which estimates :math:`E(P(covered|X) - c)^2` from below;

    each with its parts ``_under`` (rows with :math:`\hat p < c`) and ``_over``, which add up to it.

    Noise floor: values are biased *downwards* (``squared`` by :math:`E(\hat p - P)^2`, ``l1`` by every wrong sign) and
    never clipped. Perfect intervals give 0 ± noise for ``l1`` and slightly negative values for ``squared``; a value
    near 0 from few rows means "not shown", not "absent". ``standard_error`` is that of the mean over rows, raised by
    Nadeau and Bengio's :math:`\sqrt{1 + K/(K-1)}` because the K folds share training rows; it does not hold the bias.
    Infinite bounds count as in :func:`coverage_score`.

    Parameters
    ----------
    X : (n, d) array or DataFrame
        Missing values are allowed; text becomes a category, its 200 most frequent values kept.
    classifier : scikit-learn classifier, optional
        With ``predict_proba``; it gets a DataFrame. By default a slow-learning ``HistGradientBoostingClassifier`` which
        stops early, since one that overfits only sees its own noise.

    Returns
    -------
    pandas.DataFrame
        ``value`` and ``standard_error`` of ``l1``, ``l1_under``, ``l1_over``, ``squared``, ``squared_under``,
        ``squared_over``.

    References
    ----------
    Braun, Holzmüller, Jordan and Bach (2025), "Conditional coverage diagnostics for conformal prediction",
    arXiv:2512.11779; Nadeau and Bengio (2003), *Machine Learning* 52, 239–281.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> x = np.arange(400) % 2
    >>> y = np.where(x == 1, 2, 0)  # never covered where x = 1, always elsewhere: |P - c| is 0.9 and 0.1
    >>> risk = excess_risk(y, [[-1, 1]] * 400, x, coverage=0.9, classifier=DecisionTreeClassifier(max_depth=1))
    >>> risk["value"].round(3).to_dict()
    {'l1': 0.5, 'l1_under': 0.45, 'l1_over': 0.05, 'squared': 0.41, 'squared_under': 0.405, 'squared_over': 0.005}
    """
    target = _check_share("coverage", coverage)
    rows = _check(y, intervals)
    frame = _frame(X, len(rows.y), max_categories=200)
    model = _cautious_classifier(random_state) if classifier is None else classifier
    hit = rows.covered.astype(int)
    guess = _cross_fit(frame, hit, model, n_splits, random_state)
    parts = {"l1": np.sign(guess - target) * (hit - target), "squared": (target - hit) ** 2 - (guess - hit) ** 2}
    sides = {"": True, "_under": guess < target, "_over": guess > target}
    each = pd.DataFrame({form + side: v * on for form, v in parts.items() for side, on in sides.items()})
    return pd.DataFrame({"value": each.mean(), "standard_error": each.sem() * np.sqrt(1 + n_splits / (n_splits - 1))})


class _Rows(NamedTuple):
    """Checked rows."""

    y: Floats
    lower: Floats
    upper: Floats
    width: Floats
    covered: NDArray[np.bool_]
    weight: Floats | None


def _check(
    y: ArrayLike, intervals: ArrayLike, sample_weight: ArrayLike | None = None, name: str = "intervals"
) -> _Rows:
    values, bounds = np.asarray(y, dtype=float), np.asarray(intervals, dtype=float)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"y must have the shape (n,) with at least one row, got {values.shape}")
    _check_finite("y", values)
    if bounds.shape != (len(values), 2):
        wanted = f"(n, 2), lower and upper bounds side by side for the n = {len(values)} rows of y"
        raise ValueError(f"{name} must have the shape {wanted}; got {bounds.shape}")
    lower, upper = bounds[:, 0], bounds[:, 1]
    with np.errstate(invalid="ignore", over="ignore"):
        width = upper - lower
    wrong = ~(width >= 0)  # also true of NaN, which [inf, inf] gives as well
    if wrong.any():
        row = int(wrong.argmax())
        rule = "lower ≤ upper in every row, no NaN, and bounds that are not both +inf or both -inf"
        fix = "np.sort(…, axis=1) orders crossed bounds, -inf and inf stand for no bound"
        raise ValueError(f"{name} must have {rule}; got [{lower[row]}, {upper[row]}] in row {row} ({fix})")
    covered = (lower <= values) & (values <= upper)
    return _Rows(values, lower, upper, width, covered, _check_weight(sample_weight, len(values)))


def _check_finite(name: str, values: Floats) -> None:
    if not np.isfinite(values).all():
        row = int((~np.isfinite(values)).argmax())
        raise ValueError(f"{name} must be finite, got {values[row]} in row {row}; drop or fill such rows")


def _check_weight(sample_weight: ArrayLike | None, n: int) -> Floats | None:
    if sample_weight is None:
        return None
    weight = np.asarray(sample_weight, dtype=float)
    if weight.shape != (n,):
        raise ValueError(f"sample_weight must have the shape ({n},), one weight per row of y; got {weight.shape}")
    _check_finite("sample_weight", weight)
    if weight.min() < 0 or weight.sum() == 0:
        raise ValueError(f"sample_weight must not be negative nor all 0; its least value is {weight.min()}")
    return weight


def _check_share(name: str, share: Any) -> float:
    number = float(share) if isinstance(share, Real) else float("nan")
    if not 0 < number < 1:
        hint = f"; did you mean {number / 100:g}?" if 1 < number < 100 else ""
        raise ValueError(f"{name} must be strictly between 0 and 1, got {share!r}{hint}")
    return number


def _mean(values: NDArray[Any], weight: Floats | None) -> float:
    if weight is None:
        return float(values.mean())
    used = weight > 0  # an infinite value of weight 0 must not turn the mean into NaN
    return float(np.average(values[used], weights=weight[used]))


def _column(name: str, values: Any, n: int) -> pd.Series[Any]:
    column = pd.Series(values.to_pandas() if hasattr(values, "to_pandas") else values)
    if len(column) != n:
        raise ValueError(f"{name} must have {n} values, one per row of y; got {len(column)}")
    return column


def _bins(values: Floats, n_bins: int, name: Hashable) -> tuple[Integers, pd.Index[Any]]:
    """Code of the equally large bin each value is in, and the bins; NaN comes last."""
    if n_bins < 1:
        raise ValueError(f"n_bins must be at least 1, got {n_bins}")
    ordered = np.sort(values[~np.isnan(values)])
    ends = np.unique([part[-1] for part in np.array_split(ordered, n_bins) if len(part)])
    starts = ordered[np.append(0, np.searchsorted(ordered, ends[:-1], side="right"))] if len(ends) else ends
    if len(ordered) < len(values):
        starts, ends = np.append(starts, np.nan), np.append(ends, np.nan)
    return np.searchsorted(ends, values), pd.IntervalIndex.from_arrays(starts, ends, closed="both", name=name)


def _by_code(rows: _Rows, codes: Integers, labels: pd.Index[Any], confidence: float) -> pd.DataFrame:
    weight = np.ones(len(codes)) if rows.weight is None else rows.weight

    def total(values: Floats) -> Floats:
        return np.bincount(codes, values, len(labels)).astype(float)

    mass = total(weight)
    with np.errstate(invalid="ignore", divide="ignore"):  # a group may weigh nothing: its numbers are NaN
        coverage = total(weight * rows.covered) / mass
        effective = mass**2 / total(weight**2)
        width = total(np.where(weight > 0, rows.width, 0) * weight) / mass
    low, high = binomial_interval(coverage * effective, effective, confidence=confidence)
    sizes = {"n": np.bincount(codes, minlength=len(labels)), "share": mass / mass.sum()}
    shares = {"coverage": coverage, "coverage_lower": low, "coverage_upper": high}
    return pd.DataFrame({**sizes, **shares, "mean_width": width}, index=labels)


def _finite_rows(y: ArrayLike, intervals: ArrayLike) -> tuple[Floats, Floats]:
    rows = _check(y, intervals)
    finite = np.isfinite(rows.width)
    return rows.covered[finite].astype(float), rows.width[finite]


def _shared_sides(one: _Rows, two: _Rows) -> Floats:
    first, second = np.isinf([one.lower, one.upper]), np.isinf([two.lower, two.upper])
    shared: Floats = (first & second).sum(axis=0) / np.maximum((first | second).sum(axis=0), 1)
    return shared


def _frame(X: Any, n: int, max_categories: int) -> pd.DataFrame:
    """X as a DataFrame of float columns and, for all that is not a number, categories."""
    frame = X.to_pandas() if hasattr(X, "to_pandas") else pd.DataFrame(X).infer_objects()
    if len(frame) != n or not frame.shape[1]:
        raise ValueError(f"X must have {n} rows, one per row of y, and at least one column; got {frame.shape}")
    columns = [_feature(frame.iloc[:, j], max_categories) for j in range(frame.shape[1])]
    return pd.concat(columns, axis=1, keys=[str(name) for name in frame.columns])


def _feature(column: pd.Series[Any], max_categories: int) -> pd.Series[Any]:
    if pd.api.types.is_datetime64_any_dtype(column):
        column = (column - column.min()).dt.total_seconds()
    if pd.api.types.is_numeric_dtype(column):
        values = column.to_numpy(dtype=float, na_value=np.nan)
        return pd.Series(np.where(np.isinf(values), np.nan, values))
    text = column.astype(object).map(str, na_action="ignore").reset_index(drop=True)
    return text.where(text.isin(text.value_counts().index[:max_categories])).astype("category")


def _numeric(X: Any, n: int) -> pd.DataFrame:
    """X as numbers without gaps, without columns that do not vary."""
    design = pd.get_dummies(_frame(X, n, max_categories=20), dtype=float)
    design = design.fillna(design.median())
    design = design.loc[:, design.max() > design.min()]
    if not design.shape[1]:
        raise ValueError("X must have a column that varies, got constant ones only; a slab needs a direction")
    return design


def _choose_slab(
    points: Floats, covered: NDArray[np.bool_], directions: Floats, smallest: int
) -> tuple[Floats, tuple[float, float]]:
    """Direction and cut points of the slab with the least coverage; all rows if none is below the mean."""
    chosen, cuts, ceiling = directions[0], (-np.inf, np.inf), float(covered.mean())
    for direction in directions:
        projection = points @ direction
        order = np.argsort(projection)
        found = _worst_window(covered[order], projection[order], smallest, ceiling)
        if found is not None:
            chosen, ceiling, cuts = direction, found[0], found[1:]
    return chosen, cuts


def _worst_window(
    covered: NDArray[np.bool_], values: Floats, smallest: int, ceiling: float
) -> tuple[float, float, float] | None:
    """Least mean of ``covered`` over a range of the sorted ``values`` with enough rows, if it is below ``ceiling``.

    Dinkelbach: the mean of a window is below λ where the sum of covered − λ is negative; the most negative window gives
    the next λ, until there is none. One pass of cumulative sums each, and a later direction mostly needs one pass only.
    """
    # Windows begin and end where the value changes: a slab can't part equal values.
    edges = np.flatnonzero(np.diff(values, prepend=-np.inf, append=np.inf))
    total = np.append(0, np.cumsum(covered))[edges]
    latest = np.searchsorted(edges, edges - smallest, side="right") - 1
    first = int(np.searchsorted(latest, 0))
    best = None
    while True:
        excess = total - ceiling * edges
        end = first + int(np.argmin(excess[first:] - np.maximum.accumulate(excess)[latest[first:]]))
        start = int(np.argmax(excess[: latest[end] + 1]))
        mean = float((total[end] - total[start]) / (edges[end] - edges[start]))
        if not mean < ceiling:
            break
        ceiling, best = mean, (int(edges[start]), int(edges[end]))
    return None if best is None else (ceiling, _cut(values, best[0]), _cut(values, best[1]))


def _cut(values: Floats, edge: int) -> float:
    """Half way between two values, so that rounding can't move a row across."""
    if edge == 0:
        return -np.inf
    return np.inf if edge == len(values) else float(values[edge - 1] + values[edge]) / 2


def _cautious_classifier(random_state: int | None) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(
        learning_rate=0.05,
        max_iter=300,
        max_leaf_nodes=8,
        min_samples_leaf=50,
        l2_regularization=10,
        early_stopping=True,
        n_iter_no_change=5,
        random_state=random_state,
    )


def _cross_fit(
    frame: pd.DataFrame, hit: NDArray[np.int_], classifier: Any, n_splits: int, random_state: int | None
) -> Floats:
    """P(covered | x) of each row, from the rows of the other folds."""
    from sklearn.base import clone
    from sklearn.model_selection import KFold

    guess = np.empty(len(hit))
    for train, test in KFold(n_splits, shuffle=True, random_state=random_state).split(frame):
        if np.bincount(hit[train], minlength=2).min() < 10:  # too few of one kind to learn where they are
            guess[test] = hit[train].mean()
        else:
            model = clone(classifier).fit(frame.iloc[train], hit[train])
            guess[test] = model.predict_proba(frame.iloc[test])[:, 1]
    return guess
