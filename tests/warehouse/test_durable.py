"""Which files and folders are synced, and in which order."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from halfop.frame.trouble import make_durable
from halfop.gateway.log.files import replace_file


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of what is synced, in order; it is synced, too."""
    found, sync = [], os.fsync

    def fsync(handle: int) -> None:
        found.append(os.readlink(f"/proc/self/fd/{handle}"))
        sync(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def test_files_come_before_their_folders_and_each_folder_once(tmp_path: Path, synced: list[str]) -> None:
    files = [tmp_path / "a" / "1", tmp_path / "b" / "2", tmp_path / "a" / "3"]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"x")
    make_durable([*files[:2], str(files[2])])
    assert synced == [*map(str, files), str(tmp_path / "a"), str(tmp_path / "b")]


def test_nothing_needs_no_sync(synced: list[str]) -> None:
    make_durable([])
    assert synced == []


def test_a_sync_that_fails_says_of_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's own error of a call of an open file has no path."""

    def fails(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    (tmp_path / "there").touch()
    with pytest.raises(OSError, match=f"Input/output error: '{tmp_path}/there'"):
        make_durable([tmp_path / "there"])
    with pytest.raises(OSError, match=f"Input/output error: '{tmp_path}/there'"):
        replace_file(tmp_path / "there", b"x")


def test_a_file_that_is_missing_is_an_error(tmp_path: Path, synced: list[str]) -> None:
    (tmp_path / "there").touch()
    with pytest.raises(FileNotFoundError, match="missing"):
        make_durable([tmp_path / "there", tmp_path / "missing"])
    assert str(tmp_path) not in synced, "its folder is not believed"


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs a file system that syncs no folders")
def test_a_file_system_that_syncs_no_folders_does_without() -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        synced_by_the_system("/proc/self/task")
    make_durable(["/proc/self/task"])


def synced_by_the_system(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
