"""Coverage in parts of the rows: groups, bins of the width, the worst slab; and the excess risk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from icqr._dates import as_days, is_dates
from icqr.metrics.marginal import (
    CheckedRows,
    Floats,
    Integers,
    binomial_interval,
    check_rows,
    check_share,
    equal_widths,
)

#: Up to this many rows the default classifier works on one thread: on a busy machine, threads that wait for each other
#: in thousands of short steps take up to 70 times as long.
MOST_FOR_ONE_THREAD = 100_000

# -- Groups and bins -------------------------------------------------------------------------------------


def coverage_by_group(
    y: ArrayLike,
    intervals: ArrayLike,
    groups: ArrayLike,
    *,
    confidence: float = 0.95,
    sample_weight: ArrayLike | None = None,
) -> pd.DataFrame:
    r"""Coverage in each group, with its exact interval (Clopper–Pearson, see :func:`binomial_interval`).

    With weights the interval is approximate: a group's rows count as Kish's effective number
    :math:`(\sum w)^2 / \sum w^2` (Korn and Graubard, 1998, *Survey Methodology* 24).

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
    rows = check_rows(y, intervals, sample_weight)
    column: pd.Series[Any] = pd.Series(groups.to_pandas() if hasattr(groups, "to_pandas") else groups)
    if len(column) != len(rows.y):
        raise ValueError(f"groups must have {len(rows.y)} values, one per row of y; got {len(column)}")
    codes, labels = pd.factorize(column, sort=True, use_na_sentinel=False)
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
    check_share("coverage", coverage)
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
    if n_bins < 1:
        raise ValueError(f"n_bins must be at least 1, got {n_bins}")
    rows = check_rows(y, intervals)
    width = equal_widths(rows.lower, rows.upper)

    # A bin ends at the largest width of an equal share of the rows, and starts at the next width after the last end.
    ordered = np.sort(width)
    ends = np.unique([part[-1] for part in np.array_split(ordered, n_bins) if len(part)])
    starts = ordered[np.append(0, np.searchsorted(ordered, ends[:-1], side="right"))]
    bins = pd.IntervalIndex.from_arrays(starts, ends, closed="both", name="width")
    return _by_code(rows, np.searchsorted(ends, width), bins, confidence)


def _by_code(rows: CheckedRows, codes: Integers, labels: pd.Index[Any], confidence: float) -> pd.DataFrame:
    """Return the table of :func:`coverage_by_group`, a row per label."""
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


# -- The worst slab --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WorstSlab:
    """What :func:`worst_slab_coverage` found.

    The slab is ``lower ≤ direction · x ≤ upper`` with x in its own units (``"city = Bern"`` is 1 or 0, missing values
    are the median); ``coverage``, its exact 95 % ``interval`` and ``n`` are of ``rows``, the measured rows inside.
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
    X: ArrayLike,
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
    rows = check_rows(y, intervals)

    # Numbers without gaps, and only columns that vary.
    design = pd.get_dummies(_frame(X, len(rows.y), max_categories=20), prefix_sep=" = ", dtype=float)
    design = design.fillna(design.median())
    design = design.loc[:, design.max() > design.min()]
    if not design.shape[1]:
        raise ValueError("X must have a column that varies, got constant ones only; a slab needs a direction")

    # Standardized features, so that random directions favour no unit.
    power = np.ldexp(1.0, np.frexp(design.abs().max())[1] - 1)  # so that squares neither overflow nor vanish
    design = design / power
    centre, scale = design.mean(), design.std(ddof=0)
    points = np.ascontiguousarray(((design - centre) / scale).to_numpy())

    # One half of the rows chooses the slab, the other measures it.
    rng = np.random.default_rng(random_state)
    search, measure = np.array_split(rng.permutation(len(rows.y)), 2)
    directions = np.vstack([np.eye(points.shape[1]), rng.normal(size=(n_directions, points.shape[1]))])
    smallest = int(np.ceil(check_share("mass", mass) * len(search)))
    with threadpool_limits(limits=1):
        chosen, cuts = _choose_slab(points[search], rows.covered[search], directions, smallest)
    projection = points[measure] @ chosen
    inside = np.sort(measure[(projection >= cuts[0]) & (projection <= cuts[1])])
    hits, n = int(rows.covered[inside].sum()), len(inside)
    low, high = binomial_interval(hits, n)

    # From standardized features back to their own units, with the largest coefficient ±1.
    direction, shift = chosen / scale / power, float((chosen / scale) @ centre)
    unit = float(direction.abs().max())
    low_cut, high_cut = ((cut + shift) / unit for cut in cuts)
    share = hits / n if n else float("nan")
    return WorstSlab(share, n, (float(low), float(high)), direction / unit, low_cut, high_cut, inside)


def _choose_slab(
    points: Floats, covered: NDArray[np.bool_], directions: Floats, smallest: int
) -> tuple[Floats, tuple[float, float]]:
    """Return direction and cut points of the slab with the least coverage; all rows if none is below the mean."""
    chosen, cuts, ceiling = directions[0], (-np.inf, np.inf), float(covered.mean())
    for block in np.array_split(directions, -(-len(directions) // 16)):  # a few at once: X is read less often
        for direction, projection in zip(block, block @ points.T, strict=True):
            order = np.argsort(projection)
            window = _worst_window(covered[order], projection[order], smallest, ceiling)
            if window is not None:
                chosen, ceiling, cuts = direction, window[0], window[1:]
    return chosen, cuts


def _worst_window(
    covered: NDArray[np.bool_], values: Floats, smallest: int, ceiling: float
) -> tuple[float, float, float] | None:
    """Return the least mean of ``covered`` over a range of the sorted ``values`` with enough rows, and its cuts.

    None if no mean is below ``ceiling``.

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
    if best is None:
        return None
    # Cuts are half way between two values, so that rounding can't move a row across.
    padded = np.concatenate([[-np.inf], values, [np.inf]])
    low, high = ((padded[edge] + padded[edge + 1]) / 2 for edge in best)
    return ceiling, float(low), float(high)


