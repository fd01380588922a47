"""Watching a fitted model: evidence by hand, false alarms, detection, and files that are gone on with."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import BaseEstimator
from sklearn.dummy import DummyRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import QuantileRegressor

from icqr import CQR, ICQR, QR, GroupPartition, Monitor, Naive, save
from icqr.cli import main
from icqr.online import FIXED, LUCK, NOTHING

Predictions = pd.DataFrame


class Constant(BaseEstimator):
    """Bounds of -1 and 1 for every row."""

    def fit(self, X: Any, y: Any) -> Constant:
        return self

    def predict_quantiles(self, X: Any, levels: Any) -> Any:
        return np.tile(np.linspace(-1, 1, len(levels)), (len(X), 1))


def fitted(n_groups: int, n_each: int, seed: int, coverage: float = 0.9, **options: Any) -> Any:
    """A model with groups of so many calibration rows each, y normal."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"g": np.repeat(np.arange(n_groups), n_each)})
    model = ICQR(Constant(), coverage, partition=GroupPartition("g"), random_state=0, **options)
    train = pd.DataFrame({"g": np.arange(n_groups)})
    return model.fit(train, np.zeros(n_groups), X_calibration=X, y_calibration=rng.normal(size=len(X)))


def predicted(model: Any, groups: Any) -> Predictions:
    """What the model predicts for rows of these groups, without the time that it takes."""
    reach = 1 + model.groups_["offset_upper"].to_numpy()[groups]
    return pd.DataFrame({"lower": -reach, "upper": reach, "group": groups})


# -- Evidence, by hand -----------------------------------------------------------------------------------


def chance(hits: int, rows: int, a: float, b: float) -> float:
    """The chance of hits first, then the others, from an urn of a and b."""
    product = 1.0
    for t in range(rows):
        product *= (a + t) / (a + b + t) if t < hits else (b + t - hits) / (a + b + t)
    return product


def aside(rows: int) -> float:
    return 1 / (1 + math.log(1 + rows / 100))


def test_evidence_by_hand() -> None:
    model = Naive(prefit_mean(), coverage=0.8, random_state=0).fit(np.zeros((9, 1)), np.arange(1.0, 10.0))
    assert model.calibration_.ranks(0.8)[0] == 8  # 8 scores of 9: y up to 8 is covered
    monitor = Monitor(model)
    odds = [0.25 * 1.25 * 1.5**j for j in range(6)]  # of a miss; 0.2 is promised
    low, high, rows, hits = [0.0] * 6, [0.0] * 6, 0, 0
    for y in ([9.5], [1.0, 9.5, 2.0], [9.5, 9.5], [1.0] * 30):
        monitor.update(np.zeros((len(y), 1)), y)
        m, t = sum(value > 8 for value in y), len(y)
        null = chance(m, t, 2 + hits, 8 + rows - hits)
        surplus = m - t * (2 + hits) / (10 + rows)
        stake = (aside(rows) - aside(rows + t)) / 6
        for j in range(6):
            for money, odd, is_for in ((low, odds[j], surplus > 0), (high, 0.25 / (odds[j] / 0.25), surplus < 0)):
                p = odd / (1 + odd)
                ratio = chance(m, t, 25 / (1 - p), 25 / p) / null
                money[j] = (money[j] + stake) * (ratio if is_for else min(ratio, 1))
        rows, hits = rows + t, hits + m
        status = monitor.status().iloc[0]
        assert status["evidence_too_low"] == pytest.approx(aside(rows) + sum(low), rel=1e-9)
        assert status["evidence_too_high"] == pytest.approx(aside(rows) + sum(high), rel=1e-9)
        assert (status["n"], status["covered"]) == (rows, rows - hits)


def prefit_mean() -> Any:
    return FrozenEstimator(DummyRegressor(strategy="constant", constant=0.0).fit(np.zeros((1, 1)), [0.0]))


def test_the_order_of_a_batch_changes_nothing() -> None:
    model, rng = fitted(3, 60, 0), np.random.default_rng(1)
    groups, y = rng.integers(3, size=90), 2 * rng.normal(size=90)
    order = rng.permutation(90)
    one, other = Monitor(model), Monitor(model)
    one.observe(predicted(model, groups), y)
    other.observe(predicted(model, groups[order]), y[order])
    pd.testing.assert_frame_equal(one.status(), other.status())


