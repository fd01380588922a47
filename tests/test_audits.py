"""The audit finds what was planted, says it in words, and cries wolf no more often than it says."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats
from sklearn.linear_model import LinearRegression, QuantileRegressor

from icqr import CQR, ICQR, QR, GroupPartition, audit
from icqr.auditing import Audit
from icqr.auditing.regions import slab_words
from icqr.metrics import WorstSlab, binomial_interval

INF = float("inf")
SCHEMA = json.loads((files("icqr.auditing") / "schema.json").read_text(encoding="utf-8"))
Z = 1.6448536269514722
#: The chance of any false alarm in an audit, as its method says.
ERROR_RATE = 0.05
FOUND = "the half not searched"


def oracle(seed: int, n: int) -> tuple[pd.DataFrame, Any, Any]:
    """Rows whose intervals cover with probability 0.9 whatever the features are."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"hr": rng.integers(0, 24, n), "temp": rng.random(n), "workingday": rng.integers(0, 2, n)})
    X["city"] = rng.choice(["Bern", "Genf", "Rom"], n)
    scale = 1 + X["temp"].to_numpy()
    return X, rng.normal(scale=scale), np.column_stack([-Z * scale, Z * scale])


def planted(seed: int, n: int) -> tuple[pd.DataFrame, Any, Any]:
    """The same, but with too narrow intervals in early hours of working days (coverage there: 67 %)."""
    X, y, intervals = oracle(seed, n)
    bad = (X["hr"] <= 6) & (X["workingday"] == 1)
    return X, np.where(bad, 1.7 * y, y), intervals


def judging_rows(n: int, seed: int) -> Any:
    """The half of the rows on which regions are judged that were found on the other."""
    return np.sort(np.array_split(np.random.default_rng(seed).permutation(n), 2)[1])


