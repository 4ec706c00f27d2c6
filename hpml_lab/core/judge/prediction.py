"""Predict, then measure: a number that the student commits to before an expensive cell."""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

from hpml_lab.core.experiment import results_folder
from hpml_lab.core.judge.same import plain
from hpml_lab.core.show.numbers import number

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
            return f"A prediction is {self.kind}; {self.guess!r} is not."
        guess = f"You predicted {number(float(self.guess))} {self.unit}"
        if math.isnan(self.measured):
            return f"{guess}; here it was not measured: see the notes of the result above."
        distance = f": {self.distance}" if self.distance else ""
        return f"{guess}; it is {number(self.measured, 3)} {self.unit}{distance}."

    @property
    def kind(self) -> str:
        """Which numbers a prediction in this unit can be, in words."""
        if self.is_ratio:
            return f"one positive number in {self.unit}, where 1 is no difference"
        return f"one number {'from 0 to 100 ' * self.is_part}in {self.unit}{', 0 or more' * (not self.is_share)}"

    @property
    def is_number(self) -> bool:
        """Whether the guess is one number that a prediction in this unit can be."""
        try:
            guess = math.nan if isinstance(self.guess, bool) or not isinstance(self.guess, Real) else float(self.guess)
        except OverflowError:  # an integer that no float can hold
            return False
        if self.is_share:
            return 0 <= guess <= 100 if self.is_part else math.isfinite(guess)
        return 0 <= guess < math.inf and not (self.is_ratio and guess == 0)

    @property
    def is_ratio(self) -> bool:
        """Whether it is how many times as large something is: never 0, unlike a number of calls or of seconds."""
        return self.unit.startswith(("times", "×"))

    @property
    def is_share(self) -> bool:
        """Whether it is a percentage: shares are compared by difference, because 78 % for 96.9 % is not close."""
        return self.unit.startswith("%")

    @property
    def is_part(self) -> bool:
        """Whether it is a percentage of a whole; one in bare % may also be a change, below 0 or beyond 100."""
        return self.unit.startswith("% of")

    @property
    def factor(self) -> float | None:
        """How many times too high or too low the guess is; None for a share, and where one of the two numbers is 0."""
        if self.is_share or not (self.guess > 0 and self.measured > 0):
            return None
        return max(self.guess / self.measured, self.measured / self.guess)

    @property
    def is_close(self) -> bool:
        if self.is_share:
            return abs(self.guess - self.measured) < POINTS
        return self.guess == self.measured or self.factor is not None and self.factor < CLOSE

    @property
    def distance(self) -> str:
        """How far the guess is from what was measured, in words; "" where a distance has no meaning."""
        if self.is_close:
            return "very close"
        if self.is_share:
            return f"{number(abs(self.guess - self.measured), 3)} percentage points apart"
        return "" if self.factor is None else f"a factor of {number(self.factor, 3)} apart"


def predicted(guess: Any, measured: float, unit: str) -> Prediction:
    """Compare a prediction (made before the expensive cell) with what was measured; `...` means that none was made.

    Percentages (a unit that starts with %) are compared by difference, other numbers by ratio. 0 is a guess in every unit but a
    ratio's ("times", "×"); "% of …" ends at 100; a number below 0 is a guess in bare % alone, where it may be a change. In a
    notebook the prediction is kept for the report, as the results are.
    """
    prediction = Prediction(plain(guess), float(measured), unit)
    if prediction.is_number and math.isfinite(prediction.measured):
        results_folder.keep_prediction(float(prediction.guess), prediction.measured, unit)
    return prediction
