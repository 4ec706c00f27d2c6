"""Data sets as tensors that are already on the device, and batches that are index slices of them.

load             a data set by name: "digits" (ships with scikit-learn) or "mnist" (`hpml-lab data fetch mnist`)
mnist_or_digits  MNIST, or digits where it was not fetched, and the note that says so
DataSet          images and labels, split into train and test
batches          one epoch of shuffled batches
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.data.dataset import DataSet as DataSet
    from hpml_lab.data.sets import load as load, mnist_or_digits as mnist_or_digits
    from hpml_lab.data.shuffled import batches as batches
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
