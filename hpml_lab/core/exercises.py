"""Exercises: a check never raises and never changes what it is given; it says *not yet*, *right*, or which mistake was made.

In a topic's `exercises`:

    @exercise("outer-sum", notebook="01_tensors")
    def judge_outer_sum(answer):
        expect_function(
            answer,
            lambda a, b: a[:, None] + b,
            {"a = [1, 2], b = [10, 20, 30]": (a, b)},
            mistakes={"transposed": (lambda a, b: a + b[:, None], "Row i belongs to a[i]: …")},
        )

In the notebook: `check("outer-sum", outer_sum)`.
"""

import ast
import copy
import difflib
import html
import inspect
import linecache
import textwrap
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_origin

import torch

from hpml_lab.core import style
from hpml_lab.core.errors import LabError
from hpml_lab.core.memory import REMEMBERS, FunctionMemory
from hpml_lab.core.render import prose_html
from hpml_lab.core.same import difference, largest_of, numbers, plain, same
from hpml_lab.core.time_limit import TimeLimitReached, time_limit
from hpml_lab.core.topics import import_topics
from hpml_lab.core.unchanged import unchanged
from hpml_lab.core.watch import is_students, torch_calls, watch

CPU_SECONDS = 10.0  # of one check, of which the slowest takes 0.6; not of the clock, so that a busy machine changes nothing
WALL_SECONDS = 10 * CPU_SECONDS  # for an answer that waits
MESSAGE_CHARACTERS = 2000  # a message may quote what the answer gave


class Mistake(Exception):
    """Raised by a judge: the known mistake's name, and a hint that leads on without giving the answer away."""

    def __init__(self, name: str, hint: str) -> None:
        super().__init__(f"{name}: {hint}")
        self.name, self.hint = name, hint


@dataclass(frozen=True)
class Verdict:
    """What a check says: `state` is "not yet", "right", or "mistake"; `mistake` is the mistake's name."""

    exercise: str
    state: str
    message: str
    mistake: str = ""

    def __bool__(self) -> bool:
        return self.state == "right"

    def __repr__(self) -> str:
        found = f" ({self.mistake})" if self.mistake else ""
        return f"{self.exercise}: {self.state}{found}. {self.message}"

    def _repr_html_(self) -> str:
        color = {"not yet": style.GREY, "right": style.GREEN, "mistake": style.RED}[self.state]
        found = f" <code>{html.escape(self.mistake)}</code>" if self.mistake else ""
        return (
            f'<div role="status" style="border-left:4px solid {color};padding:.3em .8em">'
            f"<b>{self.exercise}: {self.state}</b>{found}. {prose_html(self.message)}</div>"
        )


@dataclass(frozen=True)
class Exercise:
    """One exercise: its judge returns for a right answer and raises Mistake for any other."""

    name: str
    notebook: str
    judge: Callable[[Any], None]


_REGISTRY: dict[str, Exercise] = {}


