"""block-scale: a block of numbers shares a scale, which has a format of its own: MXFP4 and NVFP4."""

from collections.abc import Callable

import torch
from torch import Tensor

from hpml_lab.core.judge.declared import like
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import same


def right(x: Tensor, form: str) -> tuple[Tensor, Tensor]:
    amax = x.abs().amax(1, keepdim=True)
    if form == "MXFP4":
        exponent = torch.floor(torch.log2(amax)) - 2
        scale = torch.exp2(exponent.clamp(-127, 127))
    else:
        scale = (amax / 6).to(torch.float8_e4m3fn).to(x.dtype)
    ratio = torch.where(scale > 0, x / scale, 0)
    size = ratio.abs().clamp(max=6)
    step = torch.where(size < 2, 0.5, torch.where(size < 4, 1, 2))
    number = torch.round(size / step) * step * ratio.sign()
    return scale.squeeze(1), number * scale


def scales_that_count(answer: Callable) -> Callable:
    """The answer; a row of zeros may have any scale that is a number."""

    def asked(x: Tensor, form: str) -> tuple[Tensor, Tensor]:
        scale, values = answer(x, form)
        if scale.shape == x.shape[:1]:
            scale = torch.where(x.any(1) | ~scale.isfinite(), scale, 0)
        return scale, values

    return asked


RUBRIC = Rubric(
    right,
    """
x.abs().amax(1, keepdim=True)
    sign-ignored :: x.amax(1, keepdim=True) :: The number with the largest absolute value may be a negative one.
    scale-of-the-tensor :: x.abs().amax().expand(len(x), 1) :: Each row is a block, with a scale that fits its own numbers.
    mean-for-largest :: x.abs().mean(1, keepdim=True) :: The scale is taken from the block's largest number, not its mean.
torch.floor(torch.log2(amax)) - 2
    exponent-to-nearest :: torch.round(torch.log2(amax)) - 2 :: $DOWN
    exponent-to-nearest :: torch.floor(torch.log2(amax / 1.5) + 1) - 2 :: $DOWN
    exponent-rounded-up :: torch.ceil(torch.log2(amax)) - 2 :: $DOWN
    exponent-rounded-up :: torch.ceil(torch.log2(amax / 6)) :: $DOWN
    divided-before-the-logarithm :: torch.floor(torch.log2(amax / 6)) :: $POWER
    largest-exponent-forgotten :: torch.floor(torch.log2(amax)) :: $POWER
torch.exp2(exponent.clamp(-127, 127))
    scale-not-in-its-format :: amax / 6 :: $FORMAT
(amax / 6).to(torch.float8_e4m3fn).to(x.dtype)
    scale-not-in-its-format :: amax / 6 :: $FORMAT
    scale-from-another-largest :: (amax / 4).to(torch.float8_e4m3fn).to(x.dtype) :: The block's largest number should become
        e2m1's largest, which is 6.
torch.where(scale > 0, x / scale, 0)
    zero-block :: x / scale :: A block of zeros has no logarithm, and its scale may be 0. What comes back is 0, not NaN.
    zero-block :: torch.where(amax > 0, x / scale, 0) :: A block that is not all 0 can have a scale of 0: e4m3 rounds what is
        below 2⁻¹⁰ to 0, and nothing can be divided by it.
ratio.abs().clamp(max=6)
    not-clamped :: ratio.abs() :: Rounded down to a power of two, a scale leaves ratios of up to 8, and e2m1 has none above 6.
torch.where(size < 2, 0.5, torch.where(size < 4, 1, 2))
    equal-steps :: torch.ones_like(size) :: $STEPS
    equal-steps :: 0.5 * torch.ones_like(size) :: $STEPS
torch.round(size / step)
    ties-away-from-zero :: torch.floor(size / step + 0.5) :: $TIES
    ties-to-zero :: torch.ceil(size / step - 0.5) :: $TIES
    cut-off :: torch.floor(size / step) :: A ratio becomes the nearest of e2m1's numbers, not the next smaller one.
* ratio.sign()
    sign-lost :: * 1 :: e2m1 has a sign: a negative number comes back negative.
number * scale
    not-multiplied-back :: number :: The second result is what the block stands for: the numbers of e2m1 times the scale.
whole answer
    scale-not-in-its-format :: lambda x, form: right(x, "MXFP4") :: An NVFP4 scale is a number of e4m3, with three fraction
        bits, not a power of two.
    scale-not-in-its-format :: lambda x, form: right(x, "NVFP4") :: $FORMAT
""",
    wrap=scales_that_count,
    DOWN="MXFP4's rule rounds the exponent of the scale down, whatever the fraction of the largest number.",
    POWER="e2m1's largest number is 1.5 · 2²: the scale's exponent is that of the largest number, ⌊log2 max|x|⌋, less 2.",
    FORMAT="A scale is stored as well: in MXFP4 as a power of two, in NVFP4 as a number of e4m3. Divide by what is stored.",
    STEPS="e2m1's numbers are 0, 0.5, 1, 1.5, 2, 3, 4 and 6: from 2 on they are 1 apart, from 4 on 2.",
    TIES="Exactly halfway, the number with an even code is taken: 2.5 becomes 2, and 3.5 becomes 4; the codes count from 0.",
)


