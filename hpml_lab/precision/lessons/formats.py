"""Floating-point formats, derived from their bits: values, range, spacing, rounding, and when an update is lost."""

import math
from dataclasses import dataclass

import torch


def _power_of_two(x: torch.Tensor) -> torch.Tensor:
    """2^⌊log2 x⌋ for positive x, without rounding: x over its significand (torch's pow may be off by a bit)."""
    return x / (2 * torch.frexp(x).mantissa)


@dataclass(frozen=True)
class Format:
    """A binary format: one sign bit, `exponent` bits and `fraction` bits; `dtype` is None if torch has no such type.

    e4m3 (torch's float8_e4m3fn) has no infinity and uses those bit patterns for numbers: only the very last is NaN. In e2m1,
    with 4 bits, even that one is a number.
    """

    name: str
    exponent: int
    fraction: int
    dtype: torch.dtype | None
    has_infinity: bool = True
    has_nan: bool = True

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.fraction

    @property
    def bias(self) -> int:
        return 2 ** (self.exponent - 1) - 1

    @property
    def eps(self) -> float:
        """Distance from 1 to the next number: 2^-fraction."""
        return 2.0**-self.fraction

    @property
    def smallest_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    @property
    def smallest_subnormal(self) -> float:
        return self.smallest_normal * self.eps

    @property
    def largest(self) -> float:
        if self.has_infinity:  # the exponent field of all ones is infinity and NaN
            return (2 - self.eps) * 2.0**self.bias
        return (2 - (2 if self.has_nan else 1) * self.eps) * 2.0 ** (self.bias + 1)

    def spacing(self, x: float) -> float:
        """Distance from |x| to the next larger number of the format: 2^⌊log2 |x|⌋ · eps; constant for subnormals."""
        if abs(x) < self.smallest_normal:
            return self.smallest_subnormal
        return 2.0 ** (math.frexp(abs(x))[1] - 1) * self.eps

    def round(self, x: torch.Tensor) -> torch.Tensor:
        """Round each of `x` (float64) to the nearest number of the format, ties to even. Too large numbers become infinity."""
        spacing = _power_of_two(x.abs().clamp(self.smallest_normal, 2 * self.largest)) * self.eps
        rounded = torch.round(x / spacing) * spacing  # torch.round rounds ties to the even integer
        return torch.where(rounded.abs() > self.largest, x.sign() * math.inf, rounded)

    def values(self) -> torch.Tensor:
        """All positive finite numbers of the format in order (float64): 2^(e - bias) · (1 + f · eps) for each bit pattern.

        The exponent field e = 0 has no leading one: 2^(1 - bias) · f · eps, the subnormals. For formats of up to 19 bits.
        """
        pattern = torch.arange(1, 2 ** (self.exponent + self.fraction))
        field, f = pattern >> self.fraction, pattern & (2**self.fraction - 1)
        significand = f.double() * self.eps + (field > 0)
        powers = torch.tensor([2.0 ** (max(e, 1) - self.bias) for e in range(2**self.exponent)], dtype=torch.float64)
        value = powers[field] * significand
        return value[value <= self.largest]


FP32 = Format("fp32", 8, 23, torch.float32)
TF32 = Format("tf32", 8, 10, None)  # what tensor cores read of an fp32 number; never stored
BF16 = Format("bf16", 8, 7, torch.bfloat16)
FP16 = Format("fp16", 5, 10, torch.float16)
E5M2 = Format("fp8 e5m2", 5, 2, torch.float8_e5m2)
E4M3 = Format("fp8 e4m3", 4, 3, torch.float8_e4m3fn, has_infinity=False)
E2M1 = Format("fp4 e2m1", 2, 1, None, has_infinity=False, has_nan=False)  # torch stores pairs of it, and cannot convert them
FORMATS = (FP32, TF32, BF16, FP16, E5M2, E4M3)


def from_bits(form: Format) -> torch.Tensor:
    """The same numbers as `form.values()`, read by torch from the bit patterns 1, 2, 3, … (float64)."""
    kind = torch.uint8 if form.bits == 8 else torch.int16
    patterns = torch.arange(1, 2 ** (form.bits - 1), dtype=kind)
    value = patterns.view(form.dtype).double()
    return value[value.isfinite()]


def is_lost(weight: torch.Tensor, update: torch.Tensor, form: Format) -> torch.Tensor:
    """Whether weight + update, rounded to the format, is the weight again. Decided without adding (all float64).

    An update is lost if it does not reach halfway to the neighbor on its side; exactly halfway rounds to the even one of the
    two. Below a power of two the neighbor is only half as far away.
    """
    power = _power_of_two(weight.abs().clamp(min=form.smallest_normal))
    up = power * form.eps
    shrinks = weight * update < 0
    at_power = (weight.abs() > form.smallest_normal) & (weight.abs() == power)
    gap = torch.where(shrinks & at_power, up / 2, up)
    even = torch.round(weight / up) % 2 == 0
    half = gap / 2
    return (update.abs() < half) | ((update.abs() == half) & even)


def round_stochastically(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Round fp32 to bf16 up or down at random, the nearer number with the higher probability, so that the mean is x.

    bf16 is the upper half of fp32's bits: add a random lower half, then cut it off.
    """
    noise = torch.randint(0, 2**16, x.shape, dtype=torch.int32, device=x.device, generator=generator)
    return ((x.view(torch.int32) + noise) & -(2**16)).view(torch.float32).bfloat16()
