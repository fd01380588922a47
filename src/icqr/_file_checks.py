"""What a model file may hold: the types that are trusted, and checks that what was read can't lead native code astray.

skops makes objects of trusted types and fills them with whatever the file says. Compiled code of scikit-learn then
follows child and column numbers without looking. So types are checked before anything is made, and numbers before
anything is used.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from importlib import import_module
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import numpy as np
import pandas as pd
from numpy.lib.recfunctions import repack_fields
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.ensemble._forest import BaseForest
from sklearn.ensemble._gb import BaseGradientBoosting
from sklearn.preprocessing import FunctionTransformer, OrdinalEncoder
from sklearn.tree import BaseDecisionTree
from sklearn.tree._tree import NODE_DTYPE, Tree
from sklearn.utils import check_array

from icqr._libraries import Encoder
from icqr._predicting import IntervalRegressor
from icqr.cross import CrossCalibration

METHODS = "Naive, QR, CQR, ICQR, AutoICQR"
FORMAT = "icqr-model"
VERSION = 2

#: Unpacked, a file may be so many times as large as it is packed, and always this large: a bomb is much larger.
LARGEST_RATIO, ALWAYS_ALLOWED = 100, 64 * 2**20
#: Brackets and commas in a text of a file: each may be an object in memory.
MOST_ITEMS = 5_000_000
_PARTS = re.compile(r"manifest\.json|schema\.json|signature|[0-9]+\.(npy|bin)")
_PICKLES = (".pkl", ".pickle", ".joblib", ".dill", ".cloudpickle")

#: Trusted classes by the module that offers them. Left out are estimators whose compiled code trusts what it is given
#: and that we don't check (nearest neighbours, libsvm), and those that are no part of a regression.
CLASSES = {
    "icqr.centres": "CrossFitted FittedOnce Mixture SmoothRidge",
    "icqr.calibration": "Calibration NoCalibration SelectedCalibration",
    "icqr.conformity": "Conformity SignedScores",
    "icqr.cross": "CrossCalibration FoldModels",
    "icqr.importance": "PermutationImportance",
    "icqr.neural": "QuantileNetwork",
    "icqr.novelty": "Novelty",
    "icqr.partition": "GroupPartition KMeansPartition ScorePartition WholePartition",
    "icqr.quantiles": "PointModel PrefitQuantiles QuantileModel",
    "icqr.regressors": "AutoICQR CQR ICQR Naive QR",
    "icqr.residual_quantiles": "ResidualQuantiles",
    "icqr._clustering": "WeightedSpace",
    "icqr._libraries": "Encoder TargetScale",
    "icqr._tables": "Features",
    "catboost": "CatBoostRegressor",
    "lightgbm": "Booster LGBMRegressor",
    "quantile_forest": "ExtraTreesQuantileRegressor RandomForestQuantileRegressor",
    "xgboost": "Booster XGBRegressor XGBRFRegressor",
    "sklearn.cluster": "KMeans MiniBatchKMeans",
    "sklearn.compose": "ColumnTransformer TransformedTargetRegressor",
    "sklearn.cross_decomposition": "PLSRegression",
    "sklearn.decomposition": "FactorAnalysis FastICA IncrementalPCA KernelPCA NMF PCA SparsePCA TruncatedSVD",
    "sklearn.dummy": "DummyRegressor",
    "sklearn.ensemble": (
        "AdaBoostRegressor BaggingRegressor ExtraTreesRegressor GradientBoostingRegressor "
        "HistGradientBoostingRegressor RandomForestRegressor VotingRegressor"
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
        "Binarizer FunctionTransformer KBinsDiscretizer KernelCenterer LabelBinarizer MaxAbsScaler MinMaxScaler "
        "Normalizer OneHotEncoder OrdinalEncoder PolynomialFeatures PowerTransformer QuantileTransformer RobustScaler "
        "StandardScaler TargetEncoder"
    ),
    "sklearn.random_projection": "GaussianRandomProjection",
    "sklearn.svm": "LinearSVR",
    "sklearn.tree": "DecisionTreeRegressor ExtraTreeRegressor",
    # Parts of fitted estimators.
    "sklearn._loss._loss": (
        "CyAbsoluteError CyHalfGammaLoss CyHalfPoissonLoss CyHalfSquaredError CyHalfTweedieLoss "
        "CyHalfTweedieLossIdentity CyHuberLoss CyPinballLoss"
    ),
    "sklearn._loss.link": "IdentityLink Interval LogLink",
    "sklearn._loss.loss": (
        "AbsoluteError HalfGammaLoss HalfPoissonLoss HalfSquaredError HalfTweedieLoss HalfTweedieLossIdentity "
        "HuberLoss PinballLoss"
    ),
    "sklearn.compose._column_transformer": "_RemainderColsList",
    "sklearn.ensemble._hist_gradient_boosting.binning": "_BinMapper",
    "sklearn.ensemble._hist_gradient_boosting.predictor": "TreePredictor",
    "sklearn.neural_network._stochastic_optimizers": "AdamOptimizer SGDOptimizer",
    "sklearn.utils": "Bunch",
}
#: Trusted functions: of FunctionTransformer, TransformedTargetRegressor, SelectKBest and PermutationImportance.
FUNCTIONS = {
    "icqr.importance": "median_absolute_error",
    "numpy": "absolute arcsinh cbrt exp exp2 expm1 log log10 log1p log2 negative reciprocal sinh sqrt square",
    "scipy.special": "expit logit",
    "sklearn.feature_selection": "f_classif f_regression mutual_info_regression r_regression",
    "sklearn.utils": "check_array",
}
#: What a file may call, with whatever arguments: makers of what skops does not store, or not safely.
MAKERS = {"icqr._file_checks": "make_forest make_fraction make_frame make_tree", "pandas": "Index Interval"}


def _full_names(listed: Mapping[str, str]) -> set[str]:
    return {f"{module}.{name}" for module, names in listed.items() for name in names.split()}


_BUILTINS = _full_names({"builtins": "bool float int str"})
_SCALARS = _full_names({"numpy": "bool bool_ float32 float64 int32 int64 intp uint8 uint32 uint64 str_"})
#: Compiled, each with at most a number in it.
_LOSSES = {name for name in _full_names(CLASSES) if name.startswith("sklearn._loss._loss.")}
#: The types that each of skops's nodes may make; nodes that are not listed are refused.
ALLOWED = {
    "BytearrayNode": {"builtins.bytearray"},
    "BytesNode": {"builtins.bytes"},
    "ConstructorFromReduceNode": _full_names(MAKERS),
    "DefaultDictNode": {"collections.defaultdict"},  # of LightGBM's booster
    "DictNode": {"builtins.dict", "collections.OrderedDict", "sklearn.utils.Bunch"},
    "DTypeNode": {"numpy.dtype"},
    "FunctionNode": _full_names(FUNCTIONS),
    "JsonNode": {"builtins.str"},
    "ListNode": {"builtins.list"},
    "LossNode": _LOSSES,
    "NdArrayNode": {"numpy.ndarray", *_SCALARS},
    "ObjectNode": _full_names(CLASSES) - _LOSSES,
    "PartialNode": {"functools.partial"},
    "SetNode": {"builtins.set"},
    "SliceNode": {"builtins.slice"},
    "TupleNode": {"builtins.tuple"},
    "TypeNode": {"collections.OrderedDict", *_BUILTINS, *_SCALARS},
}
_PUBLIC_NAMES = sorted(_full_names(CLASSES) | _full_names(FUNCTIONS) | _full_names(MAKERS))
#: Objects that skops stores as they are: their library, not we, says what is in them.
SEALED = {"catboost.CatBoostRegressor", "lightgbm.Booster", "pandas.Interval", "xgboost.Booster", *_LOSSES}

PACKED_NODE = repack_fields(NODE_DTYPE)
_OLDEST_PROTOCOL = 2  # the nodes of earlier ones may be laxer

#: Columns, groups or outputs that a file may declare: what is declared is allocated.
MOST_COUNTED = 100_000
_COUNTS = {"n_columns", "n_features_in_", "_n_features", "_n_features_in", "n_groups_", "k_", "n_outputs_"}
_JOBS = {"n_jobs", "n_threads", "nthread", "nthreads", "num_thread", "num_threads", "thread_count", "_n_threads"}


class ModelFileError(ValueError):
    """A file that is not a model of icqr, or not a sound one; or a model that can't be stored."""


