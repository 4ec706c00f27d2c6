"""Runs a line that is expected to fail, such as a lecture's dead API, and returns what it raised."""

from collections.abc import Callable

EXPECTED = (RuntimeError, AttributeError)  # NotImplementedError is a RuntimeError


def attempt(work: Callable[[], object], expected: tuple[type[Exception], ...] = EXPECTED) -> str:
    """The type and the first sentence of the error that `work()` raises, if it is one of `expected`, or "works"."""
    try:
        work()
    except expected as error:
        return error_message_of(error).split(". ")[0][: len(f"{type(error).__name__}: ") + 100]
    return "works"


def error_message_of(error: Exception) -> str:
    """An error's type and the first line of its text; a bare `raise NotImplementedError` or `assert` has no text."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
