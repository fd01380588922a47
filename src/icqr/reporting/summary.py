"""The summary: everything that a report says, as one dict of plain values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pandas as pd

from icqr._predicting import IntervalRegressor
from icqr.auditing.audits import Audit
from icqr.auditing.findings import plain, records
from icqr.auditing.verdicts import HOLDS, OVER, UNDER
from icqr.metrics import coverage_by_group
from icqr.partition import GroupPartition
from icqr.reporting.choices import choice_of_k, importance_sentence, selections
from icqr.reporting.evidence import Evidence, gather
from icqr.reporting.origins import how_computed, remarks
from icqr.reporting.verdict import verdict_of

#: Version of the dict's form.
FORMAT = "icqr-report/1"
#: The model's own groups and those that a user gave to the audit.
GROUP_KINDS = ("model group", "group")


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
    """Give what a report says as a dict of plain values; NaN is None, and parts that can't be made are left out.

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
    >>> found = summarize(audit([1.0, 2.0, 3.0], [[0, 2], [0, 1], [2, 4]], coverage=0.5))
    >>> found["verdict"]["status"], found["methods"][0]["coverage"]
    ('unknown', 0.6666666666666666)
    """
    return summary_of(gather(subject, X, y, methods), title, about, seconds)


def summary_of(
    evidence: Evidence,
    title: str | None,
    about: Mapping[str, Any] | None,
    seconds: Mapping[str, float] | None,
) -> dict[str, Any]:
    """Give the dict of :func:`summarize`."""
    target = f" for {evidence.y_name}" if evidence.y_name else ""
    parts: dict[str, Any] = {
        "format": FORMAT,
        "title": f"Prediction intervals{target}" if title is None else str(title),
        "made": datetime.now(UTC).isoformat(timespec="minutes"),
        "promised": evidence.coverage,
        "verdict": verdict_of(evidence),
        "in_detail": evidence.main,
        **_of_audits(evidence),
        **_of_model(evidence.model),
        "selection": selections(evidence.models),
        "seconds": None if seconds is None else _checked_seconds(seconds, evidence),
        "computed": how_computed(evidence, about or {}),
    }
    found: dict[str, Any] = plain({key: value for key, value in parts.items() if value is not None})
    return found


def _checked_seconds(seconds: Mapping[str, float], evidence: Evidence) -> dict[str, float]:
    names = list(evidence.audits or evidence.models)
    if set(map(str, seconds)) != set(names):
        raise ValueError(f"seconds must be a dict with a number for each method, {names}, got {list(seconds)}")
    return {str(name): float(value) for name, value in seconds.items()}


# -- What was checked ------------------------------------------------------------------------------------


def _of_audits(evidence: Evidence) -> dict[str, Any]:
    audits, comparison = evidence.audits, evidence.comparison
    if not audits:
        return {}
    groups = _coverage_by_group(evidence)
    return {
        "methods": [_method(name, one, groups) for name, one in audits.items()],
        "differences": comparison.differences if comparison and len(comparison.differences) else None,
        "remarks": (remarks(evidence.models) or None) if len(audits) > 1 else None,
        "findings": _findings(evidence),
        "coverage_by_group": groups or None,
        "widths": [_widths(name, one.numbers) for name, one in audits.items()],
        "audits": {name: one.to_dict() for name, one in audits.items()},
    }


def _findings(evidence: Evidence) -> dict[str, Any]:
    """Give the sentences: those of each method, worst first, and those that compare methods."""
    found: dict[str, Any] = {
        "methods": [
            {"method": name, "summary": one.summary, "sentences": list(one.findings[:-1])}
            for name, one in evidence.audits.items()
        ]
    }
    if evidence.comparison:
        found["comparison"] = list(evidence.comparison.findings[len(evidence.audits) :])
    return found


def _method(name: str, found: Audit, groups: list[dict[str, Any]]) -> dict[str, Any]:
    regions = found.regions
    by_group = [one["methods"][name]["coverage"] for one in groups if name in one["methods"]]
    elsewhere = regions.loc[regions["kind"] != "all rows", "verdict"]
    shown = ["n", "coverage", "coverage_lower", "coverage_upper", "mean_width", "n_infinite", "interval_score"]
    shown += ["size_stratified_coverage", "worst_slab_coverage", "coverage_gap", "excess_risk_l1"]
    return {
        "method": name,
        "verdict": regions.loc[regions["kind"] == "all rows", "verdict"].iloc[0],
        **{key: found.numbers[key] for key in [*shown, "excess_risk_l1_error"]},
        "lowest_group": min(by_group, default=None),
        "highest_group": max(by_group, default=None),
        "regions": len(elsewhere),
        "undercovers": int((elsewhere == UNDER).sum()),
        "overcovers": int((elsewhere == OVER).sum()),
        "holds": int((elsewhere == HOLDS).sum()),
    }


def _widths(name: str, numbers: dict[str, float]) -> dict[str, Any]:
    known = ("min", "q1", "median", "q3", "max", "mean", "std")
    finite = {key: numbers[f"finite_width_{key}"] for key in known}
    return {"method": name, **finite, "n_infinite": int(numbers["n_infinite"])}


# -- Coverage by group -----------------------------------------------------------------------------------


def _coverage_by_group(evidence: Evidence) -> list[dict[str, Any]]:
    """Give an entry per group: its verdict for the method shown in detail, and each method's coverage in it.

    Groups have a number that is theirs in the whole report: a model's groups their own, others the following ones.
    """
    regions = evidence.audits[evidence.main].regions
    groups = regions[regions["kind"].isin(GROUP_KINDS)]
    numbers = _numbers(groups)
    elsewhere, rules = _elsewhere(evidence), _own_rules(evidence.model)
    found = []
    for row in records(groups):
        number = numbers[row["region"]]
        by_method = {name: table[number] for name, table in elsewhere.items() if number in table}
        about = {"group": number, "name": _short_name(row, rules), "region": row["region"]}
        about |= {key: row[key] for key in ("kind", "n", "verdict", "calibration_rows", "band_lower", "band_upper")}
        about |= {key: row[key] for key in ("within_band", "guarantee")}
        measured = {**_given(evidence, row), **by_method, evidence.main: _measured(row)}
        ordered = {name: measured[name] for name in evidence.audits if name in measured}
        found.append({**about, "methods": ordered})
    return sorted(found, key=lambda one: (one["group"] < 0, one["group"]))


def _numbers(groups: pd.DataFrame) -> dict[str, int]:
    """Give each region's number: a model's groups say theirs; rows of no known group are -1."""
    own = groups[groups["kind"] == "model group"]
    numbers = dict(zip(own["region"], own["group"].astype(int), strict=True))
    following = max(numbers.values(), default=-1) + 1
    given = sorted(groups.loc[groups["kind"] == "group", "region"], key=_natural)
    return numbers | {name: place for place, name in enumerate(given, start=following)}


def _natural(text: str) -> list[tuple[bool, float, str]]:
    """Give a key that sorts 2 before 10."""
    parts = re.findall(r"\d+\.?\d*|\D+", text)
    return [(part[0].isdecimal(), float(part) if part[0].isdecimal() else 0.0, part) for part in parts]


def _own_rules(model: IntervalRegressor | None) -> list[str]:
    """Give the rules of a user's own groups, which say more to a reader than numbers do."""
    if model is None or not isinstance(getattr(model, "partition_", None), GroupPartition):
        return []
    return list(model.descriptions_["rule"])


