"""Data sets as tensors that already lie on the device, and batches that are index slices of them."""

from hpml_lab.data.batches import batches
from hpml_lab.data.dataset import DataSet
from hpml_lab.data.sets import load

__all__ = ["DataSet", "batches", "load"]
