"""The optimizers, from scratch: formulas as printed, and classes that agree with torch.optim to the bit."""

from hpml_lab.optim.adadelta import Adadelta
from hpml_lab.optim.adagrad import Adagrad
from hpml_lab.optim.adam import Adam
from hpml_lab.optim.adamax import Adamax
from hpml_lab.optim.adamw import AdamW
from hpml_lab.optim.nadam import NAdam
from hpml_lab.optim.rmsprop import RMSprop
from hpml_lab.optim.sgd import SGD
from hpml_lab.optim.sparse_adam import SparseAdam

__all__ = ["SGD", "Adagrad", "Adadelta", "Adam", "AdamW", "Adamax", "NAdam", "RMSprop", "SparseAdam"]
