"""The page: the summary, its tables and pictures in one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from icqr._files import replacing
from icqr._messages import imported
from icqr._sheet import Sheet, unbroken
from icqr.auditing.findings import as_json
from icqr.reporting.report_tables import other_methods, tables_of
from icqr.reporting.summary import STATUS_WORDS, Subject, gather, summary_of

#: What JSON may hold and a web page would read as markup, or an old browser as the end of a line.
_NOT_IN_A_PAGE = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def report(
    subject: Subject,
    path: str | os.PathLike[str],
    y: ArrayLike | None = None,
    X: ArrayLike | None = None,
    *,
    methods: object = None,
    title: str | None = None,
    about: Mapping[str, Any] | None = None,
    seconds: Mapping[str, float] | None = None,
    json_path: str | os.PathLike[str] | None = None,
) -> Path:
    """Write a report that anyone can open: one HTML file, which loads nothing from elsewhere.

    It begins with the answer in one sentence, five example rows with their intervals, and coverage by group (or by
    region, if there are no groups). All else is an appendix, which is folded on a screen and open on paper: the methods
    compared, reliability, regions, groups and how they were chosen, importance, widths, and how all of it was computed.
    Parts for which nothing was given are left out. The file is written under another name and renamed at the end, so
    that an error leaves an older report as it was.

    Parameters
    ----------
    subject : model, dict or list of models, Audit or Comparison
        A fitted icqr model; several, to be compared; or what :func:`icqr.audit` or
        :func:`icqr.compare` returns, also for intervals of other libraries.
    path : path
        The HTML file; an existing one is replaced.
    y, X : array and table, optional
        Rows that no model has seen. A model is audited on them. With an audit or a comparison, the rows that it is of.
    methods : model, intervals or dict of these, optional
        With an audit or a comparison: what was audited (by name, if several), for the parts about the model and, with
        y and X, for the pictures.
    title : str, optional
        By default made from the name of y.
    about : dict, optional
        What else should be said about how it was computed, for example ``{"file": "bike.csv"}``.
    seconds : dict, optional
        How long each method took to fit, by name, for the table of methods.
    json_path : path, optional
        Where to write the same content as JSON, see :func:`~icqr.reporting.summarize`; infinity is "Infinity".

    Returns
    -------
    Path
        That of the HTML file.

    Examples
    --------
    >>> from icqr.auditing import audit
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checked = audit([1.0, 2.0, 3.0], [[0, 2], [0, 1], [2, 4]], coverage=0.5)
    ...     "Too few rows to tell" in report(checked, Path(folder, "report.html")).read_text(encoding="utf-8")
    True
    """
    page_path = _checked_path("path", path)
    numbers_path = None if json_path is None else _checked_path("json_path", json_path)
    jinja2 = imported("jinja2", "reports need", "icqr[report]")
    from icqr.reporting.pictures import pictures_of  # not above: a summary needs no matplotlib

    evidence = gather(subject, y, X, methods)
    summary = summary_of(evidence, title, about, seconds)
    numbers = as_json(summary)

    # Regions, if there are any, are at the top for want of groups; their tables are numbered as methods are.
    tables = tables_of(summary)
    region_tables = {method: f"regions-{place}" for place, method in enumerate(evidence.audits)}
    region_tables = {method: name for method, name in region_tables.items() if len(tables[name].rows) > 1}
    main_regions = None if "coverage_by_group" in tables else region_tables.get(evidence.main)

    style, script, template = (
        resources.files("icqr.reporting").joinpath(name).read_text(encoding="utf-8")
        for name in ("style.css", "script.js", "template.html")
    )
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["unbroken"] = unbroken
    # Only what is marked as safe is not escaped: our own files, matplotlib's pictures, and JSON without markup.
    page = environment.from_string(template).render(
        summary=summary,
        status=STATUS_WORDS[summary["verdict"]["status"]],
        tables=tables,
        pictures=pictures_of(evidence, summary),
        main=evidence.main,
        others=other_methods(summary),
        without=without,
        main_regions=main_regions,
        other_regions=[name for name in region_tables.values() if name != main_regions],
        style=style,
        script=script,
        # The page's policy lets only the script with this hash run.
        script_hash="sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        data=numbers.translate(_NOT_IN_A_PAGE),
    )
    for file, text in ((numbers_path, numbers), (page_path, page.lstrip())):
        if file is not None:
            with replacing(file) as part, part.open("x", encoding="utf-8", errors="replace", newline="\n") as stream:
                stream.write(text)
    return page_path


def without(sheet: Sheet, labels: list[str]) -> Sheet:
    """Return a table without the columns of these labels."""
    return sheet.select(column.label for column in sheet.columns if column.label not in labels)


def _checked_path(name: str, path: str | os.PathLike[str]) -> Path:
    """Return the path, or say before any work is done why nothing can be written there."""
    file = Path(path).expanduser()
    if file.is_dir():
        raise IsADirectoryError(f"{name} must be a file, got the folder {file}; add a name: {file / 'report.html'}")
    if not file.parent.is_dir():
        raise FileNotFoundError(f"{name} must be in a folder that exists, got {file}; make {file.parent} first")
    return file
