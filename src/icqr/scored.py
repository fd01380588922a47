"""Conformity scores of calibration rows by group: all of them, or those that some coverages need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from icqr._order_statistics import select
from icqr._tables import FloatArray, IntArray
from icqr.calibration import Calibration, Conformity, SelectedCalibration, needed_ranks
from icqr.novelty import Novelty

#: Of more rows than are kept, so many are compared with new rows (see `Novelty`).
MOST_COMPARED = 200_000

T = TypeVar("T")


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

    @classmethod
    def merged(cls, parts: Sequence[Scored]) -> Scored:
        """Give what all rows together give."""
        return cls(
            tuple(np.sort(np.concatenate(group), axis=0) for group in zip(*(one.scores for one in parts), strict=True)),
            sum(one.n_crossed for one in parts),
            _merged_novelty([one.novelty for one in parts]),
        )

    def calibration(self, conformity: Conformity, small_groups: str, guarantee: str) -> Calibration:
        """Give the calibration by these scores."""
        return Calibration(conformity, self.scores, small_groups, guarantee)


def _merged_novelty(parts: Sequence[Novelty | None]) -> Novelty | None:
    known = [part for part in parts if part is not None]
    return Novelty.merged(known) if known else None


# -- More scores than are kept ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Summary:
    """What is added up over the blocks before their order statistics are looked for."""

    sizes: IntArray
    n_crossed: int
    novelty: Novelty | None

    @classmethod
    def of(cls, block: Scored) -> Summary:
        """Sum up one block."""
        return cls(np.array([len(group) for group in block.scores]), block.n_crossed, block.novelty)

    @classmethod
    def merged(cls, parts: Sequence[Summary]) -> Summary:
        """Add up several blocks."""
        novelty = _merged_novelty([one.novelty for one in parts])
        return cls(np.sum([one.sizes for one in parts], axis=0), sum(one.n_crossed for one in parts), novelty)


class ScoredBlocks(ABC):
    """Blocks of scored rows, wherever they are."""

    @abstractmethod
    def reduce(self, function: Callable[[Scored], T], merge: Callable[[Sequence[T]], T]) -> T:
        """Apply a function to every block and merge the results, a few at a time."""

    def summed_up(
        self, total: int, symmetric: bool, coverages: Sequence[float | Fraction], most_scores: int
    ) -> Scored | Selected:
        """Give what the calibration needs: all scores if they are few enough, else those of the coverages' ranks."""
        n_sides = 1 if symmetric else 2
        if total * n_sides <= most_scores:
            return self.reduce(_itself, Scored.merged)
        summary = self.reduce(Summary.of, Summary.merged)
        ranks = [needed_ranks(int(n), coverages, symmetric) for n in (*summary.sizes, summary.sizes.sum())]
        groups = np.repeat(np.arange(len(ranks)), [len(some) for some in ranks])
        found = select(self.reduce, groups, np.concatenate(ranks), n_sides, block_of=attrgetter("scores"))
        scores = np.split(found, np.cumsum([len(some) for some in ranks])[:-1])
        return Selected(
            tuple(scores), tuple(ranks), summary.sizes, tuple(map(str, coverages)), summary.n_crossed, summary.novelty
        )


def _itself(block: Scored) -> Scored:
    return block


@dataclass(frozen=True)
class Selected:
    """Some order statistics of more scores than are kept.

    Attributes
    ----------
    scores : tuple of arrays
        For each group, for the rows of no known group, and for all rows together: the selected scores, ascending.
    ranks : tuple of arrays
        Their ranks.
    sizes : array
        Rows in each group, and of no known group.
    coverages : tuple of str
        The coverages for which they are enough.
    n_crossed, novelty
        As in `Scored`; novelty compares with a sample of the rows.
    """

    scores: tuple[FloatArray, ...]
    ranks: tuple[IntArray, ...]
    sizes: IntArray
    coverages: tuple[str, ...]
    n_crossed: int
    novelty: Novelty | None

    def calibration(self, conformity: Conformity, small_groups: str, guarantee: str) -> SelectedCalibration:
        """Give the calibration by these scores."""
        return SelectedCalibration(
            conformity,
            self.scores[:-1],
            small_groups,
            guarantee,
            kept=self.ranks[:-1],
            counts=self.sizes,
            pooled_scores=self.scores[-1],
            pooled_ranks=self.ranks[-1],
            coverages=self.coverages,
        )


# -- One block -------------------------------------------------------------------------------------------------------


def score_block(model: Any, X: Any, y: Any, number: int, compared_share: float) -> Scored:
    """Score a block of rows by the model's own functions for a whole table.

    Parameters
    ----------
    model : fitted estimator
        One of the four methods.
    X, y : table and array
        The rows.
    number : int
        The block's number, the seed of its part of the sample that new rows are compared with.
    compared_share : float
        The share of rows in that sample.
    """
    if len(X) == 0:
        return _no_rows(model)
    rows = model._check_rows(X, y)
    if compared_share >= 1:
        return model._scored(rows)  # type: ignore[no-any-return]
    size = round(compared_share * len(rows))
    return model._scored(rows, np.random.default_rng(number).choice(len(rows), size, replace=False))  # type: ignore[no-any-return]


def _no_rows(model: Any) -> Scored:
    n_groups = model.n_groups_
    empty = np.empty((0, 1 if model.conformity_.symmetric else 2))
    novelty = Novelty((np.empty(0),) * n_groups) if hasattr(model.partition_, "distance") else None
    return Scored((empty,) * (n_groups + 1), 0, novelty)
