"""Numbers as students compute them: of Python, NumPy or torch."""

from typing import Any


def as_number(answer: Any) -> float | None:
    """A number as a float, from Python, NumPy or a one-element tensor; None for anything else."""
    if isinstance(answer, str | bool):
        return None
    try:
        return float(answer.item() if hasattr(answer, "item") else answer)  # an array of one number is a number, too
    except (TypeError, ValueError, RuntimeError):
        return None