def check_json(found: Audit) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(found.to_json(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    jsonschema.Draft202012Validator(SCHEMA).validate(read)
    return read


# -- What must be shown -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "column",
    [pd.array([True, None] * 200, dtype="boolean"), pd.to_datetime(["2020-01-01", None] * 200), [1.0, None] * 200],
)
def test_a_column_that_varies_only_by_gaps_has_no_slab(column: Any) -> None:
    _, y, intervals = oracle(0, 400)
    found = audit(y, intervals, pd.DataFrame({"flag": column}), coverage=0.9)
    assert math.isnan(found.numbers["worst_slab_coverage"])


def test_labels_with_the_same_text_are_one_group() -> None:
    _, y, intervals = oracle(0, 400)
    found = audit(y, intervals, groups=pd.Series([1, "1", 2, None] * 100, dtype=object), coverage=0.9)
    given = found.regions[found.regions["kind"] == "group"].set_index("region")["n"]
    assert given.to_dict() == {"group = 1": 200, "group = 2": 100, "group is missing": 100}


def test_a_planted_region_is_named_first_and_in_words() -> None:
    X, y, intervals = planted(0, 4000)
    found = audit(y, intervals, X, coverage=0.9, with_excess_risk=False)
    region = found.regions.iloc[0]
    assert region["region"] == "hr ≤ 6 and workingday = 1"
    assert region["verdict"] == "undercovers"
    rows = np.intersect1d(np.flatnonzero((X["hr"] <= 6) & (X["workingday"] == 1)), judging_rows(4000, 0))
    covered = np.abs(y[rows]) <= intervals[rows, 1]
    share, (low, high) = covered.mean(), binomial_interval(covered.sum(), len(rows), confidence=region["confidence"])
    assert region["confidence"] > 0.95  # together with the other regions
    low, high = np.floor(1000 * low) / 1000, np.ceil(1000 * high) / 1000
    assert found.findings[0] == (
        f"Rows with hr ≤ 6 and workingday = 1: {100 * share:.1f} % of {len(rows)} covered, 90 % promised; the true "
        f"value is very likely between {100 * low:.1f} % and {100 * high:.1f} %."
    )
    assert found.findings[-1] == found.summary
    assert found.summary.startswith("Over all 4,000 rows ")


def test_the_planted_region_comes_first_for_most_seeds() -> None:
    first = 0
    for seed in range(10):
        X, y, intervals = planted(seed, 3000)
        finding = audit(y, intervals, X, coverage=0.9, random_state=seed, with_excess_risk=False).findings[0]
        rule = finding.partition(":")[0]
        first += "hr ≤" in rule and "workingday = 1" in rule
    assert first >= 9


def false_alarms(seeds: range, n: int) -> int:
    count = 0
    for seed in seeds:
        X, y, intervals = oracle(seed, n)
        found = audit(y, intervals, X, "city", coverage=0.9, random_state=seed, with_excess_risk=False)
        count += len(found.alarms) > 0
    return count


@pytest.mark.parametrize(
    ("n_seeds", "n"),
    [(24, 400), pytest.param(200, 400, marks=pytest.mark.slow), pytest.param(200, 2000, marks=pytest.mark.slow)],
)
def test_oracle_intervals_raise_no_more_alarms_than_stated(n_seeds: int, n: int) -> None:
    error = math.sqrt(ERROR_RATE * (1 - ERROR_RATE) / n_seeds)
    assert false_alarms(range(n_seeds), n) / n_seeds <= ERROR_RATE + 3 * error


def test_infinite_bounds_work_throughout() -> None:
    X, y, intervals = planted(1, 1000)
    intervals[X["hr"] == 3] = [-INF, INF]
    intervals[X["hr"] == 4, 1] = INF
    found = audit(y, intervals, X, "city", coverage=0.9)
    infinite = int(X["hr"].isin([3, 4]).sum())
    assert found.numbers["n_infinite"] == infinite
    assert found.numbers["mean_width"] == found.numbers["interval_score"] == INF
    assert math.isfinite(found.numbers["finite_width_mean"])
    assert any(f"{infinite} of 1,000 intervals are infinite" in sentence for sentence in found.findings)
    assert check_json(found)["numbers"]["mean_width"] == "Infinity"
    assert "∞" in found.to_markdown()
    assert "∞" in found._repr_html_()


@pytest.mark.parametrize("bounds", [(-INF, INF), (-INF, 0.5), (-0.5, INF)])
def test_only_infinite_or_one_sided_intervals(bounds: tuple[float, float]) -> None:
    X, y, _ = oracle(2, 300)
    check_json(audit(y, np.full((300, 2), bounds), X, coverage=0.9, with_excess_risk=False))


# -- What it takes ----------------------------------------------------------------------------------------

LOWER, UPPER = np.array([0.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0])
ROWS = np.column_stack([LOWER, UPPER])


@pytest.mark.parametrize(
    "given",
    [
        ROWS,
        ROWS.tolist(),
        ROWS[:, :, None],
        (LOWER, UPPER),
        [LOWER, UPPER],
        (LOWER + 0.5, ROWS[:, :, None]),
        (LOWER + 0.5, ROWS),
        (LOWER + 0.5, LOWER, UPPER),
        (LOWER[:, None], LOWER[:, None], UPPER[:, None]),
        (ROWS, LOWER, UPPER),
        (None, LOWER, UPPER),
        pd.DataFrame(ROWS),
        pl.DataFrame({"lower": LOWER, "upper": UPPER}),
        (pd.Series(LOWER), pl.Series(UPPER)),
    ],
    ids=str,
)
def test_the_shapes_that_libraries_return(given: Any) -> None:
    # The middle row is covered, the first is missed by 1, the last by 6: 3 + 20 · 7, over three rows.
    numbers = audit([-1, 1.5, 9], given, coverage=0.9).numbers
    assert numbers["mean_width"] == 1
    assert numbers["interval_score"] == pytest.approx(143 / 3)


def test_two_rows_are_rows_in_a_list_and_bounds_in_a_tuple() -> None:
    assert audit([0.5, 2.5], [[0, 1], [2, 3]], coverage=0.9).numbers["mean_width"] == 1
    assert audit([0.5, 2.5], ([0, 1], [2, 3]), coverage=0.9).numbers["mean_width"] == 2


@pytest.mark.parametrize(
    ("given", "got"),
    [
        (np.zeros((3, 2, 2)), r"ndarray of shape \(3, 2, 2\)\."),
        (np.zeros((2, 3)), r"ndarray of shape \(2, 3\)\."),
        (np.zeros(3), r"ndarray of shape \(3,\)\."),
        ((LOWER,), r"tuple of shape \(3,\)\."),
        ((LOWER, UPPER[:2]), r"tuple of shape \(3,\), \(2,\)\."),
        ([LOWER, UPPER[:2]], r"list of shape \(3,\), \(2,\)\."),
        (5, r"int of shape \(\)\."),
    ],
)
def test_other_shapes_are_refused(given: Any, got: str) -> None:
    message = r"intervals must hold a lower and an upper bound for each of the 3 rows"
    with pytest.raises(ValueError, match=f"{message}.*got {got}"):
        audit([0, 1, 2], given, coverage=0.9)


def test_a_model_of_another_library() -> None:
    class Other:
        def predict_interval(self, X: Any) -> Any:
            return np.zeros(len(X)), np.tile([[[-1.0], [1.0]]], (len(X), 1, 1))

    X, y, _ = oracle(0, 200)
    assert audit(y, Other(), X, coverage=0.9).numbers["mean_width"] == 2
    with pytest.raises(ValueError, match="X must be given with a model"):
        audit(y, Other(), coverage=0.9)


def by_mapie(X: Any, y: Any) -> dict[str, Any]:
    from mapie.regression import ConformalizedQuantileRegressor, CrossConformalRegressor

    quantiles = ConformalizedQuantileRegressor(QuantileRegressor(alpha=0), confidence_level=0.9)
    quantiles.fit(X[:300], y[:300]).conformalize(X[300:600], y[300:600])
    folds = CrossConformalRegressor(LinearRegression(), confidence_level=0.9, random_state=0)
    folds.fit_conformalize(X[:600], y[:600])
    return {
        "model": quantiles,
        "result": quantiles.predict_interval(X[600:]),
        "bounds": quantiles.predict_interval(X[600:])[1],
        "cross-conformal": folds.predict_interval(X[600:]),
    }


def by_crepes(X: Any, y: Any) -> dict[str, Any]:
    crepes = pytest.importorskip("crepes")
    model = crepes.WrapRegressor(LinearRegression())
    model.fit(X[:300], y[:300])
    model.calibrate(X[300:600], y[300:600])
    return {"result": model.predict_int(X[600:], confidence=0.9)}


def by_puncc(X: Any, y: Any) -> dict[str, Any]:
    puncc, prediction = (pytest.importorskip(f"deel.puncc.{name}") for name in ("regression", "api.prediction"))
    parts = {"X_fit": X[:300], "y_fit": y[:300], "X_calib": X[300:600], "y_calib": y[300:600]}
    split = puncc.SplitCP(prediction.BasePredictor(LinearRegression()))
    split.fit(**parts)
    levels = [QuantileRegressor(quantile=level, alpha=0) for level in (0.05, 0.95)]
    quantiles = puncc.CQR(prediction.DualPredictor(levels))
    quantiles.fit(**parts)
    folds = puncc.CVPlus(prediction.BasePredictor(LinearRegression()), K=4, random_state=0)
    folds.fit(X[:600], y[:600])
    models = {"split": split, "quantiles": quantiles, "folds": folds}
    return {name: model.predict(X[600:], alpha=0.1) for name, model in models.items()}


@pytest.mark.parametrize("library", [by_mapie, by_crepes, by_puncc])
def test_what_other_libraries_return(library: Callable[[Any, Any], dict[str, Any]]) -> None:
    """Checked also against puncc 0.9.3, which can't be installed beside NumPy 2."""
    X, y, _ = oracle(0, 900)
    X = X[["hr", "temp"]].to_numpy(dtype=float)
    for name, given in library(X, y).items():
        found = audit(y[600:], given, X[600:], coverage=0.9, with_excess_risk=False)
        assert 0.84 < found.numbers["coverage"] < 0.96, name  # 0.9 ± 3.5 standard errors of 300 rows


def test_polars_gives_what_pandas_gives() -> None:
    X, y, intervals = planted(0, 1000)
    one = audit(y, intervals, X, "city", coverage=0.9)
    two = audit(pl.Series(y), pl.DataFrame(intervals), pl.DataFrame(X.to_dict("list")), "city", coverage=0.9)
    assert one.to_json() == two.to_json()


def test_errors_say_what_to_do() -> None:
    X, y, intervals = oracle(0, 200)
    with pytest.raises(ValueError, match=r"coverage must be given .* for example coverage=0\.9"):
        audit(y, intervals, X)
    with pytest.raises(ValueError, match=r"got 90; did you mean 0\.9\?"):
        audit(y, intervals, X, coverage=90)
    with pytest.raises(ValueError, match="X must have 200 rows, one per row of y, got 100"):
        audit(y, intervals, X[:100], coverage=0.9)
    with pytest.raises(ValueError, match="names must be unique; these appear more than once: 1"):
        audit(y, intervals, pd.DataFrame({1: y, "1": y}), coverage=0.9)
    with pytest.raises(ValueError, match="groups must have 200 labels"):
        audit(y, intervals, X, X["city"][:100], coverage=0.9)
    with pytest.raises(ValueError, match="'town', which X lacks"):
        audit(y, intervals, X, "town", coverage=0.9)
    with pytest.raises(ValueError, match="random_state must be a whole number"):
        audit(y, intervals, X, coverage=0.9, random_state=None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"lower ≤ upper in every row"):
        audit(y, intervals[:, ::-1], X, coverage=0.9)


def test_a_broken_promise_comes_before_infinite_intervals() -> None:
    _, y, intervals = oracle(0, 400)
    endless = np.where((np.arange(400) < 9)[:, None], [-np.inf, np.inf], intervals)
    said = "9 of 400 intervals are infinite, and with that the mean width and the interval score of all rows."
    assert audit(y, endless, coverage=0.9).findings[-2] == said
    broken = audit(3 * y, endless, coverage=0.9).findings
    assert broken[-1] == said
    assert said in audit(3 * y, endless, coverage=0.9).to_markdown()
    assert "the promise is broken on average" in broken[-2]
    one_sided = np.column_stack([np.full(400, -np.inf), intervals[:, 1]])
    assert not any("infinite" in finding for finding in audit(y, one_sided, coverage=0.95).findings)


def test_a_group_that_is_judged_is_not_found_again() -> None:
    X, y, intervals = oracle(0, 2000)
    y = np.where(X["city"] == "Rom", 2 * y, y)
    assert "city = Rom" in set(audit(y, intervals, X, coverage=0.9, with_excess_risk=False).regions["region"])
    regions = audit(y, intervals, X, "city", coverage=0.9, with_excess_risk=False).regions
    assert regions.loc[regions["region"] == "city = Rom", "kind"].tolist() == ["group"]


def test_groups_may_be_columns_of_X() -> None:  # noqa: N802
    X, y, intervals = oracle(0, 400)
    several = audit(y, intervals, X.assign(late=X["hr"] > 12), ["city", "late"], coverage=0.9, with_excess_risk=False)
    assert {"city = Rom", "late = True"} <= set(several.regions["region"])


def test_dates_missing_values_and_constant_columns() -> None:
    X, y, intervals = oracle(3, 600)
    X["day"] = pd.date_range("2024-01-01", periods=600, freq="h")
    X["temp"] = X["temp"].where(X["temp"] > 0.3)
    X["city"] = X["city"].where(X["city"] != "Rom", None)
    X["same"], X["empty"], X["flag"] = 1, np.nan, X["hr"] > 5
    late = X["day"] > "2024-01-20"
    missing = X["temp"].isna()
    found = audit(np.where(late, 3 * y, y), intervals, X, "city", coverage=0.9)
    assert any("day > 2024-01-" in sentence for sentence in found.findings)
    assert "city is missing" in set(found.regions["region"])
    found = audit(np.where(missing, 3 * y, y), intervals, X, coverage=0.9)
    assert found.findings[0].startswith("Rows with temp is missing: ")
    check_json(found)


def test_without_features_or_with_few_rows() -> None:
    X, y, intervals = oracle(0, 1000)
    found = audit(np.where(X["temp"] > 0.7, 3 * y, y), intervals, coverage=0.9, with_excess_risk=False)
    assert found.findings[0].startswith("Rows with interval width > ")
    few = audit(y[:30], intervals[:30], X[:30], coverage=0.9, with_excess_risk=False)
    assert few.regions["region"].tolist() == ["all rows"]
    assert few.regions["verdict"].tolist() == ["too few rows to tell"]
    assert few.summary.endswith("No regions were looked at.")
    for one in (found, few, audit(y[:1], intervals[:1], X[:1], coverage=0.9)):
        check_json(one)


@pytest.mark.parametrize(
    ("direction", "lower", "upper", "words"),
    [
        ({"x": 1.0}, 0.5, INF, "x ≥ 0.5"),
        ({"x": 1.0, "z": -0.25}, 0.5, 2.0, "0.5 ≤ x - 0.25·z ≤ 2"),
        ({"kind = bus": 1.0}, 0.5, INF, "kind = bus"),
        ({"kind = bus": 1.0}, -INF, 0.5, "kind ≠ bus"),
        ({"kind = bus": -1.0}, -INF, -0.5, "kind = bus"),
        ({"x": 1.0, "kind = bus": 0.5}, -INF, 0.5, "x + 0.5·[kind = bus] ≤ 0.5"),
        ({"x": 1.0, "z": 0.1, "kind = bus": 1.0, "kind = car": 1.0, "u": 0.0}, 0.5, 1.0, None),
    ],
)
def test_a_slab_in_words(direction: dict[str, float], lower: float, upper: float, words: str | None) -> None:
    X = pd.DataFrame({"x": [0.0, 2.0], "z": [0.0, 2.0], "u": [0.0, 1.0], "kind": ["bus", "car"]})
    slab = WorstSlab(0.5, 1, (0.0, 1.0), pd.Series(direction), lower, upper, np.array([0]))
    words = words or "a slab across x, kind = bus, kind = car and 1 other column"
    assert slab_words(slab, X) == words


def test_a_slab_across_many_columns_is_named_as_one() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 5))
    y = rng.normal(scale=np.where(np.abs(X.sum(axis=1)) < 0.6, 4, 0.5))
    found = audit(y, np.full((4000, 2), [-Z, Z]), X, coverage=0.9, with_excess_risk=False)
    assert "worst slab" in set(found.alarms["kind"])
    assert any(re.match(r"Rows in a slab across x\d, x\d, x\d and 2 other columns: ", text) for text in found.findings)


