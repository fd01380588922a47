"""Rules in words: planted rules are found, and a rule holds exactly the rows that its words say."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icqr._rules import Column, Equals, Within, describe_groups, simplified, words


def holds(rule: str, X: pd.DataFrame) -> Any:
    """Read a printed rule and tell for which rows it is true."""
    inside = np.ones(len(X), dtype=bool)
    for condition in [] if rule == "all rows" else rule.split(" and "):
        between = re.fullmatch(r"(\S+) < (\S+) ≤ (\S+)", condition)
        if between:
            low, name, high = between.groups()
            inside &= ((X[name] > float(low)) & (X[name] <= float(high))).to_numpy()
            continue
        name, sign, value = condition.split(" ")
        test = {
            "≤": lambda column, v: column <= float(v),
            ">": lambda column, v: column > float(v),
            "=": lambda column, v: column == v,
            "≠": lambda column, v: column != v,
        }[sign]
        inside &= test(X[name], value).to_numpy()
    return inside


def fidelity(rule: str, X: pd.DataFrame, inside: Any) -> float:
    said = holds(rule, X)
    return float((said & inside).sum() / (said | inside).sum())


@pytest.mark.parametrize(
    ("condition", "text", "expected"),
    [
        (Within(0, -math.inf, 2), "a ≤ 2", [True, True, False, False]),
        (Within(0, 1, math.inf), "a > 1", [False, True, True, False]),
        (Within(0, 1, 2), "1 < a ≤ 2", [False, True, False, False]),
        (Within(1, -math.inf, 3600), "day ≤ 1970-01-01 01:00:00", [True, True, False, False]),
        (Equals(2, 1), "city = Rom", [False, True, True, False]),
        (Equals(2, 1, negated=True), "city ≠ Rom", [True, False, False, True]),
        (Equals(2, math.nan), "city is missing", [False, False, False, True]),
        (Equals(2, math.nan, negated=True), "city is known", [True, True, True, False]),
    ],
)
def test_words_and_rows_of_a_condition_agree(condition: Within | Equals, text: str, expected: list[bool]) -> None:
    values = np.array([[1, 0, 0], [2, 3600, 1], [2.5, 7200, 1], [np.nan, np.nan, np.nan]])
    columns = [Column("a"), Column("day", unit="s"), Column("city", ["Bern", "Rom"])]
    assert words((condition,), columns) == text
    assert condition.mask(values).tolist() == expected
    assert words((condition, Equals(2, 0)), columns) == f"{text} and city = Bern"


def test_limits_are_joined_and_a_known_value_says_what_it_is_not() -> None:
    conditions = [Equals(1, 0, negated=True), Within(0, 2, math.inf), Equals(1, 1), Within(0, -math.inf, 5)]
    assert simplified(conditions) == (Within(0, 2, 5), Equals(1, 1))
    assert simplified([conditions[0], Equals(2, 1)]) == (Equals(1, 0, negated=True), Equals(2, 1))
    assert words(simplified([]), []) == "all rows"


# -- Groups ----------------------------------------------------------------------------------------------


def rows(n: int = 400, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "hour": rng.integers(0, 24, size=n),
            "temp": rng.normal(15, 8, size=n),
            "city": rng.choice(["Bern", "Genf", "Rom"], size=n),
            "year": rng.integers(2011, 2013, size=n),
        }
    )


@pytest.mark.parametrize(
    ("inside", "rules"),
    [
        (lambda X: X["hour"] > 6, ["hour ≤ 6", "hour > 6"]),
        (lambda X: X["hour"].between(7, 9), [None, "6 < hour ≤ 9"]),
        (lambda X: X["year"] == 2012, ["year = 2011", "year = 2012"]),
        (lambda X: X["city"] == "Bern", ["city ≠ Bern", "city = Bern"]),
        (lambda X: (X["city"] == "Rom") & (X["hour"] > 11), [None, "hour > 11 and city = Rom"]),
    ],
)
def test_planted_rule_is_found(inside: Any, rules: list[str | None]) -> None:
    X = rows()
    described = describe_groups(X, inside(X).to_numpy().astype(int), 2)
    for found, planted, fits in zip(described["rule"], rules, described["fidelity"], strict=True):
        if planted is not None:
            assert found == planted
            assert fits == 1


@pytest.mark.parametrize("seed", range(6))
def test_fidelity_is_that_of_the_printed_rule(seed: int) -> None:
    X = rows(seed=seed)
    noise = np.random.default_rng(seed).normal(size=len(X))
    labels = np.digitize(X["temp"] + X["hour"] + 3 * (X["city"] == "Bern") + 2 * noise, [15, 25, 35])
    described = describe_groups(X, labels, 4)
    assert described["fidelity"].between(0.2, 1).all()
    for group, (rule, fits) in enumerate(zip(described["rule"], described["fidelity"], strict=True)):
        assert rule.startswith("no simple rule; ") == (fits < 0.5)
        assert rule.count("(") == rule.count(")")
        assert rule.startswith("roughly ") == (0.5 <= fits < 0.95)
        if fits >= 0.5:
            assert fits == pytest.approx(fidelity(rule.removeprefix("roughly "), X, labels == group))


@settings(max_examples=50)
@given(st.lists(st.floats(-1e12, 1e12, allow_subnormal=False), min_size=8, max_size=40, unique=True), st.data())
def test_a_threshold_reads_as_it_is(values: list[float], data: st.DataObject) -> None:
    X = pd.DataFrame({"a": sorted(values)})
    labels = (np.arange(len(values)) >= data.draw(st.integers(3, len(values) - 3))).astype(int)
    for group, rule in enumerate(describe_groups(X, labels, 2)["rule"]):
        assert np.array_equal(holds(rule, X), labels == group)


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 1e5, 1e300])
@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_scale_of_a_feature_does_not_matter(scale: float, shift: float) -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": (rng.uniform(size=300) + shift) * scale})
    labels = (X["a"] > (0.4 + shift) * scale).to_numpy().astype(int)
    described = describe_groups(X, labels, 2)
    assert described["fidelity"].tolist() == [1.0, 1.0]
    for group, rule in enumerate(described["rule"]):
        assert np.array_equal(holds(rule, X), labels == group)
    assert described["features"].str.startswith(("a lower", "a higher")).all()


def test_close_values_get_the_digits_they_need() -> None:
    X = pd.DataFrame({"t": 1_600_000_000.5 + np.arange(20.0)})
    described = describe_groups(X, (np.arange(20) >= 10).astype(int), 2)
    assert described["rule"][0] == "t ≤ 1600000010"
    assert np.array_equal(holds(described["rule"][0], X), np.arange(20) < 10)


def test_features_that_differ_most_are_named_first() -> None:
    X = pd.DataFrame({"a": [0.0, 1.0] * 50, "b": [1.0, 3.0, 1.0, 2.0] * 25, "c": 7.0, "d": ["x", "y"] * 50})
    described = describe_groups(X, (X["a"] > 0).to_numpy().astype(int), 2)
    assert described["features"][1] == "a higher (1; all: 0.5); d = x in 0 % (all: 50 %); d = y in 100 % (all: 50 %)"
    assert "c" not in described["features"][1]


def test_columns_of_weight_zero_are_not_used() -> None:
    X = pd.DataFrame({"copy": np.arange(40.0), "real": np.arange(40.0)})
    described = describe_groups(X, (X["real"] > 19).to_numpy().astype(int), 2, np.array([0.0, 1.0]))
    assert described["rule"].tolist() == ["real ≤ 19", "real > 19"]
    unweighted = describe_groups(X, (X["real"] > 19).to_numpy().astype(int), 2, np.zeros(2))
    assert unweighted["fidelity"].tolist() == [1.0, 1.0]


def test_arrays_missing_values_and_groups_without_rows() -> None:
    X = np.column_stack([np.repeat([0.0, np.nan, 4.0, 5.0], 10), np.full(40, np.nan)])
    described = describe_groups(X, np.repeat([0, 1, 1, 1], 10), 3)  # a missing value counts as the median, 4
    assert described["rule"].tolist() == ["x0 ≤ 0", "x0 > 0", "no rows"]
    assert described["fidelity"].tolist() == [1.0, 1.0, 0.0]
    empty = describe_groups(np.full((4, 1), np.nan), np.array([0, 0, 0, 1]), 2)
    assert empty["rule"].tolist() == ["all rows", "all rows"]
    assert empty["fidelity"].tolist() == [0.75, 0.25]


def test_a_category_or_nothing() -> None:
    X = pd.DataFrame({"city": ["Bern", None] * 20})
    described = describe_groups(X, X["city"].notna().to_numpy().astype(int), 2)
    assert described["rule"].tolist() == ["city is missing", "city = Bern"]
    assert described["fidelity"].tolist() == [1.0, 1.0]


def test_columns_that_are_no_numbers_or_categories_are_not_used() -> None:
    durations = pd.to_timedelta(np.arange(100), unit="D")
    X = pd.DataFrame({"day": durations, "any": [{}] * 100, "x": np.arange(100)})
    labels = (np.arange(100) > 40).astype(int)
    weights = np.array([3.0, 2.0, 1.0])
    assert describe_groups(X, labels, 2, weights)["rule"].tolist() == ["x ≤ 40", "x > 40"]
    nothing = describe_groups(X[["day", "any"]], labels, 2)
    assert nothing["rule"].tolist() == ["all rows", "all rows"]
    assert nothing["fidelity"].tolist() == [0.41, 0.59]


def test_rules_name_dates() -> None:
    X = pd.DataFrame({"Order Date": pd.date_range("2022-01-01", periods=400), "x": 1.0})
    labels = (np.arange(400) > 212).astype(int)
    described = describe_groups(X, labels, 2)
    assert described["rule"].tolist() == ["Order Date ≤ 2022-08-01", "Order Date > 2022-08-01"]
    assert described["features"].tolist() == [
        "Order Date earlier (2022-04-17; all: 2022-07-19)",
        "Order Date later (2022-11-03; all: 2022-07-19)",
    ]
    two = X.assign(**{"Order Date": np.where(labels, np.datetime64("2022-08-01"), np.datetime64("2021-12-31"))})
    assert describe_groups(two, labels, 2)["rule"].tolist() == ["Order Date = 2021-12-31", "Order Date = 2022-08-01"]


def test_a_day_is_enough_in_a_rule_where_there_are_many_days() -> None:
    labels = (np.arange(960) >= 480).astype(int)

    def rules(dates: Any) -> list[str]:
        return describe_groups(pd.DataFrame({"t": dates}), labels, 2)["rule"].tolist()

    hours = pd.date_range("2022-01-01", periods=960, freq="h")
    assert rules(hours) == ["t ≤ 2022-01-20", "t > 2022-01-20"], "which holds for all of that day"
    assert rules(hours.tz_localize("Asia/Tokyo") + pd.Timedelta(hours=9)) == rules(hours), "in UTC"
    minutes = pd.date_range("2022-01-01", periods=960, freq="min")
    assert rules(minutes) == ["t ≤ 2022-01-01 07:59", "t > 2022-01-01 07:59"]
    gaps = pd.Series(hours).where(np.arange(960) % 5 > 0)
    assert rules(gaps)[0] == "roughly t ≤ 2022-01-19", "a missing date counts as the median"


def test_one_group_is_all_rows() -> None:
    assert describe_groups(rows(), np.zeros(400, dtype=int), 1)["rule"].tolist() == ["all rows"]


def test_rows_of_no_known_group_belong_to_none() -> None:
    X = pd.DataFrame({"a": np.repeat([0, 1, 2], 10)})
    described = describe_groups(X, np.repeat([0, 1, -1], 10), 2)
    assert described["rule"].tolist() == ["a ≤ 0", "0 < a ≤ 1"]


def test_many_rows_and_many_categories() -> None:
    n = 20_000
    X = pd.DataFrame({"name": [f"n{j}" for j in range(n)], "a": np.arange(n)})
    described = describe_groups(X, (X["a"] >= n // 2).to_numpy().astype(int), 2)
    assert described["fidelity"].tolist() == [1.0, 1.0]
