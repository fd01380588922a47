"""Sorted calibration scores, and distances for `novelty`, as records of a file and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icqr._predicting import APPROXIMATE, GROUPWISE, MARGINAL, NOT_CALIBRATED, IntervalRegressor
from icqr._tables import FloatArray, IntArray
from icqr.artifact.container import ArtifactError
from icqr.artifact.records import Parts, Record
from icqr.artifact.values import encode
from icqr.calibration import CONFORMITIES, SIDES, SMALL_GROUPS, Calibration, Conformity, SelectedCalibration
from icqr.novelty import Novelty

GUARANTEES = (GROUPWISE, MARGINAL, APPROXIMATE, NOT_CALIBRATED)


def store_calibration(model: IntervalRegressor, parts: Parts) -> dict[str, Any]:
    """Give a model's calibration."""
    calibration = model.calibration_
    selected = None
    if isinstance(calibration, SelectedCalibration):
        selected = {
            "counts": calibration.counts.tolist(),
            "ranks": parts.array("calibration/ranks", np.concatenate(calibration.kept), "int64"),
            "pooled_scores": parts.array("calibration/pooled_scores", calibration.pooled_scores, "float64"),
            "pooled_ranks": parts.array("calibration/pooled_ranks", calibration.pooled_ranks, "int64"),
            "coverages": list(calibration.coverages),
        }
    return {
        "conformity": _store_conformity(calibration.conformity),
        "small_groups": calibration.small_groups,
        "guarantee": calibration.guarantee,
        **_store_groups("scores", calibration.scores, parts),
        "selected": selected,
        "novelty": None if model.novelty_ is None else _store_groups("distances", model.novelty_.distances, parts),
    }


def _store_conformity(conformity: Conformity) -> dict[str, Any]:
    numbers = {name: encode(float(getattr(conformity, name)), name) for name in ("floor", "y_min", "y_max")}
    return {"kind": conformity.kind, "symmetric": conformity.symmetric, "side": conformity.side, **numbers}


def _store_groups(name: str, groups: Sequence[FloatArray], parts: Parts) -> dict[str, Any]:
    return {
        "sizes": [len(group) for group in groups],
        name: parts.array(f"calibration/{name}", np.concatenate(groups), "float64"),
    }


def restore_calibration(record: Record, model: IntervalRegressor) -> None:
    """Give a model its calibration back."""
    conformity = model.conformity_ = _restore_conformity(record.record("conformity"))
    n_sides = 1 if conformity.symmetric else 2
    scores = _restore_groups(record, "scores", model.n_groups_ + 1, (n_sides,))
    answers = record.text("small_groups", SMALL_GROUPS), record.text("guarantee", GUARANTEES)
    selected = record.optional("selected")
    if selected is None:
        model.calibration_ = Calibration(conformity, scores, *answers)
    else:
        model.calibration_ = SelectedCalibration(conformity, scores, *answers, **_restore_ranks(selected, scores))
    novelty = record.optional("novelty")
    record.check_all_read()
    model.novelty_ = None
    if novelty is not None:
        model.novelty_ = Novelty(_restore_groups(novelty, "distances", model.n_groups_, ()))
        novelty.check_all_read()
        if not hasattr(model.partition_, "distance"):
            raise ArtifactError(f"{novelty.place} needs a partition that has distances")


def _restore_conformity(record: Record) -> Conformity:
    found = Conformity(
        kind=record.text("kind", CONFORMITIES),
        symmetric=record.flag("symmetric"),
        side=record.text("side", SIDES),
        floor=record.finite("floor"),
        y_min=record.number("y_min"),
        y_max=record.number("y_max"),
    )
    record.check_all_read()
    if not found.floor > 0 or not found.y_min < found.y_max or not (found.symmetric or found.side == "both"):
        raise ArtifactError(f"{record.place}: floor must be larger than 0, y_min below y_max, one side symmetric")
    return found


def _restore_groups(record: Record, name: str, n_groups: int, tail: tuple[int, ...]) -> tuple[FloatArray, ...]:
    sizes = _counts(record, "sizes", n_groups)
    values = record.array(name, "float64", (int(sizes.sum()), *tail), finite=False)
    groups = tuple(np.split(values, np.cumsum(sizes)[:-1]))
    if not all(_grows(group) for group in groups):
        raise ArtifactError(f"{record.place}.{name} must be sorted in each group")
    return groups


def _grows(values: NDArray[Any]) -> bool:
    return bool((values[1:] >= values[:-1]).all())


def _counts(record: Record, name: str, length: int) -> IntArray:
    given = record.items(name)
    if len(given) != length or not all(type(n) is int and 0 <= n < 2**40 for n in given):
        raise ArtifactError(f"{record.place}.{name} must be {length} whole numbers, got {str(given)[:80]}")
    return np.array(given, dtype=np.intp)


def _restore_ranks(record: Record, scores: tuple[FloatArray, ...]) -> dict[str, Any]:
    counts = _counts(record, "counts", len(scores))
    ends = np.cumsum([len(group) for group in scores])
    ranks = record.array("ranks", "int64", (int(ends[-1]),))
    pooled_scores = record.array("pooled_scores", "float64", (None, scores[0].shape[1]), finite=False)
    pooled_ranks = record.array("pooled_ranks", "int64", (len(pooled_scores),))
    coverages = record.items("coverages")
    record.check_all_read()
    kept = tuple(np.split(ranks, ends[:-1]))
    for own, n in zip((*kept, pooled_ranks), (*counts, counts.sum()), strict=True):
        if not (np.diff(own, prepend=0) > 0).all() or own.max(initial=0) != n:
            raise ArtifactError(f"{record.place}.ranks must grow up to the number of rows, in each group")
    if not _grows(pooled_scores):
        raise ArtifactError(f"{record.place}.pooled_scores must be sorted")
    if not all(isinstance(coverage, str) for coverage in coverages):
        raise ArtifactError(f"{record.place}.coverages must be texts")
    pooled = {"pooled_scores": pooled_scores, "pooled_ranks": pooled_ranks}
    return {"kept": kept, "counts": counts, **pooled, "coverages": tuple(coverages)}
