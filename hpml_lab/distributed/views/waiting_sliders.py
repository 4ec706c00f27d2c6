"""Waiting for all workers, for K, or for none, to play with: choose workers, K and how uneven they are."""

from hpml_lab.core.show.formula_figure import Bars, Choice, Curves, FormulaFigure
from hpml_lab.distributed.lessons.parameter_server import largest_rate, seconds_of_k, seconds_of_one

POLICIES = ("synchronous", "K-synchronous", "asynchronous")
UNEVEN = {f"{mean:g} s": mean for mean in (0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32)}  # beyond the second of each, on average
ALT = (
    "Left: the share of the workers' gradients that updates use, for three policies; asynchronous workers never wait. Right: "
    "the largest rate at which gradients of that age converge on a parabola, as a share of the largest for fresh ones."
)


def used_percent(policy: int, workers: int, quarters: int, straggle: float) -> float:
    """Gradients used a second, in percent of those that the workers could compute if none waited or was stopped."""
    wait = workers * quarters // 4 if policy == 1 else workers
    seconds = seconds_of_one(workers, straggle) if policy == 2 else seconds_of_k(workers, wait, straggle)
    return 100 * (1 if policy == 2 else wait) / seconds / (workers / (1 + straggle))


def rate_percent(policy: int, workers: int, quarters: int, straggle: float) -> float:
    """The largest rate on a parabola, in percent of that of fresh gradients."""
    return 50 * largest_rate(workers - 1 if policy == 2 else 0)


def waiting_sliders() -> FormulaFigure:
    """A figure that follows sliders over the workers, K and how uneven the times of their gradients are."""
    choices = [
        Choice("workers", {str(n): n for n in (4, 8, 16, 32, 64, 128, 256, 512)}, "8"),
        Choice("K", {"a quarter": 1, "half": 2, "three quarters": 3}, "half"),
        Choice("unevenness", UNEVEN, "2 s"),
    ]
    panels = [
        Curves(POLICIES, used_percent, "gradients used, in %", over="unevenness", ends=(0, 105)),
        Bars(POLICIES, rate_percent, "largest rate, in % of that of fresh gradients", "%", ends=(0, 105)),
    ]
    return FormulaFigure("distributed.waiting_sliders", ALT, choices, panels)
