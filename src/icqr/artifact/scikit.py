"""Other objects of scikit-learn, by skops: a list of types that we trust, checked before skops makes anything.

skops builds objects from a JSON description and .npy files. We take the trees out (see `trees.py`), write one
description for all objects of a model, and read it back only if it holds nothing but what we write.
"""

from __future__ import annotations

import copy
import io
import json
import re
import zipfile
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.dummy import DummyRegressor
from sklearn.ensemble._forest import BaseForest
from sklearn.ensemble._gb import BaseGradientBoosting
from sklearn.tree import BaseDecisionTree
from sklearn.tree._tree import Tree

from icqr._messages import imported
from icqr.artifact.container import ArtifactError, check_members, parse_json, refusing_damage
from icqr.artifact.records import Parts, Record, refusing
from icqr.artifact.trees import restore_forest, restore_trees, store_forest, store_trees

#: Estimators by the package that offers them. Left out are those whose compiled code trusts what it is given and that
#: we don't check (nearest neighbours, libsvm), those that hold functions of the user, and those that are no part of a
#: regression.
ESTIMATORS = {
    "sklearn.compose": "ColumnTransformer TransformedTargetRegressor",
    "sklearn.cross_decomposition": "PLSRegression",
    "sklearn.decomposition": "FactorAnalysis FastICA IncrementalPCA KernelPCA NMF PCA SparsePCA TruncatedSVD",
    "sklearn.dummy": "DummyRegressor",
    "sklearn.ensemble": (
        "AdaBoostRegressor BaggingRegressor ExtraTreesRegressor GradientBoostingRegressor RandomForestRegressor "
        "VotingRegressor"
    ),
    "sklearn.feature_selection": "SelectFromModel SelectKBest SelectPercentile VarianceThreshold",
    "sklearn.frozen": "FrozenEstimator",
    "sklearn.impute": "MissingIndicator SimpleImputer",
    "sklearn.kernel_approximation": "Nystroem PolynomialCountSketch RBFSampler",
    "sklearn.kernel_ridge": "KernelRidge",
    "sklearn.linear_model": (
        "ARDRegression BayesianRidge ElasticNet ElasticNetCV GammaRegressor HuberRegressor Lars LarsCV Lasso LassoCV "
        "LassoLars LassoLarsCV LassoLarsIC LinearRegression OrthogonalMatchingPursuit OrthogonalMatchingPursuitCV "
        "PoissonRegressor QuantileRegressor RANSACRegressor Ridge RidgeCV SGDRegressor TheilSenRegressor "
        "TweedieRegressor"
    ),
    "sklearn.neural_network": "MLPRegressor",
    "sklearn.pipeline": "FeatureUnion Pipeline",
    "sklearn.preprocessing": (
        "Binarizer FunctionTransformer KBinsDiscretizer MaxAbsScaler MinMaxScaler Normalizer "
        "OneHotEncoder OrdinalEncoder PolynomialFeatures PowerTransformer QuantileTransformer RobustScaler "
        "StandardScaler TargetEncoder"
    ),
    "sklearn.random_projection": "GaussianRandomProjection",
    "sklearn.svm": "LinearSVR",
    "sklearn.tree": "DecisionTreeRegressor ExtraTreeRegressor",
    "quantile_forest": "ExtraTreesQuantileRegressor RandomForestQuantileRegressor",
}
#: Objects inside fitted estimators.
INTERNAL = {
    "sklearn._loss.link": "IdentityLink Interval LogLink",
    "sklearn._loss.loss": (
        "AbsoluteError HalfGammaLoss HalfPoissonLoss HalfSquaredError HalfTweedieLoss HalfTweedieLossIdentity "
        "HuberLoss PinballLoss"
    ),
    "sklearn.compose._column_transformer": "_RemainderColsList",
    "sklearn.neural_network._stochastic_optimizers": "AdamOptimizer SGDOptimizer",
    "sklearn.preprocessing._data": "KernelCenterer",
    "sklearn.preprocessing._label": "LabelBinarizer",
}
#: Compiled losses, which hold at most a number.
LOSSES = {
    "sklearn._loss._loss": (
        "CyAbsoluteError CyHalfGammaLoss CyHalfPoissonLoss CyHalfSquaredError CyHalfTweedieLoss "
        "CyHalfTweedieLossIdentity CyHuberLoss CyPinballLoss"
    ),
}
#: Functions of FunctionTransformer, TransformedTargetRegressor and SelectKBest.
FUNCTIONS = {
    "numpy": "abs arcsinh cbrt exp exp2 expm1 log log10 log1p log2 negative reciprocal sinh sqrt square",
    "scipy.special": "expit logit",
    "sklearn.feature_selection": "f_classif f_regression mutual_info_regression r_regression",
}
SCALARS = {"numpy": "bool bool_ float32 float64 int32 int64 intp uint8 uint32 str_"}
# What skops may be asked to make, and of which types; the old nodes of earlier protocols may be laxer.
_OLDEST_PROTOCOL = 2
_BUILTINS = {
    "DictNode": {"builtins.dict", "collections.OrderedDict", "sklearn.utils._bunch.Bunch"},
    "JsonNode": {"builtins.str"},
    "ListNode": {"builtins.list"},
    "SetNode": {"builtins.set"},
    "SliceNode": {"builtins.slice"},
    "TupleNode": {"builtins.tuple"},
}
_NULL = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode", "content": "null", "is_json": True}
_DROPPED = ("RandomStateNode", "RandomGeneratorNode")
_FORMAT = "skops"
_SCHEMA = "schema.json"


