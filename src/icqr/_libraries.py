"""ONE table of model libraries: how to ask each for quantiles, and how it takes categories and column names.

To add a library, add a row to `LIBRARIES` and a model of it to the list in `tests/test_quantiles.py`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from sklearn import get_config
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from threadpoolctl import ThreadpoolController

from icqr._category_means import learn_means
from icqr._dates import date_part
from icqr._tables import Features, FloatArray, IntArray, Table, as_table, with_columns

Levels: TypeAlias = Sequence[float]

#: A column with more categories than this gets no one-hot columns but means of the target; see `Encoder`.
MOST_ONE_HOT = 30
#: From this many rows on, a small model has more leaves.
MANY_ROWS = 2000
#: Parameters that set a model's starting point in y's own unit. Such a model must see y as it is.
_STARTING_POINTS = {"base_score", "init_score", "base_margin"}
#: Objectives of a mean that can also be learned from a centred y.
_SQUARED = (None, "reg:squarederror", "regression", "RMSE", "squared_error")


@dataclass(frozen=True)
class Library:
    """What icqr must know about a model library.

    Parameters
    ----------
    name : str
        The base class of its models, with its package: "lightgbm.LGBMModel". Empty for any other model.
    levels : callable, optional
        ``levels((0.05, 0.5))`` returns the parameters that make a model predict these quantile levels.
    joint : bool
        Whether one model predicts all levels. Otherwise one model is fitted per level.
    predict : callable
        ``predict(model, X, levels)`` returns the fitted model's predictions.
    categories : {"one-hot", "native", "text", "raw"}
        How it takes categorical columns: not at all ("one-hot"), as pandas categoricals ("native"), or as text columns
        named by `categorical` ("text"). With "raw" the model gets the rows as the user gave them.
    categorical : str, optional
        The parameter that names the categorical columns.
    max_categories : str, optional
        The parameter that limits a column's number of categories.
    forbidden : str
        Characters that it refuses or replaces in column names.
    settings : dict
        Parameters that every model of the library gets.
    defaults : dict
        Parameters that a model gets unless the user has set them. Each key lists the library's spellings of one.
    objective : tuple of str
        The parameters by which a user chooses what a model of the mean minimises; see `target_scale`.
    unit_free : bool
        Whether all other parameters of a model of the mean are free of y's unit.
    mean : dict, optional
        Parameters that make a model predict the mean, by squared loss. None: it has no such setting.
    small : dict
        Parameters of a small model, for the quantiles of residuals; see `small_copy`. Each key lists the library's
        spellings of one. Empty: the model as it is.
    leaves : dict
        Those of `small` that differ with many rows.
    constraints : dict
        Parameters that constrain single columns, and their values for no constraint. What is known of y's mean says
        nothing of residuals, so a small model has none.
    takes_matrix : bool
        Whether `predict` also takes encoded rows as a matrix, with categories as their codes. This is quicker.
    """

    name: str = ""
    levels: Callable[[Levels], dict[str, Any]] | None = None
    joint: bool = False
    predict: Callable[[Any, Any, Levels], Any] = lambda model, X, levels: model.predict(X)
    categories: str = "one-hot"
    categorical: str | None = None
    max_categories: str | None = None
    forbidden: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    defaults: dict[tuple[str, ...], Any] = field(default_factory=dict)
    objective: tuple[str, ...] = ()
    unit_free: bool = False
    mean: dict[str, Any] | None = None
    small: dict[tuple[str, ...], Any] = field(default_factory=dict)
    leaves: dict[tuple[str, ...], Any] = field(default_factory=dict)
    constraints: dict[str, Any] = field(default_factory=dict)
    takes_matrix: bool = False


def _catboost_levels(levels: Levels) -> dict[str, Any]:
    loss = "Quantile" if len(levels) == 1 else "MultiQuantile"
    return {"loss_function": f"{loss}:alpha={','.join(map(str, levels))}"}


def _ask_booster(model: Any, X: Any, levels: Levels) -> Any:
    """Ask LightGBM's booster itself: for a single row, its scikit-learn class takes twenty times as long."""
    if _is_extended(model):
        return model.predict(X)
    return model.booster_.predict(X, num_threads=max(model.n_jobs or 0, 0))  # 0: as many as there are


