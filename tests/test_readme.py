"""The README's and the site's code runs, block after block; pages are well made; the site builds."""

import ast
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import pages
import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
GENERATED = ("docs/_build", "docs/gallery", "docs/api/generated")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


SITE = [page for page in sorted(ROOT.glob("docs/**/*.md")) if not name_of(page).startswith(GENERATED)]
PAGES = [*sorted(ROOT.glob("*.md")), *SITE]
#: These pages take long to run. `make docs` runs them, too; README and the first steps are run by every test.
SLOW = tuple(name_of(page) for page in SITE if page.parent.name == "howto")
# MAPIE and crepes draw from numpy's global generator.
DRAWING = ("docs/howto/audit.md", "docs/howto/moving.md")


def with_code() -> list[object]:
    params = []
    for page in PAGES:
        if pages.BLOCK.search(page.read_text(encoding="utf-8")):
            name = name_of(page)
            marks = [pytest.mark.slow] * (name in SLOW) + [pytest.mark.draws_globally] * (name in DRAWING)
            params.append(pytest.param(page, marks=marks, id=name))
    return params


@pytest.mark.parametrize("page", with_code())
def test_the_code_in_a_page_runs(page: Path) -> None:
    pytest.importorskip("lightgbm", reason="some pages use LightGBM")
    text = page.read_text(encoding="utf-8")
    assert len(pages.run(text, name_of(page))) >= len(text)


def test_every_part_of_the_site_has_code_that_runs() -> None:
    names = [str(parameter.id) for parameter in with_code()]  # type: ignore[attr-defined]
    assert "README.md" in names
    assert len([name for name in names if name.startswith("docs/howto/")]) >= 12
    assert len([name for name in names if name.startswith("docs/start/")]) >= 3


@pytest.mark.parametrize("page", [README, *SITE], ids=name_of)
def test_no_code_in_a_page_goes_unchecked(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    # Indented blocks would not run.
    assert re.findall(r"^ +```(?:python|console)", text, flags=re.MULTILINE) == []
    openings = re.findall(r"^(`{3,}|:{3,})(.*)\n", text, flags=re.MULTILINE)
    kinds = {re.sub(r"( quiet$|\}.*)", "", kind.strip()) for _, kind in openings if kind}
    allowed = {"python", "console", "shell", "text", "{code-block", "{picture", "{toctree", "{glossary", "{grid"}
    assert kinds <= allowed | {"{grid-item-card", "{note", "{tip", "{figure", "{image"}
    for block in re.findall(r"^```\{code-block\} python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        ast.parse(block)
    shell = re.findall(r"^```(?:\{code-block\} )?shell\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    for line in "".join(shell).splitlines():
        assert re.match(r" +-|([A-Z_]+=\w+ )?(pip install |make \w|python -m |icqr \w)", line), line
        module = re.search(r"python -m (\S+)", line)
        assert module is None or find_spec(module[1]), line


def test_extras_that_pages_name_exist() -> None:
    extras = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for page in [README, *SITE]:
        for names in re.findall(r'pip install (?:-e )?"(?:\.|icqr)\[([\w,]+)\]"', page.read_text(encoding="utf-8")):
            assert all(re.search(rf"^{name} = \[", extras, flags=re.MULTILINE) for name in names.split(",")), names


@pytest.mark.parametrize("target", ["demo", "test", "docs"])
def test_the_readmes_targets_are_in_the_makefile(target: str) -> None:
    assert f"make {target}" in README.read_text(encoding="utf-8")
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)


def test_a_pipeline_goes_inside_a_method() -> None:
    for page in [README, *SITE]:
        forms = re.findall(r"\w*ICQR\(make_pipeline|make_pipeline\([^)\n]*ICQR", page.read_text(encoding="utf-8"))
        assert not forms or forms[0].endswith("ICQR(make_pipeline"), page


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    assert len(links) >= (5 if page == README else 0)
    inside = [link for link in links if "://" not in link]
    assert [link for link in inside if not (page.parent / link).exists()] == []
    for link in set(links) - set(inside):
        parts = urlsplit(link)
        assert (parts.scheme, " " in link, "." in parts.netloc) == ("https", False, True), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_text_below_a_table_is_no_row_of_it(page: Path) -> None:
    assert re.findall(r"^\|.*\n(?!\||$).*", page.read_text(encoding="utf-8"), flags=re.MULTILINE) == []


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "--quiet", "docs", str(tmp_path)]
    build = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)
    assert build.returncode == 0, build.stderr
    for page in ("index", "start/dataframe", "howto/index", "gallery/index", "api/generated/icqr.AutoICQR"):
        assert "<html" in (tmp_path / f"{page}.html").read_text(encoding="utf-8")