def _skops() -> Any:
    return imported("skops.io", "storing and reading this model of scikit-learn needs", "icqr[artifact]")


def is_estimator(given: Any) -> bool:
    """Tell whether this is an estimator that we trust, of exactly that type."""
    return f"{type(given).__module__}.{type(given).__qualname__}" in _estimators()


@cache
def _estimators() -> frozenset[str]:
    """Give the names that the estimators have inside scikit-learn, as far as it is new enough to have them."""
    found = set()
    for package, names in ESTIMATORS.items():
        try:
            module = import_module(package)
        except ModuleNotFoundError:  # quantile-forest is not needed by all
            continue
        kinds = [getattr(module, name) for name in names.split() if hasattr(module, name)]
        found |= {f"{kind.__module__}.{kind.__name__}" for kind in kinds}
    return frozenset(found)


def _names(table: dict[str, str]) -> set[str]:
    return {f"{module}.{name}" for module, names in table.items() for name in names.split()}


@cache
def _allowed() -> dict[str, set[str]]:
    """Give the types that each of skops's nodes may make."""
    return {
        **_BUILTINS,
        "FunctionNode": _names(FUNCTIONS),
        "LossNode": _names(LOSSES),
        "NdArrayNode": {"numpy.ndarray", *_names(SCALARS)},
        "DTypeNode": {"numpy.dtype"},
        "ObjectNode": set(_estimators()) | _names(INTERNAL),
        "TypeNode": {"builtins.str", "builtins.int", "builtins.float", "builtins.bool", *_names(SCALARS)},
    }


# -- Objects inside objects ------------------------------------------------------------------------------------------


