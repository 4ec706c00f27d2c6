"""trust-ratio: one step of LARS, each layer's step in proportion to the norm of its weights."""

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from hpml_lab.core.judge.asked import given_last
from hpml_lab.core.judge.declared import tensor
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.in_every_case import OF_ANY
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Rubric
from hpml_lab.core.judge.same import same, shown

Tensor = torch.Tensor
Tensors = list[Tensor]
Steps = Callable[..., list[Any]]  # (weights, gradients, α, λ, η)
Belongs = Callable[[Tensor, Tensor], Any]


def right(weights: Tensors, gradients: Tensors, lr: float, decay: float, eta: float) -> Tensors:
    new = []
    for w, g in zip(weights, gradients, strict=True):
        if w.ndim == 1:
            new.append(w - lr * g)
            continue
        n, m = norm(w), norm(g)
        r = eta * n / (m + decay * n) if n > 0 and m > 0 else 1.0
        new.append(w - lr * r * (g + decay * w))
    return new


def norm(x: Tensor) -> Tensor:
    return x.square().sum().sqrt()


def ratio(w: Tensor, g: Tensor, decay: float, eta: float, norm: Callable[[Tensor], Tensor]) -> Tensor:
    """The trust ratio with another norm."""
    return eta * norm(w) / (norm(g) + decay * norm(w))


def together(weights: Tensors, gradients: Tensors, lr: float, decay: float, eta: float, least: int = 2) -> Tensors:
    """One ratio for all tensors of at least so many dimensions, from their common norm."""
    pairs = [(w.flatten(), g.flatten()) for w, g in zip(weights, gradients, strict=True) if w.ndim >= least]
    r = ratio(*map(torch.cat, zip(*pairs, strict=True)), decay, eta, norm)
    return [w - lr * r * (g + decay * w) for w, g in zip(weights, gradients, strict=True)]


RATIO = "eta * n / (m + decay * n)"
RUBRIC = Rubric(
    right,
    """
w.ndim == 1
    biases-adapted :: False :: $NEITHER
w - lr * g
    biases-adapted :: w - lr * (eta * norm(w) / norm(g) if w.any() else 1.0) * g :: $NEITHER
    biases-decayed :: w - lr * (g + decay * w) :: Biases take the plain step: you subtract λ times the bias as well.
eta * n / (m + decay * n)
    plain-sgd :: 1.0 :: The step is multiplied by the trust ratio: without it, it is that of SGD.
    norm-of-the-sum :: eta * n / norm(g + decay * w) :: You divide by ‖g + λw‖, as LAMB does with its direction. LARS divides by
        the sum of two norms, ‖g‖ + λ‖w‖.
    spectral-norm :: ratio(w, g, decay, eta, lambda x: torch.linalg.norm(x, 2)) :: For a matrix, torch.linalg.norm(w, 2) is the
        largest singular value. All elements count here: w.norm(), or torch.linalg.vector_norm(w).
    norm-of-each-row :: ratio(w, g, decay, eta, lambda x: x.flatten(1).norm(dim=1).view(-1, *[1] * (x.ndim - 1))) :: $ONE
    norm-of-each-row :: ratio(w, g, decay, eta, lambda x: x.norm(dim=-1, keepdim=True)) :: $ONE
    norm-of-each-row :: ratio(w, g, decay, eta, lambda x: x.norm(dim=0, keepdim=True)) :: $ONE
    norm-of-each-row :: ratio(w, g, decay, eta, lambda x: torch.linalg.matrix_norm(x)[..., None, None]) :: $SLICES
    clipped-at-one :: (eta * n / (m + decay * n)).clamp(max=1.0) :: You limit the ratio to 1: that is LARC. In LARS it may be
        larger.
n > 0 and m > 0
    zeros-not-plain :: True :: $UNGUARDED
    zeros-not-plain :: n > 0 :: $UNGUARDED
    zeros-not-plain :: m > 0 :: $UNGUARDED
w - lr * r * (g + decay * w)
    decay-outside :: w - lr * (r * g + decay * w) :: $INSIDE
    decay-outside :: (w - lr * r * g) * (1 - lr * decay) :: $INSIDE
    decay-outside :: w - lr * r * g - decay * w :: $INSIDE
whole answer
    zeros-not-plain :: RUBRIC.edited((f"{RATIO} if n > 0 and m > 0 else 1.0", "eta * n / (m + decay * n + 1e-8)")) :: $UNGUARDED
    one-ratio-for-all :: together :: $ALONE
    one-ratio-for-all :: lambda *given: together(*given, least=1) :: $ALONE
""",
    NEITHER="A tensor with one dimension is a bias: it takes the plain step, with neither ratio nor decay.",
    ONE="You have a ratio for each row or column. One number scales the whole tensor.",
    SLICES="matrix_norm gives one norm for each of the last two dimensions. One number scales the whole tensor.",
    UNGUARDED="Where weights or gradient are all 0, r = 1: a plain step, and nothing is nan.",
    INSIDE="The decay belongs inside the parentheses that r multiplies: r (g + λw).",
    ALONE="You take the norm over several layers together. Each tensor has a ratio of its own.",
)


