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
from icqr.auditing.comparison import Comparison, judged_differences
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
    for audited in found.audits.values():
        groups = audited.regions[audited.regions["kind"] == "group"]
        assert sorted(groups["region"]) == ["late = False", "late = True"]
        assert not (audited.regions["kind"] == "model group").any()
    known = found.audits["model"].regions.set_index("region")["calibration_rows"]
    assert known[["late = False", "late = True"]].tolist() == model.groups_["n"].tolist()


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


# -- The same regions for all ------------------------------------------------------------------------------


def shared_regions(found: Comparison) -> dict[str, set[tuple[str, str, int]]]:
    """The regions of each method but its own groups: words, kind and number of rows."""
    shared = {}
    for name, audited in found.audits.items():
        regions = audited.regions[audited.regions["kind"] != "model group"]
        shared[name] = set(zip(regions["region"], regions["kind"], regions["n"], strict=True))
        assert len(shared[name]) == len(regions)
    return shared


def test_all_methods_are_judged_in_the_same_regions() -> None:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"a": rng.random(2000), "b": rng.random(2000), "kind": rng.choice(["u", "v"], 2000)})
    y = rng.normal(size=2000) * (0.2 + rows["a"])
    linear, half = QuantileRegressor(alpha=0), slice(0, 1000)
    features = rows[["a", "b"]]
    own = ICQR(linear, partition=GroupPartition(lambda X: (X["b"] > 0.5).to_numpy()), random_state=0)
    methods = {
        "flat": np.full((1000, 2), [-1.3, 1.3]),
        "CQR": CQR(linear, random_state=0).fit(features[half], y[half]),
        "own groups": own.fit(features[half], y[half]),
    }
    labels = rows["kind"][1000:]
    found = compare(y[1000:], methods, features[1000:], groups=labels, coverage=0.9, with_excess_risk=False)
    regions = shared_regions(found)
    assert regions["flat"] == regions["CQR"] == regions["own groups"]
    assert {region for region, kind, _ in regions["CQR"] if kind == "group"} == {"kind = u", "kind = v"}
    assert len([kind for _, kind, _ in regions["CQR"] if kind not in ("group", "all rows")]) <= 25
    # And by intervals that are as sure, though only one has groups of its own.
    sure = {name: audited.regions.set_index("region")["confidence"] for name, audited in found.audits.items()}
    assert (sure["flat"] == sure["own groups"][sure["flat"].index]).all()
    # A region of the intervals says whose they are.
    widths = [region for region, kind, _ in regions["CQR"] if kind.startswith("interval")]
    assert widths
    assert all(re.match(r".*interval (width|centre) of (CQR|own groups)", region) for region in widths)
    # A model's own groups are judged for it alone, and are not counted.
    kinds = {name: (audited.regions["kind"] == "model group").sum() for name, audited in found.audits.items()}
    assert kinds == {"flat": 0, "CQR": 0, "own groups": 2}
    assert set(found.table["regions"]) == {len(regions["CQR"]) - 1}
    for name, audited in found.audits.items():
        counted = audited.regions[~audited.regions["kind"].isin(["all rows", "model group"])]["verdict"]
        assert found.table["undercovers"][name] == (counted == "undercovers").sum()
        assert audited.findings[-1] == audited.summary  # each can be shown on its own


def test_one_method_is_judged_as_in_an_audit() -> None:
    alone = audit(Y, RIGHT, X, coverage=0.9, with_excess_risk=False)
    compared = compare(Y, {"right": RIGHT}, X, coverage=0.9, with_excess_risk=False)
    assert compared.audits["right"].to_json() == alone.to_json()


@pytest.mark.parametrize("n_seeds", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_each_method_has_false_alarms_no_more_often_than_stated(n_seeds: int) -> None:
    """Two methods that cover 90 % whatever the features are, beside one whose failures propose regions for all."""
    alarms = np.zeros(2)
    for seed in range(n_seeds):
        rng = np.random.default_rng(seed)
        rows = pd.DataFrame(rng.random((500, 3)), columns=list("abc"))
        scale = 0.5 + rows["a"].to_numpy()
        methods = {
            "even": np.outer(scale, [-1.6449, 1.6449]),
            "skewed": np.outer(scale, [-2.0537, 1.4051]),  # 2 % below, 8 % above
            "flat": np.full((500, 2), [-1.65, 1.65]),
        }
        found = compare(rng.normal(scale=scale), methods, rows, coverage=0.9, random_state=seed, with_excess_risk=False)
        alarms += [len(found.audits[name].alarms) > 0 for name in ("even", "skewed")]
    assert (alarms / n_seeds <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / n_seeds)).all()


# -- Which one to use -------------------------------------------------------------------------------------


def test_the_answer_names_the_method_why_and_how_sure() -> None:
    found = compare(Y, {"wide": WIDE, "right": RIGHT}, X, coverage=0.9, with_excess_risk=False)
    assert found.best == "right"
    said = re.fullmatch(
        r"Use right: it keeps its promise of 90 % over all rows and is shown to fall short in none of the \d+ regions "
        r"looked at; its interval score, which counts width and misses, is very likely between ([\d.]+) % and "
        r"([\d.]+) % lower than that of wide, the next\.",
        found.answer,
    )
    assert said
    low, high = (float(number) for number in said.groups())
    difference = found.table["interval_score"]["wide"] - found.table["interval_score"]["right"]
    assert low < 100 * difference / found.table["interval_score"]["wide"] < high
    assert str(found).endswith(found.answer)
    assert found.to_markdown().startswith("**Use right: ")
    assert (found.to_dict()["best"], found.to_dict()["answer"]) == ("right", found.answer)


