"""What `trust-ratio` asks for, and the known mistakes of each kind of tensor: matrices, convolutions, zeros, biases."""

from collections.abc import Callable
from typing import Any

import torch

from hpml_lab.core.judge.mistakes import combined

Tensor = torch.Tensor
Step = Callable[[Tensor, Tensor, float, float, float], Tensor]  # (w, g, α, λ, η)
Steps = Callable[..., list[Any]]  # (weights, gradients, α, λ, η)
Ratio = Callable[[Tensor, Tensor, float, float], Any]  # (w, g, λ, η)


def _norm(x: Tensor) -> Tensor:
    return x.square().sum().sqrt()


def _ratio(w: Tensor, g: Tensor, decay: float, eta: float) -> Tensor:
    return eta * _norm(w) / (_norm(g) + decay * _norm(w))


def _with(norm: Callable[[Tensor], Tensor]) -> Ratio:
    """The trust ratio with another norm."""
    return lambda w, g, decay, eta: eta * norm(w) / (norm(g) + decay * norm(w))


def _guarded(ratio: Ratio, instead: float = 1.0) -> Ratio:
    """The ratio, or `instead` where a norm is 0."""
    return lambda w, g, decay, eta: ratio(w, g, decay, eta) if _norm(w) > 0 and _norm(g) > 0 else instead


def _decayed(w: Tensor, g: Tensor, decay: float) -> Tensor:
    return g + decay * w


def _not_decayed(w: Tensor, g: Tensor, decay: float) -> Tensor:
    return g


def _rule(
    ratio: Ratio = _ratio,
    direction: Callable[[Tensor, Tensor, float], Tensor] = _decayed,
    step: Callable[[Tensor, float, Any, Tensor], Tensor] = lambda w, lr, r, d: w - lr * r * d,
) -> Step:
    """One tensor's step, whose parts can be replaced."""
    return lambda w, g, lr, decay, eta: step(w, lr, ratio(w, g, decay, eta), direction(w, g, decay))


def _plain(w: Tensor, g: Tensor, lr: float, decay: float, eta: float) -> Tensor:
    return w - lr * g


def _decayed_plain(w: Tensor, g: Tensor, lr: float, decay: float, eta: float) -> Tensor:
    return w - lr * (g + decay * w)


def _right(w: Tensor, g: Tensor, lr: float, decay: float, eta: float) -> Tensor:
    if w.ndim == 1:
        return _plain(w, g, lr, decay, eta)
    return _rule(_ratio if w.any() and g.any() else lambda *_: 1.0)(w, g, lr, decay, eta)


def _each(step: Step) -> Steps:
    return lambda weights, gradients, *settings: [step(w, g, *settings) for w, g in zip(weights, gradients, strict=True)]


def _together(biases: bool) -> Steps:
    """One ratio for all tensors, or all but the biases, from their common norm."""

    def steps(weights: list[Tensor], gradients: list[Tensor], lr: float, decay: float, eta: float) -> list[Tensor]:
        pairs = [(w, g) for w, g in zip(weights, gradients, strict=True) if biases or w.ndim > 1]
        w, g = (torch.cat([pair[k].flatten() for pair in pairs]) for k in (0, 1))
        r = _ratio(w, g, decay, eta)
        return _each(_rule(lambda *_: r))(weights, gradients, lr, decay, eta)

    return steps


def _every_second_plain(weights: list[Tensor], gradients: list[Tensor], *settings: float) -> list[Tensor]:
    return [
        (_plain if number % 2 else _rule(_guarded(_ratio)))(w, g, *settings)
        for number, (w, g) in enumerate(zip(weights, gradients, strict=True))
    ]


