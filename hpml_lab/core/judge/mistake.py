"""What a judge raises: a mistake of the answer, or that it cannot be checked here."""

from typing import Any

SEEN = " || "  # in a hint: what is in front of it is said only of an answer that was seen


class Mistake(Exception):
    """Raised by a judge: the known mistake's name, and a hint that leads on without giving the answer away.

    `hint()` shows the same text to a student whose answer nobody has seen, so write it as a rule ("ε is added to the root") or
    in two parts, "Your mean is right. || ε is added to the root.", of which it shows the last.
    `given` are the arguments of the call that shows the mistake, where there is one: `answer(*given)`.
    """

    def __init__(self, name: str, hint: str, given: tuple[Any, ...] | None = None) -> None:
        self.name, self.hint, self.given = name, hint.replace(SEEN, " "), given
        super().__init__(f"{name}: {self.hint}")


class CannotCheck(Exception):
    """Raised by a judge on a system that lacks what the check needs: why, and what to do. It is no mistake of the answer."""
