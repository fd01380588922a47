"""The behaviour users see, held by numbers: six data sets, four model libraries, compared with stored references.

Everything goes through public names. To write the references anew after a change that is meant to move numbers:
``python tests/test_characterization.py`` (from the project's root, with the shared data sets in ICQR_DATA_HOME).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import QuantileRegressor
from xgboost import XGBRegressor

import icqr
from icqr import CQR, ICQR, QR, GroupPartition, Naive, ResidualQuantiles
from icqr.datasets import load_dataset, make_heteroscedastic, make_sine_spread
from icqr.reporting import summarize

REFERENCES = Path(__file__).parent / "data" / "reference"
#: Numbers may differ by this share of y's spread: rounding of another processor, not another result.
TOLERANCE = 1e-9


def _mixed() -> tuple[pd.DataFrame, np.ndarray]:
    """Numbers with gaps, text, truth values and a column that says nothing."""
    rng = np.random.default_rng(3)
    n = 900
    X = pd.DataFrame({"size": rng.uniform(20, 200, n), "city": rng.choice(["Bern", "Genf", "Rom", "Ulm"], n)})
    X["new"] = rng.random(n) < 0.3
    X["floor"] = pd.Series(rng.integers(0, 9, n)).astype("Int64").mask(rng.random(n) < 0.1)
    X["constant"] = 1
    spread = np.where(X["city"] == "Rom", 60, 15)
    return X, (4 * X["size"] + 50 * X["new"] + spread * rng.normal(size=n)).to_numpy()


def _diabetes() -> tuple[pd.DataFrame, pd.Series]:
    return load_diabetes(return_X_y=True, as_frame=True)


DATA = {
    "heteroscedastic": lambda: make_heteroscedastic(900, n_features=3, random_state=0, return_X_y=True),
    "sine": lambda: (lambda law: (law.X, law.y))(make_sine_spread(900, random_state=1)),
    "mixed": _mixed,
    "diabetes": _diabetes,
    "concrete": lambda: load_dataset("concrete"),
    "star": lambda: load_dataset("star"),
}
LIBRARIES = {
    "hist": HistGradientBoostingRegressor(max_iter=25, max_leaf_nodes=12),
    "linear": QuantileRegressor(alpha=0.0),
    "lightgbm": LGBMRegressor(n_estimators=25, num_leaves=8, n_jobs=1),
    "xgboost": XGBRegressor(n_estimators=25, max_depth=3, n_jobs=1),
}


def _rows(data: str, library: str) -> tuple[Any, Any, Any, Any]:
    X, y = DATA[data]()
    if isinstance(X, pd.DataFrame):
        X = X.reset_index(drop=True)
        y = np.asarray(y, dtype=np.float64)
    if library == "linear" and isinstance(X, pd.DataFrame):  # linear programmes take no missing values
        kept = X.notna().all(axis=1).to_numpy()
        X, y = X[kept], y[kept]
    order = np.random.default_rng(7).permutation(len(y))[:900]
    train, test = order[: len(order) * 2 // 3], order[len(order) * 2 // 3 :]
    take = (lambda part: X.iloc[part]) if isinstance(X, pd.DataFrame) else (lambda part: X[part])
    return take(train), y[train], take(test), y[test]


def _methods(library: str, X: Any) -> dict[str, Any]:
    model = LIBRARIES[library]
    options: dict[str, Any] = {"coverage": 0.8, "random_state": 0}
    methods = {
        "qr": QR(model, **options),
        "cqr": CQR(model, **options),
        "cqr-asymmetric": CQR(model, symmetric=False, conformity="cqr-m", **options),
        "cqr-lower": CQR(model, side="lower", y_min=-1e6, **options),
        "icqr": ICQR(model, conformity="cqr-r", **options),
        "icqr-as-printed": ICQR.as_printed(model, **options, small_groups="infinite"),
    }
    if library != "linear":
        methods["naive"] = Naive(model, **options)
        methods["residual-auto"] = ICQR(ResidualQuantiles(model), partition="auto", **options)
    if isinstance(X, pd.DataFrame):
        column = "city" if "city" in X else X.columns[0]
        numeric = pd.api.types.is_numeric_dtype(X[column].dtype)
        by = _Above(column, float(X[column].median())) if numeric else column
        methods["own-groups"] = ICQR(model, partition=GroupPartition(by), **options)
    return methods


class _Above:
    """A user's own groups: whether a column is above a number."""

    def __init__(self, column: Any, edge: float) -> None:
        self.column, self.edge = column, edge

    def __call__(self, X: pd.DataFrame) -> np.ndarray:
        return np.asarray(X[self.column] > self.edge)


