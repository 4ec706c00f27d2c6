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
import contextlib
import copy
import difflib
import html
import inspect
import math
import random
import textwrap
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hpml_lab.core import style
from hpml_lab.core.errors import LabError
from hpml_lab.core.render import prose_html
from hpml_lab.core.topics import import_topics


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
        colour = {"not yet": style.GREY, "right": style.GREEN, "mistake": style.RED}[self.state]
        found = f" <code>{html.escape(self.mistake)}</code>" if self.mistake else ""
        return (
            f'<div role="status" style="border-left:4px solid {colour};padding:.3em .8em">'
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
    if not attempted(answer):
        return Verdict(name, "not yet", "Replace the ... with your answer, then run this cell again.")
    try:
        with _nothing_changes():
            _REGISTRY[name].judge(copy.deepcopy(answer) if isinstance(answer, torch.nn.Module) else answer)
    except Mistake as mistake:
        return Verdict(name, "mistake", mistake.hint, mistake.name)
    except (Exception, SystemExit) as error:  # the student's own code failed: any error is possible
        return Verdict(name, "mistake", f"Your code raised {type(error).__name__}: {error}{_failing_line(error)}", "raises")
    return Verdict(name, "right", "Well done.")


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


@contextlib.contextmanager
def _nothing_changes():
    """Random states, gradient mode and default dtype after the check are what they were before."""
    python, numpy, dtype = random.getstate(), np.random.get_state(), torch.get_default_dtype()
    with torch.random.fork_rng(devices=[]), torch.set_grad_enabled(True):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
            torch.set_default_dtype(dtype)


def _failing_line(error: Exception) -> str:
    """The line of the student's code that failed, as ` (line: …)`; nothing when the source is not at hand."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.line]
    own = [frame for frame in frames if "hpml_lab" not in frame.filename and "site-packages" not in frame.filename]
    return f" (line: {own[-1].line})" if own else ""


def same(got: Any, right: Any, tolerance: float = 1e-6) -> bool:
    """True where both are numbers, arrays or tensors of one shape and agree within `tolerance`, or are equal otherwise."""
    if got is right:  # a function that is an argument of the answer, for example
        return True
    if isinstance(right, tuple | list) and isinstance(got, tuple | list):
        return len(got) == len(right) and all(same(g, r, tolerance) for g, r in zip(got, right, strict=True))
    if isinstance(right, dict) and isinstance(got, dict):
        return got.keys() == right.keys() and all(same(got[key], right[key], tolerance) for key in right)
    if isinstance(right, str | bool | torch.dtype | torch.Size) or right is None:
        return type(got) is type(right) and got == right
    try:
        a, b = (torch.as_tensor(value).detach().to(torch.float64) for value in (got, right))
    except (TypeError, ValueError, RuntimeError):
        return False
    return a.shape == b.shape and torch.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)


def expect(
    got: Any, right: Any, *, case: str, mistakes: Mapping[str, tuple[Any, str]] | None = None, tolerance: float = 1e-6
) -> None:
    """Return where `got` is `right`; else raise the Mistake whose value it equals, or one that shows both values.

    mistakes  {name: (the value that this mistake gives, hint)}
    case      the input in words, for the message
    """
    if same(got, right, tolerance):
        return
    for name, (value, hint) in (mistakes or {}).items():
        if same(got, value, tolerance):
            raise Mistake(name, hint)
    if got is None:
        raise Mistake("returns-nothing", f"For {case} your function returns None: is a `return` missing?")
    shapes = [tuple(value.shape) if hasattr(value, "shape") else None for value in (got, right)]
    if None not in shapes and shapes[0] != shapes[1]:
        raise Mistake("wrong-shape", f"For {case} the shape should be {shapes[1]}; yours is {shapes[0]}.")
    raise Mistake("wrong-value", f"For {case} the answer should be {_short(right)}; yours is {_short(got)}.")


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
    mistakes  {name: (the function that this mistake gives, hint)}; named if it agrees with the answer on every case
    errors    {text in the error that the answer raises: (name, hint)}
    A right answer that changes its arguments is the mistake "inputs-changed".
    """
    got, changed = {}, []
    for case, arguments in cases.items():
        handed = copy.deepcopy(arguments)
        try:
            got[case] = answer(*handed)
        except Exception as error:
            for text, (name, hint) in (errors or {}).items():
                if text in str(error):
                    raise Mistake(name, hint) from error
            raise
        if not same(handed, arguments):
            changed.append(case)
    wanted = {case: right(*copy.deepcopy(arguments)) for case, arguments in cases.items()}
    wrong = [case for case in cases if not same(got[case], wanted[case], tolerance)]
    for name, (function, hint) in (mistakes or {}).items() if wrong else ():
        if all(same(got[case], _value(function, arguments), tolerance) for case, arguments in cases.items()):
            raise Mistake(name, hint)
    for case in wrong:
        expect(got[case], wanted[case], case=case, tolerance=tolerance)
    if changed:
        raise Mistake("inputs-changed", f"For {changed[0]} the result is right, but your function changed its arguments.")


def expect_keys_and_type(answer: object, keys: Iterable[str], kind: type | tuple[type, ...], description: str) -> None:
    """Raise Mistake unless `answer` is a dictionary with exactly these keys, and values of type `kind`."""
    keys = list(keys)
    if not isinstance(answer, dict) or set(answer) != set(keys):
        raise Mistake("wrong-keys", f"Keep the dictionary's keys as they were: {', '.join(keys)}.")
    if not all(isinstance(value, kind) and (kind is bool or not isinstance(value, bool)) for value in answer.values()):
        raise Mistake("wrong-type", f"Each value is {description}.")


def _value(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """What a known mistake gives for a case; a mistake that cannot be computed there is recognized by the other cases only."""
    try:
        return function(*copy.deepcopy(arguments))
    except Exception as error:
        return error


def _short(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        value = value.detach().tolist()
    if isinstance(value, float):
        return f"{value:.6g}"
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


@dataclass(frozen=True)
class Prediction:
    """A number that the student committed to, compared with what was then measured."""

    guess: Any
    measured: float
    unit: str

    def __repr__(self) -> str:
        if self.guess is ...:
            return "No prediction yet: replace the ... above with your number and run both cells again."
        if isinstance(self.guess, bool) or not isinstance(self.guess, int | float) or not self.guess > 0:
            return f"A prediction is one positive number in {self.unit}; {self.guess!r} is not."
        if math.isnan(self.measured):
            return f"You predicted {self.guess:g} {self.unit}; here it was not measured: see the notes of the result above."
        if not self.measured > 0 and not self.unit.startswith("%"):
            return f"You predicted {self.guess:g} {self.unit}; it is {self.measured:.3g} {self.unit}."
        return f"You predicted {self.guess:g} {self.unit}; it is {self.measured:.3g} {self.unit}: {self._distance}."

    @property
    def _distance(self) -> str:
        if self.unit.startswith("%"):  # shares are compared by difference: 78 % for 96.9 % is not close
            points = abs(self.guess - self.measured)
            return "very close" if points < 3 else f"{points:.3g} percentage points apart"
        factor = max(self.guess / self.measured, self.measured / self.guess)
        return "very close" if factor < 1.25 else f"a factor of {factor:.3g} apart"


def predicted(guess: Any, measured: float, unit: str) -> Prediction:
    """Compare a prediction (made before the expensive cell) with what was measured; `...` means that none was made.

    Percentages (a unit that starts with %) are compared by difference, other numbers by ratio.
    """
    return Prediction(guess, float(measured), unit)
