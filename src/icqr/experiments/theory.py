"""The paper's theorem and lemma as a simulation: coverage between its two bounds, and ranks that are uniform."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from icqr._tables import FloatArray, IntArray
from icqr.calibration import conformal_rank
from icqr.experiments.drawing import INK, Album, new_figure
from icqr.experiments.notebook import interpolated_offset
from icqr.experiments.tidy_rows import write_text
from icqr.metrics import binomial_interval
from icqr.plots.style import GREEN, METHOD_COLORS, PURPLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

REPEATS = 40_000
SIZES = (9, 10, 12, 15, 19, 20, 25, 30, 39, 50, 70, 99, 150, 200)


def draw_scores(n: int, repeats: int, rng: np.random.Generator) -> FloatArray:
    """Draw (repeats, n) conformity scores |y - f(x)| of rows whose spread depends on x: exchangeable, without ties.

    Examples
    --------
    >>> draw_scores(3, 2, np.random.default_rng(0)).shape
    (2, 3)
    """
    return np.asarray((0.1 + rng.uniform(size=(repeats, n))) * np.abs(rng.standard_normal((repeats, n))))


def simulate_ranks(n: int = 20, repeats: int = REPEATS, seed: int = 0) -> IntArray:
    """Count how often the last of n scores has rank 1, …, n (the lemma: each equally often).

    Examples
    --------
    >>> simulate_ranks(4, 1000).sum().item()
    1000
    """
    scores = draw_scores(n, repeats, np.random.default_rng(seed))
    ranks = (scores <= scores[:, -1:]).sum(axis=1)
    return np.bincount(ranks, minlength=n + 1)[1:]


def simulate_coverage(
    sizes: Sequence[int] = SIZES, coverage: float = 0.9, repeats: int = REPEATS, seed: int = 0
) -> pd.DataFrame:
    """Estimate the coverage of a new row, for calibration sets of several sizes (the theorem).

    Parameters
    ----------
    sizes : sequence of int
        n, numbers of calibration rows; each must be enough for a finite offset.
    coverage : float
        1 - α.
    repeats : int
        Calibration sets drawn for each size, each with one new row.
    seed : int
        Of the draws.

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
    rng = np.random.default_rng(seed)
    found = []
    for n in sizes:
        scores = draw_scores(n + 1, repeats, rng)
        rank = conformal_rank(n, coverage)
        ordered = np.sort(scores[:, :n], axis=1)
        hits = int((scores[:, n] <= ordered[:, rank - 1]).sum())
        low, high = binomial_interval(hits, repeats, confidence=0.999)
        bounds = {"lower": coverage, "upper": coverage + 1 / (n + 1), "exact": rank / (n + 1)}
        simulated = {"simulated": hits / repeats, "from": float(low), "to": float(high)}
        theirs = {"interpolated": float(np.mean(scores[:, n] <= _interpolated(ordered, coverage)))}
        found.append({"n": n, "rank": rank, **bounds, **simulated, **theirs})
    return pd.DataFrame(found)


def _interpolated(ordered: FloatArray, coverage: float) -> FloatArray:
    """Give the notebook's offset of each sorted row: the same weights of scores in each, as n is the same."""
    n = ordered.shape[1]
    position = interpolated_offset(np.arange(n, dtype=np.float64), coverage)
    low = int(position)
    high = min(low + 1, n - 1)
    return np.asarray(ordered[:, low] + (position - low) * (ordered[:, high] - ordered[:, low]))


def write_theory(folder: Path, album: Album | None = None) -> pd.DataFrame:
    """Simulate, write `theory.csv` and, if there is an album, draw the figure."""
    table, ranks = simulate_coverage(repeats=REPEATS), simulate_ranks(repeats=REPEATS)
    write_text(folder / "theory.csv", table.to_csv(index=False))
    if album is not None:
        _draw(album, table, ranks)
    return table


def _draw(album: Album, table: pd.DataFrame, ranks: IntArray) -> None:
    figure, (left, right) = new_figure(10, 4, 2, width_ratios=[1, 1.35])
    _draw_ranks(left, ranks)
    _draw_coverage(right, table)
    total = int(ranks.sum())
    album.add(
        "theory",
        figure,
        f"Left: the rank of the last of n = {len(ranks)} exchangeable scores, over {total:,} simulations. Right: the "
        f"coverage of split conformal prediction at 1 − α = 0.9 for calibration sets of n rows ({total:,} each), with "
        "the theorem's bounds and the exact value k/(n+1); the notebook's interpolated offset lies at or above the "
        "score of rank k and covers at least as much.",
    )


def _draw_ranks(panel: Axes, ranks: IntArray) -> None:
    total, n = int(ranks.sum()), len(ranks)
    error = 3 * np.sqrt(1 / n * (1 - 1 / n) / total)
    panel.bar(np.arange(1, n + 1), ranks / total, color=METHOD_COLORS["CQR"], width=0.8)
    panel.axhspan(
        1 / n - error,
        1 / n + error,
        color=METHOD_COLORS["QR"],
        alpha=0.45,
        linewidth=0,
        label="1/n ± 3 standard errors",
    )
    panel.set(xlabel=f"rank of the last of n = {n} scores", ylabel="share of simulations", ylim=(0, 1.6 / n))
    panel.set_xticks([1, *range(5, n + 1, 5)])
    panel.set_title("Lemma: ranks are uniform")
    panel.legend(loc="upper center")


def _draw_coverage(panel: Axes, table: pd.DataFrame) -> None:
    n, simulated = table["n"], table["simulated"]
    error = [simulated - table["from"], table["to"] - simulated]
    panel.fill_between(
        n, table["lower"], table["upper"], color=METHOD_COLORS["Naive"], alpha=0.25, linewidth=0, label="bounds"
    )
    panel.axhline(table["lower"].iloc[0], color=GREEN, linewidth=1.2, label="1 − α")
    panel.plot(n, table["exact"], "_", color=INK, markersize=11, markeredgewidth=1.6, label="k/(n+1), exact")
    panel.errorbar(
        n, simulated, yerr=error, fmt="o", color=METHOD_COLORS["ICQR"], markersize=4, label="simulated, 99.9 %"
    )
    panel.plot(n, table["interpolated"], "^", color=PURPLE, markersize=5, label="interpolated offset")
    panel.set_xscale("log")
    panel.set_xticks([9, 20, 50, 100, 200], ["9", "20", "50", "100", "200"])
    panel.minorticks_off()
    panel.set(xlabel="calibration rows n", ylabel="coverage of a new row")
    panel.set_title("Theorem: 1 − α ≤ coverage ≤ 1 − α + 1/(n+1)")
    panel.legend(loc="upper right")
