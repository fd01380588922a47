"""Places for texts: on what they name or next to it, and not on each other."""

from __future__ import annotations

import numpy as np

from icqr.metrics.checks import Floats

# Steps in sizes of a box: none, then to its eight neighbours, then twice as far; the nearest come first.
_GRID = np.array([(x, y) for x in (-2, -1, 0, 1, 2) for y in (-2, -1, 0, 1, 2)], dtype=float)
_STEPS = _GRID[np.argsort(np.square(_GRID).sum(axis=1), kind="stable")]


def place_boxes(middles: Floats, sizes: Floats, room: Floats) -> Floats:
    """Give each box the free place that is nearest to where it should be; the first boxes choose first.

    Parameters
    ----------
    middles, sizes : (n, 2) array
        Where the middles of boxes should be, and how wide and high boxes are.
    room : (2,) array
        Width and height of the picture; its lower left corner is (0, 0).

    Returns
    -------
    (n, 2) array
        The middles; NaN for a box that finds no place within two sizes.

    Examples
    --------
    >>> place_boxes(np.array([[5.0, 5.0], [5.0, 5.0]]), np.full((2, 2), 2.0), np.array([10.0, 10.0])).tolist()
    [[5.0, 5.0], [3.0, 5.0]]
    """
    placed = np.full(middles.shape, np.nan)
    for box, (middle, size) in enumerate(zip(middles, sizes, strict=True)):
        tried = middle + _STEPS * size
        inside = ((tried >= size / 2) & (tried <= room - size / 2)).all(axis=1)
        # A box without a place is NaN, which overlaps nothing.
        overlap = np.abs(tried[:, None] - placed) < (size + sizes) / 2 - 1e-9
        free = inside & ~overlap.all(axis=2).any(axis=1)
        if free.any():
            placed[box] = tried[free.argmax()]
    return placed
