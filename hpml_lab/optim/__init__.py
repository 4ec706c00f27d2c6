"""The optimizers, written from scratch: formulas as printed, and classes that agree bitwise with torch.optim.

Classes with torch.optim's names, options, `param_groups` and `state_dict`; `optimizer.explain()` shows formula and state:
    SGD, Adagrad, Adadelta, Adam, AdamW, Adamax, NAdam, RMSprop, SparseAdam
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

from hpml_lab.core.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "sgd": ["SGD"],
        "adagrad": ["Adagrad"],
        "adadelta": ["Adadelta"],
        "adam": ["Adam"],
        "adamw": ["AdamW"],
        "adamax": ["Adamax"],
        "nadam": ["NAdam"],
        "rmsprop": ["RMSprop"],
        "sparse_adam": ["SparseAdam"],
        "lars": ["LARS"],
        "lamb": ["LAMB"],
        "novograd": ["NovoGrad"],
        "layerwise": ["matrices_and_rest"],
        "formulas": ["FORMULAS"],
        "schedules": ["SCHEDULES"],
        "colors": ["OPTIMIZER_COLORS", "optimizer_style"],
    },
)
