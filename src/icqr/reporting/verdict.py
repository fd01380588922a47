"""The verdict: one sentence on the whole, and a word for it."""

from __future__ import annotations

from typing import Any

from icqr.auditing.audits import Audit
from icqr.auditing.findings import listed, percent, promise, records, rows_of
from icqr.auditing.verdicts import HOLDS, OVER, UNDER
from icqr.reporting.evidence import Evidence

#: What each status is called on the page, the best first.
STATUS_WORDS = {
    "holds": "The promise holds",
    "cautious": "More is covered than promised",
    "partly": "Holds on average, not everywhere",
    "unknown": "Too few rows to tell",
    "broken": "The promise is broken",
    "unchecked": "Not checked yet",
}


def verdict_of(evidence: Evidence) -> dict[str, Any]:
    """Give `sentence` and `status`; of several methods it is the best that any has, and `methods` are those.

    Examples
    --------
    >>> from icqr.auditing import audit
    >>> from icqr.reporting.evidence import gather
    >>> verdict_of(gather(audit([0.0] * 90, [[-1, 1]] * 80 + [[1, 2]] * 10, coverage=0.9)))["sentence"]
    'Too few rows to tell whether the promise holds: 88.9 % of 90 rows are covered, 90 % promised.'
    """
    if not evidence.audits:
        said = f"The model promises {promise(evidence.coverage)}; it was not checked here on rows that it has not seen."
        return {"status": "unchecked", "sentence": said}
    if len(evidence.audits) == 1:
        ((_, found),) = evidence.audits.items()
        return {"status": _status(found), "sentence": _sentence(found)}
    return _of_several(evidence.audits, evidence.coverage)


def _whole(found: Audit) -> dict[str, Any]:
    return records(found.regions[found.regions["kind"] == "all rows"])[0]


def _short(found: Audit) -> list[dict[str, Any]]:
    """Give the regions that fall short, worst first."""
    regions = found.regions
    return records(regions[(regions["kind"] != "all rows") & (regions["verdict"] == UNDER)])


def _status(found: Audit) -> str:
    whole = _whole(found)["verdict"]
    if whole == UNDER:
        return "broken"
    if _short(found):
        return "partly"
    return {HOLDS: "holds", OVER: "cautious"}.get(whole, "unknown")


def _sentence(found: Audit) -> str:
    whole, short, looked = _whole(found), _short(found), len(found.regions) - 1
    counted = f"{percent(whole['coverage'])} of {whole['n']:,} rows are covered, {promise(found.coverage)} promised"
    start = {
        HOLDS: "On average the promise holds" if short else "The intervals keep their promise",
        UNDER: "The promise is broken",
        OVER: "The intervals are wider than their promise needs",
    }.get(whole["verdict"], "Too few rows to tell whether the promise holds")
    if not looked:
        return f"{start}: {counted}."
    regions = "the one region looked at" if looked == 1 else f"the {looked} regions looked at"
    if not short:
        none = "and none of " if looked > 1 else "and "
        fails = "is shown to fall short" if looked > 1 else "is not shown to fall short"
        return f"{start}: {counted}, {none}{regions} {fails}."
    link = ", but " if whole["verdict"] in (HOLDS, OVER) else ", and "
    some = f"{len(short)} of {regions} {'falls' if len(short) == 1 else 'fall'} short"
    return f"{start}: {counted}{link}{some}, {rows_of(short[0])} most ({percent(short[0]['coverage'])})."


def _of_several(audits: dict[str, Audit], coverage: float) -> dict[str, Any]:
    """Give the best status that a method has, the methods that have it, and how often each falls short.

    No method is called the best: each is judged in regions of its own.
    """
    statuses = {name: _status(found) for name, found in audits.items()}
    status = min(statuses.values(), key=list(STATUS_WORDS).index)
    counts = [
        f"{len(_short(found)) or 'none'} of {len(found.regions) - 1} with {name}" for name, found in audits.items()
    ]
    looked = any(len(found.regions) > 1 for found in audits.values())
    short = f"of the regions looked at, these fall short: {listed(counts)}" if looked else "no regions were looked at"
    said = f"{_on_average(audits, coverage)}; {short}."
    having = [name for name, one in statuses.items() if one == status]
    return {"status": status, "sentence": said, "methods": having}


def _on_average(audits: dict[str, Audit], coverage: float) -> str:
    """Say which methods keep the promise over all rows and which break it."""
    verdicts = {name: _whole(found)["verdict"] for name, found in audits.items()}
    kept = [name for name, verdict in verdicts.items() if verdict in (HOLDS, OVER)]
    broken = [
        f"{name} ({percent(audits[name].numbers['coverage'])})"
        for name, verdict in verdicts.items()
        if verdict == UNDER
    ]
    unknown = [name for name, verdict in verdicts.items() if verdict not in (HOLDS, OVER, UNDER)]
    parts = [f"{listed(kept)} {'keeps' if len(kept) == 1 else 'keep'} it"] if kept else []
    parts += [f"{listed(broken)} {'breaks' if len(broken) == 1 else 'break'} it"] if broken else []
    parts += [f"there are too few rows to tell for {listed(unknown)}"] if unknown else []
    return f"{promise(coverage)} is promised, and on average {listed(parts)}"
