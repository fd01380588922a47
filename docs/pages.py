"""Run the code in a page, and show what it gives. The site is built with this, and the tests run it on every page."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import shlex
import tempfile
import textwrap
import warnings
from pathlib import Path
from typing import Any

import example_files
import matplotlib as mpl
import pandas as pd
import pictures

from icqr.cli import main
from icqr.plots import figure_to_svg

#: A fenced block that does something: Python, commands, or a picture by its name in `pictures`. What a quiet one prints
#: is not shown.
BLOCK = re.compile(r"^```(python|console|\{picture\} \w+)( quiet)?\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)

#: Columns of the terminal that the pages show.
WIDTH = 88


def run(text: str, name: str) -> str:
    """Return a page's text with what each block gives below it.

    Blocks run in order, and share their names. They find the example files in the working folder, which is gone
    afterwards. A warning is an error.
    """
    if not BLOCK.search(text):
        return text
    names: dict[str, Any] = {"__name__": "__main__"}

    def with_result(block: re.Match[str]) -> str:
        kind, quiet, code = block.groups()
        if kind.startswith("{picture}"):
            return _raw(figure_to_svg(getattr(pictures, kind.split()[1])(), title=code.strip()))
        if kind == "console":
            result = _text(_run_commands(code))
        else:
            line = text.count("\n", 0, block.start()) + 1  # so that a traceback has the page's line
            result = _run_python("\n" * line + code, name, names)
        return block[0] if quiet else block[0] + result

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("error")
        example_files.write(Path(folder))
        # matplotlib's settings are global, and the gallery's scripts change them.
        with mpl.rc_context(mpl.rcParamsDefault | {"backend": "agg"}):
            return BLOCK.sub(with_result, text)


def _run_python(code: str, name: str, names: dict[str, Any]) -> str:
    """Run a block; as in a notebook, show what it prints, and its last line's value."""
    tree = ast.parse(code, name)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    value = None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, name, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), names)
    return _text(printed.getvalue()) + ("" if value is None else _shown(value))


def _shown(value: Any) -> str:
    if hasattr(value, "figure_"):
        return _raw(figure_to_svg(value.figure_))
    if isinstance(value, pd.DataFrame):
        table = value.to_html(classes="table", border=0, float_format=_number, max_rows=10)
        table = re.sub(r"<td>(?=[-+]?[\d.]+<|inf<)", '<td class="number">', table)
        return _raw(f'<div class="pst-scrollable-table-container">{table}</div>')
    return _text(repr(value))


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _run_commands(lines: str) -> str:
    """Run each `$ icqr …` line, and return what a terminal would show; other commands are refused."""
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(printed):
        for line in lines.splitlines():
            prompt, program, *arguments = shlex.split(line)
            if (prompt, program) != ("$", "icqr"):
                raise ValueError(f"a line of a console block must begin with '$ icqr', got {line!r}")
            before, os.environ["COLUMNS"] = os.environ.get("COLUMNS"), str(WIDTH)
            try:
                main(arguments)
            except SystemExit as ended:
                if ended.code:
                    raise RuntimeError(f"{line}\n{printed.getvalue()}") from ended
            finally:
                os.environ.pop("COLUMNS") if before is None else os.environ.update(COLUMNS=before)
    return printed.getvalue()


def _text(output: str) -> str:
    # A terminal would wrap long sentences; tables are narrower.
    lines = [textwrap.fill(line, WIDTH) if len(line) > WIDTH else line for line in output.rstrip().splitlines()]
    return "\n\n```{code-block} text\n:class: output\n\n" + "\n".join(lines) + "\n```" if lines else ""


def _raw(html: str) -> str:
    return f'\n\n```{{raw}} html\n<div class="output">{html}</div>\n```'