@contextmanager
def refusing(reason: str) -> Iterator[None]:
    """Turn whatever a parser or a library raises into a refusal."""
    try:
        yield
    except (ModelFileError, ImportError):
        raise
    except Exception as error:  # they raise anything; all of it means that the file is unsound
        raise ModelFileError(f"{reason}: {type(error).__name__}: {error}") from error


def public_name(value: Any) -> str:
    """Return the name under which a class or function is trusted, "" if it is not."""
    ending = f".{getattr(value, '__name__', None)}"
    for public in _PUBLIC_NAMES:
        if public.endswith(ending):
            module, _, name = public.rpartition(".")
            # No library is imported for a name: its own is there already.
            if module.partition(".")[0] in sys.modules and getattr(import_module(module), name, None) is value:
                return public
    return ""


# -- The zip, the manifest and its signature -------------------------------------------------------------------------


def check_file(data: bytes, key: bytes | None) -> set[str]:
    """Return the types that a file asks skops for, or refuse it; nothing is made yet.

    First the names and sizes of its parts, then the signature, then every part's hash, then what the parts hold.
    """
    if data[:4] != b"PK\x03\x04":
        is_pickle = data[:1] == b"\x80"
        what = "a pickle, which can run any code when it is read" if is_pickle else "not a zip archive, or cut off"
        raise ModelFileError(f"not a model of icqr: {what}")
    with refusing("the file is damaged: cut off, or overwritten in places"), ZipFile(io.BytesIO(data)) as archive:
        if "manifest.json" not in archive.namelist():
            raise ModelFileError("not a model of icqr: a zip archive without manifest.json")
        sizes = _check_members(archive.infolist(), len(data))
        manifest = archive.read("manifest.json")
        _check_signature(manifest, archive.read("signature") if "signature" in sizes else None, key)
        parts = _check_manifest(_parsed(manifest, "manifest.json"), sizes.keys() - {"manifest.json", "signature"})
        for name, about in parts.items():
            _check_part(archive.read(name), name, about)
        schema = _parsed(archive.read("schema.json"), "schema.json")
        return _check_schema(schema, {name: sizes[name] for name in parts}, len(data))


