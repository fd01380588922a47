"""The public names: sorted, importable, documented with an example; importing them changes nothing else."""

import inspect
import json
import subprocess
import sys
from typing import Any

import pytest

import icqr

# Libraries of the extras, and models that users bring: `import icqr` and its data sets import none of them.
OPTIONAL = {
    *("catboost", "dask", "jax", "jinja2", "lightgbm", "matplotlib", "optax", "polars", "pooch", "quantile_forest"),
    *("pyarrow", "requests", "rich", "skops", "torch", "tqdm", "typer", "xgboost"),
}

WATCH = """
import json, logging, sys, warnings
def settings():
    return repr([warnings.filters, logging.root.handlers, logging.root.level])
before = settings()
import icqr
alone = [before == settings(), "numpy" in sys.modules]
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
from icqr import *
import icqr.datasets
same = before == repr(state())
print(json.dumps([alone, same, sorted(set(sys.modules) - loaded), [icqr.metrics.__name__, icqr.ICQR.__name__]]))
"""


@pytest.fixture(scope="module")
def watched() -> list[Any]:
    """What happens when icqr is imported, in a process of its own."""
    run = subprocess.run([sys.executable, "-W", "error", "-c", WATCH], capture_output=True, text=True, check=True)
    assert run.stderr == ""
    return list(json.loads(run.stdout))


def test_the_names_are_sorted() -> None:
    constants, others = ([name for name in icqr.__all__ if name.isupper() is upper] for upper in (True, False))
    assert icqr.__all__ == sorted(constants) + sorted(others)


@pytest.mark.parametrize("name", icqr.__all__)
def test_a_name_is_there_and_has_an_example(name: str) -> None:
    assert "Examples\n--------" in (inspect.getdoc(getattr(icqr, name)) or ""), f"{name} has no example"


def test_nothing_else_is_public() -> None:
    public = {name for name in dir(icqr) if not name.startswith("_")}
    assert {name for name in public if not inspect.ismodule(getattr(icqr, name))} == set(icqr.__all__)
    with pytest.raises(AttributeError, match="module 'icqr' has no attribute 'nothing'"):
        icqr.nothing  # noqa: B018


def test_names_are_imported_when_they_are_used(watched: list[Any]) -> None:
    (_, numpy_is_there), _, _, names = watched
    assert not numpy_is_there
    assert names == ["icqr.metrics", "ICQR"]


def test_importing_has_no_side_effects(watched: list[Any]) -> None:
    (unchanged_by_the_package, _), unchanged_by_its_names, imported, _ = watched
    assert unchanged_by_the_package
    assert unchanged_by_its_names
    assert "icqr.datasets" in imported
    assert OPTIONAL.isdisjoint(imported)
