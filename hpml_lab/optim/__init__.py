"""The optimizers, written from scratch: formulas as printed, and classes that agree bitwise with torch.optim.

Classes with torch.optim's names, options, `param_groups` and `state_dict`; `optimizer.explain()` shows formula and state:
    SGD, Adagrad, Adadelta, Adam, AdamW, Adamax, NAdam, RMSprop, SparseAdam, Muon
and three for large batches, which torch.optim does not have:
    LARS, LAMB, NovoGrad
    matrices_and_rest   parameter groups: biases and norms without decay and trust ratio
Formulas:
    FORMULAS            each update rule, one line of code for each line of the formula, and the forms of the lecture
Learning-rate schedules:
    SCHEDULES           the factor on the learning rate before each step, equal to torch's schedulers
For figures:
    OPTIMIZER_COLORS    one color per optimizer
    optimizer_style     its color, line and marker as keyword arguments of `axes.plot`
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.optim.sgd import SGD as SGD
    from hpml_lab.optim.adagrad import Adagrad as Adagrad
    from hpml_lab.optim.adadelta import Adadelta as Adadelta
    from hpml_lab.optim.adam import Adam as Adam
    from hpml_lab.optim.adamw import AdamW as AdamW
    from hpml_lab.optim.adamax import Adamax as Adamax
    from hpml_lab.optim.nadam import NAdam as NAdam
    from hpml_lab.optim.rmsprop import RMSprop as RMSprop
    from hpml_lab.optim.sparse_adam import SparseAdam as SparseAdam
    from hpml_lab.optim.muon import Muon as Muon
    from hpml_lab.optim.lars import LARS as LARS
    from hpml_lab.optim.lamb import LAMB as LAMB
    from hpml_lab.optim.novograd import NovoGrad as NovoGrad
    from hpml_lab.optim.machinery.layerwise import matrices_and_rest as matrices_and_rest
    from hpml_lab.optim.formulas.by_name import FORMULAS as FORMULAS
    from hpml_lab.optim.schedules import SCHEDULES as SCHEDULES
    from hpml_lab.optim.formulas.colors import OPTIMIZER_COLORS as OPTIMIZER_COLORS, optimizer_style as optimizer_style
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