def test_rounding_of_equal_widths_is_no_region() -> None:
    rng = np.random.default_rng(0)
    prediction = rng.lognormal(2, 2, 4000)
    y = prediction + rng.normal(size=4000) * np.where(prediction > 20, 3.0, 0.5)
    found = audit(y, np.column_stack([prediction - 1.6, prediction + 1.6]), coverage=0.9)
    assert len(found.alarms)
    assert not found.regions["region"].str.contains("interval width").any()


def test_constant_features() -> None:
    _, y, intervals = oracle(0, 200)
    found = audit(y, intervals, np.ones((200, 2)), coverage=0.9)
    assert found.worst_slab is None
    assert math.isnan(found.numbers["worst_slab_coverage"])


# -- Which rows judge -------------------------------------------------------------------------------------


def test_found_regions_are_judged_on_rows_that_were_not_searched() -> None:
    X, y, intervals = planted(0, 1000)
    before = audit(y, intervals, X, "city", coverage=0.9, random_state=7, with_excess_risk=False)
    # Whatever happens in the rows that judge, the same regions are looked at.
    changed = y.copy()
    changed[judging_rows(1000, 7)] = 0.0
    after = audit(changed, intervals, X, "city", coverage=0.9, random_state=7, with_excess_risk=False)
    searched = [each.regions[each.regions["basis"] == FOUND] for each in (before, after)]
    assert set(searched[0]["region"]) == set(searched[1]["region"])
    assert "worst slab" in set(searched[0]["kind"])
    assert (searched[1]["coverage"] == 1).all()


