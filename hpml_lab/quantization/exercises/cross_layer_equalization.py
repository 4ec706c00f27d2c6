"""cross-layer-equalization: two layers that compute the same, with equal ranges for each channel between them."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.mistakes import combined
from hpml_lab.core.judge.same import numbers, same

Tensor = torch.Tensor
Layers = tuple[Tensor, Tensor, Tensor]  # first weight, first bias, second weight
Equalize = Callable[[Tensor, Tensor, Tensor], Layers]


def _along(weight: Tensor, dim: int, factors: Tensor) -> Tensor:
    """The factors, shaped so that they broadcast along `dim` of the weight."""
    return factors.view([-1 if d == dim else 1 for d in range(weight.ndim)])


def _others(weight: Tensor, dim: int) -> list[int]:
    return [d for d in range(weight.ndim) if d != dim]


def _largest(weight: Tensor, bias: Tensor | None, dim: int) -> Tensor:
    return weight.abs().amax(_others(weight, dim))


def _with_bias(weight: Tensor, bias: Tensor | None, dim: int) -> Tensor:
    found = _largest(weight, None, dim)
    return found if bias is None else torch.maximum(found, bias.abs())


def _build(
    span: Callable[[Tensor, Tensor | None, int], Tensor] = _largest,
    factor: Callable[[Tensor, Tensor], Tensor] = lambda r1, r2: (r2 / r1).sqrt(),
    guard: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda s, r1, r2: torch.where(
        (r1 > 0) & (r2 > 0), s, torch.ones_like(s)
    ),
    first: Callable[[Tensor, Tensor], Tensor] = lambda w1, s: w1 * s,
    bias: Callable[[Tensor, Tensor], Tensor] = lambda b1, s: b1 * s,
    second: Callable[[Tensor, Tensor], Tensor] = lambda w2, s: w2 / s,
) -> Equalize:
    """The equalization whose parts can be replaced."""

    def equalized(w1: Tensor, b1: Tensor, w2: Tensor) -> Layers:
        r1, r2 = span(w1, b1, 0), span(w2, None, 1)
        s = guard(factor(r1, r2), r1, r2)
        return first(w1, _along(w1, 0, s)), bias(b1, s), second(w2, _along(w2, 1, s))

    return equalized


right = _build()

_RANGE = "The range of a channel is its largest |weight|."
_DEAD = "A channel without weights in one of the layers stays as it is: s = 1 there. Yours becomes 0, infinite or nan."
_SPAN = {
    "bias-in-the-range": (_with_bias, "The range is that of the weights alone: biases are not rounded to this grid."),
    "sign-ignored": (lambda w, b, dim: w.amax(_others(w, dim)), f"{_RANGE} The largest one may be negative."),
    "sign-ignored, absolute": (lambda w, b, dim: w.amax(_others(w, dim)).abs(), f"{_RANGE} The largest one may be negative."),
    "mean-instead-of-largest": (lambda w, b, dim: w.abs().mean(_others(w, dim)), f"{_RANGE} Yours is the mean."),
    "norm-instead-of-largest": (lambda w, b, dim: w.square().sum(_others(w, dim)).sqrt(), f"{_RANGE} Yours is the norm."),
    "spread-instead-of-largest": (lambda w, b, dim: w.std(_others(w, dim)), f"{_RANGE} Yours is the standard deviation."),
    "whole-range": (
        lambda w, b, dim: w.amax(_others(w, dim)) - w.amin(_others(w, dim)),
        f"{_RANGE} max - min is the range of an affine grid.",
    ),
    "one-for-all": (
        lambda w, b, dim: w.abs().amax().expand(w.shape[dim]),
        "All your factors are alike: you take one range for each layer. Each channel has a range of its own.",
    ),
}
_FACTOR = {
    "inverted": (
        lambda r1, r2: (r1 / r2).sqrt(),
        "Your channels with wide weights become wider still: s is the inverse of yours.",
    ),
    "no-root": (lambda r1, r2: r2 / r1, "With s = r₂/r₁ the two ranges change places. They should meet in the middle."),
    "no-root, inverted": (lambda r1, r2: r1 / r2, "Neither the root nor the direction is right: set s r₁ = r₂ / s and solve."),
    "first-only": (lambda r1, r2: 1 / r1, "All ranges of your first layer are 1, and the second layer has the whole spread."),
    "second-only": (lambda r1, r2: r2, "All ranges of your second layer are 1, and the first layer has the whole spread."),
    "range-taken-for-factor": (lambda r1, r2: (r1 * r2).sqrt(), "√(r₁ r₂) is the range that both should have, not the factor."),
    "powers-of-two": (
        lambda r1, r2: torch.exp2((r2 / r1).sqrt().log2().round()),
        "Your factors are rounded to powers of two, so the two ranges meet only roughly. Take the exact ones.",
    ),
    "arithmetic-mean": (lambda r1, r2: (r1 + r2) / 2 / r1, "s r₁ is the mean of the ranges in yours, but then r₂/s is not."),
    "nothing-changed": (lambda r1, r2: torch.ones_like(r1), "You return the layers as they were."),
    "first-equal": (lambda r1, r2: r1.max() / r1, "All ranges of your first layer are equal; the second has the whole spread."),
}
_SECOND = "What the first layer multiplies, the second divides by: only then the function is the same."
PARTS: dict[str, dict[str, tuple[Callable, str]]] = {
    "span": _SPAN,
    "factor": _FACTOR,
    "guard": {
        "dead-channels": (lambda s, r1, r2: s, _DEAD),
        "dead-channels, in the first": (lambda s, r1, r2: torch.where(r1 > 0, s, torch.ones_like(s)), _DEAD),
        "dead-channels, in the second": (lambda s, r1, r2: torch.where(r2 > 0, s, torch.ones_like(s)), _DEAD),
        "dead-channels, as numbers": (lambda s, r1, r2: s.nan_to_num(nan=1.0), _DEAD),
        "dead-channels, of both": (lambda s, r1, r2: torch.where(s.isfinite(), s, torch.ones_like(s)), _DEAD),
        "dead-channels, zeroed": (lambda s, r1, r2: torch.where((r1 > 0) & (r2 > 0), s, torch.zeros_like(s)), _DEAD),
    },
    "first": {"first-unchanged": (lambda w1, s: w1, "Your first layer's weights are not scaled."),
              "first-divided": (lambda w1, s: w1 / s, "Your first layer is divided by s: then its ranges do not meet r₂ / s.")},
    "bias": {
        "bias-forgotten": (lambda b1, s: b1, "The bias is part of the channel: relu(s (w x + b)) = s relu(w x + b). Scale it."),
        "bias-divided": (lambda b1, s: b1 / s, "The bias goes with the weights of its own layer: multiply it."),
        "bias-dropped": (lambda b1, s: torch.zeros_like(b1), "Your bias is gone: it is scaled, not removed."),
    },
    "second": {
        "second-unchanged": (lambda w2, s: w2, _SECOND),
        "second-multiplied": (lambda w2, s: w2 * s, _SECOND),
    },
}  # fmt: skip


def _only_weights(w1: Tensor, b1: Tensor, w2: Tensor) -> tuple[Tensor, Tensor]:
    new = right(w1, b1, w2)
    return new[0], new[2]


def _misread(dim: int) -> Equalize:
    """The second layer's ranges by its outputs, and divided along `dim`; an error where these are not as many as the
    channels."""

    def equalized(w1: Tensor, b1: Tensor, w2: Tensor) -> Layers:
        r1, r2 = _largest(w1, None, 0), _largest(w2, None, 0)
        s = (r2 / r1).sqrt()
        return w1 * _along(w1, 0, s), b1 * s, w2 / _along(w2, dim, s)

    return equalized


def _rows_divided(w1: Tensor, b1: Tensor, w2: Tensor) -> Layers:
    new = right(w1, b1, w2)
    s = (_largest(w2, None, 1) / _largest(w1, None, 0)).sqrt()
    return new[0], new[1], w2 / _along(w2, 0, s)


_COLUMNS = "A channel of the first layer is *read* by dimension 1 of the second weight; dimension 0 are its outputs."
MISTAKES = {
    "wrong-axis": (_misread(1), _COLUMNS),
    "wrong-axis, all of it": (_misread(0), _COLUMNS),
    "wrong-axis, divided": (_rows_divided, _COLUMNS),
    "bias-missing": (_only_weights, "Return three tensors: the first weight, the first bias, the second weight."),
    "wrong-order": (
        lambda w1, b1, w2: (lambda new: (new[0], new[2], new[1]))(right(w1, b1, w2)),
        "Return them in the order in which they came: first weight, first bias, second weight.",
    ),
    "only-the-factors": (
        lambda w1, b1, w2: (_largest(w2, None, 1) / _largest(w1, None, 0)).sqrt(),
        "You return the factors. Apply them, and return first weight, first bias, second weight.",
    ),
} | combined(_build, PARTS)


def _case(seed: int, channels: int, *shapes: tuple[int, ...]) -> Layers:
    """Layers whose channels differ widely; `shapes`: what follows in the first weight, then the second weight."""
    made = torch.Generator().manual_seed(seed)

    def randn(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=made)

    wide = torch.exp2(3 * randn(channels))
    w1, b1, w2 = randn(channels, *shapes[0]), randn(channels), randn(*shapes[1])
    return w1 * _along(w1, 0, wide), b1 * wide, w2


def _dead(layers: Layers, first: int, second: int) -> Layers:
    w1, b1, w2 = (x.clone() for x in layers)
    w1[first] = 0
    b1[first] = 1.5  # what the next layer reads of this channel is its bias
    w2[:, second] = 0
    return w1, b1, w2


@exercise("cross-layer-equalization", notebook="16_quantization")
def judge_equalized(answer: Callable) -> None:
    """(s W₁, s b₁, W₂ / s), all new, with s = √(r₂ / r₁) for each channel, and 1 where a range is 0."""
    cases = {
        "two Linear layers, 3 -> 4 -> 2": _case(0, 4, (3,), (2, 4)),
        "two Linear layers, 3 -> 3 -> 3": _case(1, 3, (3,), (3, 3)),
        "two convolutions, 2 -> 3 -> 4 channels of 3 × 3": _case(2, 3, (2, 3, 3), (4, 3, 3, 3)),
        "two convolutions of 1 × 1 and 2 × 2": _case(3, 2, (3, 1, 1), (2, 2, 2, 2)),
        "one channel": _case(4, 1, (2,), (3, 1)),
        "small weights": tuple(1e-4 * part for part in _case(6, 3, (3,), (2, 3))),
        "a channel that nothing writes, and one that nothing reads": _dead(_case(5, 5, (3,), (2, 5)), 1, 3),
    }
    try:
        expect_function(answer, right, cases, mistakes=MISTAKES)
    except Mistake as mistake:
        if mistake.name == "wrong-value":
            _expect_more_than_linear(answer, cases)
            _explain(answer, cases)
        raise
    except Exception:  # of the answer
        _expect_more_than_linear(answer, cases)
        raise


def _expect_more_than_linear(answer: Callable, cases: dict[str, Layers]) -> None:
    """Raise Mistake for an answer that is right for Linear layers, but wrong or an error for every convolution."""

    def is_right(layers: Layers) -> bool:
        try:
            return same(answer(*(x.clone() for x in layers)), right(*layers))
        except Exception:
            return False

    if all(is_right(layers) == (layers[0].ndim == 2) for layers in cases.values()):
        hint = "Your result is right for Linear layers alone. A channel of a convolution has inputs, rows and columns: the "
        raise Mistake("linear-only", f"{hint}largest weight is over all of them, and its factor is lined up with all four.")


def _explain(answer: Callable, cases: dict[str, Layers]) -> None:
    """Raise the Mistake that says which property is missing: the same function, or equal ranges."""
    for case, layers in cases.items():
        returned = answer(*(x.clone() for x in layers))
        if not isinstance(returned, tuple | list) or len(returned) != 3:
            raise Mistake("not-three-tensors", "Return three tensors: the first weight, the first bias, the second weight.")
        new = [_tensor(x, like) for x, like in zip(returned, layers, strict=True)]
        if same(tuple(new), right(*layers)):
            continue
        if not all(x.isfinite().all() for x in new):
            raise Mistake("not-finite", f"For {case} your layers contain infinity or nan. {_DEAD}")
        x = _inputs(layers)
        own, wanted = _outputs(new, x), _outputs(layers, x)
        if not same(own, wanted, 1e-5):
            far = ((own - wanted).abs().max() / wanted.abs().max()).item()
            hint = (
                f"For {case} your two layers compute something else than the given ones: outputs differ by up to {far:.1g} of"
            )
            raise Mistake("another-function", f"{hint} the largest. Compare what is done to weight, bias and second weight.")
        for channel, (r1, r2) in enumerate(zip(_largest(new[0], None, 0), _largest(new[2], None, 1), strict=True)):
            before = _largest(layers[0], None, 0)[channel], _largest(layers[2], None, 1)[channel]
            if not all(before):
                if not same((r1, r2), before):
                    raise Mistake("dead-channels", _DEAD)
            elif not same(r1, r2):
                hint = (
                    f"For {case} the function is kept, but channel {channel} has the largest |weights| {r1:.4g} and {r2:.4g}."
                )
                raise Mistake("ranges-differ", hint)
        return


def _tensor(x: Any, like: Tensor) -> Tensor:
    found = numbers(x)
    if found is None or found.shape != like.shape:
        raise Mistake("wrong-shape", f"Each new tensor has the shape of the old one, {tuple(like.shape)} for example.")
    return found.to(like.dtype)


def _inputs(layers: Layers) -> Tensor:
    made = torch.Generator().manual_seed(0)
    size = (4,) * (layers[0].ndim - 2)
    return torch.randn(8, layers[0].shape[1], *size, dtype=torch.float64, generator=made)


def _outputs(layers: Layers, x: Tensor) -> Tensor:
    layer = F.linear if x.ndim == 2 else F.conv2d
    return layer(F.relu(layer(x, layers[0], layers[1])), layers[2])
