"""Files are written whole or not at all."""

import errno
import os
import stat
import subprocess
import sys
import threading

import pytest

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.files import STALE_SECONDS, atomic_write, set_aside


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


needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")


@needs_pipes
def test_a_pipe_is_written_into_and_not_replaced(tmp_path):
    pipe, read = tmp_path / "page.html", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    atomic_write(pipe, "text ×")
    reader.join(60)
    assert read == ["text ×".encode()] and stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs Linux's /proc")
def test_the_standard_output_is_written_into_whatever_it_is(tmp_path):
    """/dev/stdout leads to this link; in /proc no failure of the test can replace it."""
    code = "from hpml_lab.core.system.files import atomic_write; atomic_write('/proc/self/fd/1', 'a page')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "a page"
    with open(tmp_path / "page.html", "wb") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == "a page"


def test_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path):
    """As a folder that was received may hold one: `report.html` that leads to a file of the reader's."""
    atomic_write(tmp_path / "mine", "precious")
    (tmp_path / "report.html").symlink_to("mine")
    atomic_write(tmp_path / "report.html", "new")
    assert (tmp_path / "mine").read_text(encoding="utf-8") == "precious"
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == "new" and not (tmp_path / "report.html").is_symlink()


def test_what_a_killed_writer_left_is_removed_and_what_another_writes_now_is_not(tmp_path):
    for name, age in (
        (".a[1].json.x1.part", 2 * STALE_SECONDS),
        (".a[1].json.x2.part", 0),
        (".b.json.x3.part", 2 * STALE_SECONDS),
    ):
        part = tmp_path / name
        part.write_text("half", encoding="utf-8")
        os.utime(part, (part.stat().st_atime - age, part.stat().st_mtime - age))
    atomic_write(tmp_path / "a[1].json", "whole")
    assert sorted(os.listdir(tmp_path)) == [".a[1].json.x2.part", ".b.json.x3.part", "a[1].json"]


def test_a_file_set_aside_never_takes_the_name_of_another(tmp_path):
    for content in ("first", "second", "third"):
        set_aside(atomic_write(tmp_path / "a.json", content))
    found = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    assert found == {"a.damaged.json": "first", "a.damaged-2.json": "second", "a.damaged-3.json": "third"}


def test_a_name_that_no_file_can_have_is_named(tmp_path):
    with pytest.raises(LabError, match="could not be written .embedded null"):
        atomic_write(tmp_path / "a\0b", "new")
