"""The results as files: a part for each network while a run goes on, and one tidy table, `rows.parquet`, at its end.

`rows.parquet` has a row per (data, variant, method, network), with the widths of all validation rows as a list, so that
every table and figure can be made from this file alone. Its metadata (key `icqr`) holds, for each data set, the
settings, the names of the columns and the numbers of rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from icqr.experiments.extras import need

#: Columns of rows.parquet, their type and their meaning.
COLUMNS = {
    "data": ("string", "data set"),
    "variant": ("string", "exact, notebook, printed, ours, or printed with one change"),
    "method": ("string", "Naive, QR, CQR or ICQR"),
    "network": ("int32", "index of the network"),
    "coverage": ("float64", "share of validation rows inside their interval"),
    "mean_width": ("float64", "mean width of the intervals"),
    "coverage_easy": ("float64", "coverage of the third of rows with the narrowest raw quantiles"),
    "coverage_hard": ("float64", "coverage of the third of rows with the widest raw quantiles"),
    "worst_slab": ("float64", "worst-slab coverage; missing where it was not computed"),
    "excess_risk": ("float64", "L1 excess risk; missing where it was not computed"),
    "true_coverage": ("float64", "mean true conditional coverage (synthetic data)"),
    "true_gap": ("float64", "mean distance of the true conditional coverage from the promise (synthetic data)"),
    "true_low": ("float64", "5 % quantile of the true conditional coverage (synthetic data)"),
    "iou": ("float64", "mean overlap with the oracle interval (synthetic data)"),
    "n_groups": ("int32", "number of groups"),
    "k": ("int32", "number of clusters chosen, before merging"),
    "unpromised": ("float64", "share of calibration rows in groups too small for a promise"),
    "crossed": ("float64", "share of validation rows whose raw lower quantile is above the upper one"),
    "seconds": ("float64", "time of the method, without the network's training"),
    "notes": ("string", "warnings of the library"),
    "widths": ("list<float32>", "widths of all validation rows"),
    "importance": ("list<float64>", "share of importance of each column; missing where groups are shared"),
    "explained": ("list<float64>", "explained variance for k = 1, 2, … up to the chosen k"),
}
KEY = ["data", "variant", "method", "network"]


def _schema(metadata: Mapping[str, Any] | None = None) -> Any:
    pa = need("pyarrow")
    kinds = {"string": pa.string(), "int32": pa.int32(), "float64": pa.float64()}
    kinds |= {"list<float32>": pa.list_(pa.float32()), "list<float64>": pa.list_(pa.float64())}
    fields = [pa.field(name, kinds[kind], metadata={"meaning": text}) for name, (kind, text) in COLUMNS.items()]
    return pa.schema(fields, metadata={"icqr": json.dumps(metadata or {})})


def _write(file: Path, rows: Any) -> None:
    temporary = file.with_suffix(".part")
    need("pyarrow.parquet").write_table(rows, temporary, compression="zstd")
    temporary.replace(file)


def write_text(file: Path, text: str) -> None:
    """Write a text file that is whole or not there."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(file.suffix + ".part")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(file)


# -- Parts -----------------------------------------------------------------------------------------------------------


class Parts:
    """The finished networks of one data set: a folder with a file each.

    Parameters
    ----------
    out : path
        The folder of the run.
    data : str
        Name of the data set.
    """

    def __init__(self, out: Path, data: str) -> None:
        self.data = data
        self.folder = out / "parts" / data

    def open(self, settings: Mapping[str, Any]) -> None:
        """Take a new folder or one of the same settings; refuse another, and say what differs."""
        file = self.folder / "settings.json"
        settings = json.loads(json.dumps(settings))
        if not file.exists():
            write_text(file, json.dumps(settings, indent=1))
            return
        stored = json.loads(file.read_text(encoding="utf-8"))
        differing = [
            f"{name} = {stored.get(name)!r}, not {value!r}"
            for name, value in settings.items()
            if stored.get(name) != value
        ]
        if differing:
            raise ValueError(
                f"out must be a folder without results of {self.data}, or with results of the same settings, but "
                f"{self.folder} was written with {'; '.join(differing)}; give another folder, or delete this one"
            )

    def settings(self) -> dict[str, Any]:
        """Give the settings that `open` wrote."""
        return dict(json.loads((self.folder / "settings.json").read_text(encoding="utf-8")))

    def note(self, **facts: Any) -> None:
        """Keep facts that are not settings: they go into the file's metadata and are never compared."""
        write_text(self.folder / "facts.json", json.dumps(facts, indent=1))

    def about(self) -> dict[str, Any]:
        """Give settings and facts."""
        file = self.folder / "facts.json"
        facts = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        return {**self.settings(), **facts}

    def file(self, network: int) -> Path:
        """Give the file of one network."""
        return self.folder / f"network-{network:04d}.parquet"

    def missing(self) -> list[int]:
        """Give the networks that are still to be done."""
        return [network for network in range(self.settings()["networks"]) if not self.file(network).exists()]

    def write(self, network: int, rows: Iterable[dict[str, Any]]) -> None:
        """Write the rows of one network."""
        keys = {"data": self.data, "network": network}
        table = [{name: {**row, **keys}.get(name) for name in COLUMNS} for row in rows]
        _write(self.file(network), need("pyarrow").Table.from_pylist(table, schema=_schema()))

    def read(self) -> Any:
        """Read all networks' rows as one Arrow table."""
        tables = [
            need("pyarrow.parquet").read_table(self.file(network), schema=_schema())
            for network in range(self.settings()["networks"])
        ]
        return need("pyarrow").concat_tables(tables)


# -- The one file ----------------------------------------------------------------------------------------------------


def gather(out: Path, order: Iterable[str]) -> Path:
    """Write rows.parquet from the parts of all data sets in the folder that are complete."""
    pa = need("pyarrow")
    found = [Parts(out, data) for data in order if (out / "parts" / data / "settings.json").exists()]
    complete = [parts for parts in found if not parts.missing()]
    rows = pa.concat_tables([_schema().empty_table(), *(parts.read() for parts in complete)])
    metadata = {parts.data: parts.about() for parts in complete}
    _write(out / "rows.parquet", rows.cast(_schema(metadata)))
    return out / "rows.parquet"


def read_rows(file: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Read rows.parquet: the rows, and each data set's settings."""
    table = need("pyarrow.parquet").read_table(file)
    metadata = json.loads(table.schema.metadata[b"icqr"])
    return table.to_pandas(), dict(metadata)


def main_variants(rows: pd.DataFrame) -> pd.DataFrame:
    """Leave out the printed algorithm with one change."""
    return rows[~rows["variant"].str.contains(",")]


def pooled(rows: pd.DataFrame) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Give the widths of all intervals of all these rows."""
    return np.concatenate([np.asarray(widths, dtype=np.float64) for widths in rows["widths"]])
