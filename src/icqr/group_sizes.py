"""How large a group must be, so that it will have enough calibration rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

#: Chance that a group gets too few calibration rows, above which it is merged.
MERGE_RISK = 0.001


def too_small(counts: NDArray[Any], n_calibration: int, needed: int) -> NDArray[np.bool_]:
    """Tell which groups, with so many training rows each, would too probably get fewer than `needed` rows.

    "Too probably": P(Binomial(n_calibration, the group's share) < needed) > 0.001.

    Examples
    --------
    >>> too_small(np.array([10, 90]), n_calibration=200, needed=9)
    array([ True, False])
    """
    risk = stats.binom.cdf(needed - 1, n_calibration, counts / counts.sum())
    return np.asarray(risk > MERGE_RISK)