right = _each(_right)
_ONE_NUMBER = "You have a ratio for each row or column. One number scales the whole tensor."
_RATIOS: dict[str, tuple[Ratio, str]] = {
    "inverted": (
        lambda w, g, decay, eta: eta * (_norm(g) + decay * _norm(w)) / _norm(w),
        "A layer with large weights may take large steps, and a large gradient must not lengthen them: which norm divides?",
    ),
    "inverted, with the coefficient": (
        lambda w, g, decay, eta: 1 / _ratio(w, g, decay, eta),
        "A layer with large weights may take large steps, and a large gradient must not lengthen them: which norm divides?",
    ),
    "decay-not-in-the-ratio": (
        lambda w, g, decay, eta: eta * _norm(w) / _norm(g),
        "The decay is part of the step, so its size belongs into the denominator: ‖g‖ + λ‖w‖.",
    ),
    "norm-of-the-sum": (
        lambda w, g, decay, eta: eta * _norm(w) / _norm(g + decay * w),
        "You divide by ‖g + λw‖, as LAMB does with its direction. LARS divides by the sum of two norms, ‖g‖ + λ‖w‖.",
    ),
    "decay-twice": (
        lambda w, g, decay, eta: eta * _norm(w) / (_norm(g + decay * w) + decay * _norm(w)),
        "λ is in your denominator twice: the first norm is that of the gradient as it came, without λw.",
    ),
    "no-coefficient": (
        lambda w, g, decay, eta: _norm(w) / (_norm(g) + decay * _norm(w)),
        "The trust coefficient η is missing: your steps are 1/η times too long.",
    ),
    "no-weight-norm": (
        lambda w, g, decay, eta: eta / (_norm(g) + decay * _norm(w)),
        "Your steps have the same length in every layer. They should be in proportion to the weights: ‖w‖ is missing above.",
    ),
    "squared-norms": (
        lambda w, g, decay, eta: eta * _norm(w) ** 2 / (_norm(g) ** 2 + decay * _norm(w) ** 2),
        "A norm is the root of the sum of the squares: yours are squares of norms.",
    ),
    "sum-of-absolute-values": (
        _with(lambda x: x.abs().sum()),
        "‖·‖ is the root of the sum of squares, not the sum of absolute values.",
    ),
    "largest-element": (_with(lambda x: x.abs().max()), "‖·‖ is the root of the sum of squares, not the largest element."),
    "spectral-norm": (
        _with(lambda x: torch.linalg.norm(x, 2)),
        "For a matrix, torch.linalg.norm(w, 2) is the largest singular value. All elements count here: w.norm(), or "
        "torch.linalg.vector_norm(w).",
    ),
    "norm-of-each-row": (_with(lambda x: x.flatten(1).norm(dim=1).view(-1, *[1] * (x.ndim - 1))), _ONE_NUMBER),
    "norm-of-each-row, along the last axis": (_with(lambda x: x.norm(dim=-1, keepdim=True)), _ONE_NUMBER),
    "norm-of-each-row, along the first axis": (_with(lambda x: x.norm(dim=0, keepdim=True)), _ONE_NUMBER),
    "clipped-at-one": (
        lambda w, g, decay, eta: _ratio(w, g, decay, eta).clamp(max=1.0),
        "You limit the ratio to 1: that is LARC. In LARS it may be larger.",
    ),
}
_INSIDE = "The decay belongs inside the parentheses that r multiplies: r (g + λw)."
_ANY = {  # of a step, whatever the tensor
    "no-rate": (lambda w, lr, r, d: w - r * d, "The learning rate α is missing in the step."),
    "rate-twice": (lambda w, lr, r, d: w - lr * lr * r * d, "The learning rate α is in your step twice."),
    "wrong-sign": (lambda w, lr, r, d: w + lr * r * d, "Your step goes up the gradient."),
    "only-the-step": (lambda w, lr, r, d: lr * r * d, "You return the steps; return the new weights."),
    "only-the-step, with its sign": (lambda w, lr, r, d: -lr * r * d, "You return the steps; return the new weights."),
    "unchanged": (lambda w, lr, r, d: w, "These tensors do not move at all."),
}
MATRICES = combined(
    _rule,
    {
        "ratio": {"plain-sgd": (lambda *_: 1.0, "That is the step of SGD: the trust ratio is missing."), **_RATIOS},
        "direction": {
            "decay-not-in-the-step": (
                lambda w, g, decay: g,
                "The decay is in the formula's step as well: r (g + λw), not only in the ratio.",
            ),
            "decay-with-the-wrong-sign": (
                lambda w, g, decay: g - decay * w,
                "Your decay makes the weights larger: it is added to the gradient, g + λw.",
            ),
        },
        "step": _ANY,
    },
) | {
    "decay-outside": (lambda w, g, lr, decay, eta: w - lr * (_ratio(w, g, decay, eta) * g + decay * w), _INSIDE),
    "decay-outside, afterwards": (
        lambda w, g, lr, decay, eta: (w - lr * _ratio(w, g, decay, eta) * g) * (1 - lr * decay),
        _INSIDE,
    ),
    "plain-without-decay": (
        lambda w, g, lr, decay, eta: _rule(_ratio if decay else lambda *_: 1.0)(w, g, lr, decay, eta),
        "Where λ is 0 you take the plain step, as some libraries do. In this formula r is then η ‖w‖ / ‖g‖.",
    ),
    "decay-outside, without the rate": (
        lambda w, g, lr, decay, eta: w - lr * _ratio(w, g, decay, eta) * g - decay * w,
        _INSIDE,
    ),
}
_SLICES = "matrix_norm gives one norm for each of the last two dimensions. One number scales the whole tensor."
CONVOLUTIONS = {
    "convolution-as-a-bias": (_plain, "You treat a tensor with four dimensions as a bias. Only one dimension makes a bias."),
    "norm-of-each-row, of each slice": (_rule(_with(lambda x: torch.linalg.matrix_norm(x)[..., None, None])), _SLICES),
    "norm-of-each-row, of each slice, added": (
        _rule(_with(lambda x: torch.linalg.matrix_norm(x).sum())),
        f"{_SLICES} And norms cannot be added: only squares can.",
    ),
    **{name: step for name, step in MATRICES.items() if "spectral" not in name},
}
_UNGUARDED = "Where weights or gradient are all 0, r = 1: a plain step. Yours is something else there, or nan."


