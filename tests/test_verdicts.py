"""Verdicts follow from the interval that is printed beside them, and sentences never contradict it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import QuantileRegressor

from icqr import ICQR, GroupPartition, audit
from icqr.auditing.findings import overall_sentence, records, region_sentence
from icqr.auditing.verdicts import definitions, digits, judge, tolerance
from icqr.metrics import binomial_interval

COVERAGES = [0.5, 0.8, 0.9, 0.925, 0.95, 0.99, 0.999]
ERROR_RATE = 0.05


@st.composite
def tables(draw: Any) -> tuple[pd.DataFrame, float]:
    """Regions with any counts, some with the band of a calibration, as an audit hands them over."""
    coverage = draw(st.sampled_from(COVERAGES))
    regions = []
    for place in range(draw(st.integers(1, 8))):
        n = draw(st.integers(0 if place else 1, 20_000))
        # Anything may happen, but most often what is near the promise.
        near = st.integers(max(0, round((coverage - 0.05) * n)), min(n, round((coverage + 0.05) * n)))
        covered = min(draw(st.one_of(near, st.integers(0, n))), n)
        band, kind = (
            [None, None],
            draw(st.sampled_from(["group", "model group", "feature bin"])) if place else "all rows",
        )
        if kind != "feature bin" and draw(st.booleans()):
            band = sorted(
                [draw(st.floats(coverage - 0.1, coverage)), min(draw(st.floats(coverage, coverage + 0.1)), 1)]
            )
        basis = "the half not searched" if kind == "feature bin" else "all rows"
        regions.append(
            {"region": f"x = {place}" if place else "all rows", "kind": kind, "basis": basis, "n": n}
            | {"covered": covered, "band_lower": band[0], "band_upper": band[1], "guarantee": None}
            | {"calibration_rows": None if band[0] is None else 200}
        )
    return pd.DataFrame(regions), coverage


def shown(sentence: str, after: str) -> tuple[float, float]:
    """Read the two percentages that follow some words."""
    match = re.search(rf"{after} between ([\d.]+) % and ([\d.]+) %", sentence)
    assert match, sentence
    return float(match[1]), float(match[2])


def verdict_of(low: float, high: float, band: tuple[float, float] | None, coverage: float) -> str:
    """Return the verdict by its definition, from nothing but what is printed (in percent)."""
    promised, slack, rounding = 100 * coverage, 100 * tolerance(coverage), 1e-7
    if low <= promised + rounding and high >= promised - rounding:
        kept = low >= promised - slack - rounding and high - low <= 2 * slack + rounding
        return "holds" if kept else "too few rows to tell"
    if band is not None and low <= band[1] + rounding and high >= band[0] - rounding:
        return "within calibration luck"
    return "undercovers" if high < promised else "overcovers"


@settings(max_examples=150)
@given(tables())
def test_each_verdict_is_that_of_the_printed_numbers(given_table: tuple[pd.DataFrame, float]) -> None:
    table, coverage = given_table
    judged = judge(table, coverage, n_families=4)
    assert len(judged) == len(table)
    for region in records(judged):
        sentence = region_sentence(region, coverage)
        band = None
        if region["within_band"] is not None:
            low, high = (round(100 * region[f"band_{end}"], digits(coverage)) for end in ("lower", "upper"))
            band = low, high
            assert f"give between {low:.{digits(coverage)}f} % and" in sentence or "luck" not in sentence
        assert region["verdict"] == verdict_of(*shown(sentence, "very likely"), band, coverage)
        assert ("this is within calibration luck" in sentence) == (region["verdict"] == "within calibration luck")


@settings(max_examples=100)
@given(tables())
def test_the_sentence_on_all_rows_says_what_its_numbers_say(given_table: tuple[pd.DataFrame, float]) -> None:
    table, coverage = given_table
    judged = judge(table, coverage, n_families=4)
    sentence = overall_sentence(judged, coverage)
    (whole,) = records(judged[judged["kind"] == "all rows"])
    low, high = shown(sentence, "very likely")
    phrases = {
        "the promise is broken on average": high < 100 * coverage,
        "on average the intervals cover more than promised": low > 100 * coverage,
        ": too few rows to tell whether": low <= 100 * coverage + 1e-7 and high >= 100 * coverage - 1e-7,
        ": the promise holds on average": low <= 100 * coverage + 1e-7 and high >= 100 * coverage - 1e-7,
        "this is within calibration luck": low > 100 * coverage or high < 100 * coverage,
    }
    first = sentence.split(". ")[0]
    said = [phrase for phrase in phrases if phrase in first]
    assert len(said) == 1, sentence
    assert phrases[said[0]], sentence
    if "so this is within calibration luck" in sentence and whole["within_band"]:
        band = shown(sentence, "nine of ten calibrations give")
        assert low <= band[1] + 1e-7
        assert high >= band[0] - 1e-7


@settings(max_examples=150)
@given(tables())
def test_the_intervals_hold_all_together(given_table: tuple[pd.DataFrame, float]) -> None:
    """Exact intervals whose chances to miss add up to 5 %, rounded outwards by less than the last digit shown."""
    table, coverage = given_table
    judged = judge(table, coverage, n_families=4)
    assert (1 - judged["confidence"]).sum() <= ERROR_RATE + 1e-12
    assert judged.loc[judged["kind"] == "all rows", "confidence"].item() == pytest.approx(1 - ERROR_RATE / 4)
    for region in records(judged):
        low, high = binomial_interval(region["covered"], region["n"], confidence=region["confidence"])
        last = 10.0 ** -(digits(coverage) + 2) + 1e-9
        assert low - last <= region["coverage_lower"] <= low + 1e-12
        assert high - 1e-12 <= region["coverage_upper"] <= high + last


counts = st.integers(1, 3000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@settings(max_examples=200)
@given(counts, counts, st.sampled_from([0.8, 0.9, 0.95]))
def test_a_wide_interval_never_holds_beside_a_narrow_one_that_does_not(
    one: tuple[int, int], other: tuple[int, int], coverage: float
) -> None:
    table = pd.DataFrame([("all rows", 1, 1), ("group", *one), ("group", *other)], columns=["kind", "covered", "n"])
    table = table.assign(basis="all rows", band_lower=None, band_upper=None)
    judged = judge(table, coverage, n_families=2)
    groups = judged[judged["kind"] == "group"]
    width = groups["coverage_upper"] - groups["coverage_lower"]
    slack = tolerance(coverage) + 1e-9
    contains = (groups["coverage_lower"] <= coverage + 1e-9) & (groups["coverage_upper"] >= coverage - 1e-9)
    inside = (groups["coverage_lower"] >= coverage - slack) & (groups["coverage_upper"] <= coverage + slack)
    holds = groups["verdict"] == "holds"
    assert (holds | ~(contains & inside)).all()  # what lies in the zone of tolerance holds
    assert (width[holds] <= 2 * slack).all()  # and nothing does that is wider than the zone
    # All rows covered is too few rows or too much coverage, unless the interval begins just at the promise.
    at_promise = np.isclose(groups["coverage_lower"], coverage)
    assert not (holds & (groups["covered"] == groups["n"]) & ~at_promise).any()


def groups_of(*given_counts: tuple[int, int]) -> Any:
    """Audit groups with so many covered rows of so many, for a promise of 90 %."""
    y = np.concatenate([np.where(np.arange(n) < covered, 0.0, 9.0) for covered, n in given_counts])
    labels = np.repeat(np.arange(len(given_counts)), [n for _, n in given_counts])
    return audit(y, np.full((len(y), 2), [-1, 1]), groups=labels, coverage=0.9)


def test_few_rows_that_are_all_covered_do_not_hold() -> None:
    regions = groups_of((33, 33), (301, 346), (4500, 5000)).regions.set_index("n")
    assert regions.loc[33, "verdict"] == "too few rows to tell"
    assert regions.loc[346, "verdict"] == "too few rows to tell"
    assert regions.loc[5000, "verdict"] == "holds"


def test_an_interval_without_the_promise_is_never_too_few_rows() -> None:
    found = groups_of((1050, 1200), (900, 1000))
    for region in records(found.regions):
        if not region["coverage_lower"] <= 0.9 <= region["coverage_upper"]:
            assert region["verdict"] in ("undercovers", "overcovers")


def test_every_verdict_has_one_sentence_and_the_method_says_them() -> None:
    found = groups_of((900, 1000))
    meanings = definitions(0.9)
    assert list(meanings) == [
        *("undercovers", "overcovers", "within calibration luck", "too few rows to tell", "holds"),
    ]
    for name, meaning in meanings.items():
        assert meaning.count(". ") == 0
        assert f"{name.capitalize()}: {meaning}" in found.method
    assert "95 % sure for all regions together" in found.method


def test_all_rows_of_a_model_with_groups_have_a_band_by_simulation() -> None:
    """The band of all rows is that of the mean of the groups' coverages over calibration sets."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.random(1500), "kind": rng.choice(["a", "b", "c"], 1500, p=[0.6, 0.3, 0.1])})
    y = rng.normal(size=1500)
    linear = QuantileRegressor(alpha=0)
    model = ICQR(linear, partition=GroupPartition("kind"), random_state=0).fit(X[["x", "kind"]][:900], y[:900])
    regions = audit(y[900:], model, X[900:], with_excess_risk=False).regions
    (whole,) = records(regions[regions["kind"] == "all rows"])
    groups = model.certificate().groups.iloc[:-1]
    shares = np.bincount(model.assign(X[900:])) / 600
    coverages = rng.beta(groups["rank"], groups["n"] + 1 - groups["rank"], (200_000, 3)) @ shares
    assert [whole["band_lower"], whole["band_upper"]] == pytest.approx(np.quantile(coverages, [0.05, 0.95]), abs=0.002)
    assert whole["calibration_rows"] == groups["n"].sum()
