"""`sendable-work`: a work function with a parameter that pickles by names which any process can import."""

import contextlib
import functools
import pickle
import pickletools
import types
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect
from hpml_lab.core.judge.mistake import Mistake


@exercise("sendable-work", notebook="07_processes", takes="factor", returns=Callable)
def judge_sendable_work(answer: Callable) -> None:
    """Send the work as a queue would, and call what arrives."""
    made = {factor: answer(factor) for factor in (3, 0, -0.5, 10)}
    for work in made.values():
        if not _can_be_sent(work):
            raise _why_not(work)
    received = {factor: pickle.loads(ForkingPickler.dumps(work)) for factor, work in made.items()}
    if _needs_both(received[3]):
        raise Mistake("factor-not-bound", "What scaler(3) returns needs one argument, not both numbers: bind the factor.")
    if received[3](7) == 70:
        raise Mistake(
            "one-factor-for-all", "scaler(10) must not change what scaler(3) does: the factor has to travel with the work."
        )
    if received[10](7) == received[3](7) == 21:
        raise Mistake("always-by-3", "scaler(10)(7) is 70: the factor is the argument, not always 3.")
    for factor, work in received.items():
        for x in (7, 0.5):
            expect(
                work(x),
                factor * x,
                case=f"scaler({factor})({x}), as the worker receives it",
                mistakes={
                    "factor-forgotten": (x if factor else None, "It returns its argument unchanged: where is the factor?"),
                    "zero-as-nothing": (x, "0 is a factor, too: `factor or …`, or `if factor`, takes it for no factor at all."),
                    "adds": (factor + x, "It adds; the product is wanted."),
                    "power": (x**factor if factor else None, "It raises to a power; the product is wanted."),
                    "power, of the factor": (factor**x if factor > 0 else None, "It raises to a power; the product is wanted."),
                    "divides": (x / factor if factor else None, "It divides; the product is wanted."),
                    "divides, the factor": (factor / x, "It divides; the product is wanted."),
                    "subtracts": (x - factor, "It subtracts; the product is wanted."),
                    "integers-only": (NotImplemented, f"For {x} it returns NotImplemented: int.__mul__ knows integers only."),
                },
            )


def _needs_both(work: Callable) -> bool:
    """True for work that fails with one argument and multiplies two."""
    try:
        work(7)
    except TypeError:
        with contextlib.suppress(Exception):
            return bool(work(3, 7) == 21)
    return False


def _can_be_sent(item: Any) -> bool:
    """True if it pickles, and nothing in the message names this process's __main__, which a spawned worker does not share."""
    try:
        message = bytes(ForkingPickler.dumps(item))
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    words = [word for _, word, _ in pickletools.genops(message)]
    return "__main__" not in words and not any(isinstance(word, str) and word.startswith("__main__ ") for word in words)


def _why_not(item: Any) -> Mistake:
    """The mistake in a work function that cannot be sent."""
    if isinstance(item, functools.partial):
        parts = [item.func, *item.args, *item.keywords.values()]
        return _why_not(next((part for part in parts if not _can_be_sent(part)), item.func))
    if isinstance(item, types.MethodType):
        return _why_not(item.__self__)
    if isinstance(item, types.FunctionType) and item.__name__ == "<lambda>":
        return Mistake(
            "pickled-lambda", "A lambda has no name under which the worker could import it. Which objects do have one?"
        )
    kind = item if isinstance(item, types.FunctionType | type) else type(item)
    if "<locals>" in kind.__qualname__:
        return Mistake(
            "pickled-closure",
            f"{kind.__qualname__} is defined inside a function call: pickle sends a function as its module and name, and a"
            " worker cannot import this one. functools.partial and the module `operator` build work that can be sent.",
        )
    if kind.__module__ == "__main__" or (kind is item and not _can_be_sent(kind)):
        return Mistake(
            "lives-in-the-notebook",
            "Code that is in the notebook is in __main__. A spawned worker has another __main__ and does not find it: build "
            "on functions of a module.",
        )
    return Mistake("holds-what-cannot-be-sent", "All that travels must be picklable, which a lock, a file or a thread is not.")
