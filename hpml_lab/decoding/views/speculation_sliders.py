"""Sliders over the gain of speculative decoding: how many proposals are accepted, and what a pass of the draft costs."""

from hpml_lab.core.show.formula_figure import Bars, Choice, FormulaFigure

SHARES = {f"{percent} %": percent / 100 for percent in (10, 20, 30, 40, 50, 60, 70, 75, 80, 85, 90, 95, 98)}
COSTS = {f"{c:.2f}": c for c in (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1)}
KS = tuple(range(1, 13))
ALT = "How many times as fast as by the large net alone text is decoded, for 1 to 12 proposals a pass."


def gain_with(number: int, accepted: float, cost: float) -> float:
    """The gain with as many proposals as the bar stands for; 1 + a + … + aᵏ without powers, which browsers round otherwise."""
    tokens = 1.0
    for _ in range(number + 1):
        tokens = 1 + accepted * tokens
    return tokens / (1 + (number + 1) * cost)


def speculation_sliders(accepted: str = "80 %", cost: str = "0.10") -> FormulaFigure:
    """A bar for each k: times as fast as the large net alone; the dashed line is no gain."""
    choices = [Choice("accepted", SHARES, accepted), Choice("a pass of the draft, in passes of the large net", COSTS, cost)]
    names = [f"k = {k}" for k in KS]
    panel = Bars(names, gain_with, "times as fast as the large net alone", "×", ends=(0, 10), limits={"no gain": 1})
    return FormulaFigure("decoding.speculation_sliders", ALT, choices, [panel])
