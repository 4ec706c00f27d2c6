"""channel-scales: one symmetric scale for each output channel, whatever dimension of the weight these are."""

from collections.abc import Callable

import torch

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.mistakes import combined
from hpml_lab.core.judge.same import numbers, same

Tensor = torch.Tensor
Scales = Callable[[Tensor, int, int], Tensor]  # (weight, bits, axis)


def _rows(weight: Tensor, axis: int) -> Tensor:
    """(channels, weights of one channel)."""
    return weight.movedim(axis, 0).flatten(1)


def _peak(rows: Tensor) -> Tensor:
    return rows.abs().amax(1)


def _scales(
    rows: Callable[[Tensor, int], Tensor] = _rows,
    peak: Callable[[Tensor], Tensor] = _peak,
    half: Callable[[int], float] = lambda bits: (2**bits - 1) / 2,
    guard: Callable[[Tensor], Tensor] = lambda scale: torch.where(scale == 0, torch.ones_like(scale), scale),
    what: Callable[[Tensor], Tensor] = lambda scale: scale,
) -> Scales:
    """The scales whose parts can be replaced: a channel's weights, their peak, the steps up to it, and zeros."""
    return lambda weight, bits, axis: what(guard(peak(rows(weight, axis)) / half(bits)))


right = _scales()


def _over(weight: Tensor, dims: list[int]) -> Tensor:
    return weight.abs().amax(dims) if dims else weight.abs()


def _direct(reduced: Callable[[Tensor, int], Tensor]) -> Scales:
    """The scales of peaks that are not one for each channel."""
    return lambda weight, bits, axis: _scales(lambda w, axis: reduced(w, axis), lambda peaks: peaks)(weight, bits, axis)


