"""cross-layer-equalization: two layers that compute the same, with equal ranges for each channel between them."""

from collections.abc import Callable

import torch
from torch.nn import functional as F

from hpml_lab.core.judge.asked import given_last
from hpml_lab.core.judge.declared import like
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Rubric
from hpml_lab.core.judge.same import same

Tensor = torch.Tensor
Layers = tuple[Tensor, Tensor, Tensor]  # first weight, first bias, second weight


def along(weight: Tensor, dim: int, factors: Tensor) -> Tensor:
    """The factors, shaped so that they broadcast along `dim` of the weight."""
    return factors.view([-1 if d == dim else 1 for d in range(weight.ndim)])


def others(weight: Tensor, dim: int) -> list[int]:
    return [d for d in range(weight.ndim) if d != dim]


def largest(weight: Tensor, dim: int) -> Tensor:
    return weight.abs().amax(others(weight, dim))


def right(w1: Tensor, b1: Tensor, w2: Tensor) -> Layers:
    r1, r2 = largest(w1, 0), largest(w2, 1)
    s = (r2 / r1).sqrt()
    s = torch.where((r1 > 0) & (r2 > 0), s, torch.ones_like(s))
    first, bias, second = w1 * along(w1, 0, s), b1 * s, w2 / along(w2, 1, s)
    return first, bias, second


def misread(w1: Tensor, b1: Tensor, w2: Tensor, dim: int) -> Layers:
    """The second layer's ranges by its outputs, and divided along `dim`; an error if these are not as many as the channels."""
    s = (largest(w2, 0) / largest(w1, 0)).sqrt()
    return w1 * along(w1, 0, s), b1 * s, w2 / along(w2, dim, s)


_DEAD = "A channel without weights in one of the layers stays as it is: s = 1 there, and nothing becomes 0, infinite or nan."
RUBRIC = Rubric(
    right,
    """
largest(w1, 0), largest(w2, 1)
    bias-in-the-range :: torch.maximum(largest(w1, 0), b1.abs()), largest(w2, 1) :: The range is that of the weights alone:
        biases are not rounded to this grid.
    sign-ignored :: w1.amax(others(w1, 0)), w2.amax(others(w2, 1)) :: $RANGE The largest one may be negative.
    sign-ignored :: w1.amax(others(w1, 0)).abs(), w2.amax(others(w2, 1)).abs() :: $RANGE The largest one may be negative.
(r2 / r1).sqrt()
    no-root :: r2 / r1 :: With s = r₂/r₁ the two ranges change places. They should meet in the middle.
torch.where((r1 > 0) & (r2 > 0), s, torch.ones_like(s))
    dead-channels :: s :: $DEAD
b1 * s
    bias-forgotten :: b1 :: The bias is part of the channel: relu(s (w x + b)) = s relu(w x + b). Scale it.
w2 / along(w2, 1, s)
    wrong-axis :: w2 / along(w2, 0, (r2 / r1).sqrt()) :: $COLUMNS
whole answer
    wrong-axis :: lambda w1, b1, w2: misread(w1, b1, w2, 1) :: $COLUMNS
    wrong-axis :: lambda w1, b1, w2: misread(w1, b1, w2, 0) :: $COLUMNS
""",
    RANGE="The range of a channel is its largest |weight|.",
    DEAD=_DEAD,
    COLUMNS="A channel of the first layer is *read* by dimension 1 of the second weight; dimension 0 are its outputs.",
)


def _case(seed: int, channels: int, *shapes: tuple[int, ...]) -> Layers:
    """Layers whose channels differ widely; `shapes`: what follows in the first weight, then the second weight."""
    made = torch.Generator().manual_seed(seed)

    def randn(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=made)

    wide = torch.exp2(3 * randn(channels))
    w1, b1, w2 = randn(channels, *shapes[0]), randn(channels), randn(*shapes[1])
    return w1 * along(w1, 0, wide), b1 * wide, w2


def _dead(layers: Layers, first: int, second: int) -> Layers:
    w1, b1, w2 = (x.clone() for x in layers)
    w1[first] = 0
    b1[first] = 1.5  # what the next layer reads of this channel is its bias
    w2[:, second] = 0
    return w1, b1, w2


@exercise(
    "cross-layer-equalization",
    notebook="16_quantization",
    takes="w1, b1, w2",
    returns=(like("w1", new=True), like("b1", new=True), like("w2", new=True)),
)
def judge_equalized(answer: Callable) -> None:
    """(s W₁, s b₁, W₂ / s), all new, with s = √(r₂ / r₁) for each channel, and 1 where a range is 0."""
    cases = {
        "two Linear layers, 3 -> 4 -> 2": _case(0, 4, (3,), (2, 4)),
        "two Linear layers, 3 -> 3 -> 3": _case(1, 3, (3,), (3, 3)),
        "two convolutions, 2 -> 3 -> 4 channels of 3 × 3": _case(2, 3, (2, 3, 3), (4, 3, 3, 3)),
        "two convolutions of 1 × 1 and 2 × 2": _case(3, 2, (3, 1, 1), (2, 2, 2, 2)),
        "ranges that are equal already": (torch.eye(2), torch.ones(2), torch.tensor([[-1.0, 1.0]])),
        "one channel": _case(4, 1, (2,), (3, 1)),
        "one channel's ranges 0.001 and 10 000 000, another's 1e-25 and 1 000 000": (
            torch.tensor([[1e-3, -5e-4], [1.0, 2.0], [1e-25, -2e-26]]),
            torch.tensor([0.5, 1.0, 3e-25]),
            torch.tensor([[1e7, 0.5, 1e6], [-2e6, 1.0, 2e5]]),
        ),
        "small weights": tuple(1e-4 * part for part in _case(6, 3, (3,), (2, 3))),
        "a channel that nothing writes, and one that nothing reads": _dead(_case(5, 5, (3,), (2, 5)), 1, 3),
    }
    try:
        RUBRIC.expect(answer, cases, explain=lambda *_: _explain(answer, cases))
    except Mistake:
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
    _expect_more_than_linear(answer, cases)
    for case, layers in cases.items():
        new = answer(*(x.clone() for x in layers))
        for own, old in zip(new, layers, strict=True):
            if own.shape != old.shape:
                hint = (
                    f"Each new tensor has the shape of the old one: {tuple(old.shape)}, not {tuple(own.shape)}. A convolution's"
                )
                hint = f"{hint} weights have two dimensions more than a linear layer's."
                raise Mistake("wrong-shape", hint, given_last(layers))
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
        for channel, (r1, r2) in enumerate(zip(largest(new[0], 0), largest(new[2], 1), strict=True)):
            before = largest(layers[0], 0)[channel], largest(layers[2], 1)[channel]
            if all(before) and not same(r1, r2):
                hint = (
                    f"For {case} the function is kept, but channel {channel} has the largest |weights| {r1:.4g} and {r2:.4g}."
                )
                raise Mistake("ranges-differ", hint)


def _inputs(layers: Layers) -> Tensor:
    made = torch.Generator().manual_seed(0)
    size = (4,) * (layers[0].ndim - 2)
    return torch.randn(8, layers[0].shape[1], *size, dtype=torch.float64, generator=made)


def _outputs(layers: Layers, x: Tensor) -> Tensor:
    layer = F.linear if x.ndim == 2 else F.conv2d
    first, bias, second = (each.double() for each in layers)
    return layer(F.relu(layer(x, first, bias)), second)
