"""Several methods side by side on the same rows, with paired differences and their uncertainty."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from icqr._tables import FloatArray
from icqr.auditing.audits import Audit, audit_rows
from icqr.auditing.findings import as_json, html_page, markdown_list, markdown_table, percent, plain, records
from icqr.auditing.inputs import Audited, prepare
from icqr.auditing.verdicts import CONFIDENCE, ERROR_RATE, OVER, UNDER, holm
from icqr.metrics.marginal import row_scores

#: Numbers of an audit that the table shows.
SHOWN = ["coverage", "coverage_lower", "coverage_upper", "mean_width", "n_infinite", "interval_score"]
SHOWN += ["excess_risk_l1", "excess_risk_l1_error", "excess_risk_l1_under", "excess_risk_l1_over"]
SHOWN += ["size_stratified_coverage", "worst_slab_coverage", "coverage_gap"]
MEASURES = {"coverage": "coverage", "mean_width": "mean width", "interval_score": "interval score"}
RISK = "excess_risk_l1"
#: The mean of fewer rows is not nearly normal, and has no standard error here.
FEWEST_COMPARED = 30
LESS, MORE, UNCLEAR = "less", "more", "no clear difference"


@dataclass(frozen=True, eq=False)
class Comparison:
    """What :func:`compare` found.

    Attributes
    ----------
    coverage : float
        What was promised.
    reference : str
        The method that the others are compared with.
    table : DataFrame
        A row per method: the main numbers of its audit, and how many regions under- and overcover.
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
    table: pd.DataFrame
    differences: pd.DataFrame
    audits: dict[str, Audit]
    findings: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        """Give the table of methods."""
        return self.table.copy()

    def to_dict(self) -> dict[str, Any]:
        """Give everything, the audits too, as plain Python values; NaN becomes None."""
        return {
            "promised": self.coverage,
            "reference": self.reference,
            "findings": list(self.findings),
            "methods": plain(self.table.reset_index()),
            "differences": plain(self.differences),
            "audits": {name: one.to_dict() for name, one in self.audits.items()},
        }

    def to_json(self) -> str:
        """Give :meth:`to_dict` as JSON; infinity is the text "Infinity"."""
        return as_json(self.to_dict())

    def to_markdown(self) -> str:
        """Give findings and both tables as Markdown, with everything from data escaped."""
        tables = [markdown_table(self.table.reset_index()), markdown_table(self.differences)]
        return "\n\n".join([markdown_list(self.findings), *(tables if len(self.differences) else tables[:1])])

    def _repr_html_(self) -> str:
        title = f"Methods compared with {self.reference}"
        return html_page(title, self.findings[0], self.findings[1:], self.table.reset_index(), self.differences)

    def __str__(self) -> str:
        return "\n".join(self.findings)


def compare(
    methods: Any,
    X: Any,
    y: Any,
    *,
    coverage: float | None = None,
    groups: Any = None,
    reference: str | None = None,
    random_state: int = 0,
    with_excess_risk: bool = True,
) -> Comparison:
    """Audit several methods on the same rows and say how they differ.

    Coverage, mean width and interval score are means over rows, so differences to the reference are *paired*: their
    standard error is that of the mean of row-wise differences. The excess risk's is that of two values taken as
    independent. Verdicts are Holm-adjusted over all differences, with a chance of at most 5 % that any is wrong; they
    rely on means being nearly normal: with fewer than 30 rows there are none. Where intervals are infinite, widths have
    no difference (NaN).

    Parameters
    ----------
    methods : dict or list
        Models or intervals, as :func:`~icqr.auditing.audit` takes them; a dict gives them names.
    X : table
        Features; may be None if no method is a model.
    y : (n,) array
        What happened, for rows that no method has seen.
    coverage : float, optional
        What is promised, the same for all; must be given unless all are icqr models of the same coverage.
    groups : optional
        Groups to judge, as in :func:`~icqr.auditing.audit`.
    reference : str, optional
        Name of the method that the others are compared with; by default the first.
    random_state : int
        Seed of the split in halves, the same for all.
    with_excess_risk : bool
        Whether to compute the excess risk, which takes most of the time.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.random(2000), rng.normal(size=2000)
    >>> methods = {"wide": np.full((2000, 2), [-2.5, 2.5]), "right": np.full((2000, 2), [-1.645, 1.645])}
    >>> found = compare(methods, x[:, None], y, coverage=0.9)
    >>> found.differences.set_index("measure").loc["interval_score", "verdict"]
    'less'
    """
    named = named_methods(methods)
    base = next(iter(named)) if reference is None else reference
    if base not in named:
        raise ValueError(f"reference must be one of {', '.join(named)}, got {base!r}")
    rows = {name: prepare(y, method, X, groups, coverage) for name, method in named.items()}
    return compare_rows(rows, base, random_state, with_excess_risk)


def compare_rows(rows: dict[str, Audited], base: str, random_state: int, with_excess_risk: bool) -> Comparison:
    """Compare methods whose rows are in one form already, see :func:`compare`."""
    level = _one_coverage({name: one.coverage for name, one in rows.items()})
    audits = {name: audit_rows(one, random_state, with_excess_risk) for name, one in rows.items()}
    differences = _differences(rows, audits, base)
    table = _table(audits)
    return Comparison(level, base, table, differences, audits, tuple(_findings(audits, differences, base)))


