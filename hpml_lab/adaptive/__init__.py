"""Adaptive optimizers: a learning rate for each parameter (notebook 05).

Experiments, in the order of the notebook:
    adagrad                 a rate for each parameter, that only shrinks
    adadelta                Algorithm 1 line by line, a rate that does not vanish, and the unit of a step
    rmsprop                 RMSprop against Adagrad where the optimum moves
    adam                    the bias correction in the first 50 steps, and Adagrad as a special case
    adamax_nadam            two relatives of Adam, line by line
    optimizer_conformance   every class compared with torch.optim's plain loop
    optimizer_lab           the optimizer lab checked: its paths, its single steps, its speed
Further figures of their results:
    adadelta_lines          the lines of Adadelta's loop over time
    adagrad_from_adam       how far Adam is from Adagrad as β₂ nears 1
Tools:
    lab                     the optimizer lab, with its controls
    draw_lab, show_lab      its picture as a matplotlib figure, and with a caption
    conformance             compare the optimizers of any package with torch.optim's, class by class
    compare_with_torch      the same for one input
    run_class, run_formula  an optimizer, or a formula, applied along a stream of gradients
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.adaptive.experiments.adagrad import adagrad as adagrad
    from hpml_lab.adaptive.experiments.adadelta import adadelta as adadelta, adadelta_lines as adadelta_lines
    from hpml_lab.adaptive.experiments.rmsprop import rmsprop as rmsprop
    from hpml_lab.adaptive.experiments.adam import adam as adam, adagrad_from_adam as adagrad_from_adam
    from hpml_lab.adaptive.experiments.adamax_nadam import adamax_nadam as adamax_nadam
    from hpml_lab.adaptive.experiments.optimizer_conformance import (
        optimizer_conformance as optimizer_conformance,
        conformance as conformance,
    )
    from hpml_lab.adaptive.experiments.optimizer_lab import optimizer_lab as optimizer_lab
    from hpml_lab.adaptive.lab_widget import lab as lab, draw_lab as draw_lab, show_lab as show_lab
    from hpml_lab.adaptive.torch_comparison import compare_with_torch as compare_with_torch
    from hpml_lab.adaptive.streams import run_class as run_class, run_formula as run_formula
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
