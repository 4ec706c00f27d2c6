"""torch's GradScaler, step by step: the scale it uses, the steps it skips, and the rule that it follows."""

from dataclasses import dataclass

import torch

from hpml_lab.core.experiment.findings import Row, column
from hpml_lab.precision.recipes import BatchedScaler


@dataclass
class ScalerStep(Row):
    """One training step with torch's GradScaler."""

    step: int = column("step")
    scale: float = column("scale")
    overflow: bool = column("a gradient overflowed")
    changed: bool = column("a weight changed")
    next_scale: float = column("next scale")


def trace_scaler(x: torch.Tensor, y: torch.Tensor, *, steps: int, start: float, interval: int) -> list[ScalerStep]:
    """Train a small network with autocast in fp16 and torch's GradScaler, on the device of x.

    x (N, inputs) and y (N,) are one batch that is used in every step; `start` is the first scale, `interval` the growth
    interval.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(x.shape[1], 16), torch.nn.ReLU(), torch.nn.Linear(16, 10)).to(x.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler(x.device.type, init_scale=start, growth_interval=interval)
    rows = []
    for step in range(steps):
        before = [weight.detach().clone() for weight in model.parameters()]
        scale = scaler.get_scale()
        optimizer.zero_grad()
        with torch.autocast(x.device.type, dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        overflow = not all(weight.grad.isfinite().all() for weight in model.parameters())
        scaler.step(optimizer)
        scaler.update()
        changed = any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
        rows.append(ScalerStep(step, scale, overflow, changed, scaler.get_scale()))
    return rows


def batched_scaler_agrees(trace: list[ScalerStep], start: float, interval: int) -> bool:
    """Whether the batched scaler of the recipes uses the same scales as torch's GradScaler, given the same overflows."""
    scaler = BatchedScaler(1, torch.device("cpu"), start, interval)
    for row in trace:
        scaler.update(torch.tensor([row.overflow]))
        if scaler.scale.item() != row.next_scale:
            return False
    return True


def doubles_every_interval(trace: list[ScalerStep], interval: int) -> bool:
    """Whether the scale doubles exactly after every `interval` steps in a row without an overflow, and at least once."""
    good, as_expected = 0, []
    for row in trace:
        good = 0 if row.overflow else good + 1
        as_expected.append((row.next_scale == 2 * row.scale) == (good == interval))
        good %= interval
    return all(as_expected) and any(row.next_scale > row.scale for row in trace)