def exercise(name: str, *, notebook: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Register a judge as the exercise `name` of `notebook`."""

    def register(judge: Callable[[Any], None]) -> Callable[[Any], None]:
        if name in _REGISTRY:
            raise ValueError(f"two exercises are called {name!r}")
        _REGISTRY[name] = Exercise(name, notebook, judge)
        return judge

    return register


def all_exercises() -> list[Exercise]:
    """All exercises, in the order of the notebooks."""
    import_topics("exercises")
    return sorted(_REGISTRY.values(), key=lambda found: found.notebook)


def check(name: str, answer: Any) -> Verdict:
    """Judge `answer`, the very object that the student made, and say what was found.

    Raises only for a name that is no exercise (LabError): that is a mistake in the notebook, not in the answer.
    """
    all_exercises()
    if name not in _REGISTRY:
        near = difflib.get_close_matches(name, _REGISTRY, n=1)
        raise LabError(f"no exercise is called {name!r}.", f"Did you mean {near[0]}?" if near else "")
    try:
        with unchanged(), time_limit(CPU_SECONDS, WALL_SECONDS):
            return _judged(_REGISTRY[name], answer)
    except KeyboardInterrupt:  # the reader's stop button
        raise
    except TimeLimitReached as limit:
        line = _line_of(limit) or ""
        hint = f"Your code computed for {CPU_SECONDS:g} s and had not come to its end{line}. What ends each loop?"
        if limit.wall_seconds is not None:
            hint = (
                f"Your code had not come to its end after {limit.wall_seconds:g} s, of which it computed for"
                f" {limit.cpu_seconds:.1f} s{line}. What does it wait for?"
            )
        return Verdict(name, "mistake", hint, "does-not-end")
    except BaseException:
        return Verdict(name, "mistake", "Your code raised an error whose text cannot be shown.", "raises")


def _judged(found: Exercise, answer: Any) -> Verdict:
    """The verdict on an answer. Whatever is asked of an answer may run the student's code, and that may raise anything."""
    try:
        if not attempted(answer):
            return Verdict(found.name, "not yet", "Replace the ... with your answer, then run this cell again.")
        if _wants_a_function(found.judge) and not callable(answer):
            hint = "Hand over the function itself, not what it returns: its name, without parentheses."
            raise Mistake("not-a-function", hint)
        memory = FunctionMemory(answer)
        try:
            found.judge(copy.deepcopy(answer) if isinstance(answer, torch.nn.Module) else answer)
        except Exception as error:
            if names := memory.spoils(found.judge, error):
                raise Mistake("remembers-calls", REMEMBERS.format(names)) from None
            raise
    except Mistake as mistake:
        hint = mistake.hint if len(mistake.hint) <= MESSAGE_CHARACTERS else f"{mistake.hint[:MESSAGE_CHARACTERS]} …"
        return Verdict(found.name, "mistake", hint, mistake.name)
    except (KeyboardInterrupt, TimeLimitReached):
        raise
    except BaseException as error:
        return _raised(found.name, answer, error)
    return Verdict(found.name, "right", "Well done.")


def _wants_a_function(judge: Callable[[Any], None]) -> bool:
    kind = next(iter(inspect.signature(judge).parameters.values())).annotation
    return kind is Callable or get_origin(kind) is Callable


def _raised(name: str, answer: Any, error: BaseException) -> Verdict:
    """What to say of an error: it is the student's only if their own code was running, or could not be called."""
    text = f"{type(error).__name__}: {error}"[:MESSAGE_CHARACTERS]  # before textwrap, which takes 9 s for 10 MB
    text = textwrap.shorten(text, 400, placeholder=" …")  # torch's may have pages
    case = f" for {notes[0]}" if (notes := getattr(error, "__notes__", [])) else ""
    if (line := _line_of(error)) is not None:
        return Verdict(name, "mistake", f"Your code raised {text}{case}{line}", "raises")
    if isinstance(error, TypeError) and "argument" in str(error) and f"{getattr(answer, '__name__', None)}(" in str(error):
        return Verdict(name, "mistake", f"Keep the function's arguments as they were: {error}", "wrong-arguments")
    hint = f"The check cannot work with your answer{case} ({text}). Does it return what the exercise asks for?"
    return Verdict(name, "mistake", hint, "cannot-be-checked")


def _line_of(error: BaseException) -> str | None:
    """The last line of the student's own code that an error came through, to append; None if it came through none."""
    last = None
    for frame, number in traceback.walk_tb(error.__traceback__):
        if is_students(frame.f_code.co_filename):
            last = (frame.f_code.co_filename, number)
    return None if last is None else f" (line: {line})" if (line := linecache.getline(*last).strip()) else ""


def attempted(answer: Any) -> bool:
    """False while the answer is `...`, holds one, or is a function whose body is only a docstring, `...` or `pass`."""
    if answer is ...:
        return False
    if isinstance(answer, tuple | list):
        return not any(item is ... for item in answer)
    if isinstance(answer, dict):
        return not any(item is ... for item in answer.values())
    if not inspect.isfunction(answer):
        return True
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(answer))).body[0].body
    except (OSError, TypeError, SyntaxError, AttributeError):
        return True  # no source to look at: it came from somewhere, so it was written
    return not all(
        isinstance(line, ast.Pass) or isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) for line in body
    )


# ---- For judges ----------------------------------------------------------------------------------------------------


def expect(
    got: Any,
    right: Any,
    *,
    case: str,
    mistakes: Mapping[str, tuple[Any, str]] | None = None,
    tolerance: float = 1e-6,
    reveal: bool = True,
) -> None:
    """Return where `got` is `right`; else raise the Mistake whose value it equals, or one that says where they differ.

    mistakes  {name: (the value that this mistake gives, hint)}; what follows a comma in a name distinguishes variants of one
              mistake and is not shown
    case      the input in words, for the message
    reveal    False if the message may not show the right value, because there is only this one case
    """
    if same(got, right, tolerance):
        return
    for name, (value, hint) in (mistakes or {}).items():
        if same(got, value, tolerance):
            raise Mistake(name.split(",")[0], hint)
    if got is None:
        raise Mistake("returns-nothing", f"For {case} your function returns None: is a `return` missing?")
    given, wanted = numbers(got), numbers(right)
    lists = isinstance(got, list | tuple) and isinstance(right, list | tuple)
    if wanted is not None and given is None and not lists:
        kind = f"numbers of shape {tuple(wanted.shape)}" if wanted.ndim else "one number"
        raise Mistake("wrong-type", f"For {case} the answer should be {kind}; yours is {_kind(got)}.")
    if hasattr(right, "shape") and wanted is not None and given.shape != wanted.shape:
        raise Mistake("wrong-shape", f"For {case} the shape should be {tuple(wanted.shape)}; yours is {tuple(given.shape)}.")
    whose = "the" if reveal else "your"
    raise Mistake("wrong-value", f"For {case} {whose} answer {difference(got, right, tolerance, reveal=reveal)}.")


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}" + (", which is not called yet" if callable(value) else "")


