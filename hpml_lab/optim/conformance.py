"""How far a package's optimizers are from torch.optim's plain for-loop: same bits, or how many spacings apart.

A difference is counted in spacings: the gap between neighbouring numbers of the parameter's dtype at the largest magnitude
that this element has had so far in torch's run, so that a difference does not seem large where the parameter crosses zero.
"""

import inspect
import math
import random
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from hpml_lab import optim

DENSE = ("SGD", "Adagrad", "Adadelta", "RMSprop", "Adam", "AdamW", "Adamax", "NAdam")
CLASSES = (*DENSE, "SparseAdam")
SPARSE = ("SGD", "Adagrad", "SparseAdam")  # those that take sparse gradients
# 0-dimensional, empty, odd, larger than a vector register; the last one is turned, so that it is not contiguous
SHAPES = ((), (0,), (1,), (7,), (3, 5), (2, 3, 4), (4, 6))
SPARSE_SHAPE = (20, 3)

Options = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """One input: a class, its options, and how it is walked."""

    name: str
    options: Options = field(default_factory=dict)
    dtype: torch.dtype = torch.float32
    steps: int = 25
    rates: bool = False  # the learning rate changes as the run goes
    sparse: bool = False  # the gradients are sparse, of one table
    shapes: tuple[tuple[int, ...], ...] = SHAPES


@dataclass(frozen=True)
class Outcome:
    """What a walk beside torch.optim showed."""

    same: bool  # every bit of the parameters after every step and of the state at the end
    spacings: float  # the largest difference of a parameter's element after any step; inf where one is not finite
    overwritten: bool  # a gradient was changed by a step


# ---- torch's own inputs: everything that is read from torch's test-suite ------------------------------------


def suite(name: str) -> tuple[list[Options], list[tuple[Any, Options, bool]]]:
    """A class's inputs on a CPU in PyTorch's own test-suite: options that work, and (params, options, steps) that must fail.

    `steps` tells an input that fails in `step` from one that its constructor refuses. Both lists are new at every call.
    """
    from torch.testing._internal.common_optimizers import OptimizerErrorEnum, optim_db

    [info] = [one for one in optim_db if one.optim_cls is getattr(torch.optim, name)]
    works = [dict(one.kwargs) for one in info.optim_inputs_func("cpu")]
    fails = [
        (
            one.optimizer_error_input.params,
            dict(one.optimizer_error_input.kwargs),
            one.error_on is OptimizerErrorEnum.STEP_ERROR,
        )
        for one in info.optim_error_inputs_func("cpu", torch.float32)
    ]
    return works, fails


def suite_trials(name: str, steps: int = 25) -> list[Trial]:
    """PyTorch's own inputs of a class, in float32 and float64."""
    return [
        Trial(name, options, dtype, steps, sparse=name == "SparseAdam")
        for dtype in (torch.float32, torch.float64)
        for options in suite(name)[0]
    ]


# ---- own inputs ----------------------------------------------------------------------------------------------


def random_options(name: str, draw: random.Random) -> Options:
    """Options that the class takes, drawn from wide ranges in any combination."""

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
    }
    known = inspect.signature(getattr(torch.optim, name)).parameters
    options = {one: make() for one, make in ranges.items() if one in known}
    if options.get("nesterov"):  # it wants a momentum and no dampening
        options.update(momentum=options["momentum"] or 0.9, dampening=0.0)
    return options


def own_trials(name: str, draws: int = 8, steps: int = 25, long_steps: int = 1000, seed: int = 0) -> list[Trial]:
    """Inputs that PyTorch's suite lacks; the same ones for the same seed.

    `draws` times random options, with dtypes and changing rates in turn; `long_steps` steps with changing rates; complex
    parameters; a learning rate that is a tensor; sparse gradients.
    """
    draw = random.Random(f"{name} {seed}")
    real, pairs = (torch.float32, torch.float64), (torch.complex64, torch.complex128)
    always_sparse = name == "SparseAdam"
    trials = []
    for i in range(draws):
        dtype = (real if always_sparse else real + real + pairs)[i % (2 if always_sparse else 6)]
        trials.append(Trial(name, random_options(name, draw), dtype, steps, rates=i % 3 > 0, sparse=always_sparse))
    for dtype in real:
        trials.append(Trial(name, {}, dtype, long_steps, rates=True, sparse=always_sparse))
        trials.append(Trial(name, {"lr": torch.tensor(0.013)}, dtype, steps, sparse=always_sparse))
        trials.append(Trial(name, {"lr": torch.tensor([0.13])}, dtype, steps, rates=True, sparse=always_sparse))
        if name in SPARSE:
            options = [random_options(name, draw) for _ in range(3)]
            for one in options:
                one.update({"weight_decay": 0.0} if "weight_decay" in one else {})  # not defined for sparse gradients
                one.update({"nesterov": False} if "nesterov" in one else {})
            trials += [Trial(name, one, dtype, steps, rates=True, sparse=True) for one in ({}, *options)]
    if not always_sparse:
        trials += [Trial(name, {}, dtype, steps, rates=True) for dtype in pairs]
    return trials