def rows_that_satisfy(rule: str, X: pd.DataFrame) -> Any:
    """Read a rule in words and tell for which rows it is true."""
    inside = np.ones(len(X), dtype=bool)
    for condition in rule.split(" and "):
        match = re.fullmatch(r"(?:(\S+) < )?(\w+) (≤|>|=|≠|is) (\S+)", condition)
        assert match, condition
        low, name, sign, value = match.groups()
        column = X[name]
        if low is not None:
            inside &= column > float(low)
        number = float(value) if sign in "≤>" else math.nan
        text = column.map(lambda entry: f"{entry:g}" if isinstance(entry, float) else str(entry)).where(column.notna())
        tests = {"≤": column <= number, ">": column > number, "=": text == value, "≠": text != value}
        tests["is"] = column.isna() if value == "missing" else column.notna()
        inside &= tests[sign]
    return inside


@pytest.mark.parametrize("seed", range(4))
def test_a_region_s_words_say_exactly_which_rows_it_holds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 1500
    X = pd.DataFrame({"a": rng.normal(size=n) * 10.0 ** rng.integers(-9, 9), "b": rng.integers(0, 15, n).astype(float)})
    X["c"], X["e"] = rng.choice(["u", "v", "w"], n), rng.random(n) < 0.5
    X["d"] = np.where(rng.random(n) < 0.2, np.nan, rng.random(n))
    X["f"] = rng.choice(np.array(["p", "q", None], dtype=object), n)
    spread = 1 + (X["a"] > 0) * X["e"] + X["d"].isna() + (X["c"] == "v") * (X["b"] < 5) + (X["f"] == "p")
    width = np.exp(rng.normal(scale=0.2, size=n))
    y, intervals = rng.normal(scale=spread), np.column_stack([-2 * width, 2 * width])
    found = audit(y, intervals, X, coverage=0.8, random_state=seed, with_excess_risk=False)
    regions = found.regions[(found.regions["basis"] == FOUND) & (found.regions["kind"] != "worst slab")]
    regions = regions[~regions["region"].str.contains("interval")]
    assert len(regions)
    sizes = [rows_that_satisfy(rule, X)[judging_rows(n, seed)].sum() for rule in regions["region"]]
    assert regions["n"].tolist() == sizes