_OTHER = "You take the largest weight along `axis`, and so lose that dimension. It is the one to keep: all the others go."
_GRID = "The integers go from -2^(bits-1) to 2^(bits-1) - 1, and s = max|w| / ((q_max - q_min) / 2): 127.5 steps for 8 bits."
_ZEROS = "A channel of zeros has the scale 1 here, so that nothing is divided by 0. Yours is something else there."
_SIGNS = "The largest weight may be a negative one: take the largest absolute value."
PARTS: dict[str, dict[str, tuple[Callable, str]]] = {
    "rows": {
        "axis-ignored": (lambda w, axis: _rows(w, 0), "Your channels are always those of dimension 0: use `axis`."),
        "axis-ignored, 1": (lambda w, axis: _rows(w, 1), "Your channels are always those of dimension 1: use `axis`."),
        "axis-ignored, last": (
            lambda w, axis: _rows(w, -1),
            "Your channels are always those of the last dimension: use `axis`.",
        ),
        "one-for-all": (
            lambda w, axis: w.reshape(1, -1).expand(w.shape[axis], -1),
            "All your scales are alike: that is one scale for the whole tensor. Each channel has a largest weight of its own.",
        ),
        "reshaped-not-moved": (
            lambda w, axis: w.reshape(w.shape[axis], -1),
            "reshape keeps the order in memory, so your rows mix the channels unless axis is 0. Move that dimension to the "
            "front first, or reduce over all other dimensions.",
        ),
        "wrong-axis": (lambda w, axis: _rows(w, 1 - axis % w.ndim if axis % w.ndim < 2 else 0), _OTHER),
    },
    "peak": {
        "sign-ignored": (lambda rows: rows.amax(1), _SIGNS),
        "sign-ignored, absolute": (lambda rows: rows.amax(1).abs(), _SIGNS),
        "sign-ignored, least": (lambda rows: -rows.amin(1), _SIGNS),
        "whole-range": (
            lambda rows: (rows.amax(1) - rows.amin(1)) / 2,
            "max - min is the range of affine quantization. A symmetric range reaches as far on both sides of 0.",
        ),
        "mean-instead-of-largest": (lambda rows: rows.abs().mean(1), "The largest |w| has to fit into the grid, not the mean."),
        "norm-instead-of-largest": (lambda rows: rows.norm(dim=1), "The largest |w| has to fit into the grid: no norm."),
        "spread-instead-of-largest": (lambda rows: rows.std(1), "The largest |w| has to fit into the grid: no deviation."),
        "least-instead-of-largest": (
            lambda rows: rows.abs().amin(1),
            "You take the smallest |w| of a channel, not the largest.",
        ),
    },
    "half": {
        "other-grid": (lambda bits: 2 ** (bits - 1) - 1, f"Your grid ends at ±(2^(bits-1) - 1), another convention. {_GRID}"),
        "other-grid, 128": (lambda bits: 2 ** (bits - 1), _GRID),
        "not-halved": (
            lambda bits: 2**bits - 1,
            "You divide by all steps of the grid; from 0 to max|w| there are half of them.",
        ),
        "not-halved, 256": (lambda bits: 2**bits, "2^bits is the number of integers; from 0 to max|w| there are fewer steps."),
        "bits-ignored": (lambda bits: 127.5, "You have written 8 bits into the function: `bits` is an argument."),
        "bits-ignored, 127": (lambda bits: 127, "You have written 8 bits into the function: `bits` is an argument."),
        "not-divided": (lambda bits: 1, "You return the largest |w|. The scale is the step between two integers."),
    },
    "guard": {
        "zeros-unguarded": (lambda scale: scale, _ZEROS),
        "zeros-unguarded, epsilon": (lambda scale: scale.clamp(min=torch.finfo(torch.float32).eps), _ZEROS),
        "zeros-unguarded, small": (lambda scale: scale.clamp(min=1e-8), _ZEROS),
        "small-scales-lost": (lambda scale: scale.clamp(min=1.0), "You lift every scale to at least 1; only zeros become 1."),
    },
    "what": {
        "inverted": (lambda scale: 1 / scale, "Yours is 1/s: the steps in a unit. The scale is the width of one step."),
        "keeps-dimensions": (lambda scale: scale[:, None], "Return one dimension: a scale for each channel."),
        "rounded": (lambda scale: scale.round(decimals=2), "Do not round the scales."),
    },
}
MISTAKES = {
    "wrong-axis, along": (_direct(lambda w, axis: w.abs().amax(axis)), _OTHER),
    "dimensions-left": (
        _direct(lambda w, axis: _over(w, [1 - axis % w.ndim] if w.ndim == 2 or axis % w.ndim < 2 else [0])),
        "A convolution's channel has inputs, rows and columns. You reduce over one of these dimensions only.",
    ),
    "dimensions-left, last": (
        _direct(lambda w, axis: w.movedim(axis, 0).abs().amax(-1)),
        "A convolution's channel has inputs, rows and columns. You reduce over one of these dimensions only.",
    ),
    "negative-axis": (
        _direct(lambda w, axis: _over(w, [d for d in range(w.ndim) if d != axis])),
        "axis = -1 is the last dimension. No number of range(weight.ndim) equals -1, so you have reduced over all of them.",
    ),
    "keeps-dimensions, each as 1": (
        _direct(lambda w, axis: w.abs().amax([d for d in range(w.ndim) if d != axis % w.ndim], keepdim=True)),
        "Return one dimension, (channels,): yours keeps the others, with one element each.",
    ),
    "one-number": (
        _direct(lambda w, axis: w.abs().amax()),
        "You return one number for the whole tensor. Each channel has a largest weight, and a scale, of its own.",
    ),
    "one-number, in a list": (
        _direct(lambda w, axis: w.abs().amax()[None]),
        "You return one number for the whole tensor. Each channel has a largest weight, and a scale, of its own.",
    ),
} | combined(_scales, PARTS)


