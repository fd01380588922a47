"""A user's files as tables: formats, separators, compression, encodings, dates; and files that are refused."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icqr.cli import main
from icqr.cli.options import TextFormat, TrainingRows
from icqr.cli.reading import UserTable, read_data, read_rows

FRAME = pd.DataFrame(
    {
        "size": [50.5, 70.25, np.nan, 120.0],
        "rooms": [2, 3, 3, 5],
        "city": ["Bern", "Genève", None, "Zürich"],
        "new": [True, False, False, True],
        "sold": pd.to_datetime(["2024-01-01", "2024-01-02", "2024-02-29", "2024-12-31"]),
        "price": [500.0, 650.5, 700.25, 1200.0],
    }
)


def text_of(frame: pd.DataFrame, **options: Any) -> str:
    return str(frame.to_csv(index=False, **options))


def zipped(content: bytes, name: str = "data.csv") -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return sink.getvalue()


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., UserTable]:
    """Read bytes or text as a file without an ending: the content decides."""
    monkeypatch.chdir(tmp_path)

    def read_content(content: bytes | str, written: dict[str, Any] | None = None, **wanted: Any) -> UserTable:
        Path("data").write_bytes(content.encode() if isinstance(content, str) else content)
        return read_data("data", TextFormat(**(written or {})), **wanted)

    return read_content


Read = Callable[..., UserTable]

# -- Formats ---------------------------------------------------------------------------------------------

CSV = text_of(FRAME).encode()
FORMATS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "csv": (CSV, {}),
    "semicolon, decimal comma": (text_of(FRAME, sep=";", decimal=",").encode(), {"decimal": ","}),
    "semicolon, decimal point": (text_of(FRAME, sep=";").encode(), {}),
    "tab": (text_of(FRAME, sep="\t").encode(), {}),
    "bar": (text_of(FRAME, sep="|").encode(), {}),
    "blank": (text_of(FRAME, sep=" ", na_rep="NA").encode(), {}),
    "blanks, latin-1": (FRAME.to_string(index=False).encode("latin-1"), {"encoding": "latin-1"}),
    "byte order mark": (text_of(FRAME).encode("utf-8-sig"), {}),
    "utf-16": (text_of(FRAME, sep="\t").encode("utf-16"), {}),
    "utf-32": (text_of(FRAME).encode("utf-32"), {}),
    "utf-16 without a mark": (text_of(FRAME).encode("utf-16-le"), {"encoding": "utf-16-le"}),
    "latin-1": (text_of(FRAME).encode("latin-1"), {"encoding": "latin-1"}),
    "all quoted": (text_of(FRAME, quoting=1).encode(), {}),
    "windows line ends": (CSV.replace(b"\n", b"\r\n"), {}),
    "blank lines": (CSV.replace(b"\n", b"\n\n"), {}),
    "gzip": (gzip.compress(CSV), {}),
    "parquet": (FRAME.to_parquet(), {}),
    "parquet in gzip": (gzip.compress(FRAME.to_parquet()), {}),
    "json lines": (
        FRAME.assign(sold=FRAME["sold"].astype(str)).to_json(orient="records", lines=True).encode(),
        {},
    ),
}


@pytest.mark.parametrize("how", [*FORMATS, "feather"])
def test_the_same_table_from_every_format(how: str, read: Read) -> None:
    if how == "feather":
        FRAME.to_feather("feather")
        content, written = Path("feather").read_bytes(), {}
    else:
        content, written = FORMATS[how]
    table = read(content, written)
    pd.testing.assert_frame_equal(table.frame, FRAME, check_dtype=False)
    assert table.frame.dtypes[["size", "sold", "price"]].astype(str).tolist() == [
        "float64",
        "datetime64[us]",
        "float64",
    ]
    assert table.notes == ["column 'sold' holds dates"]


@pytest.mark.parametrize("how", ["csv", "gzip", "parquet", "json lines"])
def test_standard_input_is_told_apart_by_content(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(FORMATS[how][0])))
    table = read_data("-", TextFormat())
    assert table.name == "standard input"
    assert table.frame["price"].tolist() == FRAME["price"].tolist()


def test_a_pipe_that_can_not_be_rewound() -> None:
    read, write = os.pipe()
    with os.fdopen(write, "wb") as stream:
        stream.write(CSV)
    assert len(read_data(f"/dev/fd/{read}", TextFormat()).frame) == 4
    os.close(read)


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        ("a,b\n1,2\n", ["a", "b"]),
        ("a;b\n1.5;2\n", ["a", "b"]),
        ('"a;x",b\n1,2\n', ["a;x", "b"]),
        ("a\n1\n", ["a"]),
        ("a b|c d\n1|2\n", ["a b", "c d"]),
        ("name,note\nBern,a;b;c\nGenf,d;e;f\n", ["name", "note"]),
        ("a b c\n1 2 3\n", ["a", "b", "c"]),
        ("  size   z  price\n  0.006   5   24.0\n 12.500  10    9.7  \n", ["size", "z", "price"]),
        ('mpg  hp\tname\n18.0   8\t"buick skylark"\n15.0   7\t"ford"\n', ["mpg", "hp", "name"]),  # tabs are blanks
        ("a;b,c\n1.5  2;3\n", ["a", "b,c"]),
        ("Order Date,size\n2024-01-01 00:00,5\n", ["Order Date", "size"]),
        ("a,   b,   c\n1,   2,   3\n", ["a", "b", "c"]),
        ("a b\tc d\n1 x\t2 y\n", ["a b", "c d"]),
    ],
)
def test_the_separator_is_found(content: str, columns: list[str], read: Read) -> None:
    assert list(read(content).frame) == columns


@pytest.mark.parametrize("content", ["1;x\n2;y\n", " 1   x\n 2   y\n", '1 "x"\n2 "y"\n'])
def test_without_a_header(content: str, read: Read) -> None:
    table = read(content, {"no_header": True})
    assert table.frame.to_dict("list") == {"column 1": [1, 2], "column 2": ["x", "y"]}


def test_a_column_without_a_name_is_not_its_number(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("1;2\n3;4\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"there is no column '2'; .*; did you mean 'column 2'\?"):
        read_rows(str(tmp_path / "data"), TrainingRows(target="2"), TextFormat(no_header=True))


@pytest.mark.parametrize("content", ["1,5;2,5\n3,5;4,5\n", " 1,5   2,5\n 3,5   4,5\n"])
def test_a_comma_that_is_the_decimal_sign_does_not_separate(content: str, read: Read) -> None:
    table = read(content, {"no_header": True, "decimal": ","})
    assert table.frame.to_dict("list") == {"column 1": [1.5, 3.5], "column 2": [2.5, 4.5]}


def test_blanks_and_line_ends_in_a_quoted_field(read: Read) -> None:
    table = read('size  city           price\n1  "New  York"   3\n2  "Los\nAngeles"  4\n3  Rome  5\n')
    assert table.frame["city"].tolist() == ["New  York", "Los\nAngeles", "Rome"]
    assert table.frame["price"].tolist() == [3, 4, 5]


# -- Values ----------------------------------------------------------------------------------------------


def test_values_as_people_write_them(read: Read) -> None:
    table = read(',a, b,"c, d",e\n0,1,?,"x\ny",NA\n1,n.a.,2.5,z,NA\n2,3,4,,NA\n3,4,5,z,NA\n')
    assert list(table.frame.columns) == ["column 1", "a", "b", "c, d", "e"]
    assert table.frame["b"].tolist()[1:] == [2.5, 4.0, 5.0]
    assert table.frame["b"].isna()[0]
    assert table.frame["c, d"][0] == "x\ny"
    assert table.frame["c, d"].isna().tolist() == [False, False, True, False]
    assert table.frame["e"].dtype == float
    assert table.frame["e"].isna().all()
    assert table.notes == [
        "column 'a' is taken as text: 3 of its 4 values are numbers, but not 'n.a.'. If that means a missing value, "
        "say --missing n.a."
    ]


def test_texts_that_mean_a_missing_value(read: Read) -> None:
    content = "a;b;c;d\n12,5;-;2024-03-01;x\n unknown ;3;not yet;unknown\n14;-999;2024-03-02;-\n"
    table = read(content, {"decimal": ",", "missing": ["unknown", "-", "-999", "not yet"]})
    assert table.frame["a"].tolist()[::2] == [12.5, 14.0]
    assert table.frame.isna().to_numpy().tolist() == [[0, 1, 0, 0], [1, 0, 1, 1], [0, 1, 0, 1]]
    assert read(content, {"decimal": ",", "missing": ["unknown", "-"]}, keep=["a"]).kept["a"].isna().tolist() == [
        *(False, True, False)
    ]


@pytest.mark.parametrize(
    ("values", "written", "noted"),
    [
        (["1", "2", "3", "unknown", "1.5"], {}, "4 of its 5 values are numbers, but not 'unknown'. If that means a m"),
        (
            ["unknown", "1,250", "906", "2,300", "71"],
            {},
            "4 of its 5 values may be numbers, like '1,250', but not 'unkn",
        ),
        (
            ["12.5", "3.25", "7.0"],
            {"decimal": ","},
            "3 of its 3 values may be numbers, like '12.5'. --decimal and --thousan",
        ),
        (["unknown", "1,250", "906"], {"thousands": ","}, "2 of its 3 values are numbers, but not 'unknown'. If that"),
        (["N.A.", "1,5", "2", "3", "not known"], {"decimal": ","}, "say --missing N.A. --missing 'not known'"),
        (["-", "1", "2"], {}, "but not '-'. If that means a missing value, say --missing -"),
        (["1 kg", "1", "2"], {}, "2 of its 3 values are numbers, but not '1 kg'"),
        ([*"abcdefg", *"12345678"], {}, "8 of its 15 values are numbers, but not 'a', 'b', 'c' …"),
        (
            ["unknown", *(f"{n} kg" for n in range(3, 40))],
            {},
            "look like numbers, for example '3 kg'; numbers are read without",
        ),
        (["unknown", *(f"1,{n} kg" for n in range(10, 40))], {}, "look like numbers, for example '1,10 kg'; numbers"),
        (["n/a?", "31.12.2024", "01.01.2025"], {}, "are dates, but not 'n/a?'. If that means a missing value, say --m"),
    ],
)
def test_a_note_has_examples_of_what_it_says(
    values: list[str], written: dict[str, Any], noted: str, read: Read
) -> None:
    content = "\n".join(["a;b", *(f"{value};1" for value in values)])
    (note,) = read(content, written).notes
    assert note.startswith("column 'a' is taken as text")
    assert noted in note


def test_a_column_is_kept_as_text(read: Read) -> None:
    assert read("code,price\n007,1\n010,2\n").frame["code"].tolist() == [7, 10]
    assert read("code,price\n007,1\n010,2\n", as_text=["code"]).frame["code"].tolist() == ["007", "010"]
    parquet = pd.DataFrame({"code": [7, 10]}).to_parquet()
    assert read(parquet, as_text=["code"]).frame["code"].tolist() == ["7", "10"]


def test_kept_columns_are_as_the_file_has_them(read: Read) -> None:
    lines = ["id;day;flag;long; price;note", "007;2024-03-31;true;12345678901234567890;12,50;NA", "12;n/a;;1;?;x"]
    keep = ["note", "id", "day", "flag", "long", "price"]
    table = read("\n".join(lines), {"decimal": ","}, keep=keep, only=["price"])
    assert list(table.kept) == keep
    assert table.kept.astype(object).fillna("").to_dict("list") == {
        "id": ["007", "12"],
        "day": ["2024-03-31", "n/a"],
        "flag": ["true", ""],
        "long": ["12345678901234567890", "1"],
        "price": [12.5, ""],
        "note": ["NA", "x"],
    }
    assert table.frame["price"].tolist()[0] == 12.5
    assert list(table.frame) == ["price"]
    assert table.unused == ["id", "day", "flag", "long", "note"]

    columns = {"id": [7, 2**62], "day": pd.to_datetime(["2024-03-31", None])}
    pd.DataFrame(columns, index=[5, 6]).to_parquet("data.parquet")
    for name in ("data.parquet", "*.parquet"):
        kept = read_data(name, TextFormat(), keep=["day", "id"]).kept
        assert kept["id"].tolist() == [7, 2**62]
        assert kept["day"][0] == pd.Timestamp("2024-03-31")


def test_columns_that_are_not_wanted_may_be_anything(read: Read) -> None:
    content = "a,day,b,b\n1,05/06/2023,1,2\n"
    table = read(content, only=["a"])
    assert table.frame.to_dict("list") == {"a": [1]}
    assert table.names == ["a", "day", "b"]
    with pytest.raises(ValueError, match="columns of the same name: 'b'"):
        read(content, only=["a"], keep=["b"])
    with pytest.raises(ValueError, match="say how they are written"):
        read(content, only=["a", "day"])


@pytest.mark.parametrize(
    ("values", "written", "expected"),
    [
        (["12,5", "20", "-3,25"], {"decimal": ","}, [12.5, 20, -3.25]),
        (["1,250", "906", "12,000,000.5"], {"thousands": ","}, [1250, 906, 12e6 + 0.5]),
        (["1.250", "906", "1.250,5"], {"thousands": "."}, [1250, 906, 1250.5]),
        (["1'250", "906", "1'250.5"], {"thousands": "'"}, [1250, 906, 1250.5]),
        (["1,250", "906"], {"decimal": "."}, ["1,250", "906"]),
        (["1,250", "x"], {"thousands": ","}, ["1,250", "x"]),
    ],
)
def test_decimal_sign_and_thousands(values: list[str], written: dict[str, Any], expected: list, read: Read) -> None:
    content = "\n".join(["a;b", *(f'"{value}";1' for value in values)])
    assert read(content, written).frame["a"].tolist() == expected


@pytest.mark.parametrize("value", ["12,5", "1,250", "1'250", "1.250.000", "1,250.5"])
def test_numbers_that_can_be_read_in_two_ways_are_refused(value: str, read: Read) -> None:
    with pytest.raises(
        ValueError, match=r"column 'a' holds numbers like .*; say --decimal , if a comma is the decimal"
    ):
        read(f'a;b\n"{value}";1\n20;2\n')


def test_numbers_with_another_sign_than_was_said_are_text(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("size;price\n1,5;20.5\n", encoding="utf-8")
    rows = TrainingRows(target="price")
    with pytest.raises(
        ValueError, match=r"must hold numbers, but 1 of 1 values are text, for example '20\.5' in row 0"
    ):
        read_rows(str(tmp_path / "data"), rows, TextFormat(decimal=","))


@pytest.mark.parametrize(
    ("values", "noted"),
    [
        (["6.139", "906", "1.506", "12.000"], True),
        (["6.139", "906", "NA", "1.506", "12.000"], True),
        (["6.139", "906", "1.5", "12.000"], False),  # a decimal
        (["6.139", "9.061", "1.506", "12.000"], False),  # three digits throughout, as instruments write
        (["0.139", "906", "0.506", "0.125"], False),
        (["6.139", "9061", "1.506", "12.000"], False),
        (["6.139", "906", "x", "12.000"], False),
    ],
)
def test_a_point_that_may_separate_thousands_is_noted(values: list[str], noted: bool, read: Read) -> None:
    content = "\n".join(["a;b", *(f"{value};1" for value in values)])
    notes = [text for text in read(content).notes if "thousands" in text]
    expected = f"column 'a': {values[0]!r} is read as 6.139, and '906' as 906. If the point separates thousands"
    assert [text.startswith(expected) for text in notes] == [True] * noted
    assert not [text for text in read(content, only=["b"]).notes if "'a'" in text]
    assert not [text for text in read(content, {"decimal": "."}).notes if "thousands" in text]


# -- Dates -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dates", "written", "first", "second"),
    [
        (["31.01.2024", "01.02.2024"], "%d.%m.%Y", "2024-01-31", "2024-02-01"),
        (["01/31/2024 12:00", "02/01/2024 00:00"], "%m/%d/%Y %H:%M", "2024-01-31 12:00", "2024-02-01"),
        (["20240131T000000", "20240201T120000"], "%Y%m%dT%H%M%S", "2024-01-31", "2024-02-01 12:00"),
        (["01/31/2024 12:00 PM", "02/01/2024 12:00 AM"], "%m/%d/%Y %I:%M %p", "2024-01-31 12:00", "2024-02-01"),
        (["31 Jan 2024", "1 Feb 2024"], "%d %b %Y", "2024-01-31", "2024-02-01"),
        (["2024-01-31T06:00:00Z", "2024-02-01T01:00+0100"], None, "2024-01-31 06:00", "2024-02-01"),
        (["2024-01-31T06:00:00.123456789", "2024-02-01T00:00:00"], None, "2024-01-31 06:00:00.123456", "2024-02-01"),
        (["2024-01-31", ""], None, "2024-01-31", None),
    ],
)
def test_dates_are_read(dates: list[str], written: str | None, first: str, second: str | None, read: Read) -> None:
    table = read(text_of(pd.DataFrame({"d": dates, "y": 1})), {"date_format": written})
    expected = pd.Series([pd.Timestamp(first), pd.Timestamp(second)], dtype="datetime64[us]", name="d")
    pd.testing.assert_series_equal(table.frame["d"], expected)
    assert table.notes == [f"column 'd' holds dates{'' if written is None else f' ({written})'}"]


@pytest.mark.parametrize(
    ("dates", "written", "said"),
    [
        (["01/31/2024 12:00 PM", "02/01/2024 12:00 AM"], None, "say how they are written, for example --date-format"),
        (
            ["01/02/2024", "02/03/2024"],
            None,
            "dates like '01/02/2024'; say how they are written, for example --date-format",
        ),
        (
            ["31.01.2024", "01.02.2024"],
            None,
            "dates like '31.01.2024'; say how they are written, for example --date-format",
        ),
        (
            ["31/01/2024", "01/02/2024", "01/31/2024"],
            "%d/%m/%Y",
            "but '01/31/2024' can't be read as --date-format %d/%m/%Y",
        ),
        (["2024-03-01", "0000-00-00", "2024-03-02"], None, "but '0000-00-00' can't be read as 2024-03-31"),
    ],
)
def test_dates_that_can_not_be_told_are_refused(dates: list[str], written: str | None, said: str, read: Read) -> None:
    with pytest.raises(ValueError, match="column 'd' holds dates") as error:
        read(text_of(pd.DataFrame({"d": dates, "y": 1})), {"date_format": written})
    assert said in str(error.value)


def test_text_dates_in_parquet_are_read(read: Read) -> None:
    table = read(pd.DataFrame({"d": ["2024-01-31", "2024-02-01"], "y": 1}).to_parquet())
    assert table.frame["d"].tolist() == [pd.Timestamp("2024-01-31"), pd.Timestamp("2024-02-01")]
    assert table.notes == ["column 'd' holds dates"]


def test_dates_with_another_text_among_them_are_noted(read: Read) -> None:
    table = read("d,y\n2024-01-31,1\nunknown,2\n2024-02-01,3\n")
    assert table.frame["d"].tolist() == ["2024-01-31", "unknown", "2024-02-01"]
    assert table.notes == [
        "column 'd' is taken as text: most of its values are dates, but not 'unknown'. If that means a missing value, "
        "say --missing unknown"
    ]
    assert read("d,y\n2024-01-31,1\nunknown,2\n", {"missing": ["unknown"]}).frame["d"].isna().tolist() == [False, True]


@pytest.mark.parametrize(
    ("form", "what"),
    [
        ("{:.1f} m2", "numbers, for example '3.0 m2'; numbers are read without unit and currency sign"),
        ("€{:.0f}", "numbers, for example '€3'"),
        ("{:.0f}%", "numbers, for example '3%'"),
        ("01/{:02.0f}/21", "dates, for example '01/03/21'; say --date-format if they are"),
        ("Jan {:02.0f}, 2021", "dates, for example 'Jan 03, 2021'"),
        ("A{:.0f}", None),
        ("{:.0f} Main St", None),
        ("{:.0f}:30", None),
    ],
)
def test_numbers_and_dates_in_a_form_that_is_not_read_are_noted(form: str, what: str | None, read: Read) -> None:
    frame = pd.DataFrame({"c": [form.format(n) for n in range(3, 30)], "y": 1})
    table = read(text_of(frame))
    assert table.frame["c"].tolist() == frame["c"].tolist()
    noted = [text.partition("column 'c' is taken as text, but its values look like ")[2] for text in table.notes]
    assert len(noted) == (what is not None)
    assert all(text.startswith(str(what)) for text in noted)


@pytest.mark.parametrize(
    ("values", "written", "said"),
    [
        (
            ["unknown", "1", "2"],
            {},
            "1 of 3 values are text, for example 'unknown' in row 0, counted from 0; say --missing",
        ),
        (["294,40", "1.250,50"], {"decimal": ","}, "1 of 2 values are text, for example '1.250,50' in row 1"),
        (["1", "12 kg"], {}, "'12 kg' in row 1, counted from 0; numbers are read without unit and currency sign"),
        (
            ["20.5", "1,5"],
            {"decimal": ","},
            "'20.5' in row 0, counted from 0; --decimal and --thousands say which signs",
        ),
    ],
)
def test_text_in_the_target(values: list[str], written: dict[str, Any], said: str, tmp_path: Path) -> None:
    """The example is a value that can't be read, and the advice is about it."""
    (tmp_path / "data").write_text("\n".join(["a;price", *(f"1;{value}" for value in values)]), encoding="utf-8")
    with pytest.raises(ValueError, match="column 'price' must hold numbers") as error:
        read_rows(str(tmp_path / "data"), TrainingRows(target="price"), TextFormat(**written))
    assert said in str(error.value)


