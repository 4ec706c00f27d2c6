"""Runs a line that is expected to fail, such as a lecture's dead API, and tells what it raised."""

from collections.abc import Callable


def attempt(work: Callable[[], object]) -> str:
    """The type and the first sentence of the RuntimeError or AttributeError that `work()` raises, or "works"."""
    try:
        work()
    except (RuntimeError, AttributeError) as error:  # NotImplementedError is a RuntimeError
        first = str(error).partition("\n")[0].split(". ")[0][:100]
        return f"{type(error).__name__}: {first}" if first else type(error).__name__  # `raise NotImplementedError` has no text
    return "works"