def test_a_plain_rule_is_preferred_and_what_it_explains_is_left_out() -> None:
    rng = np.random.default_rng(1)
    X = pd.DataFrame(rng.random((8000, 4)), columns=list("abcd")).round(2)
    X["flag"] = rng.integers(0, 2, 8000)
    covered = rng.random(8000) < np.where((X["a"] > 0.8) & (X["flag"] == 1), 0.5, 0.9)
    y, intervals = np.where(covered, 0, 9), np.full((8000, 2), [-1, 1])
    regions = audit(y, intervals, X, coverage=0.9, with_excess_risk=False).regions["region"]
    assert re.fullmatch(r"a > 0\.(79|8)\d* and flag = 1", regions[0])
    assert not {"flag = 1", "a > 0.8"} & set(regions)


@pytest.mark.parametrize("y", [0.0, 9.0])
def test_rows_that_are_all_covered_or_all_missed(y: float) -> None:
    X, _, _ = oracle(0, 400)
    found = audit(np.full(400, y), np.full((400, 2), [-1, 1]), X, coverage=0.9, with_excess_risk=False)
    assert 1 < len(found.regions) <= 15


def test_no_region_is_all_rows() -> None:
    X = pd.DataFrame({"version": [3.0] * 400, "empty": np.nan, "text": "x", "x": np.arange(400.0)})
    y, intervals = np.where(np.random.default_rng(0).random(400) < 0.8, 0, 9), np.full((400, 2), [-1, 1])
    regions = audit(y, intervals, X, coverage=0.9, with_excess_risk=False).regions
    rules = regions.loc[regions["kind"] != "all rows", "region"].tolist()
    assert rules
    assert all(rule.startswith("x ") or " x ≤ " in rule for rule in rules)
    assert audit(y, intervals, coverage=0.9).regions["region"].tolist() == ["all rows"]


