"""Exercises: a check never raises and never changes what it is given; it says *not yet*, *right*, or which mistake was made.

In a topic's `exercises`:

    @exercise("outer-sum", notebook="01_tensors", takes="a, b", returns=like("a"))
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
import errno
import html
import inspect
import linecache
import textwrap
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from hpml_lab.core.experiment.catalogue import exercise_modules, load_module, unknown
from hpml_lab.core.experiment.results_folder import keep_verdict
from hpml_lab.core.experiment.topics import import_topics
from hpml_lab.core.judge.asked import RUNS_NOTHING, Asked, current
from hpml_lab.core.judge.call_memory import REMEMBERS, FunctionMemory
from hpml_lab.core.judge.declared import difference_in_kind
from hpml_lab.core.judge.mistake import CannotCheck, Mistake
from hpml_lab.core.judge.time_limit import TimeLimitReached, time_limit
from hpml_lab.core.judge.unchanged import unchanged
from hpml_lab.core.judge.watch import is_students
from hpml_lab.core.show import style
from hpml_lab.core.show.prose import prose_html

CPU_SECONDS = 10.0  # of one check, of which the slowest takes 0.6; not of the clock, so that a busy machine changes nothing
WALL_SECONDS = 10 * CPU_SECONDS  # for an answer that waits
MESSAGE_CHARACTERS = 2000  # a message may quote what the answer gave
SHORT = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)  # of the machine
NO_LIMIT = "No thread could be started, so nothing would have ended an answer that waits."
# What says that a value is wrong, and not why: these come with the call to look at.
SHOWN_BY_A_CALL = ("wrong-value", "wrong-shape", "one-layout", "one-dtype", "one-example", "one-scale", "other-gradient")


@dataclass(frozen=True)
class Verdict:
    """What a check says: `state` is "not yet", "right", or "mistake"; `mistake` is the mistake's name.

    `given` are the arguments of the call that shows the mistake, to call the answer with them: `outer_sum(*verdict.given)`.
    """

    exercise: str
    state: str
    message: str
    mistake: str = ""
    given: tuple[Any, ...] | None = field(default=None, repr=False, compare=False)

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
    """One exercise: its judge returns for a right answer and raises Mistake for any other.

    takes    the names of the function's arguments, as in the notebook's stub; None where the answer is a value
    returns  what comes back, in the terms of `core/judge/declared.py`
    changes  the arguments that the function may change; all others stay the caller's
    """

    name: str
    notebook: str
    judge: Callable[[Any], None]
    takes: tuple[str, ...] | None = None
    returns: Any = object
    changes: tuple[str, ...] = ()


_REGISTRY: dict[str, Exercise] = {}
_last_verdicts: dict[str, Verdict] = {}


def exercise(
    name: str, *, notebook: str, takes: str | None = None, returns: Any, changes: str = ""
) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Register a judge as the exercise `name` of `notebook`; `takes` and `changes` name arguments, with commas between them."""

    def names(text: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in text.split(",") if part.strip())

    def register(judge: Callable[[Any], None]) -> Callable[[Any], None]:
        if name in _REGISTRY:
            raise ValueError(f"two exercises are called {name!r}")
        _REGISTRY[name] = Exercise(name, notebook, judge, None if takes is None else names(takes), returns, names(changes))
        return judge

    return register


def all_exercises() -> list[Exercise]:
    """All exercises, in the order of the notebooks."""
    import_topics("exercises")
    return sorted(_REGISTRY.values(), key=lambda found: (found.notebook, found.judge.__module__))


def check(name: str, answer: Any) -> Verdict:
    """Judge `answer`, the very object that the student made, and say what was found.

    Raises only for a name that is no exercise (LabError): that is a mistake in the notebook, not in the answer.
    """
    found = find_exercise(name)
    verdict = _last_verdicts[name] = _checked(found, answer)
    keep_verdict(found.notebook, name, verdict.state, verdict.mistake)
    return verdict


def last_verdict(name: str) -> Verdict | None:
    """What this process said of the exercise's last answer; None where it has checked none."""
    return _last_verdicts.get(name)


def find_exercise(name: str) -> Exercise:
    """The exercise called `name`, of which only its own module is imported.

    Raises LabError for an unknown name, with the nearest known ones, and for an exercise that does not load here.
    """
    if name not in _REGISTRY:
        modules = exercise_modules()
        if name not in modules:
            raise unknown("exercise", name, [*modules, *_REGISTRY])
        load_module(modules[name][1])
    return _REGISTRY[name]