def _reachable(root: Any) -> Iterator[Any]:
    """Give an object and all that it holds, each once."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, str | bytes | int | float | type | None):
            continue
        seen.add(id(one))
        yield one
        if isinstance(one, dict):
            waiting.extend(one.values())
        elif isinstance(one, list | tuple | set):
            waiting.extend(one)
        elif isinstance(one, np.ndarray):
            waiting.extend(one.ravel().tolist() if one.dtype == object else [])
        else:
            waiting.extend(getattr(one, "__dict__", {}).values())


def _is_forest(one: Any) -> bool:
    return type(one).__name__ == "QuantileForest" and type(one).__module__.startswith("quantile_forest.")


# -- Writing ---------------------------------------------------------------------------------------------------------


def store_objects(objects: Sequence[Any], parts: Parts) -> dict[str, Any] | None:
    """Give objects of scikit-learn: their trees as arrays, all else as a file of skops."""
    if not objects:
        return None
    held = list(_reachable(list(objects)))
    found = {id(one.tree_): one.tree_ for one in held if isinstance(getattr(one, "tree_", None), Tree)}
    trees, forests = list(found.values()), [one.forest_ for one in held if _is_forest(getattr(one, "forest_", None))]
    # In the copy, numbers stand for trees.
    places = {id(one): i for some in (trees, forests) for i, one in enumerate(some)}
    skops = _skops()
    with refusing("the model"):
        bare = copy.deepcopy(list(objects), memo=places)
        data = skops.dumps(bare)
    return {
        "file": parts.add("scikit-learn.skops", _canonical(data), format=_FORMAT),
        "trees": store_trees(trees, parts, "trees") if trees else None,
        "forests": [store_forest(one, parts, f"forests/{i}") for i, one in enumerate(forests)],
    }


def _canonical(data: bytes) -> bytes:
    """Write a file of skops anew: files numbered in order, no memory addresses, no random states, no date.

    skops names files and objects by their addresses in memory, which differ from run to run. A random state is of no
    use after fitting, and the code that restores it trusts what it is given.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        schema = json.loads(archive.read(_SCHEMA))
        arrays: dict[str, str] = {}
        schema = _without_addresses(schema, arrays)
        files = {new: archive.read(old) for old, new in arrays.items()}
    untrusted = sorted({name for _, name in _untrusted(schema)})
    if untrusted:
        raise ArtifactError(
            f"the model holds {', '.join(untrusted[:5])}, which icqr does not trust a file to make again"
        )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in {_SCHEMA: json.dumps(schema).encode(), **files}.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def _without_addresses(node: Any, arrays: dict[str, str]) -> Any:
    if isinstance(node, list):
        return [_without_addresses(one, arrays) for one in node]
    if not isinstance(node, dict):
        return node
    if node.get("__loader__") in _DROPPED:
        return _NULL
    fresh = {key: _without_addresses(one, arrays) for key, one in node.items() if key != "__id__"}
    if fresh.get("__loader__") == "NdArrayNode" and "file" in fresh:
        fresh["file"] = arrays.setdefault(fresh["file"], f"{len(arrays)}.npy")
    if fresh.get("__loader__") == "FunctionNode":
        # Ufuncs don't know their module; skops names any that has them.
        homes = [home for home, names in FUNCTIONS.items() if fresh["__class__"] in names.split()]
        real = getattr(import_module(fresh["__module__"]), fresh["__class__"], None)
        fresh["__module__"] = next(
            (home for home in homes if getattr(import_module(home), fresh["__class__"]) is real), fresh["__module__"]
        )
    return fresh


# -- Reading ---------------------------------------------------------------------------------------------------------


def _untrusted(node: Any) -> Iterator[tuple[str, str]]:
    """Give the node and type of everything in a description that is not on our lists."""
    if isinstance(node, list):
        for one in node:
            yield from _untrusted(one)
    if not isinstance(node, dict):
        return
    if "__loader__" in node or "__class__" in node:
        loader, name = str(node.get("__loader__")), f"{node.get('__module__')}.{node.get('__class__')}"
        if name not in _allowed().get(loader, ()):
            yield loader, name
    for one in node.values():
        yield from _untrusted(one)


def restore_objects(record: Record | None) -> list[Any]:
    """Give back the objects."""
    if record is None:
        return []
    data = record.blob("file", _FORMAT)
    _check_file(data)
    trees_record = record.optional("trees")
    trees = [] if trees_record is None else restore_trees(trees_record)
    forests = record.records("forests")
    record.check_all_read()
    skops = _skops()
    with refusing(f"{record.place}.file"):
        objects = skops.loads(data, trusted=sorted(set().union(*_allowed().values())))
    if not isinstance(objects, list):
        raise ArtifactError(f"{record.place}.file must hold a list")
    _plant(objects, trees, forests, record.place)
    return objects


def _check_file(data: bytes) -> None:
    """Refuse a file of skops that holds anything but what we write."""
    with refusing_damage(), zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = check_members(archive, len(data))
        if _SCHEMA not in members or any(info.compress_type != zipfile.ZIP_STORED for info in members.values()):
            raise ArtifactError(f"the file of skops must hold {_SCHEMA}, and nothing in it may be packed again")
        schema = parse_json(archive.read(members.pop(_SCHEMA)), f"the {_SCHEMA} of skops")
        for name, info in members.items():
            if not re.fullmatch(r"\d{1,9}\.npy", name):
                raise ArtifactError(f"the file of skops holds {name}, which is no array")
            _check_npy(archive.read(info), name)
    if not isinstance(schema, dict) or type(schema.get("protocol")) is not int:
        raise ArtifactError(f"the {_SCHEMA} of skops must be an object with a protocol")
    if schema["protocol"] < _OLDEST_PROTOCOL:
        raise ArtifactError(f"the file claims protocol {schema['protocol']} of skops, which icqr never wrote")
    try:
        for loader, name in _untrusted(schema):
            raise ArtifactError(f"the file asks skops for {name[:200]} ({loader[:80]}), which icqr does not trust")
        if _has_addresses(schema):
            raise ArtifactError("objects in the file of skops refer to each other; icqr writes none that do")
    except RecursionError as error:
        raise ArtifactError(f"the {_SCHEMA} of skops is nested too deeply") from error


