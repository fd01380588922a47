"""Data to try intervals on: public benchmark sets, and synthetic ones whose true quantiles are known.

Every ``fetch_*`` takes ``return_X_y`` (``(X, y)`` instead of a Bunch), ``as_frame`` (pandas, or numpy arrays)
and ``data_home`` (a folder). A file is looked up in ``data_home``, in the folder named by ``ICQR_DATA_HOME``,
in the user's cache, and then downloaded from its public source where one with the same bytes is known.
"""

from __future__ import annotations

import contextlib
import difflib
import gzip
import hashlib
import importlib
import inspect
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, overload

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri
from sklearn.utils import Bunch, check_random_state

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

Floats: TypeAlias = NDArray[np.float64]
Home: TypeAlias = str | os.PathLike[str] | None
Seed: TypeAlias = int | np.random.RandomState | None


class DatasetNotFoundError(FileNotFoundError):
    """A data file is in none of the places and could not be downloaded; the message says what to put where.

    Examples
    --------
    >>> issubclass(DatasetNotFoundError, FileNotFoundError)
    True
    """


class DatasetCorruptedError(OSError):
    """A data file has other bytes than the ones its sha256 was taken from.

    Examples
    --------
    >>> issubclass(DatasetCorruptedError, OSError)
    True
    """


@dataclass(frozen=True)
class _File:
    """A data file: `sha256` is of the file as it was first packed, `contents` of what is in it.

    gzip keeps a time stamp, so a file packed by someone else has another `sha256` but the same `contents`; that is
    also the hash of the plain file, which is what `address` serves (inside a zip archive if `member` is given).
    """

    name: str
    sha256: str
    contents: str
    source: str
    build: str
    address: str | None = None
    member: str | None = None

    @property
    def plain(self) -> str:
        return self.name.removesuffix(".gz")