def _short_name(row: dict[str, Any], rules: list[str]) -> str:
    """Give a group's rule or number; where it has none, what it is called."""
    if row["group"] is None or row["group"] < 0:
        return str(row["region"])
    return rules[row["group"]] if rules else f"group {row['group']}"


def _measured(row: dict[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in ("coverage", "coverage_lower", "coverage_upper", "mean_width")}


def _given(evidence: Evidence, row: dict[str, Any]) -> dict[str, Any]:
    """Give the other methods' coverage in a group that was given to the comparison."""
    if row["kind"] != "group":
        return {}
    tables = {name: one.regions for name, one in evidence.audits.items()}
    same = {
        name: table[(table["kind"] == "group") & (table["region"] == row["region"])] for name, table in tables.items()
    }
    return {name: _measured(records(found)[0]) for name, found in same.items() if len(found)}


def _elsewhere(evidence: Evidence) -> dict[str, dict[int, Any]]:
    """Give every method's coverage in the groups of the model that is shown in detail, where there are rows."""
    labels = evidence.labels
    if labels is None:
        return {}
    found = {}
    for name, audited in evidence.rows.items():
        table = coverage_by_group(audited.rows.y, audited.intervals, labels)
        found[name] = {row["group"]: _measured(row) for row in records(table.reset_index())}
    return found


# -- The model -------------------------------------------------------------------------------------------


def _of_model(model: IntervalRegressor | None) -> dict[str, Any]:
    if model is None:
        return {}
    return {
        "groups": _groups(model),
        "importance": getattr(model, "importances_", None),
        "importance_sentence": importance_sentence(model),
        "choice_of_k": choice_of_k(model),
    }


def _groups(model: IntervalRegressor) -> pd.DataFrame | None:
    return model.groups_ if model.n_groups_ > 1 else None