def _checked(found: Exercise, answer: Any) -> Verdict:
    """The verdict on an answer within the limits of time, whatever the answer does."""
    name, began = found.name, False
    try:
        with unchanged(), time_limit(CPU_SECONDS, WALL_SECONDS) as limited:
            began = True
            verdict = _judged(found, answer)
        return verdict if limited else replace(verdict, message=f"{verdict.message} {NO_LIMIT}")
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
    except BaseException as error:
        if not began:
            return Verdict(name, "not yet", f"It cannot be checked here. {type(error).__name__}: {error}")
        return Verdict(name, "mistake", "Your code raised an error whose text cannot be shown.", "raises")


def _judged(found: Exercise, answer: Any) -> Verdict:
    """The verdict on an answer. Whatever is asked of an answer may run the student's code, and that may raise anything."""
    asked = Asked(found.takes or (), found.returns, found.changes)
    token = current.set(asked)
    try:
        if not attempted(answer):
            return Verdict(found.name, "not yet", "Replace the ... with your answer, then run this cell again.")
        memory = FunctionMemory(answer)

        def judge(answer: Any) -> None:
            asked.later.clear()
            found.judge(answer)
            for question in asked.later:
                question()

        try:
            judge(_asked(found, asked, answer))
        except Exception as error:
            if asked.ran_nothing():
                raise Mistake("runs-nothing", RUNS_NOTHING) from None
            if asked.overwritten and getattr(error, "name", "") in SHOWN_BY_A_CALL:
                raise Mistake("not-new", asked.overwritten, asked.given) from None
            if names := memory.spoils(judge, error):
                raise Mistake("remembers-calls", REMEMBERS.format(names)) from None
            raise
        if asked.shared:
            raise Mistake("not-new", asked.shared, asked.given)
        if asked.changed:
            raise Mistake("inputs-changed", f"The result is right, but your function changed `{asked.changed}`.", asked.given)
    except Mistake as mistake:
        mistake = asked.kind or mistake
        hint = mistake.hint if len(mistake.hint) <= MESSAGE_CHARACTERS else f"{mistake.hint[:MESSAGE_CHARACTERS]} …"
        if mistake.given is not None and mistake.name in SHOWN_BY_A_CALL:
            hint += _to_see_it(found, answer)
        return Verdict(found.name, "mistake", hint, mistake.name, asked.given if mistake.given is None else mistake.given)
    except CannotCheck as reason:
        return Verdict(found.name, "not yet", f"It cannot be checked here. {reason}")
    except (KeyboardInterrupt, TimeLimitReached):
        raise
    except BaseException as error:
        return _raised(found, answer, error, asked)
    finally:
        current.reset(token)
    return Verdict(found.name, "right", "Well done.")


def _to_see_it(found: Exercise, answer: Any) -> str:
    called = getattr(answer, "__name__", "")
    called = called if called.isidentifier() else "your_function"
    changes = " and a look at what it has changed in `verdict.given`" if found.returns is None else ""
    return f' To see it: `verdict = check("{found.name}", {called})`, then `{called}(*verdict.given)`{changes}.'


def _asked(found: Exercise, asked: Asked, answer: Any) -> Any:
    """What the judge is given: a value of the declared kind, or a function whose calls are asked."""
    if found.takes is None:
        if difference := difference_in_kind(answer, found.returns, {}):
            raise Mistake(*difference)
        return copy.deepcopy(answer) if isinstance(answer, torch.nn.Module) else answer
    if not callable(answer):
        raise Mistake("not-a-function", "Hand over the function itself, not what it returns: its name, without parentheses.")
    if isinstance(answer, torch.nn.Module):
        answer = copy.deepcopy(answer)
    kinds = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    if any(is_kind(code) for is_kind in kinds for code in (answer, type(answer).__call__)):  # these look into a partial
        raise Mistake("runs-nothing", RUNS_NOTHING)
    return asked.around(answer)


def _raised(found: Exercise, answer: Any, error: BaseException, asked: Asked) -> Verdict:
    """What to say of an error: it is the student's only if their own code was running, or could not be called."""
    name, given = found.name, getattr(error, "given", asked.given)
    text = f"{type(error).__name__}: {error}"[:MESSAGE_CHARACTERS]  # before textwrap, which takes 9 s for 10 MB
    text = textwrap.shorten(text, 400, placeholder=" …")  # torch's may have pages
    case = f" for {notes[0]}" if (notes := getattr(error, "__notes__", [])) else ""
    if (line := _line_of(error)) is not None:
        return Verdict(name, "mistake", f"Your code raised {text}{case}{line}", "raises", given)
    uncalled = found.takes is not None and not asked.count
    short = isinstance(error, MemoryError) or getattr(error, "errno", None) in SHORT or "start new thread" in str(error)
    if short or uncalled and not isinstance(error, TypeError):
        called = " Your function was not called." if uncalled else ""
        return Verdict(name, "not yet", f"It cannot be checked here: {text}.{called}")
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