def test_infinite_features() -> None:
    X, y, intervals = planted(1, 600)
    X["ratio"] = np.where(X["hr"] == 0, INF, np.where(X["hr"] == 1, -INF, X["temp"]))
    check_json(audit(y, intervals, X, coverage=0.9, with_excess_risk=False))


def test_given_groups_are_judged_on_all_rows() -> None:
    X, y, intervals = oracle(0, 1000)
    found = audit(y, intervals, X, X[["city", "workingday"]], coverage=0.9, with_excess_risk=False).regions
    groups = found[found["kind"] == "group"].set_index("region")
    assert (groups["basis"] == "all rows").all()
    sizes = {f"city = {c}": n for c, n in X["city"].value_counts().items()}
    sizes |= {f"workingday = {c}": n for c, n in X["workingday"].value_counts().items()}
    assert groups["n"].to_dict() == sizes


def test_many_columns_keep_the_number_of_regions_bounded() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 9, (1000, 280)), rng.normal(size=1000)
    found = audit(y, np.full((1000, 2), [-Z, Z]), X, coverage=0.9, with_excess_risk=False)
    assert len(found.regions) <= 21


def test_the_result_depends_on_the_seed_alone() -> None:
    X, y, intervals = planted(0, 600)
    first = audit(y, intervals, X, coverage=0.9)
    assert first.to_json() == audit(y, intervals, X, coverage=0.9).to_json()
    assert first.to_json() != audit(y, intervals, X, coverage=0.9, random_state=1).to_json()


# -- Verdicts --------------------------------------------------------------------------------------------


def judged(*counts: tuple[int, int]) -> pd.DataFrame:
    """Audit groups with so many covered rows of so many, for a promise of 90 %."""
    y = np.concatenate([np.where(np.arange(n) < covered, 0.0, 9.0) for covered, n in counts])
    labels = np.repeat(np.arange(len(counts)), [n for _, n in counts])
    regions = audit(y, np.full((len(y), 2), [-1, 1]), groups=labels, coverage=0.9).regions
    return regions[regions["kind"] == "group"].reset_index(drop=True)


@pytest.mark.parametrize(
    ("covered", "n", "verdict"),
    [
        (900, 1000, "holds"),
        (850, 1000, "undercovers"),
        (950, 1000, "overcovers"),
        (9, 10, "too few rows to tell"),
        (33, 33, "too few rows to tell"),
        (100, 100, "overcovers"),
        (1760, 2000, "undercovers"),
    ],
)
def test_verdicts(covered: int, n: int, verdict: str) -> None:
    assert judged((covered, n))["verdict"].tolist() == [verdict]


