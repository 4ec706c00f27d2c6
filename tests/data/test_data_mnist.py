"""MNIST is read unpacked and gzipped, from read-only folders too; a damaged file is named and not used."""

import gzip
import os
import shutil
import sys
import tracemalloc

import pytest
import torch

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.readers import gunzip
from hpml_lab.data import batches, load, mnist

IMAGES = "train-images-idx3-ubyte"


def write(folder, files, packed=()):
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, data in files.items():
        if name in packed:
            (raw / f"{name}.gz").write_bytes(gzip.compress(data))
        else:
            (raw / name).write_bytes(data)
    return raw


@pytest.mark.parametrize("packed", ["none", "all", "images only"])
def test_unpacked_and_gzipped_files_give_the_same_tensors(files, folder, packed):
    names = {"none": [], "all": list(files), "images only": [name for name in files if "images" in name]}[packed]
    write(folder, files, names)
    data = load("mnist")
    pixels = torch.frombuffer(bytearray(files[IMAGES][16:]), dtype=torch.uint8).reshape(6, 1, 28, 28)
    assert torch.equal(data.train_x, pixels.float() / 255)
    assert data.train_y.tolist() == [0, 1, 2, 3, 4, 5]
    assert data.test_x.shape == (4, 1, 28, 28) and data.test_y.tolist() == [0, 1, 2, 3]
    assert (data.train_x.dtype, data.train_y.dtype) == (torch.float32, torch.int64)


def test_reading_changes_nothing_in_the_folder(files, folder):
    raw = write(folder, files, packed=list(files))
    before = sorted(path.name for path in raw.iterdir())
    for path in (raw, *raw.iterdir()):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        load("mnist")
        assert sorted(path.name for path in raw.iterdir()) == before
    finally:
        raw.chmod(0o755)


def test_the_processed_files_of_old_torchvision_are_not_used(files, folder):
    write(folder, files)
    (folder / "MNIST" / "processed").mkdir()
    for name in ("training.pt", "test.pt"):
        torch.save((torch.zeros(1, 28, 28), torch.zeros(1)), folder / "MNIST" / "processed" / name)
    assert len(load("mnist").train_x) == 6


def damage_truncated(data):
    return data[: len(data) // 2]


def damage_one_bit(data):
    return data[:-1] + bytes([data[-1] ^ 1])


def damage_to_nothing(data):
    return b""


@pytest.mark.parametrize("damage", [damage_truncated, damage_one_bit, damage_to_nothing])
@pytest.mark.parametrize("packed", [False, True], ids=["unpacked", "gzipped"])
@pytest.mark.parametrize("name", [IMAGES, "t10k-labels-idx1-ubyte"])
def test_a_damaged_file_is_named_and_not_used(files, folder, name, packed, damage):
    raw = write(folder, files, packed=list(files) if packed else [])
    path = raw / (f"{name}.gz" if packed else name)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(mnist.Damaged) as caught:
        load("mnist")
    assert str(path) in caught.value.problem and "not used" in caught.value.problem
    assert "hpml-lab data fetch mnist" in caught.value.fix


def test_a_page_saved_under_the_name_of_an_archive_is_damaged(files, folder):
    raw = write(folder, files, packed=list(files))
    (raw / f"{IMAGES}.gz").write_text("<html>moved</html>")
    with pytest.raises(mnist.Damaged, match="gzip archive is broken"):
        load("mnist")


def test_an_absent_data_set_says_where_it_searched_and_how_to_download_it(folder, tmp_path):
    with pytest.raises(LabError) as caught:
        load("mnist")
    assert str(folder / "MNIST" / "raw") in caught.value.problem
    assert str(tmp_path / "no-such-folder" / "MNIST" / "raw") in caught.value.problem
    assert "hpml-lab data fetch mnist" in caught.value.fix and "HPML_DATA" in caught.value.fix


def test_an_incomplete_folder_is_skipped_and_reported(files, folder, tmp_path, monkeypatch):
    raw = write(folder, files)
    (raw / IMAGES).unlink()
    with pytest.raises(LabError, match=f"lacks {IMAGES}"):
        load("mnist")
    write(tmp_path / "second", files)
    monkeypatch.setattr("hpml_lab.core.system.paths.DATA", tmp_path / "second")
    assert len(load("mnist").train_x) == 6


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_reported(files, folder):
    raw = write(folder, files)
    (raw / IMAGES).chmod(0)
    with pytest.raises(LabError, match="cannot be read"):
        load("mnist")


def test_a_full_temporary_folder_is_reported(files, folder, monkeypatch):
    write(folder, files)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hpml_lab.core.system.files.os.fsync", full)
    with pytest.raises(LabError, match="No space left on device"):
        load("mnist")


def test_a_torchvision_that_does_not_load_sends_to_the_doctor(files, folder, monkeypatch):
    write(folder, files)
    monkeypatch.setitem(sys.modules, "torchvision.datasets", None)  # an import of it now raises
    with pytest.raises(LabError) as caught:
        load("mnist")
    assert "torchvision does not load" in caught.value.problem and "hpml-lab doctor" in caught.value.fix


@pytest.fixture(scope="module")
def real():
    return load("mnist")


@pytest.mark.skipif("HPML_DATA" not in os.environ, reason="set HPML_DATA to a folder that holds the real MNIST")
class TestRealMnist:
    def test_its_sizes_mean_and_deviation_are_the_known_ones(self, real):
        assert real.train_x.shape == (60_000, 1, 28, 28) and real.test_x.shape == (10_000, 1, 28, 28)
        assert float(real.train_x.mean()) == pytest.approx(0.1307, abs=5e-5)
        assert float(real.train_x.std()) == pytest.approx(0.3081, abs=5e-5)
        assert real.test_y[:5].tolist() == [7, 2, 1, 0, 4]
        assert real.train_y.bincount().tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]

    def test_one_epoch_of_a_softmax_regression_learns_it(self, real):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
        for x, y in batches(real.train_x, real.train_y, 128, torch.Generator().manual_seed(0)):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
        accuracy = (net(real.test_x).argmax(1) == real.test_y).float().mean()
        assert accuracy > 0.88

    def test_a_truncated_copy_of_an_archive_is_named(self, tmp_path, monkeypatch):
        shutil.copytree(mnist.find_mnist(), tmp_path / "MNIST" / "raw")
        path = tmp_path / "MNIST" / "raw" / f"{IMAGES}.gz"
        path.write_bytes(path.read_bytes()[:-1000])
        monkeypatch.setenv("HPML_DATA", str(tmp_path))
        with pytest.raises(mnist.Damaged, match=f"{IMAGES}.gz is damaged"):
            load("mnist")


def test_of_an_archive_no_more_is_unpacked_than_mnist_has(files, folder):
    path = folder / "MNIST" / "raw" / "train-images-idx3-ubyte.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(bytes(1 << 26), 9) * 16)  # 1 MB that unpacks to 1 GB
    tracemalloc.start()
    try:
        with pytest.raises(mnist.Damaged, match=r"train-images-idx3-ubyte.gz is damaged \(it would unpack to more than"):
            mnist.read_file(path)
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("end", [b"", b"\0" * 5, b"\0" * 100_000])
def test_an_archive_in_parts_and_with_padding_is_unpacked(end):
    assert gunzip(gzip.compress(b"one ") + gzip.compress(b"two" + bytes(300)) + end, 1000) == b"one two" + bytes(300)
