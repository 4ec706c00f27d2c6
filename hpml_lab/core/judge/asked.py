"""An answer as its judge calls it: each call is asked what the exercise declares of it, and what it was given is kept."""

import contextlib
import copy
import functools
import inspect
import random
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from torch.overrides import _len_torch_function_stack
from torch.utils._python_dispatch import _len_torch_dispatch_stack

from hpml_lab.core.judge.declared import difference_in_kind, has_kind, share_memory, tensors_in
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.same import same

OVERWRITTEN = "Two calls return results in the same memory: the second overwrites what the first returned."
RUNS_NOTHING = (
    "A function with `yield` or `async` in it runs none of its lines when it is called: it makes a generator or a coroutine."
    " Let yours `return` its result."
)
LARGE = 1_000_000  # numbers: what is larger is not copied before a call

current: ContextVar["Asked | None"] = ContextVar("current", default=None)  # of the check that runs


class Asked:
    """The calls of one answer in one check.

    given    the arguments of the last call, as they were before it
    count    how many calls there were
    kind     the mistake of the first result that is not of the declared kind, whatever the judge made of it
    later    what is asked when the judge has found nothing: what is right in its cases is tried on others
    shared   a sentence about memory that a result has in common with an argument, or with an earlier result, and must not
    overwritten  the sentence of `shared` where a later call was seen to change what an earlier one had returned
    changed  the name of the first argument that a call changed, though it belongs to the caller; "" if there is none
    seed     of the properties that this check alone has, which no answer can know
    """

    def __init__(self, takes: tuple[str, ...], returns: Any, changes: tuple[str, ...]) -> None:
        self.takes, self.returns, self.changes = takes, returns, changes
        self.given: tuple[Any, ...] | None = None
        self.count, self.changed, self.shared, self.overwritten = 0, "", "", ""
        self.seed = hidden_seed()
        self.kind: Mistake | None = None
        self.later: list[Callable[[], None]] = []
        self.results: deque[Any] = deque(maxlen=3)  # of the last calls

    def around(self, answer: Callable[..., Any]) -> Callable[..., Any]:
        """The answer, whose calls are asked."""

        @functools.wraps(answer, updated=())
        def asked(*arguments: Any, **options: Any) -> Any:
            self.count += 1
            # A mode counts or records what the answer does, and would count the copies.
            watched = _len_torch_function_stack() or _len_torch_dispatch_stack()
            before = arguments if watched else tuple(map(copied, arguments))
            self.given = before if not options else (*before, *options.values())
            kept = [] if watched else self._results_apart_from(arguments)
            result = answer(*arguments, **options)
            if any(not same(one, was) for one, was in kept):
                self.shared = self.overwritten = OVERWRITTEN
            if result is None and self.returns is not None and not _may_be_none(self.returns):
                self._raise("returns-nothing", "Your function returns None: is a `return` missing?")
            named = dict(zip(self.takes, arguments, strict=False)) | options
            found = difference_in_kind(result, self.returns, named)
            if _is_unstarted(result) and (found or self.returns is None):  # behind a wrapper
                self._raise("runs-nothing", RUNS_NOTHING)
            if found:
                if found[0] != "not-new":
                    self._raise(*found)
                self.shared = self.shared or found[1]
            mine = [result] if isinstance(result, list | dict | set) else []
            if any(one is other for one in mine for other in self.results):
                self.shared = "Two calls return the same object: the second changes what the first has returned."
            if has_kind(self.returns, lambda kind: kind.new):
                own, earlier = tensors_in([result]), tensors_in(list(self.results))
                if any(share_memory(one, other) for one in own for other in earlier):
                    self.shared = OVERWRITTEN
            if not any(result is argument for argument in arguments):
                self.results.append(result)
            if not (watched or self.changed):
                self.changed = next(filter(None, map(self._changed, self.takes, before, arguments)), "")
            return result

        return asked

    def _results_apart_from(self, arguments: tuple[Any, ...]) -> list[tuple[Any, Any]]:
        """What the last calls returned, and copies of it, without what lies in memory that this call was given."""
        given = tensors_in(list(arguments))
        return [
            (one, copied(one))
            for one in tensors_in(list(self.results))
            if _is_dense(one) and not any(share_memory(one, other) for other in given)
        ]

    def ran_nothing(self) -> bool:
        """True if what the last calls returned was not gone through, nor awaited, so that no line of the answer has run."""
        return bool(self.results) and all(map(_is_unstarted, self.results))

    def _raise(self, name: str, hint: str) -> None:
        self.kind = self.kind or Mistake(name, hint, self.given)
        raise self.kind

    def _changed(self, name: str, before: Any, now: Any) -> str:
        return "" if name in self.changes or before is now or same(now, before) else name


def _is_dense(value: torch.Tensor | np.ndarray) -> bool:
    """True for numbers that lie one beside the other, so that they can be compared."""
    return value.layout == torch.strided if isinstance(value, torch.Tensor) else value.dtype.kind in "biuf"


def _is_unstarted(result: Any) -> bool:
    """True for what a call of a function with `yield` or `async` in it makes, of which no line has run."""
    if inspect.isgenerator(result):
        return result.gi_code.co_name != "<genexpr>" and inspect.getgeneratorstate(result) == inspect.GEN_CREATED
    return inspect.iscoroutine(result) or inspect.isasyncgen(result)


def _may_be_none(returns: Any) -> bool:
    return returns is object or type(None) in getattr(returns, "__args__", ())


def copied(value: Any) -> Any:
    """A copy of numbers, tensors, arrays and of lists and dictionaries of these, each nan a new object; the rest as it is."""
    if isinstance(value, float) and value != value:
        return float("nan")
    if type(value) in (list, tuple):
        return type(value)(map(copied, value))
    if type(value) is dict:
        return {key: copied(item) for key, item in value.items()}
    if tensors_in(value) and (value.numel() if isinstance(value, torch.Tensor) else value.size) <= LARGE:
        with contextlib.suppress(RuntimeError):  # a tensor with a history
            return copy.deepcopy(value)
    return value


def given_last(otherwise: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of the last call that the running check has made of its answer."""
    asked = current.get()
    return otherwise if asked is None or asked.given is None else asked.given


def names_taken() -> tuple[str, ...]:
    """The names of the arguments in the running check's exercise."""
    asked = current.get()
    return () if asked is None else asked.takes


def keeps_a_dtype() -> bool:
    """True where the running check's exercise promises a result of the dtype of an argument."""
    asked = current.get()
    return asked is not None and has_kind(asked.returns, lambda kind: bool(kind.argument) or isinstance(kind.dtype, str))


def hidden_seed() -> int:
    return random.SystemRandom().getrandbits(32)


def drawn() -> random.Random:
    """Draws the running check's hidden properties, the same each time that they are asked for: no answer can know them."""
    asked = current.get()
    return random.Random(0 if asked is None else asked.seed)


def ask_later(question: Callable[[], None]) -> None:
    """Ask when the judge of the running check has found nothing, so that what it knows of its exercise is said first."""
    asked = current.get()
    if asked is None:
        question()
    else:
        asked.later.append(question)


def value_or_error(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """What a function returns, or the error that it raises."""
    try:
        return function(*arguments)
    except Mistake:  # found by a judge's own function around the answer
        raise
    except Exception as error:
        return error
