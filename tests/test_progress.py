"""`verbose=True` shows the steps of a fit or an audit; by default nothing is printed, not by the libraries either."""

from __future__ import annotations

import pickle
import sys
from typing import Any, Self

import numpy as np
import pytest
from catboost import CatBoostRegressor
from lightgbm import LGBMRegressor
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import HistGradientBoostingRegressor
from xgboost import XGBRegressor

from icqr import CQR, ICQR, QR, AutoICQR, Naive, audit, compare
from icqr.datasets import make_heteroscedastic

X, Y = make_heteroscedastic(300, n_features=3, random_state=0, return_X_y=True)
QUICK = HistGradientBoostingRegressor(max_iter=5)
STEPS = {
    Naive: ["regression", "calibration"],
    QR: ["quantiles"],
    CQR: ["quantiles", "calibration"],
    ICQR: ["quantiles", "importance", "groups", "calibration"],
    AutoICQR: ["quantiles", "importance", "groups", "calibration"],
}


def lines(text: str) -> list[str]:
    """What the bar said, a line for each time."""
    return [line.partition("|")[0].strip() for line in text.replace("\r", "\n").split("\n") if "|" in line]


@pytest.mark.parametrize("method", STEPS)
def test_each_step_is_named_while_it_is_done(method: Any, capfd: pytest.CaptureFixture[str]) -> None:
    method(QUICK, random_state=0, verbose=True).fit(X, Y)
    out, err = capfd.readouterr()
    name, steps = method.__name__, STEPS[method]
    said = dict.fromkeys(line.partition(",")[0] for line in lines(err))
    assert out == ""
    assert list(said) == [name, *(f"{name}: {step}" for step in steps)]
    last = err.rstrip().split("\r")[-1]
    assert last.startswith(f"{name} |")
    assert f"| {len(steps)}/{len(steps)} [" in last


def test_folds_are_counted_once_however_deep_they_lie(capfd: pytest.CaptureFixture[str]) -> None:
    AutoICQR(QUICK, calibration="cross", random_state=0, verbose=True).fit(X, Y)
    said = lines(capfd.readouterr().err)
    parts = [line.partition("quantiles, ")[2] for line in said if "quantiles, " in line]
    assert parts[0] == "fold 1 of 10"
    assert all(part.startswith("fold ") for part in parts)  # not the levels and models of each fold
    assert parts == sorted(parts, key=lambda part: int(part.split()[1]))


@pytest.mark.parametrize("library", [LGBMRegressor, XGBRegressor, CatBoostRegressor, HistGradientBoostingRegressor])
@pytest.mark.parametrize("method", [Naive, CQR, AutoICQR])
def test_nothing_is_printed_by_default(method: Any, library: Any, capfd: pytest.CaptureFixture[str]) -> None:
    rounds = {"max_iter": 5} if library is HistGradientBoostingRegressor else {"n_estimators": 5}
    model = method(library(**rounds), random_state=0).fit(X, Y)
    audit(Y, model, X)
    assert capfd.readouterr() == ("", "")


def test_a_judgement_shows_its_steps(capfd: pytest.CaptureFixture[str]) -> None:
    intervals = np.tile([-9.0, 9.0], (len(Y), 1))
    quiet = audit(Y, intervals, X, coverage=0.9), compare(Y, {"a": intervals, "b": intervals}, X, coverage=0.9)
    assert capfd.readouterr() == ("", "")
    shown = audit(Y, intervals, X, coverage=0.9, verbose=True)
    assert list(dict.fromkeys(lines(capfd.readouterr().err))) == ["audit", "audit: regions", "audit: measures"]
    both = compare(Y, {"a": intervals, "b": intervals}, X, coverage=0.9, verbose=True)
    err = capfd.readouterr().err
    assert "compare |" in err
    assert "| 4/4 [" in err
    assert (shown.findings, both.findings) == (quiet[0].findings, quiet[1].findings)


class Inner(RegressorMixin, BaseEstimator):
    """A model that is itself one of ours, and quiet."""

    def fit(self, X: Any, y: Any) -> Self:
        self.model_ = CQR(QUICK, random_state=0).fit(X, y)
        return self

    def predict(self, X: Any) -> Any:
        return self.model_.predict(X)


def test_a_quiet_model_inside_another_stays_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    Naive(Inner(), random_state=0, verbose=True).fit(X, Y)
    assert "quantiles" not in capfd.readouterr().err


def test_the_bar_is_in_no_model(capfd: pytest.CaptureFixture[str]) -> None:
    quiet = AutoICQR(QUICK, random_state=0).fit(X, Y)
    shown = AutoICQR(QUICK, random_state=0, n_jobs=2, verbose=True).fit(X, Y)
    capfd.readouterr()
    copied, cloned = pickle.loads(pickle.dumps(shown)), clone(shown)
    np.testing.assert_array_equal(copied.predict_interval(X), quiet.predict_interval(X))
    assert cloned.verbose is True
    assert b"tqdm" not in pickle.dumps(shown)
    assert capfd.readouterr() == ("", "")


def test_after_an_error_the_next_fit_is_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    class Broken(Inner):
        def fit(self, X: Any, y: Any) -> Self:
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        Naive(Broken(), random_state=0, verbose=True).fit(X, Y)
    assert lines(capfd.readouterr().err)[-1] == "Naive: regression"  # the step that failed
    Naive(QUICK, random_state=0).fit(X, Y)
    assert capfd.readouterr() == ("", "")


def test_without_tqdm_verbose_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(ImportError, match=r'verbose=True needs tqdm: pip install "icqr\[progress\]"'):
        Naive(QUICK, random_state=0, verbose=True).fit(X, Y)
    Naive(QUICK, random_state=0).fit(X, Y)


def test_verbose_is_true_or_false() -> None:
    with pytest.raises(ValueError, match="verbose must be one of True, False, got 'yes'"):
        Naive(QUICK, random_state=0, verbose="yes").fit(X, Y)  # type: ignore[arg-type]
