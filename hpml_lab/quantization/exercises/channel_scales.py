"""channel-scales: one symmetric scale for each output channel, whatever dimension of the weight these are."""

from collections.abc import Callable

import torch

from hpml_lab.core.judge.declared import like
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import same

Tensor = torch.Tensor


def right(weight: Tensor, bits: int, axis: int) -> Tensor:
    rows = weight.movedim(axis, 0).flatten(1)
    peaks = rows.abs().amax(1)
    half = (2**bits - 1) / 2
    scale = peaks / half
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    return scale


def over(weight: Tensor, dims: list[int]) -> Tensor:
    return weight.abs().amax(dims) if dims else weight.abs()


_GRID = "The integers go from -2^(bits-1) to 2^(bits-1) - 1, and s = max|w| / ((q_max - q_min) / 2): 127.5 steps for 8 bits."
RUBRIC = Rubric(
    right,
    """
weight.movedim(axis, 0).flatten(1)
    axis-ignored :: weight.flatten(1) :: The channels are those of dimension `axis`, not always those of dimension 0.
    reshaped-not-moved :: weight.reshape(weight.shape[axis], -1) :: reshape keeps the order in memory, so your rows mix the
        channels unless axis is 0. Move that dimension to the front first, or reduce over all other dimensions.
rows.abs().amax(1)
    negative-axis :: over(weight, [d for d in range(weight.ndim) if d != axis]) :: axis = -1 is the last dimension. No number of
        range(weight.ndim) equals -1, so you have reduced over all of them.
    sign-ignored :: rows.amax(1) :: $SIGNS
    sign-ignored :: rows.amax(1).abs() :: $SIGNS
    sign-ignored :: -rows.amin(1) :: $SIGNS
    whole-range :: (rows.amax(1) - rows.amin(1)) / 2 :: max - min is the range of affine quantization. A symmetric range reaches
        as far on both sides of 0.
(2**bits - 1) / 2
    other-grid :: 2 ** (bits - 1) - 1 :: A grid that ends at ±(2^(bits-1) - 1) is another convention. The integers go from
        -2^(bits-1) to 2^(bits-1) - 1, and s = max|w| / ((q_max - q_min) / 2): 127.5 steps for 8 bits.
""",
    SIGNS="The largest weight may be a negative one: take the largest absolute value.",
)


def _case(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def _with_zeros(weight: Tensor, channel: int) -> Tensor:
    return weight.index_fill(0, torch.tensor([channel]), 0.0)


@exercise("channel-scales", notebook="16_quantization", takes="weight, bits, axis", returns=like("weight"))
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
        "very small weights (3, 4) in float32, 8 bits, axis 0": (1e-25 * _case(10, 3, 4).float(), 8, 0),
    }
    RUBRIC.expect(answer, cases, explain=_explain)


def _explain(_: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake of scales that are right but for a guard, a factor or the precision, or those of other channels."""
    seen = []  # for each case: the scales, how many times the right ones, and |weights| in rows, but for channels of zeros
    for case, (weight, bits, axis), got, wanted in judged:
        rows = weight.movedim(axis, 0).flatten(1).abs().double()
        live = rows.any(1)
        if got.shape != wanted.shape:
            return
        seen.append((case, bits, axis, got.double()[live], (got.double() / wanted.double())[live], rows[live]))
    if all(same(ratio[own != 1], torch.ones_like(ratio[own != 1])) for *_, own, ratio, _ in seen):
        for case, _, _, own, ratio, rows in seen:
            if (ones := (own == 1) & (ratio != 1)).any():
                zeros = "some of its weights are" if (rows == 0).any() else "its weights are small, but not"
                hint = f"For {case} your scale {int(ones.nonzero()[0])} is 1, and {zeros} 0. Only if all are 0 it is 1."
                raise Mistake("guard-too-wide", hint)
        raise Mistake("zeros-unguarded", "A channel of zeros has the scale 1 here, so that nothing is divided by 0.")
    if all(same(ratio, ratio[:1].expand(ratio.shape)) for *_, ratio, _ in seen):
        case, ratio = next((case, ratio) for case, *_, ratio, _ in seen if not same(ratio[0], 1.0))
        hint = (
            f"For {case} every scale of yours is {ratio[0]:.6g} times the right one: the weights of a channel are found, the "
        )
        raise Mistake("wrong-number-of-steps", f"{hint}number of steps from 0 to the largest is not. {_GRID}")
    for case, bits, axis, own, _, rows in seen:
        _expect_own_channel(case, rows, own * (2**bits - 1) / 2, axis)
    far, case = max(((ratio - 1).abs().max().item(), case) for case, *_, ratio, _ in seen if "very small" not in case)
    if far < 1e-6:
        hint = "Only with very small weights your scales are too large: a limit from below. Only a channel of zeros has another"
        raise Mistake("guard-too-wide", f"{hint} scale than max|w| / ((q_max - q_min) / 2).")
    if far < 0.1:
        hint = f"For {case} yours differ by {far:.1g} of their size. Take the largest |w|: nothing added, nothing rounded."
        raise Mistake("nearly-right", hint)


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
