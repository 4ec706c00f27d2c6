"""Numbers of 8 and of 4 bits, and blocks of numbers that share a scale: MXFP4 and NVFP4.

    format   sign + exponent + fraction   largest   smallest   the other codes
    e5m2     1 + 5 + 2                    57344     2⁻¹⁶       infinity and NaN, as in fp16
    e4m3     1 + 4 + 3                    448       2⁻⁹        no infinity; the last code of either sign is NaN
    e2m1     1 + 2 + 1                    6         0.5        none
    e8m0     0 + 8 + 0                    2¹²⁷      2⁻¹²⁷      no sign, no zero: a scale; the last code is NaN

The magnitudes of e2m1, 0, 0.5, 1, 1.5, 2, 3, 4 and 6, have a small range. So each block of a tensor has a scale of its own, and
what is stored is x / scale, rounded to e2m1 and clamped to ±6.

Sources: OCP 8-bit Floating Point Specification (2023); OCP Microscaling Formats (MX) Specification 1.0 (2023), 5 and 6.3;
NVIDIA, Pretraining Large Language Models with NVFP4 (2025), on the NVFP4 scales.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from hpml_lab.core.system.errors import LabError
from hpml_lab.precision.lessons.formats import E2M1, E4M3, Format

LEAST, MOST = -127, 127  # exponents of e8m0
MX_BLOCK, NV_BLOCK = 32, 16


def every_code(form: Format) -> Tensor:
    """The values of all codes of a format with a sign, in order (float64): sign, then exponent, then fraction."""
    finite = torch.cat([torch.zeros(1, dtype=torch.float64), form.values()])
    others = torch.full((2 ** (form.bits - 1) - len(finite),), torch.nan)
    if form.has_infinity:
        others[0] = torch.inf
    half = torch.cat([finite, others])
    return torch.cat([half, -half])


def saturated(x: Tensor, form: Format) -> Tensor:
    """Round to the nearest number of the format, ties to even (float64). What is too large becomes the largest number."""
    return form.round(x.double().clamp(-form.largest, form.largest))


# ---- e8m0: powers of two ---------------------------------------------------------------------------------------------------


def scale_in_e8m0(exponent: Tensor) -> Tensor:
    """2^exponent in e8m0: the byte holds exponent + 127. What is beyond ±127 becomes the nearest that there is."""
    return (exponent.clamp(LEAST, MOST) + 127).to(torch.uint8).view(torch.float8_e8m0fnu)


def nearest_power_of_two(x: Tensor) -> Tensor:
    """|x| in e8m0, as torch's cast rounds it: to the nearest power of two; 1.5 · 2ᵉ, exactly halfway, to 2ᵉ⁺¹.

    0 becomes 2⁻¹²⁷, and what would be 2¹²⁸ NaN. (For x below 2⁻¹²⁶, which float32 stores as subnormal numbers, torch differs.)
    """
    mantissa, exponent = torch.frexp(x.double().abs())  # |x| = mantissa · 2^exponent, and 0.5 ≤ mantissa < 1
    rounded = exponent - 1 + (mantissa >= 0.75)
    too_large = ~x.isfinite() | (rounded > MOST)
    code = torch.where(x == 0, LEAST, rounded).clamp(LEAST, MOST) + 127
    return torch.where(too_large, 255, code).to(torch.uint8).view(torch.float8_e8m0fnu)


# ---- blocks ----------------------------------------------------------------------------------------------------------------


class Blocks(NamedTuple):
    """A tensor in blocks: numbers · scale · whole, with scale (…, blocks, 1), numbers of e2m1 (…, blocks, size)."""

    numbers: Tensor
    scale: Tensor
    whole: Tensor

    def dequantized(self) -> Tensor:
        """The numbers that stand for x, in x's shape (float64)."""
        return (self.numbers * (self.scale.double() * self.whole)).flatten(-2)

    @property
    def bits(self) -> float:
        """Bits of a number, with its share of the block's scale: 4 + 8 / size."""
        return E2M1.bits + 8 * self.scale.itemsize / self.numbers.shape[-1]


def split_in_blocks(x: Tensor, size: int) -> Tensor:
    """x (…, n) as (…, n / size, size) in float64. Raises LabError where blocks of this size do not fill n."""
    if not x.ndim or not x.shape[-1] or x.shape[-1] % size:
        raise LabError(
            f"Blocks of {size} do not fill the last dimension of {tuple(x.shape)}.", f"Pad it to a multiple of {size}."
        )
    return x.double().unflatten(-1, (-1, size))


def mxfp4(x: Tensor) -> Blocks:
    """32 numbers share a power of two (e8m0): scale = 2^(⌊log2 max|x|⌋ - 2), since e2m1's largest number is 1.5 · 2².

    The exponent is rounded down, so max|x| / scale is from 4 up to 8, and what exceeds 6 is clamped.
    """
    blocks = split_in_blocks(x, MX_BLOCK)
    largest = blocks.abs().amax(-1, keepdim=True)
    exponent = torch.frexp(largest).exponent - 1 - 2  # frexp's mantissa is below 1
    scale = scale_in_e8m0(torch.where(largest > 0, exponent, LEAST))
    return Blocks(saturated(blocks / scale.double(), E2M1), scale, torch.ones((), dtype=torch.float64))


def nvfp4(x: Tensor) -> Blocks:
    """16 numbers share a number of e4m3, all of them a float32: whole = max|x| / (448 · 6), scale = e4m3(max|x| / 6 / whole).

    So the scale of the block with the largest number is 448. A scale that is rounded to 0 makes a block of zeros.
    """
    blocks = split_in_blocks(x, NV_BLOCK)
    largest = blocks.abs().amax(-1, keepdim=True)
    whole = (largest.max() / (E4M3.largest * E2M1.largest)).float().double()
    whole = torch.where(whole > 0, whole, 1.0)
    scale = saturated(largest / E2M1.largest / whole, E4M3)
    ratio = torch.where(scale > 0, blocks / (scale * whole), 0.0)
    return Blocks(saturated(ratio, E2M1), scale.to(E4M3.dtype), whole)