def _has_addresses(node: Any) -> bool:
    if isinstance(node, list):
        return any(_has_addresses(one) for one in node)
    return isinstance(node, dict) and ("__id__" in node or any(_has_addresses(one) for one in node.values()))


def _check_npy(data: bytes, name: str) -> None:
    """Refuse an array of objects, and one whose shape is not that of its bytes: it would be allocated first."""
    stream = io.BytesIO(data)
    with refusing(f"{name} in the file of skops"):
        version = np.lib.format.read_magic(stream)
        if version != (1, 0):
            raise ValueError(f"its version is {version}")
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
        if dtype.hasobject:
            raise ValueError("it holds pickled objects, which can run any code when they are read")
        sizes = [int(size) for size in shape]
        if min(sizes, default=0) < 0 or int(np.prod(sizes, dtype=object)) * dtype.itemsize != len(data) - stream.tell():
            raise ValueError(f"it has {len(data) - stream.tell()} bytes, which is not the shape {shape} of {dtype}")


def _plant(objects: list[Any], trees: list[Tree], forests: list[Record], place: str) -> None:
    """Put trees where their numbers stand, and check that those who ask a tree have the columns it asks for."""
    everything = list(_reachable(objects))
    for one in everything:
        if getattr(one, "memory", None) is not None:
            raise ArtifactError(f"a {type(one).__name__} with memory keeps pickles in a folder; use memory=None")
    owners = [one for one in everything if isinstance(one, BaseDecisionTree) and hasattr(one, "tree_")]
    if {repr(owner.tree_) for owner in owners} != {repr(i) for i in range(len(trees))}:
        raise ArtifactError(f"{place}: each tree must have its place in the model, and each place its tree")
    for owner in owners:
        owner.tree_ = trees[owner.tree_]
        _check_columns(owner, owner.tree_.n_features, place)
    for one in everything:
        if isinstance(one, BaseForest | BaseGradientBoosting) and hasattr(one, "estimators_"):
            _check_ensemble(one, place)
    keepers = [one for one in everything if "forest_" in getattr(one, "__dict__", {})]
    if sorted(repr(one.forest_) for one in keepers) != sorted(repr(i) for i in range(len(forests))):
        raise ArtifactError(f"{place}: each quantile forest must have its leaves")
    for one in keepers:
        one.forest_ = restore_forest(forests[one.forest_], [tree.tree_ for tree in one.estimators_])


def _check_ensemble(ensemble: Any, place: str) -> None:
    """Raise unless compiled code can go through the members of a forest or of gradient boosting without a check."""
    members = np.ravel(np.asarray(ensemble.estimators_, dtype=object)).tolist()
    if not members or not all(isinstance(one, BaseDecisionTree) and isinstance(one.tree_, Tree) for one in members):
        raise ArtifactError(f"{place}: an ensemble must consist of fitted trees")
    for one in members:
        _check_columns(ensemble, one.tree_.n_features, place)
    if isinstance(ensemble, BaseGradientBoosting):
        _check_boosting(ensemble, len(members), place)


def _check_boosting(model: Any, n_members: int, place: str) -> None:
    """Raise unless predictions start as one number per row, to which each tree adds."""
    start = getattr(model, "init_", None)
    one_number = type(start) is DummyRegressor and np.asarray(getattr(start, "constant_", None)).shape == (1, 1)
    sizes = np.shape(model.estimators_), getattr(model, "n_trees_per_iteration_", None)
    if not (start == "zero" if isinstance(start, str) else one_number) or sizes != ((n_members, 1), 1):
        raise ArtifactError(f"{place}: gradient boosting must start from a constant, with one tree at a time")


def _check_columns(estimator: Any, n_features: int, place: str) -> None:
    if getattr(estimator, "n_features_in_", None) != n_features:
        raise ArtifactError(f"{place}: a tree was made for {n_features} columns, its model for another number")
