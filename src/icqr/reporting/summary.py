"""The summary: everything that a report says, as one dict of plain values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from icqr.auditing.audits import Audit
from icqr.auditing.findings import HOLDS, OVER, UNDER, listed, percent, plain, promise, records, rows_of
from icqr.metrics import coverage_by_group
from icqr.partition import GroupPartition
from icqr.reporting.evidence import Evidence, gather
from icqr.reporting.origins import choice_of_k, how_computed, importance_sentence, remarks, selections

#: Version of the dict's form.
FORMAT = "icqr-report/1"
#: What each status is called on the page, the best first.
STATUS_WORDS = {
    "holds": "The promise holds",
    "cautious": "More is covered than promised",
    "partly": "Holds on average, not everywhere",
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
WIDTHS = ("min", "q1", "median", "q3", "max", "mean", "std")


def summarize(
    subject: Any,
    X: Any = None,
    y: Any = None,
    *,
    methods: Any = None,
    title: str | None = None,
    about: Mapping[str, Any] | None = None,
    seconds: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Return what a report says as a dict of plain values; NaN is None, and parts that can't be made are left out.

    Parameters
    ----------
    subject, X, y, methods, title, about, seconds
        As in :func:`icqr.reporting.report`.

    Returns
    -------
    dict
        Always: `format`, `title`, `made`, `promised`, `verdict` (`sentence`, `status`), `in_detail` (the method that
        groups, importance and pictures are of), `computed`. Of checked rows: `methods` (the main
        numbers of each), `findings`, `audits`, `widths`; of several methods `differences` and `remarks` (sentences on
        methods that are fitted in a way of their own); of groups `coverage_by_group`; of a model `groups`,
        `importance` and `importance_sentence`, `choice_of_k`; of each model that chose its partition, `selection`.
        `seconds`, if given.

    Examples
    --------
    >>> from icqr.auditing import audit
    >>> summary = summarize(audit([1.0, 2.0, 3.0], [[0, 2], [0, 1], [2, 4]], coverage=0.5))
    >>> summary["verdict"]["status"], summary["methods"][0]["coverage"]
    ('unknown', 0.6666666666666666)
    """
    return summary_of(gather(subject, X, y, methods), title, about, seconds)