def _case(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def _with_zeros(weight: Tensor, channel: int) -> Tensor:
    return weight.index_fill(0, torch.tensor([channel]), 0.0)


@exercise("channel-scales", notebook="16_quantization")
def judge_channel_scales(answer: Callable) -> None:
    """s = max|w| / ((2^bits - 1) / 2) over everything but `axis`, and 1 for a channel of zeros."""
    cases = {
        "a Linear weight (3, 4), 8 bits, axis 0": (_case(0, 3, 4), 8, 0),
        "a Linear weight (4, 3) in float32, 4 bits, axis 0": (_case(1, 4, 3).float(), 4, 0),
        "a convolution (3, 2, 2, 4), 8 bits, axis 0": (_case(2, 3, 2, 2, 4), 8, 0),
        "a transposed convolution (2, 3, 3, 2), 3 bits, axis 1": (_case(3, 2, 3, 3, 2), 3, 1),
        "a matrix (inputs, outputs) = (4, 4), 2 bits, axis 1": (_case(4, 4, 4), 2, 1),
        "a convolution with channels last, (2, 2, 3, 5), 4 bits, axis -1": (_case(5, 2, 2, 3, 5), 4, -1),
        "large weights (3, 3), 4 bits, axis 0": (100 * _case(6, 3, 3), 4, 0),
        "one channel (1, 4), 8 bits, axis 0": (_case(7, 1, 4), 8, 0),
        "a channel of zeros, (3, 2, 2, 2), 8 bits, axis 0": (_with_zeros(_case(8, 3, 2, 2, 2), 1), 8, 0),
        "some zeros in every channel, (4, 3), 8 bits, axis 1": (_case(9, 4, 3) * (1 - torch.eye(4, 3)), 8, 1),
        "very small weights (3, 4), 8 bits, axis 0": (1e-9 * _case(10, 3, 4), 8, 0),
    }
    try:
        expect_function(answer, right, cases, mistakes=MISTAKES)
    except Mistake as mistake:
        if mistake.name == "wrong-value":
            _explain(answer, cases)
        raise


def _explain(answer: Callable, cases: dict[str, tuple]) -> None:
    """Raise the Mistake of an answer whose scales are right but for a guard, a factor, the order or the precision, or that
    mixes the channels."""
    found = {case: numbers(answer(given[0].clone(), *given[1:])) for case, given in cases.items()}
    wanted = {case: right(*given).double() for case, given in cases.items()}
    found = {case: own for case, own in found.items() if own is not None and own.shape == wanted[case].shape}
    rows = {case: _rows(*given[::2]).abs().double() for case, given in cases.items() if case in found}
    ratios = {case: (own.double() / wanted[case])[rows[case].any(1)] for case, own in found.items()}
    live = {case: own.double()[rows[case].any(1)] for case, own in found.items()}
    if all(torch.isclose(ratio[live[case] != 1], torch.ones(()).double()).all() for case, ratio in ratios.items()):
        for case, own in live.items():
            if (ones := (own == 1) & (ratios[case] != 1)).any():
                zeros = "some of its weights are" if (rows[case] == 0).any() else "its weights are small, but not"
                hint = f"For {case} your scale {int(ones.nonzero()[0])} is 1, and {zeros} 0. Only if all are 0 it is 1."
                raise Mistake("guard-too-wide", hint)
        raise Mistake("zeros-unguarded", _ZEROS)
    for case, ratio in ratios.items():
        if all(same(each, each[:1].expand(each.shape)) for each in ratios.values()) and not same(ratio[0], 1.0):
            hint = (
                f"For {case} every scale of yours is {ratio[0]:.6g} times the right one: the weights of a channel are found, "
            )
            raise Mistake("wrong-number-of-steps", hint + f"the number of steps from 0 to the largest is not. {_GRID}")
    if all(same(own.double().sort().values, wanted[case].sort().values) for case, own in found.items()):
        raise Mistake("other-order", "Your scales are those of the channels, but in another order.")
    for case, own in found.items():
        _, bits, axis = cases[case]
        _expect_own_channel(case, rows[case], own.double() * (2**bits - 1) / 2, axis)
    far, case = max(((ratio - 1).abs().max().item(), case) for case, ratio in ratios.items() if "very small" not in case)
    if far < 1e-6:
        hint = "Only with very small weights your scales are too large: a limit from below. Only a channel of zeros has another"
        raise Mistake("guard-too-wide", f"{hint} scale than max|w| / ((q_max - q_min) / 2).")
    if far < 0.1:
        hint = f"For {case} yours differ by {far:.1g} of their size. Take the largest |w|: nothing added, nothing rounded."
        raise Mistake("nearly-right", hint)
    for case, ratio in ratios.items():
        if (ratio < 0.999).any() and (ratio <= 1.001).all():
            hint = f"For {case} some of your scales are too small: the largest |w| of the channel does not fit."
            raise Mistake("too-small", hint)


def _expect_own_channel(case: str, rows: Tensor, peaks: Tensor, axis: int) -> None:
    """Raise the Mistake of scales that would all be right for some weight, one of them for a weight of another channel."""
    alike = torch.isclose(rows[None], peaks[:, None, None], rtol=1e-6, atol=0).any(2)  # (scale, channel)
    if (peaks == 0).any() or not alike.any(1).all():
        return
    for channel, own in enumerate(alike):
        if not own[channel]:
            other = int(own.nonzero()[0])
            hint = f"For {case} your scale {channel} is that of a weight of channel {other}: you mix the channels. "
            raise Mistake("mixes-channels", f"{hint}Channel i has all weights whose index along axis {axis} is i.")
