"""What runs next to somebody's program, or after it, cannot change its end: each failure of ours is one line, and no more."""

import contextlib
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import TypeVar

from hpml_lab.core.system.attempt import error_message_of
from hpml_lab.core.system.errors import LabError

LONGEST = 300  # characters of an error that somebody else's library has written
Answer = TypeVar("Answer")


def say(text: str) -> None:
    """Write to stderr, which may be closed, full, or a pipe that nobody reads; each line says that it is not the program's."""
    with contextlib.suppress(Exception):
        print(textwrap.indent(text, "hpml-lab: ", lambda line: True), file=sys.stderr, flush=True)


@contextlib.contextmanager
def never_fatal(what: str, tell: Callable[[str], object] = say) -> Iterator[None]:
    """An error of the block is reported in one line, which begins with `what`; an interrupt is passed on."""
    try:
        yield
    except Exception as error:
        tell(f"{what} ({cause_of(error)}).")


def cause_of(error: BaseException) -> str:
    """An error in one line, without a full stop at its end."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    try:
        text = error.problem if isinstance(error, LabError) else error_message_of(error)
    except Exception:  # its own __str__ raises
        text = type(error).__name__
    return printable(" ".join(text.split())[:LONGEST]).rstrip(".")


def printable(text: str) -> str:
    """The text with ? for what is no text: arguments and file names are bytes, which need not be UTF-8 as pages must be."""
    return text.encode("utf-8", "replace").decode("utf-8")


class Notes:
    """Collects what failed, once each; `str` gives them as sentences."""

    def __init__(self, *first: str) -> None:
        self._lines = {line: line for line in first if line}

    def add(self, line: str) -> None:
        self._lines.setdefault(line, line)

    def step(self, what: str) -> contextlib.AbstractContextManager[None]:
        """A block whose failure is noted."""
        return never_fatal(what, lambda line: self._lines.setdefault(what, line))

    def ask(self, what: str, question: Callable[[], Answer]) -> Answer | None:
        """The answer, or None, which is noted."""
        with self.step(what):
            return question()
        return None

    def __str__(self) -> str:
        return " ".join(self._lines.values())
