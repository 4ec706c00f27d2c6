"""What a new process is to get has to be pickled: which functions it could not find by their names, and what fails."""

import pickle
import sys
from collections.abc import Callable
from multiprocessing import reduction
from traceback import walk_tb
from typing import Any

from hpml_lab.core.system.errors import LabError, error_text


class _ByValue:
    """A function that is pickled with its code."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __reduce__(self) -> tuple:
        import cloudpickle  # here, because most children do not need it

        return pickle.loads, (cloudpickle.dumps(self.function),)


def sendable(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a new process unpickles as `function`: local ones, and those of a program without a file, come with their code."""
    try:
        by_name = pickle.dumps(function)
    except Exception:
        return _ByValue(function)
    nowhere = b"__main__" in by_name and not hasattr(sys.modules["__main__"], "__file__")  # of a cell, or of `python -c`
    return _ByValue(function) if nowhere else function


def failed_to_pickle(error: BaseException) -> bool:
    """Whether an error was raised while multiprocessing pickled what a new process is to get."""
    passed = {frame.f_code for frame, _ in walk_tb(error.__traceback__)}
    return reduction.dump.__code__ in passed and not isinstance(error, OSError | MemoryError)


def cannot_be_sent(what: str, error: BaseException, fix: str) -> LabError:
    """The LabError for what cannot be pickled, and so does not reach another process."""
    return LabError(f"{what} cannot be sent to another process ({type(error).__name__}: {error_text(error)}).", fix)
