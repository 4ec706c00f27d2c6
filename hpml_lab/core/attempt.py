"""Runs a line that is expected to fail, such as a lecture's dead API, and returns what it raised."""

from collections.abc import Callable


def attempt(work: Callable[[], object]) -> str:
    """The type and the first sentence of the RuntimeError or AttributeError that `work()` raises, or "works"."""
    try:
        work()
    except (RuntimeError, AttributeError) as error:  # NotImplementedError is a RuntimeError
        return error_message_of(error).split(". ")[0][: len(f"{type(error).__name__}: ") + 100]
    return "works"


def error_message_of(error: Exception) -> str:
    """An error's type and the first line of its text; a bare `raise NotImplementedError` or `assert` has no text."""
    text = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