# -- The excess risk -------------------------------------------------------------------------------------


def excess_risk(
    y: ArrayLike,
    intervals: ArrayLike,
    X: ArrayLike,
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
        Missing values are allowed, but columns with fewer than 30 known ones are left out; text becomes a category, its
        200 most frequent values kept.
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
    >>> stump = DecisionTreeClassifier(max_depth=1, random_state=0)
    >>> risk = excess_risk(y, [[-1, 1]] * 400, x, coverage=0.9, classifier=stump)
    >>> risk["value"].round(3).to_dict()
    {'l1': 0.5, 'l1_under': 0.45, 'l1_over': 0.05, 'squared': 0.41, 'squared_under': 0.405, 'squared_over': 0.005}
    """
    from sklearn.base import clone
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.model_selection import KFold

    target = check_share("coverage", coverage)
    rows = check_rows(y, intervals)
    frame = _frame(X, len(rows.y), max_categories=200)
    # Some classifiers can't take a column that is empty in one of the folds.
    frame = frame.loc[:, frame.notna().sum() >= min(30, len(frame))]

    alone = classifier is None and len(frame) <= MOST_FOR_ONE_THREAD
    if classifier is None:
        classifier = HistGradientBoostingClassifier(
            learning_rate=0.05,
            max_iter=300,
            max_leaf_nodes=8,
            min_samples_leaf=50,
            l2_regularization=10,
            early_stopping=True,
            n_iter_no_change=5,
            random_state=random_state,
        )

    # P(covered | x) of each row, learned from the rows of the other folds.
    hit, guess = rows.covered.astype(int), np.empty(len(frame))
    with threadpool_limits(limits=1 if alone else None):
        for train, test in KFold(n_splits, shuffle=True, random_state=random_state).split(frame):
            # Without columns, or with too few of one kind, nothing can be learned.
            if not frame.shape[1] or np.bincount(hit[train], minlength=2).min() < 10:
                guess[test] = hit[train].mean()
            else:
                model = clone(classifier).fit(frame.iloc[train], hit[train])
                guess[test] = model.predict_proba(frame.iloc[test])[:, 1]

    parts = {"l1": np.sign(guess - target) * (hit - target), "squared": (target - hit) ** 2 - (guess - hit) ** 2}
    sides = {"": True, "_under": guess < target, "_over": guess > target}
    each = pd.DataFrame({form + side: v * on for form, v in parts.items() for side, on in sides.items()})
    return pd.DataFrame({"value": each.mean(), "standard_error": each.sem() * np.sqrt(1 + n_splits / (n_splits - 1))})


def _frame(X: Any, n: int, max_categories: int) -> pd.DataFrame:
    """Return X as a DataFrame of float columns and, for all that is not a number, categories."""
    frame = X.to_pandas() if hasattr(X, "to_pandas") else pd.DataFrame(X).infer_objects()
    if len(frame) != n or not frame.shape[1]:
        raise ValueError(f"X must have {n} rows, one per row of y, and at least one column; got {frame.shape}")

    columns: list[pd.Series[Any]] = []
    for j in range(frame.shape[1]):
        column = frame.iloc[:, j]
        if is_dates(column):
            column = pd.Series(as_days(column))
        if pd.api.types.is_numeric_dtype(column):
            values = column.to_numpy(dtype=float, na_value=np.nan)
            columns.append(pd.Series(np.where(np.isinf(values), np.nan, values)))
        else:
            text = column.astype(object).map(str, na_action="ignore").reset_index(drop=True)
            columns.append(text.where(text.isin(text.value_counts().index[:max_categories])).astype("category"))
    names = [str(name) for name in frame.columns]
    unique = [f"{name} ({j})" if names.count(name) > 1 else name for j, name in enumerate(names)]
    return pd.concat(columns, axis=1, keys=unique)
