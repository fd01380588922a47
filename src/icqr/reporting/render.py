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
from icqr._sheet import unbroken
from icqr.auditing.findings import as_json
from icqr.reporting.report_tables import tables_of
from icqr.reporting.summary import STATUS_WORDS, Subject, gather, summary_of

#: So many sentences are shown at once, of one method or a comparison and of each of several; the others on demand.
MOST_SENTENCES, MOST_OF_EACH = 8, 3
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

    It begins with the verdict in one sentence and the table of methods; then come coverage by group, the worst regions
    in words, the groups with their rules and offsets, how they were chosen, importance, the choice of k, widths, and
    how all of it was computed. Parts for which nothing was given are left out. Of several models the first with more
    than one group is shown in detail. The file is written under another name and renamed at the end, so that an error
    leaves an older report as it was.

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
        tables=tables_of(summary),
        pictures=pictures_of(evidence, summary),
        main=evidence.main,
        most_sentences=MOST_SENTENCES,
        most_of_each=MOST_SENTENCES if len(evidence.audits) < 2 else MOST_OF_EACH,
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


def _checked_path(name: str, path: str | os.PathLike[str]) -> Path:
    """Return the path, or say before any work is done why nothing can be written there."""
    file = Path(path).expanduser()
    if file.is_dir():
        raise IsADirectoryError(f"{name} must be a file, got the folder {file}; add a name: {file / 'report.html'}")
    if not file.parent.is_dir():
        raise FileNotFoundError(f"{name} must be in a folder that exists, got {file}; make {file.parent} first")
    return file
