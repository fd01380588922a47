"""Rules say exactly which rows they hold."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icqr.auditing.regions import Column, Equals, Rule, Within, _between, _cuts, columns_of, find_rules


def table(n: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.integers(0, 5, n), "c": rng.choice(["u", "v", "w"], n)})
    X["d"] = np.where(rng.random(n) < 0.2, np.nan, rng.random(n))
    X["e"] = rng.random(n) < 0.5
    return X


def test_columns_are_numbers_or_levels() -> None:
    columns = columns_of(table(), np.zeros(400), np.ones(400))
    assert [column.name for column in columns] == ["a", "b", "c", "d", "e", "interval width", "interval centre"]
    assert [column.levels for column in columns[2:5]] == [("u", "v", "w"), None, ("False", "True")]
    assert np.isnan(columns[3].values).sum() == table()["d"].isna().sum()


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (Within(0, -math.inf, 0.5), "a ≤ 0.5"),
        (Within(0, 0.5, math.inf), "a > 0.5"),
        (Within(1, 1.0, 3.0), "1 < b ≤ 3"),
        (Equals(2, 1.0), "c = v"),
        (Equals(2, 1.0, negated=True), "c ≠ v"),
        (Equals(3, math.nan), "d is missing"),
        (Equals(3, math.nan, negated=True), "d is known"),
    ],
)
def test_words_and_rows_agree(condition: Within | Equals, words: str) -> None:
    X = table()
    columns = columns_of(X, np.zeros(400), np.ones(400))
    expected = {
        "a ≤ 0.5": X["a"] <= 0.5,
        "a > 0.5": X["a"] > 0.5,
        "1 < b ≤ 3": X["b"].isin([2, 3]),
        "c = v": X["c"] == "v",
        "c ≠ v": X["c"] != "v",
        "d is missing": X["d"].isna(),
        "d is known": X["d"].notna(),
    }
    assert condition.words(columns) == words
    np.testing.assert_array_equal(condition.mask(columns), expected[words])
    assert Rule((condition, Equals(4, 1.0)), "tree leaf").words(columns) == f"{words} and e = True"


@given(st.lists(st.floats(-1e12, 1e12, allow_subnormal=False), min_size=2, max_size=50, unique=True))
@settings(max_examples=100)
def test_cuts_part_the_values_and_read_as_they_are(values: list[float]) -> None:
    known = np.sort(values)
    cuts = _cuts(known)
    assert (np.diff(np.searchsorted(cuts, known)) >= (1 if len(values) <= 33 else 0)).all()
    assert [float(Column("x", known).show(cut)) for cut in cuts] == cuts.tolist()


def test_a_cut_is_short() -> None:
    assert _between(0.123456, 0.129999) == 0.127
    assert _between(1.0, math.inf) == 1.0


def test_a_plain_rule_is_preferred_and_what_it_explains_is_left_out() -> None:
    rng = np.random.default_rng(1)
    X = pd.DataFrame(rng.random((4000, 4)), columns=list("abcd")).round(2)
    X["flag"] = rng.integers(0, 2, 4000)
    bad = (X["a"] > 0.8) & (X["flag"] == 1)
    covered = rng.random(4000) < np.where(bad, 0.5, 0.9)
    columns = columns_of(X, np.zeros(4000), np.ones(4000))
    rules = [rule.words(columns) for rule in find_rules(columns, covered, 0.9)]
    assert rules[0] in ("a > 0.8 and flag = 1", "a > 0.795 and flag = 1")
    assert "flag = 1" not in rules
    assert "a > 0.8" not in rules


@pytest.mark.parametrize("covered", [np.ones(400, dtype=bool), np.zeros(400, dtype=bool)])
def test_all_rows_alike(covered: np.ndarray) -> None:
    columns = columns_of(table(), np.zeros(400), np.ones(400))
    assert len(find_rules(columns, covered, 0.9)) <= 14


def test_no_region_is_all_rows() -> None:
    X = pd.DataFrame({"version": [3.0] * 400, "empty": np.nan, "text": "x", "x": np.arange(400.0)})
    columns = columns_of(X, np.full(400, -np.inf), np.full(400, np.inf))
    rules = [rule.words(columns) for rule in find_rules(columns, np.arange(400) % 5 > 0, 0.9)]
    assert rules
    assert all(rule.startswith("x ") or " < x " in rule for rule in rules)


def test_no_column_that_varies() -> None:
    assert find_rules(columns_of(None, np.zeros(50), np.ones(50)), np.arange(50) % 2 == 0, 0.9) == []
