"""What the authors' published notebook does where it differs from the paper's text, for comparison only.

- Offsets are ``np.quantile(scores, min(ceil((n + 1) coverage) / n, 1))``, interpolated between scores, and clipped to
  the largest score where no score has the rank; a cluster without calibration rows gets 0.
- K-means is fitted on the weighted *training* rows (the paper prints calibration rows), k up to 50.
- Importance is that of the *first* network's median head: mean absolute error, 15 repeats, columns resampled with
  replacement. All networks use these clusters.
- Quantiles may cross: such a row is never covered, and its width is ``abs(upper - lower)``.

None of this is part of the library's interface: the offsets promise nothing in small clusters.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans

from icqr._tables import FloatArray, IntArray, Table
from icqr.importance import PermutationImportance, median_absolute_error
from icqr.partition import KMeansPartition


def interpolated_offset(scores: FloatArray, coverage: float) -> float:
    """Give the notebook's offset; 0 without scores.

    Examples
    --------
    >>> interpolated_offset(np.arange(1.0, 10.0), 0.5), interpolated_offset(np.array([3.0]), 0.9)
    (5.444444444444445, 3.0)
    """
    n = len(scores)
    if n == 0:
        return 0.0
    return float(np.quantile(scores, min(math.ceil((n + 1) * coverage) / n, 1.0)))


def cluster_offsets(scores: FloatArray, labels: IntArray, k: int, coverage: float) -> FloatArray:
    """Give each cluster's offset.

    Examples
    --------
    >>> cluster_offsets(np.array([1.0, 2.0, 5.0]), np.array([0, 0, 2]), 3, 0.9)
    array([2., 0., 5.])
    """
    return np.array([interpolated_offset(scores[labels == cluster], coverage) for cluster in range(k)])


def naive_bounds(calibration: FloatArray, y: FloatArray, validation: FloatArray, coverage: float) -> FloatArray:
    """Give the (n, 2) bounds of Naive around the median head; quantiles are (n, 3), raw."""
    offset = interpolated_offset(np.abs(y - calibration[:, 1]), coverage)
    return np.column_stack([validation[:, 1] - offset, validation[:, 1] + offset])


def cqr_bounds(calibration: FloatArray, y: FloatArray, validation: FloatArray, coverage: float) -> FloatArray:
    """Give the (n, 2) bounds of CQR."""
    whole = np.zeros(len(y), dtype=np.intp), np.zeros(len(validation), dtype=np.intp)
    return icqr_bounds(calibration, y, validation, coverage, whole, 1)


def icqr_bounds(
    calibration: FloatArray,
    y: FloatArray,
    validation: FloatArray,
    coverage: float,
    labels: tuple[IntArray, IntArray],
    k: int,
) -> FloatArray:
    """Give the (n, 2) bounds of ICQR; `labels` are the clusters of the calibration and of the validation rows."""
    scores = np.maximum(calibration[:, 0] - y, y - calibration[:, 2])
    offsets = cluster_offsets(scores, labels[0], k, coverage)[labels[1]]
    return np.column_stack([validation[:, 0] - offsets, validation[:, 2] + offsets])


class RawHeads:
    """A network's heads as importance wants a model, not sorted.

    Parameters
    ----------
    network : QuantileNetwork
        Fitted.
    """

    def __init__(self, network: Any) -> None:
        self.network = network
        self.levels_: tuple[float, ...] = tuple(network.levels_)

    def predict(self, X: Any) -> FloatArray:
        """Give (n, levels) quantiles."""
        return np.asarray(self.network.predict_quantiles(X))

    def replacer(self, X: Any) -> Any:
        """Prepare predictions with one column replaced."""
        return self.network.replacer(X)


@dataclass(frozen=True)
class Clusters:
    """The notebook's clusters, learned once from the first network.

    Parameters
    ----------
    importance : array
        Share of each column.
    explained : array
        Explained variance for k = 1, 2, …, the last one being the chosen k.
    calibration, validation : arrays
        Clusters of these rows.
    """

    importance: FloatArray
    explained: FloatArray
    calibration: IntArray
    validation: IntArray

    @property
    def k(self) -> int:
        """The chosen number of clusters."""
        return len(self.explained)

    def save(self, file: Path) -> None:
        """Write to a file that is whole or not there."""
        temporary = file.with_suffix(".part")
        with temporary.open("wb") as stream:
            np.savez(stream, **vars(self))
        temporary.replace(file)

    @classmethod
    def load(cls, file: Path) -> Clusters:
        """Read what `save` wrote."""
        with np.load(file, allow_pickle=False) as stored:
            return cls(**{name: stored[name] for name in stored.files})


def find_clusters(
    network: Any, X: Sequence[Table], y: Sequence[FloatArray], seed: int, max_groups: int = 50
) -> Clusters:
    """Learn the clusters; X and y hold the training, calibration and validation rows."""
    importance = PermutationImportance(15, median_absolute_error, replace=True, data="calibration", max_rows=None)
    share = importance.compute(RawHeads(network), X[1], y[1], seed)["share"].to_numpy()
    partition = KMeansPartition(max_groups=max_groups, clusterer=KMeans(n_init=10), merge=False)
    with warnings.catch_warnings():
        # The notebook takes K clusters when the variance is not reached; the table of groups shows it.
        warnings.simplefilter("ignore", UserWarning)
        partition.fit(X[0], y[0], np.empty((0, 0)), weights=share, random_state=seed)
    explained = partition.path_["explained_variance"].to_numpy(dtype=np.float64)[: partition.k_]
    return Clusters(share, explained, partition.assign(X[1]), partition.assign(X[2]))