def _is_extended(model: Any) -> bool:
    """Return whether a model's class is not its library's own, so that it may predict in its own way."""
    return type(model).__module__.partition(".")[0] != find_library(model).name.partition(".")[0]


_XGBOOST = Library(
    "xgboost.XGBModel",
    lambda levels: {"objective": "reg:quantileerror", "quantile_alpha": np.array(levels)},
    joint=True,
    categories="native",
    forbidden="[]<",
    settings={"enable_categorical": True},
    objective=("objective", "base_score"),
    mean={"objective": "reg:squarederror"},
    small={("n_estimators",): 40, ("learning_rate",): 0.15, ("max_depth",): 3, ("min_child_weight",): 40},
    leaves={("max_depth",): 4},
    constraints={"monotone_constraints": None, "interaction_constraints": None},
)
LIBRARIES = (
    Library(
        "sklearn.HistGradientBoostingRegressor",
        lambda levels: {"loss": "quantile", "quantile": levels[0]},
        categories="native",
        categorical="categorical_features",
        max_categories="max_bins",
        objective=("loss",),
        unit_free=True,
        mean={"loss": "squared_error"},
        small={
            ("max_iter",): 40,
            ("learning_rate",): 0.15,
            ("max_leaf_nodes",): 6,
            ("min_samples_leaf",): 40,
            ("early_stopping",): False,
        },
        leaves={("max_leaf_nodes",): 15},
        constraints={"monotonic_cst": None, "interaction_cst": None},
    ),
    Library(
        "sklearn.GradientBoostingRegressor",
        lambda levels: {"loss": "quantile", "alpha": levels[0]},
        mean={"loss": "squared_error"},
        small={("n_estimators",): 40, ("learning_rate",): 0.15, ("max_depth",): 3, ("min_samples_leaf",): 40},
        leaves={("max_depth",): 4},
    ),
    Library("sklearn.QuantileRegressor", lambda levels: {"quantile": levels[0]}),
    Library(
        "lightgbm.LGBMModel",
        lambda levels: {"objective": "quantile", "alpha": levels[0]},
        predict=_ask_booster,
        categories="native",
        forbidden='[]{}",:',
        defaults={("verbosity", "verbose"): -1},
        objective=("objective", "objective_type", "app", "application", "loss"),
        mean={"objective": "regression"},
        small={
            ("n_estimators", "num_iterations", "num_iteration", "num_trees", "num_round", "num_boost_round"): 40,
            ("learning_rate", "shrinkage_rate", "eta"): 0.15,
            ("num_leaves", "num_leaf", "max_leaves"): 6,
            ("min_child_samples", "min_data_in_leaf", "min_data"): 40,
        },
        leaves={("num_leaves", "num_leaf", "max_leaves"): 15},
        constraints={"monotone_constraints": None, "interaction_constraints": None},
        takes_matrix=True,
    ),
    # A random forest: shrinking what its trees learn would leave next to nothing, so it has no small model.
    replace(_XGBOOST, name="xgboost.XGBRFRegressor", small={}),
    _XGBOOST,
    Library(
        "catboost.CatBoost",
        _catboost_levels,
        joint=True,
        categories="text",
        categorical="cat_features",
        # CatBoost otherwise prints a line per tree and leaves a folder behind.
        defaults={("verbose", "silent", "logging_level"): False, ("allow_writing_files",): False},
        objective=("loss_function", "objective"),
        mean={"loss_function": "RMSE"},
        small={
            ("iterations", "n_estimators", "num_boost_round", "num_trees"): 40,
            ("learning_rate", "eta"): 0.15,
            ("depth", "max_depth"): 3,
        },
        leaves={("depth", "max_depth"): 4},
        constraints={"monotone_constraints": "(0)"},  # None can't be cloned
    ),
    Library(
        "quantile_forest.BaseForestQuantileRegressor",
        lambda levels: {},
        joint=True,
        predict=lambda model, X, levels: model.predict(X, quantiles=list(levels)),
    ),
)


