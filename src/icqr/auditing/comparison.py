"""Several methods side by side on the same rows, with paired differences and their uncertainty."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from icqr._messages import progress
from icqr._tables import FloatArray, IntArray
from icqr.auditing.audited import Audited, Groups, Intervals, check_not_swapped, prepare
from icqr.auditing.audits import Audit, Found, audit_rows, find, n_families
from icqr.auditing.choice import FEWEST_COMPARED, choose
from icqr.auditing.findings import Written, percent, plain, records
from icqr.auditing.regions import LARGEST_OVERLAP
from icqr.auditing.verdicts import CONFIDENCE, ERROR_RATE, OVER, UNDER, looked_at
from icqr.metrics.marginal import check_whole_number, row_scores

#: Numbers of an audit that the table shows.
SHOWN = ["coverage", "coverage_lower", "coverage_upper", "mean_width", "n_infinite", "interval_score"]
SHOWN += ["excess_risk_l1", "excess_risk_l1_error", "excess_risk_l1_under", "excess_risk_l1_over"]
SHOWN += ["size_stratified_coverage", "worst_slab_coverage", "coverage_gap"]
#: The means over rows that sentences are about.
MEASURES = {"mean_width": "mean width", "interval_score": "interval score"}
RISK = "excess_risk_l1"
#: All methods are judged in the same regions, at most so many that were found.
MOST_SHARED = 25
LESS, MORE, UNCLEAR = "less", "more", "no clear difference"


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Written):
    """What :func:`compare` found.

    Attributes
    ----------
    coverage : float
        What was promised.
    reference : str
        The method that the others are compared with.
    best : str
        The method to use.
    answer : str
        One sentence: which method to use, why, and how sure that is.
    table : DataFrame
        A row per method: the main numbers of its audit, the verdict over all rows, and how many of the `regions` that
        all methods are judged in under- and overcover.
    differences : DataFrame
        A row per other method and measure: `difference` to the reference, `standard_error`, the 95 % interval `lower`,
        `upper`, adjusted `p_value`, and `verdict` ("less", "more", "no clear difference").
    audits : dict
        Each method's :class:`~icqr.auditing.Audit`.
    findings : tuple of str
        Sentences.
    """

    coverage: float
    reference: str
    best: str
    answer: str
    table: pd.DataFrame
    differences: pd.DataFrame
    audits: dict[str, Audit]
    findings: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        """Return the table of methods."""
        return self.table.copy()

    def to_dict(self) -> dict[str, Any]:
        """Return everything, the audits too, as plain Python values; NaN becomes None."""
        return {
            "promised": self.coverage,
            "reference": self.reference,
            "best": self.best,
            "answer": self.answer,
            "findings": list(self.findings),
            "methods": plain(self.table.reset_index()),
            "differences": plain(self.differences),
            "audits": {name: audit.to_dict() for name, audit in self.audits.items()},
        }

    def _contents(self) -> tuple[str, str, tuple[str, ...], dict[str, pd.DataFrame], str]:
        tables = {"Methods": self.table.reset_index(), "Differences": self.differences}
        return f"Methods compared with {self.reference}", self.answer, self.findings, tables, ""

    def __str__(self) -> str:
        return "\n".join([*self.findings, self.answer])


def compare(
    y: ArrayLike,
    methods: Mapping[str, Intervals] | Sequence[Intervals],
    X: ArrayLike | None = None,
    *,
    coverage: float | None = None,
    groups: Groups | None = None,
    reference: str | None = None,
    random_state: int = 0,
    with_excess_risk: bool = True,
    verbose: bool = False,
) -> Comparison:
    """Audit several methods on the same rows, say how they differ, and which one to use.

    All methods are judged in the same regions: those found on one half of the rows for any of them, at most 25, and
    your groups. So the numbers of regions that fall short can be compared. A model's own groups are judged for that
    model alone, and not counted there. The chance of any false alarm is at most 5 % for each method.

    `best` is the method to use. Methods shown to undercover over all rows are out; so are those that promise nothing,
    like QR, and those with at least three more regions shown to undercover than the one with the fewest. Of the others
    the lowest interval score wins. Where the paired difference to it is not clear, a method that promises coverage in
    each of several groups is preferred. `answer` says all this in a sentence.

    Coverage, mean width and interval score are means over rows, so differences to the reference are *paired*: their
    standard error is that of the mean of row-wise differences. The excess risk's is that of two values taken as
    independent. Verdicts are Holm-adjusted over all differences, with a chance of at most 5 % that any is wrong; they
    rely on means being nearly normal: with fewer than 30 rows there are none. Where intervals are infinite, widths have
    no difference (NaN).

    Parameters
    ----------
    y : (n,) array
        What happened, for rows that no method has seen.
    methods : dict or list
        Models or intervals, as :func:`icqr.audit` takes them; a dict gives them names.
    X : table, optional
        Features; must be given if a method is a model.
    coverage : float, optional
        What is promised, the same for all; must be given unless all are icqr models of the same coverage.
    groups : optional
        Groups to judge, as in :func:`icqr.audit`.
    reference : str, optional
        Name of the method that the others are compared with; by default the first.
    random_state : int
        Seed of the split in halves, the same for all.
    with_excess_risk : bool
        Whether to compute the excess risk, which takes most of the time.
    verbose : bool
        True shows the steps as they are done (needs tqdm).

    Returns
    -------
    Comparison

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.random(2000), rng.normal(size=2000)
    >>> methods = {"wide": np.full((2000, 2), [-2.5, 2.5]), "right": np.full((2000, 2), [-1.645, 1.645])}
    >>> result = compare(y, methods, x[:, None], coverage=0.9)
    >>> result.best
    'right'
    >>> print(result.answer)
    Use right: it keeps its promise of 90 % over all rows and is shown to fall short in none of the 1... regions looked
    at; its interval score, which counts width and misses, is very likely between 1... % and 2... % lower than that of
    wide, the next.
    """
    check_not_swapped(y)
    named = named_methods(methods)
    base = next(iter(named)) if reference is None else reference
    if base not in named:
        raise ValueError(f"reference must be one of {', '.join(named)}, got {base!r}")
    seed = check_whole_number("random_state", random_state, 0)
    rows = {name: prepare(y, method, X, groups, coverage) for name, method in named.items()}
    with progress(verbose, "compare", n_steps=2 * len(rows)):  # the two of each method's audit
        return compare_rows(rows, base, seed, with_excess_risk)


def compare_rows(rows: dict[str, Audited], base: str, seed: int, with_excess_risk: bool) -> Comparison:
    """Compare methods whose rows are in one form already, see :func:`compare`."""
    coverages = {name: audited.coverage for name, audited in rows.items()}
    if len(set(coverages.values())) > 1:
        each = ", ".join(f"{name}: {coverage:g}" for name, coverage in coverages.items())
        raise ValueError(
            f"methods must promise the same coverage, got {each}; compare them at one: compare(…, coverage=…)"
        )
    several = len(rows) > 1
    found = {name: find(audited, seed, name if several else "") for name, audited in rows.items()}
    if several:
        shared = _shared_regions(list(found.values()), len(rows[base].rows.y))
        found = {name: each._replace(regions=shared) for name, each in found.items()}
    shares = n_families(list(rows.values()))
    audits = {name: audit_rows(each, found[name], shares, seed, with_excess_risk) for name, each in rows.items()}

    # A row per method, and what is to be said of it: its summary, and its worst region if one undercovers.
    table, findings = [], []
    for name, audit in audits.items():
        whole = audit.regions.set_index("kind").loc["all rows", "verdict"]
        counted = looked_at(audit.regions)["verdict"]
        counts = {"regions": len(counted)} | {verdict: int((counted == verdict).sum()) for verdict in (UNDER, OVER)}
        table.append({**{number: audit.numbers[number] for number in SHOWN}, "verdict": whole, **counts})
        undercovered = audit.alarms[(audit.alarms["verdict"] == UNDER) & (audit.alarms["kind"] != "all rows")]
        worst = f" Worst: {audit.findings[0]}" if len(undercovered) else ""
        findings.append(f"{name}: {audit.summary}{worst}")
    methods = pd.DataFrame(table, index=pd.Index(audits, name="method"))

    differences = judged_differences(_differences(rows, audits, base))
    findings += _difference_sentences(differences, base, audits[base].numbers)
    best, answer = choose(audits, {name: row_scores(each.rows, each.coverage) for name, each in rows.items()})
    return Comparison(coverages[base], base, best, answer, methods, differences, audits, tuple(findings))


def _shared_regions(found: list[Found], n: int) -> list[tuple[dict[str, Any], IntArray]]:
    """Return the regions found for any method, in turn, without those that say the same as one before."""
    kept: list[tuple[dict[str, Any], IntArray]] = []
    masks: list[NDArray[np.bool_]] = []
    for region in chain.from_iterable(zip_longest(*(each.regions for each in found))):
        if region is None or not len(region[1]):
            continue
        mask = np.zeros(n, dtype=bool)
        mask[region[1]] = True
        # Names are unique; and of two regions that share most of their rows (Jaccard's index) one is enough.
        alike = ((mask & other).sum() > LARGEST_OVERLAP * (mask | other).sum() for other in masks)
        if any(region[0]["region"] == other["region"] for other, _ in kept) or any(alike):
            continue
        kept.append(region)
        masks.append(mask)
        if len(kept) == MOST_SHARED:
            break
    return kept


def named_methods(methods: Any) -> dict[str, Any]:
    """Return methods by name: those of a dict; of a list the classes of models, or numbers."""
    if isinstance(methods, Mapping):
        named = {str(name): method for name, method in methods.items()}
    elif isinstance(methods, list):
        named = {}
        for place, method in enumerate(methods, start=1):
            name = type(method).__name__ if hasattr(method, "predict_interval") else f"method {place}"
            named[name if name not in named else f"{name} ({place})"] = method
    else:
        raise TypeError(
            f"methods must be a dict or a list of models or intervals, got {type(methods).__name__}; "
            "the order is compare(y, methods, X)"
        )
    if not named:
        raise ValueError("methods must hold at least one model or array of intervals, got none")
    return named


# -- Differences -----------------------------------------------------------------------------------------


def _differences(rows: dict[str, Audited], audits: dict[str, Audit], base: str) -> pd.DataFrame:
    """Return the differences of the other methods to the reference, a row per method and measure."""
    parts = {}  # of each row in the means
    for name, audited in rows.items():
        covered, scores = audited.rows.covered.astype(float), row_scores(audited.rows, audited.coverage)
        parts[name] = {"coverage": covered, "mean_width": audited.rows.width, "interval_score": scores}

    differences = []
    for name in [name for name in rows if name != base]:
        for measure, values in parts[name].items():
            with np.errstate(invalid="ignore"):  # infinite on both sides: there is no difference
                each = values - parts[base][measure]
            mean = float(each.mean()) if np.isfinite(each).all() else math.nan
            enough = len(each) >= FEWEST_COMPARED and not math.isnan(mean)
            error = float(each.std(ddof=1) / math.sqrt(len(each))) if enough else math.nan
            differences.append((name, measure, mean, error))
        # The excess risk is no mean over rows: its two values are taken as independent.
        own, reference = audits[name].numbers, audits[base].numbers
        error = math.hypot(own[f"{RISK}_error"], reference[f"{RISK}_error"])
        differences.append((name, RISK, own[RISK] - reference[RISK], error))
    return pd.DataFrame(differences, columns=["method", "measure", "difference", "standard_error"])


def holm(p_values: ArrayLike) -> FloatArray:
    """Return Holm's adjusted p-values: rejecting those ≤ α keeps the chance of any false rejection ≤ α.

    No independence is needed.

    References
    ----------
    Holm (1979), *Scandinavian Journal of Statistics* 6, 65–70.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return np.asarray(np.minimum(adjusted, 1.0))


