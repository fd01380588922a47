"""The network: its loss and gradient, its training, its checkpoints, and its face as a scikit-learn estimator."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

pytest.importorskip("jax")
pytest.importorskip("optax")

from icqr import QuantileModel, ResidualQuantiles
from icqr.importance import PermutationImportance
from icqr.neural import QuantileNetwork

LEVELS = (0.05, 0.5, 0.95)


def data(n=60, columns=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, columns))
    return X, 3 * X[:, 0] + rng.normal(scale=0.2 + X[:, 1], size=n)


def small(**parameters):
    """Return a network that is quick to compile."""
    return QuantileNetwork(**{"hidden": (4,), "epochs": 3, "random_state": 0, "n_jobs": 1} | parameters)


def same(a, b):
    """Return whether two fitted networks have the same weights, to the bit."""
    return all(np.array_equal(x, y) for x, y in zip(a.weights_ + a.biases_, b.weights_ + b.biases_, strict=True))


# Training against a computation by hand


def started(model, X, y):
    """Return the networks with the weights that they begin with: steps this short change no weight."""
    return clone(model).set_params(learning_rate=1e-30, epochs=1).fit(X, y)


def loss_by_hand(arrays, X, y):
    """One network's loss in plain numpy; arrays are the weights and biases, layer by layer."""
    values = X
    for depth, (weights, biases) in enumerate(zip(arrays[::2], arrays[1::2], strict=True)):
        values = (np.maximum(values, 0) if depth else values) @ weights.T + biases
    error = y[:, None] - values
    return np.where(error >= 0, np.multiply(LEVELS, error), np.multiply(np.subtract(LEVELS, 1), error)).mean(0).sum()


def gradient_by_hand(arrays, X, y, step=1e-6):
    """Central differences: exact for a piecewise linear function, away from its kinks."""
    slopes = [np.zeros_like(array) for array in arrays]
    for array, slope in zip(arrays, slopes, strict=True):
        for place in np.ndindex(*array.shape):
            losses = []
            for sign in (1, -1):
                array[place] += sign * step
                losses.append(loss_by_hand(arrays, X, y))
                array[place] -= sign * step
            slope[place] = (losses[0] - losses[1]) / (2 * step)
    return slopes


def adam_by_hand(arrays, batches, X, y, rate, weight_decay):
    """Adam with the constants of Keras; the penalty's slope is 2 λ w for weights, none for biases."""
    means, squares = ([np.zeros_like(array) for array in arrays] for _ in range(2))
    for count, rows in enumerate(batches, start=1):
        slopes = gradient_by_hand(arrays, X[rows], y[rows])
        for i, (array, slope) in enumerate(zip(arrays, slopes, strict=True)):
            slope = slope + (2 * weight_decay * array if i % 2 == 0 else 0)
            means[i] = 0.9 * means[i] + 0.1 * slope
            squares[i] = 0.999 * squares[i] + 0.001 * slope**2
            array -= rate * (means[i] / (1 - 0.9**count)) / (np.sqrt(squares[i] / (1 - 0.999**count)) + 1e-7)


@pytest.mark.parametrize(("batch_size", "weight_decay"), [(25, 0.0), (25, 0.1), (60, 0.1), (1000, 0.1)])
def test_training_by_hand(batch_size, weight_decay):
    """60 rows in batches of 25 are three steps an epoch, the last one with 10 rows; each row is seen once."""
    X, y = data()
    model = small(n_networks=2, epochs=2, learning_rate=0.01, batch_size=batch_size, weight_decay=weight_decay)
    before, after = started(model, X, y), model.fit(X, y)
    scaled = (X - X.min(axis=0)) / np.ptp(X, axis=0)
    seed = np.random.RandomState(0).randint(2**31 - 1)
    for t in range(2):
        orders = [np.random.default_rng([seed, epoch, t]).permutation(60) for epoch in range(2)]
        batches = [order[i : i + batch_size] for order in orders for i in range(0, 60, batch_size)]
        arrays = [a[t].astype(float) for pair in zip(before.weights_, before.biases_, strict=True) for a in pair]
        adam_by_hand(arrays, batches, scaled, y, 0.01, weight_decay)
        trained = [a[t] for pair in zip(after.weights_, after.biases_, strict=True) for a in pair]
        for array, expected in zip(trained, arrays, strict=True):
            np.testing.assert_allclose(array, expected, atol=1e-5)


