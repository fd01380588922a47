"""Data to try intervals on: public benchmark sets, and synthetic ones whose true quantiles are known.

Every ``fetch_*`` returns a Bunch with pandas tables, or ``(X, y)`` with ``return_X_y=True``. Its file is looked for in
the folder ``data_home``, in the folder named by ``ICQR_DATA_HOME`` and in the user's cache, in this order; then it is
downloaded, if a public source with the same bytes is known.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, overload

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri
from sklearn.utils import Bunch, check_random_state

from icqr._datafiles import FILES, DatasetCorruptedError, DatasetNotFoundError, Home, find_file, locate_file
from icqr._tables import FloatArray

__all__ = [
    "DatasetCorruptedError",
    "DatasetNotFoundError",
    "Synthetic",
    "fetch_bike_sharing",
    "fetch_blog_feedback",
    "fetch_boston",
    "fetch_california_housing",
    "fetch_communities",
    "fetch_concrete",
    "fetch_diamonds",
    "fetch_kc_house",
    "fetch_protein",
    "fetch_star",
    "list_datasets",
    "load_dataset",
    "make_heteroscedastic",
    "make_linear_spread",
    "make_radial_spread",
    "make_sine_spread",
    "make_sum_spread",
]

Seed: TypeAlias = int | np.random.RandomState | None


def _read(file: str, data_home: Home, **options: Any) -> pd.DataFrame:
    """Read a known file; the options are those of `pandas.read_csv`."""
    frame: pd.DataFrame = pd.read_csv(locate_file(FILES[file], data_home), **options)
    return frame


def _bunch(name: str, frame: pd.DataFrame, return_X_y: bool) -> Any:
    """Return the rows of a known data set as (X, y) or as a Bunch."""
    known = _KNOWN[name]
    X, y = frame.drop(columns=known.target), frame[known.target]
    if return_X_y:
        return X, y

    about = inspect.cleandoc(known.load.__doc__ or "").split("Examples\n")[0].strip()
    facts = f"Rows: {len(X)}. Features: {X.shape[1]}. Target: {y.name}.\nSource: {FILES[known.files[0]].source}."
    names = {"feature_names": list(X), "target_names": [y.name]}
    return Bunch(data=X, target=y, frame=frame[[*X, y.name]], **names, DESCR=f"{about}\n\n{facts}")


def fetch_boston(*, return_X_y: bool = False, data_home: Home = None) -> Any:
    """Fetch the Boston house prices: `medv`, the median value of homes in 1000 dollars, of 506 tracts.

    For comparison with older work only: the column `black` is why scikit-learn no longer carries this set.

    Examples
    --------
    >>> fetch_boston().data.shape  # doctest: +SKIP
    (506, 13)
    """
    return _bunch("boston", _read("boston.csv", data_home), return_X_y)


def fetch_bike_sharing(*, leak: bool = False, return_X_y: bool = False, data_home: Home = None) -> Any:
    """Fetch the hourly bike rentals of Washington, D.C.: `cnt`, the rentals in an hour.

    `instant` (a row number) and `dteday` (a date) are dropped. So are `casual` and `registered`, whose sum is the
    target; `leak=True` keeps them, as the paper did.

    Examples
    --------
    >>> fetch_bike_sharing().data.shape  # doctest: +SKIP
    (17379, 12)
    """
    drop = ["instant", "dteday"] + ([] if leak else ["casual", "registered"])
    frame = _read("bike_sharing_hour.csv", data_home).drop(columns=drop)
    return _bunch("bike", frame, return_X_y)


def fetch_blog_feedback(*, return_X_y: bool = False, data_home: Home = None) -> Any:
    """Fetch BlogFeedback: `comments`, the number a blog post gets in the next 24 hours.

    The rows are those of the training file and then of the 60 test files. The columns have no names in the source; here
    they are x1, …, x280.

    Examples
    --------
    >>> fetch_blog_feedback().data.shape  # doctest: +SKIP
    (60021, 280)
    """
    names = [*(f"x{j}" for j in range(1, 281)), "comments"]
    frame = _read("blog_feedback.csv.gz", data_home, header=None, names=names)
    return _bunch("blog", frame, return_X_y)


def fetch_protein(*, return_X_y: bool = False, data_home: Home = None) -> Any:
    """Fetch the CASP protein structures: `RMSD`, the distance from the true structure, from F1, …, F9.

    Examples
    --------
    >>> fetch_protein().data.shape  # doctest: +SKIP
    (45730, 9)
    """
    return _bunch("protein", _read("protein_casp.csv.gz", data_home), return_X_y)


def fetch_concrete(*, return_X_y: bool = False, data_home: Home = None) -> Any:
    """Fetch the concrete mixtures: `strength`, the compressive strength in MPa.

    Components are in kg per m³, `age` is in days. The source's long column names are shortened.

    Examples
    --------
    >>> fetch_concrete().data.shape  # doctest: +SKIP
    (1030, 8)
    """
    mixture = ["cement", "slag", "fly_ash", "water", "superplasticizer", "coarse_aggregate", "fine_aggregate"]
    frame = _read("concrete.csv.gz", data_home, header=0, names=[*mixture, "age", "strength"])
    return _bunch("concrete", frame, return_X_y)


def fetch_star(*, return_X_y: bool = False, data_home: Home = None) -> Any:
    """Fetch Project STAR: `score`, the sum of a pupil's eight test scores (reading and maths, kindergarten to grade 3).

    Of 11598 pupils, the 2161 without a missing value are kept. The features are the 39 columns that are not scores:
    gender, ethnicity, birth (year and quarter), and for each grade (k, 1, 2, 3) class type, free lunch, kind of school,
    the teacher's degree, career ladder, experience and ethnicity, and the numbers (labels) of system and school.
    Rows and target are those of Romano et al. (2019). Their 39 columns contain the pupil's number instead of `lunchk`,
    an off-by-one error; here the number is dropped and `lunchk` is kept.

    Examples
    --------
    >>> fetch_star().data.shape  # doctest: +SKIP
    (2161, 39)
    """
    complete = _read("star.csv.gz", data_home, index_col=0).dropna().reset_index(drop=True)
    scores = [f"{subject}{grade}" for subject in ("read", "math") for grade in "k123"]
    frame = complete.drop(columns=scores).assign(score=complete[scores].sum(axis=1))
    return _bunch("star", frame, return_X_y)


def fetch_communities(*, return_X_y: bool = False, data_home: Home = None) -> Any:
    """Fetch Communities and Crime: `ViolentCrimesPerPop`, scaled to [0, 1] like all its columns.

    The five columns that only identify a row (state, county, community, communityname, fold) are dropped. Missing are
    one value of `OtherPerCap` and 84 % of the 22 police columns.

    Examples
    --------
    >>> fetch_communities().data.shape  # doctest: +SKIP
    (1994, 122)
    """
    names = _read("communities_attributes.csv.gz", data_home)["attributes"].str.strip().tolist()
    frame = _read("communities.data.gz", data_home, header=None, names=names, na_values="?")
    return _bunch("communities", frame.drop(columns=names[:5]), return_X_y)


def fetch_california_housing(*, return_X_y: bool = False, data_home: Home = None) -> Any:
    """Fetch the Californian districts of the 1990 census: `median_house_value` in dollars, cut off at 500001.

    The columns are the source's totals per district, not scikit-learn's averages per household.

    Examples
    --------
    >>> fetch_california_housing().data.shape  # doctest: +SKIP
    (20640, 8)
    """
    return _bunch("california", _read("california_housing.csv.gz", data_home), return_X_y)


def fetch_diamonds(*, return_X_y: bool = False, data_home: Home = None) -> Any:
    """Fetch the diamonds: `price` in dollars. `cut`, `color` and `clarity` are text.

    Examples
    --------
    >>> fetch_diamonds().data.shape  # doctest: +SKIP
    (53940, 9)
    """
    return _bunch("diamonds", _read("diamonds.csv.gz", data_home), return_X_y)


def fetch_kc_house(*, return_X_y: bool = False, data_home: Home = None) -> Any:
    """Fetch the house sales of King County: `price` in dollars.

    `id` is dropped and `date` becomes the days since 2014-05-02, the first sale. `zipcode` stays a number, but it is
    a label with 70 values: convert it to text if a model should treat it as a category. A house that was sold twice has
    two rows.

    Examples
    --------
    >>> fetch_kc_house().data.shape  # doctest: +SKIP
    (21613, 19)
    """
    frame = _read("kc_house.csv.gz", data_home).drop(columns="id")
    date = pd.to_datetime(frame["date"], format="%Y%m%dT%H%M%S")
    frame["date"] = (date - pd.Timestamp("2014-05-02")).dt.days
    return _bunch("kc_house", frame, return_X_y)


_SMALLEST_SCALE = 1e-9


@dataclass(frozen=True, eq=False)  # frames have no single answer to ==
class Synthetic:
    """Rows drawn from Y | X ~ N(mean(X), scale(X)²), with the true law they come from.

    `scale` is a standard deviation. Where it is below 1e-9, as it may be outside the unit cube, 1e-9 is used, so that
    every row has a proper law.

    Attributes
    ----------
    X : DataFrame of shape (n, d)
        Independent uniform features x1, …, xd on [0, 1].
    y : Series
    mean, scale : functions from an (n, d) array to n numbers

    Examples
    --------
    >>> data = make_linear_spread(3, random_state=0)
    >>> oracle = data.quantile(data.X, [0.05, 0.95])
    >>> data.coverage(data.X, oracle).round(6)
    array([0.9, 0.9, 0.9])
    """

    X: pd.DataFrame
    y: pd.Series
    mean: Callable[[FloatArray], FloatArray]
    scale: Callable[[FloatArray], FloatArray]

    def quantile(self, X: ArrayLike | pd.DataFrame, level: float | ArrayLike) -> FloatArray:
        """Return the true conditional quantiles: (n,) for one level, (n, levels) for a list.

        Examples
        --------
        >>> make_sine_spread(random_state=0).quantile([[0.25, 0.5]], 0.5).round(6)
        array([0.6])
        """
        levels = np.asarray(level, dtype=np.float64)
        if not np.all((levels >= 0) & (levels <= 1)):
            raise ValueError(f"level must be between 0 and 1, got {level!r}; a median is 0.5, not 50")
        mean, scale = self._law(X)
        shape = (-1,) + (1,) * levels.ndim
        return np.asarray(mean.reshape(shape) + scale.reshape(shape) * ndtri(levels))

    def coverage(self, X: ArrayLike | pd.DataFrame, intervals: ArrayLike) -> FloatArray:
        """Return, for each row, the true probability that Y falls in its interval; bounds may be infinite.

        Examples
        --------
        >>> make_sine_spread(random_state=0).coverage([[0.25, 0.5]], [[0.6, float("inf")]]).round(6)
        array([0.5])
        """
        mean, scale = self._law(X)
        bounds = np.asarray(intervals, dtype=np.float64)
        if bounds.shape != (len(mean), 2):
            raise ValueError(f"intervals must have shape ({len(mean)}, 2), one row per row of X, got {bounds.shape}")
        below = ndtr((bounds - mean[:, None]) / scale[:, None])
        return np.asarray(np.maximum(below[:, 1] - below[:, 0], 0.0))

    def _law(self, X: ArrayLike | pd.DataFrame) -> tuple[FloatArray, FloatArray]:
        rows = np.asarray(X, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.X.shape[1]:
            raise ValueError(f"X must have shape (n, {self.X.shape[1]}), as the rows that were drawn; got {rows.shape}")
        return self.mean(rows), np.maximum(self.scale(rows), _SMALLEST_SCALE)


def _draw(
    mean: Callable[[FloatArray], FloatArray],
    scale: Callable[[FloatArray], FloatArray],
    shape: tuple[int, int],
    random_state: Seed,
) -> Synthetic:
    if shape[0] < 1:
        raise ValueError(f"n_samples must be at least 1, got {shape[0]}")
    rng = check_random_state(random_state)
    X = rng.uniform(size=shape)
    y = mean(X) + np.maximum(scale(X), _SMALLEST_SCALE) * rng.standard_normal(shape[0])
    names = [f"x{j + 1}" for j in range(shape[1])]
    return Synthetic(pd.DataFrame(X, columns=names), pd.Series(y, name="y"), mean, scale)


@overload
def make_heteroscedastic(
    n_samples: int = ..., *, n_features: int = ..., random_state: Seed = ..., return_X_y: Literal[False] = ...
) -> Synthetic: ...
@overload
def make_heteroscedastic(
    n_samples: int = ..., *, n_features: int = ..., random_state: Seed = ..., return_X_y: Literal[True]
) -> tuple[pd.DataFrame, pd.Series]: ...
def make_heteroscedastic(
    n_samples: int = 1000, *, n_features: int = 5, random_state: Seed = None, return_X_y: bool = False
) -> Synthetic | tuple[pd.DataFrame, pd.Series]:
    """Y = 2x₁ + sin(2πx₂) + N(0, s), s = 0.1 + x₁ a standard deviation; the other features are noise.

    The spread grows elevenfold along x1, so one width for all rows is wrong almost everywhere. X is uniform on [0, 1].
    Returns a `Synthetic`, or (X, y) with `return_X_y=True`.

    Examples
    --------
    >>> X, y = make_heteroscedastic(200, random_state=0, return_X_y=True)
    >>> X.shape, y.name
    ((200, 5), 'y')
    """
    if n_features < 2:
        raise ValueError(f"n_features must be at least 2, as y depends on x1 and x2; got {n_features}")
    data = _draw(
        lambda Z: 2 * Z[:, 0] + np.sin(2 * np.pi * Z[:, 1]),
        lambda Z: 0.1 + Z[:, 0],
        (n_samples, n_features),
        random_state,
    )
    return (data.X, data.y) if return_X_y else data


def make_linear_spread(n_samples: int = 1000, *, random_state: Seed = None) -> Synthetic:
    """Y = 0.8x₁ + 0.1x₂ + N(0, s), s = 0.5 + (x₁ + x₂)/2 a standard deviation; X uniform on [0, 1]².

    Examples
    --------
    >>> make_linear_spread(random_state=0).quantile([[1, 1]], 0.5).round(6)
    array([0.9])
    """
    return _draw(
        lambda Z: 0.8 * Z[:, 0] + 0.1 * Z[:, 1], lambda Z: 0.5 + (Z[:, 0] + Z[:, 1]) / 2, (n_samples, 2), random_state
    )


def make_sine_spread(n_samples: int = 1000, *, random_state: Seed = None) -> Synthetic:
    """Y = 0.5 sin(2πx₁) + 0.2x₂ + N(0, s), s = 0.1 + 0.4x₁ a standard deviation; X uniform on [0, 1]².

    Examples
    --------
    >>> make_sine_spread(random_state=0).quantile([[0.25, 1]], 0.5).round(6)
    array([0.7])
    """
    return _draw(
        lambda Z: 0.5 * np.sin(2 * np.pi * Z[:, 0]) + 0.2 * Z[:, 1],
        lambda Z: 0.1 + 0.4 * Z[:, 0],
        (n_samples, 2),
        random_state,
    )


def make_radial_spread(n_samples: int = 1000, *, random_state: Seed = None) -> Synthetic:
    """Y = √(x₁² + x₂²) + x₁ + N(0, s), s = 0.6 + 0.5x₂² a standard deviation; X uniform on [0, 1]².

    Examples
    --------
    >>> make_radial_spread(random_state=0).quantile([[0.6, 0.8]], 0.5).round(6)
    array([1.6])
    """
    return _draw(
        lambda Z: np.hypot(Z[:, 0], Z[:, 1]) + Z[:, 0], lambda Z: 0.6 + 0.5 * Z[:, 1] ** 2, (n_samples, 2), random_state
    )


def make_sum_spread(n_samples: int = 1000, *, random_state: Seed = None) -> Synthetic:
    """Y = 3x₁ + 0.5x₂ + x₃ + N(0, s), s = x₁ + x₂ + x₃ a standard deviation; X uniform on [0, 1]³.

    Examples
    --------
    >>> make_sum_spread(random_state=0).quantile([[1, 1, 1]], 0.5).round(6)
    array([4.5])
    """
    return _draw(lambda Z: Z @ np.array([3.0, 0.5, 1.0]), lambda Z: np.abs(Z).sum(axis=1), (n_samples, 3), random_state)


class _Known(NamedTuple):
    """What the short name of a data set stands for; one without files is drawn, with seed 0."""

    load: Callable[..., Any]
    rows: int
    columns: int
    target: str
    files: tuple[str, ...] = ()


_KNOWN = {
    "boston": _Known(fetch_boston, 506, 13, "medv", ("boston.csv",)),
    "bike": _Known(fetch_bike_sharing, 17379, 12, "cnt", ("bike_sharing_hour.csv",)),
    "bike-leak": _Known(partial(fetch_bike_sharing, leak=True), 17379, 14, "cnt", ("bike_sharing_hour.csv",)),
    "blog": _Known(fetch_blog_feedback, 60021, 280, "comments", ("blog_feedback.csv.gz",)),
    "protein": _Known(fetch_protein, 45730, 9, "RMSD", ("protein_casp.csv.gz",)),
    "concrete": _Known(fetch_concrete, 1030, 8, "strength", ("concrete.csv.gz",)),
    "star": _Known(fetch_star, 2161, 39, "score", ("star.csv.gz",)),
    "communities": _Known(
        fetch_communities, 1994, 122, "ViolentCrimesPerPop", ("communities.data.gz", "communities_attributes.csv.gz")
    ),
    "california": _Known(fetch_california_housing, 20640, 8, "median_house_value", ("california_housing.csv.gz",)),
    "diamonds": _Known(fetch_diamonds, 53940, 9, "price", ("diamonds.csv.gz",)),
    "kc_house": _Known(fetch_kc_house, 21613, 19, "price", ("kc_house.csv.gz",)),
    "heteroscedastic": _Known(make_heteroscedastic, 1000, 5, "y"),
    "linear_spread": _Known(make_linear_spread, 1000, 2, "y"),
    "sine_spread": _Known(make_sine_spread, 1000, 2, "y"),
    "radial_spread": _Known(make_radial_spread, 1000, 2, "y"),
    "sum_spread": _Known(make_sum_spread, 1000, 3, "y"),
}


def list_datasets(*, data_home: Home = None) -> pd.DataFrame:
    """List the data sets that `load_dataset` knows: name, rows, columns (features), target, and availability.

    A set is available if its files are found; their contents are checked when they are read.

    Examples
    --------
    >>> list_datasets().query("target == 'y'").name.tolist()
    ['heteroscedastic', 'linear_spread', 'sine_spread', 'radial_spread', 'sum_spread']
    """
    rows = [
        (name, known.rows, known.columns, known.target, all(find_file(FILES[file], data_home) for file in known.files))
        for name, known in _KNOWN.items()
    ]
    return pd.DataFrame(rows, columns=["name", "rows", "columns", "target", "available"])


def load_dataset(name: str, *, data_home: Home = None) -> tuple[pd.DataFrame, pd.Series]:
    """Load a data set by its short name, see `list_datasets`; synthetic ones are drawn with seed 0.

    Examples
    --------
    >>> X, y = load_dataset("sine_spread")
    >>> X.shape
    (1000, 2)
    """
    if name not in _KNOWN:
        close = difflib.get_close_matches(name, _KNOWN, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"name must be one of {', '.join(_KNOWN)}; got {name!r}{hint}")
    known = _KNOWN[name]
    if known.files:
        X, y = known.load(return_X_y=True, data_home=data_home)
        return X, y
    drawn = known.load(random_state=0)
    return drawn.X, drawn.y
