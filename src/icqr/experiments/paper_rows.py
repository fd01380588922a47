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
from icqr.experiments.tidy_rows import as_table, keep_settings, schema, write_table, write_text

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
        keep_settings(self.folder / "settings.json", settings, self.data)

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
        write_table(self.file(network), as_table(({**row, **keys} for row in rows), COLUMNS))

    def read(self) -> Any:
        """Read all networks' rows as one Arrow table."""
        tables = [
            need("pyarrow.parquet").read_table(self.file(network), schema=schema(COLUMNS))
            for network in range(self.settings()["networks"])
        ]
        return need("pyarrow").concat_tables(tables)


# -- The one file ----------------------------------------------------------------------------------------------------


def gather(out: Path, order: Iterable[str]) -> Path:
    """Write rows.parquet from the parts of all data sets in the folder that are complete."""
    pa = need("pyarrow")
    found = [Parts(out, data) for data in order if (out / "parts" / data / "settings.json").exists()]
    complete = [parts for parts in found if not parts.missing()]
    rows = pa.concat_tables([schema(COLUMNS).empty_table(), *(parts.read() for parts in complete)])
    metadata = {parts.data: parts.about() for parts in complete}
    write_table(out / "rows.parquet", rows.cast(schema(COLUMNS, metadata)))
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
