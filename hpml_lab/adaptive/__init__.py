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

from hpml_lab.core.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "experiments.adagrad": ["adagrad"],
        "experiments.adadelta": ["adadelta", "adadelta_lines"],
        "experiments.rmsprop": ["rmsprop"],
        "experiments.adam": ["adam", "adagrad_from_adam"],
        "experiments.adamax_nadam": ["adamax_nadam"],
        "experiments.optimizer_conformance": ["optimizer_conformance", "conformance"],
        "experiments.optimizer_lab": ["optimizer_lab"],
        "lab_widget": ["lab", "draw_lab", "show_lab"],
        "torch_comparison": ["compare_with_torch"],
        "streams": ["run_class", "run_formula"],
    },
)
