"""The download of MNIST against a server on loopback: cut, resumed, wrong, absent, full, read-only."""

import gzip
import os
import socket

import pytest

from hpml_lab.core.system.errors import LabError
from hpml_lab.data import fetch, load

FIRST = "train-images-idx3-ubyte.gz"


def content(raw):
    return {path.name: path.read_bytes() for path in raw.iterdir()}


def test_the_four_files_are_fetched_unpacked_and_can_be_loaded(server, files, folder):
    raw = fetch.fetch_mnist()
    assert raw == folder / "MNIST" / "raw"
    assert content(raw) == files, "the four files, and no partial download"
    assert len(load("mnist").train_x) == 6


def test_a_folder_can_be_named(server, files, folder, tmp_path):
    raw = fetch.fetch_mnist(tmp_path / "elsewhere")
    assert raw.is_relative_to(tmp_path / "elsewhere") and content(raw) == files
    assert not folder.exists()


def test_what_is_there_and_good_is_not_fetched_again(server, files, folder):
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    (raw / FIRST).write_bytes(gzip.compress(files["train-images-idx3-ubyte"]))
    fetch.fetch_mnist()
    assert server.asked(FIRST) == [] and len(server.requests) == 3
    fetch.fetch_mnist()
    assert len(server.requests) == 3


def test_a_damaged_file_is_replaced(server, files, folder):
    raw = fetch.fetch_mnist()
    (raw / "t10k-labels-idx1-ubyte").write_bytes(b"damaged")
    fetch.fetch_mnist()
    assert content(raw) == files
    assert len(server.requests) == 5


def test_a_cut_download_resumes_where_it_stopped(server, files, folder):
    server.cut_after, server.cuts = 500, 2
    assert content(fetch.fetch_mnist()) == files
    assert server.asked(FIRST) == [None, "bytes=500-", "bytes=1000-"]


def test_a_later_run_resumes_an_earlier_one(server, files, folder):
    server.cut_after, server.cuts = 500, 99
    with pytest.raises(LabError, match="cut after 1,500 of") as caught:
        fetch.fetch_mnist()
    assert "goes on where it stopped" in caught.value.fix
    raw = folder / "MNIST" / "raw"
    assert [path.name for path in raw.iterdir()] == [f"{FIRST}.part"], "no file of the data set has its name yet"
    assert (raw / f"{FIRST}.part").read_bytes() == server.content[f"/{FIRST}"][:1500]
    with pytest.raises(LabError, match="MNIST was not found"):
        load("mnist")
    server.cuts, server.requests = 0, []
    assert content(fetch.fetch_mnist()) == files
    assert server.asked(FIRST) == ["bytes=1500-"]


def test_a_server_without_ranges_is_read_from_the_start(server, files, folder):
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    (raw / f"{FIRST}.part").write_bytes(server.content[f"/{FIRST}"][:700])
    server.ranges = False
    assert content(fetch.fetch_mnist()) == files
    assert server.asked(FIRST) == ["bytes=700-"]


def test_a_partial_file_that_is_already_complete_is_used(server, files, folder):
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    (raw / f"{FIRST}.part").write_bytes(server.content[f"/{FIRST}"])
    assert content(fetch.fetch_mnist()) == files


@pytest.mark.parametrize("length", [700, 100_000], ids=["short", "longer than the file"])
def test_a_partial_file_of_something_else_is_discarded(server, files, folder, length):
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    (raw / f"{FIRST}.part").write_bytes(b"x" * length)
    assert content(fetch.fetch_mnist()) == files
    assert server.asked(FIRST) == [f"bytes={length}-", None]


@pytest.mark.parametrize("wrong", [b"<html>sign in</html>", gzip.compress(b"not MNIST")], ids=["a page", "an archive"])
def test_wrong_content_never_takes_the_name(server, folder, wrong):
    server.content[f"/{FIRST}"] = wrong
    with pytest.raises(LabError, match="what it sent is not train-images-idx3-ubyte"):
        fetch.fetch_mnist()
    assert list((folder / "MNIST" / "raw").iterdir()) == []
    assert len(server.asked(FIRST)) == 1, "the same content again would be as wrong"


def test_the_next_mirror_is_tried(server, files, folder, monkeypatch):
    from torchvision.datasets import MNIST

    monkeypatch.setattr(MNIST, "mirrors", [f"{server.address}gone/", server.address])
    assert content(fetch.fetch_mnist()) == files
    assert server.asked(f"gone/{FIRST}") == [None]


def test_a_file_that_no_mirror_has_is_reported_with_each_mirrors_answer(server, folder):
    del server.content[f"/{FIRST}"]
    with pytest.raises(LabError) as caught:
        fetch.fetch_mnist()
    assert f"{server.address} (it answered 404 Not Found)" in caught.value.problem
    assert "copy the four files" in caught.value.fix


