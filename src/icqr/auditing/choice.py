"""Which of several methods to use, why, and how sure that is: one sentence."""

from __future__ import annotations

import math
from typing import NamedTuple

from scipy import stats

from icqr._predicting import GROUPWISE
from icqr._tables import FloatArray
from icqr.auditing.audits import Audit
from icqr.auditing.findings import percent, promise
from icqr.auditing.verdicts import ERROR_RATE, HOLDS, LUCK, OVER, UNDER, UNKNOWN, looked_at
from icqr.cross import CROSS

#: The mean of fewer rows is not nearly normal, so that nothing is said of differences.
FEWEST_COMPARED = 30
#: So many more regions than the fewest may be shown to undercover: one or two more may be chance.
MOST_EXTRA = 2
#: What a verdict over all rows says of the method to use.
_OVER_ALL = {
    HOLDS: "it keeps its promise of {} over all rows",
    OVER: "it covers more than the promised {} over all rows",
    LUCK: "its coverage over all rows is within calibration luck of the promised {}",
    UNKNOWN: "it is not shown to break its promise of {} over all rows",
    UNDER: "it covers less than the promised {} over all rows",
}


class Candidate(NamedTuple):
    """What is known of a method: its verdict over all rows, regions that fall short, promise, and each row's score."""

    name: str
    verdict: str
    coverage: float
    n_short: int
    n_regions: int
    n_groups: int  # in which it promises coverage
    promises: bool
    scores: FloatArray

    @property
    def score(self) -> float:
        """The mean interval score."""
        return float(self.scores.mean())


def choose(audits: dict[str, Audit], scores: dict[str, FloatArray]) -> tuple[str, str]:
    """Return the method to use, and a sentence that says which, why, and how sure.

    1. Methods that are shown to undercover over all rows are out, and those that promise nothing (QR), if any other
       is left.
    2. So are methods with at least three more regions shown to undercover than the one with the fewest.
    3. Of the others the one with the lowest interval score is taken. Methods whose paired difference to it is not clear
       (95 % sure for all pairs of methods together) are as good: of these the one that promises coverage in each of
       several groups is taken.
    4. Intervals without an end have no finite score: of these the one whose coverage is nearest to the promise wins.
    5. If all undercover, the one with the highest coverage is named, and the sentence says so.
    """
    coverage = next(iter(audits.values())).coverage
    candidates = [_candidate(name, audit, scores[name]) for name, audit in audits.items()]
    holding = [each for each in candidates if each.verdict != UNDER]
    holding = [each for each in holding if each.promises] or holding
    if not holding:
        return _none_holds(candidates, coverage)

    fewest = min(each.n_short for each in holding)
    near = [each for each in holding if each.n_short <= fewest + MOST_EXTRA]
    ranked = sorted(near, key=lambda each: (each.score, abs(each.coverage - coverage)))
    pairs = max(len(audits) * (len(audits) - 1) // 2, 1)
    as_good = [each for each in ranked if not _clearly_lower(ranked[0], each, pairs)]
    best = next((each for each in as_good if each.n_groups > 1), ranked[0])

    # Why not another: the next in the ranking, or the one that is as good but promises less.
    if len(candidates) == 1:
        compared = "no other method was compared with it"
    elif len(ranked) == 1:
        compared = "every other method undercovers, does so in more regions, or promises nothing"
    else:
        compared = _compared(best, ranked[1] if best is ranked[0] else ranked[0], pairs)
    return best.name, f"Use {best.name}: {_kept(best, coverage)}; {compared}."


def _candidate(name: str, audit: Audit, scores: FloatArray) -> Candidate:
    regions, shared = audit.regions, looked_at(audit.regions)["verdict"]
    whole = regions[regions["kind"] == "all rows"].iloc[0]
    n_groups = int((regions["group"].notna() & regions["guarantee"].isin([GROUPWISE, CROSS])).sum())
    promises = not str(whole["guarantee"]).startswith("none")
    n_short = int((shared == UNDER).sum())
    return Candidate(name, whole["verdict"], float(whole["coverage"]), n_short, len(shared), n_groups, promises, scores)


def _none_holds(candidates: list[Candidate], coverage: float) -> tuple[str, str]:
    """Name the method that comes closest, and say what to do."""
    best = max([each for each in candidates if each.promises] or candidates, key=lambda each: each.coverage)
    closest = f"{best.name} comes closest, with {percent(best.coverage)}" if len(candidates) > 1 else "it does not hold"
    which = "No method covers" if len(candidates) > 1 else f"{best.name} does not cover"
    advice = "calibrate it with rows like those to come before you use it"
    return best.name, f"{which} the promised {promise(coverage)} over all rows: {closest}; {advice}."


def _kept(best: Candidate, coverage: float) -> str:
    """Say how well a method keeps its promise."""
    kept = _OVER_ALL[best.verdict].format(promise(coverage)) + (", though it promises nothing" * (not best.promises))
    if not best.n_regions:
        return kept
    regions = "the one region" if best.n_regions == 1 else f"the {best.n_regions} regions"
    return f"{kept} and is shown to fall short in {best.n_short or 'none'} of {regions} looked at"


# -- Two methods -----------------------------------------------------------------------------------------


def _difference(one: Candidate, other: Candidate, pairs: int) -> tuple[float, float] | None:
    """Return between which values the difference of two mean scores is, all pairs together; None: not known."""
    if len(one.scores) < FEWEST_COMPARED or not (math.isfinite(one.score) and math.isfinite(other.score)):
        return None
    each = one.scores - other.scores
    reach = float(stats.norm.isf(ERROR_RATE / pairs / 2)) * float(each.std(ddof=1)) / math.sqrt(len(each))
    return float(each.mean()) - reach, float(each.mean()) + reach


def _clearly_lower(one: Candidate, other: Candidate, pairs: int) -> bool:
    """Return whether one method's score is surely lower than another's; a finite one is lower than an infinite one."""
    difference = _difference(one, other, pairs)
    if difference is None:
        return math.isfinite(one.score) and math.isinf(other.score)
    return difference[1] < 0


def _compared(best: Candidate, other: Candidate, pairs: int) -> str:
    """Say how the score of a method differs from that of the next, and what decides if it is not clear."""
    difference = _difference(best, other, pairs)
    promises = best.n_groups > 1 >= other.n_groups
    reason = f"it promises coverage in each of its {best.n_groups} groups" if promises else ""
    if difference is None:
        if len(best.scores) < FEWEST_COMPARED:
            unknown = (
                f"{len(best.scores)} rows are too few to tell it from {other.name}: give {FEWEST_COMPARED} or more"
            )
        elif math.isfinite(best.score):
            return f"{other.name}, the next, has infinite intervals"
        else:
            unknown = f"intervals without an end have no width by which to compare it with {other.name}"
        return f"{unknown}, but {reason}" if promises else unknown

    low, high = difference
    if high < 0:
        return (
            "its interval score, which counts width and misses, is very likely between "
            f"{_size(high, other)} and {_size(low, other)} lower than that of {other.name}, the next"
        )
    likely = f"very likely between {_size(low, other)} lower and {_size(high, other)} higher"
    unclear = f"not clearly different from that of {other.name} ({likely})"
    if promises:
        return f"its interval score is {unclear}, but {reason}"
    return f"its interval score is the lowest, though {unclear}"


def _size(difference: float, other: Candidate) -> str:
    """Return a difference as a share of the other method's score, or in units if that is 0."""
    return percent(abs(difference) / other.score) if other.score else f"{abs(difference):.3g}"