_UCI = "https://archive.ics.uci.edu"
# An address stands here only where this very sha256 was published by others for what it serves, or (the attributes)
# where the text was compared. None was downloaded from here: the check after the download is what counts.
# fmt: off
_FILES = {file.name: file for file in (
    _File("boston.csv", "de34377a9f15b743089e8ff434fc6792f668c7e7c0219fb13c5b8aa6cd7b7cb2",
          "de34377a9f15b743089e8ff434fc6792f668c7e7c0219fb13c5b8aa6cd7b7cb2",
          "Harrison and Rubinfeld (1978), StatLib, http://lib.stat.cmu.edu/datasets/boston",
          "columns crim,zn,indus,chas,nox,rm,age,dis,rad,tax,ptratio,black,lstat,medv; chas, rad and tax as "
          "integers, the others as floats; DataFrame.to_csv(index=False)"),
    _File("bike_sharing_hour.csv", "e03de4ee4ef4dc376ac6e04bf829673c6269e8eba5c60fa121640fa2f829504f",
          "e03de4ee4ef4dc376ac6e04bf829673c6269e8eba5c60fa121640fa2f829504f",
          f"Fanaee-T (2013), UCI repository, {_UCI}/dataset/275/bike+sharing+dataset",
          "hour.csv of the archive",
          f"{_UCI}/static/public/275/bike+sharing+dataset.zip", "hour.csv"),
    _File("blog_feedback.csv.gz", "a94cc2a9cdf8efd8717c975b723e6ea09d8263fae23251a72ee33e79b2f226cb",
          "7be8ed0c13e7e32205b2b40421c506e4fb9c14123fa4e59ac1cee8e263bad0af",
          f"Buza (2014), UCI repository, {_UCI}/dataset/304/blogfeedback",
          "blogData_train.csv and then the 60 test files in the order of their names (their dates), joined into one"),
    _File("california_housing.csv.gz", "0b6a59083d1fa0653aa24784b6d18413f2efde0be991acb5eab5c5a61cc4dd61",
          "534365b6c3c9b07c2b7d88e0ff9f1b41725d8b799748f5c0b80e1067f51c8ab3",
          "Pace and Barry (1997), StatLib, https://www.dcc.fc.up.pt/~ltorgo/Regression/cal_housing.html",
          "cal_housing.data of the archive under this first line: longitude,latitude,housing_median_age,total_rooms,"
          "total_bedrooms,population,households,median_income,median_house_value"),
    _File("communities.data.gz", "ca279472f9f5dcdc8ae6f2d620e63b8309cecdff64e511d8a71ba6ffd74ba124",
          "09e0b5c07eae24c1efab19b2edee05e160e7f5743b6f31e31eec3d73624da2ea",
          f"Redmond (2009), UCI repository, {_UCI}/dataset/183/communities+and+crime",
          "communities.data as it is",
          f"{_UCI}/ml/machine-learning-databases/communities/communities.data"),
    _File("communities_attributes.csv.gz", "fac37429f9d073a0edfb3ae2453d86052b8e354722253da46080fd612bbf8532",
          "7910375e27b6544045bd620efe7724afd9c90f53e711c78df7c16c3adfddcc9b",
          "the column names of communities.data, as Romano et al. (2019) list them, https://github.com/yromano/cqr",
          "datasets/communities_attributes.csv as it is",
          "https://raw.githubusercontent.com/yromano/cqr/2e2cff6f147a3354e1deddabe90cec04613c265f/datasets/"
          "communities_attributes.csv"),
    _File("concrete.csv.gz", "6eafa7ed17db2841bd600426b8fe759d2f1ffb8797acf08ef7406a2fd48667f9",
          "ebfbd624c890ac455a837c294addf9ef55baa14a512e4a84ec74fb8be5b4a6e0",
          f"Yeh (1998), UCI repository, {_UCI}/dataset/165/concrete+compressive+strength",
          "Concrete_Data.xls saved as comma-separated text with a blank after each number (Concrete_Data.csv)"),
    _File("diamonds.csv.gz", "480254a59816463f883f63f2e522b2369fd20b64c4f17757b01dd4a7f6af354d",
          "9574730b03aba241d899c4a97511c5061b19358fab89510774fb6c24168345c4",
          "Wickham, ggplot2, https://ggplot2.tidyverse.org/reference/diamonds.html",
          "diamonds.csv of https://github.com/mwaskom/seaborn-data as it is",
          "https://raw.githubusercontent.com/mwaskom/seaborn-data/master/diamonds.csv"),
    _File("kc_house.csv.gz", "0742bd6dc4994331908f8b0003d46698f534eb8882b4ba2e5d8375a2ae577e7d",
          "d0875baa0251b21d4bdc9d2ae940a4fe0bb6009824f23dd0e2a5b2bf04557b7e",
          "House Sales in King County, USA, https://www.kaggle.com/datasets/harlfoxem/housesalesprediction",
          "kc_house_data.csv as it is",
          "https://raw.githubusercontent.com/ChengLi9/kc_house_data/master/kc_house_data.csv"),
    _File("protein_casp.csv.gz", "e41dc153182e1bd20d097c6afb32a42f51b11716ba019701d649f597c8d81189",
          "4277cfcb4e91a181746cbc654f001b57951c9e6a80f4f795fdb5c807e0848f40",
          f"Rana (2013), UCI repository, {_UCI}/dataset/265/physicochemical+properties+of+protein+tertiary+structure",
          "CASP.csv as it is",
          f"{_UCI}/ml/machine-learning-databases/00265/CASP.csv"),
    _File("star.csv.gz", "4932946fbb97a677290a014fcf01fa57d8f125ed62bd6d25f87f628e1a544bd3",
          "0c5dbe6e9a6d9875da4a88d588eca36068eccb77343b327d0c69cf2d8adb44eb",
          "Project STAR, R package AER (Kleiber and Zeileis), https://cran.r-project.org/package=AER",
          'in R: data("STAR", package = "AER"); write.csv(STAR, "star.csv"); if the hash differs: '
          'datasets/STAR.csv of https://github.com/yromano/cqr'),
)}
# fmt: on


def _pooch() -> Any:
    try:
        return importlib.import_module("pooch")
    except ImportError as error:
        raise ImportError('downloading data needs pooch; run: pip install "icqr[data]"') from error


def _folders(data_home: Home) -> list[Path]:
    """Return the folders in which files are looked up, in order."""
    given = [os.fspath(home) for home in (data_home, os.environ.get("ICQR_DATA_HOME")) if home]
    with contextlib.suppress(ImportError):  # the cache is pooch's: without it there is none
        given.append(os.fspath(_pooch().os_cache("icqr")))
    return [Path(folder).expanduser() for folder in given]


def _find(file: _File, data_home: Home) -> Path | None:
    places = (folder / name for folder in _folders(data_home) for name in (file.name, file.plain))
    return next((path for path in places if path.is_file()), None)


def _unpacked_sha256(path: Path) -> str:
    try:
        with gzip.open(path) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except (OSError, EOFError, zlib.error) as error:
        return f"unreadable ({error})"


def _check(path: Path, file: _File, where: str) -> None:
    """Raise if `path`, which came from `where`, has other bytes than `file`."""
    packed = path.suffix == ".gz"
    expected = file.sha256 if packed else file.contents
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != expected and not (packed and _unpacked_sha256(path) == file.contents):
        raise DatasetCorruptedError(
            f"{where} is not the {file.name} that is known here: expected sha256 {expected}, found {found}"
            f" (uncompressed, expected {file.contents}). Remove it and put the right file in its place. {_recipe(file)}"
        )


