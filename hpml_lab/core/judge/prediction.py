"""Predict, then measure: a number that the student commits to before an expensive cell."""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

from hpml_lab.core.experiment import kept
from hpml_lab.core.judge.same import plain

CLOSE, POINTS = 1.25, 3  # "very close": a factor; for a share a difference
NOTHING_YET = "No prediction yet: replace the ... above with your number and run both cells again."
LID = "Your answer first. Then open."  # stored in front of a collapsed output, of which JupyterLab shows the first line


@dataclass(frozen=True)
class Prediction:
    """A number that the student committed to, compared with what was then measured."""

    guess: Any
    measured: float
    unit: str

    def __repr__(self) -> str:
        if self.guess is ...:
            return NOTHING_YET
        if not self.is_number:
            return f"A prediction is one positive number in {self.unit}; {self.guess!r} is not."
        guess = f"You predicted {float(self.guess):g} {self.unit}"
        if math.isnan(self.measured):
            return f"{guess}; here it was not measured: see the notes of the result above."
        distance = f": {self.distance}" if self.distance else ""
        return f"{guess}; it is {self.measured:.3g} {self.unit}{distance}."

    @property
    def is_number(self) -> bool:
        """Whether the guess is one positive number."""
        try:
            return not isinstance(self.guess, bool) and isinstance(self.guess, Real) and 0 < float(self.guess) < math.inf
        except OverflowError:  # an integer that no float can hold
            return False

    @property
    def is_share(self) -> bool:
        """Whether it is a percentage: shares are compared by difference, because 78 % for 96.9 % is not close."""
        return self.unit.startswith("%")

    @property
    def factor(self) -> float | None:
        """How many times too high or too low the guess is; None for a share, and where nothing positive was measured."""
        if self.is_share or not self.measured > 0:
            return None
        return max(self.guess / self.measured, self.measured / self.guess)

    @property
    def is_close(self) -> bool:
        if self.is_share:
            return abs(self.guess - self.measured) < POINTS
        return self.factor is not None and self.factor < CLOSE

    @property
    def distance(self) -> str:
        """How far the guess is from what was measured, in words; "" where a distance has no meaning."""
        if self.is_close:
            return "very close"
        if self.is_share:
            return f"{abs(self.guess - self.measured):.3g} percentage points apart"
        return "" if self.factor is None else f"a factor of {self.factor:.3g} apart"


def predicted(guess: Any, measured: float, unit: str) -> Prediction:
    """Compare a prediction (made before the expensive cell) with what was measured; `...` means that none was made.

    Percentages (a unit that starts with %) are compared by difference, other numbers by ratio. In a notebook the prediction
    is kept for the report, as the results are.
    """
    prediction = Prediction(plain(guess), float(measured), unit)
    if prediction.is_number and math.isfinite(prediction.measured):
        kept.keep_prediction(float(prediction.guess), prediction.measured, unit)
    return prediction
