"""Dask DataFrames as Parquet files: a folder that is complete, or not there."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path
from typing import Any

import dask

from icqr.distributed.blocks import delayed_blocks
from icqr.distributed.cluster import gathered


def write_parquet(frame: Any, folder: str | os.PathLike[str]) -> Path:
    """Compute a Dask DataFrame and write it as Parquet, a file per block: ``part.00000.parquet``, ….

    The folder gets its name when all files are written. After an error, Ctrl-C or a lost cluster it is not there, and
    a folder of that name is as it was.

    Parameters
    ----------
    frame : Dask DataFrame
        For example what `explain` gives. Its index is written too.
    folder : path
        On a disk that this machine and all workers share. It must not exist.

    Returns
    -------
    Path
        The folder.
    """
    target = Path(folder).absolute()
    if target.exists():
        raise FileExistsError(f"{target} exists; give another folder, or remove it first")
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    part.mkdir(parents=True)
    try:
        write = dask.delayed(_write, pure=False)
        blocks = delayed_blocks(frame)
        gathered([write(block, str(part / f"part.{i:05d}.parquet")) for i, block in enumerate(blocks)], "writing")
        part.rename(target)
    except BaseException:  # also Ctrl-C: nothing half-written stays behind
        shutil.rmtree(part, ignore_errors=True)
        raise
    return target


def _write(block: Any, path: str) -> int:
    # A worker that is lost half-way leaves a file of another name, and the block is written again.
    unfinished = f"{path}.{secrets.token_hex(4)}"
    block.to_parquet(unfinished, engine="pyarrow")
    os.replace(unfinished, path)
    return len(block)