def _recipe(file: _File) -> str:
    return f"Source: {file.source}. How to build it: {file.build}; its sha256, uncompressed, is {file.contents}."


def _missing(file: _File, data_home: Home, why: str) -> DatasetNotFoundError:
    folders = ", ".join(map(str, _folders(data_home))) or "no folder, as none is set"
    return DatasetNotFoundError(
        f"{file.name} was not found in {folders}, and {why}. Put {file.name} (or {file.plain}, uncompressed) in a"
        f" folder and set the environment variable ICQR_DATA_HOME to it, or pass data_home=. {_recipe(file)}"
    )


def _extract(archive: Path, member: str) -> Path:
    try:
        with zipfile.ZipFile(archive) as opened:
            return Path(opened.extract(member, archive.parent))
    except (zipfile.BadZipFile, KeyError) as error:
        raise DatasetCorruptedError(f"the archive that was downloaded for {member} is damaged: {error}") from error


def _download(file: _File, data_home: Home) -> Path:
    """Download into a temporary folder; only a file whose bytes were checked gets its final name."""
    if file.address is None:
        raise _missing(file, data_home, "no public address is known to serve the same bytes")
    pooch = _pooch()
    folder = Path(data_home or pooch.os_cache("icqr")).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".icqr-") as work:
            path = Path(work, "download")
            pooch.HTTPDownloader()(file.address, os.fspath(path), None)
            path = _extract(path, file.member) if file.member else path
            _check(path, file, file.address)
            return path.replace(folder / file.plain)
    except DatasetCorruptedError:
        raise
    except OSError as error:
        raise _missing(file, data_home, f"the download from {file.address} failed: {error}") from error


def _locate(file: _File, data_home: Home) -> Path:
    path = _find(file, data_home)
    if path is None:
        return _download(file, data_home)
    _check(path, file, os.fspath(path))
    return path


def _read(name: str, data_home: Home, **options: Any) -> pd.DataFrame:
    frame: pd.DataFrame = pd.read_csv(_locate(_FILES[name], data_home), **options)
    return frame


def _numbers(X: pd.DataFrame) -> Floats:
    text = X.select_dtypes(exclude="number").columns
    if len(text):
        raise ValueError(
            f"as_frame=False needs columns of numbers, but {', '.join(text)} hold text; keep as_frame=True"
            " (icqr takes text columns as categories), or encode them first"
        )
    return X.to_numpy(dtype=np.float64)


def _bunch(
    fetch: Callable[..., Any], name: str, frame: pd.DataFrame, target: str, return_X_y: bool, as_frame: bool
) -> Any:
    X, y = frame.drop(columns=target), frame[target]
    data, labels = (X, y) if as_frame else (_numbers(X), y.to_numpy(dtype=np.float64))
    if return_X_y:
        return data, labels
    about = inspect.cleandoc(fetch.__doc__ or "").split("Examples\n")[0].strip()
    return Bunch(
        data=data,
        target=labels,
        frame=frame[[*X, target]] if as_frame else None,
        feature_names=list(X),
        target_names=[target],
        DESCR=f"{about}\n\nRows: {len(X)}. Features: {X.shape[1]}. Target: {target}.\nSource: {_FILES[name].source}.",
    )


_COMMUNITIES = ("communities.data.gz", "communities_attributes.csv.gz")


def fetch_boston(*, return_X_y: bool = False, as_frame: bool = True, data_home: Home = None) -> Any:
    """Fetch the Boston house prices: `medv`, the median value of homes in 1000 dollars, of 506 tracts.

    For comparison with older work only: the column `black` is why scikit-learn no longer carries this set.

    Examples
    --------
    >>> fetch_boston().data.shape  # doctest: +SKIP
    (506, 13)
    """
    return _bunch(fetch_boston, "boston.csv", _read("boston.csv", data_home), "medv", return_X_y, as_frame)


def fetch_bike_sharing(
    *, leak: bool = False, return_X_y: bool = False, as_frame: bool = True, data_home: Home = None
) -> Any:
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
    return _bunch(fetch_bike_sharing, "bike_sharing_hour.csv", frame, "cnt", return_X_y, as_frame)


