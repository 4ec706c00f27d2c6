"""The alpha-beta model to play with: choose the model's size, the link and the number of ranks, and read off the efficiency."""

from hpml_lab.core.show.formula_figure import Bars, Choice, Curves, FormulaFigure
from hpml_lab.distributed.lessons.alpha_beta import (
    ALGORITHMS,
    LINKS,
    NODE,
    NVLINK,
    Interconnect,
    efficiency,
    hierarchical_seconds,
    ring_seconds,
    tree_seconds,
)
from hpml_lab.distributed.tools.extrapolation import COUNTS, GRADIENT_BYTES, STRONG_KIND, WEAK_KIND, compute_seconds

SIZES = {"25 million": 25e6, "124 million": 124e6, "1 billion": 1e9, "8 billion": 8e9, "70 billion": 70e9, "405 billion": 405e9}
ALT = (
    "Left: the seconds of one training step, compute and all-reduce, for three all-reduces on the chosen number of ranks. "
    "Right: the efficiency of each from 1 to 8,192 ranks, with the chosen number marked."
)


def working_seconds(algorithm: int, parameters: float, link: Interconnect, ranks: int, weak: bool) -> float:
    """Of the compute, whatever the all-reduce."""
    return compute_seconds(parameters, ranks, weak)


def waiting_seconds(algorithm: int, parameters: float, link: Interconnect, ranks: int, weak: bool) -> float:
    """Of the all-reduce by its number in ALGORITHMS."""
    nbytes = GRADIENT_BYTES * parameters
    ring_or_tree = ring_seconds(ranks, nbytes, link) if algorithm == 0 else tree_seconds(ranks, nbytes, link)
    return ring_or_tree if algorithm < 2 else hierarchical_seconds(ranks, nbytes, link, NVLINK, NODE)


def percent(algorithm: int, parameters: float, link: Interconnect, ranks: int, weak: bool) -> float:
    """The share of a step in which a rank computes."""
    waiting = waiting_seconds(algorithm, parameters, link, ranks, weak)
    return 100 * efficiency(compute_seconds(parameters, ranks, weak), waiting, 0.0)


def scaling_sliders() -> FormulaFigure:
    """A figure that follows sliders over model size, link and ranks. Nothing overlaps, so real trainings do better."""
    choices = [
        Choice("parameters", SIZES, "8 billion"),
        Choice("link", LINKS, "InfiniBand NDR", slider=False),
        Choice("ranks", {f"{count:,}": count for count in COUNTS}, "1,024"),
        Choice("scaling", {WEAK_KIND: True, STRONG_KIND: False}, WEAK_KIND, slider=False),
    ]
    names, parts = tuple(ALGORITHMS), (working_seconds, waiting_seconds)
    label = "% of a step: compute (gray), all-reduce"
    panels = [
        Bars(names, percent, label, "%", ends=(0, 100), parts=parts, rest=True),
        Curves(names, percent, "efficiency in %", over="ranks", ends=(0, 103)),
    ]
    return FormulaFigure("distributed.scaling_sliders", ALT, choices, panels)