# ---- the walk ------------------------------------------------------------------------------------------------


class Walker:
    """An optimizer over parameters that are views of one flat tensor, so that a step is checked in one go."""

    def __init__(self, package: ModuleType, trial: Trial, device: torch.device, foreach: bool | None) -> None:
        shapes = (SPARSE_SHAPE,) if trial.sparse else trial.shapes
        generator = torch.Generator().manual_seed(0)
        start = torch.randn(sum(map(math.prod, shapes)), generator=generator, dtype=_wide(trial.dtype))
        self.flat = start.to(device, trial.dtype)
        self.params = [one.requires_grad_() for one in _views(self.flat, shapes)]
        self.flat_gradient = torch.zeros_like(self.flat)
        self.gradients = _views(self.flat_gradient, shapes)
        options = {name: _own(value) for name, value in trial.options.items()}
        make = getattr(package, trial.name)
        if foreach is not None and "foreach" in inspect.signature(make).parameters:
            options["foreach"] = foreach
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            self.optimizer = make(self.params, **options)
        self.overwritten = False

    def step(self, gradient: Tensor, missing: list[bool], sparse: bool) -> None:
        """One step with these gradients; notices when it changes them."""
        if sparse:
            [p] = self.params
            p.grad = gradient.clone()
            self.optimizer.step()
            kept = torch.equal(p.grad.to_dense(), gradient.to_dense())
        else:
            self.flat_gradient.copy_(gradient)
            for p, g, none in zip(self.params, self.gradients, missing, strict=True):
                p.grad = None if none else g
            self.optimizer.step()
            kept = torch.equal(self.flat_gradient, gradient)
        self.overwritten |= not kept

    def change_rate(self, factor: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = group["lr"] * factor

    def state(self) -> list[dict[str, Tensor]]:
        return [{name: torch.as_tensor(value) for name, value in self.optimizer.state[p].items()} for p in self.params]


def walk(
    trial: Trial, device: torch.device | str = "cpu", paths: Iterable[bool | None] = (False,), package: ModuleType = optim
) -> list[Outcome]:
    """Walk a package's class beside torch.optim's for-loop; one outcome for each of `paths`, the values given to `foreach`."""
    device = torch.device(device)
    theirs = Walker(torch.optim, trial, device, False)
    ours = [Walker(package, trial, device, foreach) for foreach in paths]
    largest, same, apart = _reals(theirs.flat).abs(), [True] * len(ours), [0.0] * len(ours)
    draw = random.Random(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a tensor learning rate that becomes a number
        for t, (gradient, missing) in enumerate(_gradients(trial, device)):
            if trial.rates and t % 4 == 3:
                factor = draw.uniform(0.6, 1.4)
                for one in (theirs, *ours):
                    one.change_rate(factor)
            for one in (theirs, *ours):
                one.step(gradient, missing, trial.sparse)
            truth = _reals(theirs.flat)
            largest = torch.maximum(largest, truth.abs())
            for i, one in enumerate(ours):
                found = _reals(one.flat)
                if not torch.equal(_bits(found), _bits(truth)) and not bool(_alike(found, truth).all()):
                    same[i] = False
                    apart[i] = max(apart[i], _spacings(found, truth, largest))
    state = theirs.state()
    return [Outcome(same[i] and _same_state(one.state(), state), apart[i], one.overwritten) for i, one in enumerate(ours)]


def _gradients(trial: Trial, device: torch.device) -> Iterable[tuple[Tensor, list[bool]]]:
    """For each step the gradients, flat, and which are missing: from 1e-6 to 1e3, a tenth exactly 0, sometimes a whole one."""
    generator = torch.Generator().manual_seed(1)
    dtype = _wide(trial.dtype)
    if trial.sparse:
        for t in range(trial.steps):
            rows = torch.randint(0, SPARSE_SHAPE[0], (1, 0 if t % 9 == 7 else 12), generator=generator)  # some of them twice
            values = torch.randn(rows.shape[1], SPARSE_SHAPE[1], generator=generator, dtype=dtype)
            values *= 10 ** (torch.rand(rows.shape[1], 1, generator=generator, dtype=torch.float64) * 9 - 6)
            gradient = torch.sparse_coo_tensor(rows, values.to(trial.dtype), SPARSE_SHAPE, check_invariants=False)
            yield gradient.to(device), [False]
        return
    sizes = torch.tensor([math.prod(shape) for shape in trial.shapes])
    scale = 10 ** (torch.rand(trial.steps, len(sizes), generator=generator, dtype=torch.float64) * 9 - 6)
    places = torch.arange(trial.steps)[:, None] + torch.arange(len(sizes))
    scale[places % 5 == 4] = 0
    made = torch.randn(trial.steps, int(sizes.sum()), generator=generator, dtype=dtype)
    made *= scale.repeat_interleave(sizes, 1) * (torch.rand(made.shape, generator=generator) > 0.1)
    yield from zip(made.to(device, trial.dtype), (places % 7 == 6).tolist(), strict=True)


def _views(flat: Tensor, shapes: Iterable[tuple[int, ...]]) -> list[Tensor]:
    """Views of these shapes, one after the other; of several the last is turned, so that it is not contiguous."""
    *made, last = (one.view(shape) for one, shape in zip(flat.split([math.prod(s) for s in shapes]), shapes, strict=True))
    return [*made, last.permute(tuple(reversed(range(last.ndim))))] if made else [last]


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.complex128 if dtype.is_complex else torch.float64


def _own(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def _reals(values: Tensor) -> Tensor:
    values = values.detach()
    return torch.view_as_real(values) if values.is_complex() else values


def _bits(values: Tensor) -> Tensor:
    return values.view({4: torch.int32, 8: torch.int64}[values.element_size()])


def _alike(a: Tensor, b: Tensor) -> Tensor:
    """Where two are the same number and sign (0 and -0 differ), or both are nan."""
    return (a == b) & (a.signbit() == b.signbit()) | a.isnan() & b.isnan()


def _spacings(a: Tensor, b: Tensor, largest: Tensor) -> float:
    spacing = torch.nextafter(largest, torch.full_like(largest, math.inf)) - largest
    apart = ((a - b).abs() / spacing).masked_fill(_alike(a, b) | (a == b), 0)
    return apart.nan_to_num(nan=math.inf, posinf=math.inf).max().item()


def _same_state(ours: list[dict[str, Tensor]], theirs: list[dict[str, Tensor]]) -> bool:
    """The same names, dtypes, shapes and bits."""
    if [one.keys() for one in ours] != [one.keys() for one in theirs]:
        return False
    for one, other in zip(ours, theirs, strict=True):
        for name, a in one.items():
            b = other[name]
            if (a.dtype, a.shape, a.is_sparse) != (b.dtype, b.shape, b.is_sparse):
                return False
            a, b = (_reals(value.to_dense() if value.is_sparse else value) for value in (a, b))
            if not bool(_alike(a.cpu(), b.cpu()).all()):
                return False
    return True


# ---- errors, and the table -----------------------------------------------------------------------------------


def refusal(package: ModuleType, name: str, params: Any, options: Options, steps: bool) -> Any:
    """What a class answers to an input: (type, text) of the error, or the warnings' texts where there is none."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            optimizer = getattr(package, name)(params, **options)
            if steps:
                optimizer.step()
        except Exception as error:  # any type is compared with torch's
            return type(error), str(error)
    return [(one.category, str(one.message)) for one in told]


def refused_alike(name: str, package: ModuleType = optim) -> tuple[int, int]:
    """How many inputs that must fail get torch.optim's own error or warning (type and whole text), and how many there are."""
    faulty = suite(name)[1]
    alike = 0
    for params, options, steps in faulty:
        expected = refusal(torch.optim, name, params, options, steps)
        alike += bool(expected) and refusal(package, name, params, options, steps) == expected
    return alike, len(faulty)


def takes_lists(trial: Trial) -> bool:
    """Whether the class works on lists of tensors with this input: Adam refuses a tensor rate there, as torch's does."""
    known = inspect.signature(getattr(torch.optim, trial.name)).parameters
    return "foreach" in known and not ("amsgrad" in known and isinstance(trial.options.get("lr"), Tensor))


def conformance(
    device: torch.device | str = "cpu",
    steps: int = 25,
    draws: int = 8,
    long_steps: int = 1000,
    classes: Iterable[str] = CLASSES,
    package: ModuleType = optim,
) -> list[dict[str, Any]]:
    """A row for each class: how many inputs gave torch.optim's bits, the largest difference, and how many errors are torch's.

    device      where the parameters are; PyTorch's inputs are always those of its CPU list
    steps       steps with each input but the long ones
    draws       random option sets a class
    long_steps  steps of the two long runs of a class
    classes     names in `torch.optim` and in `package`
    package     the module of classes that is judged
    The columns: `suite …` are PyTorch's inputs in float32 and float64 by the for-loop, `own …` this module's, `lists …` both
    again with foreach=True; `… same` of them gave the same bits. Spacings: see the top of this module.
    """
    rows = []
    for name in classes:
        runs: dict[str, list[Outcome]] = {"suite": [], "own": [], "lists": []}
        for kind, trials in (("suite", suite_trials(name, steps)), ("own", own_trials(name, draws, steps, long_steps))):
            for trial in trials:
                plain, *lists = walk(trial, device, (False, True) if takes_lists(trial) else (False,), package)
                runs[kind].append(plain)
                runs["lists"] += lists
        every = [one for outcomes in runs.values() for one in outcomes]
        row: dict[str, Any] = {"class": name}
        for kind, outcomes in runs.items():
            row[f"{kind} inputs"], row[f"{kind} same"] = len(outcomes), sum(one.same for one in outcomes)
        row["largest difference, spacings"] = max(one.spacings for one in every)
        row["gradients overwritten"] = sum(one.overwritten for one in every)
        row["errors alike"], row["error inputs"] = refused_alike(name, package)
        rows.append(row)
    return rows
