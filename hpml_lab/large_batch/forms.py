"""Which rule a paper or a library means by LARS, LAMB or NovoGrad: every form as options of one class, and run.

The names agree, the rules do not: a rate from a paper belongs to the form of that paper.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from hpml_lab.optim import LAMB, LARS, SGD, Adam, NovoGrad

SHAPES = ((6, 4), (4,), (3, 6))
STEPS = 20
Make = Callable[[list[torch.Tensor]], torch.optim.Optimizer]
Tensors = list[torch.Tensor]


class PaperLARS(torch.optim.Optimizer):
    """LARS as its paper writes it: the rate is inside the velocity, so a new rate does not act on past gradients.

    v = γ v + α r (g + λ w), with r = η ‖w‖ / (‖g‖ + λ ‖w‖)
    w = w − v
    """

    def __init__(self, params, lr=1.0, momentum=0.9, weight_decay=0.0, trust_coeff=0.001) -> None:
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coeff=trust_coeff))

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for group in self.param_groups:
            lr, gamma, decay = group["lr"], group["momentum"], group["weight_decay"]
            for w in group["params"]:
                r = group["trust_coeff"] * w.norm() / (w.grad.norm() + decay * w.norm())
                v = self.state[w].setdefault("v", torch.zeros_like(w))
                v.mul_(gamma).add_(lr * r * (w.grad + decay * w))
                w.sub_(v)


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


def relative_steps(make: Make) -> torch.Tensor:
    """‖Δθ‖ / ‖θ‖ of each tensor in each step, (STEPS, tensors)."""
    points = path(make)
    before = torch.cat([torch.cat([p.flatten() for p in gradients_and_start()[1]])[None], points[:-1]])
    parts = [tensor.split([torch.Size(shape).numel() for shape in SHAPES], dim=1) for tensor in (points - before, before)]
    return torch.stack([moved.norm(dim=1) / at.norm(dim=1) for moved, at in zip(*parts, strict=True)], dim=1)


# ---- the forms -------------------------------------------------------------------------------------------------------

DECAY = 0.05
lars = partial(LARS, lr=10.0, momentum=0.9, weight_decay=DECAY)  # α η = 0.01
lamb = partial(LAMB, lr=0.01, weight_decay=DECAY)
novograd = partial(NovoGrad, lr=0.01, weight_decay=DECAY)


@dataclass(frozen=True)
class Form:
    """What a paper or a library computes under this name, and how to get it here."""

    rule: str
    form: str
    meant_by: str
    here: str
    make: Make
    base: Make  # the class of this package with its defaults for these options


FORMS: Sequence[Form] = (
    Form("LARS", "rate outside the velocity", "timm; Apex's LARC with clip=False", "LARS(…)", lars, lars),
    Form("LARS", "rate inside the velocity", "the paper (2017)", "large_batch.PaperLARS(…)",
            partial(PaperLARS, **lars.keywords), lars),
    Form("LARS", "nothing adapted where λ = 0", "timm", "always_adapt=False",
            partial(lars, weight_decay=0, always_adapt=False), partial(lars, weight_decay=0)),
    Form("LAMB", "bias correction", "the paper's version 1 (2019)", "LAMB(…)", lamb, lamb),
    Form("LAMB", "no bias correction", "the paper's version 3 (ICLR 2020)", "bias_correction=False",
            partial(lamb, bias_correction=False), lamb),
    Form("LAMB", "common norm of the gradients at most 1", "timm and Apex, by default", "max_grad_norm=1.0",
            partial(lamb, max_grad_norm=1.0), lamb),
    Form("LAMB", "gradients divided by their common norm", "NVLAMB (NVIDIA, 2019)", "pre_normalize=True",
            partial(lamb, pre_normalize=True), lamb),
    Form("LAMB", "nothing adapted where λ = 0", "timm; Apex without use_nvlamb", "always_adapt=False",
            partial(lamb, weight_decay=0, always_adapt=False), partial(lamb, weight_decay=0)),
    Form("LAMB", "decay outside the trust ratio", "pytorch_optimizer, by default", "decoupled_weight_decay=True",
            partial(lamb, decoupled_weight_decay=True), lamb),
    Form("NovoGrad", "m a sum, decay inside", "the paper (2019), timm", "NovoGrad(…)", novograd, novograd),
    Form("NovoGrad", "m an average", "Apex, by default", "grad_averaging=True",
            partial(novograd, grad_averaging=True), novograd),
)  # fmt: skip

TINY = 1e-10  # what rounding in float64 may leave


def with_timms() -> dict[str, tuple[Make, Make]]:
    """Each rule of this package and timm's, with the same options. Raises ImportError where timm is not installed."""
    from timm.optim import Lamb, Lars, NvNovoGrad

    decayed = {"lr": 0.01, "weight_decay": DECAY}
    return {
        "LARS": (partial(LARS, momentum=0.9, **decayed), partial(Lars, momentum=0.9, **decayed)),
        "LAMB": (partial(LAMB, max_grad_norm=1.0, **decayed), partial(Lamb, **decayed)),
        "NovoGrad": (partial(NovoGrad, **decayed), partial(NvNovoGrad, **decayed)),
    }


