"""The data sets of the workbook by name."""

import torch

from hpml_lab.core.system.errors import LabError
from hpml_lab.data.dataset import DataSet
from hpml_lab.data.mnist import read_mnist

NAMES = ("digits", "mnist")


def load(name: str = "digits", device: torch.device | str = "cpu") -> DataSet:
    """Load a data set: "digits" (1 797 images of 8 × 8, from scikit-learn) or "mnist" (70 000 of 28 × 28, if downloaded).

    Raises LabError for an unknown name, and for MNIST files that are missing or damaged.
    """
    if name == "digits":
        data = _digits()
    elif name == "mnist":
        data = read_mnist()
    else:
        raise LabError(f"no data set is called {name!r}.", f"Use {' or '.join(NAMES)}.")
    return data.to(device)


def mnist_or_digits(device: torch.device | str = "cpu") -> tuple[DataSet, list[str]]:
    """MNIST, or digits where MNIST cannot be read; and the notes of a result that used digits: what to do."""
    try:
        return load("mnist", device), []
    except LabError as error:
        return load("digits", device), [f"scikit-learn's digits stand in for MNIST. {error.fix}"]


def _digits() -> DataSet:
    from sklearn.datasets import load_digits

    raw = load_digits()
    images = torch.tensor(raw.images, dtype=torch.float32).unsqueeze(1) / 16  # scikit-learn's pixels range from 0 to 16
    labels = torch.tensor(raw.target, dtype=torch.int64)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))  # the split is always the same
    train, test = order[:1300], order[1300:]
    return DataSet("digits", images[train], labels[train], images[test], labels[test])