def fetch_blog_feedback(*, return_X_y: bool = False, as_frame: bool = True, data_home: Home = None) -> Any:
    """Fetch BlogFeedback: `comments`, the number a blog post gets in the next 24 hours.

    The training file and the 60 test files, in this order. The file names no columns: they are x1, …, x280 here.

    Examples
    --------
    >>> fetch_blog_feedback().data.shape  # doctest: +SKIP
    (60021, 280)
    """
    names = [*(f"x{j}" for j in range(1, 281)), "comments"]
    frame = _read("blog_feedback.csv.gz", data_home, header=None, names=names)
    return _bunch(fetch_blog_feedback, "blog_feedback.csv.gz", frame, "comments", return_X_y, as_frame)


def fetch_protein(*, return_X_y: bool = False, as_frame: bool = True, data_home: Home = None) -> Any:
    """Fetch the CASP protein structures: `RMSD`, the distance from the true structure, from F1, …, F9.

    Examples
    --------
    >>> fetch_protein().data.shape  # doctest: +SKIP
    (45730, 9)
    """
    frame = _read("protein_casp.csv.gz", data_home)
    return _bunch(fetch_protein, "protein_casp.csv.gz", frame, "RMSD", return_X_y, as_frame)


def fetch_concrete(*, return_X_y: bool = False, as_frame: bool = True, data_home: Home = None) -> Any:
    """Fetch the concrete mixtures: `strength`, the compressive strength in MPa.

    Components are in kg per m³, `age` is in days. The file's long column names are made short.

    Examples
    --------
    >>> fetch_concrete().data.shape  # doctest: +SKIP
    (1030, 8)
    """
    mixture = ["cement", "slag", "fly_ash", "water", "superplasticizer", "coarse_aggregate", "fine_aggregate"]
    frame = _read("concrete.csv.gz", data_home, header=0, names=[*mixture, "age", "strength"])
    return _bunch(fetch_concrete, "concrete.csv.gz", frame, "strength", return_X_y, as_frame)


def fetch_star(*, return_X_y: bool = False, as_frame: bool = True, data_home: Home = None) -> Any:
    """Fetch Project STAR: `score`, the sum of a pupil's eight test scores (reading and maths, kindergarten to grade 3).

    Kept are the 2161 pupils of 11598 for whom nothing is missing, and as features the 39 columns that are not scores:
    gender, ethnicity, birth (year and quarter), and for each grade (k, 1, 2, 3) class type, free lunch, kind of school,
    the teacher's degree, career ladder, experience and ethnicity, and the numbers (labels) of system and school.
    The rows and the target are those of Romano et al. (2019). Their 39 columns have the pupil's number in place of
    `lunchk`, an off-by-one; here the number is dropped and `lunchk` is kept.

    Examples
    --------
    >>> fetch_star().data.shape  # doctest: +SKIP
    (2161, 39)
    """
    complete = _read("star.csv.gz", data_home, index_col=0).dropna().reset_index(drop=True)
    scores = [f"{subject}{grade}" for subject in ("read", "math") for grade in "k123"]
    frame = complete.drop(columns=scores).assign(score=complete[scores].sum(axis=1))
    return _bunch(fetch_star, "star.csv.gz", frame, "score", return_X_y, as_frame)


def fetch_communities(*, return_X_y: bool = False, as_frame: bool = True, data_home: Home = None) -> Any:
    """Fetch Communities and Crime: `ViolentCrimesPerPop`, scaled to [0, 1] like all its columns.

    The five columns that only identify a row (state, county, community, communityname, fold) are dropped. "?" is
    missing: one value of `OtherPerCap`, and 84 % of the 22 police columns.

    Examples
    --------
    >>> fetch_communities().data.shape  # doctest: +SKIP
    (1994, 122)
    """
    names = _read(_COMMUNITIES[1], data_home)["attributes"].str.strip().tolist()
    frame = _read(_COMMUNITIES[0], data_home, header=None, names=names, na_values="?").drop(columns=names[:5])
    return _bunch(fetch_communities, _COMMUNITIES[0], frame, "ViolentCrimesPerPop", return_X_y, as_frame)


def fetch_california_housing(*, return_X_y: bool = False, as_frame: bool = True, data_home: Home = None) -> Any:
    """Fetch the Californian districts of the 1990 census: `median_house_value` in dollars, cut off at 500001.

    The columns are those of the source (totals per district), not scikit-learn's averages per household.

    Examples
    --------
    >>> fetch_california_housing().data.shape  # doctest: +SKIP
    (20640, 8)
    """
    frame = _read("california_housing.csv.gz", data_home)
    return _bunch(
        fetch_california_housing, "california_housing.csv.gz", frame, "median_house_value", return_X_y, as_frame
    )