def _check_members(members: list[ZipInfo], packed: int) -> dict[str, int]:
    """Return the parts' unpacked sizes, or refuse names and sizes that no model has."""
    sizes: dict[str, int] = {}
    for info in members:
        name = info.orig_filename  # as it is in the file: `filename` ends at a NUL
        if name.lower().endswith(_PICKLES):
            raise ModelFileError(f"the file holds a pickle, {name!r}, which can run any code when it is read")
        if not _PARTS.fullmatch(name) or name in sizes:
            why = "is there twice" if name in sizes else "is none that icqr writes, or leads out of the file"
            raise ModelFileError(f"the name of a part {why}: {name!r}")
        if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG) or info.flag_bits & 0x1:
            raise ModelFileError(f"{name} is not a plain file but a link, a folder or encrypted")
        if info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            raise ModelFileError(f"{name} is packed by method {info.compress_type}; parts may be stored or deflated")
        sizes[name] = info.file_size
    if is_bomb(sum(sizes.values()), packed):
        raise ModelFileError(f"a zip bomb: {packed} bytes claim to unpack to {sum(sizes.values())}")
    return sizes


def is_bomb(unpacked: int, packed: int) -> bool:
    """Tell whether a file of so many bytes would unpack to more than any sound one does."""
    return unpacked > max(ALWAYS_ALLOWED, LARGEST_RATIO * packed)


def signature_of(manifest: bytes, key: bytes) -> bytes:
    """Return the HMAC-SHA256 of the manifest, which holds the hash of every other part."""
    return hmac.new(key, manifest, hashlib.sha256).hexdigest().encode()


def _check_signature(manifest: bytes, signature: bytes | None, key: bytes | None) -> None:
    if key is None:
        if signature is not None:
            raise ModelFileError("the file is signed: give the key that it was saved with, as load(path, key=…)")
    elif signature is None:
        raise ModelFileError(
            "the file is not signed, so the key can't show who wrote it; load(path) without a key reads it, if you "
            "trust where it comes from"
        )
    elif not hmac.compare_digest(signature, signature_of(manifest, key)):
        raise ModelFileError(
            "the signature is wrong: the file was saved with another key, or changed by somebody without it"
        )


