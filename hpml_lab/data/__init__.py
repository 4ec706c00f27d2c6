"""Data sets as tensors that are already on the device, and batches that are index slices of them.

load      a data set by name: "digits" (ships with scikit-learn) or "mnist" (`hpml-lab data fetch mnist`)
DataSet   images and labels, split into train and test
batches   one epoch of shuffled batches
"""

from hpml_lab.data.batches import batches
from hpml_lab.data.dataset import DataSet
from hpml_lab.data.sets import load

__all__ = ["DataSet", "batches", "load"]
