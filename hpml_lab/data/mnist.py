"""The real MNIST, read by torchvision's own class from files whose content was verified first."""

import hashlib
import os
import tempfile
from pathlib import Path

import torch

from hpml_lab.core.system.errors import LabError, UnreadableFile
from hpml_lab.core.system.files import atomic_write
from hpml_lab.core.system.paths import data_folders
from hpml_lab.core.system.readers import gunzip, open_file, reader
from hpml_lab.data.dataset import DataSet

# Of the unpacked content: archives of the same content differ in their headers and compression.
SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
LARGEST = 47_040_016  # bytes of the largest of them
FETCH = "run `hpml-lab data fetch mnist`"


class Damaged(UnreadableFile):
    """A file of a data set exists, but its content is not what it should be."""


def torchvision_class() -> type:
    """torchvision's MNIST class; LabError if torchvision does not load."""
    try:
        from torchvision.datasets import MNIST  # here, because this import takes seconds
    except Exception as error:  # a torchvision that does not fit its torch fails in many ways
        raise LabError(
            f"torchvision does not load ({type(error).__name__}: {error}).", "Run `hpml-lab doctor` to see how to fix it."
        ) from error
    return MNIST


def file_of(raw: Path, name: str) -> Path | None:
    """The file that holds `name` in the folder `raw`: unpacked, else gzipped, else None."""
    return next((path for path in (raw / name, raw / f"{name}.gz") if os.path.isfile(path)), None)


def verified(data: bytes, name: str, gzipped: bool) -> bytes:
    """The unpacked content of the MNIST file `name`; ValueError if its sha256 differs."""
    content = gunzip(data, LARGEST) if gzipped else data
    if hashlib.sha256(content).hexdigest() != SHA256[name]:
        raise ValueError(f"the sha256 of its {len(content):,} bytes is wrong")
    return content


@reader("a file of MNIST", f"Delete it, then {FETCH}.")
def read_file(path: Path) -> bytes:
    """The verified content of one of MNIST's files, plain or gzipped. Raises Damaged, naming the file."""
    with open_file(path, None) as file:
        data = file.read(LARGEST + 1)  # one that is longer has another sha256
    try:
        return verified(data, path.name.removesuffix(".gz"), gzipped=path.suffix == ".gz")
    except ValueError as error:
        raise Damaged(f"{path} is damaged ({error}) and was not used.", f"Delete it, then {FETCH}.") from error


def find_mnist() -> Path:
    """The folder `MNIST/raw` of the first data folder that has all four files; LabError lists the folders searched."""
    searched = []
    for folder in data_folders():
        raw = folder / "MNIST" / "raw"
        missing = [name for name in SHA256 if file_of(raw, name) is None]
        if not missing:
            return raw
        searched.append(str(raw) if len(missing) == len(SHA256) else f"{raw} (it lacks {' and '.join(missing)})")
    raise LabError(
        f"MNIST was not found; searched {', then '.join(searched)}.",
        f"To download it, {FETCH}, or set HPML_DATA to a folder that contains MNIST/raw.",
    )


def read_mnist() -> DataSet:
    """MNIST's 60 000 training and 10 000 test images, (N, 1, 28, 28) in 0..1, with their labels.

    The four files may be unpacked or gzipped, and the folder may be read-only. Raises LabError if they are missing, Damaged if
    one is damaged.
    """
    raw = find_mnist()
    mnist = torchvision_class()
    # torchvision reads a copy of the bytes that were verified. In the folder itself it would unpack the archives next to them,
    # and prefer a `processed` folder of its old versions, which nothing verifies.
    with tempfile.TemporaryDirectory(prefix="hpml-mnist-") as folder:
        for name in SHA256:
            atomic_write(Path(folder) / "MNIST" / "raw" / name, read_file(file_of(raw, name)))
        tensors = []
        for train in (True, False):
            split = mnist(folder, train=train, download=False)
            tensors += [split.data.unsqueeze(1).to(torch.float32) / 255, split.targets.to(torch.int64)]
    return DataSet("mnist", *tensors)