def expect_function(
    answer: Callable[..., Any],
    right: Callable[..., Any],
    cases: Mapping[str, tuple[Any, ...]],
    *,
    mistakes: Mapping[str, tuple[Callable[..., Any], str]] | None = None,
    errors: Mapping[str, tuple[str, str]] | None = None,
    tolerance: float = 1e-6,
) -> None:
    """Judge a function over cases: return if it agrees with `right` on all, else raise the Mistake that explains it.

    cases     {the arguments in words: the arguments}; every call gets copies of its own
    mistakes  {name: (the function that this mistake gives, hint)}, with variants as in `expect`; named if it agrees with the
              answer on every case
    errors    {text in the error that the answer raises: (name, hint)}
    A right answer that changes its arguments is the mistake "inputs-changed".
    """
    got, changed = {}, []
    for case, arguments in cases.items():
        handed = copy.deepcopy(arguments)
        got[case] = _value(answer, handed)
        if not same(handed, arguments):
            changed.append(case)
    wanted = {case: right(*copy.deepcopy(arguments)) for case, arguments in cases.items()}
    largest, own = (
        max([0.0, *(largest_of(value) for value in map(numbers, values) if value is not None)])
        for values in (wanted.values(), got.values())
    )
    wrong = [case for case in cases if not same(got[case], wanted[case], tolerance, largest)]
    if wrong and all(value is None for value in got.values()):
        expect(None, wanted[wrong[0]], case=wrong[0])  # no mistake that gives nothing at all is meant
    for name, (function, hint) in (mistakes or {}).items() if wrong else ():
        if all(_alike(got[case], _value(function, copy.deepcopy(given)), tolerance, own) for case, given in cases.items()):
            raise Mistake(name.split(",")[0], hint)
    raised = {case: got[case] for case in wrong if isinstance(got[case], Exception)}
    for error in raised.values():
        for text, (name, hint) in (errors or {}).items():
            if text in str(error):
                raise Mistake(name, hint) from error
    for case in wrong:
        if case in raised:
            raised[case].add_note(case)
            raise raised[case]
        expect(got[case], wanted[case], case=case, tolerance=tolerance)
    if changed:
        raise Mistake("inputs-changed", f"For {changed[0]} the result is right, but your function changed its arguments.")


def _value(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """What a function returns, or the error that it raises."""
    try:
        return function(*arguments)
    except Mistake:  # found by a judge's own function around the answer
        raise
    except Exception as error:
        return error


def _alike(got: Any, mistake: Any, tolerance: float, largest: float) -> bool:
    """True where an answer does what a known mistake does, also where both fail."""
    return type(got) is type(mistake) if isinstance(got, Exception) else same(got, mistake, tolerance, largest)


def expect_keys_and_type(
    answer: object, keys: Iterable[str], kind: type | tuple[type, ...], description: str
) -> dict[str, Any]:
    """The answer with Python's own values for those of NumPy and torch.

    Raises Mistake unless it is a dictionary with exactly these keys, and values of type `kind`.
    """
    keys = list(keys)
    if not isinstance(answer, Mapping) or set(answer) != set(keys):
        raise Mistake("wrong-keys", f"Keep the dictionary's keys as they were: {', '.join(keys)}.")
    values = {key: plain(answer[key]) for key in keys}
    for key, value in values.items():
        if kind is bool and type(value) is int and value in (0, 1):
            values[key] = value = bool(value)
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
            raise Mistake("wrong-type", f"Each value is {description}; at {key!r} yours is {value!r}.")
    return values


# Functions of torch that differentiate; torch.func and torch.autograd.functional end in one of them.
_AUTOGRAD = {"backward", "grad", "_make_dual"}


def expect_no_autograd(answer: Callable[..., Any], *arguments: Any) -> None:
    """Raise Mistake if the answer lets torch differentiate, where the exercise asks for the derivative itself."""
    calls = torch_calls(lambda: answer(*copy.deepcopy(arguments)))
    if any(name.split(".")[-1] in _AUTOGRAD for name in calls):
        hint = "The numbers are right, but torch differentiated for you; the exercise asks for the formula, without autograd."
        raise Mistake("uses-autograd", hint)


def expect_no_loop(answer: Callable[..., Any], few: tuple, many: tuple, *, more: int, over: str, hint: str) -> None:
    """Raise Mistake if the answer takes at least one step of Python, or one call of torch, for each further element.

    few, many  arguments that differ only in their number of elements, by `more`
    over       what a loop would go over, in words; `hint` leads to the way without
    """
    less, great = (watch(lambda given=given: answer(*copy.deepcopy(given))) for given in (few, many))
    if great.steps + len(great.calls) - less.steps - len(less.calls) >= more:
        raise Mistake("loops", f"The numbers are right, but with {more} more {over} your code takes more steps: a loop. {hint}")
