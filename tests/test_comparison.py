"""Methods side by side: paired differences and what they are worth."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor
from sklearn.linear_model import QuantileRegressor

from icqr import CQR, ICQR, QR, GroupPartition, audit, compare, report
from icqr.auditing.comparison import judged_differences
from icqr.reporting import summarize

RNG = np.random.default_rng(0)
X = pd.DataFrame({"a": RNG.random(800), "b": RNG.random(800)})
Y = RNG.normal(size=800)
WIDE, RIGHT = np.full((800, 2), [-3.0, 3.0]), np.full((800, 2), [-1.645, 1.645])


def test_differences_are_paired() -> None:
    found = compare(Y, {"right": RIGHT, "wide": WIDE}, X, coverage=0.9, with_excess_risk=False)
    rows = found.differences.set_index("measure")
    assert found.reference == "right"
    width = rows.loc["mean_width"]
    assert width["difference"] == pytest.approx(2.71)
    assert width["standard_error"] == pytest.approx(0, abs=1e-12)
    inside = (np.abs(Y) <= 3).astype(float) - (np.abs(Y) <= 1.645)
    coverage = rows.loc["coverage"]
    assert coverage["difference"] == pytest.approx(inside.mean())
    assert coverage["standard_error"] == pytest.approx(inside.std(ddof=1) / math.sqrt(800))
    score = found.table["interval_score"]
    assert rows.loc["interval_score", "difference"] == pytest.approx(score["wide"] - score["right"])
    assert rows["verdict"].tolist() == ["more", "more", "more", "not known"]


def test_nothing_is_said_of_a_difference_without_an_error() -> None:
    found = compare([1.0], {"a": [[0.0, 2.0]], "b": [[0.0, 3.0]]}, coverage=0.9)
    assert not [text for text in found.findings if "compared with" in text or "unknown" in text]


def test_few_rows_prove_nothing() -> None:
    found = compare(Y[:29], {"right": RIGHT[:29], "wide": WIDE[:29]}, coverage=0.9)
    assert set(found.differences["verdict"]) == {"not known"}
    assert not [text for text in found.findings if "compared with" in text]


def test_groups_that_are_a_model_s_own_are_judged_once() -> None:
    rows = X.assign(late=X["a"] > 0.5)
    trees = LGBMRegressor(n_estimators=3, verbose=-1, random_state=0)
    model = ICQR(trees, partition=GroupPartition("late"), random_state=0).fit(rows, Y)
    methods = {"flat": RIGHT, "model": model}
    found = compare(Y, methods, rows, groups="late", coverage=0.9, with_excess_risk=False)
    kinds = {name: one.regions["kind"].value_counts() for name, one in found.audits.items()}
    assert (kinds["flat"]["group"], kinds["model"]["model group"]) == (2, 2)
    assert "group" not in kinds["model"]


def test_no_difference_is_called_unclear() -> None:
    found = compare(Y, {"one": RIGHT, "same": RIGHT}, X, coverage=0.9)
    assert set(found.differences["verdict"]) == {"no clear difference"}
    noisy = RIGHT + np.random.default_rng(1).normal(scale=0.01, size=(800, 2))
    found = compare(Y, [RIGHT, noisy], X, coverage=0.9, with_excess_risk=False)
    assert list(found.audits) == ["method 1", "method 2"]
    assert found.findings[-1].startswith("method 2 compared with method 1: mean width ")
    assert re.search(
        r"interval score not clearly different \(very likely between .* % less and .* % more\)", str(found)
    )


def test_a_reference_without_width_is_compared_in_units() -> None:
    points = np.repeat(Y[:, None], 2, axis=1)
    found = compare(Y, {"points": points, "wide": WIDE}, X, coverage=0.9, with_excess_risk=False)
    assert "wide compared with points: mean width 6 more (very likely between 6 more and 6 more)" in str(found)


def test_differences_are_wrong_no_more_often_than_stated() -> None:
    wrong = 0
    for noise in np.random.default_rng(0).normal(size=(200, 4)):
        found = judged_differences(pd.DataFrame({"difference": noise, "standard_error": 1.0}))
        wrong += found["verdict"].isin(["less", "more"]).any()
    assert wrong / 200 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)


def test_models_and_a_named_reference() -> None:
    models = [kind(QuantileRegressor(alpha=0), random_state=0).fit(X[:400], Y[:400]) for kind in (QR, CQR, CQR)]
    found = compare(Y[400:], models, X[400:], reference="CQR", with_excess_risk=False)
    assert list(found.table.index) == ["QR", "CQR", "CQR (3)"]
    assert found.differences["method"].unique().tolist() == ["QR", "CQR (3)"]
    assert found.findings[0].startswith("QR: Over all 400 rows")


def test_infinite_bounds_have_no_difference() -> None:
    infinite = WIDE.copy()
    infinite[0] = [-np.inf, np.inf]
    found = compare(Y, {"wide": WIDE, "infinite": infinite}, X, coverage=0.9, with_excess_risk=False)
    width = found.differences.set_index("measure").loc["mean_width"]
    assert math.isnan(width["difference"])
    assert width["verdict"] == "not known"
    assert json.loads(found.to_json())["methods"][1]["mean_width"] == "Infinity"
    found.to_markdown()


def test_what_it_gives() -> None:
    found = compare(Y, {"<b>right</b>": RIGHT, "wide": WIDE}, X, coverage=0.9)
    read = json.loads(found.to_json())
    assert [row["method"] for row in read["methods"]] == ["<b>right</b>", "wide"]
    assert set(read["audits"]) == {"<b>right</b>", "wide"}
    assert len(found.to_frame()) == 2
    assert "<b>" not in found._repr_html_()
    assert "<b>" not in found.to_markdown()
    assert "wide compared with <b>right</b>: mean width" in str(found)


def test_one_method_alone() -> None:
    found = compare(Y, [RIGHT], X, coverage=0.9, with_excess_risk=False)
    assert found.differences.empty
    found.to_markdown()


def test_errors() -> None:
    with pytest.raises(ValueError, match="reference must be one of right, got 'left'"):
        compare(Y, {"right": RIGHT}, X, coverage=0.9, reference="left")
    with pytest.raises(TypeError, match="methods must be a dict or a list"):
        compare(Y, RIGHT, X, coverage=0.9)
    with pytest.raises(ValueError, match="at least one"):
        compare(Y, [], X, coverage=0.9)
    models = [CQR(QuantileRegressor(alpha=0), coverage=c, random_state=0).fit(X, Y) for c in (0.8, 0.9)]
    with pytest.raises(ValueError, match=r"methods must promise the same coverage, got CQR: 0\.8, CQR \(2\): 0\.9"):
        compare(Y, models, X)


def test_a_difference_that_is_clear_only_alone_says_so() -> None:
    # Ten methods whose centres differ by noise; the last is a little wider, by 2.5 standard errors.
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(10, 800))
    extra = noise - noise.mean(axis=1, keepdims=True)
    extra[-1] += 2.5 / math.sqrt(800)
    methods = {"right": RIGHT} | {f"m{k}": RIGHT + 0.01 * e[:, None] * [-1, 1] for k, e in enumerate(extra)}
    found = compare(Y, methods, coverage=0.9)
    row = found.differences.set_index(["method", "measure"]).loc[("m9", "mean_width")]
    assert row["lower"] > 0
    assert row["verdict"] == "no clear difference"
    clause = r"m9 compared with right: mean width not clearly different among so many comparisons \(alone, very likely"
    assert re.match(clause + r" between 0\.0 % more and 0\.1 % more\)", found.findings[-1])


def test_swapped_arguments_are_named() -> None:
    flat = {"right": RIGHT}
    swapped = "y and X look swapped: y comes first, as in audit"
    for call in (
        lambda: audit(X, RIGHT, Y, coverage=0.9),
        lambda: compare(X, flat, Y, coverage=0.9),
        lambda: compare(flat, X, Y, coverage=0.9),  # type: ignore[arg-type]
        lambda: report(compare(Y, flat, X, coverage=0.9), "never.html", X, Y, methods=flat),
        lambda: summarize(CQR(QuantileRegressor(alpha=0), random_state=0).fit(X, Y), X),
    ):
        with pytest.raises(ValueError, match=swapped):
            call()
