"""One color, line and marker for each optimizer, the same in every figure of notebooks 04, 05, 06 and 13.

    axes.plot(steps, losses, **optimizer_style("momentum"), label="momentum")

Colors are near Okabe and Ito's and Tol's, which people with common forms of color blindness can tell apart. There are too many
optimizers to rely on color alone, so lines and markers differ as well.
"""

from hpml_lab.core.show import style

OPTIMIZER_COLORS = {
    "SGD": style.INK,
    "momentum": style.BLUE,
    "Nesterov": style.SKY,
    "Adagrad": style.GREEN,
    "Adadelta": style.ORANGE,
    "RMSprop": style.PURPLE,
    "Adam": style.RED,
    "AdamW": "#a8487a",
    "Adamax": "#8f8f1e",
    "NAdam": "#7a5ad0",
    "RAdam": "#2f8aa0",
    "Rprop": "#6f8a3c",
    "Muon": "#b8654a",
    "Adafactor": "#557a95",
    "ASGD": "#7d7d7d",
    "LBFGS": "#946b2d",
    "SparseAdam": "#a06a32",
    "LARS": style.GREEN,
    "LAMB": style.ORANGE,
    "NovoGrad": style.PURPLE,
}
OPTIMIZER_LINES = {
    "SGD": "-",
    "momentum": "--",
    "Nesterov": "-.",
    "Adagrad": "-",
    "Adadelta": "--",
    "RMSprop": (0, (4, 1)),
    "Adam": "-",
    "AdamW": "--",
    "Adamax": "-.",
    "NAdam": (0, (5, 1, 1, 1, 1, 1)),
    "RAdam": (0, (2, 1)),
    "Rprop": (0, (7, 2, 1, 2)),
    "Muon": (0, (5, 2)),
    "Adafactor": (0, (4, 1, 1, 1)),
    "ASGD": (0, (2, 2)),
    "LBFGS": (0, (8, 2)),
    "SparseAdam": (0, (3, 1)),
    "LARS": (0, (6, 1)),
    "LAMB": (0, (3, 1, 1, 1)),
    "NovoGrad": (0, (1, 1)),
}
OPTIMIZER_MARKERS = {
    "SGD": "o",
    "momentum": "s",
    "Nesterov": "v",
    "Adagrad": "^",
    "Adadelta": "D",
    "RMSprop": "P",
    "Adam": "X",
    "AdamW": "<",
    "Adamax": ">",
    "NAdam": "d",
    "RAdam": "H",
    "Rprop": "s",
    "Muon": "D",
    "Adafactor": "^",
    "ASGD": "o",
    "LBFGS": "P",
    "SparseAdam": "p",
    "LARS": "h",
    "LAMB": "*",
    "NovoGrad": "8",
}
_KEYS = {name.lower(): name for name in OPTIMIZER_COLORS} | {"gradient descent": "SGD", "gradient_descent": "SGD"}


def optimizer_key(name: str) -> str:
    """The name under which an optimizer stands in the tables above: of a class, or of a rule in FORMULAS.

    Gradient descent is SGD; the forms of the lecture and of the papers have the name of the rule that they are a form of.
    """
    key = name.split(",")[0].lower()
    for form in ("lecture_", "ruder_", "paper_"):
        key = key.removeprefix(form)
    return _KEYS[key]


def optimizer_style(name: str, marker: bool = False) -> dict:
    """The keyword arguments of `axes.plot` for an optimizer: color and linestyle, and marker if asked for."""
    key = optimizer_key(name)
    look = {"color": OPTIMIZER_COLORS[key], "linestyle": OPTIMIZER_LINES[key]}
    return look | ({"marker": OPTIMIZER_MARKERS[key]} if marker else {})