def test_what_chance_explains_is_spared() -> None:
    # 870 of 1,000 has p = 0.0023 by itself; among 50 regions that is no news, yet it is not called kept either.
    regions = judged((870, 1000), *[(900, 1000)] * 49)
    assert regions["verdict"].tolist() == ["too few rows to tell"] + ["holds"] * 49


def test_the_worst_region_comes_first() -> None:
    regions = judged((900, 1000), (960, 1000), (9, 10), (700, 1000), (650, 1000), (990, 1000))
    assert (regions["coverage"] * regions["n"]).round().tolist() == [650, 700, 990, 960, 9, 900]


def test_an_alarm_is_an_exact_test() -> None:
    """The interval leaves out the promise when twice the smaller binomial tail is below the error rate."""
    for covered in range(81):
        y = np.where(np.arange(80) < covered, 0.0, 9.0)
        region = audit(y, np.full((80, 2), [-1, 1]), coverage=0.9).regions.iloc[0]
        tails = [stats.binomtest(covered, 80, 0.9, alternative=side).pvalue for side in ("less", "greater")]
        assert (region["verdict"] in ("undercovers", "overcovers")) == (2 * min(tails) < ERROR_RATE)


def test_given_and_found_regions_share_the_error_rate() -> None:
    X, _, _ = oracle(0, 1000)
    y = np.where(np.arange(1000) < 875, 0.0, 9.0)
    found = audit(y, np.full((1000, 2), [-4, 4]), X, "city", coverage=0.9, with_excess_risk=False).regions
    missed = (1 - found["confidence"]).groupby([found["kind"] == "all rows", found["basis"]]).sum()
    assert missed.to_dict() == pytest.approx(
        {(True, "all rows"): ERROR_RATE / 3, (False, "all rows"): ERROR_RATE / 3, (False, FOUND): ERROR_RATE / 3}
    )
    few = audit(y[:80], np.full((80, 2), [-4, 4]), coverage=0.9).regions
    assert few["confidence"].tolist() == [1 - ERROR_RATE]  # nothing else is judged


# -- Models -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows() -> tuple[pd.DataFrame, Any]:
    X, y, _ = oracle(11, 3000)
    return X, y


def fitted(kind: Any, rows: tuple[pd.DataFrame, Any], **parameters: Any) -> Any:
    X, y = rows
    return kind(QuantileRegressor(alpha=0), random_state=0, **parameters).fit(X[["hr", "temp"]][:600], y[:600])


def test_a_model_brings_its_coverage_groups_and_bands(rows: tuple[pd.DataFrame, Any]) -> None:
    X, y = rows
    model = fitted(ICQR, rows, coverage=0.8, partition=GroupPartition(lambda table: (table["hr"] > 11).to_numpy()))
    found = audit(y[600:], model, X[["hr", "temp"]][600:], with_excess_risk=False)
    assert found.coverage == 0.8
    groups = found.regions[found.regions["kind"] == "model group"].set_index("region").sort_index()
    assert groups["n"].sum() == 2400
    assert groups["calibration_rows"].sum() == 200
    np.testing.assert_allclose(groups["band_lower"], model.groups_["band_lower"])
    assert set(groups["guarantee"]) == {"group-wise"}
    assert groups["group"].tolist() == [0, 1]
    assert found.regions.loc[found.regions["kind"] != "model group", "group"].isna().all()
    assert audit(y[600:], model, X[["hr", "temp"]][600:], coverage=0.9, with_excess_risk=False).coverage == 0.9
    check_json(found)


def test_rows_of_no_known_group_are_one(rows: tuple[pd.DataFrame, Any]) -> None:
    X, y = rows
    model = ICQR(QuantileRegressor(alpha=0), partition=GroupPartition("city"), random_state=0)
    model.fit(X.loc[X["city"] != "Rom", ["temp", "city"]], y[X["city"] != "Rom"])
    with pytest.warns(UserWarning, match="a group unknown to the calibration has none"):
        found = audit(y, model, X[["temp", "city"]], with_excess_risk=False)
    groups = {one["group"]: one for one in check_json(found)["regions"] if one["kind"] == "model group"}
    assert set(groups) == {0, 1, -1}
    assert groups[-1]["region"] == "no known group"
    assert groups[-1]["n"] == (X["city"] == "Rom").sum()
    assert groups[-1]["calibration_rows"] == 0


