"""The page: the summary, its tables and pictures in one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from icqr._files import replacing
from icqr._messages import imported
from icqr.auditing.findings import as_json
from icqr.reporting.evidence import Evidence, gather
from icqr.reporting.pictures import pictures_of
from icqr.reporting.summary import summary_of
from icqr.reporting.tables import tables_of
from icqr.reporting.verdict import STATUS_WORDS

#: So many sentences are shown at once, of one method or a comparison and of each of several; the others on demand.
MOST_SENTENCES, MOST_OF_EACH = 8, 3
#: What JSON may hold and a web page would read as markup, or an old browser as the end of a line.
_NOT_IN_A_PAGE = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def report(
    subject: Any,
    path: str | os.PathLike[str],
    X: Any = None,
    y: Any = None,
    *,
    methods: Any = None,
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
        A fitted icqr model; several, to be compared; or what :func:`~icqr.auditing.audit` or
        :func:`~icqr.auditing.compare` gives, also for intervals of other libraries.
    path : path
        The HTML file; an existing one is replaced.
    X, y : table and array, optional
        Rows that no model has seen. A model is audited on them. With an audit or a comparison, the rows that it is of.
    methods : model, intervals or dict of these, optional
        With an audit or a comparison: what was audited (by name, if several), for the parts about the model and, with
        X and y, for the pictures.
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
    ...     found = audit([1.0, 2.0, 3.0], [[0, 2], [0, 1], [2, 4]], coverage=0.5)
    ...     "Too few rows to tell" in report(found, Path(folder, "report.html")).read_text(encoding="utf-8")
    True
    """
    target = _checked_path("path", path)
    beside = None if json_path is None else _checked_path("json_path", json_path)
    _need("jinja2")
    evidence = gather(subject, X, y, methods)
    summary = summary_of(evidence, title, about, seconds)
    page = page_of(evidence, summary)
    if beside is not None:
        _write(beside, as_json(summary))
    _write(target, page)
    return target


def page_of(evidence: Evidence, summary: dict[str, Any]) -> str:
    """Give the page as text."""
    style, script = _part("style.css"), _part("script.js")
    markup = _need("markupsafe").Markup
    pictures = pictures_of(evidence, summary)
    page: str = (
        _template()
        .render(
            summary=summary,
            status=STATUS_WORDS[summary["verdict"]["status"]],
            tables=tables_of(summary),
            pictures={name: one._replace(svg=markup(one.svg)) for name, one in pictures.items()},
            main=evidence.main,
            most_sentences=MOST_SENTENCES,
            most_of_each=MOST_SENTENCES if len(evidence.audits) < 2 else MOST_OF_EACH,
            style=markup(style),
            script=markup(script),
            script_hash=_hash(script),
            data=markup(as_json(summary).translate(_NOT_IN_A_PAGE)),
        )
        .lstrip()
    )
    return page


def _part(name: str) -> str:
    return resources.files("icqr.reporting").joinpath(name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """Give the script's hash: the page's policy lets only the script with this hash run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@cache
def _template() -> Any:
    jinja2 = _need("jinja2")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["words"] = _words
    return environment.from_string(_part("template.html"))


def _words(said: str) -> str:
    """Keep a number and its percent sign on one line."""
    return said.replace(" %", "\u00a0%")


def _need(module: str) -> Any:
    return imported(module, "reports need", "icqr[report]")


# -- Writing ---------------------------------------------------------------------------------------------


def _checked_path(name: str, given: str | os.PathLike[str]) -> Path:
    """Give the path, or say before any work is done why nothing can be written there."""
    path = Path(given).expanduser()
    if path.is_dir():
        raise IsADirectoryError(f"{name} must be a file, got the folder {path}; add a name: {path / 'report.html'}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{name} must be in a folder that exists, got {path}; make {path.parent} first")
    return path


def _write(path: Path, content: str) -> None:
    with replacing(path) as part, part.open("x", encoding="utf-8", errors="replace", newline="\n") as stream:
        stream.write(content)