def test_update_is_explain_and_observe() -> None:
    model, rng = fitted(2, 60, 0), np.random.default_rng(1)
    X, y = pd.DataFrame({"g": rng.integers(3, size=50)}), rng.normal(size=50)  # group 2 is unknown
    with pytest.warns(UserWarning, match="unknown to the calibration"):
        one = Monitor(with_pooled := fitted(2, 60, 0, small_groups="pooled")).update(X, y)
    with pytest.warns(UserWarning, match="unknown to the calibration"):
        other = Monitor(with_pooled).observe(with_pooled.explain(X), y)
    pd.testing.assert_frame_equal(one.status(), other.status())
    assert one.status()["group"].tolist() == ["0", "1", "-1", "all"]
    assert one.status()["n"].sum() - one.status()["n"].iloc[-1] == one.n_rows == 50
    assert "-1" not in Monitor(model).update(X[X["g"] < 2], y[X["g"] < 2]).status()["group"].tolist()


# -- False alarms and detection --------------------------------------------------------------------------


def crossings(steps: int, batch: int) -> tuple[int, int]:
    """In how many of 1,000 streams, each with 60 calibration rows of its own, evidence ever reached 20."""
    n_streams, rng = 1000, np.random.default_rng(5)
    model = fitted(n_streams, 60, 4)
    monitor, groups = Monitor(model), np.repeat(np.arange(n_streams), batch)
    predictions, most = predicted(model, groups), np.zeros((n_streams, 2))
    for _ in range(steps // batch):
        monitor.observe(predictions, rng.normal(size=len(groups)))
        evidence = monitor.status()[["evidence_too_low", "evidence_too_high"]].to_numpy()[:n_streams]
        most = np.maximum(most, evidence)
    low, high = (most >= 20).sum(axis=0).tolist()
    return low, high


#: So many of 1,000 streams may have a false alarm at 5 %, if the test is right.
ALLOWED = int(stats.binom.ppf(0.999, 1000, 0.05))


def test_false_alarms_of_one_test_with_the_luck_of_each_calibration() -> None:
    low, high = crossings(2000, 40)
    assert max(low, high) <= ALLOWED
    assert low + high > 0  # the streams do come near


@pytest.mark.slow
def test_false_alarms_of_one_test_in_long_streams() -> None:
    assert max(crossings(10_000, 20)) <= ALLOWED


def false_alarms(n_streams: int, steps: int, batch: int) -> int:
    """In how many streams a monitor of ten groups, calibrated for each stream anew, raised any alarm."""
    rng, model, n_alarms = np.random.default_rng(6), fitted(10, 60, 0), 0
    for _ in range(n_streams):
        X = pd.DataFrame({"g": rng.integers(10, size=600)})
        monitor = Monitor(model.calibrate(X, rng.normal(size=600)))
        for start in range(0, steps, batch):
            groups = rng.integers(10, size=min(batch, steps - start))
            monitor.observe(predicted(model, groups), rng.normal(size=len(groups)))
        n_alarms += bool(monitor.alarms)
    return n_alarms


def test_a_monitor_of_ten_groups_rarely_raises_a_false_alarm() -> None:
    assert false_alarms(200, 2000, 200) <= stats.binom.ppf(0.999, 200, 0.05)


@pytest.mark.slow
def test_a_monitor_of_ten_groups_rarely_raises_a_false_alarm_in_long_streams() -> None:
    assert false_alarms(1000, 10_000, 500) <= ALLOWED


def test_one_group_of_ten_that_drifts_is_found() -> None:
    model, rng = fitted(10, 200, 0), np.random.default_rng(7)
    monitor = Monitor(model)
    for start in range(0, 8000, 100):
        groups = rng.integers(10, size=100)
        spread = np.where((groups == 3) & (start >= 4000), 2.5, 1)
        monitor.observe(predicted(model, groups), spread * rng.normal(size=100))
        if monitor.alarms:
            break
    (sentence,) = monitor.alarms
    assert sentence.startswith("Group 3 (g = 3): coverage too low since about row 4,")
    assert monitor.n_rows <= 4800
    status = monitor.status().set_index("group")
    assert status.loc["3", "alarm"] == "coverage too low"
    assert (status["alarm"].drop("3") == "").all()


def test_a_small_change_is_found_in_one_large_batch() -> None:
    model, rng = fitted(1, 2000, 0), np.random.default_rng(8)
    groups = np.zeros(100_000, dtype=int)
    monitor = Monitor(model).observe(predicted(model, groups), 1.15 * rng.normal(size=len(groups)))
    assert "coverage too low since about row 1:" in monitor.alarms[0]


def test_intervals_that_cover_too_much_are_found() -> None:
    model, rng = fitted(2, 500, 0), np.random.default_rng(9)
    monitor = Monitor(model)
    for _ in range(20):
        groups = rng.integers(2, size=100)
        monitor.observe(predicted(model, groups), 0.5 * rng.normal(size=100))
    assert {sentence.partition(" since")[0] for sentence in monitor.alarms} == {
        "Group 0 (g = 0): coverage too high",
        "Group 1 (g = 1): coverage too high",
        "All groups together: coverage too high",
    }


def test_shifted_shares_are_told_apart_from_broken_coverage() -> None:
    model, rng = fitted(4, 300, 0), np.random.default_rng(10)
    monitor = Monitor(model)
    for _ in range(20):
        groups = rng.choice(4, p=[0.55, 0.15, 0.15, 0.15], size=100)
        monitor.observe(predicted(model, groups), rng.normal(size=100))
    assert monitor.alarms[0].startswith("Group 0 (g = 0): share changed since about row ")
    assert all("share changed" in sentence and "The input has shifted" in sentence for sentence in monitor.alarms)


def test_rows_of_no_known_group_are_usual_if_calibration_had_as_many() -> None:
    model, rng = fitted(2, 60, 0, small_groups="pooled"), np.random.default_rng(10)
    model.calibrate(pd.DataFrame({"g": rng.integers(4, size=2000)}), rng.normal(size=2000))  # half of them unknown
    monitor = Monitor(model)
    for _ in range(40):
        groups = rng.integers(4, size=100)
        groups[groups > 1] = -1
        frame = pd.DataFrame({"lower": -3.0, "upper": 3.0, "group": groups})
        frame.loc[groups >= 0, ["lower", "upper"]] = predicted(model, groups[groups >= 0])[
            ["lower", "upper"]
        ].to_numpy()
        monitor.observe(frame, rng.normal(size=100))
    assert monitor.alarms == []
    assert monitor.status()["usual_share"].iloc[2] == pytest.approx(0.5, abs=0.05)


def test_each_side_of_two_offsets_is_tested() -> None:
    model, rng = fitted(1, 500, 0, symmetric=False), np.random.default_rng(11)
    offsets = model.groups_.iloc[0]
    frame = pd.DataFrame(
        {"lower": -1 - offsets["offset_lower"], "upper": 1 + offsets["offset_upper"], "group": 0}, range(100)
    )
    monitor = Monitor(model)
    for _ in range(20):
        monitor.observe(frame, rng.normal(size=100))
    assert monitor.alarms == []
    for _ in range(20):
        monitor.observe(frame, rng.normal(size=100) + 1)  # more above, fewer below
    assert "coverage too low since about row 2,0" in monitor.alarms[0]


# -- What is compared with what --------------------------------------------------------------------------


def test_what_coverage_is_compared_with() -> None:
    rng = np.random.default_rng(0)
    X, y = pd.DataFrame({"a": rng.uniform(size=200)}), rng.normal(size=200)
    new = rng.normal(size=200)
    monitor = Monitor(CQR(QuantileRegressor(alpha=0.0), 0.8, calibration="cross", random_state=0).fit(X, y)).update(
        X, new
    )
    status = monitor.status().iloc[0]
    assert status["compared_with"] == FIXED
    assert math.isnan(status["evidence_too_high"])
    assert status["promised"] < 0.8
    monitor.update(X, 3 * new)
    assert "coverage too low" in monitor.alarms[0]

    monitor = Monitor(QR(QuantileRegressor(alpha=0.0), random_state=0).fit(X, y)).update(X, 10 * new)
    assert monitor.status()["compared_with"].tolist() == [NOTHING]
    assert monitor.alarms == []

    small = ICQR(Constant(), partition=GroupPartition("g"), small_groups="pooled", random_state=0)
    X_small = pd.DataFrame({"g": [0] * 50 + [1] * 3})
    with pytest.warns(UserWarning, match="group 1 has 3"):
        small.fit(pd.DataFrame({"g": [0, 1]}), [0, 0], X_calibration=X_small, y_calibration=rng.normal(size=53))
    monitor = Monitor(small).observe(
        pd.DataFrame({"lower": -2.0, "upper": 2.0, "group": [0, 1] * 50}), 50 * rng.normal(size=100)
    )
    assert monitor.status()["compared_with"].tolist() == [LUCK, NOTHING, LUCK]
    assert np.isnan(monitor.status()["evidence_too_low"].iloc[1])


def test_where_scores_tie_too_much_coverage_is_no_alarm() -> None:
    model, rng = fitted(1, 100, 0), np.random.default_rng(1)
    X = pd.DataFrame({"g": np.zeros(400, dtype=int)})
    counts = rng.integers(-2, 3, size=400).astype(float)
    monitor = Monitor(model.calibrate(X, counts)).update(X, np.zeros(400))
    assert np.isnan(monitor.status()["evidence_too_high"].iloc[0])
    assert monitor.alarms == []


def test_another_coverage_than_the_models_own() -> None:
    model, rng = fitted(1, 400, 0), np.random.default_rng(1)
    X = pd.DataFrame({"g": np.zeros(500, dtype=int)})
    status = Monitor(model, coverage=0.5).update(X, rng.normal(size=500)).status()
    assert status["promised"].iloc[0] == pytest.approx(0.5, abs=0.01)
    assert abs(status["coverage"].iloc[0] - 0.5) < 0.1
    assert status["band_lower"].iloc[0] < status["coverage"].iloc[0] < status["band_upper"].iloc[0]


# -- Files, and nothing counted twice --------------------------------------------------------------------


def test_after_a_crash_nothing_is_counted_twice(tmp_path: Path) -> None:
    model, rng = fitted(3, 60, 0), np.random.default_rng(1)
    file, ids = tmp_path / "monitor.json", np.arange(300)
    groups, y = rng.integers(3, size=300), 1.5 * rng.normal(size=300)
    frame = predicted(model, groups)

    whole = Monitor(model)
    for start in range(0, 300, 100):
        whole.observe(frame[start : start + 100], y[start : start + 100], ids[start : start + 100])

    # The process ends after its second batch was counted and before it knows; the next one gives this batch again.
    Monitor(model).observe(frame[:100], y[:100], ids[:100]).observe(frame[100:200], y[100:200], ids[100:200]).save(file)
    again = Monitor.load(file, model)
    assert again.n_rows == 200
    with pytest.warns(UserWarning, match="100 of 200 labels were counted before"):
        again.observe(frame[100:], y[100:], ids[100:].astype(str))
    pd.testing.assert_frame_equal(again.status(), whole.status())
    assert again.alarms == whole.alarms


def test_an_error_leaves_the_monitor_and_its_file_as_they_were(tmp_path: Path) -> None:
    model, file = fitted(1, 60, 0), tmp_path / "monitor.json"
    X = pd.DataFrame({"g": [0, 0]})
    monitor = Monitor(model).update(X, [0.0, 9.0], ids=["a", "b"])
    monitor.save(file)
    before, status = file.read_bytes(), monitor.status()
    with pytest.raises(ValueError, match="NaN"):
        monitor.update(X, [0.0, np.nan], ids=["c", "d"])
    pd.testing.assert_frame_equal(monitor.status(), status)
    monitor.update(X, [0.0, 0.0], ids=["c", "d"])  # their ids were not taken as counted
    assert monitor.n_rows == 4
    with pytest.raises(FileNotFoundError, match="no such folder"):
        monitor.save(tmp_path / "nowhere" / "monitor.json")
    assert file.read_bytes() == before


def test_the_file_of_fifty_groups_is_small_and_round_trips(tmp_path: Path) -> None:
    model, rng, file = fitted(50, 60, 0), np.random.default_rng(1), tmp_path / "monitor.json"
    monitor, groups = Monitor(model), np.arange(50)
    frame = predicted(model, groups)
    for _ in range(1000):
        monitor.observe(frame, 1.2 * rng.normal(size=50))
    monitor.save(file)
    assert file.stat().st_size < 1_000_000
    loaded = Monitor.load(file, model)
    pd.testing.assert_frame_equal(loaded.status(), monitor.status())
    assert loaded.alarms == monitor.alarms
    y = rng.normal(size=50)
    pd.testing.assert_frame_equal(loaded.observe(frame, y).status(), monitor.observe(frame, y).status())


def test_a_file_of_another_model_is_refused(tmp_path: Path) -> None:
    model, file = fitted(2, 60, 0), tmp_path / "monitor.json"
    Monitor(model).save(file)
    with pytest.raises(ValueError, match="watches another model"):
        Monitor.load(file, fitted(2, 60, seed=1))
    rng = np.random.default_rng(3)
    model.calibrate(pd.DataFrame({"g": [0, 1] * 40}), rng.normal(size=80))
    with pytest.raises(ValueError, match="before it was calibrated again"):
        Monitor.load(file, model)


def test_a_model_that_is_calibrated_again_needs_a_new_monitor() -> None:
    model, rng = fitted(1, 60, 0), np.random.default_rng(3)
    X, y = pd.DataFrame({"g": [0] * 80}), rng.normal(size=80)
    monitor = Monitor(model)
    model.calibrate(X, y)
    with pytest.raises(ValueError, match="begin a new monitor"):
        monitor.update(X, y)


@pytest.mark.parametrize("damage", ["", "[]", "{}", "not JSON", "shape", "version", "NaN"])
def test_a_damaged_file_is_refused(tmp_path: Path, damage: str) -> None:
    model, file = fitted(2, 60, 0), tmp_path / "monitor.json"
    Monitor(model).save(file)
    state = json.loads(file.read_text())
    if damage == "shape":
        state["bets"][0]["rows"] = [1]
        damage = json.dumps(state)
    elif damage == "NaN":
        state["bets"][0]["wealth"][0][0] = math.nan
        damage = json.dumps(state)
    elif damage == "version":
        damage = json.dumps(state | {"icqr_monitor": 99})
    file.write_text(damage)
    with pytest.raises(ValueError, match="is not a file of a monitor, or is damaged"):
        Monitor.load(file, model)


def test_merged_monitors_count_the_rows_of_both() -> None:
    model, rng = fitted(3, 100, 0), np.random.default_rng(1)
    groups, y = rng.integers(3, size=900), rng.normal(size=900)
    y[600:] *= np.where(groups[600:] == 1, 4, 1)
    frame, monitors = predicted(model, groups), [Monitor(model), Monitor(model)]
    for start in range(0, 900, 50):
        part = slice(start, start + 50)
        monitors[start >= 600].observe(frame[part], y[part], ids=np.arange(900)[part])
    first, second = monitors
    assert first.alarms == []
    assert "Group 1 (g = 1): coverage too low since about row " in second.alarms[0]
    evidence = [monitor.status()["evidence_too_low"].iloc[1] for monitor in monitors]
    n = [monitor.status()["n"].iloc[1] for monitor in monitors]
    merged = first.merge(second).status()
    assert merged["n"].tolist() == [*np.bincount(groups).tolist(), 900]
    assert first.n_rows == 900
    # The mean, less what both had set aside.
    assert merged["evidence_too_low"].iloc[1] == pytest.approx(np.average(evidence, weights=n), rel=1e-3)
    assert merged["alarm"].iloc[1] == "coverage too low"
    row = int(second.alarms[0].rpartition(" ")[2].rstrip(")."))
    assert first.alarms[:1] == [
        second.alarms[0].replace(f"at row {row}", f"at row {600 + row}").replace(" 1:", " 601:")
    ]
    with pytest.raises(ValueError, match="have counted the same rows, 300 ids"):
        first.merge(second)
    with pytest.raises(ValueError, match="only monitors of the same model"):
        first.merge(Monitor(model, error_rate=0.01))


def test_planned_merges_keep_the_error_rate() -> None:
    """Evidence of parts that share a calibration set: its mean at a planned time, and what follows, is rarely large."""
    n_streams, rng = 1000, np.random.default_rng(5)
    model = fitted(n_streams, 60, 4)
    groups, most = np.repeat(np.arange(n_streams), 40), np.zeros(n_streams)
    predictions, main = predicted(model, groups), Monitor(model)
    for _ in range(8):
        part = Monitor(model)
        for _ in range(3):
            part.observe(predictions, rng.normal(size=len(groups)))
        main.merge(part)
        most = np.maximum(most, main.status()["evidence_too_low"].to_numpy()[:n_streams])
    assert (most >= 20).sum() <= ALLOWED


def test_history_has_the_running_coverage_of_each_group() -> None:
    model, rng = fitted(2, 60, 0), np.random.default_rng(1)
    monitor = Monitor(model)
    assert monitor.history().empty
    for _ in range(450):
        monitor.observe(predicted(model, np.array([0, 0, 1])), rng.normal(size=3))
    history, status = monitor.history(), monitor.status()
    assert history.groupby("group")["row"].count().max() <= 200
    assert history["row"].is_monotonic_increasing
    last = history[history["row"] == history["row"].max()]
    assert last["n"].tolist() == [2 * last["row"].iloc[0] // 3, last["row"].iloc[0] // 3, last["row"].iloc[0]]
    assert ((history["band_lower"] <= history["coverage"]) & (history["coverage"] <= history["band_upper"])).all()
    assert history["row"].max() <= monitor.n_rows == status["n"].iloc[-1]


# -- Bad input, each with its answer ---------------------------------------------------------------------


def test_labels_come_later_by_id() -> None:
    model = fitted(2, 60, 0)
    predictions = predicted(model, np.array([0, 1, 0, 1])).set_index(pd.Index(["a", "b", "c", "d"]))
    monitor = Monitor(model).observe(predictions, pd.Series({"c": 0.0, "a": 99.0}))
    assert monitor.status()[["n", "covered"]].to_numpy().tolist() == [[2, 1], [0, 0], [2, 1]]
    with pytest.warns(UserWarning, match="1 of 2 labels were counted before"):
        monitor.observe(predictions, pd.Series({"a": 99.0, "b": 0.0}))
    assert monitor.n_rows == 3
    with pytest.raises(ValueError, match="labels without predictions: 1 of 2, the first with index 'x'"):
        monitor.observe(predictions, pd.Series({"x": 0.0, "d": 1.0}))
    with pytest.raises(ValueError, match="index of y must name each row once, but 'd' is there twice"):
        monitor.observe(predictions, pd.Series([0.0, 1.0], ["d", "d"]))
    with pytest.raises(ValueError, match="index of predictions must name each row once"):
        monitor.observe(pd.concat([predictions, predictions]), pd.Series({"d": 0.0}))


def test_what_is_refused() -> None:
    model = fitted(2, 60, 0)
    monitor, frame = Monitor(model), predicted(model, np.array([0, 1]))
    with pytest.raises(ValueError, match="y must be finite"):
        monitor.observe(frame, [0.0, np.nan])
    with pytest.raises(ValueError, match="same number of rows, got 2 and 1"):
        monitor.observe(frame, [0.0])
    with pytest.raises(ValueError, match=r"group, got \[0, 2\]; were they made by another model"):
        monitor.observe(frame.assign(group=[0, 2]), [0.0, 0.0])
    with pytest.raises(ValueError, match="promise another coverage"):
        monitor.observe(frame.assign(promised=0.5), [0.0, 0.0])
    with pytest.raises(ValueError, match="lower and upper, row 1 has none"):
        monitor.observe(frame.assign(lower=[0.0, np.nan]), [0.0, 0.0])
    with pytest.raises(ValueError, match="lacks 'group'"):
        monitor.observe(frame.drop(columns="group"), [0.0, 0.0])
    with pytest.raises(ValueError, match="ids must name each row once, but '7' is there twice"):
        monitor.observe(frame, [0.0, 0.0], ids=[7, 7])
    with pytest.raises(ValueError, match="one value for each of the 2 labels, got 1"):
        monitor.observe(frame, [0.0, 0.0], ids=[7])
    assert monitor.n_rows == 0
    for error_rate in (0, 1.0, "5 %"):
        with pytest.raises(ValueError, match="error_rate must be a number strictly between 0 and 1"):
            Monitor(model, error_rate=error_rate)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ties='random' can't be watched"):
        Monitor(fitted(1, 60, 0, ties="random"))


def test_an_empty_batch_counts_nothing() -> None:
    model = fitted(2, 60, 0)
    monitor, frame = Monitor(model), predicted(model, np.array([0, 1]))
    monitor.update(pd.DataFrame({"g": []}), []).observe(frame[:0], []).observe(frame, pd.Series([], dtype=float))
    assert monitor.n_rows == 0
    assert monitor.alarms == []
    assert monitor.status()["coverage"].isna().all()


# -- The command -----------------------------------------------------------------------------------------


def make_sales(n_rows: int, seed: int, spread: float = 1.0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"order": [f"{seed}-{i:04}" for i in range(n_rows)], "size": rng.uniform(20, 200, n_rows)})
    return frame.assign(price=5 * frame["size"] + spread * rng.normal(scale=30, size=n_rows))


@pytest.fixture
def sales(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model and files of new rows."""
    monkeypatch.chdir(tmp_path)
    for name, seed, spread in (("october", 1, 1.0), ("november", 2, 1.0), ("december", 3, 4.0)):
        make_sales(300, seed, spread).to_csv(tmp_path / f"{name}.csv", index=False)
    history = make_sales(600, 0)
    save(CQR(QuantileRegressor(alpha=0.0), random_state=0).fit(history[["size"]], history["price"]), "sales.icqr")
    return tmp_path


def watch(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["watch", "sales.icqr", *arguments, "--target", "price", "--state", "state.json"])
    code = ended.value.code or 0
    assert isinstance(code, int)
    return code, *capsys.readouterr()


def test_the_command_watches_one_file_after_another(sales: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = watch(capsys, "october.csv", "--id", "order")
    assert code == 0
    assert "300 rows with their labels so far, the last from october.csv." in out
    assert "No alarm" in out
    code, out, err = watch(capsys, "october.csv", "--id", "order")  # by mistake once more
    assert (code, "300 rows with" in out) == (0, True)
    assert "300 of 300 labels were counted before" in err
    code, out, _ = watch(capsys, "november.csv", "--id", "order")
    assert (code, "600 rows with" in out) == (0, True)
    code, out, _ = watch(capsys, "december.csv", "--id", "order")
    assert code == 3
    assert "- All rows: coverage too low since about row 601: " in out
    code, out, _ = watch(capsys, "november.csv", "--id", "order", "--json")
    document = json.loads(out)
    assert (code, document["rows"], len(document["alarms"])) == (3, 900, 1)
    assert [group["group"] for group in document["groups"]] == ["0"]


def test_the_command_says_what_is_wrong(sales: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert watch(capsys, "october.csv", "--coverage", "0.8")[0] == 0
    code, _, err = watch(capsys, "november.csv", "--coverage", "0.9")
    assert code == 1
    assert "--coverage 0.9: state.json was begun with 0.8" in err
    code, _, err = watch(capsys, "november.csv", "--id", "oder")
    assert (code, "--id: " in err, "'order'" in err) == (1, True, True)
    before = (sales / "state.json").read_bytes()
    broken = make_sales(20, 4)
    broken.loc[3, "price"] = np.nan
    broken.to_csv("broken.csv", index=False)
    code, _, err = watch(capsys, "broken.csv", "--id", "order")
    assert (code, "--drop-missing would leave out 1 rows" in err) == (1, True)
    assert (sales / "state.json").read_bytes() == before
    code, out, _ = watch(capsys, "broken.csv", "--id", "order", "--drop-missing")
    assert (code, "319 rows with" in out) == (0, True)
    history = make_sales(600, 5)
    save(CQR(QuantileRegressor(alpha=0.0), random_state=0).fit(history[["size"]], history["price"]), "sales.icqr")
    code, _, err = watch(capsys, "november.csv")
    assert (code, "watches another model" in err) == (1, True)
