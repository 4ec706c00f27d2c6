"""Predict, then measure: a number that the student commits to before an expensive cell."""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

from hpml_lab.core import kept
from hpml_lab.core.same import plain


@dataclass(frozen=True)
class Prediction:
    """A number that the student committed to, compared with what was then measured."""

    guess: Any
    measured: float
    unit: str

    def __repr__(self) -> str:
        if self.guess is ...:
            return "No prediction yet: replace the ... above with your number and run both cells again."
        if not self.is_number:
            return f"A prediction is one positive number in {self.unit}; {self.guess!r} is not."
        guess = f"You predicted {float(self.guess):g} {self.unit}"
        if math.isnan(self.measured):
            return f"{guess}; here it was not measured: see the notes of the result above."
        if not self.measured > 0 and not self.is_share:
            return f"{guess}; it is {self.measured:.3g} {self.unit}."
        return f"{guess}; it is {self.measured:.3g} {self.unit}: {self.distance}."

    @property
    def is_number(self) -> bool:
        """Whether the guess is one positive number."""
        return not isinstance(self.guess, bool) and isinstance(self.guess, Real) and 0 < self.guess < math.inf

    @property
    def is_share(self) -> bool:
        """Whether it is a percentage: shares are compared by difference, because 78 % for 96.9 % is not close."""
        return self.unit.startswith("%")

    @property
    def distance(self) -> str:
        """How far the guess is from what was measured, in words."""
        if self.is_share:
            points = abs(self.guess - self.measured)
            return "very close" if points < 3 else f"{points:.3g} percentage points apart"
        factor = max(self.guess / self.measured, self.measured / self.guess)
        return "very close" if factor < 1.25 else f"a factor of {factor:.3g} apart"


def predicted(guess: Any, measured: float, unit: str) -> Prediction:
    """Compare a prediction (made before the expensive cell) with what was measured; `...` means that none was made.

    Percentages (a unit that starts with %) are compared by difference, other numbers by ratio. In a notebook the prediction
    is kept for the report, as the results are.
    """
    prediction = Prediction(plain(guess), float(measured), unit)
    if prediction.is_number and math.isfinite(prediction.measured):
        kept.keep_prediction(float(prediction.guess), prediction.measured, unit)
    return prediction