def summary_of(
    evidence: Evidence,
    title: str | None = None,
    about: Mapping[str, Any] | None = None,
    seconds: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Return the dict of :func:`summarize`."""
    names = list(evidence.audits or evidence.models)
    if seconds is not None and set(map(str, seconds)) != set(names):
        raise ValueError(f"seconds must be a dict with a number for each method, {names}, got {list(seconds)}")
    model, target = evidence.model, f" for {evidence.y_name}" if evidence.y_name else ""
    parts: dict[str, Any] = {
        "format": FORMAT,
        "title": f"Prediction intervals{target}" if title is None else str(title),
        "made": datetime.now(UTC).isoformat(timespec="minutes"),
        "promised": evidence.coverage,
        "verdict": _verdict(evidence),
        "in_detail": evidence.main,
        **(_checked_parts(evidence) if evidence.audits else {}),
        "groups": model.groups_ if model is not None and model.n_groups_ > 1 else None,
        "importance": getattr(model, "importances_", None),
        "importance_sentence": None if model is None else importance_sentence(model),
        "choice_of_k": None if model is None else choice_of_k(model),
        "selection": selections(evidence.models) or None,
        "seconds": None if seconds is None else {str(name): float(value) for name, value in seconds.items()},
        "computed": how_computed(evidence, about or {}),
    }
    summary: dict[str, Any] = plain({key: value for key, value in parts.items() if value is not None})
    return summary


# -- The verdict -----------------------------------------------------------------------------------------


def _verdict(evidence: Evidence) -> dict[str, Any]:
    """Return `sentence` and `status`; of several methods it is the best that any has, and `methods` are those."""
    audits, promised = evidence.audits, promise(evidence.coverage)
    if not audits:
        sentence = f"The model promises {promised}; it was not checked here on rows that it has not seen."
        return {"status": "unchecked", "sentence": sentence}
    if len(audits) == 1:
        (audit,) = audits.values()
        return {"status": _status(audit), "sentence": _verdict_sentence(audit)}

    # No method is called the best: each is judged in regions of its own.
    statuses = {name: _status(audit) for name, audit in audits.items()}
    best = min(statuses.values(), key=list(STATUS_WORDS).index)
    counts = [
        f"{len(_short(audit)) or 'none'} of {len(audit.regions) - 1} with {name}" for name, audit in audits.items()
    ]
    looked = any(len(audit.regions) > 1 for audit in audits.values())
    short = f"of the regions looked at, these fall short: {listed(counts)}" if looked else "no regions were looked at"
    sentence = f"{promised} is promised, and on average {_who_keeps_it(audits)}; {short}."
    return {"status": best, "sentence": sentence, "methods": [name for name in audits if statuses[name] == best]}


def _who_keeps_it(audits: Mapping[str, Audit]) -> str:
    """Say which methods keep the promise over all rows and which break it."""
    verdicts = {name: _whole(audit)["verdict"] for name, audit in audits.items()}
    kept = [name for name, verdict in verdicts.items() if verdict in (HOLDS, OVER)]
    unknown = [name for name, verdict in verdicts.items() if verdict not in (HOLDS, OVER, UNDER)]
    broken = [f"{name} ({percent(audits[name].numbers['coverage'])})" for name in verdicts if verdicts[name] == UNDER]
    parts = [f"{listed(kept)} {'keeps' if len(kept) == 1 else 'keep'} it"] if kept else []
    parts += [f"{listed(broken)} {'breaks' if len(broken) == 1 else 'break'} it"] if broken else []
    parts += [f"there are too few rows to tell for {listed(unknown)}"] if unknown else []
    return listed(parts)


def _whole(audit: Audit) -> dict[str, Any]:
    """Return the audit of all rows together."""
    return records(audit.regions[audit.regions["kind"] == "all rows"])[0]


def _short(audit: Audit) -> list[dict[str, Any]]:
    """Return the regions that fall short, worst first."""
    regions = audit.regions
    return records(regions[(regions["kind"] != "all rows") & (regions["verdict"] == UNDER)])


def _status(audit: Audit) -> str:
    verdict = _whole(audit)["verdict"]
    if verdict == UNDER:
        return "broken"
    return "partly" if _short(audit) else {HOLDS: "holds", OVER: "cautious"}.get(verdict, "unknown")


def _verdict_sentence(audit: Audit) -> str:
    whole, short, looked = _whole(audit), _short(audit), len(audit.regions) - 1
    start = {
        HOLDS: "On average the promise holds" if short else "The intervals keep their promise",
        UNDER: "The promise is broken",
        OVER: "The intervals are wider than their promise needs",
    }.get(whole["verdict"], "Too few rows to tell whether the promise holds")
    counted = f"{percent(whole['coverage'])} of {whole['n']:,} rows are covered, {promise(audit.coverage)} promised"
    if not looked:
        return f"{start}: {counted}."

    regions = "the one region looked at" if looked == 1 else f"the {looked} regions looked at"
    if not short:
        none = f"none of {regions} is shown" if looked > 1 else f"{regions} is not shown"
        return f"{start}: {counted}, and {none} to fall short."
    link = "but" if whole["verdict"] in (HOLDS, OVER) else "and"
    falling = f"{len(short)} of {regions} {'falls' if len(short) == 1 else 'fall'} short"
    return f"{start}: {counted}, {link} {falling}, {rows_of(short[0])} most ({percent(short[0]['coverage'])})."


# -- What was checked ------------------------------------------------------------------------------------


def _checked_parts(evidence: Evidence) -> dict[str, Any]:
    """Return the parts that come from audits of rows."""
    audits, comparison, groups = evidence.audits, evidence.comparison, _coverage_by_group(evidence)
    sentences = [
        {"method": name, "summary": audit.summary, "sentences": list(audit.findings[:-1])}
        for name, audit in audits.items()
    ]
    findings: dict[str, Any] = {"methods": sentences}
    if comparison is not None:
        findings["comparison"] = list(comparison.findings[len(audits) :])
    widths = [
        {
            "method": name,
            **{key: audit.numbers[f"finite_width_{key}"] for key in WIDTHS},
            "n_infinite": int(audit.numbers["n_infinite"]),
        }
        for name, audit in audits.items()
    ]
    return {
        "methods": [_method(name, audit, groups) for name, audit in audits.items()],
        "differences": comparison.differences if comparison and len(comparison.differences) else None,
        "remarks": (remarks(evidence.models) or None) if len(audits) > 1 else None,
        "findings": findings,
        "coverage_by_group": groups or None,
        "widths": widths,
        "audits": {name: audit.to_dict() for name, audit in audits.items()},
    }


def _method(name: str, audit: Audit, groups: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the main numbers of a method."""
    by_group = [group["methods"][name]["coverage"] for group in groups if name in group["methods"]]
    elsewhere = audit.regions.loc[audit.regions["kind"] != "all rows", "verdict"]
    return {
        "method": name,
        "verdict": _whole(audit)["verdict"],
        **{key: audit.numbers[key] for key in METHOD_NUMBERS},
        "lowest_group": min(by_group, default=None),
        "highest_group": max(by_group, default=None),
        "regions": len(elsewhere),
        "undercovers": int((elsewhere == UNDER).sum()),
        "overcovers": int((elsewhere == OVER).sum()),
        "holds": int((elsewhere == HOLDS).sum()),
    }


def _coverage_by_group(evidence: Evidence) -> list[dict[str, Any]]:
    """Return an entry per group: its verdict for the method shown in detail, and each method's coverage in it."""
    regions = evidence.audits[evidence.main].regions
    groups = records(regions[regions["kind"].isin(("model group", "group"))])
    # A group's number is the same in the whole report: a model's groups say theirs, given ones have the next numbers.
    numbers = {row["region"]: int(row["group"]) for row in groups if row["kind"] == "model group"}
    given = sorted((row["region"] for row in groups if row["kind"] == "group"), key=_natural_order)
    numbers |= {region: place for place, region in enumerate(given, start=max(numbers.values(), default=-1) + 1)}
    # A user's own groups are called by their rule, which says more than a number; rules of clusters are approximate.
    model = evidence.model
    own = model is not None and isinstance(getattr(model, "partition_", None), GroupPartition)
    rules = list(model.groups_["rule"]) if model is not None and own else []

    measured = {name: _measured_in_groups(evidence, name, numbers) for name in evidence.audits}
    measured[evidence.main] |= {numbers[row["region"]]: row for row in groups}
    entries = []
    for row in groups:
        number = numbers[row["region"]]
        known = row["group"] is not None and row["group"] >= 0
        by_method = {name: table[number] for name, table in measured.items() if number in table}
        entry = {
            "group": number,
            "name": (rules[number] if rules else f"group {number}") if known else str(row["region"]),
            "region": row["region"],
            **{key: row[key] for key in GROUP_FACTS},
            "methods": {name: {key: found[key] for key in GROUP_NUMBERS} for name, found in by_method.items()},
        }
        entries.append(entry)
    return sorted(entries, key=lambda entry: (entry["group"] < 0, entry["group"]))


def _measured_in_groups(evidence: Evidence, name: str, numbers: Mapping[str, int]) -> dict[int, dict[str, Any]]:
    """Return a method's coverage by a group's number: in groups given to its audit, and in those shown in detail."""
    regions = evidence.audits[name].regions
    given = records(regions[regions["kind"] == "group"])
    measured = {numbers[row["region"]]: row for row in given if row["region"] in numbers}
    if evidence.labels is not None:
        audited = evidence.rows[name]
        table = coverage_by_group(audited.rows.y, audited.intervals, evidence.labels)
        measured |= {row["group"]: row for row in records(table.reset_index())}
    return measured


def _natural_order(text: str) -> list[tuple[bool, float, str]]:
    """Return a key that sorts 2 before 10."""
    parts = re.findall(r"\d+\.?\d*|\D+", text)
    return [(part[0].isdecimal(), float(part) if part[0].isdecimal() else 0.0, part) for part in parts]