def class_names(estimator: Any) -> list[str]:
    """Return the names of a model's class and its ancestors, each with its package: "lightgbm.LGBMRegressor"."""
    return [f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(estimator).__mro__]


def find_library(core: Any) -> Library:
    """Return the model's row of the table, or for a model that is not in it, a row that says how it takes its rows.

    Examples
    --------
    >>> from sklearn.ensemble import HistGradientBoostingRegressor
    >>> find_library(HistGradientBoostingRegressor()).categories, find_library(LinearRegression()).categories
    ('native', 'one-hot')
    """
    names = class_names(core)
    for library in LIBRARIES:
        if library.name in names:
            return library
    # A user's own object or a fitted model gets the rows as they are: they are what it was made for.
    if isinstance(core, FrozenEstimator) or not hasattr(core, "__sklearn_tags__"):
        return Library(categories="raw")
    tags = get_tags(core).input_tags
    if tags.categorical or tags.string:
        return Library(categories="raw")
    # A model of models (a search, an ensemble) may have its own steps that prepare the rows.
    parts = core.get_params(deep=True).values()
    holds_pipeline = any(isinstance(part, Pipeline | ColumnTransformer) for part in parts)
    return Library(categories="raw" if holds_pipeline else "one-hot")


def find_quantile_library(core: Any, level_parameter: str | None = None) -> Library:
    """Return how to ask a model for quantiles, or raise an error that lists the models that can predict them.

    Examples
    --------
    >>> from sklearn.ensemble import HistGradientBoostingRegressor
    >>> find_quantile_library(HistGradientBoostingRegressor()).levels([0.05])
    {'loss': 'quantile', 'quantile': 0.05}
    """
    if level_parameter is not None:
        return replace(find_library(core), levels=lambda levels: {level_parameter: levels[0]}, joint=False)
    library = find_library(core)
    if library.levels is not None:
        return library
    if hasattr(core, "predict_quantiles"):
        return Library(
            levels=partial(_own_levels, core),
            joint=True,
            predict=lambda model, X, levels: model.predict_quantiles(X, levels),
        )
    raise ValueError(
        f"{type(core).__name__} can't predict quantiles. Models that can: HistGradientBoostingRegressor, "
        "GradientBoostingRegressor, QuantileRegressor, LGBMRegressor, XGBRegressor, XGBRFRegressor, CatBoostRegressor, "
        "RandomForestQuantileRegressor, ExtraTreesQuantileRegressor; these at the end of a Pipeline or in a "
        "TransformedTargetRegressor; any object with predict_quantiles(X, levels); any model with a parameter for "
        "the level, as QuantileModel(model, level_parameter='…'); fitted models of each level, by prefit(…). For a "
        "model of the mean use Naive: it takes any regressor."
    )


def _own_levels(core: Any, levels: Levels) -> dict[str, Any]:
    """Return the parameter `levels` of a model such as QuantileNetwork, if it has one. A fitted model keeps its own."""
    takes_levels = hasattr(core, "fit") and "levels" in getattr(core, "get_params", dict)()
    return {"levels": tuple(levels)} if takes_levels and not is_fitted_already(core) else {}


def is_fitted_already(estimator: Any) -> bool:
    """Return whether this model must not be fitted again: it is frozen, prefit, or has no `fit`."""
    frozen = isinstance(estimator, FrozenEstimator) or getattr(estimator, "is_prefit", False)
    return frozen or not hasattr(estimator, "fit")


# -- Models inside models --------------------------------------------------------------------------------------------


class Core(NamedTuple):
    """The model that predicts, inside pipelines and target transformers."""

    prefix: str  # of its parameters
    model: Any
    step_prefix: str | None  # of its fit parameters; None without a pipeline
    transforms_target: bool

    @property
    def library(self) -> Library:
        """The model's row of the table."""
        return find_library(self.model)

    @property
    def prepares_rows(self) -> bool:
        """Whether we encode the rows for the model; a pipeline, or a "raw" model, gets them as they are."""
        return self.step_prefix is None and self.library.categories != "raw"


