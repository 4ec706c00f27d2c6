"""What judges ask of an answer: a value, a function over cases, a dictionary's keys, no loop, no autograd."""

import copy
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol

import torch

from hpml_lab.core.judge.asked import ask_later, copied, given_last, keeps_a_dtype, names_taken, value_or_error
from hpml_lab.core.judge.declared import tensors_in
from hpml_lab.core.judge.in_every_case import expect_no_argument_ignored, expect_no_factor
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.same import difference, largest_of, numbers, plain, same
from hpml_lab.core.judge.variations import KEPT, MIXED, ZERO, mixed, variants, with_a_zero, with_few_digits, with_more_digits
from hpml_lab.core.judge.watch import torch_calls, watch


class Mistakes(Protocol):
    """Known mistakes of a function: a dictionary, or a rubric."""

    def items(self) -> Iterable[tuple[str, tuple[Callable[..., Any], str]]]: ...


def expect(
    got: Any,
    right: Any,
    *,
    case: str,
    mistakes: Mapping[str, tuple[Any, str]] | None = None,
    tolerance: float = 1e-6,
    reveal: bool = True,
    given: tuple[Any, ...] | None = None,
) -> None:
    """Return where `got` is `right`; else raise the Mistake whose value it equals, or one that says where they differ.

    mistakes  {name: (the value that this mistake gives, hint)}; what follows a comma in a name distinguishes variants of one
              mistake and is not shown
    case      the input in words, for the message
    reveal    False if the message may not show the right value, because there is only this one case
    given     the arguments of the call that gave `got`, where a call did
    """
    if same(got, right, tolerance):
        return
    for name, (value, hint) in (mistakes or {}).items():
        if same(got, value, tolerance):
            raise Mistake(name.split(",")[0], hint)
    if got is None:
        raise Mistake("returns-nothing", f"For {case} your function returns None: is a `return` missing?")
    value, wanted = numbers(got), numbers(right)
    lists = isinstance(got, list | tuple) and isinstance(right, list | tuple)
    if wanted is not None and value is None and not lists:
        kind = f"numbers of shape {tuple(wanted.shape)}" if wanted.ndim else "one number"
        raise Mistake("wrong-type", f"For {case} the answer should be {kind}; yours is {_kind(got)}.")
    for where, own, goal in [("", got, right), *_parts(got, right)]:
        value, wanted = numbers(own), numbers(goal)
        if hasattr(goal, "shape") and value is not None and wanted is not None and value.shape != wanted.shape:
            shapes = f"should be {tuple(wanted.shape)}; yours is {tuple(value.shape)}"
            raise Mistake("wrong-shape", f"For {case} the shape{where} {shapes}.", given)
    whose = "the" if reveal else "your"
    raise Mistake("wrong-value", f"For {case} {whose} answer {difference(got, right, tolerance, reveal=reveal)}.", given)


def _parts(got: Any, right: Any) -> list[tuple[str, Any, Any]]:
    """(where, what is there, what should be there) for each item of two lists or tuples of the same length."""
    if not (isinstance(got, list | tuple) and isinstance(right, list | tuple) and len(got) == len(right)):
        return []
    return [(f" at [{i}]", *pair) for i, pair in enumerate(zip(got, right, strict=True))]


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}" + (", which is not called yet" if callable(value) else "")


