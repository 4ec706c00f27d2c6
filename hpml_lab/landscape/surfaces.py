"""Surfaces over two parameters: value and gradient in plain operators, on floats and tensors alike.

Products are used in place of powers: on Python floats `x * x` overflows to inf as a tensor does, where `x ** 2` raises.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

# A Python float, a tensor, or anything else with arithmetic.
Number = Any
Point = tuple[float, float]


def cos(a: Number) -> Number:
    """cos a, of a float or of each element of a tensor; nan for an infinite float, as for an infinite element."""
    if isinstance(a, float):
        return math.cos(a) if math.isfinite(a) else math.nan
    return a.cos()


def sin(a: Number) -> Number:
    """sin a, of a float or of each element of a tensor; nan for an infinite float, as for an infinite element."""
    if isinstance(a, float):
        return math.sin(a) if math.isfinite(a) else math.nan
    return a.sin()


def times32(a: int, b: int) -> int:
    """The lowest 32 bits of a · b."""
    return a * b & 0xFFFFFFFF


def mixed(n: int) -> int:
    """32 bits made from 32 bits, one to one, so that neighboring numbers get unrelated ones (Wellons' lowbias32)."""
    n = times32(n ^ n >> 16, 0x7FEB352D)
    n = times32(n ^ n >> 15, 0x846CA68B)
    return n ^ n >> 16


@lru_cache(maxsize=1 << 16)
def unit_noise(step: int, seed: int = 0) -> Point:
    """Two numbers with mean 0 and variance 1 for this step and seed: the same in every run and in any order of calls.

    Each is the sum of twelve uniform numbers less 6, which is nearly normal, and exact in any language with 32-bit integers.
    """
    key = mixed(mixed(seed) ^ step)
    x, y = -6.0, -6.0
    for k in range(12):
        x = x + mixed(key ^ 2 * k) / 4294967296.0
        y = y + mixed(key ^ 2 * k + 1) / 4294967296.0
    return x, y


@dataclass(frozen=True)
class Surface:
    """A function f(x, y) to descend, its analytic gradient, and the window in which to draw it.

    `value(x, y)` and `gradient(x, y)` take floats, or tensors of any one shape, dtype and device.
    """

    name: str
    title: str
    formula: str
    value: Callable[[Number, Number], Number]
    gradient: Callable[[Number, Number], tuple[Number, Number]]
    window: tuple[float, float, float, float]  # x from, x to, y from, y to
    minima: tuple[Point, ...]  # the global ones
    start: Point
    eigenvalues: Point | None = None  # of the Hessian, where it is the same everywhere
    noise: float = 0.0  # standard deviation of the noise that an optimizer sees on each gradient component

    def seen_gradient(
        self, x: Number, y: Number, step: int, noise: float | None = None, seed: int = 0
    ) -> tuple[Number, Number]:
        """The gradient as an optimizer sees it at `step`: ∇f + noise · ξ, with ξ nearly normal, determined by (step, seed).

        `noise` None means the surface's own level. All elements of a tensor get the same ξ, like settings that train on
        the same mini-batch.
        """
        gx, gy = self.gradient(x, y)
        level = self.noise if noise is None else noise
        if level:
            nx, ny = unit_noise(step, seed)
            gx, gy = gx + level * nx, gy + level * ny
        return gx, gy


def quadratic(condition: float = 25.0) -> Surface:
    """The bowl f = ½ (x² + κ y²): eigenvalues 1 and κ, so κ is the condition number. Raises ValueError for κ < 1."""
    if not condition >= 1:
        raise ValueError(f"the condition number is at least 1, not {condition}")
    kappa = float(condition)

    def value(x, y):
        return 0.5 * (x * x + kappa * y * y)

    def gradient(x, y):
        return 1.0 * x, kappa * y

    text = f"f(x, y) = ½ (x² + {condition:g} y²)"
    window = (-4.0, 4.0, -1.5, 1.5)
    name = "quadratic" if condition == 25 else f"quadratic-{condition:.17g}"
    return Surface(name, "Quadratic bowl", text, value, gradient, window, ((0.0, 0.0),), (-3.5, 1.0), (1.0, kappa))


def _rosenbrock(x, y):
    a, b = 1.0 - x, y - x * x
    return a * a + 100.0 * b * b


def _rosenbrock_gradient(x, y):
    b = 200.0 * (y - x * x)
    return 2.0 * (x - 1.0) - 2.0 * x * b, b


def _beale(x, y):
    y2 = y * y
    a, b, c = x * (y - 1.0) + 1.5, x * (y2 - 1.0) + 2.25, x * (y2 * y - 1.0) + 2.625
    return a * a + b * b + c * c


def _beale_gradient(x, y):
    # The most expensive of the gradients, written with as few operations as possible: a is 2 (1.5 − x + x y), and so on.
    y2, x2 = y * y, x + x
    u, v, w = y - 1.0, y2 - 1.0, y2 * y - 1.0
    a, b, c = x2 * u + 3.0, x2 * v + 4.5, x2 * w + 5.25
    return a * u + b * v + c * w, x * (a + y * (b + b + 3.0 * y * c))


def _himmelblau(x, y):
    a, b = x * x + y - 11.0, x + y * y - 7.0
    return a * a + b * b


def _himmelblau_gradient(x, y):
    a, b = x * x + y - 11.0, x + y * y - 7.0
    return 4.0 * x * a + 2.0 * b, 2.0 * a + 4.0 * y * b


def _saddle(x, y):
    y2 = y * y
    return 0.5 * x * x - 0.5 * y2 + 0.25 * y2 * y2


def _saddle_gradient(x, y):
    return 1.0 * x, y * (y * y - 1.0)


_TURN = 2.0 * math.pi


def _rastrigin(x, y):
    return 20.0 + x * x + y * y - 10.0 * (cos(_TURN * x) + cos(_TURN * y))


def _rastrigin_gradient(x, y):
    return 2.0 * x + 10.0 * _TURN * sin(_TURN * x), 2.0 * y + 10.0 * _TURN * sin(_TURN * y)


def _valley(x, y):
    return 0.1 * x * x + 2.0 * y * y


def _valley_gradient(x, y):
    return 0.2 * x, 4.0 * y


# Himmelblau's other three minima are roots of a cubic; these are correct to the last bit of a float64.
_HIMMELBLAU_MINIMA = (
    (3.0, 2.0),
    (-2.805118086952745, 3.131312518250573),
    (-3.779310253377747, -3.283185991286170),
    (3.584428340330492, -1.848126526964404),
)

SURFACES: dict[str, Surface] = {
    surface.name: surface
    for surface in (
        quadratic(),
        Surface(
            "rosenbrock",
            "Rosenbrock's valley",
            "f(x, y) = (1 − x)² + 100 (y − x²)²",
            _rosenbrock,
            _rosenbrock_gradient,
            window=(-2.0, 2.0, -1.0, 3.0),
            minima=((1.0, 1.0),),
            start=(-1.5, 2.5),
        ),
        Surface(
            "beale",
            "Beale's function",
            "f(x, y) = (1.5 − x + x y)² + (2.25 − x + x y²)² + (2.625 − x + x y³)²",
            _beale,
            _beale_gradient,
            window=(-1.0, 4.5, -2.0, 2.0),
            minima=((3.0, 0.5),),
            start=(0.5, 1.5),
        ),
        Surface(
            "himmelblau",
            "Himmelblau's function",
            "f(x, y) = (x² + y − 11)² + (x + y² − 7)²",
            _himmelblau,
            _himmelblau_gradient,
            window=(-5.0, 5.0, -5.0, 5.0),
            minima=_HIMMELBLAU_MINIMA,
            start=(-0.5, -1.0),
        ),
        Surface(
            "saddle",
            "Saddle between two minima",
            "f(x, y) = ½ x² − ½ y² + ¼ y⁴",
            _saddle,
            _saddle_gradient,
            window=(-2.0, 2.0, -1.6, 1.6),
            minima=((0.0, 1.0), (0.0, -1.0)),
            start=(1.8, 1e-3),
        ),
        Surface(
            "rastrigin",
            "Rastrigin's function",
            "f(x, y) = 20 + x² − 10 cos 2πx + y² − 10 cos 2πy",
            _rastrigin,
            _rastrigin_gradient,
            window=(-5.12, 5.12, -5.12, 5.12),
            minima=((0.0, 0.0),),
            start=(-3.3, 2.4),
        ),
        Surface(
            "noisy-valley",
            "Noisy valley",
            "f(x, y) = 0.1 x² + 2 y², each gradient with noise",
            _valley,
            _valley_gradient,
            window=(-4.0, 4.0, -2.0, 2.0),
            minima=((0.0, 0.0),),
            start=(-3.5, 1.5),
            eigenvalues=(0.2, 4.0),
            noise=0.5,
        ),
    )
}