def test_versions_and_numbers_are_no_dates(read: Read) -> None:
    frame = pd.DataFrame({"version": ["1.2.3", "10.0.1"], "year": [2023, 2024], "y": 1})
    table = read(text_of(frame))
    pd.testing.assert_frame_equal(table.frame, frame, check_dtype=False)
    assert table.notes == []


def test_kinds_of_columns_in_parquet(tmp_path: Path) -> None:
    columns = {
        "decimal": pa.array([1, 2], pa.decimal128(10, 2)),
        "category": pa.array(["a", "b"]).dictionary_encode(),
        "half true": pa.array([True, None]),
        "empty": pa.nulls(2),
        "zoned": pa.array([0, 43_200], pa.timestamp("s", "Europe/Berlin")),
        "day": pa.array([1, None], pa.date32()),
        "time": pa.array([0, 43_200], pa.time32("s")),
        "duration": pa.array([86_400, None], pa.duration("s")),
        "small": pa.array([1, None], pa.uint8()),
        "__index_level_0__": pa.array([5, 6]),
    }
    pq.write_table(pa.table(columns), tmp_path / "data.parquet")
    table = read_data(str(tmp_path / "data.parquet"), TextFormat())
    values = {name: table.frame[name].astype(object) for name in table.frame}
    assert {name: column.where(column.notna(), -1).tolist() for name, column in values.items()} == {
        "decimal": [1.0, 2.0],
        "category": ["a", "b"],
        "half true": [1.0, -1.0],
        "empty": [-1.0, -1.0],
        "zoned": [pd.Timestamp("1970-01-01"), pd.Timestamp("1970-01-01 12:00")],
        "day": [pd.Timestamp("1970-01-02"), -1],
        "time": [0.0, 0.5],
        "duration": [1.0, -1.0],
        "small": [1.0, -1.0],
    }
    assert [note.partition(":")[0] for note in table.notes] == [
        "column 'zoned' holds dates",
        "column 'day' holds dates",
        "column 'time' holds times of day",
        "column 'duration' holds durations",
    ]


