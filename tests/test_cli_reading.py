"""A user's files as tables: formats, separators, compression, encodings, dates; and files that are refused."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icqr.cli.dialect import find_dialect
from icqr.cli.reading import MOST_COLUMNS, Wish, read_parquet_files, read_table

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
DAYS = [19723.0, 19724.0, 19782.0, 20088.0]


def text_of(frame: pd.DataFrame, **options: object) -> str:
    return str(frame.to_csv(index=False, **options))


def _zipped(content: bytes) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("folder/data.csv", content)
    return sink.getvalue()


WRITERS: dict[str, Callable[[Path], object]] = {
    "csv": lambda path: path.write_text(text_of(FRAME), encoding="utf-8"),
    "semicolon, decimal comma": lambda path: path.write_text(text_of(FRAME, sep=";", decimal=","), encoding="utf-8"),
    "semicolon, decimal point": lambda path: path.write_text(text_of(FRAME, sep=";"), encoding="utf-8"),
    "tab": lambda path: path.write_text(text_of(FRAME, sep="\t"), encoding="utf-8"),
    "bar": lambda path: path.write_text(text_of(FRAME, sep="|"), encoding="utf-8"),
    "byte order mark": lambda path: path.write_text(text_of(FRAME), encoding="utf-8-sig"),
    "utf-16": lambda path: path.write_text(text_of(FRAME, sep="\t"), encoding="utf-16"),
    "all quoted": lambda path: path.write_text(text_of(FRAME, quoting=1), encoding="utf-8"),
    "gzip": lambda path: path.write_bytes(gzip.compress(text_of(FRAME).encode())),
    "bzip2": lambda path: path.write_bytes(bz2.compress(text_of(FRAME).encode())),
    "xz": lambda path: path.write_bytes(lzma.compress(text_of(FRAME).encode())),
    "zip": lambda path: path.write_bytes(_zipped(text_of(FRAME).encode())),
    "parquet": lambda path: FRAME.to_parquet(path),
    "parquet in gzip": lambda path: path.write_bytes(gzip.compress(FRAME.to_parquet())),
    "feather": lambda path: FRAME.to_feather(path),
    "json lines": lambda path: path.write_text(
        FRAME.assign(sold=FRAME["sold"].astype(str)).to_json(orient="records", lines=True), encoding="utf-8"
    ),
}


@pytest.mark.parametrize("how", WRITERS)
def test_the_same_table_from_every_format(how: str, tmp_path: Path) -> None:
    file = tmp_path / "data"  # no ending: the content decides
    WRITERS[how](file)
    table = read_table(str(file))
    expected = FRAME.assign(sold=DAYS)
    pd.testing.assert_frame_equal(table.frame, expected, check_dtype=False)
    assert table.frame.dtypes[["size", "sold", "price"]].astype(str).tolist() == ["float64"] * 3
    assert table.notes == ["column 'sold' holds dates: they are taken as days since 1970-01-01"]


def test_zstd(tmp_path: Path) -> None:
    file = tmp_path / "data.csv.zst"
    with pa.CompressedOutputStream(str(file), "zstd") as stream:
        stream.write(text_of(FRAME).encode())
    assert len(read_table(str(file)).frame) == 4


@pytest.mark.parametrize("how", ["csv", "gzip", "parquet", "feather", "json lines"])
def test_standard_input_is_told_apart_by_content(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    WRITERS[how](tmp_path / "data")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((tmp_path / "data").read_bytes())))
    table = read_table("-")
    assert table.name == "standard input"
    assert table.frame["price"].tolist() == FRAME["price"].tolist()


def test_a_pipe_that_can_not_be_rewound(tmp_path: Path) -> None:
    read, write = os.pipe()
    with os.fdopen(write, "wb") as stream:
        stream.write(text_of(FRAME).encode())
    assert len(read_table(f"/dev/fd/{read}").frame) == 4
    os.close(read)


def test_encoding(tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    file.write_text(text_of(FRAME), encoding="latin-1")
    with pytest.raises(ValueError, match=r"is not UTF-8 \(line 3, byte 0xe8\); .*--encoding latin-1"):
        read_table(str(file))
    assert read_table(str(file), encoding="latin-1").frame["city"][1] == "Genève"
    with pytest.raises(ValueError, match="--encoding 'latin-x' is not known"):
        read_table(str(file), encoding="latin-x")
    file.write_bytes("größe,price\n1,2\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"is not UTF-8 \(line 1, byte 0xf6\)"):
        read_table(str(file))


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        ("a,b\n1,2\n", (",", ".")),
        ("a;b\n1,5;2\n", (";", ",")),
        ("a;b\n1.5;2\n", (";", ".")),
        ('"a;x",b\n1,2\n', (",", ".")),
        ("a\n1\n", (",", ".")),
        ("a b|c d\n1|2\n", ("|", ".")),
        ('a,b\n"1,2\n', (",", ".")),
    ],
)
def test_separator_and_decimal_sign(sample: str, expected: tuple[str, str]) -> None:
    assert find_dialect(sample) == expected


def test_values_as_people_write_them(tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    file.write_text(',a, b,"c, d",e\n0,1,?,"x\ny",NA\n1,n.a.,2.5,z,NA\n2,3,4,,NA\n3,4,5,z,NA\n', encoding="utf-8")
    table = read_table(str(file))
    assert list(table.frame.columns) == ["column 1", "a", "b", "c, d", "e"]
    assert table.frame["b"].tolist()[1:] == [2.5, 4.0, 5.0]
    assert table.frame["b"].isna()[0]
    assert table.frame["c, d"][0] == "x\ny"
    assert table.frame["c, d"].isna().tolist() == [False, False, True, False]
    assert table.frame["e"].dtype == float
    assert table.frame["e"].isna().all()
    assert table.notes == ["column 'a' is taken as text: 75% of its values are numbers, but not 'n.a.'"]


def test_a_column_is_kept_as_text(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("code,price\n007,1\n010,2\n", encoding="utf-8")
    assert read_table(str(tmp_path / "data.csv")).frame["code"].tolist() == [7, 10]
    assert read_table(str(tmp_path / "data.csv"), wish=Wish(text=["code"])).frame["code"].tolist() == ["007", "010"]
    pd.DataFrame({"code": [7, 10]}).to_parquet(tmp_path / "data.parquet")
    assert read_table(str(tmp_path / "data.parquet"), wish=Wish(text=["code"])).frame["code"].tolist() == ["7", "10"]


def test_kept_columns_are_as_the_file_has_them(tmp_path: Path) -> None:
    lines = ["id;day;flag;long; price;note", "007;2024-03-31;true;12345678901234567890;12,50;NA", "12;n/a;;1;?;x"]
    (tmp_path / "data.csv").write_text("\n".join(lines), encoding="utf-8")
    keep = ["note", "id", "day", "flag", "long", "price"]
    table = read_table(str(tmp_path / "data.csv"), wish=Wish(keep=keep, only=["price"]))
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
    pd.DataFrame(columns, index=[5, 6]).to_parquet(tmp_path / "data.parquet")
    for read in (read_table, read_parquet_files):
        kept = read(str(tmp_path / "data.parquet"), wish=Wish(keep=["day", "id"])).kept
        assert kept["id"].tolist() == [7, 2**62]
        assert kept["day"][0] == pd.Timestamp("2024-03-31")


def test_columns_that_are_not_wanted_may_be_anything(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a,day,b,b\n1,05/06/2023,1,2\n", encoding="utf-8")
    table = read_table(str(tmp_path / "data.csv"), wish=Wish(only=["a"]))
    assert table.frame.to_dict("list") == {"a": [1]}
    assert table.names == ["a", "day", "b"]
    with pytest.raises(ValueError, match="columns of the same name: 'b'"):
        read_table(str(tmp_path / "data.csv"), wish=Wish(only=["a"], keep=["b"]))
    with pytest.raises(ValueError, match="can be read as"):
        read_table(str(tmp_path / "data.csv"), wish=Wish(only=["a", "day"]))


@pytest.mark.parametrize(
    ("values", "noted"),
    [
        (["6.139", "906", "1.506", "12.000"], True),
        (["6,139", "906", "1,506", "12,000"], True),
        (["6.139", "906", "NA", "1.506", "12.000"], True),
        (["6.139", "906", "1.5", "12.000"], False),  # a decimal
        (["6.139", "9.061", "1.506", "12.000"], False),  # three digits throughout, as instruments write
        (["0.139", "906", "0.506", "0.125"], False),
        (["6.139", "9061", "1.506", "12.000"], False),
        (["6.139", "906", "x", "12.000"], False),
    ],
)
def test_a_sign_that_may_separate_thousands_is_noted(values: list[str], noted: bool, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("\n".join(["a;b", *(f"{one};1" for one in values)]), encoding="utf-8")
    found = [text for text in read_table(str(tmp_path / "data.csv")).notes if "thousands" in text]
    expected = f"column 'a': {values[0]!r} is read as 6.139, and '906' as 906. If the sign separates thousands"
    assert [text.startswith(expected) for text in found] == [True] * noted
    assert not [text for text in read_table(str(tmp_path / "data.csv"), wish=Wish(only=["b"])).notes if "'a'" in text]


@pytest.mark.parametrize(
    ("dates", "days", "said"),
    [
        (["31.01.2024", "01.02.2024"], [19753, 19754], "(day.month.year)"),
        (["01/31/2024 12:00", "02/01/2024 00:00"], [19753.5, 19754], "(month/day/year)"),
        (["2024/01/31", "2024/02/01"], [19753, 19754], "(year/month/day)"),
        (["20240131T000000", "20240201T120000"], [19753, 19754.5], "(yearmonthday)"),
        (["31 Jan 2024", "1 Feb 2024"], [19753, 19754], "(day month year)"),
        (["2024-01-31T06:00:00Z", "2024-02-01T00:00:00Z"], [19753.25, 19754], ""),
        (["01/01/2024", "02/02/2024"], [19723, 19755], "(day/month/year)"),
    ],
)
def test_dates_become_days(dates: list[str], days: list[float], said: str, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(text_of(pd.DataFrame({"d": dates, "y": 1})), encoding="utf-8")
    table = read_table(str(tmp_path / "data.csv"))
    assert table.frame["d"].tolist() == days
    (note,) = table.notes
    assert note.startswith("column 'd' holds dates")
    assert said in note


@pytest.mark.parametrize(
    ("dates", "said"),
    [
        (["01/02/2024", "02/03/2024"], "can be read as day/month/year or as month/day/year. Write them as 2024-03-31"),
        (["31/01/2024", "01/31/2024"], "dates like '31/01/2024' that can't be read. Write them as 2024-03-31"),
        (["2024-03-01", "0000-00-00", "2024-03-02"], "dates like '0000-00-00' that can't be read"),
    ],
)
def test_dates_that_can_not_be_told_are_refused(dates: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(text_of(pd.DataFrame({"d": dates, "y": 1})), encoding="utf-8")
    with pytest.raises(ValueError, match="column 'd' holds dates") as error:
        read_table(str(tmp_path / "data.csv"))
    assert said in str(error.value)


def test_text_dates_in_parquet_become_days(tmp_path: Path) -> None:
    pd.DataFrame({"d": ["2024-01-31", "2024-02-01"], "y": 1}).to_parquet(tmp_path / "data.parquet")
    table = read_table(str(tmp_path / "data.parquet"))
    assert table.frame["d"].tolist() == [19753, 19754]
    assert table.notes == ["column 'd' holds dates (year-month-day): they are taken as days since 1970-01-01"]


def test_dates_with_another_text_among_them_are_noted(tmp_path: Path) -> None:
    frame = pd.DataFrame({"d": ["2024-01-31", "unknown", "2024-02-01"], "y": 1})
    (tmp_path / "data.csv").write_text(text_of(frame), encoding="utf-8")
    table = read_table(str(tmp_path / "data.csv"))
    assert table.frame["d"].tolist() == frame["d"].tolist()
    assert table.notes == ["column 'd' is taken as text: most of its values are dates, but not 'unknown'"]


@pytest.mark.parametrize(
    ("form", "what"),
    [
        ("{:.1f} m2", "numbers, for example '3.0 m2'; numbers are read if written without unit, currency"),
        ("€{:.0f}", "numbers, for example '€3'"),
        ("1,{:03.0f}", "numbers, for example '1,003'"),
        ("{:.0f}%", "numbers, for example '3%'"),
        ("01/{:02.0f}/21", "dates, for example '01/03/21'; dates are read if written as 2024-03-31"),
        ("Jan {:02.0f}, 2021", "dates, for example 'Jan 03, 2021'"),
        ("A{:.0f}", None),
        ("{:.0f} Main St", None),
        ("{:.0f}:30", None),
    ],
)
def test_numbers_and_dates_in_a_form_that_is_not_read_are_noted(form: str, what: str | None, tmp_path: Path) -> None:
    frame = pd.DataFrame({"c": [form.format(n) for n in range(3, 30)], "y": 1})
    frame.to_csv(tmp_path / "data.csv", index=False)
    table = read_table(str(tmp_path / "data.csv"))
    assert table.frame["c"].tolist() == frame["c"].tolist()
    noted = [text.partition("column 'c' is taken as text, but its values look like ")[2] for text in table.notes]
    assert len(noted) == (what is not None)
    assert all(text.startswith(str(what)) for text in noted)


def test_versions_and_numbers_are_no_dates(tmp_path: Path) -> None:
    frame = pd.DataFrame({"version": ["1.2.3", "10.0.1"], "year": [2023, 2024], "y": 1})
    (tmp_path / "data.csv").write_text(text_of(frame), encoding="utf-8")
    table = read_table(str(tmp_path / "data.csv"))
    pd.testing.assert_frame_equal(table.frame, frame, check_dtype=False)
    assert table.notes == []


def test_kinds_of_columns_in_parquet(tmp_path: Path) -> None:
    columns = {
        "decimal": pa.array([1, 2], pa.decimal128(10, 2)),
        "category": pa.array(["a", "b"]).dictionary_encode(),
        "half true": pa.array([True, None]),
        "empty": pa.nulls(2),
        "zoned": pa.array([0, 43_200], pa.timestamp("s", "Europe/Berlin")),
        "time": pa.array([0, 43_200], pa.time32("s")),
        "duration": pa.array([86_400, None], pa.duration("s")),
        "small": pa.array([1, None], pa.uint8()),
        "__index_level_0__": pa.array([5, 6]),
    }
    pq.write_table(pa.table(columns), tmp_path / "data.parquet")
    table = read_table(str(tmp_path / "data.parquet"))
    read = {name: table.frame[name].fillna(-1).tolist() for name in table.frame}
    assert read == {
        "decimal": [1.0, 2.0],
        "category": ["a", "b"],
        "half true": [1.0, -1.0],
        "empty": [-1.0, -1.0],
        "zoned": [0.0, 0.5],
        "time": [0.0, 0.5],
        "duration": [1.0, -1.0],
        "small": [1.0, -1.0],
    }
    assert [note.partition(":")[0] for note in table.notes] == [
        "column 'zoned' holds dates",
        "column 'time' holds times of day",
        "column 'duration' holds durations",
    ]


BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "data is empty; a table with a line of column names is needed"),
    "only blank lines": (lambda: b"\n \n\n", "data is empty"),
    "header only": (lambda: b"a,b,price\n", "has a header but no rows"),
    "a short row": (lambda: b"a,b,price\n1,2,3\n4,5\n", "can't be read as CSV: Row #3: Expected 3 columns, got 2: 4,5"),
    "a long row": (lambda: b"a,b,price\n1,2,3\n4,5,6,7\n", "Row #3: Expected 3 columns, got 4"),
    "a short row late": (lambda: b"a,b\n" + b"1,2\n" * 3_000_000 + b"1\n", "Row #3000002: Expected 2 columns, got 1"),
    "an open quotation mark": (lambda: b'a,b\n"1,2\n3,4\n', "can't be read as CSV"),
    "names that appear twice": (lambda: b"a,b,a,b\n1,2,3,4\n", "has columns of the same name: 'a', 'b'; rename them"),
    "a million columns": (
        lambda: b",".join(b"c%d" % i for i in range(10**6)) + b"\n" + b",".join([b"1"] * 10**6),
        "has more than 10,000 columns; is it a table",
    ),
    "slightly too many columns": (
        lambda: b",".join(b"c%d" % i for i in range(MOST_COLUMNS + 1)) + b"\n",
        "has more than 10,000 columns (10,001)",
    ),
    "a workbook": (lambda: _workbook(), "is an Excel workbook; save it as CSV"),
    "two files in a zip": (lambda: _two_files(), "must hold one file, but has 2: 'a.csv', 'b.csv'; unpack it first"),
    "a cut gzip": (lambda: gzip.compress(text_of(FRAME).encode())[:-20], "is compressed and damaged"),
    "a cut xz": (lambda: lzma.compress(text_of(FRAME).encode())[:-20], "is compressed and damaged"),
    "a cut zip": (lambda: _zipped(text_of(FRAME).encode())[:-20], "is compressed and damaged"),
    "a cut zstd": (lambda: b"\x28\xb5\x2f\xfd\x04\x00", "is compressed and damaged"),
    "a cut parquet": (lambda: FRAME.to_parquet()[:-20], "can't be read as Parquet"),
    "a cut feather": (lambda: b"ARROW1\x00\x00 and nothing else", "can't be read as Feather"),
    "noise": (lambda: np.random.default_rng(0).bytes(3000), "is not text, Parquet or Feather"),
    "a pickle": (lambda: pickle.dumps(FRAME, protocol=4), "is a Python pickle"),
    "a web page": (lambda: b"<!DOCTYPE html><html>403</html>", "is a web page, not a table"),
    "a JSON list": (lambda: json.dumps([{"a": 1}, {"a": 2}]).encode(), "is a JSON list; JSON lines are read"),
    "cut JSON lines": (lambda: b'{"a": 1}\n{"a', "can't be read as JSON lines"),
    "JSON of two kinds": (lambda: b'{"a": 1}\n{"a": "x"}\n', "Column(/a) changed from number to string in row 1"),
    "nested JSON": (lambda: b'{"a": {"b": 1}, "y": 2}\n', "column 'a' holds values of the kind struct<b: int64>"),
}


def _workbook() -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("[Content_Types].xml", "")
        archive.writestr("xl/workbook.xml", "")
    return sink.getvalue()


def _two_files() -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("a.csv", "x\n1\n")
        archive.writestr("b.csv", "x\n1\n")
    return sink.getvalue()


@pytest.mark.parametrize("what", BAD)
def test_bad_files_are_refused_by_name(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    content, said = BAD[what]
    Path("data").write_bytes(content())
    with pytest.raises(ValueError, match=r"data|column") as error:
        read_table("data")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "part.csv").touch()
    with pytest.raises(ValueError, match=r"is a folder, which has 'part\.csv'; give a file"):
        read_table(str(tmp_path))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_table(str(tmp_path / "none.csv"))
