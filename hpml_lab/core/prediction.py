"""Predict, then measure: a number that the student commits to before an expensive cell."""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

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
        if isinstance(self.guess, bool) or not isinstance(self.guess, Real) or not 0 < self.guess < math.inf:
            return f"A prediction is one positive number in {self.unit}; {self.guess!r} is not."
        guess = f"You predicted {float(self.guess):g} {self.unit}"
        if math.isnan(self.measured):
            return f"{guess}; here it was not measured: see the notes of the result above."
        if not self.measured > 0 and not self.unit.startswith("%"):
            return f"{guess}; it is {self.measured:.3g} {self.unit}."
        return f"{guess}; it is {self.measured:.3g} {self.unit}: {self._distance}."

    @property
    def _distance(self) -> str:
        if self.unit.startswith("%"):  # shares are compared by difference: 78 % for 96.9 % is not close
            points = abs(self.guess - self.measured)
            return "very close" if points < 3 else f"{points:.3g} percentage points apart"
        factor = max(self.guess / self.measured, self.measured / self.guess)
        return "very close" if factor < 1.25 else f"a factor of {factor:.3g} apart"


def predicted(guess: Any, measured: float, unit: str) -> Prediction:
    """Compare a prediction (made before the expensive cell) with what was measured; `...` means that none was made.

    Percentages (a unit that starts with %) are compared by difference, other numbers by ratio.
    """
    return Prediction(plain(guess), float(measured), unit)
