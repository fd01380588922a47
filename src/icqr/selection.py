"""partition="auto": choose a partition from training rows alone."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from icqr._messages import counted
from icqr._rows import Rows
from icqr._tables import FloatArray, IntArray
from icqr.calibration import Calibration, rows_needed
from icqr.conformity import Conformity
from icqr.partition import KMeansPartition, ScorePartition, WholePartition, cut
from icqr.quantiles import cross_fit

#: Numbers of difficulty groups to try.
SIZES = (2, 4, 8, 16)
#: A group gets at least about this many calibration rows. With 100, its offset's own error costs some 0.5 % of width.
ROWS = 100
#: Training rows are split at random this many times, into rows to calibrate with and rows to judge on.
SPLITS = 5


@dataclass(frozen=True)
class Candidate:
    """A partition to choose from, and its labels of the training rows.

    Labels by difficulty are out-of-fold: labels of rows that the regressor knows would flatter the candidate.
    """

    kind: str
    partition: Any
    labels: IntArray

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return int(self.labels.max()) + 1


def group_numbers(n_train: int, n_calibration: int, coverage: float, symmetric: bool) -> list[int]:
    """Return the numbers of difficulty groups to try; none if there are too few rows for more than one group.

    Each group needs about 100 calibration rows. The training rows that calibrate a candidate, at most half, must be
    enough for one group.

    Examples
    --------
    >>> group_numbers(n_train=1000, n_calibration=500, coverage=0.9, symmetric=True)
    [2, 4]
    >>> group_numbers(n_train=100, n_calibration=100, coverage=0.9, symmetric=True)
    []
    """
    if min(n_calibration, n_train // 2) < rows_needed(coverage, symmetric):
        return []
    return [size for size in SIZES if n_calibration >= size * ROWS]


def select(
    rows: Rows,
    bounds: FloatArray,
    weights: FloatArray | None,
    conformity: Conformity,
    coverage: float,
    n_calibration: int,
    seed: int,
    estimator: Any = None,
) -> tuple[Any, pd.DataFrame]:
    """Return the partition with the most groups at no cost, fitted, and a table of all candidates.

    1. The candidates are one group, K-means clusters, and 2, 4, 8 and 16 groups by predicted difficulty. Each group
       must have about 100 calibration rows or more. If there are too few rows for that, or too few training rows to
       judge candidates, one group is the only one.
    2. Five times, draw training rows to calibrate each candidate, as many as there will be calibration rows (at most
       half). Judge it on the other rows, with out-of-fold bounds: a row's loss is the sum of its bounds' pinball
       losses, which is the interval score up to a factor.
    3. A candidate is as good as the best one if its mean loss is larger by at most one standard error of the mean
       difference between their rows.
    4. Of those, take the one with the most groups: coverage holds in each group, so more groups promise more. K-means
       clusters say less about difficulty, so they are taken only if nothing else is as good.

    Parameters
    ----------
    rows : Rows
        The training rows.
    bounds : array of shape (n, 3)
        The rows' raw bounds, out-of-fold. Not used if there is only one candidate (`group_numbers`).
    weights : array, optional
        The columns' importance; by default all equal.
    conformity : Conformity
        The score.
    coverage : float
        The coverage.
    n_calibration : int
        The number of calibration rows there will be.
    seed : int
        Seed for clusters, folds and splits.
    estimator : estimator, optional
        The model that predicts the difficulty; see `ScorePartition`.

    Returns
    -------
    partition : partition
        The chosen partition.
    table : DataFrame
        A row per candidate: `partition`, `groups`, `loss`, `difference` from the best with its `standard_error`, and
        whether it was `chosen`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(2000, 1))
    >>> y = X[:, 0] * rng.normal(size=2000)
    >>> bounds = np.tile([-1.0, 0.0, 1.0], (2000, 1))  # of the same width everywhere
    >>> rows = Rows(X, y, np.arange(2000))
    >>> partition, table = select(rows, bounds, None, Conformity(), coverage=0.9, n_calibration=1000, seed=0)
    >>> partition
    ScorePartition()
    """
    whole = WholePartition().fit(rows.X, rows.y, bounds)
    candidates = [Candidate("one group", whole, whole.assign(rows.X))]
    losses = np.full((1, 1), np.nan)
    sizes = group_numbers(len(rows), n_calibration, coverage, conformity.symmetric)
    if sizes:
        scores = conformity.scores(bounds, rows.y)
        candidates.append(_clusters(rows, bounds, weights, n_calibration, seed))
        # Predict each row's difficulty by a model that has not seen the row.
        regressor, hardest = ScorePartition(estimator=estimator).regressor(seed), scores.max(axis=1)
        difficulty = cross_fit(regressor, rows.X, hardest, (float(coverage),), seed, n_folds=2)[1][:, 0]
        for size in sizes:
            labels = np.searchsorted(cut(difficulty, size), difficulty)
            candidates.append(Candidate("difficulty", ScorePartition(size, estimator), labels))
        candidates = [candidates[0], *(candidate for candidate in candidates[1:] if candidate.n_groups > 1)]
    if len(candidates) > 1:
        losses = _losses(candidates, rows.y, bounds, scores, conformity, coverage, n_calibration, seed)

    means = losses.mean(axis=1)
    best = int(means.argmin())
    errors = (losses - losses[best]).std(axis=1) / np.sqrt(losses.shape[1])
    as_good = np.flatnonzero(~(means - means[best] > errors))
    chosen = max(as_good, key=lambda j: (candidates[j].kind != "K-means", candidates[j].n_groups))
    table = pd.DataFrame(
        {
            "partition": [candidate.kind for candidate in candidates],
            "groups": [candidate.n_groups for candidate in candidates],
            "loss": means,
            "difference": means - means[best],
            "standard_error": errors,
            "chosen": np.arange(len(candidates)) == chosen,
        }
    )
    partition = candidates[chosen].partition
    if isinstance(partition, KMeansPartition):
        partition.space_.warn_about_lumped()
    if isinstance(partition, ScorePartition):
        partition.fit(rows.X, rows.y, bounds, random_state=seed, scores=scores, coverage=coverage)
    return partition, table


def _clusters(rows: Rows, bounds: FloatArray, weights: FloatArray | None, n_calibration: int, seed: int) -> Candidate:
    clusters = KMeansPartition()
    with warnings.catch_warnings():
        # If clusters explain little, or there is only one, another candidate is chosen: no need to warn.
        warnings.simplefilter("ignore", UserWarning)
        clusters.fit(rows.X, rows.y, bounds, weights=weights, random_state=seed)
    clusters.merge_small(n_calibration, ROWS)
    return Candidate("K-means", clusters, clusters.assign(rows.X))


def _losses(
    candidates: list[Candidate],
    y: FloatArray,
    bounds: FloatArray,
    scores: FloatArray,
    conformity: Conformity,
    coverage: float,
    n_calibration: int,
    seed: int,
) -> FloatArray:
    """Return (candidates, rows) losses: each row's mean loss over the splits in which it was judged."""
    n_calibrating = min(n_calibration, len(y) // 2)
    rng = np.random.default_rng(seed)
    sums, times = np.zeros((len(candidates), len(y))), np.zeros(len(y))
    for _ in counted(range(SPLITS), "split"):
        order = rng.permutation(len(y))
        calibrating, judged = order[:n_calibrating], order[n_calibrating:]
        times[judged] += 1
        for j, candidate in enumerate(candidates):
            labels = candidate.labels
            calibration = Calibration.from_scores(
                conformity, scores[calibrating], labels[calibrating], candidate.n_groups, "pooled"
            )
            with warnings.catch_warnings():
                # A group may be too small here but large enough in the end, if there are more calibration rows then.
                warnings.simplefilter("ignore", UserWarning)
                offsets = calibration.offsets(coverage, labels[judged])
            intervals = conformity.intervals(bounds[judged], offsets)
            sums[j, judged] += pinball(intervals, y[judged], conformity.side, coverage)
    seen = times > 0
    return np.asarray(sums[:, seen] / times[seen])


def pinball(intervals: FloatArray, y: FloatArray, side: str, coverage: float) -> FloatArray:
    """Return the sum of each row's pinball losses, one per bound; a side that was not asked for has none.

    Examples
    --------
    >>> pinball(np.array([[0.0, 10.0]]), np.array([12.0]), "both", 0.9).round(3)
    array([2.5])
    """
    tail = (1 - float(coverage)) / (2 if side == "both" else 1)
    lower, upper = intervals.T
    below = np.where(y < lower, (1 - tail) * (lower - y), tail * (y - lower)) if side != "upper" else 0.0
    above = np.where(y > upper, (1 - tail) * (y - upper), tail * (upper - y)) if side != "lower" else 0.0
    return np.asarray(below + above)
