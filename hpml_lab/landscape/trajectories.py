"""Trajectories on a surface: one on plain floats, or a whole grid of settings as one batched tensor program.

Both run the formulas of `hpml_lab.optim.formulas.rules` line by line. In a grid θ is one tensor (2, *cells), so a step of
40 000 settings is some twenty tensor operations. What makes it fast, as measured on one core:

- A hyperparameter keeps its own axis ((1, 200) rates, (200, 1) momenta) and is broadcast: β₁ᵗ is then 200 powers, not 40 000.
- The grid is cut into chunks whose tensors stay in the core's cache; with smaller chunks more operations have to be started.
- Each operation makes a new tensor. Writing in place was no faster: memory that was just freed is used again.
- In float32 numbers below 1e-38 are flushed to zero; on x86 each of them would take a hundred times longer.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import hpml_lab.optim
from hpml_lab.core.timing.threads import one_thread
from hpml_lab.landscape.surfaces import Number, Point, Surface
from hpml_lab.optim.formulas.arithmetic import Floats
from hpml_lab.optim.formulas.by_name import FORMULAS

CHUNK = 20_000  # cells: on a CPU a chunk's parameters and state take some 160 KB each in float32

RateFactor = Callable[[int], float]  # step, from 1 -> factor on the learning rate


@dataclass(frozen=True)
class Grid:
    """Where each cell's trajectory ended, and its positions at the requested steps.

    x, y       (*cells)
    kept       (len(steps_kept), 2, *cells): x and y after each of these numbers of steps; step 0 is the start
    """

    x: torch.Tensor
    y: torch.Tensor
    steps_kept: tuple[int, ...]
    kept: torch.Tensor

    def diverged(self, bound: float = 1e6) -> torch.Tensor:
        """(*cells) True where a coordinate is larger than `bound` or not a number."""
        return ~((self.x.abs() <= bound) & (self.y.abs() <= bound))


def path(
    surface: Surface,
    optimizer: str = "momentum",
    steps: int = 500,
    start: Point | None = None,
    noise: float | None = None,
    seed: int = 0,
    schedule: RateFactor | None = None,
    **hyper: float,
) -> list[Point]:
    """One trajectory on plain Python floats: the `steps` + 1 points from `start` (default: the surface's own).

    For one trajectory floats are much faster than tensors. `hyper` are the formula's hyperparameters by name.
    """
    rate = hyper.pop("lr", FORMULAS[optimizer].defaults["lr"])
    start = tuple(map(float, start or surface.start))

    def lr(t: int) -> float:
        return rate * schedule(t) if schedule else rate

    return [start, *walk(surface, optimizer, steps, start, noise, seed, lr, **hyper)]


def walk(
    surface: Surface, optimizer: str, steps: int, start: Point, noise: float | None, seed: int, lr: RateFactor, **hyper: float
) -> Iterator[Point]:
    """The point after each step, on floats: x and y are the parameters of one layer. lr is the rate of step t, from 1."""

    def gradient(point: Floats, t: int) -> Floats:
        return Floats(surface.seen_gradient(*point, t, noise, seed))

    for theta, _, _ in FORMULAS[optimizer].run(Floats(start), range(1, steps + 1), gradient, lr, **hyper):
        yield tuple(theta)


def run_grid(
    surface: Surface,
    optimizer: str = "momentum",
    steps: int = 500,
    start: tuple[Number, Number] | None = None,
    keep: Sequence[int] = (),
    noise: float | None = None,
    seed: int = 0,
    schedule: RateFactor | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    chunk: int = CHUNK,
    **hyper: Number,
) -> Grid:
    """Run `optimizer`, a name in FORMULAS, on `surface` for all cells at once.

    A cell's setting comes from `hyper` and `start`: numbers, or tensors that broadcast to the shape of the grid, such as
    lr (1, 200) and momentum (200, 1). Cells do not influence each other, even if one becomes inf or nan. Raises ValueError
    for hyperparameters that the formula does not have and for `keep` outside 0 … steps.
    """
    formula = FORMULAS[optimizer]
    if unknown := set(hyper) - set(formula.defaults):
        raise ValueError(f"{optimizer} has no {', '.join(sorted(unknown))}; it has {', '.join(formula.defaults)}")
    keep = tuple(sorted(set(keep)))
    if keep and not 0 <= keep[0] <= keep[-1] <= steps:
        raise ValueError(f"the steps to keep lie between 0 and {steps}")
    device = torch.device(device)
    given = {name: _number(value, dtype, device) for name, value in {**formula.defaults, **hyper}.items()}
    x, y = (_number(coordinate, dtype, device) for coordinate in start or surface.start)
    tensors = [value for value in (*given.values(), x, y) if isinstance(value, torch.Tensor)]
    shape = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))
    ends = torch.empty(2, *shape, dtype=dtype, device=device)
    kept = torch.empty(len(keep), 2, *shape, dtype=dtype, device=device)
    with torch.no_grad(), _fast_arithmetic(dtype, device):
        for part in _chunks(shape, chunk if device.type == "cpu" else None):
            cells = {name: _cut(value, part, len(shape)) for name, value in given.items()}
            cuts = (_cut(coordinate, part, len(shape)) for coordinate in (x, y))
            theta = torch.stack([_full(cut, ends[0][part].shape, dtype, device) for cut in cuts])
            state, gradient = formula.start(theta), torch.empty_like(theta)
            rate, slot = cells["lr"], 0
            for t in range(steps + 1):
                if t:
                    if schedule:
                        cells["lr"] = rate * schedule(t)
                    point = formula.gradient_point(theta, state, **cells)
                    torch.stack(surface.seen_gradient(point[0], point[1], t, noise, seed), out=gradient)
                    theta = formula.step(theta, gradient, state, t, **cells)
                if slot < len(keep) and t == keep[slot]:
                    kept[slot][:, *part] = theta
                    slot += 1
            ends[:, *part] = theta
    return Grid(ends[0], ends[1], keep, kept)


def torch_equivalent(optimizer: str, parameters: Any, **hyper: float) -> torch.optim.Optimizer:
    """The optimizer over `parameters` whose class in `hpml_lab.optim` has the rule FORMULAS[optimizer], as in torch.optim.

    Raises ValueError for a formula without such a class, such as the lecture's own forms.
    """
    formula = FORMULAS[optimizer]
    if formula.torch_equivalent is None:
        raise ValueError(f"no optimizer class has the rule {optimizer!r}")
    options = {**formula.defaults, **hyper}
    if "beta1" in options:
        options["betas"] = (options.pop("beta1"), options.pop("beta2"))
    if "eta_minus" in options:
        options["etas"] = (options.pop("eta_minus"), options.pop("eta_plus"))
    if optimizer == "nesterov":
        options["nesterov"] = True
    return getattr(hpml_lab.optim, formula.torch_equivalent)(parameters, **options)


RULES_WITH_CLASS = tuple(name for name, formula in FORMULAS.items() if formula.torch_equivalent)


def _number(value: Number, dtype: torch.dtype, device: torch.device) -> Number:
    """A tensor in the grid's dtype and on its device; a plain number stays one."""
    return value.to(device, dtype) if isinstance(value, torch.Tensor) else float(value)


def _chunks(shape: torch.Size, chunk: int | None) -> Iterator[tuple]:
    """Index tuples that cut the grid along its first axis into chunks of about `chunk` cells."""
    if chunk is None or not shape:
        yield (...,)
        return
    rows = max(1, chunk // max(1, shape[1:].numel()))
    for first in range(0, shape[0], rows):
        yield (slice(first, first + rows), ...)


def _cut(value: Number, part: tuple, dimensions: int) -> Number:
    """The part of a hyperparameter that belongs to a chunk of the grid; an axis that is broadcast is not cut."""
    if isinstance(value, torch.Tensor) and value.ndim == dimensions > 0 and value.shape[0] > 1:
        return value[part]
    return value


def _full(value: Number, shape: torch.Size, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.expand(shape)
    return torch.full(shape, value, dtype=dtype, device=device)


@contextlib.contextmanager
def _fast_arithmetic(dtype: torch.dtype, device: torch.device) -> Iterator[None]:
    """One CPU thread, and in float32 no numbers below 1e-38; both settings are restored afterwards."""
    if device.type != "cpu":
        yield
        return
    flush = dtype == torch.float32
    flushed = torch.full((1,), 1e-38).mul(0.01).item() == 0
    with one_thread():
        if flush:
            torch.set_flush_denormal(True)
        try:
            yield
        finally:
            if flush:
                torch.set_flush_denormal(flushed)
