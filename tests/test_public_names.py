"""The public names: sorted, importable, documented with an example; importing them changes nothing else."""

import importlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
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


#: Modules whose public names are all in the API page.
MODULES = (
    "auditing",
    "calibration",
    "dask",
    "datasets",
    "distribution",
    "metrics",
    "neural",
    "online",
    "persistence",
    "plots",
    "reporting",
    "streaming",
)


def listed_names() -> list[str]:
    """The names in the API page, each with its module."""
    page = (Path(__file__).parents[1] / "docs" / "api" / "index.rst").read_text(encoding="utf-8")
    names, module = [], ""
    for line in page.splitlines():
        if current := re.match(r"\.\. currentmodule:: (\S+)", line):
            module = current[1]
        elif entry := re.fullmatch(r"   (\w+)", line):
            names.append(f"{module}.{entry[1]}")
    return names


def test_every_public_name_is_in_the_api_page() -> None:
    names = listed_names()
    assert len(names) == len(set(names))
    assert {f"icqr.{name}" for name in icqr.__all__} <= set(names)
    at_the_top = [getattr(icqr, name) for name in icqr.__all__]
    for module in MODULES:
        home = importlib.import_module(f"icqr.{module}")
        own = {name for name in home.__all__ if not any(getattr(home, name) is value for value in at_the_top)}
        assert {f"icqr.{module}.{name}" for name in own} <= set(names), module


@pytest.mark.parametrize("name", listed_names())
def test_a_name_in_the_api_page_has_a_docstring(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    value = getattr(importlib.import_module(module), attribute)
    assert not callable(value) or inspect.getdoc(value)
