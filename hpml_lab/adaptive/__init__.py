"""Adaptive optimizers: a learning rate for each parameter (notebook 05).

Experiments, in the order of the notebook:
    adagrad                 a rate for each parameter, that only shrinks
    adadelta                Algorithm 1 line by line, a rate that does not vanish, and the unit of a step
    rmsprop                 RMSprop against Adagrad where the optimum moves
    adam                    the bias correction in the first 50 steps, and Adagrad as a special case
    adamax_nadam            two relatives of Adam, line by line
    optimizer_conformance   every class compared with torch.optim's plain loop
    optimizer_lab           the paths of the optimizer lab compared with those of the classes
Further figures of their results:
    adadelta_lines          the lines of Adadelta's loop over time
    adagrad_from_adam       how far Adam is from Adagrad as β₂ nears 1
To play with:
    lab                     the optimizer lab
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.adaptive.experiments.adagrad import adagrad as adagrad
    from hpml_lab.adaptive.experiments.adadelta import adadelta as adadelta, adadelta_lines as adadelta_lines
    from hpml_lab.adaptive.experiments.rmsprop import rmsprop as rmsprop
    from hpml_lab.adaptive.experiments.adam import adam as adam, adagrad_from_adam as adagrad_from_adam
    from hpml_lab.adaptive.experiments.adamax_nadam import adamax_nadam as adamax_nadam
    from hpml_lab.adaptive.experiments.optimizer_conformance import optimizer_conformance as optimizer_conformance
    from hpml_lab.adaptive.experiments.optimizer_lab import optimizer_lab as optimizer_lab
    from hpml_lab.landscape.optimizer_lab.widget import lab as lab
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