def test_without_network_the_error_says_so(files, folder, monkeypatch):
    from torchvision.datasets import MNIST

    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    mirrors = [f"http://127.0.0.1:{port}/"]

    def no_names(*_, **__):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(MNIST, "mirrors", mirrors)
    with pytest.raises(LabError, match="not reached: .*refused"):
        fetch.fetch_mnist()
    monkeypatch.setattr(MNIST, "mirrors", ["http://mirror.invalid/"])
    monkeypatch.setattr(socket, "getaddrinfo", no_names)
    with pytest.raises(LabError, match="not reached: .*Name or service not known"):
        fetch.fetch_mnist()


def test_a_silent_server_is_given_up(files, folder, monkeypatch):
    from torchvision.datasets import MNIST

    monkeypatch.setattr(fetch, "SILENCE_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections, never answers
        monkeypatch.setattr(MNIST, "mirrors", [f"http://127.0.0.1:{silent.getsockname()[1]}/"])
        with pytest.raises(LabError, match="timed out"):
            fetch.fetch_mnist()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux's device that is always full")
def test_a_full_disk_while_downloading_is_reported(server, files, folder, monkeypatch):
    monkeypatch.setattr(fetch, "open", lambda path, mode: open("/dev/full", mode), raising=False)
    with pytest.raises(LabError, match="No space left on device") as caught:
        fetch.fetch_mnist()
    assert "Free some space" in caught.value.fix
    assert not (folder / "MNIST" / "raw" / "train-images-idx3-ubyte").exists()


def test_a_partial_file_that_is_a_link_is_not_written_through(server, files, folder, tmp_path):
    raw, precious = folder / "MNIST" / "raw", tmp_path / "precious"
    raw.mkdir(parents=True)
    precious.write_bytes(b"mine")
    (raw / f"{FIRST}.part").symlink_to(precious)
    assert content(fetch.fetch_mnist()) == files and precious.read_bytes() == b"mine"


def test_a_length_that_is_no_number_is_passed_over(server, files, folder):
    server.length = "abc"
    assert content(fetch.fetch_mnist()) == files


def test_a_server_that_sends_without_end_is_given_up(server, folder, monkeypatch):
    monkeypatch.setattr(fetch, "LARGEST", 100_000)
    server.endless = True
    with pytest.raises(LabError, match="it has more than 100,000 bytes"):
        fetch.fetch_mnist()
    assert list((folder / "MNIST" / "raw").iterdir()) == []


def test_a_disk_that_fills_while_the_file_is_written_keeps_the_download(server, files, folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("hpml_lab.core.system.files.os.fsync", full)
        with pytest.raises(LabError, match="No space left on device"):
            fetch.fetch_mnist()
    raw = folder / "MNIST" / "raw"
    assert [path.name for path in raw.iterdir()] == [f"{FIRST}.part"]
    assert content(fetch.fetch_mnist()) == files
    assert server.asked(FIRST) == [None, f"bytes={len(server.content[f'/{FIRST}'])}-"]


def test_a_target_that_cannot_be_a_folder_is_reported(server, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(LabError, match="cannot be created") as caught:
        fetch.fetch_mnist(tmp_path / "file")
    assert "--to" in caught.value.fix
    assert server.requests == []


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_target_is_reported(server, tmp_path):
    tmp_path.chmod(0o555)
    with pytest.raises(LabError, match="Permission denied"):
        fetch.fetch_mnist(tmp_path / "data")


def test_a_read_only_folder_is_reported_even_to_root(server, tmp_path, monkeypatch):
    def refused(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.mkdir", refused)
    with pytest.raises(LabError, match="Permission denied"):
        fetch.fetch_mnist(tmp_path / "data")


def test_an_interruption_keeps_what_came(server, files, folder, monkeypatch):
    original, seen = fetch._chunks, []

    def interrupted(answer):
        for chunk in original(answer):
            seen.append(len(chunk))
            yield chunk
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fetch, "_chunks", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fetch.fetch_mnist()
    part = folder / "MNIST" / "raw" / f"{FIRST}.part"
    assert part.stat().st_size == seen[0] > 0
    assert content(fetch.fetch_mnist()) == files


@pytest.mark.skipif(os.name != "posix", reason="pipes with names")
@pytest.mark.parametrize("what", ["pipe", "huge"])
def test_a_partial_file_that_is_none_is_begun_anew(server, files, folder, what):
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    if what == "pipe":
        os.mkfifo(raw / f"{FIRST}.part")
    else:
        (raw / f"{FIRST}.part").touch()
        os.truncate(raw / f"{FIRST}.part", 1 << 40)
    assert content(fetch.fetch_mnist()) == files
    assert server.asked(FIRST) == [None]


@pytest.mark.skipif(os.name != "posix", reason="~user")
def test_a_user_who_does_not_exist_is_named(server, monkeypatch):
    with pytest.raises(LabError, match="--to is ~nosuchuser/x, and there is no such user"):
        fetch.fetch_mnist("~nosuchuser/x")
    monkeypatch.setenv("HPML_DATA", "~nosuchuser/y")
    with pytest.raises(LabError, match="HPML_DATA is ~nosuchuser/y"):
        fetch.fetch_mnist()
