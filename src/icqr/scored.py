"""Conformity scores of calibration rows by group."""

from __future__ import annotations

from dataclasses import dataclass

from icqr._tables import FloatArray
from icqr.calibration import Calibration, Conformity
from icqr.novelty import Novelty


@dataclass(frozen=True)
class Scored:
    """Rows that a fitted model has scored.

    Attributes
    ----------
    scores : tuple of arrays
        For each group (n_g, sides) scores, each column sorted; last those of rows of no known group.
    n_crossed : int
        How many rows had their quantiles sorted.
    novelty : Novelty or None
        The rows' distances, to compare new rows with.
    """

    scores: tuple[FloatArray, ...]
    n_crossed: int
    novelty: Novelty | None

    def calibration(self, conformity: Conformity, small_groups: str, guarantee: str) -> Calibration:
        """Give the calibration by these scores."""
        return Calibration(conformity, self.scores, small_groups, guarantee)
