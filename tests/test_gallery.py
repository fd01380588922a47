"""The gallery's scripts run without a warning and without a network, and each makes a picture."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from matplotlib import pyplot as plt
from matplotlib.testing.compare import compare_images

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "examples").glob("plot_*.py"))
#: These take a second or less; `make test-all` runs all of them.
QUICK = {"plot_calibration_luck", "plot_fan_chart", "plot_importance_weights"}


def marked(script: Path) -> Any:
    return pytest.param(script, id=script.stem, marks=() if script.stem in QUICK else pytest.mark.slow)


@pytest.fixture(autouse=True)
def headless(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(plt, "show", lambda: None)
    monkeypatch.delenv("ICQR_DATA_HOME", raising=False)
    before = plt.get_backend()
    plt.switch_backend("agg")
    yield
    plt.close("all")
    plt.switch_backend(before)


def run(script: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> dict[str, Any]:
    monkeypatch.setattr(sys, "argv", [str(script), *arguments])
    return runpy.run_path(str(script), run_name="__main__")


def test_the_gallery_is_complete() -> None:
    assert len(SCRIPTS) >= 12
    assert {script.stem for script in SCRIPTS} > QUICK


@pytest.mark.parametrize("script", [marked(script) for script in SCRIPTS])
def test_each_script_makes_a_picture(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(script, monkeypatch)
    assert plt.get_fignums()
    for number in plt.get_fignums():
        assert any(axes.has_data() for axes in plt.figure(number).axes)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_each_script_asks_a_question_and_seeds_every_draw(script: Path) -> None:
    code = script.read_text(encoding="utf-8")
    found = re.match(r'"""\n(.+\?)\n(=+)\n\n\S', code)
    assert found, "the first line is a question, underlined"
    assert len(found[1]) == len(found[2])
    assert "# %%" in code
    assert "fetch_" not in code  # these need a network
    assert not re.search(r"default_rng\(\)|make_\w+\((?!.*random_state)", code)


@pytest.mark.slow
def test_the_readmes_picture_is_that_of_the_gallery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = tmp_path / "naive_and_icqr.png"
    run(ROOT / "examples" / "plot_one_width_or_many.py", monkeypatch, str(drawn))
    assert compare_images(str(ROOT / "docs" / "images" / drawn.name), str(drawn), tol=5) is None


@pytest.mark.slow
def test_the_page_of_promises_has_the_simulations_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    table = run(ROOT / "examples" / "plot_what_is_promised.py", monkeypatch)["table"]
    page = (ROOT / "docs" / "understand" / "promises.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| (all rows.*?|the worst.*?) \| .*? \| (.*) \|$", page, flags=re.MULTILINE))
    assert shown == {
        label: " | ".join("–" if number != number else f"{100 * number:.1f}" for number in row)
        for label, row in zip(table.index, table.to_numpy(), strict=True)
    }


# -- Pages in short and their appendices -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["benchmark", "reproduction", "performance"])
def test_a_short_page_has_no_number_that_its_appendix_lacks(name: str) -> None:
    pages = ROOT / "docs" / "understand"
    short, details = ((pages / file).read_text(encoding="utf-8") for file in (f"{name}.md", f"{name}-details.md"))
    numbers = set(re.findall(r"\d+\.\d+", short))
    assert len(numbers) > 40
    assert sorted(numbers - set(re.findall(r"\d+\.\d+", details))) == []
