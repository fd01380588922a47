"""A file that is written is the old one or the whole new one."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from icqr._files import replacing


def test_a_file_is_made_and_replaced(tmp_path: Path) -> None:
    file = tmp_path / "numbers.csv"
    for text in ("1", "2"):
        with replacing(file) as part:
            part.write_text(text)
            assert file.exists() == (text == "2")
        assert file.read_text() == text
    assert os.listdir(tmp_path) == ["numbers.csv"]


@pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt(), ValueError()])
def test_after_an_error_the_file_is_as_it_was(error: BaseException, tmp_path: Path) -> None:
    file = tmp_path / "numbers.csv"
    file.write_text("old")

    def write_half() -> None:
        with replacing(file) as part:
            part.write_text("half of the n")
            raise error

    with pytest.raises(type(error)):
        write_half()
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["numbers.csv"]


def test_a_folder_that_is_not_there_is_seen_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such folder; make it first"), replacing(tmp_path / "no" / "a.csv"):
        pytest.fail("work that would be lost")


def test_nothing_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "numbers.csv"):
        pass
    assert os.listdir(tmp_path) == []


def test_permissions_and_links_stay(tmp_path: Path) -> None:
    file, link = tmp_path / "numbers.csv", tmp_path / "link.csv"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)
    with replacing(link) as part:
        part.write_text("new")
    assert file.read_text() == "new"
    assert link.is_symlink()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_name_as_long_as_names_may_be(tmp_path: Path) -> None:
    file = tmp_path / ("n" * 251 + ".csv")
    with replacing(file) as part:
        part.write_text("1")
    assert file.read_text() == "1"