def core_of(estimator: Any) -> Core:
    """Return the model that predicts inside pipelines and target transformers.

    Examples
    --------
    >>> core_of(Pipeline([("scale", None), ("model", LinearRegression())]))
    Core(prefix='model__', model=LinearRegression(), step_prefix='model__', transforms_target=False)
    """
    prefix, steps, transforms_target = "", "", False
    while isinstance(estimator, Pipeline | TransformedTargetRegressor):
        if isinstance(estimator, Pipeline):
            name, estimator = estimator.steps[-1]
            steps += f"{name}__"
            prefix += f"{name}__"
        else:
            estimator = LinearRegression() if estimator.regressor is None else estimator.regressor
            transforms_target = True
            prefix += "regressor__"
    return Core(prefix, estimator, steps or None, transforms_target)


def copied(estimator: Any) -> Any:
    """Return an unfitted copy of an estimator, or a plain copy of any other object."""
    parts = {"": estimator, **(estimator.get_params(deep=True) if hasattr(estimator, "get_params") else {})}
    # CatBoost copies the lists that it is given, so scikit-learn refuses to clone it. Tuples don't have this problem.
    rebuilt = {}
    for name, part in parts.items():
        inside_frozen = isinstance(parts.get(name.rpartition("__")[0]), FrozenEstimator)
        if "catboost.CatBoost" in class_names(part) and not (name and inside_frozen):
            params = part.get_params()
            lists = {key: tuple(value) for key, value in params.items() if isinstance(value, list | np.ndarray)}
            if lists:
                rebuilt[name] = type(part)(**{**params, **lists})
    if "" in rebuilt:
        estimator = rebuilt[""]
    elif rebuilt:
        estimator = copy.deepcopy(estimator).set_params(**rebuilt)
    return clone(estimator, safe=False)


def seeded(estimator: Any, seed: int) -> Any:
    """Return a copy of an estimator in which every `random_state` of None is set, nested ones included."""
    estimator = copied(estimator)
    if isinstance(estimator, FrozenEstimator) or not hasattr(estimator, "get_params"):
        return estimator
    unset = {
        key: seed
        for key, value in estimator.get_params(deep=True).items()
        if (key == "random_state" or key.endswith("__random_state")) and value is None
    }
    return estimator.set_params(**unset)


def mean_copy(estimator: Any) -> Any | None:
    """Return a copy of an estimator that predicts the mean, by squared loss; None if it has no such setting.

    Examples
    --------
    >>> from sklearn.ensemble import HistGradientBoostingRegressor
    >>> mean_copy(HistGradientBoostingRegressor(loss="quantile", quantile=0.9)).loss
    'squared_error'
    """
    core = core_of(estimator)
    if core.library.mean is None:
        return None
    settings = _own_spelling(core.model, core.library.mean)
    return copied(estimator).set_params(**{core.prefix + name: value for name, value in settings.items()})