def test_start_is_glorot_uniform_with_zero_biases():
    X, y = data(columns=20)
    start = started(small(hidden=(100, 50), n_networks=3), X, y)
    for weights, biases, (n_in, n_out) in zip(
        start.weights_, start.biases_, [(20, 100), (100, 50), (50, 3)], strict=True
    ):
        limit = np.sqrt(6 / (n_in + n_out))
        assert weights.shape == (3, n_out, n_in)
        assert 0.95 * limit < np.abs(weights).max() <= limit
        assert np.var(weights) == pytest.approx(limit**2 / 3, rel=0.2)
        assert np.abs(biases).max() < 1e-29


def test_learns_a_known_conditional_quantile():
    """y = 2 x + (0.5 + x) N(0, 1): the quantile at level t is 2 x + (0.5 + x) z_t."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=6000)
    y = 2 * x + (0.5 + x) * rng.normal(size=6000)
    model = QuantileNetwork(hidden=(20,), epochs=1500, batch_size=6000, learning_rate=0.005, random_state=0)
    grid = np.linspace(0.05, 0.95, 19)
    found = model.fit(x[:, None], y).predict_quantiles(grid[:, None])
    true = 2 * grid[:, None] + (0.5 + grid[:, None]) * norm.ppf(LEVELS)
    assert np.abs(found - true).mean() < 0.1
    # The share of 6000 rows below each quantile, within five standard deviations of a binomial share.
    share = (y[:, None] <= model.predict_quantiles(x[:, None])).mean(axis=0)
    assert (np.abs(share - LEVELS) < 5 * np.sqrt(np.multiply(LEVELS, np.subtract(1, LEVELS)) / 6000)).all()


def test_weight_decay_shrinks_weights():
    X, y = data()
    free, bound = (small(epochs=100, learning_rate=0.01, weight_decay=decay).fit(X, y) for decay in (0.0, 1.0))
    assert np.square(bound.weights_[0]).sum() < 0.5 * np.square(free.weights_[0]).sum()


# Randomness and threads


def test_same_seed_same_weights():
    X, y = data()
    model = small(batch_size=25, n_networks=4)
    first = clone(model).fit(X, y)
    assert same(first, clone(model).fit(X, y))
    assert same(first, clone(model).set_params(n_jobs=2).fit(X, y))
    assert not same(first, clone(model).set_params(random_state=1).fit(X, y))
    assert not np.array_equal(first.weights_[0][0], first.weights_[0][1])


def test_a_network_depends_on_its_index_not_on_their_number():
    X, y = data()
    model = small(batch_size=25)
    many, few = (clone(model).set_params(n_networks=count).fit(X, y) for count in (3, 2))
    assert np.array_equal(many.weights_[0][:2], few.weights_[0])
    assert np.array_equal(many.biases_[1][:2], few.biases_[1])


def test_constant_columns_and_constant_y():
    X, y = data()
    X[:, 2] = 7.0
    model = small().fit(X, np.full(len(y), 5.0))
    assert np.isfinite(model.predict_quantiles(X)).all()
    assert model.x_range_[2] == 1.0


# Checkpoints


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_stopped_run_goes_on_to_the_bit(tmp_path, n_jobs):
    X, y = data()
    model = small(epochs=60, batch_size=25, n_networks=4, n_jobs=n_jobs)
    whole = clone(model).fit(X, y)

    def interrupt(done, total):
        if done >= 160:  # two networks are finished, or one and most of two others
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        clone(model).set_params(checkpoint=tmp_path, progress=interrupt).fit(X, y)
    kept = {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    assert 0 < len(kept) < 4
    assert same(whole, clone(model).set_params(checkpoint=tmp_path).fit(X, y))
    files = {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    assert len(files) == 4
    assert kept.items() <= files.items()


CHILD = """
import sys
import numpy as np
from icqr.neural import QuantileNetwork
X, y = np.load(sys.argv[1]).values()
model = QuantileNetwork(hidden=(4,), epochs=100, batch_size=25, n_networks=100, random_state=0, n_jobs=1)
model.set_params(checkpoint=sys.argv[2]).fit(X, y)
"""


@pytest.mark.slow
def test_a_killed_process_goes_on_to_the_bit(tmp_path):
    X, y = data()
    np.savez(tmp_path / "data.npz", X, y)
    folder = tmp_path / "run"
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path / "data.npz"), str(folder)])
    deadline = time.monotonic() + 60
    while not list(folder.glob("*.npz")) and time.monotonic() < deadline:
        time.sleep(0.002)
    child.kill()
    assert child.wait() == -signal.SIGKILL
    assert 0 < len(list(folder.glob("*.npz"))) < 100
    model = small(epochs=100, batch_size=25, n_networks=100)
    assert same(clone(model).fit(X, y), clone(model).set_params(checkpoint=folder).fit(X, y))


def test_a_finished_checkpoint_is_not_trained_again(tmp_path):
    X, y = data()
    model = small(checkpoint=tmp_path)
    first = clone(model).fit(X, y)
    told = []
    again = clone(model).set_params(progress=lambda done, total: told.append((done, total))).fit(X, y)
    assert told == [(3, 3)]
    assert same(first, again)


@pytest.mark.parametrize(
    "change", [{"learning_rate": 0.1}, {"random_state": 1}, {"epochs": 4}, {"hidden": (5,)}, {"weight_decay": 0.1}, {}]
)
def test_a_checkpoint_of_something_else_is_not_taken(tmp_path, change):
    X, y = data()
    small(checkpoint=tmp_path).fit(X, y)
    other = y if change else y + 1
    again = small(checkpoint=tmp_path, **change).fit(X, other)
    assert same(again, small(**change).fit(X, other))
    assert len(list(tmp_path.iterdir())) == 2


def test_more_networks_are_added_to_a_checkpoint(tmp_path):
    X, y = data()
    small(checkpoint=tmp_path).fit(X, y)
    assert same(small(n_networks=3, checkpoint=tmp_path).fit(X, y), small(n_networks=3).fit(X, y))
    assert len(list(tmp_path.iterdir())) == 3


def test_folds_have_no_checkpoint(tmp_path):
    X, y = data()
    model = ResidualQuantiles(small(epochs=2, checkpoint=tmp_path), LEVELS, random_state=0).fit(X, y)
    assert model.predict_quantiles(X).shape == (len(X), 3)
    assert not list(tmp_path.iterdir())


def test_a_damaged_checkpoint_is_named(tmp_path):
    X, y = data()
    model = small(checkpoint=tmp_path).fit(X, y)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"-00000.npz is damaged; delete this file"):
        clone(model).fit(X, y)


def test_a_checkpoint_needs_a_seed(tmp_path):
    with pytest.raises(ValueError, match=r"random_state must be an integer when a checkpoint is kept, got None"):
        small(checkpoint=tmp_path, random_state=None).fit(*data())


# Prediction


@pytest.fixture(scope="module")
def three():
    X, y = data(2500, 4)  # more than one block
    X[:, 2] = X[:, 2] > 0.9  # mostly equal values, as bags of words have
    X[:, 3] = 1.0
    model = small(hidden=(6, 5), epochs=30, learning_rate=0.05, n_networks=3)
    return model.fit(X, y), X, y


@pytest.mark.parametrize("column", range(4))
def test_replacer_equals_the_plain_way(three, column):
    model, X, _ = three
    rng = np.random.default_rng(1)
    orders = np.stack([rng.permutation(len(X)), np.arange(len(X)), rng.integers(len(X), size=len(X))])
    found = model.replacer(X).replace(column, orders)
    for order, quantiles in zip(orders, found, strict=True):
        plain = X.copy()
        plain[:, column] = X[order, column]
        np.testing.assert_allclose(quantiles, model.predict_quantiles(plain), rtol=1e-12, atol=1e-12)


def test_replacer_of_a_linear_network():
    X, y = data()
    model = small(hidden=()).fit(X, y)
    plain = X.copy()
    plain[:, 1] = X[::-1, 1]
    found = model.replacer(X).replace(1, np.arange(len(X))[None, ::-1])
    np.testing.assert_allclose(found[0], model.predict_quantiles(plain), rtol=1e-12)


def test_quantiles_are_the_mean_over_networks(three):
    model, X, _ = three
    each = np.stack([model.network(index).predict_quantiles(X) for index in range(3)])
    assert each.shape == (3, 2500, 3)
    np.testing.assert_allclose(model.predict_quantiles(X), each.mean(axis=0))
    np.testing.assert_allclose(model.predict(X), each.mean(axis=0)[:, 1])


def test_prediction_by_hand(three):
    model, X, _ = three
    values = ((X[0] - model.x_min_) / model.x_range_).astype(float)
    for depth, (weights, bias) in enumerate(zip(model.weights_, model.biases_, strict=True)):
        values = weights[2] @ (np.maximum(values, 0) if depth else values) + bias[2]
    np.testing.assert_allclose(model.network(2).predict_quantiles(X[:1])[0], values)


def test_levels_must_be_fitted_ones(three):
    model, X, _ = three
    np.testing.assert_array_equal(
        model.predict_quantiles(X, [0.95, (1 - 0.9) / 2]), model.predict_quantiles(X)[:, [2, 0]]
    )
    with pytest.raises(
        ValueError, match=r"levels must be among the fitted ones, \(0.05, 0.5, 0.95\), got 0.1; fit with"
    ):
        model.predict_quantiles(X, [0.1])


def test_two_heads_have_no_median():
    X, y = data()
    model = small(levels=(0.05, 0.95)).fit(X, y)
    assert model.predict_quantiles(X).shape == (60, 2)
    with pytest.raises(ValueError, match=r"got 0.5; fit with levels=\(0.05, 0.5, 0.95\)"):
        model.predict(X)


# Parameters, the extra and progress


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"levels": (0.5, 0.1)}, r"levels must be increasing numbers strictly between 0 and 1, got \(0.5, 0.1\)"),
        ({"levels": (0.0, 0.5)}, "levels must be increasing"),
        ({"levels": ()}, "levels must be increasing"),
        ({"hidden": (8, 0)}, "hidden must be an integer of 1 or more, got 0"),
        ({"epochs": 0}, "epochs must be an integer of 1 or more, got 0"),
        ({"batch_size": 1.5}, "batch_size must be an integer of 1 or more, got 1.5"),
        ({"learning_rate": 0}, "learning_rate must be positive"),
        ({"weight_decay": -1}, "weight_decay 0 or more"),
    ],
)
def test_parameters_are_checked(parameters, message):
    with pytest.raises(ValueError, match=message):
        small(**parameters).fit(*data())


def test_y_beyond_single_precision():
    X, y = data()
    with pytest.raises(ValueError, match=r"y must lie within ±3.4e38.*divide y by a constant"):
        small().fit(X, y * 1e39)
    assert np.isfinite(small().fit(X, y * 1e36).predict(X)).all()


def test_training_that_does_not_converge():
    with pytest.raises(ValueError, match=r"small enough for training to converge, got 1e\+38.*lower it"):
        small(epochs=6, learning_rate=1e38).fit(*data())


def test_missing_values_are_refused():
    X, y = data()
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        small().fit(X, y)


def test_without_jax_the_error_says_what_to_install(monkeypatch):
    """A fit says what to do; a fitted network predicts without jax."""
    X, y = data()
    fitted = small().fit(X, y)
    expected = fitted.predict(X)
    for module in ("jax", "optax"):
        with monkeypatch.context() as absent:
            absent.setitem(sys.modules, module, None)
            with pytest.raises(ImportError, match=rf'QuantileNetwork needs {module}: pip install "icqr\[neural\]"'):
                small().fit(X, y)
            np.testing.assert_array_equal(fitted.predict(X), expected)


def test_progress_may_be_told_to_a_callable():
    X, y = data()
    told = []
    small(epochs=45, n_networks=4, n_jobs=2, progress=lambda done, total: told.append((done, total))).fit(X, y)
    assert {total for _, total in told} == {180}
    assert told[-1] == (180, 180)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


# A scikit-learn estimator


def test_clone_pickle_pipeline_and_search():
    X, y = data()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    search = GridSearchCV(make_pipeline(StandardScaler(), small()), {"quantilenetwork__epochs": [1, 3]}, cv=2)
    search.fit(X, y)
    fitted = small().fit(frame, y)
    assert list(fitted.feature_names_in_) == ["a", "b", "c"]
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(frame), fitted.predict(frame))
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame[["b", "a", "c"]])
    assert all(type(array) is np.ndarray for array in fitted.weights_ + fitted.biases_)


@pytest.mark.slow
@parametrize_with_checks(
    [QuantileNetwork(hidden=(8,), epochs=100, learning_rate=0.05, batch_size=10_000, random_state=0, n_jobs=1)]
)
@pytest.mark.draws_globally  # one of scikit-learn's checks shuffles rows by the global generator
def test_scikit_learn(estimator, check):
    check(estimator)


def test_path_of_a_checkpoint_may_be_text(tmp_path):
    X, y = data()
    folder = Path(tmp_path) / "new" / "folder"
    small(checkpoint=str(folder)).fit(X, y)
    assert [path.name[-10:] for path in folder.iterdir()] == ["-00000.npz"]


@pytest.mark.parametrize("wrap", [lambda network: network, FrozenEstimator])
def test_importance_takes_the_networks_quick_way(wrap, monkeypatch):
    X, y = data(200)
    model = QuantileModel(wrap(small(epochs=30).fit(X, y))).fit(X, y, levels=LEVELS)
    quick = PermutationImportance().compute(model, X, y, random_state=0)
    with monkeypatch.context() as patched:
        patched.setattr(QuantileModel, "predict_encoded", lambda *_: pytest.fail("the rows were predicted again"))
        again = PermutationImportance().compute(model, X, y, random_state=0)
    pd.testing.assert_frame_equal(quick, again, check_exact=True)
    monkeypatch.delattr(QuantileNetwork, "replacer")
    plain = PermutationImportance().compute(model, X, y, random_state=0)
    pd.testing.assert_frame_equal(quick, plain, rtol=1e-9)