def fetch_diamonds(*, return_X_y: bool = False, as_frame: bool = True, data_home: Home = None) -> Any:
    """Fetch the diamonds: `price` in dollars. `cut`, `color` and `clarity` are text.

    Examples
    --------
    >>> fetch_diamonds().data.shape  # doctest: +SKIP
    (53940, 9)
    """
    frame = _read("diamonds.csv.gz", data_home)
    return _bunch(fetch_diamonds, "diamonds.csv.gz", frame, "price", return_X_y, as_frame)


def fetch_kc_house(*, return_X_y: bool = False, as_frame: bool = True, data_home: Home = None) -> Any:
    """Fetch the house sales of King County: `price` in dollars.

    `id` is dropped and `date` becomes the days since 2014-05-02, the first sale. `zipcode` stays a number, but it is
    a label (70 of them): make it text to have it taken as a category. Houses sold twice are there twice.

    Examples
    --------
    >>> fetch_kc_house().data.shape  # doctest: +SKIP
    (21613, 19)
    """
    frame = _read("kc_house.csv.gz", data_home).drop(columns="id")
    date = pd.to_datetime(frame["date"], format="%Y%m%dT%H%M%S")
    frame["date"] = (date - pd.Timestamp("2014-05-02")).dt.days
    return _bunch(fetch_kc_house, "kc_house.csv.gz", frame, "price", return_X_y, as_frame)


@dataclass(frozen=True, eq=False)  # frames have no single answer to ==
class Synthetic:
    """Rows drawn from Y | X ~ N(mean(X), scale(X)²), together with the truth about them.

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
    mean: Callable[[Floats], Floats]
    scale: Callable[[Floats], Floats]

    def quantile(self, X: ArrayLike | pd.DataFrame, level: float | ArrayLike) -> Floats:
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
        return np.asarray(mean.reshape(shape) + scale.reshape(shape) * ndtri(levels), dtype=np.float64)

    def coverage(self, X: ArrayLike | pd.DataFrame, intervals: ArrayLike) -> Floats:
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
        return np.asarray(np.maximum(below[:, 1] - below[:, 0], 0.0), dtype=np.float64)

    def _law(self, X: ArrayLike | pd.DataFrame) -> tuple[Floats, Floats]:
        rows = np.asarray(X, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.X.shape[1]:
            raise ValueError(f"X must have shape (n, {self.X.shape[1]}), as the rows that were drawn; got {rows.shape}")
        return self.mean(rows), np.maximum(self.scale(rows), 1e-9)


def _draw(
    mean: Callable[[Floats], Floats], scale: Callable[[Floats], Floats], shape: tuple[int, int], random_state: Seed
) -> Synthetic:
    if shape[0] < 1:
        raise ValueError(f"n_samples must be at least 1, got {shape[0]}")
    rng = check_random_state(random_state)
    X = pd.DataFrame(rng.uniform(size=shape), columns=[f"x{j + 1}" for j in range(shape[1])])
    law = Synthetic(X, pd.Series(dtype=float), mean, scale)
    centre, spread = law._law(X)
    return replace(law, y=pd.Series(centre + spread * rng.standard_normal(shape[0]), name="y"))


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
    """Y = 3x₁ + 0.5x₂ + x₃ + N(0, s), s = |x₁| + |x₂| + |x₃| a standard deviation; X uniform on [0, 1]³.

    Examples
    --------
    >>> make_sum_spread(random_state=0).quantile([[1, 1, 1]], 0.5).round(6)
    array([4.5])
    """
    return _draw(lambda Z: Z @ np.array([3.0, 0.5, 1.0]), lambda Z: np.abs(Z).sum(axis=1), (n_samples, 3), random_state)


@dataclass(frozen=True)
class _Known:
    """What the short name of a data set stands for; a set without files is drawn, with seed 0."""

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
    "communities": _Known(fetch_communities, 1994, 122, "ViolentCrimesPerPop", _COMMUNITIES),
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
    """List the names that `load_dataset` knows, with rows, columns (features), target, and whether the files are here.

    `available` looks for the files only; their bytes are checked when they are read.

    Examples
    --------
    >>> list_datasets().query("target == 'y'").name.tolist()
    ['heteroscedastic', 'linear_spread', 'sine_spread', 'radial_spread', 'sum_spread']
    """
    rows = [
        (name, known.rows, known.columns, known.target, all(_find(_FILES[file], data_home) for file in known.files))
        for name, known in _KNOWN.items()
    ]
    return pd.DataFrame(rows, columns=["name", "rows", "columns", "target", "available"])


def load_dataset(name: str, *, data_home: Home = None) -> tuple[pd.DataFrame, pd.Series]:
    """Load a data set by its short name, as `list_datasets` gives it; the synthetic ones are drawn with seed 0.

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
