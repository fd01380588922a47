"""Artifacts that are not sound are refused by name: nothing in them is run, and nothing large allocated."""

from __future__ import annotations

import hashlib
import io
import json
import stat
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from icqr import CQR, ICQR, KMeansPartition, load, save
from icqr.artifact import ArtifactError


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Starting threads takes longer than fitting a few rows."""
    with threadpool_limits(limits=1):
        yield


def draw() -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(size=(300, 3)), columns=["a", "b", "c"])
    y = X["a"] + (0.1 + X["b"]) * rng.normal(size=300)
    X["city"] = rng.choice(["Bern", "Genf", "Rom"], 300)
    return X, y.to_numpy()


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Files of two models: one of the default kind with three groups, one that needs skops."""
    X, y = draw()
    folder = tmp_path_factory.mktemp("sound")
    models = {
        "hist": ICQR(HistGradientBoostingRegressor(max_iter=3), partition=KMeansPartition(choose=3), random_state=0),
        "boosting": CQR(GradientBoostingRegressor(n_estimators=3), random_state=0),
    }
    for name, model in models.items():
        save(model.fit(X if name == "hist" else X[["a", "b", "c"]], y), folder / name)
    return {name: (folder / name).read_bytes() for name in models}


@pytest.fixture
def file(tmp_path: Path, sound: dict[str, bytes]) -> Path:
    path = tmp_path / "model.icqr"
    path.write_bytes(sound["hist"])
    return path


@pytest.fixture
def boosted(tmp_path: Path, sound: dict[str, bytes]) -> Path:
    path = tmp_path / "boosted.icqr"
    path.write_bytes(sound["boosting"])
    return path


Files = dict[str, bytes]


def altered(file: Path, change: Callable[[dict[str, Any], Files], None], repair: bool = True) -> Path:
    """Change what is in a file, and (unless it is tampering that must be seen) make its hashes right again."""
    with zipfile.ZipFile(file) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(files.pop("manifest.json"))
    change(manifest, files)
    for name, about in manifest.get("parts", {}).items():
        if repair and name in files:
            about["bytes"], about["sha256"] = len(files[name]), hashlib.sha256(files[name]).hexdigest()
    return rezipped(file, {"manifest.json": json.dumps(manifest).encode(), **files})


def rezipped(file: Path, files: Files, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file


def unzipped(file: Path) -> Files:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a zip archive"),
        (b"a,b\n1,2\n", "not a zip archive"),
        (b"\x80\x04\x95\x00", "a pickle, which can run any code"),
        (b"PK\x03\x04 and nothing else", "damaged: cut off"),
    ],
)
def test_a_file_that_is_no_model_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ArtifactError, match=message):
        load(tmp_path / "file")


def test_another_zip_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"a zip archive without manifest\.json"):
        load(rezipped(tmp_path / "file", {"readme.txt": b"hello"}))
    with pytest.raises(ArtifactError, match='does not say "format"'):
        load(rezipped(tmp_path / "file", {"manifest.json": b"{}"}))


def test_a_truncated_file_is_refused(file: Path) -> None:
    whole = file.read_bytes()
    for size in (3, 100, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises(ArtifactError, match=r"damaged|not a zip"):
            load(file)


def test_a_changed_part_is_refused(file: Path) -> None:
    def change(manifest: dict[str, Any], files: Files) -> None:
        name = "calibration/scores"
        files[name] = files[name][:-8] + np.float64(0.0).tobytes()

    with pytest.raises(ArtifactError, match="calibration/scores was changed after the file was written"):
        load(altered(file, change, repair=False))


@pytest.mark.parametrize(
    ("version", "message"), [(2, "update icqr"), (0, "1 or more"), ("1", "whole number"), (True, "whole")]
)
def test_another_version_is_refused(version: Any, message: str, file: Path) -> None:
    with pytest.raises(ArtifactError, match=message):
        load(altered(file, lambda manifest, files: manifest.update(version=version)))


def test_a_zip_bomb_is_refused_before_it_is_unpacked(file: Path) -> None:
    def change(manifest: dict[str, Any], files: Files) -> None:
        files["zeros"] = bytes(200 * 2**20)
        manifest["parts"]["zeros"] = {"dtype": "uint8", "shape": [200 * 2**20]}

    altered(file, change)
    assert file.stat().st_size < 2**20
    with pytest.raises(ArtifactError, match="a zip bomb"):
        load(file)


def test_a_part_that_unpacks_to_more_than_it_claims_is_refused(file: Path) -> None:
    files = unzipped(file)
    name = "calibration/scores"
    whole = rezipped(file, {**files, name: files[name] + bytes(8)}).read_bytes()
    # Claim the old size in the list of parts.
    new, old = (len(files[name]) + extra for extra in (8, 0))
    start = whole.rindex(name.encode()) - 46
    claimed = whole[:start] + whole[start:].replace(new.to_bytes(4, "little"), old.to_bytes(4, "little"), 1)
    file.write_bytes(claimed)
    with pytest.raises(ArtifactError, match=r"damaged|claims"):
        load(file)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../outside", "leads out of the file"),
        ("/etc/passwd", "leads out of the file"),
        ("..\\outside", "leads out of the file"),
        ("C:/outside", "leads out of the file"),
        ("model.pkl", "holds a pickle"),
        ("model.JOBLIB", "holds a pickle"),
        ("Model", "characters that no part"),
        ("extra", "the parts in the file and those its manifest lists differ: extra"),
    ],
)
def test_names_that_no_model_has_are_refused(name: str, message: str, file: Path) -> None:
    with pytest.raises(ArtifactError, match=message):
        load(rezipped(file, {**unzipped(file), name: b"x"}))


