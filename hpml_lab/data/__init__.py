"""Data sets as tensors that are already on the device, and batches that are index slices of them.

load             a data set by name: "digits" (ships with scikit-learn) or "mnist" (`hpml-lab data fetch mnist`)
mnist_or_digits  MNIST, or digits where it was not fetched, and the note that says so
DataSet          images and labels, split into train and test
batches          one epoch of shuffled batches
"""

from hpml_lab.data.batches import batches
from hpml_lab.data.dataset import DataSet
from hpml_lab.data.sets import load, mnist_or_digits

__all__ = ["DataSet", "batches", "load", "mnist_or_digits"]