def _guarded_for(which: Callable[[Tensor, Tensor], Tensor]) -> Step:
    """The step that takes care of only one of the two norms."""
    return _rule(lambda w, g, decay, eta: _ratio(w, g, decay, eta) if which(w, g).any() else 1.0)


ZEROS = {
    "zeros-never-move": (
        lambda w, *_: w,
        "Where a norm is 0 your ratio is 0, so a layer that starts at 0 stays there for ever. Take 1 there.",
    ),
    "zeros-with-the-coefficient": (
        _rule(lambda w, g, decay, eta: eta),
        "Where a norm is 0, r = 1: the whole ratio, also its factor η.",
    ),
    "zeros-not-decayed": (_plain, "Where a norm is 0, r = 1 in the same formula: the decay λw stays."),
    "zeros-not-plain": (_rule(), _UNGUARDED),
    "zeros-not-plain, of the weights": (_guarded_for(lambda w, g: w), _UNGUARDED),
    "zeros-not-plain, of the gradient": (_guarded_for(lambda w, g: g), _UNGUARDED),
    "zeros-not-plain, by an epsilon": (
        _rule(lambda w, g, decay, eta: eta * _norm(w) / (_norm(g) + decay * _norm(w) + 1e-8)),
        _UNGUARDED,
    ),
}
_ALONE = "You take the norm over several layers together. Each tensor has a ratio of its own."
_NEITHER = "A tensor with one dimension is a bias: it takes the plain step, with neither ratio nor decay."
BIASES = {
    "biases-adapted": (_rule(_guarded(_ratio)), _NEITHER),
    "biases-adapted, unguarded": (_rule(), _NEITHER),
    "biases-adapted, not decayed": (_rule(_guarded(_ratio), _not_decayed), _NEITHER),
    "biases-adapted, by a ratio without decay": (
        _rule(_guarded(lambda w, g, decay, eta: eta * _norm(w) / _norm(g)), _not_decayed),
        _NEITHER,
    ),
    "biases-with-the-coefficient": (
        lambda w, g, lr, decay, eta: w - lr * eta * g,
        "For a bias the whole ratio is left out, also its factor η: the plain step is α g.",
    ),
    "biases-decayed": (_decayed_plain, "Biases take the plain step: you subtract λ times the bias as well."),
    **{name: (_rule(lambda *_: 1.0, _not_decayed, step), hint) for name, (step, hint) in _ANY.items()},
    "unchanged": (lambda w, *_: w, "The biases do not move: they take the plain step."),
}

# Mistakes of the whole list, not of one kind of tensor.
WHOLES: dict[str, tuple[Steps, str]] = {
    f"one-ratio-for-all, {biases}": (_together(biases), _ALONE) for biases in (False, True)
} | {"biases-by-position": (_every_second_plain, "You take every second tensor for a bias. Which property makes it one?")}
