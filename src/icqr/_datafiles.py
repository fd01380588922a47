"""Data files: where they are looked up, how they are downloaded, and the hashes they must have."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from icqr._messages import imported

Home: TypeAlias = str | os.PathLike[str] | None


class DatasetNotFoundError(FileNotFoundError):
    """A data file was found nowhere and could not be downloaded; the message says which file to put where.

    Examples
    --------
    >>> issubclass(DatasetNotFoundError, FileNotFoundError)
    True
    """


class DatasetCorruptedError(OSError):
    """A data file's contents are not the known ones: their sha256 differs.

    Examples
    --------
    >>> issubclass(DatasetCorruptedError, OSError)
    True
    """


@dataclass(frozen=True)
class DataFile:
    """A data file, where it comes from and how to build it.

    `sha256` is that of the uncompressed contents: gzip files differ by who packed them and when. `address` serves the
    plain file, or a zip archive that has it as `member`.
    """

    name: str
    sha256: str
    source: str
    build: str
    address: str | None = None
    member: str | None = None

    @property
    def plain(self) -> str:
        """The name without .gz."""
        return self.name.removesuffix(".gz")

    @property
    def recipe(self) -> str:
        """Where the file comes from and how to build it."""
        return f"Source: {self.source}. How to build it: {self.build}; its sha256, uncompressed, is {self.sha256}."


_UCI = "https://archive.ics.uci.edu"
# An address is listed only if others published this very sha256 for what it serves, or (the attributes) if the text
# was compared. None of these downloads was tried: what counts is the check after a download.
# fmt: off
FILES = {file.name: file for file in (
    DataFile("boston.csv", "de34377a9f15b743089e8ff434fc6792f668c7e7c0219fb13c5b8aa6cd7b7cb2",
          "Harrison and Rubinfeld (1978), StatLib, http://lib.stat.cmu.edu/datasets/boston",
          "columns crim,zn,indus,chas,nox,rm,age,dis,rad,tax,ptratio,black,lstat,medv; chas, rad and tax as "
          "integers, the others as floats; DataFrame.to_csv(index=False)"),
    DataFile("bike_sharing_hour.csv", "e03de4ee4ef4dc376ac6e04bf829673c6269e8eba5c60fa121640fa2f829504f",
          f"Fanaee-T (2013), UCI repository, {_UCI}/dataset/275/bike+sharing+dataset",
          "hour.csv of the archive",
          f"{_UCI}/static/public/275/bike+sharing+dataset.zip", "hour.csv"),
    DataFile("blog_feedback.csv.gz", "7be8ed0c13e7e32205b2b40421c506e4fb9c14123fa4e59ac1cee8e263bad0af",
          f"Buza (2014), UCI repository, {_UCI}/dataset/304/blogfeedback",
          "blogData_train.csv and then the 60 test files in the order of their names (their dates), joined into one"),
    DataFile("california_housing.csv.gz", "534365b6c3c9b07c2b7d88e0ff9f1b41725d8b799748f5c0b80e1067f51c8ab3",
          "Pace and Barry (1997), StatLib, https://www.dcc.fc.up.pt/~ltorgo/Regression/cal_housing.html",
          "cal_housing.data of the archive under this first line: longitude,latitude,housing_median_age,total_rooms,"
          "total_bedrooms,population,households,median_income,median_house_value"),
    DataFile("communities.data.gz", "09e0b5c07eae24c1efab19b2edee05e160e7f5743b6f31e31eec3d73624da2ea",
          f"Redmond (2009), UCI repository, {_UCI}/dataset/183/communities+and+crime",
          "communities.data as it is",
          f"{_UCI}/ml/machine-learning-databases/communities/communities.data"),
    DataFile("communities_attributes.csv.gz", "7910375e27b6544045bd620efe7724afd9c90f53e711c78df7c16c3adfddcc9b",
          "the column names of communities.data, as Romano et al. (2019) list them, https://github.com/yromano/cqr",
          "datasets/communities_attributes.csv as it is",
          "https://raw.githubusercontent.com/yromano/cqr/2e2cff6f147a3354e1deddabe90cec04613c265f/datasets/"
          "communities_attributes.csv"),
    DataFile("concrete.csv.gz", "ebfbd624c890ac455a837c294addf9ef55baa14a512e4a84ec74fb8be5b4a6e0",
          f"Yeh (1998), UCI repository, {_UCI}/dataset/165/concrete+compressive+strength",
          "Concrete_Data.xls saved as comma-separated text with a blank after each number (Concrete_Data.csv)"),
    DataFile("diamonds.csv.gz", "9574730b03aba241d899c4a97511c5061b19358fab89510774fb6c24168345c4",
          "Wickham, ggplot2, https://ggplot2.tidyverse.org/reference/diamonds.html",
          "diamonds.csv of https://github.com/mwaskom/seaborn-data as it is",
          "https://raw.githubusercontent.com/mwaskom/seaborn-data/master/diamonds.csv"),
    DataFile("kc_house.csv.gz", "d0875baa0251b21d4bdc9d2ae940a4fe0bb6009824f23dd0e2a5b2bf04557b7e",
          "House Sales in King County, USA, https://www.kaggle.com/datasets/harlfoxem/housesalesprediction",
          "kc_house_data.csv as it is",
          "https://raw.githubusercontent.com/ChengLi9/kc_house_data/master/kc_house_data.csv"),
    DataFile("protein_casp.csv.gz", "4277cfcb4e91a181746cbc654f001b57951c9e6a80f4f795fdb5c807e0848f40",
          f"Rana (2013), UCI repository, {_UCI}/dataset/265/physicochemical+properties+of+protein+tertiary+structure",
          "CASP.csv as it is",
          f"{_UCI}/ml/machine-learning-databases/00265/CASP.csv"),
    DataFile("star.csv.gz", "0c5dbe6e9a6d9875da4a88d588eca36068eccb77343b327d0c69cf2d8adb44eb",
          "Project STAR, R package AER (Kleiber and Zeileis), https://cran.r-project.org/package=AER",
          'in R: data("STAR", package = "AER"); write.csv(STAR, "star.csv"); if the hash differs: '
          'datasets/STAR.csv of https://github.com/yromano/cqr'),
)}
# fmt: on


def locate_file(file: DataFile, data_home: Home) -> Path:
    """Return the path of a file after checking its contents; download it if it is in no folder."""
    path = find_file(file, data_home)
    if path is None:
        return _download(file, data_home)
    _check(path, file, os.fspath(path))
    return path


def find_file(file: DataFile, data_home: Home) -> Path | None:
    """Return the path of a file, packed or plain, without reading it; None if it is in no folder."""
    places = (folder / name for folder in _folders(data_home) for name in (file.name, file.plain))
    return next((path for path in places if path.is_file()), None)


def _folders(data_home: Home) -> list[Path]:
    """Return the folders to look in, in order."""
    folders = [Path(home) for home in (data_home, os.environ.get("ICQR_DATA_HOME")) if home]
    with contextlib.suppress(ImportError):  # the cache is pooch's; without pooch there is none
        folders.append(_cache())
    return [folder.expanduser() for folder in folders]


def _cache() -> Path:
    return Path(imported("pooch", "downloading data needs", "icqr[data]").os_cache("icqr"))


def _check(path: Path, file: DataFile, where: str) -> None:
    """Raise an error if the contents of `path` are not those of `file`; `where` says where they come from."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            actual = hashlib.file_digest(stream, "sha256").hexdigest()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        actual = f"a damaged gzip file ({error})"
    if actual != file.sha256:
        raise DatasetCorruptedError(
            f"{where} is not the {file.name} that is known here: expected, uncompressed, sha256 {file.sha256}, found"
            f" {actual}. Remove it and put the right file in its place. {file.recipe}"
        )


