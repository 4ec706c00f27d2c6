"""Three ways to time the parts of a training step on a device that works later: naive, synchronized, by events."""

from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import nn

from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.timing import counting
from hpml_lab.profiling.tools.queued_device import QueuedDevice

ITEM = "loss.item()"
STEP_PARTS = ("forward", "backward", "step", ITEM)


class SimulatedStep:
    """One training step on a QueuedDevice: three pieces of work of known length, then the loss is asked for."""

    def __init__(self, device: QueuedDevice, seconds: dict[str, float]) -> None:
        self.device, self.seconds, self.losses = device, seconds, []
        self.weight, self.loss = 1.0, None

    def calls(self) -> dict[str, Callable[[], Any]]:
        """The parts by name, in order, as a loop calls them."""
        return {"forward": self._forward, "backward": self._backward, "step": self._step, ITEM: self._item}

    def synchronize(self) -> None:
        self.device.synchronize()

    def event(self) -> Any:
        return self.device.record()

    def between(self, a: Any, b: Any) -> float:
        return self.device.item(b) - self.device.item(a)

    def _forward(self) -> None:
        self.loss = self.device.launch("forward", self.seconds["forward"], lambda: self.weight**2)

    def _backward(self) -> None:
        self.device.launch("backward", self.seconds["backward"])

    def _step(self) -> None:
        def update() -> None:
            self.weight *= 0.8

        self.device.launch("step", self.seconds["step"], update)

    def _item(self) -> None:
        self.losses.append(self.device.item(self.loss))
        self.device.synchronize()  # one queue: on a GPU too, what item() copies waits for all that was queued before it


class GpuStep:
    """One training step of a wide net on a CUDA GPU, with the same parts."""

    def __init__(self, device: torch.device, width: int, layers: int) -> None:
        self.device, self.losses = device, []
        self.net = nn.Sequential(*(nn.Linear(width, width, device=device) for _ in range(layers)))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3)
        self.x = torch.randn(width, width, device=device)
        self.loss = None

    def calls(self) -> dict[str, Callable[[], Any]]:
        """The parts by name, in order, as a loop calls them."""
        return {"forward": self._forward, "backward": self._backward, "step": self._step, ITEM: self._item}

    def synchronize(self) -> None:
        counting.synchronize(self.device)

    def event(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def between(self, a: torch.cuda.Event, b: torch.cuda.Event) -> float:
        b.synchronize()
        return a.elapsed_time(b) / 1e3  # it is in ms

    def _forward(self) -> None:
        self.loss = self.net(self.x).square().mean()

    def _backward(self) -> None:
        self.loss.backward()

    def _step(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _item(self) -> None:
        self.losses.append(self.loss.item())


def naive(step: SimulatedStep | GpuStep) -> dict[str, float]:
    """Seconds by a clock around each call: how long the calls took, not their work."""
    seconds = {}
    for part, call in step.calls().items():
        start = CLOCK()
        call()
        seconds[part] = CLOCK() - start
    return seconds


def synchronized(step: SimulatedStep | GpuStep) -> dict[str, float]:
    """Seconds by a clock that waits for the device before each look: right, but host and device no longer work at once."""
    seconds = {}
    for part, call in step.calls().items():
        step.synchronize()
        start = CLOCK()
        call()
        step.synchronize()
        seconds[part] = CLOCK() - start
    return seconds


def by_events(step: SimulatedStep | GpuStep) -> dict[str, float]:
    """Seconds by events, marks in the device's own queue that are read when all is done: right, and nobody waits before."""
    marks = [step.event()]
    calls = step.calls()
    for call in calls.values():
        call()
        marks.append(step.event())
    step.synchronize()
    return {part: step.between(a, b) for part, a, b in zip(calls, marks, marks[1:], strict=False)}


STEP_CLOCKS = {"naive": naive, "synchronized": synchronized, "events": by_events}


def median_seconds(step: SimulatedStep | GpuStep, clock: Callable, steps: int) -> dict[str, float]:
    """The median seconds of each part over `steps` steps, each begun on an idle device, after one to warm up."""
    clock(step)
    seen = []
    for _ in range(steps):
        step.synchronize()
        seen.append(clock(step))
    return {part: median(sample[part] for sample in seen) for part in STEP_PARTS}
