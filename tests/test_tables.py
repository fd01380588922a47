"""Features: every kind of column, in pandas, polars and arrays; training categories kept; one-hot for partitions."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

from icqr import _tables as features
from icqr._tables import Features, align, as_table, settle_kinds, warn_about_text


def one(values, **options):
    return pd.DataFrame({"z": pd.Series(values, **options)})


def transformed(train, new):
    return Features(train).transform(new)["z"]


# -- as_table --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("X", [[[1, 2], [3, 4]], np.array([[1, 2], [3, 4]], dtype=np.int8), ((1, 2), (3, 4))])
def test_numbers_become_a_float_array(X):
    table = as_table(X)
    assert table.dtype == np.float64
    np.testing.assert_array_equal(table, [[1.0, 2.0], [3.0, 4.0]])


def test_missing_values_pass():
    assert np.isnan(as_table([[1.0, np.nan], [None, 2.0]])).sum() == 2


@pytest.mark.parametrize("dtype", [object, str])
def test_arrays_of_text_become_a_frame(dtype):
    table = as_table(np.array([["a", "1"], ["b", "2"]], dtype=dtype))
    assert isinstance(table, pd.DataFrame)
    assert list(Features(table).categories) == [0, 1]


def test_object_arrays_have_a_kind_per_column():
    table = as_table(np.array([["a", 1.5, True, None], ["b", None, False, None]], dtype=object))
    assert list(Features(table).categories) == [0]
    numbers = Features(table).transform(table)
    np.testing.assert_array_equal(numbers[1], [1.5, np.nan])
    np.testing.assert_array_equal(numbers[2], [1.0, 0.0])
    np.testing.assert_array_equal(numbers[3], [0.0, 0.0])


def test_polars_frames():
    frame = pl.DataFrame(
        {
            "text": ["a", None, "b"],
            "number": [1, None, 3],
            "real": [1.5, float("nan"), None],
            "flag": [True, False, None],
        }
    ).with_columns(
        pl.col("text").cast(pl.Categorical).alias("category"), pl.col("text").cast(pl.Enum(["a", "b"])).alias("enum")
    )
    table = as_table(frame)
    features = Features(table)
    assert list(features.categories) == ["text", "category", "enum"]
    rows = features.transform(table)
    for name in list(features.categories):
        assert rows[name].cat.codes.tolist() == [0, -1, 1]
    np.testing.assert_array_equal(rows["number"], [1.0, np.nan, 3.0])
    np.testing.assert_array_equal(rows["real"], [1.5, np.nan, np.nan])
    np.testing.assert_array_equal(rows["flag"], [1.0, 0.0, np.nan])


def test_a_row_or_a_column_by_itself_is_refused():
    with pytest.raises(ValueError, match=r"must be a table of rows, got a pandas Series; one row .* X\.iloc\[\[0\]\]"):
        as_table(pd.DataFrame({"city": ["Bern"], "size": [1.0]}).iloc[0])


@pytest.mark.parametrize("X", [pl.LazyFrame({"a": [1]}), pl.Series([1])])
def test_other_polars_objects_are_refused(X):
    with pytest.raises(TypeError, match=r"must be a polars DataFrame, got a polars .*collect"):
        as_table(X)


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (np.empty((0, 2)), ValueError, r"0 sample\(s\)"),
        (np.empty((2, 0)), ValueError, r"0 feature\(s\)"),
        (pd.DataFrame({"a": []}), ValueError, r"0 sample\(s\)"),
        (pd.DataFrame(index=[1, 2]), ValueError, r"0 feature\(s\)"),
        ([1.0, 2.0], ValueError, "Expected 2D array"),
        (np.zeros((2, 2, 2)), ValueError, "dim 3"),
        ([[1.0, np.inf]], ValueError, "infinity"),
        (np.array([[1.0 + 2j, 0]]), ValueError, "Complex data not supported"),
        (
            np.array([[1]], dtype="m8[s]"),
            ValueError,
            r"X holds durations .*Turn it into numbers first: / pd\.Timedelta",
        ),
        (sparse.csr_array(np.eye(2)), TypeError, "dense data is required"),
        (pd.DataFrame(np.ones((2, 2)), columns=["a", "a"]), ValueError, "unique; these appear more than once: a"),
    ],
)
def test_tables_that_are_refused(X, error, message):
    with pytest.raises(error, match=message):
        as_table(X)


# -- Kinds of columns ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (one([1, 2, 3]), [1, 2, 3]),
        (one([1, 2, 3], dtype="uint8"), [1, 2, 3]),
        (one([1.5, np.nan, 2]), [1.5, np.nan, 2]),
        (one([1.5, np.nan, 2], dtype="float32"), [1.5, np.nan, 2]),
        (one([True, False, True]), [1, 0, 1]),
        (one([1, None, 3], dtype="Int64"), [1, np.nan, 3]),
        (one([1.5, None, 3], dtype="Float32"), [1.5, np.nan, 3]),
        (one([True, None, False], dtype="boolean"), [1, np.nan, 0]),
        (one([True, None, False], dtype=object), [1, np.nan, 0]),
        (one([1, pd.NA, 2.5], dtype=object), [1, np.nan, 2.5]),
        (one([Decimal("1.5"), None, 2], dtype=object), [1.5, np.nan, 2]),
        (one([0.0, 0.0, 1.0], dtype="Sparse[float]"), [0, 0, 1]),
    ],
)
def test_numbers_of_any_dtype(column, expected):
    features = Features(column)
    assert list(features.categories) == []
    np.testing.assert_array_equal(features.transform(column)["z"].to_numpy(dtype=float), expected)


@pytest.mark.parametrize(
    "column",
    [
        one(["b", None, "a"]),
        one(["b", None, "a"], dtype=object),
        one(["b", pd.NA, "a"], dtype="string"),
        one(["b", None, "a"], dtype="category"),
        one(["b", None, "a"], dtype=pd.ArrowDtype(pa.string())),
        one(["b", None, "a"], dtype=pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))),
        one(pd.Categorical(["b", None, "a"], categories=["a", "unused", "b"], ordered=True)),
    ],
)
def test_text_and_categories_mean_the_same(column):
    features = Features(column)
    assert list(features.categories["z"]) == ["a", "b"]
    rows = features.transform(column)["z"]
    assert rows.cat.codes.tolist() == [1, -1, 0]
    assert not rows.cat.ordered


@pytest.mark.parametrize("values", [[3, 1, 2], [2.5, 1.5, 0.5], [True, False, True], pd.cut(range(3), 3)])
def test_categories_that_are_not_text(values):
    column = one(pd.Categorical(values))
    assert list(Features(column).categories) == ["z"]
    assert transformed(column, column).tolist() == list(values)


def test_a_column_of_text_and_numbers_is_categorical():
    column = one(["a", 1, 2.5, None], dtype=object)
    assert transformed(column, column).astype(object).tolist()[:3] == ["a", 1, 2.5]


def test_kinds_are_settled_by_all_rows():
    frame = pd.DataFrame({"z": [1.5, 2.5, "n/a"], "text": ["a", "b", None], "any": [[], {}, "x"], "n": [1, 2, 3]})
    settled = settle_kinds(frame)
    assert isinstance(settled["z"].dtype, pd.CategoricalDtype)
    assert settled.drop(columns="z").equals(frame.drop(columns="z"))
    assert frame["z"].dtype == object, "what was given stays as it is"
    assert list(Features(settled[["z", "n"]][:2]).categories) == ["z"]
    assert list(Features(frame[["z"]][:2]).categories) == [], "the first rows alone hold numbers"


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        (
            pd.to_timedelta([1], unit="D"),
            TypeError,
            r"'z' holds durations .*Turn it into numbers first: / pd\.Timedelta",
        ),
        ([datetime.time(12)], TypeError, "must be a string, a number or a date, got time"),
        ([datetime.date(2020, 1, 1), "soon"], TypeError, r"holds dates, and values that are none; pd\.to_datetime"),
        ([{"a": 1}], TypeError, "must be a string, a number or a date, got dict"),
        ([b"a"], TypeError, "must be a string, a number or a date, got bytes"),
        ([1 + 2j], ValueError, "Complex data not supported: column 'z'"),
        ([-np.inf], ValueError, "'z' is infinite in row 0"),
    ],
)
def test_columns_that_are_refused(values, error, message):
    with pytest.raises(error, match=message):
        Features(one(values))


# -- Dates -----------------------------------------------------------------------------------------------------------

THREE = pd.DatetimeIndex(["2024-03-01 00:00", None, "2024-03-02 12:00"])
ZONED = pd.date_range("2024-03-01", periods=3, tz="Europe/Zurich")


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (one(THREE), [19783, np.nan, 19784.5]),
        (one(THREE.astype("M8[s]")), [19783, np.nan, 19784.5]),
        (one(THREE.astype("M8[ns]")), [19783, np.nan, 19784.5]),
        (one(ZONED), [19782 + 23 / 24, 19783 + 23 / 24, 19784 + 23 / 24]),
        (one(ZONED.astype(pd.ArrowDtype(pa.timestamp("us", "Asia/Tokyo")))), [19782 + 23 / 24 + j for j in range(3)]),
        (
            one([datetime.date(2024, 3, 1), None, datetime.datetime(2024, 3, 2, 12)], dtype=object),
            [19783, np.nan, 19784.5],
        ),
        (one([datetime.date(2024, 3, 1), None], dtype=pd.ArrowDtype(pa.date32())), [19783, np.nan]),
        (as_table(pl.DataFrame({"z": [datetime.date(2024, 3, 1), None]})), [19783, np.nan]),
        (as_table(pl.DataFrame({"z": [datetime.datetime(2024, 3, 1), None]})), [19783, np.nan]),
        (as_table(np.array([["2024-03-01"], ["NaT"]], dtype="M8[D]")).set_axis(["z"], axis=1), [19783, np.nan]),
        (one(pd.to_datetime(["1969-12-31 18:00", "1900-01-01 00:00"])), [-0.25, -25567]),
    ],
)
def test_dates_of_any_type_are_days_in_utc(column, expected):
    features = Features(column)
    assert (features.dates, list(features.categories)) == (["z"], [])
    np.testing.assert_array_equal(features.transform(column)["z"], expected)
    matrix, origin, labels = features.one_hot(column)
    np.testing.assert_array_equal(matrix[:, 0], expected)
    assert (origin.tolist(), labels) == ([0], [("z", None)])


@pytest.mark.parametrize(
    "new",
    [
        one(["2024-03-01", None, "2024-03-02 12:00"]),
        one(["2024-03-01T00:00:00Z", None, "2024-03-02T13:00:00+01:00"]),
        one(THREE.tz_localize("UTC")),
        one([datetime.date(2024, 3, 1), None, pd.Timestamp("2024-03-02 12:00")], dtype=object),
        one(["2024-03-01", None, "2024-03-02 12:00"], dtype="category"),
    ],
)
def test_dates_may_come_as_text_or_in_another_type(new):
    train = one(pd.date_range("2020-01-01", periods=9))
    np.testing.assert_array_equal(Features(train).transform(new)["z"], [19783, np.nan, 19784.5])
    nothing = one([None, np.nan])
    assert Features(train).transform(nothing)["z"].isna().all()


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (one([19783.0, 19784.0]), "'z' held dates in training and now holds numbers. .*unit='D' for days since"),
        (one([19783, None], dtype=object), "'z' held dates in training and now holds numbers"),
        (one(["2024-03-01", "01.03.2024"]), "'z' held dates .* not written like 2024-03-31: .*'?01.03.2024"),
        (one([{}, None], dtype=object), "'z' held dates in training and now holds values such as '{}'"),
    ],
)
def test_what_is_no_date_is_refused_where_dates_were(new, said):
    with pytest.raises(ValueError, match=said):
        Features(one(pd.date_range("2020-01-01", periods=9))).transform(new)


def test_parts_of_a_date_are_those_that_come_again():
    def parts(dates):
        return [part for _, _, part in Features(one(dates)).date_parts]

    assert parts(pd.date_range("2020-01-01", periods=3)) == []
    assert parts(pd.date_range("2020-01-01", periods=30)) == ["weekday"]
    assert parts(pd.date_range("2020-01-06", periods=200, freq="7D")) == ["day of year"], "Mondays only"
    assert parts(pd.date_range("2020-01-01", periods=30, freq="h")) == ["hour"]
    assert parts([*pd.date_range("2020-01-01", periods=800, freq="23h"), pd.NaT]) == ["day of year", "weekday", "hour"]
    assert parts([pd.NaT, pd.NaT]) == []


def test_names_of_parts_are_their_own():
    frame = pd.DataFrame({"t weekday": [1.0] * 30, "t": pd.date_range("2020-01-01", periods=30)})
    assert Features(frame).date_parts == [("t weekday_", 1, "weekday")]
    assert Features(frame.set_axis([3, 0], axis=1)).date_parts == [(2, 1, "weekday")]


# -- New rows --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["str", object, "category"])
def test_unknown_categories_become_missing(dtype):
    rows = transformed(one(["a", "b"]), one(["b", "c", None], dtype=dtype))
    assert rows.cat.codes.tolist() == [1, -1, -1]


@pytest.mark.parametrize("new", [one([None, None], dtype=object), one([np.nan, np.nan]), one([1.5, 2.5])])
def test_a_text_column_may_come_without_any_known_text(new):
    assert transformed(one(["a", "b"]), new).isna().all()


@pytest.mark.parametrize(
    ("train", "new"),
    [
        (one(["1", "2"]), one([2, 1, 3])),
        (one(["1", "2"]), one([2.0, 1.0, np.nan])),
        (one([1, 2], dtype="category"), one(["2", "1", "many"])),
        (one([1, 2], dtype="category"), one(["2", "1", None], dtype="category")),
        (one(["False", "True"]), one([True, False, None], dtype="boolean")),
        (one([1, "B"], dtype=object), one(["B", "1", "C"])),
        (one(["0.0", "1.0"]), one([1.0, 0.0, 2.0])),
        (one(["0.0", "1.0"]), one([1, 0, 2])),
        (one(["0", "1"]), one([Decimal("1.0"), Decimal("0.0"), None], dtype=object)),
        (one([0.0, 1.0], dtype="category"), one(["1.0", "0", "1.5"])),
        (one(["01", "1"]), one(["1", "01", "1.0"])),
        (one(["a", "b"]), one(["b", "a", "B"])),
    ],
)
def test_a_category_may_come_as_a_number_or_as_text(train, new):
    assert transformed(train, new).cat.codes.tolist() == [1, 0, -1]


def test_a_number_that_two_categories_read_as_is_unknown():
    assert transformed(one(["01", "1", "2"]), one([1, 2])).cat.codes.tolist() == [-1, 2]


def test_a_number_column_that_turns_to_text_is_refused():
    with pytest.raises(ValueError, match="'z' held numbers in training and now holds something else"):
        transformed(one([1, 2]), one(["1", "many"]))


@pytest.mark.parametrize(
    ("X", "columns"),
    [
        (pd.DataFrame({"a": [1.0], "b": ["x"]}), ["a", "b"]),
        (np.zeros((1, 2)), ["a", "b"]),
        (pd.DataFrame(np.zeros((1, 2))), ["a", "b"]),
        (pd.DataFrame(np.zeros((1, 2))), [0, 1]),
        (pd.DataFrame(np.zeros((1, 2))), [10, 20]),
    ],
)
def test_rows_without_names_get_those_of_the_training_rows(X, columns):
    assert list(align(X, pd.Index(columns)).columns) == columns


def test_rows_become_an_array_where_the_training_rows_were_one():
    aligned = align(pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": [True, False]}), None)
    np.testing.assert_array_equal(aligned, [[1.0, 1.0], [np.nan, 0.0]])


@pytest.mark.parametrize(
    ("columns", "fitted"),
    [([1, 0], [0, 1]), (["b", "a"], ["a", "b"]), (["b", "more", "a"], ["a", "b"]), ([7, 20, 10], [10, 20])],
)
def test_columns_are_found_by_their_names(columns, fitted):
    new = pd.DataFrame([np.arange(float(len(columns)))], columns=columns)
    expected = [[float(columns.index(name)) for name in fitted]]
    assert align(new, pd.Index(fitted)).to_numpy().tolist() == expected
    assert Features(pd.DataFrame(np.zeros((1, 2)), columns=fitted)).transform(new).to_numpy().tolist() == expected


@pytest.mark.parametrize(
    ("columns", "fitted", "said"),
    [
        ([0, 1], [1, 0], r"the columns it had in fit: \[1, 0\], got columns numbered from 0 to 1"),
        ([0, 1], [0, 2], "got columns numbered from 0 to 1"),
        ([0, 1, 2], [0, 1], "got columns numbered from 0 to 2"),
        (["a", "c"], ["a", "b"], r"X lacks columns that it had in fit: 'b'; its columns are \['a', 'c'\]"),
        (["order date", "Price"], ["Order Date", "price"], "'Order Date', 'price'; .*; did you mean 'order date'"),
        (["z"], [f"c{j}" for j in range(20)], "'c10', 'c11' and 8 more; its columns are"),
    ],
)
def test_columns_that_are_missing_are_named(columns, fitted, said):
    new = pd.DataFrame(np.zeros((1, len(columns))), columns=columns)
    with pytest.raises(ValueError, match=said):
        align(new, pd.Index(fitted))
    with pytest.raises(ValueError, match=said):
        Features(pd.DataFrame(np.zeros((1, len(fitted))), columns=fitted)).transform(new)


@pytest.mark.parametrize(
    "new", [pd.Timestamp("2020-01-01"), pd.Timestamp("2020-01-01", tz="UTC"), pd.Timedelta(1, "D")]
)
@pytest.mark.parametrize("train", [one([1.0, 2.0]), np.array([[1.0], [2.0]])])
def test_a_number_column_that_turns_to_dates_is_refused(train, new):
    with pytest.raises(ValueError, match="'z' held numbers in training and now holds dates or durations"):
        Features(train).transform(one([new, pd.NaT]))


def test_integer_categories_may_come_back_as_floats():
    rows = transformed(one(pd.Categorical([1, 2])), one(pd.Categorical([1.0, 2.0, np.nan])))
    assert rows.cat.codes.tolist() == [0, 1, -1]
    assert rows.cat.categories.tolist() == [1, 2]


@pytest.mark.parametrize(
    "empty", [one([None, None], dtype=object), one([np.nan, np.nan]), one([None] * 2, dtype="str")]
)
@pytest.mark.parametrize("new", [one([5.0, None]), one(["a", "b"])])
def test_a_column_without_a_known_value_becomes_zeros(empty, new):
    assert transformed(empty, new).tolist() == [0.0, 0.0]


def test_an_array_column_without_a_known_value_becomes_zeros():
    train = np.array([[1.0, np.nan], [2.0, np.nan]])
    new = np.array([[3.0, 4.0]])
    assert Features(train).transform(new).tolist() == [[3.0, 0.0]]
    assert new.tolist() == [[3.0, 4.0]]


def test_rows_take_the_form_of_the_training_rows():
    frame = pd.DataFrame({"x": [1.0, 2.0], "city": ["Bern", "Genf"]})
    rows = Features(frame).transform(as_table(np.array([[3.0, "Genf"]], dtype=object)))
    assert rows["city"].tolist() == ["Genf"]
    np.testing.assert_array_equal(Features(np.eye(2)).transform(pd.DataFrame({"a": [1], "b": [True]})), [[1.0, 1.0]])


def test_transform_keeps_the_index_and_the_given_rows():
    frame = pd.DataFrame({"x": [1.0, 2.0], "city": ["Bern", "Rom"]}, index=[7, 7])
    before = frame.copy()
    features = Features(frame.iloc[:1])
    once = features.transform(frame)
    pd.testing.assert_frame_equal(frame, before)
    assert once.index.tolist() == [7, 7]
    pd.testing.assert_frame_equal(features.transform(once), once)


def test_only_the_most_frequent_categories_are_kept():
    column = one(["rare", "b", "a", "a", "b", "b"])
    features = Features(column, max_categories=2)
    assert list(features.categories["z"]) == ["a", "b"]
    assert features.transform(column)["z"].isna().tolist() == [True, False, False, False, False, False]
    assert features.lumped == {"z": 1}
    assert Features(column, max_categories=3).lumped == {}


# -- One-hot ---------------------------------------------------------------------------------------------------------


def test_one_hot():
    frame = pd.DataFrame({"city": ["Bern", "Genf", None], "x": [1.0, None, 3.0]})
    matrix, origin, labels = Features(frame).one_hot(frame)
    np.testing.assert_array_equal(matrix, [[1, 0, 1], [0, 1, np.nan], [0, 0, 3]])
    assert origin.tolist() == [0, 0, 1]
    assert labels == [("city", "Bern"), ("city", "Genf"), ("x", None)]


def test_one_hot_of_an_array_is_the_array():
    X = np.array([[1.0, np.nan], [3.0, 4.0]])
    matrix, origin, labels = Features(X).one_hot(X)
    np.testing.assert_array_equal(matrix, X)
    assert (origin.tolist(), labels) == ([0, 1], [("x0", None), ("x1", None)])


def test_a_column_of_too_many_categories_is_one_column_of_codes():
    frame = pd.DataFrame({"id": ["c", "a", None, "b", "d"], "k": ["x", "y", "x", "y", "y"]})
    features = Features(frame, most_one_hot=3)
    matrix, origin, labels = features.one_hot(frame)
    np.testing.assert_array_equal(matrix, [[2, 1, 0], [0, 0, 1], [-1, 1, 0], [1, 0, 1], [3, 0, 1]])
    assert (origin.tolist(), labels) == ([0, 1, 1], [("id", None), ("k", "x"), ("k", "y")])
    assert list(features.categories["id"]) == ["a", "b", "c", "d"], "all are known"
    assert Features(frame, most_one_hot=4).one_hot(frame)[0].shape == (5, 6)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([f"{n / 7:.4f}" for n in range(199)] + ["n/a"], "100% of its values read as numbers: pd.to_numeric"),
        ([*np.arange(199.0), "n/a"], "holds text and 200 of its 200 values.* 100% of its values read as numbers"),
        ([f"customer {n}" for n in range(200)], "Drop it, or turn it into numbers or fewer categories"),
        (
            [f"{n % 28 + 1}.{n % 12 + 1}.{1990 + n}" for n in range(200)],
            "look like dates, for example '1.1.1990': pd.to",
        ),
        (
            pd.date_range("2020-01-01", periods=40).astype(str).tolist() * 5,
            "40 of its 200 values.* like dates, for .*2020",
        ),
    ],
)
def test_text_that_says_little_is_warned_about(values, message):
    with pytest.warns(UserWarning, match=message):
        warn_about_text(pd.DataFrame({"a": values}))


@pytest.mark.parametrize(
    "values",
    [range(200), ["Bern", "Genf"] * 100, [1.5, "n/a"] * 100, [[], "text"] * 100, np.arange(200).astype(object)],
)
def test_numbers_and_categories_are_not_warned_about(values):
    warn_about_text(pd.DataFrame({"a": values}))


def test_some_columns_of_a_large_table_are_those_of_a_small_one(monkeypatch):
    frame = pd.DataFrame({"a": [1, 2, 3], "b": [0.5, np.nan, 2.5], "c": np.array([7, 8, 9], dtype=np.int8)})
    columns = Features(frame).one_hot_columns(frame, np.array([0, 2]))
    np.testing.assert_array_equal(columns, [[1, 7], [2, 8], [3, 9]])
    monkeypatch.setattr(features, "MOST_COPIED", 0)
    large = Features(frame).one_hot_columns(frame, np.array([0, 2]))
    np.testing.assert_array_equal(large, columns)
    large[:] = 0
    assert frame["a"].tolist() == [1, 2, 3], "an array of its own"


def test_a_column_that_is_not_asked_for_may_hold_anything():
    train = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    new = pd.DataFrame({"a": [5.0, 6.0], "b": [np.inf, 1.0]})
    assert Features(train).one_hot_columns(new, np.array([0])).tolist() == [[5.0], [6.0]]
    with pytest.raises(ValueError, match="'b' is infinite in row 0"):
        Features(train).one_hot_columns(new, np.array([1]))
