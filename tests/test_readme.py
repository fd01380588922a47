"""The README's commands and Python run, block after block; pages are well made."""

import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from icqr.cli import main

README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text(encoding="utf-8")
PAGES = sorted([*README.parent.glob("*.md"), *README.parent.glob("docs/**/*.md")])


@pytest.mark.parametrize("fraction", [5, pytest.param(1, marks=pytest.mark.slow)], ids=["fewer rows", "as it stands"])
def test_the_readmes_python_runs(fraction: int) -> None:
    pytest.importorskip("lightgbm", reason="one of the README's examples uses LightGBM")
    blocks = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    assert len(blocks) >= 4
    names: dict[str, object] = {}
    for block in blocks:
        smaller = re.sub("[24]000", lambda found: str(int(found[0]) // fraction), block)
        exec(compile(smaller, str(README), "exec"), names)
    assert names["intervals"].shape == (4000 // fraction, 2)


def test_the_readmes_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    area = rng.uniform(30, 200, 300).round()
    houses = pd.DataFrame({"area": area, "district": rng.choice(["north", "south"], 300)})
    houses.assign(price=(2000 * area * rng.lognormal(0, 0.2, 300)).round()).to_csv("houses.csv", index=False)
    houses.head(20).to_csv("new_houses.csv", index=False)
    commands = re.findall(r"^\$ (.*)$", TEXT, flags=re.MULTILINE)
    assert len(commands) >= 3
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "icqr"
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert not ended.value.code, command
    assert "<html" in Path("report.html").read_text(encoding="utf-8")
    predicted = pd.read_parquet("intervals.parquet")
    assert len(predicted) == 20
    assert (predicted["lower"] <= predicted["upper"]).all()


@pytest.mark.parametrize("target", ["demo", "test"])
def test_the_readmes_targets_are_in_the_makefile(target: str) -> None:
    assert f"make {target}" in TEXT
    assert re.search(rf"^{target}:", (README.parent / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    assert len(links) >= (5 if page == README else 0)
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_text_below_a_table_is_no_row_of_it(page: Path) -> None:
    assert re.findall(r"^\|.*\n(?!\||$).*", page.read_text(encoding="utf-8"), flags=re.MULTILINE) == []