def _frame(table: pd.DataFrame) -> dict[str, list[Any]]:
    return {str(name): column.tolist() for name, column in table.items()}


def _loaded_and_saved(model: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.icqr")
        icqr.save(model, path)
        return icqr.load(path)


def characterize(data: str, library: str) -> dict[str, Any]:
    """Everything a user can see of all methods on one data set with one library, as plain values."""
    X, y, X_new, y_new = _rows(data, library)
    seen: dict[str, Any] = {"spread": float(np.std(y))}
    fitted = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, method in _methods(library, X).items():
            model = fitted[name] = method.fit(X, y)
            intervals = model.predict_interval(X_new)
            entry: dict[str, Any] = {
                "groups": _frame(model.groups_),
                "intervals": intervals[:8].tolist(),
                "mean_interval": intervals[np.isfinite(intervals).all(axis=1)].sum(axis=0).tolist(),
                "median": model.predict(X_new[:3]).tolist(),
                "explain": _frame(model.explain(X_new[:4])),
                "certificate": str(model.certificate()),
                "crossed": {key: int(value) for key, value in model.n_crossed_.items()},
            }
            if name != "qr":
                entry["other_coverages"] = model.predict_interval(X_new[:3], coverage=[0.5, 0.7]).tolist()
            if hasattr(model, "importances_"):
                entry["importances"] = _frame(model.importances_)
            if hasattr(model, "selection_"):
                entry["selection"] = _frame(model.selection_)
            if name in ("cqr", "icqr", "naive") and library != "linear":
                assert np.array_equal(_loaded_and_saved(model).predict_interval(X_new), intervals)
            if name == "cqr":
                entry["recalibrated"] = model.calibrate(X_new, y_new).predict_interval(X_new[:3]).tolist()
                model.fit(X, y)
            seen[name] = entry
        if library == "hist":
            seen["audit"] = icqr.audit(y_new, fitted["icqr"], X_new, with_excess_risk=False).to_dict()
            summary = summarize({"CQR": fitted["cqr"], "ICQR": fitted["icqr"]}, y_new, X_new)
            seen["report"] = {key: value for key, value in summary.items() if key not in ("made", "computed", "audits")}
    return json.loads(json.dumps(seen, default=_plain))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)


def _rounded(value: Any) -> Any:
    """Twelve digits are enough for the tolerance, and keep the files small."""
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_rounded(entry) for entry in value]
    return float(f"{value:.13g}") if isinstance(value, float) else value


def assert_same(found: Any, expected: Any, room: float, where: str) -> None:
    """Compare nested values: text and counts must be equal, numbers within the tolerance."""
    if isinstance(expected, dict):
        assert set(found) == set(expected), where
        for key, value in expected.items():
            assert_same(found[key], value, room, f"{where}/{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for place, value in enumerate(expected):
            assert_same(found[place], value, room, f"{where}/{place}")
    elif isinstance(expected, float) and isinstance(found, float):
        close = np.isclose(found, expected, rtol=1e-9, atol=room, equal_nan=True)
        assert close, f"{where}: {found} is not the reference {expected}"
    else:
        assert found == expected, where


#: The slower sets.
SLOW = ("star", "concrete")


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("data", [pytest.param(data, marks=[pytest.mark.slow] * (data in SLOW)) for data in DATA])
def test_numbers_stay_as_they_are(data: str, library: str) -> None:
    if data in ("concrete", "star") and "ICQR_DATA_HOME" not in os.environ:
        pytest.skip("needs the shared data sets: set ICQR_DATA_HOME to their folder")
    expected = json.loads((REFERENCES / f"{data}.json").read_text())[library]
    assert_same(characterize(data, library), expected, TOLERANCE * expected["spread"], f"{data}, {library}")


if __name__ == "__main__":
    for chosen in sys.argv[1:] or DATA:
        contents = {library: _rounded(characterize(chosen, library)) for library in LIBRARIES}
        (REFERENCES / f"{chosen}.json").write_text(json.dumps(contents, separators=(",", ":")) + "\n")
        print(chosen, "written")