def test_a_shortfall_that_calibration_can_give_is_told_from_one_that_it_cannot(rows: tuple[pd.DataFrame, Any]) -> None:
    X, y = rows
    model = fitted(CQR, rows)
    X = X[["hr", "temp"]][600:]
    whole = audit(2 * y[600:], model, X, with_excess_risk=False)
    assert whole.regions.set_index("region").loc["all rows", "within_band"] is False
    assert "with 200 calibration rows nine of ten calibrations give between " in whole.summary
    assert "so calibration luck does not explain it" in whole.summary
    centre, half = model.predict(X), np.ptp(model.predict_interval(X), axis=1) / 2
    # 88 % covered: clearly less than 90 % with so many rows, but 200 calibration rows often give that.
    outcomes = np.where(np.arange(24000) % 100 < 88, 0.0, 9.0) * np.tile(half, 10) + np.tile(centre, 10)
    lucky = audit(outcomes, model, pd.concat([X] * 10), with_excess_risk=False)
    row = lucky.regions.set_index("region").loc["all rows"]
    assert row["verdict"] == "within calibration luck"
    assert row["within_band"] is True
    assert row["coverage_upper"] < 0.9
    assert re.search(r"calibrations give between .*, so this is within calibration luck\.", lucky.summary)
    assert "broken" not in lucky.summary.partition(".")[0]


def test_a_model_without_a_promise_says_so(rows: tuple[pd.DataFrame, Any]) -> None:
    X, y = rows
    found = audit(3 * y, fitted(QR, rows), X[["hr", "temp"]], with_excess_risk=False)
    assert "the model promises nothing here (not calibrated)" in found.summary
    with pytest.raises(ValueError, match="X must be given with a model"):
        audit(y, fitted(QR, rows))


# -- What it gives ----------------------------------------------------------------------------------------


def test_json_follows_the_schema_and_the_dict_is_plain() -> None:
    X, y, intervals = planted(0, 500)
    found = audit(y, intervals, X, coverage=0.9)
    read = check_json(found)
    assert read["findings"] == list(found.findings)
    assert len(read["regions"]) == len(found.to_frame())
    assert set(read["regions"][0]) == set(found.to_frame().columns)
    assert found.to_frame()["within_band"].tolist() == [None] * len(found.regions)
    assert json.loads(json.dumps(found.to_dict())) == read
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_everything_from_data_is_escaped() -> None:
    X, y, intervals = planted(0, 1000)
    script = "<script>alert(1)</script>"
    X = X.rename(columns={"hr": script}).replace({"city": {"Rom": "<img src=x onerror=alert(1)> | *a*"}})
    found = audit(
        np.where(X["city"].isin(["Bern"]), y, 2 * y), intervals, X, "city", coverage=0.9, with_excess_risk=False
    )
    assert any(script in region for region in found.regions["region"])
    for text in (found._repr_html_(), found.to_markdown().replace("\\<", "")):
        assert "<script" not in text
        assert "<img" not in text
    assert "&lt;img src=x" in found._repr_html_()
    assert "\\| \\*a\\*" in found.to_markdown()


def test_markdown_has_the_summary_first_and_the_method_last() -> None:
    X, y, intervals = planted(0, 500)
    parts = audit(y, intervals, X, coverage=0.9, with_excess_risk=False).to_markdown().split("\n\n")
    assert parts[0].startswith("**Over all 500 rows")
    assert parts[-1].startswith("All rows and given groups are judged on all rows.")


def test_one_region_is_no_regions() -> None:
    _, y, intervals = oracle(5, 40)
    assert audit(y, intervals, groups=["Bern"] * 40, coverage=0.9).summary.endswith(
        " The one region looked at has too few rows to tell."
    )


def test_good_news_is_told() -> None:
    X, y, intervals = oracle(5, 4000)
    found = audit(y, intervals, X, "city", coverage=0.9)
    assert "the promise holds on average. In none of the" in found.summary
    assert found.findings == (found.summary,)
    assert str(found) == found.summary
    assert abs(found.numbers["excess_risk_l1"]) < 3 * found.numbers["excess_risk_l1_error"]
    assert (found.regions.loc[found.regions["kind"] == "group", "verdict"] == "holds").all()


def test_no_region_holds_nearly_all_rows() -> None:
    """A customer who is always covered does not make "all others" a region that somebody can act on."""
    customer = np.arange(4000) % 20
    y = np.where((customer > 0) & (np.arange(4000) % 7 == 0), 3.0, 0.0)
    found = audit(y, np.full((4000, 2), [-1.0, 1.0]), pd.DataFrame({"customer": customer.astype(str)}), coverage=0.9)
    assert not found.regions["region"].str.contains("≠").any()