def _case(seed: int, shapes: tuple[tuple[int, ...], ...], sizes: tuple[float, ...]) -> tuple[list[Tensor], list[Tensor]]:
    made = torch.Generator().manual_seed(seed)
    weights = [torch.randn(shape, dtype=torch.float64, generator=made) for shape in shapes]
    return weights, [
        s * torch.randn(shape, dtype=torch.float64, generator=made) for shape, s in zip(shapes, sizes, strict=True)
    ]


def _zeroed(tensors: list[Tensor], index: int) -> list[Tensor]:
    return [torch.zeros_like(x) if i == index else x for i, x in enumerate(tensors)]


@exercise(
    "trust-ratio",
    notebook="15_large_batch",
    takes="weights, gradients, lr, weight_decay, trust_coeff",
    returns=[tensor("weights", new=True)],
)
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
        "gradients of 0 without decay, so that nothing moves": (net[0], [0 * g for g in net[1]], 0.5, 0.0, 0.02),
        "a bias of zeros": (_zeroed(zeros[0], 2), zeros[1], 0.5, 0.1, 0.02),
        "layers with one output or one input": (*_case(5, ((1, 3), (1,), (3, 1), (3,)), (0.1, 1.0, 0.1, 1.0)), 0.5, 0.1, 0.02),
        "a layer with weights near 0": ([1e-9 * tiny[0][0], *tiny[0][1:]], tiny[1], 0.5, 0.0, 0.02),
    }
    kinds: dict[str, Belongs] = {
        "a weight matrix": lambda w, g: w.ndim == 2 and w.any() and g.any(),
        "a convolution": lambda w, g: w.ndim > 2,
        "a bias": lambda w, g: w.ndim == 1,
        "a layer with a norm of 0": lambda w, g: w.ndim > 1 and not (w.any() and g.any()),
    }
    for kind, belongs in kinds.items():  # a mistake with one kind of tensor does not hide that of another
        try:
            expect_function(
                _of_kind(lambda *given: _listed(answer, given), belongs),
                _of_kind(right, belongs),
                {f"{kind} of {case}": given for case, given in cases.items() if any(map(belongs, *given[:2]))},
                mistakes=MistakesOfKind(belongs),
            )
        except Mistake as mistake:
            if mistake.name in ("wrong-value", *OF_ANY):
                _explain(answer, cases, kind, belongs)
            raise


class MistakesOfKind(NamedTuple):
    """The rubric's mistakes, seen at the tensors of one kind."""

    belongs: Belongs

    def items(self) -> Iterator[tuple[str, tuple[Steps, str]]]:
        for name, (function, hint) in RUBRIC.items():
            yield name, (_of_kind(function, self.belongs), hint)


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


def _listed(answer: Callable, given: tuple) -> list[Any]:
    """What the answer returns, if it has one tensor for each that was given."""
    shapes = [tuple(w.shape) for w in given[0]]
    new = answer(*given)
    if len(new) != len(shapes):
        hint = f"{len(shapes)} tensors were given, and you return {len(new)}: one new one for each, in order."
        raise Mistake("other-number", hint)
    for number, (each, shape) in enumerate(zip(new, shapes, strict=True)):
        if each.ndim == 0:
            hint = f"You return one number for tensor {number}, {shown(each)}. If that is its ratio, the step is still to come."
            raise Mistake("numbers-not-tensors", hint)
        if each.shape != shape:
            hint = f"Tensor {number} has the shape {shape}; what you return there is {shown(each)}."
            raise Mistake("wrong-shape", hint, given_last(given))
    return list(new)
