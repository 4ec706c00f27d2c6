"""The steps of each variant on seeded gradients, in float64: where two rules are one and the same, and where they part."""

from collections.abc import Callable
from functools import partial

import torch

from hpml_lab.core.experiment import Result
from hpml_lab.large_batch.lessons.variants import DECAY, Make, lamb, novograd
from hpml_lab.optim import LAMB, LARS, SGD

SHAPES = ((6, 4), (4,), (3, 6))
STEPS = 20
TINY = 1e-10  # what rounding in float64 may leave
Tensors = list[torch.Tensor]


def gradients_and_start(seed: int = 0) -> tuple[list[Tensors], Tensors]:
    """Seeded gradients of three tensors in STEPS steps, of many sizes, and where the tensors start."""
    made = torch.Generator().manual_seed(seed)
    start = [torch.randn(shape, dtype=torch.float64, generator=made) for shape in SHAPES]
    sizes = (0.1, 1.0, 3.0)
    rows = [
        [
            size / 2.0 ** (t % 6) * torch.randn(shape, dtype=torch.float64, generator=made)
            for shape, size in zip(SHAPES, sizes, strict=True)
        ]
        for t in range(STEPS)
    ]
    return rows, start


def path(make: Make, falls: bool = False, scale: Callable[[int, int], float] = lambda t, i: 1.0) -> torch.Tensor:
    """The parameters after each step, (STEPS, numbers), in float64.

    falls  the rate is a tenth in the second half
    scale  (t, i) -> a factor on the gradient of tensor i in step t
    """
    rows, start = gradients_and_start()
    params = [p.clone().requires_grad_() for p in start]
    optimizer, points = make(params), []
    for t, row in enumerate(rows):
        if falls and t == STEPS // 2:
            for group in optimizer.param_groups:
                group["lr"] /= 10
        for i, (p, g) in enumerate(zip(params, row, strict=True)):
            p.grad = g * scale(t, i)
        optimizer.step()
        points.append(torch.cat([p.detach().flatten() for p in params]))
    return torch.stack(points)


def distance(base: torch.Tensor, other: torch.Tensor) -> float:
    """The largest distance of two paths, relative to how far the first one leads."""
    start = torch.cat([p.flatten() for p in gradients_and_start()[1]])
    return ((base - other).abs().max() / (base - start).abs().max()).item()


def by_layer(t: int, i: int) -> float:
    """The gradients of each tensor in another unit."""
    return (1e-3, 1.0, 1e3)[i]


def judge_formulas(result: Result) -> None:
    """Add what a ratio for each layer does, and what it makes of bias correction."""

    def changed(make: Make) -> float:
        return distance(path(make), path(make, scale=by_layer))

    ratios = (partial(LARS, lr=10.0, momentum=0.9, eps=0.0), partial(novograd, eps=0.0), partial(lamb, eps=1e-30))
    scaled = max(changed(make) for make in ratios)
    result.claim(
        "A layer whose gradient is a thousand times as large takes the same steps in LARS, NovoGrad and LAMB; not in SGD",
        scaled < TINY and changed(partial(SGD, lr=0.01)) > 1,
        f"at most {scaled:.0e}",
    )
    bare = partial(LAMB, lr=0.01, weight_decay=0.0, eps=1e-30)
    without, with_decay = (
        distance(path(make), path(partial(make, bias_correction=False))) for make in (bare, partial(bare, weight_decay=DECAY))
    )
    result.claim(
        "Bias correction only matters to LAMB through decay and ε: it scales u, and the trust ratio divides by ‖u‖",
        without < TINY and with_decay > 1e-4,
        f"{without:.0e} without decay, {with_decay:.0e} with it",
    )
