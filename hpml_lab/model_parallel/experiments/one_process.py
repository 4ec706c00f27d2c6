"""The measure against which ranks are held: the same computation on one process, up to rounding in float64."""

from torch import Tensor

BOUND = 1e-12  # relative
NUMBER = 8  # bytes


def relative_difference(found: Tensor, wanted: Tensor) -> float:
    """‖found − wanted‖ / ‖wanted‖."""
    return ((found - wanted).norm() / wanted.norm()).item()
