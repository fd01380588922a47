"""The paper's theorem and lemma as a simulation: coverage between its two bounds, and ranks that are uniform."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from icqr.calibration import conformal_rank
from icqr.metrics import binomial_interval
from paper.notebook import Array, interpolated_offset

REPEATS = 40_000
SIZES = (9, 10, 12, 15, 19, 20, 25, 30, 39, 50, 70, 99, 150, 200)


def draw_scores(n: int, repeats: int, rng: np.random.Generator) -> Array:
    """Draw (repeats, n) conformity scores |y - f(x)| of rows whose spread depends on x: exchangeable, without ties."""
    return (0.1 + rng.uniform(size=(repeats, n))) * np.abs(rng.standard_normal((repeats, n)))


def simulate_ranks(n: int = 20, repeats: int | None = None, seed: int = 0) -> Array:
    """Count how often the last of n scores has rank 1, …, n (the lemma: each equally often).

    Examples
    --------
    >>> simulate_ranks(4, 1000).sum().item()
    1000
    """
    scores = draw_scores(n, repeats or REPEATS, np.random.default_rng(seed))
    return np.bincount((scores <= scores[:, -1:]).sum(axis=1), minlength=n + 1)[1:]


def simulate_coverage(
    sizes: Sequence[int] = SIZES, coverage: float = 0.9, repeats: int | None = None, seed: int = 0
) -> pd.DataFrame:
    """Estimate the coverage of a new row, for calibration sets of several sizes (the theorem).

    Parameters
    ----------
    sizes : sequence of int
        n, numbers of calibration rows; each must be enough for a finite offset.
    coverage : float
        1 - α.
    repeats : int
        Calibration sets drawn for each size, each with one new row; by default 40,000.
    seed : int
        Seed of the draws.

    Returns
    -------
    DataFrame
        A row per n: the bounds `lower` (1 - α) and `upper` (1 - α + 1 / (n + 1)); `exact`, k / (n + 1) with the rank k;
        `simulated` with its 99.9 % interval (`from`, `to`); `interpolated`, the same with the notebook's offset.

    Examples
    --------
    >>> table = simulate_coverage([9, 20], repeats=2000)
    >>> table["exact"].round(3).tolist()
    [0.9, 0.905]
    """
    rng, repeats = np.random.default_rng(seed), repeats or REPEATS
    rows = []
    for n in sizes:
        scores = draw_scores(n + 1, repeats, rng)
        rank, new, ordered = conformal_rank(n, coverage), scores[:, n], np.sort(scores[:, :n], axis=1)
        hits = int((new <= ordered[:, rank - 1]).sum())
        low, high = binomial_interval(hits, repeats, confidence=0.999)

        # The notebook's offset lies between two scores: the same two places in every set, as n is the same.
        place = interpolated_offset(np.arange(n, dtype=float), coverage)
        below, above = ordered[:, int(place)], ordered[:, min(int(place) + 1, n - 1)]
        interpolated = np.mean(new <= below + (place - int(place)) * (above - below))
        rows.append(
            {
                "n": n,
                "rank": rank,
                "lower": coverage,
                "upper": coverage + 1 / (n + 1),
                "exact": rank / (n + 1),
                "simulated": hits / repeats,
                "from": float(low),
                "to": float(high),
                "interpolated": float(interpolated),
            }
        )
    return pd.DataFrame(rows)
