"""The summary: everything that a report says, as one dict of plain values, from whatever was given to it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from icqr._predicting import IntervalRegressor
from icqr._rows import target_name
from icqr._tables import IntArray, Table, as_table
from icqr.auditing import Audit, Comparison
from icqr.auditing.audited import Audited, check_not_swapped, prepare
from icqr.auditing.comparison import compare_rows, named_methods
from icqr.auditing.findings import listed, percent, plain, promise, records, rows_of
from icqr.auditing.verdicts import CONFIDENCE, HOLDS, LUCK, OVER, UNDER, UNKNOWN, definitions, looked_at
from icqr.cross import CrossCertificate
from icqr.metrics import coverage_by_group
from icqr.partition import GroupPartition
from icqr.reporting.examples import examples, reliability_of
from icqr.reporting.origins import (
    choice_of_k,
    importance_sentence,
    library_versions,
    model_facts,
    promised_words,
    remarks,
    selections,
)

#: Version of the dict's form.
FORMAT = "icqr-report/1"
#: What each status is called on the page.
STATUS_WORDS = {
    "holds": "The promise holds",
    "cautious": "More is covered than promised",
    "luck": "Within calibration luck",
    "partly": "Falls short in some regions",
    "unknown": "Too few rows to tell",
    "broken": "The promise is broken",
    "unchecked": "Not checked yet",
}
#: Numbers of an audit that its entry in `methods` repeats.
METHOD_NUMBERS = (
    *("n", "coverage", "coverage_lower", "coverage_upper", "mean_width", "n_infinite", "interval_score"),
    *("size_stratified_coverage", "worst_slab_coverage", "coverage_gap", "excess_risk_l1", "excess_risk_l1_error"),
)
#: What is known of a group, and of each method in it.
GROUP_FACTS = ("kind", "n", "verdict", "calibration_rows", "band_lower", "band_upper", "within_band", "guarantee")
GROUP_NUMBERS = ("coverage", "coverage_lower", "coverage_upper", "mean_width")
#: How the headline says which methods have a verdict over all rows, where no verb does.
OTHERWISE = {
    LUCK: "the difference is within calibration luck for",
    UNKNOWN: "there are too few rows to tell for",
}
WIDTHS = ("min", "q1", "median", "q3", "max", "mean", "std")


#: What a report is of: a fitted model, several, or what `audit` or `compare` returns.
Subject: TypeAlias = IntervalRegressor | Mapping[str, IntervalRegressor] | list[IntervalRegressor] | Audit | Comparison


def summarize(
    subject: Subject,
    y: ArrayLike | None = None,
    X: ArrayLike | None = None,
    *,
    methods: object = None,
    title: str | None = None,
    about: Mapping[str, Any] | None = None,
    seconds: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Return what a report says as a dict of plain values; NaN is None, and parts that can't be made are left out.

    Parameters
    ----------
    subject, y, X, methods, title, about, seconds
        As in :func:`icqr.report`.

    Returns
    -------
    dict
        Always: `format`, `title`, `made`, `promised`, `verdict` (`sentence`, `status`), `in_detail` (the method that
        groups, importance and pictures are of: of several, the one to use), `computed`. Of checked rows: `verdicts`
        (what each one means), `methods` (the main numbers of each), `findings`, `audits`, `widths`; of several methods
        `answer` (which one to use, why, how sure), `differences` and `remarks` (sentences on methods that are fitted in
        a way of their own); of groups `coverage_by_group`; if rows are given `examples` (five of them) and, of a model,
        `reliability` (coverage at several levels); of a model `groups`, `importance` and `importance_sentence`,
        `choice_of_k`; of each model that chose its partition, `selection`. `seconds`, if given.

    Examples
    --------
    >>> from icqr.auditing import audit
    >>> summary = summarize(audit([1.0, 2.0, 3.0], [[0, 2], [0, 1], [2, 4]], coverage=0.5))
    >>> summary["verdict"]["status"], summary["methods"][0]["coverage"]
    ('unknown', 0.6666666666666666)
    """
    return summary_of(gather(subject, y, X, methods), title, about, seconds)


