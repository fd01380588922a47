"""The small table that is shown in a terminal, on a page and in Markdown."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from icqr._sheet import Cell, Column, Sheet, aligned, cell, share

NASTY = "<img src=x onerror=1> | *a* \x1b[31m [red]"


@pytest.fixture
def sheet() -> Sheet:
    columns = [Column("Group", numeric=False), Column("Calibration rows"), Column("Verdict", numeric=False)]
    rows = [
        [cell(NASTY), cell(1204), Cell("undercovers", 0, "under")],
        [cell("group 1"), cell(None), Cell("holds", 2, "holds")],
    ]
    return Sheet(columns, rows, caption="90 % promised <b>", name="groups", groups=[3, -1])


class Cells(HTMLParser):
    """Collects tags with their attributes, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def in_terminal(sheet: Sheet, width: int = 100) -> str:
    rich_console = pytest.importorskip("rich.console")
    console = rich_console.Console(width=width, markup=True, force_terminal=False)
    with console.capture() as capture:
        console.print(sheet.to_rich())
    return str(capture.get())


def test_html_escapes_and_carries_what_scripts_need(sheet: Sheet) -> None:
    page = Cells(sheet.to_html())
    tags = [tag for tag, _ in page.tags]
    assert not {"img", "b"} & set(tags)
    assert NASTY in page.text
    assert "90\u00a0% promised <b>" in page.text
    assert [attributes["data-group"] for tag, attributes in page.tags if "data-group" in attributes] == ["3", "none"]
    values = [attributes["data-value"] for _, attributes in page.tags if "data-value" in attributes]
    assert values == [NASTY, "1204", "0", "group 1", "", "2"]
    assert ("span", {"class": "verdict under"}) in page.tags
    assert [attributes.get("scope") for tag, attributes in page.tags if tag == "th"] == ["col"] * 3 + ["row"] * 2
    assert sheet._repr_html_() == sheet.to_html()


def test_markdown_has_a_line_per_row(sheet: Sheet) -> None:
    lines = sheet.to_markdown().splitlines()
    assert len(lines) == 4
    assert lines[1] == "| --- | ---: | --- |"
    assert r"\<img src=x onerror=1\> \| \*a\*" in lines[2]
    assert lines[3] == "| group 1 | – | ✓ holds |"


def test_terminal_obeys_nothing_in_the_data(sheet: Sheet) -> None:
    text = in_terminal(sheet)
    assert "\x1b" not in text
    assert r"\x1b[31m [red]" in text
    assert "▼ undercovers" in text
    assert "1,204" in in_terminal(sheet, width=30)  # texts are wrapped, numbers never


def test_from_frame() -> None:
    frame = pd.DataFrame(
        {
            "n": pd.array([3, None], dtype="Int64"),
            "width": [0.123456, np.inf],
            "covered": [True, False],
            "day": pd.Series(["2024-01-02", None], dtype="datetime64[ns]"),
            7: ["a", None],
        }
    )
    sheet = Sheet.from_frame(frame, "caption")
    assert [column.numeric for column in sheet.columns] == [True, True, False, False, False]
    assert [entry.text for entry in sheet.rows[0]] == ["3", "0.1235", "yes", "2024-01-02 00:00:00", "a"]
    assert [entry.text for entry in sheet.rows[1]] == ["–", "∞", "no", "–", "–"]
    assert sheet.caption == "caption"
    assert Sheet.from_frame(frame.iloc[:0]).to_markdown().count("\n") == 1


def test_a_part_of_a_sheet(sheet: Sheet) -> None:
    assert [column.label for column in sheet.select(["Verdict", "Group"]).columns] == ["Group", "Verdict"]
    first = sheet.head(1)
    assert (len(first.rows), first.groups) == (1, [3])
    assert len(Sheet(sheet.columns, []).known().columns) == 3
    unknown = Sheet([Column("a"), Column("b"), Column("c")], [[cell(None), cell(None), cell(1)]]).known()
    assert [column.label for column in unknown.columns] == ["a", "c"]


def test_numbers_are_readable_and_sortable() -> None:
    assert [cell(value).text for value in (np.float32(2.5), np.int64(-7), 1e-5, 12345.6)] == [
        "2.5",
        "−7",
        "1e−05",
        "12,346",
    ]
    assert [entry.text for entry in aligned([-0.00001, 1000.0])] == ["0", "1,000"]
    assert [entry.text for entry in aligned([14.36, -0.3017, 0.0, -0.001])] == ["14.36", "−0.30", "0.00", "0.00"]
    assert [entry.text for entry in aligned([1234.5, None, 0.5, np.inf])] == ["1,234", "–", "0", "∞"]
    middle = aligned([0.05, 0.04, 300.0])
    assert [entry.text for entry in middle] == ["0.050", "0.040", "300.000"]  # two digits of the middle one
    assert [entry.value for entry in aligned([14.36, None])] == [14.36, None]  # sorted by all digits
    assert [entry.text for entry in aligned([1e-7, np.inf, np.nan])] == ["1e−07", "∞", "–"]
    assert share(-0.05) == Cell("−5.0\u00a0%", -0.05)
    assert (share(None).value, cell(1.5).value, cell(np.bool_(True)).value) == (None, 1.5, "yes")