# -- Hostile files: one line, no traceback ---------------------------------------------------------------


WIDE = b",".join(b"c%d" % i for i in range(10_001)) + b"\n"
HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "data is empty; a table with a line of column names is needed"),
    "only blank lines": (lambda: b"\n \n\n", "data is empty"),
    "only a mark": (lambda: b"\xef\xbb\xbf", "data"),
    "header only": (lambda: b"a,b,price\n", "has a header but no rows"),
    "header without an end": (lambda: b"a,b,price", "has a header but no rows"),
    "a short row": (lambda: b"a,b,price\n1,2,3\n4,5\n", "can't be read as CSV: Row #3: Expected 3 columns, got 2: 4,5"),
    "a short row among blanks": (lambda: b" a  price\n 1  2\n 3\n", "Row #3: Expected 2 columns, got 1: 3"),
    "a huge field among blanks": (lambda: b"a  price\n" + b"x" * (1 << 24) + b"  1\n", "can't be read as CSV"),
    "a long row": (lambda: b"a,b,price\n1,2,3\n4,5,6,7\n", "Row #3: Expected 3 columns, got 4"),
    "a short row late": (
        lambda: b"a,price\n" + b"1,2\n" * 3_000_000 + b"1\n",
        "Row #3000002: Expected 2 columns, got 1",
    ),
    "rows longer than the header": (lambda: b"a,price\n1,2,3\n4,5,6\n", "Expected 2 columns, got 3"),
    "text before the header": (lambda: b"Export of 2024\n\na,price\n1,2\n", "Expected 1 columns, got 2"),
    "an open quotation mark": (lambda: b'a,price\n"1,2\n3,4\n', "can't be read as CSV"),
    "quotation marks of two kinds": (lambda: b"a,price\n'1,5',2\n", "Expected 2 columns, got 3"),
    "names that appear twice": (lambda: b"a,b,a,price\n1,2,3,4\n", "has columns of the same name: 'a'; rename them"),
    "names that differ in spaces": (lambda: b"a, a,price\n1,2,3\n", "has columns of the same name: 'a'"),
    "no header": (lambda: b"1,2\n3,4\n", "is a row and not the columns' names, say --no-header"),
    "one column": (lambda: b"price\n1\n2\n", "has no column beside the target 'price'"),
    "another separator": (lambda: b"a:price\n1:2\n", "there is no column 'price'; columns are 'a:price'"),
    "a million columns": (
        lambda: b",".join(b"c%d" % i for i in range(10**6)) + b"\n" + b",".join([b"1"] * 10**6),
        "has more than 10,000 columns",
    ),
    "slightly too many columns": (lambda: WIDE, "has more than 10,000 columns (10,001)"),
    "a huge field": (lambda: b"a,price\n" + b"x" * (1 << 24) + b",1\n", "can't be read as CSV"),
    "a huge line without an end": (lambda: b"x" * (1 << 24), "can't be read as CSV"),
    "NUL bytes": (lambda: b"a,price\n1,\x002\n", "is not text, Parquet or Feather"),
    "latin-1": (
        lambda: "a,price\nGenève,1\n".encode("latin-1"),
        "is not UTF-8 (row #2); say what it is",
    ),
    "latin-1 in the header": (lambda: "größe,price\n1,2\n".encode("latin-1"), "is not UTF-8 (row #1)"),
    "cut UTF-16": (lambda: "a,price\n1,2\n".encode("utf-16")[:-1], "data"),
    "decimal commas": (lambda: b"a;price\n1,5;2\n2,5;3\n", "column 'a' holds numbers like '1,5'; say --decimal ,"),
    "thousands": (lambda: b'a,price\n"1,250",2\n"2,500",3\n', "column 'a' holds numbers like '1,250'; say --decimal"),
    "dates in doubt": (lambda: b"a,price\n01/02/2024,2\n", "say how they are written, for example --date-format"),
    "text as target": (lambda: b"a,price\n1,high\n2,3\n", "must hold numbers, but 1 of 2 values are text, for example"),
    "units in the target": (lambda: b"a,price\n1,2 m\n2,3 m\n", "numbers are read without unit and currency sign"),
    "noise": (lambda: np.random.default_rng(0).bytes(3000), "is not text, Parquet or Feather"),
    "a picture": (lambda: b"\x89PNG\r\n\x1a\n\x00\x00", "is not text, Parquet or Feather"),
    "a pickle": (lambda: pickle.dumps(FRAME, protocol=4), "is a Python pickle"),
    "an old workbook": (lambda: b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "is an Excel workbook; save it as CSV"),
    "a workbook": (
        lambda: zipped(b"", name="[Content_Types].xml"),
        "or an Excel workbook; unpack it, or save it",
    ),
    "a web page": (lambda: b"<!DOCTYPE html><html>403</html>", "is a web page or XML, not a table"),
    "a zip": (lambda: zipped(CSV), "is a zip archive or an Excel workbook; unpack it, or"),
    "a cut gzip": (lambda: gzip.compress(CSV)[:-20], "is compressed and damaged"),
    "a gzip with a wrong checksum": (lambda: gzip.compress(CSV)[:-8] + bytes(8), "is compressed and damaged"),
    "noise after gzip's mark": (lambda: b"\x1f\x8b" + bytes(range(50)), "is compressed and damaged"),
    "bzip2": (lambda: bz2.compress(CSV), "is packed by bzip2; unpack it first, or pack it by gzip"),
    "xz": (lambda: lzma.compress(CSV), "is packed by xz; unpack it first, or pack it by gzip"),
    "zstd": (lambda: bytes(pa.compress(CSV, codec="zstd", asbytes=True)), "is packed by zstd; unpack it first, or"),
    "a gzip in a gzip": (lambda: gzip.compress(gzip.compress(CSV)), "is not text, Parquet or Feather"),
    "a cut parquet": (lambda: FRAME.to_parquet()[:-20], "can't be read as Parquet"),
    "parquet's mark only": (lambda: b"PAR1PAR1", "can't be read as Parquet"),
    "a cut feather": (lambda: b"ARROW1\x00\x00 and nothing else", "can't be read as Feather"),
    "a JSON list": (lambda: json.dumps([{"a": 1}, {"a": 2}]).encode(), "is a JSON list; JSON lines are read"),
    "cut JSON lines": (lambda: b'{"a": 1}\n{"a', "can't be read as JSON lines"),
    "JSON of two kinds": (lambda: b'{"a": 1}\n{"a": "x"}\n', "Column(/a) changed from number to string in row 1"),
    "nested JSON": (lambda: b'{"a": {"b": 1}, "price": 2}\n', "column 'a' holds values of the kind struct<b: int64>"),
    "deep JSON": (lambda: b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", "line 1 is nested too deep"),
    "a long JSON line": (lambda: b'{"a": "' + b"x" * (1 << 24) + b'"}\n', "line 1 is longer than 8 MB"),
    "infinity": (lambda: b"a,price\n" + b"inf,2\n2,3\n" * 40, "Column 'a' is infinite"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_files_are_refused_in_one_line(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    content, said = HOSTILE[what]
    Path("data").write_bytes(content())
    with pytest.raises(SystemExit) as ended:
        main(["fit", "data", "--target", "price", "--out", "model.icqr"])
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (1, "")
    *notes, error = err.splitlines()
    assert all(line.startswith("note: ") for line in notes)
    assert error.startswith("error: ")
    assert said in error
    assert os.listdir() == ["data"]


@pytest.mark.parametrize("what", ["gzip", "parquet"])
def test_a_bomb_is_refused_within_bounded_memory(what: str, tmp_path: Path) -> None:
    if what == "gzip":  # 300 MB of rows: gzip files one after the other are one
        rows = gzip.compress(b"1,2\n" * (1 << 18))
        (tmp_path / "data").write_bytes(gzip.compress(b"a,price\n") + 300 * rows)
    else:
        table = pa.table({"price": pa.repeat(1.5, 4_000_000)})
        with pq.ParquetWriter(tmp_path / "data", table.schema) as writer:
            for _ in range(10):
                writer.write_table(table)
    code = """
from icqr.cli import main
try:
    main(["fit", "data", "--target", "price", "--out", "model.icqr"])
finally:
    print(*(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "unpack to more than 100 times as many" in done.stderr
    assert int(done.stdout) < 600_000  # kB, of which the libraries take half


def test_an_encoding_that_is_not_known(read: Read) -> None:
    for encoding in ("latin-x", "base64"):
        with pytest.raises(ValueError, match=f"--encoding '{encoding}' is not known"):
            read(CSV, {"encoding": encoding})


def test_a_folder_and_no_file(tmp_path: Path) -> None:
    (tmp_path / "part.csv").touch()
    with pytest.raises(ValueError, match=r"is a folder, which has 'part\.csv'; give a file"):
        read_data(str(tmp_path), TextFormat())
    with pytest.raises(ValueError, match=r"there is no file .*; did you mean '.*/part\.csv'"):
        read_data(str(tmp_path / "party.csv"), TextFormat())
