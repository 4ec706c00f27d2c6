"""The reader's predictions, how close they were, and what they have in common."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from hpml_lab.core.experiment.render import plural
from hpml_lab.core.experiment.results_folder import read_predictions
from hpml_lab.core.judge.prediction import Prediction
from hpml_lab.core.show.numbers import number
from hpml_lab.report.notebook_texts import Question, questions

WIDEST = 1.0  # the scale of the page goes from a tenth to ten times what was measured


@dataclass(frozen=True)
class Guess:
    """A prediction with its question."""

    question: Question
    prediction: Prediction
    size: str

    @property
    def here(self) -> tuple[str, str]:
        """The guess and what was measured, with the unit."""
        return tuple(
            f"{number(float(value), 3)} {self.prediction.unit}" for value in (self.prediction.guess, self.prediction.measured)
        )

    @property
    def position(self) -> float:
        """Where the guess is on a scale from 0 to 100 with what was measured in the middle: factors by their logarithm, shares
        by their points; at an end if one of the two is 0."""
        guess, measured = self.prediction.guess, self.prediction.measured
        if self.prediction.is_share:
            offset = (guess - measured) / 100
        elif self.prediction.factor is None:
            offset = (guess > measured) - (guess < measured)
        else:
            offset = (math.log10(guess) - math.log10(measured)) / WIDEST
        return 50 + 50 * min(1.0, max(-1.0, offset))


def read_guesses(folder: Path) -> list[Guess]:
    """The predictions that notebooks kept in `folder`, in the order of the notebooks."""
    known = questions()
    order = list(known)
    found = []
    for item in read_predictions(folder):
        asked = known.get(item["cell"], Question("", str(item.get("slug", "")), ""))
        prediction = Prediction(item["guess"], item["measured"], item["unit"])
        if prediction.is_number:
            found.append(Guess(asked, prediction, str(item.get("size", ""))))
    places = {question: order.index(cell) for cell, question in known.items()}
    return sorted(found, key=lambda guess: places.get(guess.question, len(order)))


def summary(guesses: Sequence[Guess]) -> str:
    """One paragraph about all predictions: how many were close, the typical factor, and on which side they lie."""
    close = sum(guess.prediction.is_close for guess in guesses)
    high = sum(guess.prediction.guess > guess.prediction.measured for guess in guesses)
    words = [f"{plural(len(guesses), 'prediction')}, {close} of them very close."]
    if factors := [guess.prediction.factor for guess in guesses if guess.prediction.factor]:
        words.append(f"Half of the guessed ratios and amounts are within a factor of {number(median(factors), 3)}.")
    if shares := [abs(guess.prediction.guess - guess.prediction.measured) for guess in guesses if guess.prediction.is_share]:
        words.append(f"Half of the guessed percentages are within {number(median(shares), 3)} points.")
    words.append(f"{high} were too high, {len(guesses) - high} too low or exact.")
    return " ".join(words)
