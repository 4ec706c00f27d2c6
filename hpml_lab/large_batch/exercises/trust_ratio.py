"""trust-ratio: one step of LARS, each layer's step in proportion to the norm of its weights."""

import copy
import itertools
from collections.abc import Callable
from typing import Any

import torch

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.same import numbers, same, shown
from hpml_lab.large_batch.exercises.trust_ratio_mistakes import (
    BIASES,
    CONVOLUTIONS,
    MATRICES,
    WHOLES,
    ZEROS,
    Step,
    Steps,
    right,
)

Tensor = torch.Tensor
Belongs = Callable[[Tensor, Tensor], Any]


def _case(seed: int, shapes: tuple[tuple[int, ...], ...], sizes: tuple[float, ...]) -> tuple[list[Tensor], list[Tensor]]:
    made = torch.Generator().manual_seed(seed)
    weights = [torch.randn(shape, dtype=torch.float64, generator=made) for shape in shapes]
    return weights, [
        s * torch.randn(shape, dtype=torch.float64, generator=made) for shape, s in zip(shapes, sizes, strict=True)
    ]


def _zeroed(tensors: list[Tensor], index: int) -> list[Tensor]:
    return [torch.zeros_like(x) if i == index else x for i, x in enumerate(tensors)]


@exercise("trust-ratio", notebook="15_large_batch")
def judge_trust_ratio(answer: Callable) -> None:
    """[w − α r (g + λ w) for each matrix, w − α g for each bias], all new, with r = 1 where a norm is 0."""
    net = _case(0, ((3, 4), (3,), (2, 3), (2,)), (0.1, 1.0, 5.0, 1.0))
    large = _case(3, ((4, 2), (3, 3)), (0.01, 0.1))  # ratios above 1
    convolution = _case(1, ((2, 3, 2, 2), (2,), (3, 2, 4)), (0.01, 0.1, 0.02))
    zeros = _case(2, ((2, 2), (3, 2), (2,)), (1.0, 1.0, 1.0))
    tiny = _case(4, ((2, 3), (3, 2), (2,)), (1.0, 1.0, 1.0))
    cases = {
        "two layers with λ = 0.1": (*net, 0.5, 0.1, 0.02),
        "two layers without decay": (*net, 0.5, 0.0, 0.02),
        "two layers with large weights": ([20 * w for w in net[0]], net[1], 0.5, 0.1, 0.02),  # norms far above 10
        "small gradients, with η = 3": (*large, 0.1, 0.05, 3.0),
        "a convolution, with η = 3": (*convolution, 0.1, 0.05, 3.0),
        "a layer whose weights are all 0": (_zeroed(zeros[0], 0), zeros[1], 0.5, 0.1, 0.02),
        "a layer whose gradient is all 0": (zeros[0], _zeroed(zeros[1], 1), 0.5, 0.1, 0.02),
        "a bias of zeros": (_zeroed(zeros[0], 2), zeros[1], 0.5, 0.1, 0.02),
        "a layer with weights near 0": ([1e-9 * tiny[0][0], *tiny[0][1:]], tiny[1], 0.5, 0.0, 0.02),
    }
    kinds = {
        "a weight matrix": (lambda w, g: w.ndim == 2 and w.any() and g.any(), MATRICES),
        "a convolution": (lambda w, g: w.ndim > 2, CONVOLUTIONS),
        "a bias": (lambda w, g: w.ndim == 1, BIASES),
        "a layer with a norm of 0": (lambda w, g: w.ndim > 1 and not (w.any() and g.any()), ZEROS),
    }
    for kind, (belongs, mistakes) in kinds.items():  # each kind of tensor has a rule, and mistakes, of its own
        known = {name: (_stepped(step, belongs), hint) for name, (step, hint) in mistakes.items()}
        try:
            _judge_kind(answer, cases, kind, belongs, known)
        except Mistake as mistake:
            if mistake.name == "wrong-value":
                _explain(answer, cases, kind, belongs)
            raise


