"""Coverage given the features: the worst slab, and the excess risk of the target coverage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from icqr.metrics.checks import Floats, Integers, check_rows, check_share
from icqr.metrics.marginal import binomial_interval

#: Up to so many rows the default classifier works on one thread: on a busy machine, several that wait for each other in
#: thousands of short steps take up to 70 times as long.
MOST_FOR_ONE_THREAD = 100_000


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
    rows = check_rows(y, intervals)
    design = _numeric(X, len(rows.y))
    power = np.ldexp(1.0, np.frexp(design.abs().max())[1] - 1)  # so that squares neither overflow nor vanish
    design = design / power
    centre, scale = design.mean(), design.std(ddof=0)
    points = np.ascontiguousarray(((design - centre) / scale).to_numpy())
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
    >>> risk = excess_risk(y, [[-1, 1]] * 400, x, coverage=0.9, classifier=DecisionTreeClassifier(max_depth=1))
    >>> risk["value"].round(3).to_dict()
    {'l1': 0.5, 'l1_under': 0.45, 'l1_over': 0.05, 'squared': 0.41, 'squared_under': 0.405, 'squared_over': 0.005}
    """
    target = check_share("coverage", coverage)
    rows = check_rows(y, intervals)
    frame = _frame(X, len(rows.y), max_categories=200)
    # Some classifiers can't take a column that is empty in one of the folds.
    frame = frame.loc[:, frame.notna().sum() >= min(30, len(frame))]
    model = _cautious_classifier(random_state) if classifier is None else classifier
    hit = rows.covered.astype(int)
    alone = classifier is None and len(frame) <= MOST_FOR_ONE_THREAD
    with threadpool_limits(limits=1 if alone else None):
        guess = _cross_fit(frame, hit, model, n_splits, random_state)
    parts = {"l1": np.sign(guess - target) * (hit - target), "squared": (target - hit) ** 2 - (guess - hit) ** 2}
    sides = {"": True, "_under": guess < target, "_over": guess > target}
    each = pd.DataFrame({form + side: v * on for form, v in parts.items() for side, on in sides.items()})
    return pd.DataFrame({"value": each.mean(), "standard_error": each.sem() * np.sqrt(1 + n_splits / (n_splits - 1))})


def _frame(X: Any, n: int, max_categories: int) -> pd.DataFrame:
    """X as a DataFrame of float columns and, for all that is not a number, categories."""
    frame = X.to_pandas() if hasattr(X, "to_pandas") else pd.DataFrame(X).infer_objects()
    if len(frame) != n or not frame.shape[1]:
        raise ValueError(f"X must have {n} rows, one per row of y, and at least one column; got {frame.shape}")
    columns = [_feature(frame.iloc[:, j], max_categories) for j in range(frame.shape[1])]
    names = [str(name) for name in frame.columns]
    unique = [f"{name} ({j})" if names.count(name) > 1 else name for j, name in enumerate(names)]
    return pd.concat(columns, axis=1, keys=unique)


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
    design = pd.get_dummies(_frame(X, n, max_categories=20), prefix_sep=" = ", dtype=float)
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
    for block in np.array_split(directions, -(-len(directions) // 16)):  # a few at once: X is read less often
        for direction, projection in zip(block, block @ points.T, strict=True):
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
        # Without columns, or with too few of one kind, nothing can be learned.
        if not frame.shape[1] or np.bincount(hit[train], minlength=2).min() < 10:
            guess[test] = hit[train].mean()
        else:
            model = clone(classifier).fit(frame.iloc[train], hit[train])
            guess[test] = model.predict_proba(frame.iloc[test])[:, 1]
    return guess
