"""What the authors' published notebook does where it differs from the paper's text, for comparison only.

- Offsets are ``np.quantile(scores, min(ceil((n + 1) coverage) / n, 1))``, interpolated between scores, and clipped to
  the largest score where no score has the rank; a cluster without calibration rows gets 0.
- K-means is fitted on the weighted *training* rows (the paper prints calibration rows), k up to 50.
- Importance is that of the *first* network's median head: mean absolute error, 15 repeats, columns resampled with
  replacement. All networks use these clusters.
- Quantiles may cross: such a row is never covered, and its width is ``abs(upper - lower)``.

None of this is part of the library: the offsets promise nothing in small clusters.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.cluster import KMeans

from icqr import KMeansPartition, PermutationImportance
from icqr.importance import median_absolute_error

Array = np.ndarray[Any, np.dtype[Any]]


def interpolated_offset(scores: Array, coverage: float) -> float:
    """Return the notebook's offset; 0 without scores.

    Examples
    --------
    >>> interpolated_offset(np.arange(1.0, 10.0), 0.5), interpolated_offset(np.array([3.0]), 0.9)
    (5.444444444444445, 3.0)
    """
    n = len(scores)
    return float(np.quantile(scores, min(math.ceil((n + 1) * coverage) / n, 1.0))) if n else 0.0


def naive_bounds(calibration: Array, y: Array, validation: Array, coverage: float) -> Array:
    """Return the (n, 2) bounds of Naive around the median; quantiles are (n, 3), raw."""
    offset = interpolated_offset(np.abs(y - calibration[:, 1]), coverage)
    return np.column_stack([validation[:, 1] - offset, validation[:, 1] + offset])


def cqr_bounds(calibration: Array, y: Array, validation: Array, coverage: float) -> Array:
    """Return the (n, 2) bounds of CQR: ICQR with one cluster."""
    whole = np.zeros(len(y), dtype=int), np.zeros(len(validation), dtype=int)
    return icqr_bounds(calibration, y, validation, coverage, *whole)


def icqr_bounds(calibration: Array, y: Array, validation: Array, coverage: float, known: Array, new: Array) -> Array:
    """Return the (n, 2) bounds of ICQR; `known` and `new` are the calibration and the validation rows' clusters."""
    scores = np.maximum(calibration[:, 0] - y, y - calibration[:, 2])
    clusters = range(max(known.max(), new.max()) + 1)
    offsets = np.array([interpolated_offset(scores[known == cluster], coverage) for cluster in clusters])[new]
    return np.column_stack([validation[:, 0] - offsets, validation[:, 2] + offsets])


class Clusters(NamedTuple):
    """The notebook's clusters: each column's share of importance, the variance explained by k = 1, 2, …, the labels."""

    importance: Array
    explained: Array
    calibration: Array
    validation: Array

    @property
    def k(self) -> int:
        """The chosen number of clusters."""
        return len(self.explained)


def find_clusters(network: Any, X: Sequence[Any], y: Sequence[Array], seed: int) -> Clusters:
    """Learn the clusters of a fitted quantile model; X and y hold the training, calibration and validation rows."""
    importance = PermutationImportance(15, median_absolute_error, replace=True, max_rows=None)
    share = importance.compute(network, X[1], y[1], seed)["share"].to_numpy()
    partition = KMeansPartition(max_groups=50, clusterer=KMeans(n_init=10), merge=False)
    with warnings.catch_warnings():
        # The notebook takes 50 clusters when the variance is not reached; the table of groups shows it.
        warnings.simplefilter("ignore", UserWarning)
        partition.fit(X[0], y[0], np.empty((0, 0)), weights=share, random_state=seed)
    explained = partition.path_["explained_variance"].to_numpy(dtype=float)[: partition.k_]
    return Clusters(share, explained, partition.assign(X[1]), partition.assign(X[2]))
