"""Trees read out of models: predictions with a column replaced are those of the model itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor

from icqr import _trees
from icqr._trees import TreeReplacer, tree_replacer
from icqr.importance import column_replacer
from icqr.quantiles import QuantileModel

LEVELS = (0.05, 0.5, 0.95)
N = 600


def rows(kind: str) -> Any:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=N), "b": rng.integers(5, size=N), "c": rng.uniform(size=N), "d": 1.0})
    if kind == "array":
        return X.to_numpy()
    if kind == "missing":
        return X.mask(rng.uniform(size=X.shape) < 0.2)
    if kind == "categories":
        shops = [f"k{i:02d}" for i in range(60)]
        return X.assign(b=rng.choice(["u", "v", "w", "x", None], size=N), e=rng.choice(shops, N))
    return X


def target(X: Any) -> np.ndarray:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(X)
    codes = np.sum([pd.factorize(frame.iloc[:, j])[0] % 3 for j in range(frame.shape[1])], axis=0)
    return codes + np.nan_to_num(frame.iloc[:, 0].to_numpy(dtype=float)) + 0.1 * rng.normal(size=N)


MODELS = {
    "hist": HistGradientBoostingRegressor(max_iter=30, random_state=0),
    "hist, 60 leaves": HistGradientBoostingRegressor(
        max_iter=10, max_leaf_nodes=60, min_samples_leaf=2, random_state=0
    ),
    "hist, stumps": HistGradientBoostingRegressor(max_iter=10, max_leaf_nodes=2, random_state=0),
    "lightgbm": LGBMRegressor(n_estimators=30, verbose=-1, n_jobs=1, random_state=0),
    "lightgbm, 64 leaves": LGBMRegressor(
        n_estimators=10, num_leaves=64, min_child_samples=2, verbose=-1, n_jobs=1, random_state=0
    ),
    "lightgbm, dart": LGBMRegressor(n_estimators=10, boosting_type="dart", verbose=-1, n_jobs=1, random_state=0),
}


def fitted(model: Any, kind: str = "frame") -> tuple[QuantileModel, Any]:
    X = rows(kind)
    return QuantileModel(model).fit(X, target(X), LEVELS), X


def raw(model: QuantileModel, encoded: Any) -> np.ndarray:
    return np.column_stack([level.predict(encoded) for level in model.models_])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        # Other shapes of trees matter where rows go several ways; plain numbers with them are a second look.
        pytest.param(name, kind, marks=[pytest.mark.slow] * ("," in name and kind in ("frame", "array")))
        for name in MODELS
        for kind in ("frame", "array", "missing", "categories")
    ],
)
def test_replaced_columns_are_predicted_as_the_model_predicts_them(name: str, kind: str) -> None:
    model, X = fitted(MODELS[name], kind)
    encoded = model.encoder_.encode(X)
    replacer = tree_replacer(model.models_, encoded)
    assert replacer is not None
    np.testing.assert_allclose(replacer.predicted, raw(model, encoded), rtol=1e-9, atol=1e-9)
    rng = np.random.default_rng(2)
    orders = np.stack([rng.permutation(N), rng.integers(N, size=N)])
    for column in range(X.shape[1]):
        for order, found in zip(orders, replacer.replace(column, orders), strict=True):
            changed = pd.DataFrame(encoded).copy()
            changed.isetitem(column, changed.iloc[:, column].array.take(order))
            plain = raw(model, changed if isinstance(encoded, pd.DataFrame) else changed.to_numpy())
            np.testing.assert_allclose(found, plain, rtol=1e-9, atol=1e-9)


def test_a_column_that_no_tree_uses_changes_nothing() -> None:
    model, X = fitted(MODELS["hist"])
    replacer = tree_replacer(model.models_, X)
    assert replacer is not None
    order = np.random.default_rng(0).permutation(N)[None]
    assert not replacer.uses(3)
    np.testing.assert_array_equal(replacer.replace(3, order)[0], replacer.predicted)


@pytest.mark.parametrize(
    "model",
    [
        LGBMRegressor(n_estimators=3, num_leaves=100, min_child_samples=2, verbose=-1, n_jobs=1, random_state=0),
        LGBMRegressor(n_estimators=3, linear_tree=True, verbose=-1, n_jobs=1, random_state=0),
        LGBMRegressor(
            n_estimators=3,
            boosting_type="rf",
            bagging_fraction=0.5,
            bagging_freq=1,
            verbose=-1,
            n_jobs=1,
            random_state=0,
        ),
        LGBMRegressor(n_estimators=3, zero_as_missing=True, verbose=-1, n_jobs=1, random_state=0),
    ],
    ids=["100 leaves", "linear trees", "averaged trees", "zeros are missing"],
)
def test_trees_that_work_otherwise_are_left_to_the_model(model: Any) -> None:
    fitted_model, X = fitted(model)
    assert tree_replacer(fitted_model.models_, X) is None
    order = np.random.default_rng(0).permutation(N)
    shuffled = X.assign(a=X["a"].to_numpy()[order])
    replaced = column_replacer(fitted_model, X).replace(0, order[None])[0]
    np.testing.assert_allclose(replaced, fitted_model.predict(shuffled), rtol=1e-12)


def test_other_models_have_no_trees_here() -> None:
    X = rows("frame")
    forest = RandomForestRegressor(3, random_state=0).fit(X, target(X))
    assert tree_replacer([forest], X) is None


def test_too_many_rows_are_left_to_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model, X = fitted(MODELS["hist"])
    monkeypatch.setattr(_trees, "MOST_BYTES", N)
    assert tree_replacer(model.models_, X) is None


def test_trees_that_do_not_give_the_models_predictions_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    model, X = fitted(MODELS["hist"])
    values = TreeReplacer._values

    def wrong(self: TreeReplacer, sets: Any, which: Any) -> Any:
        return 1.001 * values(self, sets, which)

    monkeypatch.setattr(TreeReplacer, "_values", wrong)
    assert tree_replacer(model.models_, X) is None


def test_early_stopped_boosters_use_their_best_trees() -> None:
    X = rows("frame")
    y = np.random.default_rng(3).normal(size=N)  # noise: the best iteration comes early
    model = QuantileModel(LGBMRegressor(n_estimators=50, early_stopping_round=2, verbose=-1, n_jobs=1, random_state=0))
    model.fit(X, y, LEVELS, eval_X=X, eval_y=np.random.default_rng(4).normal(size=N))
    assert model.models_[0].best_iteration_ < 50
    assert tree_replacer(model.models_, X) is not None
