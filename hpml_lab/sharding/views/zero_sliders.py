"""Sliders over ZeRO's formula: how many parameters, how many ranks, and which stages fit into a GPU."""

from hpml_lab.core.show.formula_figure import Bars, Choice, FormulaFigure
from hpml_lab.sharding.lessons.zero import FLOAT32, MIXED, Footprint, zero_formula

SIZES = {f"{n:g} billion": n * 1e9 for n in (0.1, 0.35, 1.5, 3, 7.5, 13, 70, 175, 405, 1000)}
RANKS = {f"{2**power:,}": 2**power for power in range(14)}
PRECISIONS = {"16-bit with float32 copy": MIXED, "float32": FLOAT32}
NAMES = ("0: every rank keeps all", "1: optimizer state sharded", "2: gradients, too", "3: parameters, too")
GPUS = {"24 GB": 24, "141 GB": 141}  # a large consumer's card, and an H200
ALT = "GB that each rank keeps at ZeRO's stages 0 to 3 for a chosen model and number of ranks, next to the memory of GPUs."


def gigabytes(stage: int, parameters: float, ranks: int, whole: Footprint) -> float:
    """What each rank keeps at a stage."""
    kept = zero_formula(stage, ranks, whole)
    return (kept.parameters + kept.gradients + kept.state) * parameters / 1e9


def zero_sliders(
    parameters: str = "7.5 billion", ranks: int = 64, precision: str = "16-bit with float32 copy"
) -> FormulaFigure:
    """A bar for each stage of ZeRO with what each rank keeps, on a scale with the memory of some GPUs."""
    choices = [
        Choice("parameters", SIZES, parameters),
        Choice("ranks", RANKS, f"{ranks:,}"),
        Choice("training in", PRECISIONS, precision, slider=False),
    ]
    label = "GB on each rank, without activations"
    panel = Bars(NAMES, gigabytes, label, "GB", ends=(0.05, 1e5), log=True, limits=GPUS)
    return FormulaFigure("sharding.zero_sliders", ALT, choices, [panel])
