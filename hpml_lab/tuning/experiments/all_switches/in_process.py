"""The runs of some switches in one process: what a step takes, what it calls and keeps, and what it computes."""

from dataclasses import dataclass

import torch

from hpml_lab.core.timing.counting import operators, peak_bytes, saved_tensors
from hpml_lab.data import sets
from hpml_lab.tuning.experiments.tuned_networks import gradient_bytes
from hpml_lab.tuning.experiments.turns import one_sample
from hpml_lab.tuning.lessons.switches import GuideSwitches, SwitchedRun

CHECKED = 8  # images of a batch on which losses are compared: an error shows in few, and float64 takes twice the memory


@dataclass(frozen=True)
class SwitchCounts:
    """What holds of a run on every machine.

    operators  calls per step
    kept       bytes that the forward pass keeps for the backward pass
    peak       bytes of a step at its peak, beyond weights and Adam's state
    losses     of the first steps, in float64, of CHECKED images at a time
    """

    operators: int
    kept: int
    peak: int
    losses: list[float]


class SwitchBench:
    """Training runs by name, each with its switches and its batch size, on one set of images."""

    def __init__(
        self, runs: dict[str, tuple[GuideSwitches, int]], device: torch.device, data: str, channels: int, blocks: int
    ) -> None:
        self._data, self._sizes, self._device = sets.load(data, device), dict(channels=channels, blocks=blocks), device
        self._settings = runs
        self._runs = {
            name: SwitchedRun(switches, self._data.train_x, self._data.train_y, batch=batch, **self._sizes)
            for name, (switches, batch) in runs.items()
        }

    def seconds(self, name: str) -> float:
        """One sample of the seconds of a step."""
        sample = one_sample(self._runs[name].step)
        self._release()
        return sample

    def counts(self, name: str, steps: int) -> SwitchCounts:
        """What a step calls and keeps, and the losses of so many first steps of a new run in float64."""
        run = self._runs[name]
        counts = SwitchCounts(len(operators(run.step)), kept_bytes(run), peak_of_step(run), self._losses(name, steps))
        self._release()
        return counts

    def _losses(self, name: str, steps: int) -> list[float]:
        switches, batch = self._settings[name]
        few = min(batch, CHECKED)
        images, labels = (part[: steps * few] for part in (self._data.train_x, self._data.train_y))
        exact = SwitchedRun(switches, images.double(), labels, batch=few, **self._sizes)
        return [exact.step().item() for _ in range(steps)]

    def _release(self) -> None:
        """Return to a GPU what the allocator keeps for later: the steps of other processes need it."""
        if self._device.type == "cuda":
            torch.cuda.empty_cache()


def kept_bytes(run: SwitchedRun) -> int:
    """Bytes that the forward pass keeps for the backward pass, not counting parameters and images."""
    images, labels = run.next_batch()
    with saved_tensors([*run.net.parameters(), run.images]) as saved:
        run.loss(images, labels)
    return sum(saved.values())


def peak_of_step(run: SwitchedRun) -> int:
    """Peak bytes of a step beyond weights and Adam's state. Gradients that stay from step to step count."""

    def step() -> None:  # begins and ends with the same memory, as peak_bytes requires
        run.step()
        if run.switches.gradients_to_none:
            run.optimizer.zero_grad(set_to_none=True)

    step()
    return gradient_bytes(run.net) + peak_bytes(step, run.images.device)