def expect_function(
    answer: Callable[..., Any],
    right: Callable[..., Any],
    cases: Mapping[str, tuple[Any, ...]],
    *,
    mistakes: Mistakes | None = None,
    errors: Mapping[str, tuple[str, str]] | None = None,
    tolerance: float = 1e-6,
    but: Collection[str] = (),
) -> None:
    """Judge a function over cases and their variants: return if it agrees with `right`, else raise the Mistake that it makes.

    cases     {the arguments in words: the arguments}; every call gets copies of its own
    mistakes  {name: (the function that this mistake gives, hint)}, with variants as in `expect`; named if it agrees with the
              answer on every case
    errors    {text in the error that the answer raises: (name, hint)}
    but       variants of `core/judge/variations.py` that the text leaves out, and arguments that have no other values
    A wrong answer of which no known mistake gives all results can have one of OF_ANY; a right one that changes its arguments
    is the mistake "inputs-changed".
    """
    got, given, changed = {}, {}, []
    for case, arguments in cases.items():
        handed = copied(copy.deepcopy(arguments))  # each nan an object of its own
        got[case] = value_or_error(answer, handed)
        given[case] = given_last(arguments)
        if not same(handed, arguments):
            changed.append(case)
    wanted = {case: right(*copy.deepcopy(arguments)) for case, arguments in cases.items()}
    largest, own = (_largest(values.values()) for values in (wanted, got))
    wrong = [case for case in cases if not same(got[case], wanted[case], tolerance, largest)]
    if not wrong:
        if changed:
            hint = f"For {changed[0]} the result is right, but your function changed its arguments."
            raise Mistake("inputs-changed", hint, given[changed[0]])
        ask_later(lambda: _expect_variants(answer, right, cases, but, tolerance, largest))
        ask_later(lambda: _expect_all_digits(answer, right, cases, but))
        ask_later(lambda: _expect_gradients(answer, right, cases, tolerance))
        return
    try:
        if all(value is None for value in got.values()):
            expect(None, wanted[wrong[0]], case=wrong[0])  # no mistake that gives nothing at all is meant
        telling = [*wrong, *(case for case in cases if case not in wrong)]  # there most mistakes differ from it
        for name, (function, hint) in (mistakes or {}).items():
            if all(_alike(got[case], value_or_error(function, copy.deepcopy(cases[case])), tolerance, own) for case in telling):
                raise Mistake(name.split(",")[0], hint)
        expect_no_factor(got, wanted, cases, tolerance)
        raised = {case: got[case] for case in wrong if isinstance(got[case], Exception)}
        for error in raised.values():
            for text, (name, hint) in (errors or {}).items():
                if text in str(error):
                    raise Mistake(name, hint) from error
        for case in wrong:
            if case in raised:
                raised[case].add_note(case)
                raise raised[case]
            try:
                expect(got[case], wanted[case], case=case, tolerance=tolerance)
            except Mistake as mistake:
                if mistake.name == "wrong-value":
                    expect_no_argument_ignored(answer, right, cases, but, tolerance)
                raise
    except Exception as mistake:
        mistake.given = given[wrong[0]]
        raise


def _largest(values: Iterable[Any]) -> float:
    return max([0.0, *(largest_of(value) for value in map(numbers, values) if value is not None)])


def _expect_variants(
    answer: Callable[..., Any],
    right: Callable[..., Any],
    cases: Mapping[str, tuple],
    but: Collection[str],
    tolerance: float,
    largest: float,
) -> None:
    """Raise Mistake if an answer that is right on the cases is not on what may be given as well."""
    names = names_taken()
    tried = [(case, *made) for case, arguments in cases.items() for made in variants(arguments, names, but)]
    tried += [(case, MIXED, given) for case, _, given in mixed(cases, names, but)]
    tried += [(case, ZERO, given) for case, arguments in cases.items() for given in with_a_zero(arguments, names, but)]
    for case, variant, given in tried:
        wanted = value_or_error(right, copy.deepcopy(given))
        if isinstance(wanted, Exception) or not _is_finite(wanted):
            continue
        got = value_or_error(answer, copy.deepcopy(given))
        rough = max(tolerance, 1e-4) if _has_float32(given) else tolerance
        if same(got, wanted, rough, max(largest, _largest([wanted]))):
            continue
        said = f"the answer {difference(got, wanted, rough)}"
        if isinstance(got, Exception):
            said = textwrap.shorten(f"yours raises {type(got).__name__}: {got}", 200, placeholder=" …")
        hint, given = f"{variant.text} For {case}, changed in this way, {said}.", given_last(given)
        if variant.mistake == MIXED.mistake and same(got, right(*copy.deepcopy(cases[case])), rough):
            hint = f"{hint} {KEPT}"
        raise Mistake(variant.mistake, hint, given)


def _expect_all_digits(
    answer: Callable[..., Any], right: Callable[..., Any], cases: Mapping[str, tuple], but: Collection[str]
) -> None:
    """Raise Mistake if numbers of float64 pass through float32. Their bits show it: no tolerance blames a small ε."""
    names = names_taken()
    for case, arguments in cases.items() if keeps_a_dtype() and "dtype" not in but else ():
        given = with_more_digits(arguments, names, but)

        def numbers_of(function: Callable[..., Any], handed: tuple[Any, ...] = given) -> torch.Tensor:
            found = [numbers(one) for one in tensors_in([value_or_error(function, copy.deepcopy(handed))])]
            found = [one.reshape(-1) for one in found if one is not None and one.dtype == torch.float64]
            return torch.cat(found) if found else torch.empty(0)

        own, goal = numbers_of(answer), numbers_of(right)
        if not len(goal) or own.shape != goal.shape or not goal.isfinite().all():
            continue
        if (own == own.float()).all() and not same(own, goal, 1e-10):
            hint = f"For {case} in float64, each number of your result is one that float32 can hold."
            raise Mistake("float32-on-the-way", f"{hint} Where does it pass through float32?", given_last(given))
        for position, name in enumerate(names[: len(given)]):
            rounded = with_few_digits(given, position)
            if not same(numbers_of(right, rounded), goal, 1e-11) and torch.equal(numbers_of(answer, rounded), own):
                hint = f"For {case} in float64, digits of `{name}` that float32 has not change nothing in your result."
                raise Mistake("float32-on-the-way", f"{hint} Where does it pass through float32?", given_last(given))


