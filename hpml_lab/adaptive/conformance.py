"""How far the classes of hpml_lab.optim are from torch.optim's plain loop, counted in spacings of floating-point numbers."""

import inspect
import random
import re
import warnings
from functools import cache
from typing import Any

import torch

from hpml_lab import optim

CLASSES = ("SGD", "Adagrad", "Adadelta", "RMSprop", "Adam", "AdamW", "Adamax", "NAdam")
SHAPES = ((1,), (3,), (2, 5), (4, 1, 3), (17,), (1, 1), (0,), ())


def suite_inputs(name: str) -> list[dict[str, Any]]:
    """The options that PyTorch's own test-suite tries for a class on a CPU, as keyword arguments."""
    from torch.testing._internal.common_optimizers import optim_db

    [info] = [one for one in optim_db if one.optim_cls is getattr(torch.optim, name)]
    return [dict(one.kwargs) for one in info.optim_inputs_func("cpu")]


def refused_inputs(name: str, dtype: torch.dtype) -> list[Any]:
    """The inputs that PyTorch's suite expects a class to refuse: each with its error's type and text."""
    from torch.testing._internal.common_optimizers import OptimizerErrorEnum, optim_db

    [info] = [one for one in optim_db if one.optim_cls is getattr(torch.optim, name)]
    inputs = info.optim_error_inputs_func("cpu", dtype)
    return [one for one in inputs if one.error_on is OptimizerErrorEnum.CONSTRUCTION_ERROR]


def random_inputs(name: str, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Options that the suite lacks: random betas, rates, ε and decays, in every combination."""
    draw = random.Random(f"{name} {seed}")
    ranges = {
        "lr": lambda: 10 ** draw.uniform(-4, 0),
        "eps": lambda: 10 ** draw.uniform(-10, -2),
        "weight_decay": lambda: draw.choice([0.0, 10 ** draw.uniform(-4, -1)]),
        "betas": lambda: (draw.uniform(0, 0.99), draw.uniform(0.5, 0.9999)),
        "rho": lambda: draw.uniform(0, 0.99),
        "alpha": lambda: draw.uniform(0.5, 0.999),
        "momentum": lambda: draw.choice([0.0, draw.uniform(0.1, 0.99)]),
        "lr_decay": lambda: draw.choice([0.0, draw.uniform(0, 0.1)]),
        "initial_accumulator_value": lambda: draw.choice([0.0, draw.uniform(0, 1)]),
        "momentum_decay": lambda: 10 ** draw.uniform(-4, -1),
        "maximize": lambda: draw.random() < 0.3,
        "amsgrad": lambda: draw.random() < 0.5,
        "centered": lambda: draw.random() < 0.5,
        "decoupled_weight_decay": lambda: draw.random() < 0.5,
    }
    names = [one for one in inspect.signature(getattr(torch.optim, name)).parameters if one in ranges]
    made = [{one: ranges[one]() for one in names} for _ in range(count)]
    for options in made:
        if name == "SGD":
            options["nesterov"] = options["momentum"] > 0 and draw.random() < 0.5
            options["dampening"] = 0.0 if options["nesterov"] else draw.choice([0.0, draw.uniform(0, 0.9)])
    return made


@cache
def _gradients(steps: int, dtype: torch.dtype) -> list[list[torch.Tensor | None]]:
    """For each step and shape a gradient: from 1e-6 to 1e3, a tenth of it exactly 0; every seventh is missing."""
    made, draw = torch.Generator().manual_seed(9), random.Random(9)

    def one(shape: tuple, missing: bool) -> torch.Tensor | None:
        size = 10 ** draw.uniform(-6, 3)
        g = size * torch.randn(shape, dtype=torch.float64, generator=made)
        g[torch.rand(shape, dtype=torch.float64, generator=made) < 0.1] = 0.0
        return None if missing else g.to(dtype)

    return [[one(shape, (t + i) % 7 == 0) for i, shape in enumerate(SHAPES)] for t in range(steps)]


def spacings_apart(name: str, options: dict[str, Any], dtype: torch.dtype, device: torch.device, steps: int) -> float:
    """The largest difference of the two packages' parameters after any step, in spacings at the largest value it had.

    Eight shapes; the learning rate is halved half-way.
    """
    made = torch.Generator().manual_seed(9)
    start = [torch.randn(shape, dtype=torch.float64, generator=made).to(device, dtype) for shape in SHAPES]
    runs = []
    for package in (optim, torch.optim):
        params = [one.clone().requires_grad_() for one in start]
        own = {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in options.items()}
        runs.append((params, getattr(package, name)(params, **own, **({} if package is optim else {"foreach": False}))))
    largest, worst = [one.abs() for one in start], 0.0
    for t, gradients in enumerate(_gradients(steps, dtype)):
        for params, optimizer in runs:
            if t == steps // 2:
                for group in optimizer.param_groups:
                    group["lr"] = group["lr"] / 2
            for p, g in zip(params, gradients, strict=True):
                p.grad = None if g is None else g.to(device, copy=True)
            optimizer.step()
        for i, (a, b) in enumerate(zip(*(params for params, _ in runs), strict=True)):
            a, b = a.detach(), b.detach()
            torch.maximum(largest[i], b.abs(), out=largest[i])
            if not torch.equal(a, b):
                spacing = torch.nextafter(largest[i], torch.full_like(b, torch.inf)) - largest[i]
                worst = max(worst, ((a - b).abs() / spacing).nan_to_num(nan=torch.inf).max().item())
    return worst


def refusals_alike(name: str, dtype: torch.dtype) -> tuple[int, int]:
    """How many of the suite's faulty inputs are refused with the error that it expects, and how many there are."""
    inputs, alike = refused_inputs(name, dtype), 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # some are to be told with a warning
        for one in inputs:
            faulty = one.optimizer_error_input
            try:
                getattr(optim, name)(faulty.params, **faulty.kwargs)
            except Exception as error:  # noqa: BLE001 - any type is compared with the one expected
                alike += isinstance(error, one.error_type) and re.search(one.error_regex, str(error)) is not None
    return alike, len(inputs)
