"""What torch.profiler costs a training step as it is used: left on, on a schedule, or started anew for each step."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.timing.counting import synchronize
from hpml_lab.core.timing.noise import SpeedUp, speed_up_of

OFF, OFF_AGAIN = "off", "off, again"
LEFT_ON, SCHEDULED, RESTARTED = "left on", "schedule, 2 steps recorded", "a new profiler for each step"


@dataclass
class ProfilerUse(Row):
    """A training step under torch.profiler, used in one way; the time is of one step."""

    use: str = column("torch.profiler")
    step_ms: float = column("a step", "ms")
    times: float = column("against no profiler", "slowdown")
    interval: str = column("interval")
    noise: float = column("noise, ±", "%")


def small_step(device: torch.device, layers: int = 10, width: int = 64) -> Callable[[], object]:
    """A step of many small operators, which a profiler slows most: a net of `layers`, forward and backward."""
    parts = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
    net = nn.Sequential(*parts).to(device)
    batch = torch.ones(width, width, device=device)
    return lambda: torch.autograd.grad(net(batch).square().mean(), list(net.parameters()))


def profiler_uses(device: torch.device, steps: int, samples: int) -> dict[str, tuple[float, SpeedUp]]:
    """{way of use: (seconds of one step, compared with no profiler)}, each sample `steps` steps, all ways in turns.

    Where the profiler is left on, its start before and its stop after the steps are not counted: they come once for a run.
    Where it records on a schedule, or is started anew, they come in between and are.
    """
    step = small_step(device)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]

    def profiler(**options: object) -> AbstractContextManager:
        return profile(activities=activities, acc_events=True, **options)

    def timed(work: Callable[[], object]) -> float:
        synchronize(device)
        start = time.perf_counter()
        work()
        synchronize(device)
        return (time.perf_counter() - start) / steps

    def plainly() -> None:
        for _ in range(steps):
            step()

    def left_on() -> float:
        with profiler():
            step()
            return timed(plainly)

    def scheduled() -> None:
        plan = schedule(wait=steps - 4, warmup=1, active=2, repeat=1)
        with profiler(schedule=plan) as running:
            for _ in range(steps):
                step()
                running.step()

    def restarted() -> None:
        for _ in range(steps):
            with profiler():
                step()

    ways = {
        OFF: lambda: timed(plainly),
        LEFT_ON: left_on,
        SCHEDULED: lambda: timed(scheduled),
        RESTARTED: lambda: timed(restarted),
        OFF_AGAIN: lambda: timed(plainly),
    }
    plainly()
    left_on()  # the first start of a profiler in a process loads its libraries
    turns = [{name: way() for name, way in ways.items()} for _ in range(samples)]
    seconds = {name: [turn[name] for turn in turns] for name in ways}
    return {
        name: (sorted(seconds[name])[samples // 2], speed_up_of(seconds[OFF], seconds[name], seconds[OFF_AGAIN]))
        for name in (LEFT_ON, SCHEDULED, RESTARTED)
    }
