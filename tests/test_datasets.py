"""Data sets: the look-up, the download against a real server, what each set holds, and the synthetic truth."""

import gzip
import hashlib
import io
import os
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.utils import Bunch

from icqr import datasets
from icqr._datafiles import FILES, DataFile, DatasetCorruptedError, DatasetNotFoundError, locate_file
from icqr.datasets import Synthetic

CONTENTS = b"a,b\n" + b"1,2\n" * 20_000
NAMES = datasets.list_datasets().set_index("name").target
REAL, DRAWN = NAMES.index[NAMES != "y"].tolist(), NAMES.index[NAMES == "y"].tolist()
MAKERS = [getattr(datasets, name) for name in datasets.__all__ if name.startswith("make_")]
needs_data = pytest.mark.skipif(
    not os.environ.get("ICQR_DATA_HOME"), reason="set ICQR_DATA_HOME to the folder with the data files to run this"
)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def zipped(name: str, method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr(name, CONTENTS)
    return buffer.getvalue()


PACKED = gzip.compress(CONTENTS, mtime=1)
TOY = DataFile("toy.csv.gz", sha256(CONTENTS), "the toy shop", "write 1,2 many times")
DEFLATED = zipped("hour.csv", zipfile.ZIP_DEFLATED)
SERVED = {
    "/good": CONTENTS,
    "/corrupt": CONTENTS[:-2] + b"3\n",
    "/empty": b"",
    "/good.zip": zipped("hour.csv"),
    "/other.zip": zipped("day.csv"),
    "/broken.zip": zipped("hour.csv")[:-30],
    # The first block is of a kind that there is not.
    "/garbled.zip": DEFLATED[:38] + b"\xff" * 5 + DEFLATED[43:],
}


class Handler(BaseHTTPRequestHandler):
    requests: list[str]

    def do_GET(self) -> None:
        self.requests.append(self.path)
        if self.path.startswith("/cut"):
            self.send_response(200)
            if self.path == "/cut":
                self.send_header("Content-Length", str(len(CONTENTS)))
            self.end_headers()
            self.wfile.write(CONTENTS[: len(CONTENTS) // 2])  # and the connection closes
            return
        body = SERVED.get(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    pytest.importorskip("pooch", reason='the download needs pip install "icqr[data]"')
    Handler.requests = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No data anywhere: no ICQR_DATA_HOME, an empty cache, no proxy. The cache is returned."""
    monkeypatch.delenv("ICQR_DATA_HOME", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    pooch = pytest.importorskip("pooch")
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache" / project)
    return tmp_path / "cache" / "icqr"


# The download ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("page", "member"), [("good", None), ("good.zip", "hour.csv")])
def test_download_leaves_the_checked_file_and_is_not_repeated(
    server: str, alone: Path, page: str, member: str | None
) -> None:
    entry = replace(TOY, address=f"{server}/{page}", member=member)
    Handler.requests.clear()
    path = locate_file(entry, None)
    assert path == alone / "toy.csv"
    assert path.read_bytes() == CONTENTS
    assert list(alone.iterdir()) == [path]
    assert locate_file(entry, None) == path
    assert Handler.requests == [f"/{page}"]


def test_download_goes_to_data_home(server: str, alone: Path, tmp_path: Path) -> None:
    path = locate_file(replace(TOY, address=f"{server}/good"), tmp_path / "new" / "home")
    assert path == tmp_path / "new" / "home" / "toy.csv"
    assert not alone.exists()


@pytest.mark.parametrize(
    ("page", "member", "error", "says"),
    [
        ("corrupt", None, DatasetCorruptedError, sha256(SERVED["/corrupt"])),
        ("empty", None, DatasetCorruptedError, sha256(b"")),
        ("cut", None, DatasetNotFoundError, "failed: "),
        ("cut-without-length", None, DatasetCorruptedError, sha256(CONTENTS[: len(CONTENTS) // 2])),
        ("absent", None, DatasetNotFoundError, "404"),
        ("good", "hour.csv", DatasetCorruptedError, "not a zip file"),
        ("other.zip", "hour.csv", DatasetCorruptedError, "hour.csv"),
        ("broken.zip", "hour.csv", DatasetCorruptedError, "damaged"),
        ("garbled.zip", "hour.csv", DatasetCorruptedError, "damaged: Error -3 while decompressing"),
    ],
)
def test_failed_download_leaves_nothing(
    server: str, alone: Path, page: str, member: str | None, error: type[Exception], says: str
) -> None:
    entry = replace(TOY, address=f"{server}/{page}", member=member)
    with pytest.raises(error, match=says):
        locate_file(entry, None)
    assert list(alone.iterdir()) == []
    good = replace(TOY, address=f"{server}/good")
    assert locate_file(good, None).read_bytes() == CONTENTS  # a failed download does not block a later one


def test_no_server_and_no_folder_say_what_to_do(alone: Path, tmp_path: Path) -> None:
    entry = replace(TOY, address="http://127.0.0.1:9/toy")  # the discard port: nobody answers
    with pytest.raises(DatasetNotFoundError, match=r"ICQR_DATA_HOME.*the toy shop.*write 1,2 many times"):
        locate_file(entry, None)
    assert list(alone.iterdir()) == []
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DatasetNotFoundError, match="failed: "):
        locate_file(entry, tmp_path / "file")


def test_without_an_address_the_error_is_a_recipe(alone: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError) as caught:
        locate_file(TOY, tmp_path)
    text = str(caught.value)
    for part in ("toy.csv.gz", str(tmp_path), str(alone), "ICQR_DATA_HOME", "data_home", TOY.sha256, TOY.source):
        assert part in text
    with pytest.raises(DatasetNotFoundError, match=r"boston\.csv.*lib\.stat\.cmu\.edu.*to_csv"):
        datasets.fetch_boston()


def test_without_pooch_local_files_work_and_a_download_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ICQR_DATA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ImportError, match=r'pip install "icqr\[data\]"'):
        locate_file(replace(TOY, address="http://127.0.0.1:9/toy"), tmp_path)
    with pytest.raises(DatasetNotFoundError, match="no folder, as none is set"):
        locate_file(TOY, None)
    (tmp_path / TOY.name).write_bytes(PACKED)
    assert locate_file(TOY, tmp_path) == tmp_path / TOY.name


# The look-up ----------------------------------------------------------------------------------------------------


def test_order_of_places(alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ICQR_DATA_HOME", str(tmp_path / "environment"))
    for folder in (alone, tmp_path / "environment", tmp_path / "argument"):
        folder.mkdir(parents=True)
        (folder / TOY.name).write_bytes(PACKED)
        assert locate_file(TOY, tmp_path / "argument").parent == folder  # each new place goes before the last


@pytest.mark.parametrize("name", ["toy.csv.gz", "toy.csv"])
def test_a_file_packed_by_others_is_as_good(alone: Path, tmp_path: Path, name: str) -> None:
    other = gzip.compress(CONTENTS, compresslevel=1, mtime=2)
    assert other != PACKED
    (tmp_path / name).write_bytes(other if name.endswith("gz") else CONTENTS)
    assert locate_file(TOY, tmp_path).name == name


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (PACKED[:-20], "a damaged gzip file"),
        (b"no gzip at all", "a damaged gzip file"),
        (gzip.compress(CONTENTS + b"3,4\n"), sha256(CONTENTS + b"3,4\n")),
        (PACKED[:30] + b"?" * 9, "a damaged gzip file"),
        (b"", sha256(b"")),
    ],
)
def test_wrong_bytes_are_named(alone: Path, tmp_path: Path, wrong: bytes, found: str) -> None:
    path = tmp_path / TOY.name
    path.write_bytes(wrong)
    with pytest.raises(DatasetCorruptedError) as caught:
        locate_file(TOY, tmp_path)
    for part in (str(path), TOY.sha256, f"found {found}", TOY.source, TOY.build):
        assert part in str(caught.value)
    assert path.read_bytes() == wrong  # a user's file is never touched


def test_a_wrong_file_is_refused_by_the_public_functions(alone: Path, tmp_path: Path) -> None:
    (tmp_path / "boston.csv").write_text("crim,medv\n1,2\n")
    with pytest.raises(DatasetCorruptedError, match="expected, uncompressed, sha256 de34377a"):
        datasets.load_dataset("boston", data_home=tmp_path)


def test_table_of_files() -> None:
    for name, file in FILES.items():
        assert name == file.name
        assert len(file.sha256) == 64
        assert file.address is None or file.address.startswith("https://")


# Names ----------------------------------------------------------------------------------------------------------


def test_all_is_sorted_and_complete() -> None:
    assert datasets.__all__ == sorted(datasets.__all__)
    defined = {n for n in vars(datasets) if n.startswith(("fetch_", "make_", "load_", "list_"))}
    assert defined <= set(datasets.__all__)
    assert all(">>>" in getattr(datasets, name).__doc__ for name in datasets.__all__)


def test_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"one of boston, bike.*got 'bostn'; did you mean 'boston'\?"):
        datasets.load_dataset("bostn")
    with pytest.raises(ValueError, match=r"got 'qqqq'$"):
        datasets.load_dataset("qqqq")


def test_list_says_what_is_here(alone: Path, tmp_path: Path) -> None:
    assert datasets.list_datasets().query("available").target.unique().tolist() == ["y"]
    (tmp_path / "communities.data").touch()
    (tmp_path / "star.csv").touch()
    here = datasets.list_datasets(data_home=tmp_path).set_index("name").available
    assert here["star"]
    assert not here["communities"]  # one of its two files is missing


@pytest.mark.parametrize("name", DRAWN)
def test_synthetic_sets_load_as_listed(name: str) -> None:
    row = datasets.list_datasets().set_index("name").loc[name]
    X, y = datasets.load_dataset(name)
    assert X.shape == (row.rows, row.columns)
    assert y.name == row.target
    pd.testing.assert_series_equal(y, datasets.load_dataset(name)[1])


# The real files -------------------------------------------------------------------------------------------------


@needs_data
@pytest.mark.parametrize("name", REAL)
def test_real_sets_are_as_listed(name: str) -> None:
    row = datasets.list_datasets().set_index("name").loc[name]
    X, y = datasets.load_dataset(name)
    assert row.available
    assert (*X.shape, y.name) == (row.rows, row.columns, row.target)
    assert X.index.equals(pd.RangeIndex(len(X)))
    assert X.columns.is_unique
    assert pd.api.types.is_numeric_dtype(y)
    assert y.notna().all()
    assert X.isna().any(axis=None) == (name == "communities")
    assert (X.dtypes == "object").sum() == 0


@needs_data
@pytest.mark.parametrize("name", sorted(FILES))
def test_hashes_are_those_of_the_files(name: str) -> None:
    assert locate_file(FILES[name], None).name == name


@needs_data
def test_bunch_and_pair() -> None:
    bunch = datasets.fetch_concrete()
    assert isinstance(bunch, Bunch)
    assert bunch.frame.columns.tolist() == [*bunch.feature_names, *bunch.target_names]
    assert bunch.feature_names[:3] == ["cement", "slag", "fly_ash"]
    assert bunch.target[0] == 79.99
    assert "Rows: 1030." in bunch.DESCR
    assert "archive.ics.uci.edu" in bunch.DESCR
    assert ">>>" not in bunch.DESCR
    X, y = datasets.fetch_concrete(return_X_y=True)
    pd.testing.assert_frame_equal(X, bunch.data)
    pd.testing.assert_series_equal(y, bunch.target)


@needs_data
def test_bike_leaks_only_when_asked() -> None:
    leak, honest = datasets.fetch_bike_sharing(leak=True), datasets.fetch_bike_sharing()
    assert (leak.data["casual"] + leak.data["registered"]).equals(leak.target.rename(None))
    assert set(leak.feature_names) - set(honest.feature_names) == {"casual", "registered"}
    assert not {"instant", "dteday", "cnt"} & set(leak.feature_names)


@needs_data
def test_star_is_the_sum_of_eight_scores_of_complete_rows() -> None:
    X, y = datasets.load_dataset("star")
    assert y[0] == 447 + 507 + 568 + 587 + 473 + 538 + 579 + 593  # pupil 1137, the first complete row
    assert X.loc[0, ["gender", "birth", "stark", "lunchk", "schoolid3"]].tolist() == [
        "female",
        1980,
        "small",
        "non-free",
        63,
    ]
    assert not [name for name in X if name.startswith(("read", "math", "Unnamed"))]


@needs_data
def test_columns_of_communities_king_county_and_blog() -> None:
    X, y = datasets.load_dataset("communities")
    assert X.columns[0] == "population"
    assert (X.isna().mean() > 0.8).sum() == 22
    assert X["OtherPerCap"].isna().sum() == 1
    assert y.between(0, 1).all()
    houses = datasets.fetch_kc_house().data
    assert (houses["date"].min(), houses["date"].max(), houses["zipcode"].nunique()) == (0, 390, 70)
    assert houses.loc[0, "date"] == 164  # 2014-10-13
    blog = datasets.fetch_blog_feedback()
    assert blog.feature_names[::279] == ["x1", "x280"]
    assert (blog.target == 0).mean() > 0.5


# The synthetic truth --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", MAKERS)
def test_draws_follow_the_stated_law(make: Callable[..., Synthetic]) -> None:
    n = 20_000
    data = make(n, random_state=1)
    assert data.X.to_numpy().min() >= 0
    assert data.X.to_numpy().max() <= 1
    z = (data.y - data.quantile(data.X, 0.5)) / (data.quantile(data.X, stats.norm.cdf(1)) - data.quantile(data.X, 0.5))
    assert stats.kstest(z, "norm").pvalue > 1e-4
    for half in (data.X["x1"] < 0.5, data.X["x1"] >= 0.5):  # not only on average
        inside = int((data.y <= data.quantile(data.X, 0.9))[half].sum())
        assert stats.binomtest(inside, int(half.sum()), 0.9).pvalue > 1e-4


@pytest.mark.parametrize(
    ("make", "row", "mean", "scale"),
    [
        (datasets.make_linear_spread, [0.5, 1.0], 0.5, 1.25),
        (datasets.make_sine_spread, [0.75, 0.5], -0.4, 0.4),
        (datasets.make_radial_spread, [0.3, 0.4], 0.8, 0.68),
        (datasets.make_sum_spread, [0.1, 0.2, 0.3], 0.7, 0.6),
        (datasets.make_sum_spread, [-0.1, 0.2, 0.3], 0.1, 0.6),
        (datasets.make_heteroscedastic, [0.5, 0.25, 9, 9, 9], 2.0, 0.6),
    ],
)
def test_quantiles_by_hand(make: Callable[..., Synthetic], row: list[float], mean: float, scale: float) -> None:
    data = make(5, random_state=0)
    one_sigma = [0.15865525393145707, 0.5, 0.8413447460685429]
    expected = [[mean - scale, mean, mean + scale]]
    np.testing.assert_allclose(data.quantile([row], one_sigma), expected, atol=1e-12)
    assert data.quantile(pd.DataFrame([row]), 0.5).shape == (1,)
    covered = data.coverage([row, row], [[mean - scale, mean + scale], [mean, np.inf]])
    np.testing.assert_allclose(covered, [0.6826894921370859, 0.5])


@settings(max_examples=50, deadline=None)
@given(st.floats(0, 1), st.floats(0, 1), st.lists(st.floats(-3, 3), min_size=2, max_size=2))
def test_coverage_inverts_quantile_everywhere(lower: float, upper: float, row: list[float]) -> None:
    data = datasets.make_linear_spread(2, random_state=0)
    bounds = data.quantile([row], [lower, upper])
    # crossed bounds hold nothing; the tolerance is for scales at the floor of 1e-9 beside means near 1
    np.testing.assert_allclose(data.coverage([row], bounds), max(upper - lower, 0), atol=1e-6)


def test_scale_never_vanishes() -> None:
    data = datasets.make_linear_spread(2, random_state=0)
    spread = data.quantile([[-2, -2]], stats.norm.cdf(1)) - data.quantile([[-2, -2]], 0.5)
    np.testing.assert_allclose(spread, 1e-9, rtol=1e-5)
    origin = datasets.make_sum_spread(2, random_state=0).coverage([[0, 0, 0]], [[-1, 1]])
    np.testing.assert_array_equal(origin, [1.0])


def test_seed_and_shapes() -> None:
    first, again = (datasets.make_heteroscedastic(10, n_features=3, random_state=7) for _ in range(2))
    pd.testing.assert_frame_equal(first.X, again.X)
    pd.testing.assert_series_equal(first.y, again.y)
    assert not first.y.equals(datasets.make_heteroscedastic(10, n_features=3, random_state=8).y)
    assert first.X.columns.tolist() == ["x1", "x2", "x3"]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda data: data.quantile([[1, 2, 3]], 0.5), r"X must have shape \(n, 2\).*got \(1, 3\)"),
        (lambda data: data.quantile([1, 2], 0.5), r"got \(2,\)"),
        (lambda data: data.quantile([[1, 2]], 50), "level must be between 0 and 1, got 50"),
        (lambda data: data.quantile([[1, 2]], [0.5, float("nan")]), "between 0 and 1"),
        (lambda data: data.coverage([[1, 2]], [1, 2]), r"intervals must have shape \(1, 2\).*got \(2,\)"),
        (lambda data: datasets.make_sine_spread(0, random_state=0), "n_samples must be at least 1, got 0"),
        (
            lambda data: datasets.make_heteroscedastic(n_features=1, random_state=0),
            "n_features must be at least 2.*got 1",
        ),
    ],
)
def test_errors_of_synthetic_data(call: Callable[[Synthetic], object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call(datasets.make_linear_spread(2, random_state=0))