def _parsed(data: bytes, name: str) -> Any:
    """Read JSON, if it is not too much."""
    if sum(data.count(mark) for mark in (b"[", b"{", b",")) > MOST_ITEMS:
        raise ModelFileError(
            f"{name} has more than {MOST_ITEMS} entries; models with fewer trees, and columns and groups with fewer "
            "different values, make it smaller"
        )
    with refusing(f"{name} is not valid JSON"):
        return json.loads(data)


def _check_manifest(manifest: Any, names: set[str]) -> dict[str, Any]:
    """Return what the manifest says about each part, or refuse it."""
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ModelFileError(f'not a model of icqr: manifest.json does not say "format": "{FORMAT}"')
    version = manifest.get("version")
    if type(version) is not int or version != VERSION:
        newer = isinstance(version, int) and version > VERSION
        advice = "update icqr" if newer else "fit the model again, or load it with the icqr that wrote it"
        raise ModelFileError(
            f"the file has version {str(version)[:80]} of the format, and this icqr reads {VERSION}; {advice}"
        )
    if manifest.keys() != {"format", "version", "written_by", "parts"} or not isinstance(manifest["parts"], dict):
        raise ModelFileError("manifest.json must have format, version, written_by and parts, and nothing else")
    odd = sorted(manifest["parts"].keys() ^ names)
    if odd:
        raise ModelFileError(f"the parts in the file and those its manifest lists differ: {', '.join(odd[:5])}")
    return dict(manifest["parts"])


def _check_part(data: bytes, name: str, about: Any) -> None:
    """Refuse a part that is not what the manifest says, or an array that is not what its header says."""
    digest = hashlib.sha256(data).hexdigest()
    if about != {"bytes": len(data), "sha256": digest}:
        raise ModelFileError(
            f"{name} was changed after the file was written: it has {len(data)} bytes and the sha256 {digest}, but the "
            f"manifest says {str(about)[:200]}"
        )
    if not name.endswith(".npy"):
        return
    stream = io.BytesIO(data)
    with refusing(f"{name} can't be read"):
        version = np.lib.format.read_magic(stream)
        if version != (1, 0):
            raise ValueError(f"its version is {version}")
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
        if dtype.hasobject:
            raise ValueError("it holds pickled objects, which can run any code when they are read")
        # An array is allocated by its shape before its bytes are read.
        sizes, left = [int(size) for size in shape], len(data) - stream.tell()
        if min(sizes, default=0) < 0 or int(np.prod(sizes, dtype=object)) * dtype.itemsize != left:
            raise ValueError(f"it has {left} bytes, which is not the shape {shape} of {dtype}")


# -- Types, before anything is made ----------------------------------------------------------------------------------


def _check_schema(schema: Any, sizes: Mapping[str, int], packed: int) -> set[str]:
    """Return the types that a description asks skops for, or refuse one that holds anything but what we write."""
    protocol = schema.get("protocol") if isinstance(schema, dict) else None
    if type(protocol) is not int or protocol < _OLDEST_PROTOCOL:
        raise ModelFileError(f"schema.json claims protocol {str(protocol)[:80]} of skops, which icqr never wrote")
    types: set[str] = set()
    used: list[str] = []
    for node in nodes_of(schema):
        loader, name = str(node.get("__loader__")), f"{node.get('__module__')}.{node.get('__class__')}"
        if name not in ALLOWED.get(loader, ()):
            raise ModelFileError(f"the file asks skops for {name[:200]} ({loader[:80]}), which icqr does not trust")
        if "__id__" in node:
            raise ModelFileError("objects in schema.json refer to each other; icqr writes none that do")
        types.add(name)
        # On a text that is cut off, LightGBM ends the process. (It is JSON in JSON, with \n for a new line.)
        text = node["content"]["content"]["_handle"]["content"] if name == "lightgbm.Booster" else None
        if text is not None and r"\nend of parameters\n" not in text:
            raise ModelFileError("the model of LightGBM is cut off")
        if "file" in node:
            part, ending = str(node["file"]), ".npy" if loader == "NdArrayNode" else ".bin"
            if part not in sizes or not part.endswith(ending):
                raise ModelFileError(f"schema.json names the part {part[:80]!r}, which is not there or no {ending}")
            used.append(part)
    unused = sorted(sizes.keys() - {"schema.json", *used})
    if unused:
        raise ModelFileError(f"the file holds a part that its model does not use: {unused[0]}")
    needed = sum(sizes[part] for part in used)
    if is_bomb(needed, packed):
        raise ModelFileError(f"a zip bomb: the arrays of the model would take {needed} bytes from {packed}")
    return types