def named_methods(methods: Any) -> dict[str, Any]:
    """Give methods by name: those of a dict; of a list the classes of models, or numbers."""
    if isinstance(methods, Mapping):
        named = {str(name): method for name, method in methods.items()}
    elif isinstance(methods, list):
        named = {}
        for place, method in enumerate(methods, start=1):
            name = type(method).__name__ if hasattr(method, "predict_interval") else f"method {place}"
            named[name if name not in named else f"{name} ({place})"] = method
    else:
        raise TypeError(f"methods must be a dict or a list of models or intervals, got {type(methods).__name__}")
    if not named:
        raise ValueError("methods must hold at least one model or array of intervals, got none")
    return named


def _one_coverage(coverages: dict[str, float]) -> float:
    if len(set(coverages.values())) > 1:
        each = ", ".join(f"{name}: {level:g}" for name, level in coverages.items())
        raise ValueError(
            f"methods must promise the same coverage, got {each}; compare them at one: compare(…, coverage=…)"
        )
    return next(iter(coverages.values()))


def _table(audits: dict[str, Audit]) -> pd.DataFrame:
    rows = []
    for one in audits.values():
        verdicts = one.regions["verdict"].value_counts()
        counts = {verdict: int(verdicts.get(verdict, 0)) for verdict in (UNDER, OVER)}
        rows.append({**{name: one.numbers[name] for name in SHOWN}, **counts})
    return pd.DataFrame(rows, index=pd.Index(audits, name="method"))


# -- Differences -----------------------------------------------------------------------------------------


def _per_row(audited: Audited) -> dict[str, FloatArray]:
    """Give each row's part in the means: covered, width, interval score."""
    rows = audited.rows
    score = row_scores(rows, audited.coverage)
    return {"coverage": rows.covered.astype(float), "mean_width": rows.width, "interval_score": score}


def _differences(rows: dict[str, Audited], audits: dict[str, Audit], base: str) -> pd.DataFrame:
    reference = _per_row(rows[base])
    found: list[dict[str, Any]] = []
    for name in rows:
        if name == base:
            continue
        own = _per_row(rows[name])
        pairs = {measure: _paired(own[measure], reference[measure]) for measure in MEASURES}
        pairs[RISK] = _unpaired(audits[name].numbers, audits[base].numbers)
        found += [{"method": name, "measure": measure, **pair} for measure, pair in pairs.items()]
    columns = ["method", "measure", "difference", "standard_error"]
    return _judged(pd.DataFrame(found, columns=columns))


def _paired(own: FloatArray, reference: FloatArray) -> dict[str, float]:
    with np.errstate(invalid="ignore"):  # infinite on both sides: no difference can be given
        each = own - reference
    if not np.isfinite(each).all():
        return {"difference": math.nan, "standard_error": math.nan}
    error = float(each.std(ddof=1) / math.sqrt(len(each))) if len(each) >= FEWEST_COMPARED else math.nan
    return {"difference": float(each.mean()), "standard_error": error}


def _unpaired(own: dict[str, float], reference: dict[str, float]) -> dict[str, float]:
    error = math.hypot(own[f"{RISK}_error"], reference[f"{RISK}_error"])
    return {"difference": own[RISK] - reference[RISK], "standard_error": error}


def _judged(found: pd.DataFrame) -> pd.DataFrame:
    """Add 95 % intervals, Holm-adjusted p-values and verdicts; what has no difference has no verdict."""
    difference, error = found["difference"].astype(float), found["standard_error"].astype(float)
    reach = float(stats.norm.ppf((1 + CONFIDENCE) / 2)) * error
    z = np.where(error > 0, difference.abs() / error.where(error > 0), np.where(difference == 0, 0.0, np.inf))
    known = difference.notna() & error.notna()
    p_value = pd.Series(math.nan, index=found.index)
    p_value[known] = holm(2 * stats.norm.sf(z[known]))
    sign = np.where(difference < 0, LESS, MORE)
    verdict = np.where(p_value <= ERROR_RATE, sign, np.where(known, UNCLEAR, "not known"))
    return found.assign(lower=difference - reach, upper=difference + reach, p_value=p_value, verdict=verdict)


# -- Sentences -------------------------------------------------------------------------------------------


def _findings(audits: dict[str, Audit], differences: pd.DataFrame, base: str) -> list[str]:
    """Say what each method's audit says, then how the others' widths and scores differ from the reference's."""
    said = []
    for name, one in audits.items():
        worst = one.alarms[(one.alarms["verdict"] == UNDER) & (one.alarms["kind"] != "all rows")]
        first = f" Worst: {one.findings[0]}" if len(worst) else ""
        said.append(f"{name}: {one.summary}{first}")
    told = differences[
        differences["measure"].isin(["mean_width", "interval_score"]) & differences["standard_error"].notna()
    ]
    numbers = audits[base].numbers
    for other, rows in told.groupby("method", sort=False):
        clauses = [_difference_clause(row, numbers[row["measure"]]) for row in records(rows)]
        said.append(f"{other} compared with {base}: {'; '.join(clauses)}.")
    return said


def _difference_clause(row: dict[str, Any], reference: float) -> str:
    """Say how a measure differs and how surely, in percent of the reference's."""
    what, more = MEASURES[row["measure"]], [_more(row[key], reference) for key in ("difference", "lower", "upper")]
    likely = f"very likely between {more[1]} and {more[2]}"
    if row["verdict"] != UNCLEAR:
        return f"{what} {more[0]} ({likely})"
    if row["lower"] > 0 or row["upper"] < 0:  # clear on its own, but there are several comparisons
        return f"{what} not clearly different among so many comparisons (alone, {likely})"
    return f"{what} not clearly different ({likely})"


def _more(difference: float, reference: float) -> str:
    """Give a difference in percent of the reference; of a reference of 0 there is none, so as a number."""
    size = percent(abs(difference) / reference) if reference else f"{abs(difference):.3g}"
    return f"{size} {LESS if difference < 0 else MORE}"
