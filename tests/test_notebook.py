"""A first hour in a notebook: every object shows itself in a few lines, with one picture, and nothing warns."""

from __future__ import annotations

import json
import re
import sys
import warnings
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import sklearn

import icqr
from icqr.datasets import make_heteroscedastic

nbformat = pytest.importorskip("nbformat", reason='notebooks need pip install "icqr[test]"')
nbclient = pytest.importorskip("nbclient", reason='notebooks need pip install "icqr[test]"')
pytest.importorskip("ipykernel", reason='notebooks need pip install "icqr[test]"')

#: No output is longer than this, pictures of matplotlib apart.
MOST_CHARACTERS = 15_000

CELLS = {
    "rows": """
        import numpy as np
        import icqr
        from icqr.datasets import make_heteroscedastic
        X, y = make_heteroscedastic(1500, n_features=3, random_state=0, return_X_y=True)
        X_new, y_new = make_heteroscedastic(1500, n_features=3, random_state=1, return_X_y=True)
    """,
    "fit": "model = icqr.ICQR(random_state=0, partition=icqr.KMeansPartition(choose=3), verbose=True).fit(X, y)",
    "quiet fit": "quick = icqr.CQR(random_state=0).fit(X, y)",
    "model": "model",
    "unfitted": "icqr.ICQR()",
    "certificate": "model.certificate()",
    "group shift": "model.group_shift(X_new[X_new['x1'] > 0.5])",
    "calibration": "model.calibration_",
    "groups": "model.groups_",
    "explain": "model.explain(X_new)",
    "audit": "icqr.audit(y_new, model, X_new)",
    "compare": "icqr.compare(y_new, [model, quick], X_new)",
    "plan": "icqr.plan(1000, n_groups=3)",
    "display": """
        from icqr.plots import IntervalDisplay
        display = IntervalDisplay.from_estimator(model, X_new, y_new)
        display
    """,
    "display again": "display",
    "print display": "print(display)",
}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """The outputs of each cell, run by this interpreter: its kernel is known to this test alone."""
    folder: Path = tmp_path_factory.mktemp("jupyter")
    kernel = folder / "kernels" / "here" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel.write_text(json.dumps({"argv": command, "display_name": "here", "language": "python"}))

    cells = [nbformat.v4.new_code_cell("\n".join(map(str.strip, text.strip().splitlines()))) for text in CELLS.values()]
    notebook = nbformat.v4.new_notebook(cells=cells)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("JUPYTER_PATH", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
            patch.setenv(name, str(folder))
        client = nbclient.NotebookClient(notebook, kernel_name="here", timeout=300, coalesce_streams=True)
        client.execute()
    nbformat.validate(notebook)
    return {name: list(cell.outputs) for name, cell in zip(CELLS, notebook.cells, strict=True)}


def shown(outputs: dict[str, list[Any]], cell: str) -> dict[str, Any]:
    """What the last line of a cell shows, by type."""
    (result,) = [output for output in outputs[cell] if output.output_type == "execute_result"]
    return dict(result.data)


def test_no_cell_warns_and_only_the_verbose_fit_prints(outputs: dict[str, list[Any]]) -> None:
    streams = {
        (name, output.name) for name, cell in outputs.items() for output in cell if output.output_type == "stream"
    }
    assert streams == {("fit", "stdout"), ("print display", "stdout")}


def test_no_output_is_long(outputs: dict[str, list[Any]]) -> None:
    for name, cell in outputs.items():
        for output in cell:
            for kind, content in output.get("data", {}).items():
                # scikit-learn's diagram of an unfitted model is its own, and DataFrames are pandas'.
                if kind != "image/png" and name != "unfitted":
                    assert len(content) < MOST_CHARACTERS, (name, kind)
                if kind == "text/plain" and name not in ("groups", "explain"):
                    assert len(content) < 3000, name


def test_progress_leaves_one_line(outputs: dict[str, list[Any]]) -> None:
    (stream,) = outputs["fit"]
    assert stream.text.startswith("ICQR |██████████| 4/4 [")
    assert stream.text.count("\n") == 1


def test_a_model_shows_its_promise_its_groups_and_a_picture(outputs: dict[str, list[Any]]) -> None:
    data = shown(outputs, "model")
    page = data["text/html"]
    assert "1,000 rows to train on, 500 to calibrate with, 3 columns." in page
    assert "Coverage 0.9, group-wise, if new rows come from where the calibration rows came from." in page
    assert page.count("<svg ") == 1
    assert page.count("<tr>") == 4  # heads and three groups
    assert data["text/plain"].startswith("ICQR(partition=KMeansPartition(choose=3)")
    assert "sk-" in shown(outputs, "unfitted")["text/html"]  # scikit-learn's own diagram


def test_what_a_model_says_is_readable(outputs: dict[str, list[Any]]) -> None:
    certificate, shift = shown(outputs, "certificate"), shown(outputs, "group shift")
    assert certificate["text/plain"].startswith("Coverage 0.9, group-wise, if new rows")
    assert certificate["text/html"].count("<svg ") == 1
    assert shift["text/plain"].startswith("The mix of groups has changed (p = ")
    assert "If only the mix has changed, each group keeps its promise" in shift["text/html"]
    assert shown(outputs, "calibration")["text/plain"] == "<Calibration: 500 scores ('cqr') in 3 groups, group-wise>"


def test_judgements_begin_with_their_findings_and_fold_long_tables(outputs: dict[str, list[Any]]) -> None:
    page = shown(outputs, "audit")["text/html"]
    assert page.index("Over all 1,500 rows") < page.index("<details")
    assert re.search(r"<details><summary>Measures \(3\d rows\)</summary>", page)
    assert shown(outputs, "audit")["text/plain"].count("\n") < 10
    page = shown(outputs, "compare")["text/html"]
    assert "<details open><summary>Methods (2 rows)</summary>" in page
    assert shown(outputs, "plan")["text/plain"].startswith("Each of 3 groups with 333 calibration rows")


def test_a_display_is_one_picture_and_a_short_line(outputs: dict[str, list[Any]]) -> None:
    for cell in ("display", "display again"):
        pictures = [output for output in outputs[cell] if "image/png" in output.get("data", {})]
        assert len(pictures) == 1, cell
        assert shown(outputs, cell)["text/plain"] == "<IntervalDisplay: ICQR intervals>"
    (printed,) = outputs["print display"]
    assert printed.text == "<IntervalDisplay: ICQR intervals>\n"


# -- Without a kernel ------------------------------------------------------------------------------------------------


class Tags(HTMLParser):
    """Collects the names of tags, and the text between them."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.names.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def pictures(page: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(f"<svg {part.partition('</svg>')[0]}</svg>") for part in page.split("<svg ")[1:]]


def test_what_comes_from_data_is_escaped() -> None:
    X, y = make_heteroscedastic(600, random_state=0, return_X_y=True)
    evil = "<img src=x onerror=alert(1)>"
    X = X.assign(**{evil: np.where(X["x1"] > 0.5, f"{evil}&" * 50, "b")})
    model = icqr.ICQR(random_state=0, partition=icqr.GroupPartition(evil)).fit(X, y)
    page = model._repr_html_()
    tags = Tags()
    tags.feed(page)
    assert "img" not in tags.names
    assert evil in tags.text
    assert len(page) < MOST_CHARACTERS
    assert model._repr_mimebundle_()["text/html"] == page
    assert "did you mean 0.9?" in model.set_params(coverage=90)._repr_html_()


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (icqr.Naive(random_state=0), "Coverage 0.9, marginal"),
        (icqr.QR(random_state=0), "Nothing is promised: these bounds are not calibrated."),
        (icqr.CQR(random_state=0, symmetric=False), "Dot: promised in the group. Dashed"),
        (icqr.CQR(random_state=0, side="upper", coverage=0.5), "Coverage 0.5"),
        (icqr.AutoICQR(random_state=0), "Coverage about 0.9 in practice"),
        (icqr.ICQR(random_state=0, partition=icqr.KMeansPartition(choose=30, merge=False)), "more groups: see <code>"),
        (icqr.ICQR(random_state=0, partition=icqr.KMeansPartition(choose=30, merge=False)), ">none</td>"),
    ],
    ids=["Naive", "QR", "two offsets", "one side", "cross", "many groups", "no promise"],
)
def test_every_method_shows_itself(model: Any, words: str) -> None:
    X, y = make_heteroscedastic(300, random_state=0, return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # groups that are too small for a promise
        model.fit(X, y)
        page = model._repr_html_()
    assert words in page
    assert len(page) < MOST_CHARACTERS
    for svg in pictures(page):
        width, height = map(float, (svg.attrib["width"], svg.attrib["height"]))
        for text in svg.iter("text"):
            assert 0 <= float(text.attrib["x"]) <= width
            assert 0 <= float(text.attrib["y"]) <= height
        for dot in svg.iter("circle"):
            assert 0 <= float(dot.attrib["cx"]) <= width


def test_the_picture_shows_the_numbers_of_the_table() -> None:
    groups = pd.DataFrame(
        {"group": [0, 1, -1], "n": [40, 40, 0], "promised": [0.9, 0.8, 0.0], "band_lower": 0.8, "band_upper": 1.0}
    )
    page = icqr.calibration.Certificate(0.9, "group-wise", groups, 0.0, 0.85)._repr_html_()
    (svg,) = pictures(page)
    right, left = [float(dot.attrib["cx"]) for dot in svg.iter("circle")]
    ends = [float(text.attrib["x"]) for text in svg.iter("text") if text.text in ("80 %", "100 %")]
    assert ends[0] == left
    assert right == pytest.approx(np.mean(ends))  # 90 % is half-way between 80 % and 100 %


def test_scikit_learns_setting_for_text_is_kept() -> None:
    X, y = make_heteroscedastic(100, random_state=0, return_X_y=True)
    model = icqr.CQR(random_state=0).fit(X, y)
    with sklearn.config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert "text/html" not in model._repr_mimebundle_()


def test_a_display_that_pyplot_does_not_know_shows_itself() -> None:
    from icqr.plots import ReliabilityDisplay, blank_axes

    X, y = make_heteroscedastic(100, random_state=0, return_X_y=True)
    model = icqr.CQR(random_state=0).fit(X, y)
    display = ReliabilityDisplay.from_estimator(model, X, y, ax=blank_axes())
    assert display._repr_png_()[1:4] == b"PNG"
    del display.ax_
    assert display._repr_png_() is None
    assert repr(display) == "<ReliabilityDisplay: not drawn yet: call plot()>"