def nodes_of(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield everything in a description of skops that it would make an object of."""
    waiting = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, dict):
            if "__loader__" in value or "__class__" in value or "file" in value:
                yield value
            waiting.extend(value.values())


# -- Objects, before anything is used --------------------------------------------------------------------------------


def check_model(model: Any) -> None:
    """Refuse a model whose numbers lead out of its arrays, or would take memory or threads without measure."""
    if not isinstance(model, IntervalRegressor):
        raise ModelFileError(f"the file must hold one of {METHODS}, got {type(model).__name__}")
    for held in held_by(model):
        attributes = held if isinstance(held, dict) else vars(held)
        for name, value in attributes.items():
            if name in _COUNTS and isinstance(value, int) and value > MOST_COUNTED:
                raise ModelFileError(f"{name} must be at most {MOST_COUNTED}, got {str(value)[:80]}")
            if name in _JOBS and isinstance(value, int):
                # A file doesn't decide how many threads or processes this machine starts.
                attributes[name] = min(value, os.cpu_count() or 1)
        if held is not attributes:
            _check_object(held)
    model.get_params(deep=True)  # which raises if one is missing

    # The calibration's groups are the model's, and its scores and distances are in order.
    calibration, novelty = model.calibration_, model.calibration_.novelty
    numbers = {model.n_groups_, int(model.partition_.n_groups_), len(calibration.scores) - 1}
    sorted_arrays = [("scores", 2, scores) for scores in calibration.scores]
    if novelty is not None:
        numbers.add(len(novelty.distances))
        sorted_arrays += [("distances", 1, distances) for distances in novelty.distances]
    if calibration.signed is not None:
        numbers.add(len(calibration.signed.values) - 1)
        sorted_arrays += [("signed scores", 1, values) for values in calibration.signed.values]
        if (calibration.signed.folds is not None) != isinstance(calibration, CrossCalibration):
            raise ModelFileError("signed scores must have folds after cross-calibration, and only then")
    if len(numbers) > 1:
        raise ModelFileError(f"the numbers of groups don't fit together: {sorted(numbers)}")
    described = getattr(model, "described_", None)
    if not (isinstance(described, pd.DataFrame) and len(described) == model.n_groups_ and "rule" in described):
        raise ModelFileError(f"described_ must be a table with a rule for each of the {model.n_groups_} groups")
    for name, n_axes, values in sorted_arrays:
        if values.dtype != np.float64 or values.ndim != n_axes or not (np.sort(values, axis=0) == values).all():
            raise ModelFileError(f"the calibration {name} must be sorted numbers in each group")
    if isinstance(calibration, CrossCalibration):
        n_models = len(getattr(model.model_, "models_", ()))
        pairs = [*zip(calibration.folds, calibration.scores, strict=True)]
        if calibration.signed is not None:
            pairs += zip(calibration.signed.folds or (), calibration.signed.values, strict=True)
        for folds, scores in pairs:
            in_range = folds.dtype.kind == "i" and folds.min(initial=0) >= 0 and folds.max(initial=0) < n_models
            if folds.shape != scores.shape or not in_range:
                raise ModelFileError(
                    f"the calibration folds must be the places of {n_models} models, one for each score"
                )


def held_by(value: Any) -> Iterator[Any]:
    """Yield every dict, and every object of a trusted class, that a value holds."""
    items: Iterable[Any] = ()
    if isinstance(value, dict):
        yield value
        items = value.values()
    elif isinstance(value, list | tuple | set):
        items = value
    elif isinstance(value, np.ndarray) and value.dtype == object:
        items = value.flat
    elif isinstance(value, partial):
        items = (value.args, value.keywords)
    elif hasattr(value, "__dict__") and public_name(type(value)):
        yield value
        items = vars(value).values()
    for item in items:
        yield from held_by(item)


def _check_object(value: Any) -> None:
    kind = type(value)
    for name in vars(value):
        if callable(getattr(kind, name, None)):
            raise ModelFileError(f"a {kind.__name__} has an attribute in place of its method {name!r}")
    if getattr(value, "memory", None) is not None:
        raise ModelFileError(f"a {kind.__name__} with memory keeps pickles in a folder; use memory=None")
    if isinstance(value, Encoder):
        _check_means(value)
    if isinstance(value, KMeans) and hasattr(value, "cluster_centers_"):
        raise ModelFileError("a KMeans in a file must not be fitted; icqr keeps its centroids elsewhere")
    if isinstance(value, BaseDecisionTree) and hasattr(value, "tree_"):
        _check_trees(value, [value])
    if isinstance(value, BaseForest | BaseGradientBoosting) and hasattr(value, "estimators_"):
        _check_trees(value, np.ravel(np.asarray(value.estimators_, dtype=object)).tolist())
    if isinstance(value, HistGradientBoostingRegressor) and hasattr(value, "_predictors"):
        _check_histogram_trees(value)


def _check_means(encoder: Encoder) -> None:
    """Check that each category of a column that is encoded by means has its own, and that they are numbers."""
    categories = {} if encoder.features is None else encoder.features.categories
    for name, means in encoder.means.items():
        shape = (len(categories.get(name, ())) + 1, 2)
        if name not in categories or means.dtype != np.float64 or means.shape != shape or not np.isfinite(means).all():
            raise ModelFileError(f"the means of the categories of column {name!r} must be {shape} finite numbers")


# -- Trees -----------------------------------------------------------------------------------------------------------


def _check_trees(model: Any, members: list[Any]) -> None:
    """Check that compiled code can go through a tree, a forest or gradient boosting without looking."""
    trees: list[Any] = [getattr(member, "tree_", None) for member in members]
    if not trees or not all(isinstance(tree, Tree) for tree in trees):
        raise ModelFileError(f"a {type(model).__name__} must consist of fitted trees")
    if any(tree.n_features != model.n_features_in_ for tree in trees):
        raise ModelFileError(f"a tree of a {type(model).__name__} was made for another number of columns")
    if isinstance(model, BaseGradientBoosting):
        # Predictions start as one number per row, to which each tree adds.
        start = model.init_
        is_constant = type(start) is DummyRegressor and np.shape(start.constant_) == (1, 1)
        sizes = np.shape(model.estimators_), model.n_trees_per_iteration_
        if not (is_constant or (isinstance(start, str) and start == "zero")) or sizes != ((len(trees), 1), 1):
            raise ModelFileError("gradient boosting must start from a constant, with one tree at a time")
    forest = vars(model).get("forest_")
    if forest is not None:
        n_trees, n_nodes, *_ = np.shape(forest.y_train_leaves)
        if n_trees != len(trees) or n_nodes < max(tree.node_count for tree in trees):
            raise ModelFileError("a quantile forest has fewer leaves than nodes in its trees")


def _check_histogram_trees(model: HistGradientBoostingRegressor) -> None:
    """Check the trees of a HistGradientBoostingRegressor, and that rows reach them with all their columns."""
    n_features, categorical = model.n_features_in_, np.asarray(model._bin_mapper.is_categorical_)
    if (
        getattr(model, "_in_fit", False)
        or model.n_trees_per_iteration_ != 1
        or categorical.shape != (n_features,)
        or not (model._preprocessor is None or _keeps_columns(model._preprocessor, n_features))
    ):
        raise ModelFileError("the columns of a HistGradientBoostingRegressor don't fit together")
    for (predictor,) in model._predictors:
        nodes, bitsets = predictor.nodes, predictor.raw_left_cat_bitsets
        leaf = nodes["is_leaf"] != 0
        _check_nodes(nodes["left"], nodes["right"], nodes["feature_idx"], leaf, n_features)
        splits = nodes[~leaf & (nodes["is_categorical"] != 0)]
        if bitsets.shape[1:] != (8,) or not (splits["bitset_idx"] < len(bitsets)).all():
            raise ModelFileError("a tree names categories that are not there")
        if not categorical[splits["feature_idx"]].all():
            raise ModelFileError("a tree asks for categories of a column of numbers")


def _keeps_columns(transformer: Any, n_features: int) -> bool:
    """Tell whether categories and numbers, each column once, come out of a preprocessor as they went in."""
    (first, encoder, categories), (second, function, numbers), *others = transformer.transformers_
    positions = [transformer._transformer_to_input_indices[name] for name in (first, second)]
    return (
        (type(transformer), type(encoder), type(function)) == (ColumnTransformer, OrdinalEncoder, FunctionTransformer)
        and type(function.func) is partial
        and function.func.func is check_array
        and not function.func.args
        and all(other[1] == "drop" for other in others)
        # Columns are chosen by a mask, or, from a table with names, by positions.
        and all(mask.dtype == np.bool_ and mask.shape == (n_features,) for mask in (categories, numbers))
        and [len(places) for places in positions] == [categories.sum(), numbers.sum()]
        and bool((categories != numbers).all())
    )


def _check_nodes(
    left: NDArray[Any], right: NDArray[Any], features: NDArray[Any], leaf: NDArray[np.bool_], n_features: int
) -> int:
    """Return a tree's depth, or refuse nodes that are no tree: following children must end at a leaf of it."""
    n_nodes, inner = len(leaf), np.flatnonzero(~leaf)
    children = np.stack([left, right]).astype(np.int64)
    if not n_nodes or not ((children[:, inner] > inner) & (children[:, inner] < n_nodes)).all():
        raise ModelFileError("the children of a tree's node must come after it, in the same tree")
    parents = np.bincount(children[:, inner].ravel(), minlength=n_nodes)
    if not (parents == (np.arange(n_nodes) > 0)).all():
        raise ModelFileError("each node of a tree but the first must be the child of exactly one other")
    if not ((features[inner] >= 0) & (features[inner] < n_features)).all():
        raise ModelFileError("a tree asks for a column that is not there")

    # Go down level by level; a level of leaves alone is the last.
    depth, level = 0, children[:, :1][:, ~leaf[:1]].ravel()
    while len(level):
        depth, level = depth + 1, children[:, level[~leaf[level]]].ravel()
    return depth


# -- What skops does not store, or not safely: made from plain content ------------------------------------------------


def make_fraction(numerator: int, denominator: int) -> Fraction:
    """Return a coverage that was given as a fraction."""
    return Fraction(int(numerator), int(denominator))


def make_frame(names: pd.Index[Any], columns: list[pd.Index[Any]]) -> pd.DataFrame:
    """Return a table of results: importances, or groups in words."""
    if len({len(column) for column in columns}) > 1:
        raise ModelFileError("the columns of a table must be of the same length")
    return pd.DataFrame(dict(enumerate(columns))).set_axis(names, axis=1)


def make_tree(n_features: int, nodes: NDArray[Any], values: NDArray[Any]) -> Tree:
    """Return the tree of a forest, of gradient boosting, or a single one."""
    if nodes.dtype != PACKED_NODE or values.dtype != np.float64 or values.shape != (len(nodes), 1, 1):
        raise ModelFileError("a tree must have nodes as this version of scikit-learn has them, and a value for each")
    if not 1 <= n_features <= MOST_COUNTED:
        raise ModelFileError(f"a tree must have from 1 to {MOST_COUNTED} columns, got {str(n_features)[:80]}")
    left, right = nodes["left_child"], nodes["right_child"]
    depth = _check_nodes(left, right, nodes["feature"], left == -1, n_features)
    tree = Tree(n_features, np.array([1], dtype=np.intp), 1)
    state = {"max_depth": depth, "node_count": len(nodes), "nodes": nodes.astype(NODE_DTYPE), "values": values}
    tree.__setstate__(state)
    return tree


def make_forest(y: NDArray[Any], leaves: NDArray[Any], limits: NDArray[Any]) -> Any:
    """Return what a quantile forest keeps of its training rows: y, and which of its values are in each leaf."""
    if y.ndim != 2 or leaves.ndim != 4 or leaves.shape[2] != 1 or len(y) != 1 or limits.ndim != 3:
        raise ModelFileError("the leaves of a quantile forest must be trees x nodes x 1 x rows")
    if leaves.min(initial=0) < 0 or leaves.max(initial=0) > y.shape[1]:
        raise ModelFileError("a leaf of a quantile forest holds a row that is not there")
    fast = import_module("quantile_forest._quantile_forest_fast")
    return fast.QuantileForest(y.astype(np.float64), leaves.astype(np.int64), limits.astype(np.float64))