def _download(file: DataFile, data_home: Home) -> Path:
    """Download a file into a temporary folder, check its contents, and only then give it its final name."""
    if file.address is None:
        raise _missing(file, data_home, "no public address is known to serve the same bytes")
    folder = Path(data_home or _cache()).expanduser()
    download = imported("pooch", "downloading data needs", "icqr[data]").HTTPDownloader()

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".icqr-") as work:
            path = Path(work, "download")
            download(file.address, os.fspath(path), None)
            if file.member:
                with zipfile.ZipFile(path) as archive:
                    path = Path(archive.extract(file.member, work))
            _check(path, file, file.address)
            return path.replace(folder / file.plain)
    except (zipfile.BadZipFile, zlib.error, KeyError) as error:
        raise DatasetCorruptedError(f"the archive that was downloaded for {file.name} is damaged: {error}") from error
    except DatasetCorruptedError:
        raise
    except OSError as error:
        raise _missing(file, data_home, f"the download from {file.address} failed: {error}") from error


def _missing(file: DataFile, data_home: Home, why: str) -> DatasetNotFoundError:
    folders = ", ".join(map(str, _folders(data_home))) or "no folder, as none is set"
    plain = "" if file.plain == file.name else f" (or {file.plain}, uncompressed)"
    return DatasetNotFoundError(
        f"{file.name} was not found in {folders}, and {why}. Put {file.name}{plain} in a folder"
        f" and set the environment variable ICQR_DATA_HOME to it, or pass data_home=. {file.recipe}"
    )