def _expect_gradients(
    answer: Callable[..., Any], right: Callable[..., Any], cases: Mapping[str, tuple], tolerance: float
) -> None:
    """Raise Mistake if right values have wrong gradients. All results are there before the first backward pass."""
    wanted = {case: _with_leaves(right, arguments) for case, arguments in cases.items()}
    wanted = {case: found for case, found in wanted.items() if getattr(found[0], "requires_grad", False)}
    got = {case: _with_leaves(answer, cases[case]) for case in wanted}
    for case, (result, leaves) in wanted.items():
        own, own_leaves = got[case]
        if not own.requires_grad:
            hint = f"For {case} the value is right, and no gradient passes from it to the arguments: stay in torch."
            raise Mistake("detached", hint, given_last(cases[case]))
        goal, found = (_gradients(value, behind) for value, behind in ((result, leaves), (own, own_leaves)))
        if not any(part.any() for part in found) and any(part.any() for part in goal):
            raise Mistake("detached", f"For {case} the value is right, but backward does not reach the arguments: it gives 0.")
        if not same(found, goal, max(tolerance, 1e-5)):
            hint = f"For {case} the value is right and its gradient is not: it {difference(found, goal, max(tolerance, 1e-5))}."
            raise Mistake("other-gradient", hint, given_last(cases[case]))


def _with_leaves(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, list[torch.Tensor]]:
    """What a function returns for copies of arguments, and those of their tensors that require a gradient."""
    arguments = copy.deepcopy(arguments)
    return function(*arguments), [one for one in tensors_in(list(arguments)) if getattr(one, "requires_grad", False)]


def _gradients(result: torch.Tensor, leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    """The gradients of a weighted sum of a result, whose weights all differ."""
    weights = torch.linspace(0.5, 1.5, result.numel(), dtype=result.dtype).reshape(result.shape)
    found = torch.autograd.grad((result * weights).sum(), leaves, allow_unused=True)
    return [torch.zeros_like(leaf) if own is None else own for own, leaf in zip(found, leaves, strict=True)]


def _is_finite(value: Any) -> bool:
    """True where no number in a value is nan or infinite."""
    if isinstance(value, Mapping):
        value = list(value.values())
    found = numbers(value)
    if found is None:
        return all(map(_is_finite, value)) if isinstance(value, list | tuple) else True
    return bool(found.isfinite().all())


def _has_float32(value: Any) -> bool:
    return any(str(one.dtype).endswith("float32") for one in tensors_in(list(value)))


def _alike(got: Any, mistake: Any, tolerance: float, largest: float) -> bool:
    """True where an answer does what a known mistake does, also where both fail."""
    return type(got) is type(mistake) if isinstance(got, Exception) else same(got, mistake, tolerance, largest)


def expect_keys(answer: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """The answer with Python's own values for those of NumPy and torch; Mistake unless it has exactly these keys."""
    keys = list(keys)
    if set(answer) != set(keys):
        raise Mistake("wrong-keys", f"Keep the dictionary's keys as they were: {', '.join(keys)}.")
    return {key: plain(answer[key]) for key in keys}


def expect_truths(
    answer: Mapping[str, Any], right: Mapping[str, bool], mistakes: Mapping[str, tuple[Collection[str], str]], meaning: str
) -> None:
    """Judge a dictionary of truth values.

    mistakes  {name: (the keys that it gets wrong, hint)}
    meaning   of True, in words
    """
    answer = expect_keys(answer, right)
    wrong = [key for key in right if answer[key] != right[key]]
    if len(wrong) == len(right):
        raise Mistake("all-reversed", f"Each one is wrong. || True means that {meaning}.")
    for name, (keys, hint) in mistakes.items():
        if found := [key for key in wrong if key in keys]:
            more = len(wrong) - len(found)
            others = f" ({more} more {'is' if more == 1 else 'are'} wrong, too.)" if more else ""
            raise Mistake(name, f"{found[0]}: {hint}{others}")


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
