"""Inputs on which optimizers are compared with torch.optim: those of PyTorch's own test suite, and others that it lacks."""

import inspect
import random
import sys
import unittest
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch

from hpml_lab import optim

ELEMENTWISE = ("SGD", "ASGD", "Rprop", "Adagrad", "Adadelta", "RMSprop", "Adam", "AdamW", "Adamax", "NAdam", "RAdam")
CLASSES = (*ELEMENTWISE, "SparseAdam", "Adafactor", "Muon", "LBFGS")  # all of torch.optim's
REFUSE_COMPLEX = ("SparseAdam", "Adafactor", "Muon")
EXPENSIVE = ("Muon", "LBFGS")  # a step is 15 products of matrices in 16 bits, or up to 20 iterations: fewer of them
SPARSE = ("SGD", "Adagrad", "SparseAdam")  # these accept sparse gradients
# 0-dimensional, empty, odd, larger than a vector register; the last one is transposed, so that it is not contiguous
SHAPES = ((), (0,), (1,), (7,), (3, 5), (2, 3, 4), (4, 6))
SPARSE_SHAPE = (20, 3)

Options = dict[str, Any]


@dataclass(frozen=True)
class OptimizerInput:
    """One input for the comparison: a class, its options, and how it is stepped."""

    name: str
    options: Options = field(default_factory=dict)
    dtype: torch.dtype = torch.float32
    steps: int = 25
    rates: bool = False  # the learning rate changes during the run
    sparse: bool = False  # the gradients are sparse, of one table
    shapes: tuple[tuple[int, ...], ...] = SHAPES

    @property
    def taken(self) -> tuple[tuple[int, ...], ...]:
        """The shapes among `shapes` that torch's class takes: Muon matrices with columns, two others none that is empty."""
        if self.sparse:
            return (SPARSE_SHAPE,)
        fits = {"Muon": lambda shape: len(shape) == 2 and shape[1] > 0} | dict.fromkeys(
            ("Adafactor", "LBFGS"), lambda shape: 0 not in shape
        )
        return tuple(filter(fits.get(self.name, lambda shape: True), self.shapes)) or ((3, 5),)

    @property
    def accepts_lists(self) -> bool:
        """Whether the class works on lists of tensors with this input: Adam refuses a tensor rate there, like torch's."""
        known = inspect.signature(getattr(torch.optim, self.name)).parameters
        tensor_rate = "amsgrad" in known and isinstance(self.options.get("lr"), torch.Tensor)
        return "foreach" in known and getattr(optim, self.name).takes_lists and not tensor_rate


def suite(name: str) -> tuple[list[Options], list[tuple[Any, Options, bool]]]:
    """A class's inputs on a CPU in PyTorch's own test suite: options that work, and (params, options, steps) that must fail.

    `steps` distinguishes an input that fails in `step` from one that the constructor refuses. Both lists are new in every call.
    """
    try:
        import expecttest  # noqa: F401
    except ModuleNotFoundError:  # torch's test cases inherit from its class; their inputs need nothing of it
        sys.modules["expecttest"] = SimpleNamespace(TestCase=unittest.TestCase)
    from torch.testing._internal.common_optimizers import OptimizerErrorEnum, optim_db

    [info] = [entry for entry in optim_db if entry.optim_cls is getattr(torch.optim, name)]
    works = [dict(entry.kwargs) for entry in info.optim_inputs_func("cpu")]
    fails = [
        (
            entry.optimizer_error_input.params,
            dict(entry.optimizer_error_input.kwargs),
            entry.error_on is OptimizerErrorEnum.STEP_ERROR,
        )
        for entry in info.optim_error_inputs_func("cpu", torch.float32)
    ]
    return works, fails


