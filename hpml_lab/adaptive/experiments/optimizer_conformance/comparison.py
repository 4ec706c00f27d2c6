"""How far a package's optimizers are from torch.optim's plain for-loop: bitwise identical, or how many spacings away.

A difference is counted in spacings: the gap between neighboring floating-point numbers of the parameter's dtype at the largest
magnitude that this element has had so far in torch's run, so that a difference does not seem large where the parameter crosses
zero.
"""

import inspect
import math
import random
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from hpml_lab import optim
from hpml_lab.adaptive.experiments.optimizer_conformance.torch_inputs import SPARSE_SHAPE, OptimizerInput, Options, suite


@dataclass(frozen=True)
class Agreement:
    """How far a class agreed with torch.optim's on one input."""

    identical: bool  # every bit of the parameters after every step and of the state at the end
    spacings: float  # the largest difference of a parameter's element after any step; inf if one is not finite
    overwritten: bool  # a gradient was changed by a step


# ---- stepping ---------------------------------------------------------------------------------------------------------


class SteppedOptimizer:
    """An optimizer over parameters that are views of one flat tensor, so that a step is checked in one comparison."""

    def __init__(self, package: ModuleType, inputs: OptimizerInput, device: torch.device, foreach: bool | None) -> None:
        self.takes_closure = inputs.name == "LBFGS"
        generator = torch.Generator().manual_seed(0)
        start = torch.randn(sum(map(math.prod, inputs.taken)), generator=generator, dtype=_wide(inputs.dtype))
        self.flat = start.to(device, inputs.dtype)
        self.params = [view.requires_grad_() for view in _views(self.flat, inputs.taken, not self.takes_closure)]
        self.flat_gradient = torch.zeros_like(self.flat)
        self.gradients = _views(self.flat_gradient, inputs.taken, not self.takes_closure)
        options = {name: _copy(value) for name, value in inputs.options.items()}
        optimizer_class = getattr(package, inputs.name)
        if foreach is not None and "foreach" in inspect.signature(optimizer_class).parameters:
            options["foreach"] = foreach
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            self.optimizer = optimizer_class(self.params, **options)
        self.overwritten = False

    def step(self, gradient: Tensor, missing: list[bool], sparse: bool) -> None:
        """One step with these gradients; notices if it changes them."""
        if sparse:
            [p] = self.params
            p.grad = gradient.clone()
            self.optimizer.step()
            kept = _same_bits(p.grad.to_dense(), gradient.to_dense())
        else:
            self.flat_gradient.copy_(gradient)
            for p, g, is_missing in zip(self.params, self.gradients, missing, strict=True):
                p.grad = None if is_missing else g
            expected = gradient.clone() if self.takes_closure else gradient
            self.optimizer.step(*[partial(self._bowl, gradient, expected)] * self.takes_closure)
            kept = _same_bits(self.flat_gradient, expected)  # also where a training that diverges has made them nan
        self.overwritten |= not kept

    def _bowl(self, slope: Tensor, gradient: Tensor) -> Tensor:
        """Σ slope · θ + θ²/2 − cos(θ)/2, the last two with the other sign where they are maximized. Sets the gradient."""
        theta, slope = _reals(self.flat), _reals(slope)
        sign = -1 if self.optimizer.param_groups[0].get("maximize") else 1
        _reals(gradient).copy_(slope + sign * (theta + theta.sin() / 2))
        self.flat_gradient.copy_(gradient)
        return (slope * theta + sign * (theta**2 - theta.cos()) / 2).sum()

    def change_rate(self, factor: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = group["lr"] * factor

    def state(self) -> list[dict[str, Tensor]]:
        return [dict(_tensors(self.optimizer.state[p])) for p in self.params]


def compare_with_torch(
    inputs: OptimizerInput,
    device: torch.device | str = "cpu",
    foreach: Iterable[bool | None] = (False,),
    package: ModuleType = optim,
) -> list[Agreement]:
    """Step a package's class and torch.optim's for-loop on the same gradients; one Agreement for each value of `foreach`."""
    device = torch.device(device)
    torchs = SteppedOptimizer(torch.optim, inputs, device, False)
    own = [SteppedOptimizer(package, inputs, device, value) for value in foreach]
    largest, identical, spacings = _reals(torchs.flat).abs(), [True] * len(own), [0.0] * len(own)
    draw = random.Random(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about a tensor learning rate that becomes a number
        for t, (gradient, missing) in enumerate(_gradients(inputs, device)):
            if inputs.rates and t % 4 == 3:
                factor = draw.uniform(0.6, 1.4)
                for stepped in (torchs, *own):
                    stepped.change_rate(factor)
            for stepped in (torchs, *own):
                stepped.step(gradient, missing, inputs.sparse)
            expected = _reals(torchs.flat)
            largest = torch.maximum(largest, expected.abs())
            for i, stepped in enumerate(own):
                found = _reals(stepped.flat)
                if not torch.equal(_bits(found), _bits(expected)) and not bool(_identical(found, expected).all()):
                    identical[i] = False
                    spacings[i] = max(spacings[i], _spacings(found, expected, largest))
    state = torchs.state()
    return [
        Agreement(identical[i] and _same_state(stepped.state(), state), spacings[i], stepped.overwritten)
        for i, stepped in enumerate(own)
    ]


def _gradients(inputs: OptimizerInput, device: torch.device) -> Iterable[tuple[Tensor, list[bool]]]:
    """The flat gradient of each step, and which parameters have none: from 1e-6 to 1e3, a tenth exactly 0, some all 0."""
    generator = torch.Generator().manual_seed(1)
    dtype = _wide(inputs.dtype)
    if inputs.sparse:
        for t in range(inputs.steps):
            rows = torch.randint(0, SPARSE_SHAPE[0], (1, 0 if t % 9 == 7 else 12), generator=generator)  # some of them twice
            values = torch.randn(rows.shape[1], SPARSE_SHAPE[1], generator=generator, dtype=dtype)
            values *= 10 ** (torch.rand(rows.shape[1], 1, generator=generator, dtype=torch.float64) * 9 - 6)
            gradient = torch.sparse_coo_tensor(rows, values.to(inputs.dtype), SPARSE_SHAPE, check_invariants=False)
            yield gradient.to(device), [False]
        return
    sizes = torch.tensor([math.prod(shape) for shape in inputs.taken])
    scale = 10 ** (torch.rand(inputs.steps, len(sizes), generator=generator, dtype=torch.float64) * 9 - 6)
    turn = torch.arange(inputs.steps)[:, None] + torch.arange(len(sizes))
    scale[turn % 5 == 4] = 0
    made = torch.randn(inputs.steps, int(sizes.sum()), generator=generator, dtype=dtype)
    made *= scale.repeat_interleave(sizes, 1) * (torch.rand(made.shape, generator=generator) > 0.1)
    yield from zip(made.to(device, inputs.dtype), (turn % 7 == 6).tolist(), strict=True)


def _views(flat: Tensor, shapes: Iterable[tuple[int, ...]], transposed: bool = True) -> list[Tensor]:
    """Views of these shapes, one after the other; the last of several may be transposed, so that it is not contiguous."""
    *made, last = (part.view(shape) for part, shape in zip(flat.split([math.prod(s) for s in shapes]), shapes, strict=True))
    return [*made, last.permute(tuple(reversed(range(last.ndim))))] if made and transposed else [*made, last]


def _tensors(state: dict[str, Any]) -> Iterable[tuple[str, Tensor]]:
    """The entries of a state, and those of the lists in it, as tensors; no entry is made of None."""
    for name, value in state.items():
        for i, entry in enumerate(value if isinstance(value, list) else [value]):
            if entry is not None:
                yield f"{name}[{i}]" if isinstance(value, list) else name, torch.as_tensor(entry)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.complex128 if dtype.is_complex else torch.float64


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def _reals(values: Tensor) -> Tensor:
    values = values.detach()
    return torch.view_as_real(values) if values.is_complex() else values


def _bits(values: Tensor) -> Tensor:
    return values.view({4: torch.int32, 8: torch.int64}[values.element_size()])


def _same_bits(a: Tensor, b: Tensor) -> bool:
    return torch.equal(_reals(a).view(torch.uint8), _reals(b).view(torch.uint8))


def _identical(a: Tensor, b: Tensor) -> Tensor:
    """Where both are the same number with the same sign (0 and -0 differ), or both are nan."""
    return (a == b) & (a.signbit() == b.signbit()) | a.isnan() & b.isnan()


def _spacings(a: Tensor, b: Tensor, largest: Tensor) -> float:
    spacing = torch.nextafter(largest, torch.full_like(largest, math.inf)) - largest
    distance = ((a - b).abs() / spacing).masked_fill(_identical(a, b) | (a == b), 0)
    return distance.nan_to_num(nan=math.inf, posinf=math.inf).max().item()


def _same_state(own: list[dict[str, Tensor]], torchs: list[dict[str, Tensor]]) -> bool:
    """The same names, dtypes, shapes and bits."""
    if [state.keys() for state in own] != [state.keys() for state in torchs]:
        return False
    for state, torch_state in zip(own, torchs, strict=True):
        for name, a in state.items():
            b = torch_state[name]
            if (a.dtype, a.shape, a.is_sparse) != (b.dtype, b.shape, b.is_sparse):
                return False
            a, b = (_reals(value.to_dense() if value.is_sparse else value) for value in (a, b))
            if not bool(_identical(a.cpu(), b.cpu()).all()):
                return False
    return True


# ---- errors -----------------------------------------------------------------------------------------------------------


def error_or_warnings(package: ModuleType, name: str, params: Any, options: Options, steps: bool) -> Any:
    """What a class answers to an input: (type, text) of the error, or the warnings' texts if there is none."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            optimizer = getattr(package, name)(params, **options)
            if steps:
                optimizer.step()
        except Exception as error:  # any type is compared with torch's
            return type(error), str(error)
    return [(warning.category, str(warning.message)) for warning in caught]


def same_errors(name: str, package: ModuleType = optim) -> tuple[int, int]:
    """How many inputs that must fail get torch.optim's own error or warning (type and whole text), and how many there are."""
    faulty = suite(name)[1]
    count = 0
    for params, options, steps in faulty:
        expected = error_or_warnings(torch.optim, name, params, options, steps)
        count += bool(expected) and error_or_warnings(package, name, params, options, steps) == expected
    return count, len(faulty)