def test_what_undercovers_is_not_recommended() -> None:
    narrow = np.full((800, 2), [-1.2, 1.2])  # 77 %, and a lower score than intervals that are far too wide
    found = compare(Y, {"narrow": narrow, "huge": 9 * WIDE}, coverage=0.9)
    assert found.table["interval_score"]["narrow"] < found.table["interval_score"]["huge"]
    assert found.best == "huge"
    assert found.answer.endswith("every other method undercovers, does so in more regions, or promises nothing.")
    none = compare(Y, {"narrow": narrow, "narrower": narrow / 2}, coverage=0.9)
    assert none.best == "narrow"
    assert none.answer.startswith("No method covers the promised 90 % over all rows: narrow comes closest, with 7")
    alone = compare(Y, {"narrow": narrow}, coverage=0.9)
    assert alone.answer.startswith("narrow does not cover the promised 90 % over all rows")


def test_what_falls_short_in_many_regions_is_not_recommended() -> None:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.random((6000, 3)), columns=list("abc"))
    hard = np.select([rows["a"] > 0.85, rows["b"] > 0.85, rows["c"] > 0.85], [2.0, 2.0, 2.0], 0.85)
    y = rng.normal(scale=hard)
    methods = {"flat": np.full((6000, 2), [-2.4, 2.4]), "follows": np.outer(hard, [-2.5, 2.5])}
    found = compare(y, methods, rows, coverage=0.9, with_excess_risk=False)
    assert found.table["verdict"]["flat"] in ("holds", "overcovers")
    assert found.table["undercovers"]["flat"] >= 3
    assert found.best == "follows"


def test_what_promises_nothing_is_not_recommended_if_another_holds() -> None:
    linear = QuantileRegressor(alpha=0)
    qr = QR(linear, random_state=0).fit(X[:400], Y[:400])
    found = compare(Y[400:], {"QR": qr, "wide": WIDE[400:]}, X[400:], coverage=0.9, with_excess_risk=False)
    assert found.table["verdict"]["QR"] != "undercovers"
    assert found.table["interval_score"]["QR"] < found.table["interval_score"]["wide"]
    assert found.best == "wide"
    alone = compare(Y[400:], {"QR": qr}, X[400:], with_excess_risk=False)
    assert "though it promises nothing" in alone.answer


def test_of_two_that_are_as_good_the_one_that_promises_in_groups_is_recommended() -> None:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"a": rng.random(3000), "late": rng.random(3000) > 0.5})
    y = rng.normal(size=3000)
    linear, half = QuantileRegressor(alpha=0), slice(0, 1500)
    models = {
        "CQR": CQR(linear, random_state=0).fit(rows[half], y[half]),
        "ICQR": ICQR(linear, partition=GroupPartition("late"), random_state=0).fit(rows[half], y[half]),
    }
    for order in (["CQR", "ICQR"], ["ICQR", "CQR"]):
        found = compare(y[1500:], {name: models[name] for name in order}, rows[1500:], with_excess_risk=False)
        assert found.best == "ICQR"
        assert re.search(
            r"; its interval score is not clearly different from that of CQR \(very likely between .* lower and .* "
            r"higher\), but it promises coverage in each of its 2 groups\.$",
            found.answer,
        )


def test_the_answer_is_honest_where_little_is_known() -> None:
    few = compare(Y[:12], {"right": RIGHT[:12], "wide": WIDE[:12]}, coverage=0.9)
    assert few.best == "right"
    assert few.answer == (
        "Use right: it is not shown to break its promise of 90 % over all rows; 12 rows are too few to tell it from "
        "wide: give 30 or more."
    )
    upper = {
        name: np.column_stack([np.full(800, -np.inf), bounds[:, 1]])
        for name, bounds in {"wide": WIDE, "right": np.full((800, 2), 1.2816)}.items()
    }
    one_sided = compare(Y, upper, coverage=0.9)
    assert one_sided.best == "right"  # nearer to the promise
    assert "intervals without an end have no width by which to compare it with" in one_sided.answer
    some = compare(
        Y,
        {"wide": WIDE, "some infinite": np.where(np.arange(800)[:, None] < 5, [-np.inf, np.inf], RIGHT)},
        coverage=0.9,
    )
    assert some.best == "wide"
    assert some.answer.endswith("; some infinite, the next, has infinite intervals.")
    assert "no other method was compared with it" in compare(Y, [RIGHT], coverage=0.9).answer


def test_calibration_luck_is_no_broken_promise() -> None:
    """With 200 calibration rows 88 % over many rows may be luck: no method is called broken for it."""
    model = CQR(QuantileRegressor(alpha=0), random_state=0).fit(X[:600], Y[:600])
    centre, half = model.predict(X), np.ptp(model.predict_interval(X), axis=1) / 2
    many = pd.concat([X] * 10, ignore_index=True)
    y = np.where(np.arange(8000) % 100 < 88, 0.0, 9.0) * np.tile(half, 10) + np.tile(centre, 10)
    methods = {"CQR": model, "half as wide": np.tile(model.predict_interval(X) / 2, (10, 1)) - 50}
    found = compare(y, methods, many, coverage=0.9, with_excess_risk=False)
    assert found.table["verdict"].tolist() == ["within calibration luck", "undercovers"]
    assert found.best == "CQR"
    assert found.answer.startswith("Use CQR: its coverage over all rows is within calibration luck of the ")
    sentence = summarize(found)["verdict"]["sentence"]
    assert "the difference is within calibration luck for CQR" in sentence
    assert "half as wide breaks it" in sentence