def _judge_kind(answer: Callable, cases: dict[str, tuple], kind: str, belongs: Belongs, known: dict) -> None:
    expect_function(
        _of_kind(lambda *given: _listed(answer, given), belongs),
        _of_kind(right, belongs),
        {f"{kind} of {case}": given for case, given in cases.items() if any(map(belongs, *given[:2]))},
        mistakes=known | {name: (_of_kind(steps, belongs), hint) for name, (steps, hint) in WHOLES.items()},
    )


def _explain(answer: Callable, cases: dict[str, tuple], kind: str, belongs: Belongs) -> None:
    """Raise the Mistake that compares the step with a g + b w, of which every step of LARS is made."""
    for case, (weights, gradients, lr, decay, eta) in cases.items():
        given = copy.deepcopy((weights, gradients, lr, decay, eta))
        for w, g, new, wanted in zip(weights, gradients, _listed(answer, given), right(*given), strict=True):
            if not belongs(w, g) or same(new, wanted):
                continue
            own, rightly = (_factors(w, g, torch.as_tensor(after)) for after in (new, wanted))
            if own is None:
                hint = f"For {kind} of {case}, your step has parts that are neither along the gradient nor along the weights."
                raise Mistake("another-direction", hint)
            for name, what, a, b in zip(("wrong-length", "wrong-decay"), ("gradient", "weights"), own, rightly, strict=True):
                if not same(a, b, 1e-4):
                    hint = f"you subtract {a:.4g} times the {what}, and should subtract {b:.4g} times."
                    raise Mistake(name, f"For {kind} of {case}, {hint}")


def _factors(w: Tensor, g: Tensor, new: Tensor) -> tuple[float, float] | None:
    """(a, b) if w − new is a g + b w, else None."""
    basis, step = torch.stack([g.flatten(), w.flatten()], dim=1), (w - new).flatten()
    kept = basis.abs().sum(0) > 0
    factors = torch.zeros(2, dtype=w.dtype)
    factors[kept] = torch.linalg.lstsq(basis[:, kept], step[:, None]).solution[:, 0]
    return tuple(factors.tolist()) if same(basis @ factors, step, 1e-5) else None


def _of_kind(steps: Steps, belongs: Belongs) -> Steps:
    """The new tensors of one kind."""

    def chosen(weights: list[Tensor], gradients: list[Tensor], *settings: float) -> list[Any]:
        wanted = [bool(belongs(w, g)) for w, g in zip(weights, gradients, strict=True)]
        return list(itertools.compress(steps(weights, gradients, *settings), wanted))

    return chosen


def _stepped(step: Step, belongs: Belongs) -> Steps:
    """The same for a rule that knows this kind only."""
    return lambda weights, gradients, *settings: [
        step(w, g, *settings) for w, g in zip(weights, gradients, strict=True) if belongs(w, g)
    ]


def _listed(answer: Callable, given: tuple) -> list[Any]:
    """What the answer returns, if it has one tensor for each that was given."""
    count, shapes = len(given[0]), [tuple(w.shape) for w in given[0]]
    new = answer(*given)
    if new is None:
        raise Mistake("returns-nothing", "Your function returns None: return the list of new tensors.")
    if not isinstance(new, list | tuple):
        raise Mistake("not-a-list", f"Return a list with one new tensor for each; yours is a {type(new).__name__}.")
    if len(new) != count:
        raise Mistake("other-number", f"{count} tensors were given, and you return {len(new)}: one new one for each, in order.")
    for number, (each, shape) in enumerate(zip(new, shapes, strict=True)):
        own = tuple(numbers(each).shape) if numbers(each) is not None else None
        if own == ():
            hint = f"You return one number for tensor {number}, {shown(each)}. If that is its ratio, the step is still to come."
            raise Mistake("numbers-not-tensors", hint)
        if own != shape:
            raise Mistake("wrong-shape", f"Tensor {number} has the shape {shape}; what you return there is {shown(each)}.")
    return list(new)