def suite_inputs(name: str, steps: int = 25) -> list[OptimizerInput]:
    """PyTorch's own inputs of a class, in float32 and float64."""
    steps = -(-steps // 5) if name in EXPENSIVE else steps
    return [
        OptimizerInput(name, options, dtype, steps, sparse=name == "SparseAdam")
        for dtype in (torch.float32, torch.float64)
        for options in suite(name)[0]
    ]


def random_options(name: str, draw: random.Random) -> Options:
    """Options that the class accepts, drawn from wide ranges in any combination."""

    def often_zero(low: float, high: float) -> float:
        return draw.choice((0.0, draw.uniform(low, high)))

    ranges: dict[str, Callable[[], Any]] = {
        "lr": lambda: 10 ** draw.uniform(-5, 0.5),
        "betas": lambda: (draw.uniform(0, 0.999), draw.uniform(0, 0.9999)),
        "eps": lambda: 10 ** draw.uniform(-12, -1),
        "weight_decay": lambda: draw.choice((0.0, 10 ** draw.uniform(-5, -0.5))),
        "momentum": lambda: often_zero(0.01, 0.999),
        "dampening": lambda: often_zero(0.01, 1),
        "nesterov": lambda: draw.random() < 0.4,
        "rho": lambda: draw.uniform(0, 1),
        "alpha": lambda: draw.uniform(0, 0.9999),
        "lr_decay": lambda: often_zero(0, 0.5),
        "initial_accumulator_value": lambda: often_zero(0, 5),
        "momentum_decay": lambda: draw.choice((0.0, 10 ** draw.uniform(-4, -1))),
        "maximize": lambda: draw.random() < 0.3,
        "amsgrad": lambda: draw.random() < 0.5,
        "centered": lambda: draw.random() < 0.5,
        "decoupled_weight_decay": lambda: draw.random() < 0.5,
        "etas": lambda: (draw.uniform(0.1, 0.95), draw.uniform(1.05, 2)),
        "step_sizes": lambda: (10 ** draw.uniform(-7, -2), 10 ** draw.uniform(-1, 2)),
        "lambd": lambda: often_zero(0, 0.5),
        "t0": lambda: draw.choice((draw.uniform(0, 12), 1e6)),
        "beta2_decay": lambda: draw.uniform(-1.5, 0),
        "d": lambda: draw.uniform(1, 2),
        "ns_coefficients": lambda: (draw.uniform(1.5, 3.5), draw.uniform(-5, -0.5), draw.uniform(0, 2)),
        "ns_steps": lambda: draw.randrange(8),
        "adjust_lr_fn": lambda: draw.choice((None, "original", "match_rms_adamw")),
        "max_iter": lambda: draw.randrange(1, 12),
        "max_eval": lambda: draw.choice((None, draw.randrange(1, 20))),
        "tolerance_grad": lambda: 10 ** draw.uniform(-9, 0),
        "tolerance_change": lambda: 10 ** draw.uniform(-9, -2),
        "history_size": lambda: draw.randrange(1, 8),
        "line_search_fn": lambda: draw.choice((None, "strong_wolfe")),
    }
    if name == "Adafactor":
        ranges["eps"] = lambda: (draw.choice((None, 10 ** draw.uniform(-12, -1))), 10 ** draw.uniform(-6, 0))
    known = inspect.signature(getattr(torch.optim, name)).parameters
    options = {option: make() for option, make in ranges.items() if option in known}
    if options.get("nesterov") and "dampening" in known:  # it requires a momentum and no dampening
        options.update(momentum=options["momentum"] or 0.9, dampening=0.0)
    return options


def own_inputs(name: str, draws: int = 8, steps: int = 25, long_steps: int = 1000, seed: int = 0) -> list[OptimizerInput]:
    """Inputs that PyTorch's suite lacks; the same ones for the same seed.

    `draws` times random options, with dtypes and changing rates in turn; `long_steps` steps with changing rates; complex
    parameters; a learning rate that is a tensor; sparse gradients.
    """
    draw = random.Random(f"{name} {seed}")
    real, pairs = (torch.float32, torch.float64), () if name in REFUSE_COMPLEX else (torch.complex64, torch.complex128)
    always_sparse = name == "SparseAdam"
    if name in EXPENSIVE:
        steps, long_steps = -(-steps // 5), -(-long_steps // 20)
    inputs = []
    for i in range(draws):
        dtype = (real + real + pairs)[i % len(real + real + pairs)]
        inputs.append(OptimizerInput(name, random_options(name, draw), dtype, steps, rates=i % 3 > 0, sparse=always_sparse))
    for dtype in real:
        inputs.append(OptimizerInput(name, {}, dtype, long_steps, rates=True, sparse=always_sparse))
        inputs.append(OptimizerInput(name, {"lr": torch.tensor(0.013)}, dtype, steps, sparse=always_sparse))
        inputs.append(OptimizerInput(name, {"lr": torch.tensor([0.13])}, dtype, steps, rates=True, sparse=always_sparse))
        if name in SPARSE:
            drawn = [random_options(name, draw) for _ in range(3)]
            for options in drawn:
                options.update({"weight_decay": 0.0} if "weight_decay" in options else {})  # not defined for sparse gradients
                options.update({"nesterov": False} if "nesterov" in options else {})
            inputs += [OptimizerInput(name, options, dtype, steps, rates=True, sparse=True) for options in ({}, *drawn)]
    return inputs + [OptimizerInput(name, {}, dtype, steps, rates=True) for dtype in pairs]
