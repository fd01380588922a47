"""The public names: sorted, importable, documented with an example; importing them changes nothing else."""

import inspect
import json
import subprocess
import sys

import pytest

import icqr

# Libraries of the extras, and models that users bring: `import icqr` imports none of them.
OPTIONAL = {
    *("catboost", "dask", "jax", "jinja2", "lightgbm", "matplotlib", "optax", "polars", "pooch", "quantile_forest"),
    *("rich", "skops", "torch", "typer", "xgboost"),
}

WATCH = """
import json, logging, sys, warnings
# What icqr stands on may do as it likes.
import numpy, pandas, scipy.spatial, scipy.stats, sklearn.cluster, sklearn.compose, sklearn.ensemble, sklearn.metrics
import sklearn.model_selection, sklearn.pipeline, sklearn.tree, sklearn.frozen, sklearn.linear_model
def state():
    return [
        repr(warnings.filters), warnings.showwarning is _shown, repr(logging.root.handlers), logging.root.level,
        numpy.geterr(), numpy.get_printoptions(), repr(sklearn.get_config()), str(numpy.random.get_state()[1].tolist()),
    ]
_shown = warnings.showwarning
before, loaded = repr(state()), set(sys.modules)
import icqr
print(json.dumps([before == repr(state()), sorted(set(sys.modules) - loaded)]))
"""


def test_the_names_are_sorted() -> None:
    constants, others = ([name for name in icqr.__all__ if name.isupper() is upper] for upper in (True, False))
    assert icqr.__all__ == sorted(constants) + sorted(others)


@pytest.mark.parametrize("name", icqr.__all__)
def test_a_name_is_there_and_has_an_example(name: str) -> None:
    assert "Examples\n--------" in (inspect.getdoc(getattr(icqr, name)) or ""), f"{name} has no example"


def test_nothing_else_is_public() -> None:
    shown = {name for name, value in vars(icqr).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert shown == set(icqr.__all__)


def test_importing_has_no_side_effects() -> None:
    run = subprocess.run([sys.executable, "-W", "error", "-c", WATCH], capture_output=True, text=True, check=True)
    unchanged, imported = json.loads(run.stdout)
    assert unchanged
    assert OPTIONAL.isdisjoint(imported)
    assert run.stderr == ""
