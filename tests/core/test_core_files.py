"""Files are written whole or not at all."""

import errno
import os
import stat

import pytest

from hpml_lab.core.errors import LabError
from hpml_lab.core.files import atomic_write


def test_content_arrives_and_folders_are_made(tmp_path):
    path = atomic_write(tmp_path / "a" / "b.json", "text ×")
    assert path.read_text(encoding="utf-8") == "text ×"
    assert atomic_write(path, b"\x00").read_bytes() == b"\x00"
    assert os.listdir(path.parent) == ["b.json"], "no temporary file is left"


def test_the_file_can_be_read_by_others_as_the_umask_says(tmp_path):
    old = os.umask(0o022)
    try:
        assert stat.S_IMODE(atomic_write(tmp_path / "a", "x").stat().st_mode) == 0o644
    finally:
        os.umask(old)


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = atomic_write(tmp_path / "a.json", "old")

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LabError, match="No space left on device.*unchanged"):
        atomic_write(path, "new")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a.json"]


def test_an_interruption_leaves_the_old_file_and_passes_on(tmp_path, monkeypatch):
    path = atomic_write(tmp_path / "a.json", "old")

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        atomic_write(path, "new")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a.json"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(LabError, match="file"):
        atomic_write(tmp_path / "file" / "x.json", "new")