def _own_spelling(model: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings under the names that the model prefers: CatBoost takes `objective` where it has both."""
    prefers = "loss_function" in settings and "objective" in model.get_params()
    return {"objective" if prefers and name == "loss_function" else name: value for name, value in settings.items()}


def small_copy(estimator: Any, n_rows: int = 0) -> Any:
    """Return a copy of an estimator with the settings of its library's small model, or as it is if there are none.

    The spread of residuals has less structure than their centre, and few rows tell of their outer quantiles. 40 trees
    of 6 leaves find what there is; from 2,000 rows on, 15 leaves find 1 % more, in interval score on 33 sets.

    Examples
    --------
    >>> from sklearn.ensemble import HistGradientBoostingRegressor
    >>> small_copy(HistGradientBoostingRegressor()).max_leaf_nodes
    6
    """
    core = core_of(estimator)
    library = core.library
    if not library.small:
        return copied(estimator)
    params = core.model.get_params()
    settings = {name: value for name, value in library.constraints.items() if name in params}
    for spellings, value in (library.small | (library.leaves if n_rows >= MANY_ROWS else {})).items():
        # All spellings that the user took, since the library prefers one over the others.
        settings |= dict.fromkeys([name for name in spellings if name in params] or spellings[:1], value)
    return copied(estimator).set_params(**{core.prefix + name: value for name, value in settings.items()})


@cache
def _threads() -> ThreadpoolController:
    """Find the libraries that use threads. This takes long, so it is done once."""
    return ThreadpoolController()


def one_thread() -> Any:
    """Return a context in which linear algebra uses one thread: several add in another order, to other last bits."""
    return _threads().limit(limits=1)


# -- Rows as the library takes them ----------------------------------------------------------------------------------


class Encoder:
    """Turns rows into the form that a model takes, in the same way for training and new rows.

    A pipeline gets the rows as they are: its own first steps prepare them.

    Where a column has more categories than the model takes, none is dropped: the mean target of each category takes the
    column's place, and a last column is added, the mean distance from it. `encode_training` learns both.

    Parameters
    ----------
    estimator : estimator
        The model, perhaps inside a pipeline or a target transformer.
    X : table
        Training rows.
    """

    means: Mapping[Any, FloatArray] = MappingProxyType({})  # for files that were written before there were any

    def __init__(self, estimator: Any, X: Table) -> None:
        core = core_of(estimator)
        library = core.library
        self.categories = library.categories
        self.takes_matrix = library.takes_matrix and not _is_extended(core.model)
        self.features: Features | None = None
        self.is_one_hot = False
        # Of each column with too many categories: what takes the place of each category.
        self.means = means = dict[Any, FloatArray]()
        self.why_means = ""
        seed = getattr(core.model, "random_state", None)
        self.seed = int(seed) if isinstance(seed, int | np.integer) else 0
        if core.prepares_rows:
            named = core.model.get_params().get(library.categorical) if library.categorical else None
            if named is not None and not isinstance(named, str) and isinstance(X, pd.DataFrame):  # not "from_dtype"
                places = _places(named, list(X.columns), f"{library.categorical}={named!r}")
                X = X.astype({X.columns[j]: "category" for j in places})
            is_one_hot = library.categories == "one-hot"
            most = MOST_ONE_HOT if is_one_hot else getattr(core.model, library.max_categories or "", None)
            self.features = Features(X, most_one_hot=most)
            self.is_one_hot = is_one_hot and bool(self.features.categories)
            for name, categories in self.features.categories.items():
                if most is not None and len(categories) > most:
                    means[name] = np.zeros((len(categories) + 1, 2))
                    limit = "that become one-hot columns" if is_one_hot else f"that {type(core.model).__name__} takes"
                    self.why_means = f"more than the {most} {limit}"
        names = (self.features.names if self.features else None) or []
        names = [*names, *(name for name, _, _ in self.features.date_parts)] if self.features else names
        # LightGBM reads a number as a position, and "a b" as "a_b".
        allowed = [name for name in names if isinstance(name, str) and set(library.forbidden).isdisjoint(name)]
        self.keeps_names = not library.forbidden or len({name.replace(" ", "_") for name in allowed}) == len(names)

    def encode(self, X: Table) -> Any:
        """Return the rows in the form that the model takes."""
        if self.features is None:
            return X
        rows, codes = self._with_codes(X)
        return self._with_means(rows, [means[codes[name]] for name, means in self.means.items()])

    def encode_training(self, X: Table, y: FloatArray, sample_weight: Any = None) -> Any:
        """Return the training rows as `encode` does, after learning from them the means of categories, if any are used.

        A training row's means are learned without the row, so that they don't tell the model the row's own y.
        """
        if self.features is None or not self.means:
            return self.encode(X)
        rows, codes = self._with_codes(X)
        y = TargetScale.of(y).scaled(y)  # so that no sum overflows, whatever the unit of y
        learned = {
            name: learn_means(codes[name], len(self.features.categories[name]), y, sample_weight, self.seed)
            for name in self.means
        }
        self.means = {name: means for name, (means, _) in learned.items()}
        return self._with_means(rows, [of_rows for _, of_rows in learned.values()])

    def _with_codes(self, X: Table) -> tuple[Any, dict[Any, IntArray]]:
        """Return the rows as the model takes them, but for the columns in `means`: their codes, also given by name."""
        assert self.features is not None
        if self.is_one_hot:
            matrix = self._with_date_parts(self.features.one_hot(X)[0])
            return matrix, {name: matrix[:, self._place(name)].astype(np.intp) for name in self.means}
        rows = self.features.transform(X)
        if not isinstance(rows, pd.DataFrame):
            return rows, {}
        codes = {name: rows[name].cat.codes.to_numpy() for name in self.features.categories}
        for name, categories in self.features.categories.items():
            if self.categories == "text":
                texts = np.array([*map(str, categories), ""], dtype=object)
                rows[name] = pd.Series(texts[codes[name]], index=rows.index, dtype=object)
            else:  # whole numbers as categories, which every library accepts
                encoded = pd.Categorical.from_codes(codes[name], categories=pd.RangeIndex(len(categories)))
                rows[name] = pd.Series(encoded, index=rows.index)
        rows = self._with_date_parts(rows)
        return rows if self.keeps_names else rows.set_axis([f"f{j}" for j in range(rows.shape[1])], axis=1), codes

    def _with_means(self, rows: Any, of_rows: Sequence[FloatArray]) -> Any:
        """Put each row's means in the place of codes, and how far y spreads in its categories into last columns."""
        if not self.means:
            return rows
        spreads = {}
        for name, values in zip(self.means, of_rows, strict=True):
            spreads[f"spread_{name}"] = values[:, 1]
            if isinstance(rows, pd.DataFrame):
                rows[name] = values[:, 0]
            else:
                rows[:, self._place(name)] = values[:, 0]
        return with_columns(rows, spreads)

    def _place(self, name: Any) -> int:
        """Return where a column with many categories is after encoding."""
        assert self.features is not None
        return int(self.positions((self.features.names or []).index(name))[0])

    def _with_date_parts(self, rows: Any) -> Any:
        """Return rows with the parts of their dates as the last columns: what of a date comes again and again."""
        assert self.features is not None
        for name, column, which in self.features.date_parts:
            place = self.positions(column)[0]
            if isinstance(rows, pd.DataFrame):
                rows[name] = date_part(which, rows.iloc[:, place].to_numpy())
            else:
                rows = np.column_stack([rows, date_part(which, rows[:, place])])
        return rows

    def encode_new(self, X: Table) -> Any:
        """Return rows in the form that is quickest to predict."""
        rows = self.encode(X)
        is_quicker = self.takes_matrix and self.features is not None and isinstance(rows, pd.DataFrame)
        return rows.to_numpy(np.float64) if is_quicker else rows

    def positions(self, column: int) -> IntArray:
        """Return where a column of X is after encoding: one position, or several if it holds categories or dates."""
        if self.features is None or not (self.is_one_hot or self.features.date_parts or self.means):
            return np.array([column])
        origins = self.features.origins if self.is_one_hot else np.arange(self.features.n_columns)
        dates = [date for _, date, _ in self.features.date_parts]
        many = [(self.features.names or []).index(name) for name in self.means]
        return np.flatnonzero(np.concatenate([origins, dates, many]) == column)

    def settings(self, estimator: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return these settings and the library's own, under names that reach the model inside the estimator."""
        core = core_of(estimator)
        library = core.library
        params = core.model.get_params() if library.defaults or library.categorical else {}
        added = {**library.settings}
        added |= {
            spellings[0]: value
            for spellings, value in library.defaults.items()
            if all(params.get(spelling) is None for spelling in spellings)
        }
        if library.categorical is not None and self.features is not None and self.features.categories:
            # The library knows categories by the type of encoded columns, or by positions (a tuple, see `copied`).
            added[library.categorical] = "from_dtype" if library.categories == "native" else self._categorical_places()
        limits = getattr(core.model, "monotonic_cst", None)
        n_added = 0 if self.features is None else len(self.features.date_parts) + len(self.means)
        if n_added and isinstance(limits, list | tuple | np.ndarray):  # one for each column, and now there are more
            added["monotonic_cst"] = [*limits, *[0] * n_added]
        return {core.prefix + key: value for key, value in _own_spelling(core.model, {**added, **settings}).items()}

    def _categorical_places(self) -> tuple[int, ...]:
        if self.features is None:
            return ()
        return tuple((self.features.names or []).index(column) for column in self.features.categories)

    def fit_params(
        self, estimator: Any, params: Mapping[str, Any], scaled: Callable[[Any], Any] = lambda y: y
    ) -> dict[str, Any]:
        """Return fit parameters under names that reach the model, with evaluation rows encoded like training rows.

        `scaled` transforms evaluation targets like the training target.
        """
        params = dict(params)
        if isinstance(params.get("eval_set"), tuple | list):
            pairs = [params["eval_set"]] if isinstance(params["eval_set"], tuple) else params["eval_set"]
            params["eval_set"] = [(self.encode(as_table(X)), scaled(y), *rest) for X, y, *rest in pairs]
        for name in ("X_val", "eval_X", "y_val", "eval_y"):  # scikit-learn's and LightGBM's names
            value = params.get(name)
            if value is not None:
                parts = value if isinstance(value, tuple) else (value,)
                changed = [scaled(part) if "y" in name else self.encode(as_table(part)) for part in parts]
                params[name] = tuple(changed) if isinstance(value, tuple) else changed[0]
        self._join_categories(params)
        prefix = core_of(estimator).step_prefix
        if prefix is not None and not get_config()["enable_metadata_routing"]:
            return {key if "__" in key else prefix + key: value for key, value in params.items()}
        return params

    def _join_categories(self, params: dict[str, Any]) -> None:
        """Add the text columns to those that the user names as categories: text columns are always categories."""
        names = self.features.names if self.features else None
        if isinstance(params.get("categorical_feature"), list | tuple) and names is not None:  # LightGBM's
            named = _places(params["categorical_feature"], names, "categorical_feature")
            params["categorical_feature"] = sorted({*named, *self._categorical_places()})
        if params.get("cat_features") is not None and self.features is not None and self.features.categories:
            named = _places(params.pop("cat_features"), names or [], "cat_features")  # CatBoost's
            besides = set(named) - set(self._categorical_places())
            if besides:
                raise ValueError(
                    f"cat_features: fit got columns besides the text columns, at the positions {sorted(besides)}; give "
                    "cat_features to CatBoostRegressor(…) itself"
                )


def _places(columns: Any, names: list[Any], parameter: str) -> list[int]:
    """Return the positions of the columns that a library's parameter gives: by name, by number, or marked by True."""
    columns = list(columns)
    if len(columns) == len(names) and all(isinstance(mark, bool | np.bool_) for mark in columns):
        return np.flatnonzero(columns).tolist()
    for column in columns:
        if column not in names if isinstance(column, str) else not -len(names) <= column < len(names):
            raise ValueError(
                f"{parameter}: there is no column {column!r} to take as a category; columns are {names}, or positions "
                f"from 0 to {len(names) - 1}"
            )
    return sorted({names.index(column) if isinstance(column, str) else column % len(names) for column in columns})


# -- The target as the library takes it ------------------------------------------------------------------------------


@dataclass(frozen=True)
class TargetScale:
    """y as libraries see it: centred at its median, in units of a power of two near its spread.

    This spares libraries numbers too large or too small to work with, and those with 32-bit floats lose no digits.
    """

    centre: float = 0.0
    unit: float = 1.0

    @classmethod
    def of(cls, y: FloatArray) -> TargetScale:
        """Learn the median and the spread of y.

        Examples
        --------
        >>> TargetScale.of(np.array([1e9, 1e9 + 3, 1e9 + 5]))
        TargetScale(centre=1000000003.0, unit=1.0)
        """
        largest = _power_of_two(float(np.max(np.abs(y))))  # in units of this, differences can't overflow
        centre = float(np.median(y / largest))
        spread = float(np.mean(np.abs(y / largest - centre)))
        return cls(centre * largest, _power_of_two(spread) * largest)

    def scaled(self, y: Any) -> FloatArray:
        """Return targets in the form that the library sees."""
        return np.asarray(y, dtype=np.float64) / self.unit - self.centre / self.unit

    def unscaled(self, predicted: FloatArray) -> FloatArray:
        """Return predictions in y's own unit."""
        return np.asarray(predicted * self.unit + self.centre)


def _power_of_two(size: float) -> float:
    return float(np.ldexp(1.0, int(np.frexp(size)[1]) - 1)) if size > 0 else 1.0


def target_scale(estimator: Any, y: FloatArray, fit_params: Mapping[str, Any], of_mean: bool = False) -> TargetScale:
    """Return how y is normalised before a library sees it (the paper's Algorithm 3 asks for normalised sets).

    Quantile models of the libraries in the table learn y centred at its median, in units of its spread; what they learn
    does not depend on the unit. A model of the mean that minimises squares gets y centred, so that libraries with
    32-bit floats lose no digits. It keeps y's unit if a parameter may be in that unit, as LightGBM's `reg_alpha` is.
    Models see y as it is if they transform it, are fitted already, get a starting point, or are not in the table.
    """
    core = core_of(estimator)
    library = core.library
    if not library.name or core.transforms_target or is_fitted_already(estimator):
        return TargetScale()
    params = {**core.model.get_params(), **{name.rpartition("__")[2]: value for name, value in fit_params.items()}}
    if any(params.get(name) is not None for name in _STARTING_POINTS):
        return TargetScale()
    scale = TargetScale.of(y)
    if not of_mean:
        return scale
    if not library.objective or any(params.get(name) not in _SQUARED for name in library.objective):
        return TargetScale()
    return scale if library.unit_free else TargetScale(scale.centre)


# -- Asking and checking fitted models -------------------------------------------------------------------------------


def ask(model: Any, X: Any, levels: Levels, level_parameter: str | None) -> FloatArray:
    """Return a fitted model's (n, levels) predictions, also through pipelines and target transformers."""
    if isinstance(model, Pipeline):
        for _, step in model.steps[:-1]:
            X = X if step is None or step == "passthrough" else step.transform(X)
        return ask(model.steps[-1][1], X, levels, level_parameter)
    if isinstance(model, TransformedTargetRegressor):
        transformed = ask(model.regressor_, X, levels, level_parameter)
        return np.column_stack(
            [model.transformer_.inverse_transform(column[:, None]).ravel() for column in transformed.T]
        )
    library = find_quantile_library(model, level_parameter)
    values = np.asarray(library.predict(model, X, levels), dtype=np.float64)
    return values[:, None] if values.ndim == 1 else values


def check_increasing(model: Any, y: FloatArray) -> None:
    """Raise if the target's transformation decreases anywhere: it would turn the levels around."""
    transformed = np.sort(y)[:, None]
    while isinstance(model, Pipeline | TransformedTargetRegressor):
        if isinstance(model, Pipeline):
            model = model.steps[-1][1]
        else:
            transformed = np.asarray(model.transformer_.transform(transformed)).reshape(-1, 1)
            model = model.regressor_
    rounding = 1e-9 * np.abs(transformed[1:]) + 1e-12 * np.ptp(transformed)
    if np.any(np.diff(transformed, axis=0) < -rounding):
        raise ValueError(
            "the TransformedTargetRegressor's function decreases, which turns the quantile levels around; "
            "use an increasing one"
        )


def check_level_parameter(core: Any, name: str) -> None:
    """Raise unless the model has this parameter."""
    # Try to set it: LightGBM and CatBoost list only the parameters that they were given.
    try:
        copied(core).set_params(**{name: 0.5})
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"level_parameter={name!r} is not a parameter of {type(core).__name__}") from error