def _random(seed: int, rows: int, size: int) -> Tensor:
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(seed))


def _ties(size: int) -> Tensor:
    """Rows with scale 1 and 2⁻³ in both formats, all of their numbers halfway between two of e2m1's, but for the largest."""
    halfway = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    row = torch.cat([halfway, -halfway]).repeat(size // 14 + 1)[:size]
    row[0] = 6.0
    return torch.stack([row, row / 8])


def _cases() -> dict[str, tuple[Tensor, str]]:
    """Blocks of all kinds; with NVFP4 one whose scale is a number of e4m3 and not a power of two, and one whose scale is 0."""
    found = {}
    for form, size in (("MXFP4", 32), ("NVFP4", 16)):
        ordinary = _random(size, 4, size) * torch.tensor([[1.0], [20.0], [0.3], [5.0]])
        negative = -_random(size + 1, 3, size).abs()
        edges = _random(size + 2, 3, size)
        edges[:, 3] = torch.tensor([-7.75, 5.0, 3.9])
        found[f"{form}, rows of different sizes"] = ordinary, form
        found[f"{form}, negative numbers"] = negative, form
        found[f"{form}, largest numbers of 7.75, 5 and 3.9"] = edges, form
        found[f"{form}, numbers halfway between two of e2m1's"] = _ties(size), form
        found[f"{form}, a row of zeros"] = torch.cat([_random(size + 3, 1, size), torch.zeros(1, size)]), form
    small = torch.cat([_random(5, 1, 16), 1e-4 * _random(6, 1, 16)])
    small[1, 7] = 0
    return found | {"NVFP4, a row below 0.001": (small, "NVFP4")}


@exercise("block-scale", notebook="12_precision", takes="x, form", returns=(like("x"), like("x")))
def judge_block_scale(answer: Callable[[Tensor, str], tuple[Tensor, Tensor]]) -> None:
    """Each row's scale, a power of two or a number of e4m3; and the row rounded to e2m1 times its scale."""
    RUBRIC.expect(answer, _cases(), but=("large",), explain=_explain)


def _explain(_: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake that says whether scales are wrong, or numbers that were rounded with the right ones, and where."""
    for case, (x, _form), got, wanted in judged:
        scale, values = (part.double() for part in got)
        if scale.shape != wanted[0].shape or values.shape != x.shape:
            return
        for row, (own, right_one) in enumerate(zip(scale.tolist(), wanted[0].tolist(), strict=True)):
            if not same(own, right_one):
                hint = f"For {case}, the largest number of row {row} is {x[row].abs().max():.6g}; your scale is {own:.6g}"
                raise Mistake("another-scale", f"{hint}, and {right_one:.6g} is stored.")
        off = ~torch.isclose(values, wanted[1].double(), rtol=1e-6, atol=0)
        if off.any():
            row, column = off.nonzero()[0].tolist()
            ratio, own = (float(part[row, column]) / wanted[0][row].item() for part in (x, values))
            hint = (
                f"All scales of {case} are right, but of x[{row}, {column}], which is {ratio:.6g} times its scale, your numbers"
            )
            raise Mistake("another-number", f"{hint} make {own:.6g} times the scale.")