def test_a_part_twice_is_refused(file: Path) -> None:
    with zipfile.ZipFile(file, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("calibration/scores", b"x")
    with pytest.raises(ArtifactError, match="two parts have the name calibration/scores"):
        load(file)


def test_links_and_other_ways_of_packing_are_refused(file: Path) -> None:
    files = unzipped(file)
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(ArtifactError, match="link is not a plain file"):
        load(file)
    with pytest.raises(ArtifactError, match="packed by method"):
        load(rezipped(file, files, zipfile.ZIP_LZMA))


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (b"{", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"format": NaN}', "not valid JSON"),
        (b'{"format": "icqr-model", "format": "icqr-model"}', "the same name twice"),
        (b'{"format": "icqr-model", "version": 1}', "lists no parts"),
        (b'{"format": "icqr-model", "version": 1, "parts": {}, "x": 1}', "differ|field"),
    ],
)
def test_a_manifest_that_is_not_sound_is_refused(manifest: bytes, message: str, file: Path) -> None:
    with pytest.raises(ArtifactError, match=message):
        load(rezipped(file, {**unzipped(file), "manifest.json": manifest}))


def set_field(*path: Any, value: Any) -> Callable[[dict[str, Any], Files], None]:
    def change(manifest: dict[str, Any], files: Files) -> None:
        holder: Any = manifest
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = value

    return change


def set_array(name: str, place: int, value: float, dtype: str = "float64") -> Callable[[dict[str, Any], Files], None]:
    def change(manifest: dict[str, Any], files: Files) -> None:
        values = np.frombuffer(files[name], dtype=dtype).copy()
        values[place] = value
        files[name] = values.tobytes()

    return change


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


UNSOUND: dict[str, tuple[Callable[[dict[str, Any], Files], None], str]] = {
    "unknown field": (set_field("model", "more", value=1), "a field that icqr does not know: 'more'"),
    "unknown method": (set_field("model", "method", value="exec"), "must be one of Naive, QR, CQR, ICQR"),
    "coverage": (set_field("model", "coverage", value=90), "between 0 and 1"),
    "parameter": (set_field("model", "parameters", "side", value="middle"), "side must be one of"),
    "parameter too deep": (
        set_field("model", "parameters", "side", value=nested(900)),
        "nested too deeply|must be one",
    ),
    "no column": (set_field("model", "n_columns", value=3), "column names"),
    "columns twice": (set_field("model", "columns", "values", value=["a"] * 4), "must be different labels"),
    "huge shape": (set_field("parts", "calibration/scores", "shape", value=[2**39, 1]), "must have the shape"),
    "huge shape of groups": (
        set_field("parts", "partition/centroids", "shape", value=[2**39, 3]),
        "bytes, which is not",
    ),
    "negative shape": (set_field("parts", "partition/centroids", "shape", value=[-1, 7]), "a shape of whole numbers"),
    "array of objects": (
        set_field("parts", "calibration/scores", "dtype", value="object"),
        "must be an array of float64",
    ),
    "sizes": (set_field("model", "calibration", "sizes", value=[1, 2, 3]), "must be 4 whole numbers"),
    "size": (set_field("model", "calibration", "sizes", 0, value=10**6), "must have the shape"),
    "score NaN": (set_array("calibration/scores", 0, np.nan), "must hold no NaN"),
    "score order": (set_array("calibration/scores", 0, 1e9), "must be sorted in each group"),
    "centroid": (set_array("partition/centroids", 0, np.inf), "must hold finite numbers"),
    "width": (set_array("partition/width", 0, 0.0), "must be larger than 0"),
    "group": (set_field("model", "partition", "group_of", value=[0, 2, 5]), "must number the groups"),
    "groups": (set_field("model", "partition", "group_of", value=[0, 1]), "must be 3 whole numbers"),
    "path": (set_field("model", "partition", "path", "k", 2, value=9), "the chosen k"),
    "category": (set_field("model", "encoder", "features", "categories", 0, "column", value=99), "growing positions"),
    "part used twice": (set_field("model", "partition", "low", value="partition/fill"), "not there or used twice"),
    "guarantee": (set_field("model", "calibration", "guarantee", value="100 %"), "must be one of"),
    "check": (set_array("check/predictions", 0, 1e6), "predicts other values"),
    "tree: cycle": (set_array("model/0/left", 0, 0, "uint32"), "a leaf has no children|exactly one other"),
    "tree: child": (set_array("model/0/right", 0, 2**31, "uint32"), "children must come after their node"),
    "tree: shared child": (set_array("model/0/right", 0, 1, "uint32"), "exactly one other"),
    "tree: column": (set_array("model/0/feature", 0, 99, "uint32"), "a column that is not there"),
    "tree: value": (set_array("model/0/value", 0, np.nan), "must hold finite numbers"),
    "tree: size": (set_array("model/0/sizes", 0, 10**6, "int64"), "must have the shape"),
    "tree: flag": (set_array("model/0/missing_left", 0, 7, "uint8"), "must be 0 or 1"),
    "tree: category of a number": (set_array("model/0/is_categorical", 0, 1, "uint8"), "categories"),
    "loss": (set_field("model", "quantiles", "fitted", 0, "parameters", "loss", value="x"), "can't be read"),
    "kind of model": (set_field("model", "quantiles", "fitted", 0, "kind", value="pickle"), "must be one of"),
}