def judged_differences(differences: pd.DataFrame) -> pd.DataFrame:
    """Add 95 % intervals, Holm-adjusted p-values and verdicts; what has no difference has no verdict."""
    difference, error = differences["difference"].astype(float), differences["standard_error"].astype(float)
    reach = float(stats.norm.ppf((1 + CONFIDENCE) / 2)) * error
    z = np.where(error > 0, difference.abs() / error.where(error > 0), np.where(difference == 0, 0.0, np.inf))
    known = difference.notna() & error.notna()
    p_value = pd.Series(math.nan, index=differences.index)
    p_value[known] = holm(2 * stats.norm.sf(z[known]))
    sign = np.where(difference < 0, LESS, MORE)
    verdict = np.where(p_value <= ERROR_RATE, sign, np.where(known, UNCLEAR, "not known"))
    return differences.assign(lower=difference - reach, upper=difference + reach, p_value=p_value, verdict=verdict)


def _difference_sentences(differences: pd.DataFrame, base: str, numbers: dict[str, float]) -> list[str]:
    """Return how each other method's width and score differ from the reference's, and how surely."""

    def more(difference: float, reference: float) -> str:
        size = percent(abs(difference) / reference) if reference else f"{abs(difference):.3g}"
        return f"{size} {LESS if difference < 0 else MORE}"

    measured = differences["measure"].isin(MEASURES) & differences["standard_error"].notna()
    sentences = []
    for method, rows in differences[measured].groupby("method", sort=False):
        clauses = []
        for row in records(rows):
            what, reference = MEASURES[row["measure"]], numbers[row["measure"]]
            likely = f"very likely between {more(row['lower'], reference)} and {more(row['upper'], reference)}"
            if row["verdict"] != UNCLEAR:
                clauses.append(f"{what} {more(row['difference'], reference)} ({likely})")
            elif row["lower"] > 0 or row["upper"] < 0:  # clear on its own, but there are several comparisons
                clauses.append(f"{what} not clearly different among so many comparisons (alone, {likely})")
            else:
                clauses.append(f"{what} not clearly different ({likely})")
        sentences.append(f"{method} compared with {base}: {'; '.join(clauses)}.")
    return sentences