def summary_of(
    evidence: Evidence,
    title: str | None = None,
    about: Mapping[str, Any] | None = None,
    seconds: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Return the dict of :func:`summarize`."""
    model, models, audits = evidence.model, evidence.models, evidence.audits
    names = list(audits or models)
    if seconds is not None and set(map(str, seconds)) != set(names):
        raise ValueError(f"seconds must be a dict with a number for each method, {names}, got {list(seconds)}")

    audit = next(iter(audits.values()), None)
    columns = None if model is None else model.n_features_in_
    data = {
        "target": evidence.y_name or None,
        "columns": columns if evidence.X is None else evidence.X.shape[1],
        "rows checked": None if audit is None else int(audit.numbers["n"]),
    }
    facts = about or {}
    computed = {
        "about": {str(key): value if isinstance(value, int | float) else str(value) for key, value in facts.items()},
        "data": _known(data),
        "models": [model_facts(name, models.get(name)) for name in names],
        "audit": None if audit is None else audit.method,
        "versions": library_versions(models.values()),
    }
    target = f" for {evidence.y_name}" if evidence.y_name else ""
    parts: dict[str, Any] = {
        "format": FORMAT,
        "title": f"Prediction intervals{target}" if title is None else str(title),
        "made": datetime.now(UTC).isoformat(timespec="minutes"),
        "promised": evidence.coverage,
        "in_detail": evidence.main,
        **_checked_parts(evidence),
        "examples": examples(evidence),
        "reliability": reliability_of(evidence),
        "groups": model.groups_ if model is not None and model.n_groups_ > 1 else None,
        "importance": getattr(model, "importances_", None),
        "importance_sentence": None if model is None else importance_sentence(model),
        "choice_of_k": None if model is None else choice_of_k(model),
        "selection": selections(models) or None,
        "seconds": None if seconds is None else {str(name): float(value) for name, value in seconds.items()},
        "computed": computed,
    }
    summary: dict[str, Any] = plain(_known(parts))
    return summary


def _known(parts: dict[str, Any]) -> dict[str, Any]:
    """Return the parts that are there."""
    return {key: value for key, value in parts.items() if value is not None}


# -- What was given --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything that a report can draw on. What was not given is empty; dicts are by method."""

    coverage: float  # what is promised
    audits: dict[str, Audit] = field(default_factory=dict)  # empty for a model without rows to check it on
    comparison: Comparison | None = None
    models: dict[str, IntervalRegressor] = field(default_factory=dict)  # the methods that are icqr models
    rows: dict[str, Audited] = field(default_factory=dict)  # with their intervals
    X: Table | None = None
    y_name: str | None = None

    @property
    def main(self) -> str:
        """The method that is shown in detail: of several, the one to use."""
        return next(iter(self.models or self.audits)) if self.comparison is None else self.comparison.best

    @property
    def model(self) -> IntervalRegressor | None:
        """The model that is shown in detail, if it is one."""
        return self.models.get(self.main)

    @property
    def labels(self) -> IntArray | None:
        """Each row's group in the model that is shown in detail (-1: none known), if it has several."""
        rows = self.rows.get(self.main)
        if rows is None or not rows.groupings:
            return None
        (grouping,) = rows.groupings
        return grouping.table["group"].to_numpy()[grouping.codes]


def gather(
    subject: Subject, y: ArrayLike | None = None, X: ArrayLike | None = None, methods: object = None
) -> Evidence:
    """Bring what was given to :func:`icqr.report` into one form, or say what is missing."""
    check_not_swapped(y)
    if isinstance(subject, Audit | Comparison):
        return _gather_audited(subject, y, X, methods)
    if methods is not None:
        raise ValueError("methods goes with an audit or a comparison; a model speaks for itself, leave it out")

    several = isinstance(subject, Mapping | list)
    given = subject if several else [subject]
    models = named_methods(given) if given else {}
    kinds = ", ".join(sorted({type(model).__name__ for model in models.values()}))
    if not models or not all(isinstance(model, IntervalRegressor) for model in models.values()):
        raise TypeError(
            "the first argument must be a fitted icqr model, a dict or list of such models, or what audit(…) or "
            f"compare(…) gives, got {type(subject).__name__}{f' of {kinds}' if several and kinds else ''}; for "
            "intervals of other libraries pass audit(y, intervals, X, coverage=0.9)"
        )
    if X is None and y is None and not several:
        (model,) = models.values()
        check_is_fitted(model)
        return Evidence(float(model.coverage), models=models)
    if X is None or y is None:
        raise ValueError(
            "y and X must be given with several models, and go together with one, got no "
            f"{'X' if X is None else 'y'}; give both, or neither for a report of one model alone"
        )

    rows = {name: prepare(y, model, X, None, None) for name, model in models.items()}
    comparison = compare_rows(rows, next(iter(rows)), 0, with_excess_risk=True)
    compared = comparison if several else None
    return Evidence(comparison.coverage, comparison.audits, compared, models, rows, as_table(X), target_name(y))


def _gather_audited(subject: Audit | Comparison, y: ArrayLike | None, X: ArrayLike | None, methods: object) -> Evidence:
    """Join an audit or a comparison with the methods that were audited, if they are given."""
    if isinstance(subject, Comparison):
        comparison, audits = subject, subject.audits
        named = named_methods(methods) if isinstance(methods, Mapping) and methods else {}
        if methods is not None and set(named) != set(audits):
            got = list(named) or type(methods).__name__
            raise ValueError(f"methods must be a dict with the names that were compared, {list(audits)}, got {got}")
    else:  # an audit does not name what it is of
        name = type(methods).__name__ if hasattr(methods, "predict_interval") else "intervals"
        comparison, audits, named = None, {name: subject}, {name: methods}
    named = {} if methods is None else {name: named[name] for name in audits}
    models = {name: method for name, method in named.items() if isinstance(method, IntervalRegressor)}
    if y is not None and not named:
        raise ValueError("methods must be given with y, got None; give the model or intervals that were audited")
    if y is None and len(models) < len(named):
        raise ValueError("y must be given with intervals in methods, got None; give the rows that were audited")

    # The rows, if they are given, must be those that were audited.
    rows = {} if y is None else {name: prepare(y, each, X, None, subject.coverage) for name, each in named.items()}
    for name, audited in rows.items():
        numbers = audits[name].numbers
        n, share = len(audited.rows.y), float(np.mean(audited.rows.covered))
        if n != numbers["n"] or not math.isclose(share, numbers["coverage"]):
            raise ValueError(
                f"y, X and methods must be what was audited: {numbers['n']:.0f} rows of which {name} covers "
                f"{numbers['coverage']:.4f}, got {n} rows of which it covers {share:.4f}"
            )
    table = None if X is None else as_table(X)
    return Evidence(subject.coverage, audits, comparison, models, rows, table, target_name(y))


# -- The verdict -----------------------------------------------------------------------------------------


def _verdict(methods: list[dict[str, Any]], audits: Mapping[str, Audit], coverage: float, main: str) -> dict[str, Any]:
    """Return `sentence`, on all methods, and `status`, that of the method in detail."""
    (status,) = (_status(entry) for entry in methods if entry["method"] == main)
    if len(methods) == 1:
        return {"status": status, "sentence": _sentence(methods[0], audits[methods[0]["method"]])}

    # What holds over all rows, in words, and in how many of the regions that all are judged in it does not.
    kept = [entry["method"] for entry in methods if entry["verdict"] in (HOLDS, OVER)]
    broken = [entry["method"] for entry in methods if entry["verdict"] == UNDER]
    rest = {verdict: [entry["method"] for entry in methods if entry["verdict"] == verdict] for verdict in OTHERWISE}
    who = [f"{listed(kept)} {'keeps' if len(kept) == 1 else 'keep'} it"] if kept else []
    who += [f"{listed(broken)} {'breaks' if len(broken) == 1 else 'break'} it"] if broken else []
    who += [f"{OTHERWISE[verdict]} {listed(names)}" for verdict, names in rest.items() if names]
    counts = [f"{entry[UNDER] or 'none'} with {entry['method']}" for entry in methods]
    looked = methods[0]["regions"]
    regions = "the one region" if looked == 1 else f"the {looked} regions"
    short = f"of {regions} looked at, these fall short: {listed(counts)}" if looked else "no regions were looked at"
    return {
        "status": status,
        "sentence": f"{promise(coverage)} is promised, and over all rows {listed(who)}; {short}.",
    }


def _unchecked(evidence: Evidence) -> str:
    """Say what a model promises that was not checked."""
    promised = f"The model promises {promise(evidence.coverage)}"
    certificate = None if evidence.model is None else evidence.model.certificate()
    if isinstance(certificate, CrossCertificate):
        promised = f"The model covers {promised_words(certificate)}"
    return f"{promised}; it was not checked here on rows that it has not seen."


def _status(method: dict[str, Any]) -> str:
    """Return the key of `STATUS_WORDS` that a method has earned."""
    if method["verdict"] == UNDER:
        return "broken"
    known = {HOLDS: "holds", OVER: "cautious", LUCK: "luck"}
    return "partly" if method["undercovers"] else known.get(method["verdict"], "unknown")


def _sentence(method: dict[str, Any], audit: Audit) -> str:
    """Say in one sentence whether a method keeps its promise, and where it falls short most."""
    looked, n_short = method["regions"], method["undercovers"]
    start = {
        HOLDS: "On average the promise holds" if n_short else "The intervals keep their promise",
        UNDER: "The promise is broken",
        OVER: "The intervals are wider than their promise needs",
        LUCK: "On average the distance from the promise is within calibration luck",
    }.get(method["verdict"], "Too few rows to tell whether the promise holds")
    counted = f"{percent(method['coverage'])} of {int(method['n']):,} rows are covered"
    beginning = f"{start}: {counted}, {promise(audit.coverage)} promised"
    if not looked:
        return f"{beginning}."

    regions = "the one region looked at" if looked == 1 else f"the {looked} regions looked at"
    if not n_short:
        none = f"none of {regions} is shown" if looked > 1 else f"{regions} is not shown"
        return f"{beginning}, and {none} to fall short."
    short = audit.regions[(audit.regions["kind"] != "all rows") & (audit.regions["verdict"] == UNDER)]
    worst = records(short)[0]
    link = "but" if method["verdict"] in (HOLDS, OVER) else "and"
    falling = f"{n_short} of {regions} {'falls' if n_short == 1 else 'fall'} short"
    return f"{beginning}, {link} {falling}, {rows_of(worst)} most ({percent(worst['coverage'])})."


# -- What was checked ------------------------------------------------------------------------------------


def _checked_parts(evidence: Evidence) -> dict[str, Any]:
    """Return the parts that come from audits of rows."""
    audits, comparison = evidence.audits, evidence.comparison
    groups = _coverage_by_group(evidence) if audits else []
    methods = [_method_entry(name, audit, groups, len(audits) > 1) for name, audit in audits.items()]
    if not audits:
        return {"verdict": {"status": "unchecked", "sentence": _unchecked(evidence)}}

    findings: dict[str, Any] = {
        "methods": [
            {"method": name, "summary": audit.summary, "sentences": list(audit.findings[:-1])}
            for name, audit in audits.items()
        ]
    }
    if comparison is not None:
        findings["comparison"] = list(comparison.findings[len(audits) :])
    widths = []
    for name, audit in audits.items():
        finite = {key: audit.numbers[f"finite_width_{key}"] for key in WIDTHS}
        widths.append({"method": name, **finite, "n_infinite": int(audit.numbers["n_infinite"])})
    return {
        "answer": comparison and comparison.answer,
        "verdict": _verdict(methods, audits, evidence.coverage, evidence.main),
        "verdicts": definitions(evidence.coverage),
        "methods": methods,
        "differences": comparison.differences if comparison and len(comparison.differences) else None,
        "remarks": (remarks(evidence.models) or None) if len(audits) > 1 else None,
        "findings": findings,
        "coverage_by_group": groups or None,
        "widths": widths,
        "audits": {name: audit.to_dict() for name, audit in audits.items()},
    }


def _method_entry(name: str, audit: Audit, groups: list[dict[str, Any]], compared: bool) -> dict[str, Any]:
    """Return the main numbers of a method: over all rows, in groups, and how many regions have which verdict.

    Of several methods the regions are those that all are judged in, without a model's own groups.
    """
    everywhere = audit.regions["kind"] == "all rows"
    elsewhere = (looked_at(audit.regions) if compared else audit.regions[~everywhere])["verdict"]
    by_group = [group["methods"][name]["coverage"] for group in groups if name in group["methods"]]
    return {
        "method": name,
        "verdict": audit.regions.loc[everywhere, "verdict"].item(),
        **{key: audit.numbers[key] for key in METHOD_NUMBERS},
        "lowest_group": min(by_group, default=None),
        "highest_group": max(by_group, default=None),
        "regions": len(elsewhere),
        **{verdict: int((elsewhere == verdict).sum()) for verdict in (UNDER, OVER, LUCK, UNKNOWN, HOLDS)},
    }


def _coverage_by_group(evidence: Evidence) -> list[dict[str, Any]]:
    """Return an entry per group: its verdict for the method shown in detail, and each method's coverage in it."""
    main, model = evidence.main, evidence.model
    regions = evidence.audits[main].regions
    groups = records(regions[regions["kind"].isin(("model group", "group"))])

    # A group's number is the same in the whole report: a model's groups have theirs, given ones the next numbers.
    numbers = {group["region"]: int(group["group"]) for group in groups if group["group"] is not None}
    given = sorted((group["region"] for group in groups if group["region"] not in numbers), key=_natural_order)
    numbers |= {region: number for number, region in enumerate(given, start=max(numbers.values(), default=-1) + 1)}

    # What each method covers: in given groups its audit says it, in the groups of the main model it is counted here,
    # with intervals that are as sure as those of the main model.
    sure = next((group["confidence"] for group in groups if group["group"] is not None), CONFIDENCE)
    measured: dict[str, dict[int, dict[str, Any]]] = {}
    for name, audit in evidence.audits.items():
        measured[name] = {}
        if evidence.labels is not None:
            rows = evidence.rows[name]
            table = coverage_by_group(rows.rows.y, rows.intervals, evidence.labels, confidence=sure).reset_index()
            measured[name] = {group["group"]: group for group in records(table)}
        judged = records(audit.regions[audit.regions["kind"] == "group"])
        measured[name] |= {numbers[group["region"]]: group for group in judged if group["region"] in numbers}
    measured[main] |= {numbers[group["region"]]: group for group in groups}

    # A user's own groups are called by their rule, which says more than a number; rules of clusters are approximate.
    rules = list(model.groups_["rule"]) if model and isinstance(model.partition_, GroupPartition) else []
    entries = []
    for group in groups:
        number = numbers[group["region"]]
        name = str(group["region"])
        if group["kind"] == "model group" and number >= 0:
            name = rules[number] if rules else f"group {number}"
        by_method = {method: table[number] for method, table in measured.items() if number in table}
        entries.append(
            {
                "group": number,
                "name": name,
                "region": group["region"],
                **{key: group[key] for key in GROUP_FACTS},
                "methods": {method: {key: row[key] for key in GROUP_NUMBERS} for method, row in by_method.items()},
            }
        )
    return sorted(entries, key=lambda entry: (entry["group"] < 0, entry["group"]))


def _natural_order(text: str) -> list[tuple[bool, float, str]]:
    """Return a key that sorts 2 before 10."""
    parts = re.findall(r"\d+\.?\d*|\D+", text)
    return [(part[0].isdecimal(), float(part) if part[0].isdecimal() else 0.0, part) for part in parts]