@pytest.mark.parametrize("name", UNSOUND)
def test_a_file_with_right_hashes_but_an_unsound_model_is_refused(name: str, file: Path) -> None:
    change, message = UNSOUND[name]
    with pytest.raises(ArtifactError, match=message):
        load(altered(file, change))


# -- Files of skops --------------------------------------------------------------------------------------------------


def in_skops(change: Callable[[dict[str, Any], Files], None]) -> Callable[[dict[str, Any], Files], None]:
    def outer(manifest: dict[str, Any], files: Files) -> None:
        with zipfile.ZipFile(io.BytesIO(files["scikit-learn.skops"])) as archive:
            inner = {name: archive.read(name) for name in archive.namelist()}
        schema = json.loads(inner.pop("schema.json"))
        change(schema, inner)
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, content in {"schema.json": json.dumps(schema).encode(), **inner}.items():
                archive.writestr(name, content)
        files["scikit-learn.skops"] = buffer.getvalue()

    return outer


def run_code(schema: dict[str, Any], files: Files) -> None:
    """What pickle would do: call a function when the object is made."""
    argument = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode", "content": '"true"'}
    arguments = {"__class__": "tuple", "__module__": "builtins", "__loader__": "TupleNode", "content": [argument]}
    call = {
        "__class__": "system",
        "__module__": "posix",
        "__loader__": "ConstructorFromReduceNode",
        "content": arguments,
    }
    schema["content"].append(call)


def hidden_type(schema: dict[str, Any], files: Files) -> None:
    """A type that skops trusts, and that allocates whatever it is told."""
    schema["content"].append(
        {"__class__": "void", "__module__": "numpy", "__loader__": "NdArrayNode", "type": "numpy", "file": "0.npy"}
    )


def npy(array: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def object_array(schema: dict[str, Any], files: Files) -> None:
    files["0.npy"] = npy(np.array([{}], dtype=object), allow_pickle=True)


def huge_array(schema: dict[str, Any], files: Files) -> None:
    files["0.npy"] = npy(np.zeros(100)).replace(b"(100,), }        ", b"(99999999999,), }")


def repeated(schema: dict[str, Any], files: Files) -> None:
    """Objects that hold each other many times over take for ever to go through."""
    schema["__id__"] = 1


UNSOUND_SKOPS: dict[str, tuple[Callable[[dict[str, Any], Files], None], str]] = {
    "code": (run_code, r"asks skops for posix\.system"),
    "type": (hidden_type, r"asks skops for numpy\.void"),
    "objects": (object_array, "pickled objects"),
    "shape": (huge_array, "which is not the shape"),
    "addresses": (repeated, "refer to each other"),
    "old protocol": (lambda schema, files: schema.update(protocol=0), "protocol 0"),
    "another file": (lambda schema, files: files.update({"x.npz": b""}), "which is no array"),
    "pickle": (lambda schema, files: files.update({"x.pkl": b""}), "holds a pickle"),
}


@pytest.mark.parametrize("name", UNSOUND_SKOPS)
def test_a_file_of_skops_that_holds_anything_else_is_refused(name: str, boosted: Path) -> None:
    change, message = UNSOUND_SKOPS[name]
    with pytest.raises(ArtifactError, match=message):
        load(altered(boosted, in_skops(change)))


UNSOUND_TREES: dict[str, tuple[Callable[[dict[str, Any], Files], None], str]] = {
    "child": (set_array("trees/left", 0, 2**20, "uint32"), "children must come after their node"),
    "column": (set_array("trees/feature", 0, 50, "uint32"), "a column that is not there"),
    "columns": (set_array("trees/n_features", 0, 9, "int64"), "made for 9 columns"),
}


@pytest.mark.parametrize("name", UNSOUND_TREES)
def test_trees_that_would_crash_scikit_learn_are_refused(name: str, boosted: Path) -> None:
    change, message = UNSOUND_TREES[name]
    with pytest.raises(ArtifactError, match=message):
        load(altered(boosted, change))
