"""A run of an update rule that a student wrote: parameters, state and gradients of its own, step by step."""

import math
from collections.abc import Callable, Iterator

import torch

from hpml_lab.core.judge.asked import drawn
from hpml_lab.core.judge.declared import share_memory
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.same import same

Tensors = list[torch.Tensor]
Rule = Callable[..., None]

STEPS, RATE_CHANGE = 60, 30  # the learning rate is quartered before step 31, so that a rate inside the velocity shows
SHAPES = ((3,), (2, 3), (1,), (3,))
SIZES = [math.prod(shape) for shape in SHAPES]
GROWING = [1e-3] * 50 + [1.0] * 6  # sizes of gradients: where a calm ends, a step may be longer than the rate
COUPLING = 0.1  # of a gradient to all points of the step, so that a point taken too early or too late shows
EQUAL, ROUNDED = 1e-9, 1e-4  # relative: another order of the operations; the rounding of float32


# ---- One run -------------------------------------------------------------------------------------------------------


def _generator(seed: int) -> torch.Generator:
    """Of one of the running check's sources of numbers, which no other check has."""
    return torch.Generator().manual_seed(drawn().getrandbits(32) + seed)


def random_tensors(shapes: tuple, seed: int) -> Tensors:
    generator = _generator(seed)
    return [torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes]


def random_gradients(shapes: tuple, seed: int, steps: int) -> list[Tensors]:
    """Seeded float64 gradients for each step, of sizes from 0.01 to 10."""
    generator = _generator(seed)
    sizes = [torch.logspace(-2, 1, 7, dtype=torch.float64)[(3 * t) % 7] for t in range(steps)]
    gradients = [[torch.randn(shape, dtype=torch.float64, generator=generator) * size for shape in shapes] for size in sizes]
    gradients[0][0][0] = 0.0  # a gradient that starts at zero, as for a feature that has not been seen yet
    for t in (7, 20, 21):  # and some that are zero later, when there is a past
        gradients[t % steps][0][1:] = 0.0
    gradients[12 % steps][-1].zero_()  # of a whole parameter, which moves on by its past alone
    return gradients


class RuleRun:
    """A run of a rule with its own parameters, state and gradients; `advance()` takes one step."""

    def __init__(
        self,
        rule: Rule,
        start: Tensors,
        grads: list[Tensors],
        hyper: dict,
        look_ahead: bool,
        params: Tensors | None = None,
        coupling: float = COUPLING,
    ) -> None:
        self.rule, self.grads, self.hyper, self.look_ahead = rule, grads, hyper, look_ahead
        self.params = [p.clone() for p in start] if params is None else params
        for p, value in zip(self.params, start, strict=True):
            p.copy_(value)
        self.coupling = coupling  # 0: a parameter's gradient depends on its own point alone
        self.state: dict = {}
        self.passed: list[tuple[torch.Tensor, torch.Tensor]] = []  # (gradient given to the rule, a copy of its value)
        self.shares_points = False  # a point that gradient() got lies in the memory of a parameter
        self.t = 0

    def advance(self) -> None:
        hyper = dict(self.hyper)
        if self.t >= RATE_CHANGE:
            hyper["lr"] = hyper["lr"] / 4
        slopes = self.grads[self.t]
        self.t += 1
        given = list(self.params)

        def copies(values: Tensors) -> Tensors:
            made = [value.clone() for value in values]
            self.passed += zip(made, [value.clone() for value in values], strict=True)
            return made

        def gradient(points: Tensors) -> Tensors:  # of ¼ Σ p² + slope · p, coupled by (Σ p)², or 0: it depends on the points
            points = list(points)
            if len(points) != len(slopes):
                hint = f"gradient(points) takes one point for each of the {len(slopes)} parameters in one list."
                raise Mistake("gradient-of-some", hint)
            self.shares_points |= any(share_memory(point, p) for point in points for p in self.params)
            shared = self.coupling * sum(p.sum() for p in points)
            return copies([(0.5 * p + slope + shared) * (slope != 0) for p, slope in zip(points, slopes, strict=True)])

        self.rule(given, gradient if self.look_ahead else copies(slopes), self.state, **hyper)
        if any(a is not b for a, b in zip(given, self.params, strict=False)) or len(given) != len(self.params):
            raise Mistake(
                "replaces-the-tensors",
                "The list now holds new tensors, but the net still holds the old ones: change each tensor in place (p -= …).",
            )

    def edited_a_gradient(self) -> bool:
        """True if a gradient that was given to the rule, in this or an earlier step, no longer has its value."""
        return any(not torch.equal(now, copy) for now, copy in self.passed)

    def flat(self) -> torch.Tensor:
        """All parameters, one after the other."""
        return torch.cat([p.detach().reshape(-1) for p in self.params])

    def steps(self, count: int = STEPS) -> Iterator[torch.Tensor]:
        for _ in range(count):
            self.advance()
            yield self.flat()


def follows(track: torch.Tensor, run: RuleRun, tolerance: float) -> bool:
    """True if the run goes through every point of `track` (steps, numbers); stops at the first that differs."""
    return all(same(point, own, tolerance) for point, own in zip(track, run.steps(len(track)), strict=True))