def compare_with_timm(result) -> None:
    """Add to an experiment's result how far the three rules are from timm's, which others wrote; a note where it is missing."""
    try:
        pairs = with_timms()
    except ImportError:
        result.notes.append("timm is not installed, so LARS, LAMB and NovoGrad were not compared with it: pip install timm.")
        return
    differences = {name: distance(path(here, falls=True), path(theirs, falls=True)) for name, (here, theirs) in pairs.items()}
    result.measured(
        "LARS, LAMB and NovoGrad take the same steps as timm's, to seven digits",
        max(differences.values()) < 1e-7,
        ", ".join(f"{name} {difference:.0e}" for name, difference in differences.items()),
        depends_on="timm's version",
    )


def by_layer(t: int, i: int) -> float:
    """The gradients of each tensor in another unit."""
    return (1e-3, 1.0, 1e3)[i]


def by_step(t: int, i: int) -> float:
    """All gradients larger in each step."""
    return 1.0 + t


def check_forms(result) -> None:
    """Add to an experiment's result what follows from the formulas: where forms are one and the same, and where they part."""

    def unchanged(make: Make, scale: Callable[[int, int], float]) -> float:
        return distance(path(make), path(make, scale=scale))

    plain, paper = partial(lars, eps=0.0), partial(PaperLARS, **lars.keywords)
    constant, falling = (distance(path(plain, falls), path(paper, falls)) for falls in (False, True))
    result.claim(
        "LARS with the rate inside or outside the velocity is the same at a constant rate, and not when the rate falls",
        constant < TINY and falling > 1e-2,
        f"{constant:.0e} and {falling:.0e}",
    )
    sgd = distance(path(partial(SGD, lr=0.01, momentum=0.9)), path(partial(LARS, lr=0.01, momentum=0.9, always_adapt=False)))
    adam = distance(path(partial(Adam, lr=0.01, eps=1e-6)), path(partial(LAMB, lr=0.01, weight_decay=0.0, always_adapt=False)))
    result.claim(
        "Without weight decay, the libraries' LARS (always_adapt=False) is SGD with momentum and their LAMB is Adam",
        sgd == 0 and adam < TINY,
        f"{sgd:g} and {adam:.0e}",
    )
    shares = relative_steps(lamb)
    result.claim(
        "A step of LAMB changes each tensor by the same share of its norm, the learning rate, whatever the decay",
        bool(((shares / 0.01 - 1).abs() < TINY).all()),
        f"‖Δθ‖ / ‖θ‖ = {shares.min():.4g} to {shares.max():.4g}",
    )
    outside = relative_steps(partial(lamb, weight_decay=1.0, decoupled_weight_decay=True))
    result.claim(
        "With the decay outside the trust ratio that share is no longer the rate",
        bool(((outside / 0.01 - 1).abs() > 1e-3).any()),
        f"{outside.min():.4g} to {outside.max():.4g} with λ = 1",
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
    always, limited = (
        unchanged(partial(lamb, pre_normalize=True), by_step),
        unchanged(partial(lamb, max_grad_norm=1e3), by_step),
    )
    result.claim(
        "NVLAMB ignores the size of each step's gradient; a limit on the norm does so only where it is exceeded",
        always < TINY and limited > 1e-3,
        f"{always:.0e} and {limited:.0e}",
    )
    scaled = [unchanged(make, by_layer) for make in (
        partial(LARS, lr=10.0, momentum=0.9, eps=0.0), partial(novograd, eps=0.0), partial(lamb, eps=1e-30))]  # fmt: skip
    result.claim(
        "A layer whose gradient is a thousand times as large takes the same steps in LARS, NovoGrad and LAMB; not in SGD",
        max(scaled) < TINY and unchanged(partial(SGD, lr=0.01), by_layer) > 1,
        f"at most {max(scaled):.0e}",
    )
