"""A training run that can be killed at any step and continues from its snapshot, bitwise identical on 4, 2 or 1 ranks.

    torchrun --standalone --nproc-per-node 2 --max-restarts 2 -m hpml_lab.distributed.elastic_training '{"folder": "run"}'

`TrainingRun` holds everything that decides the next step. What it holds besides the weights is easily forgotten in a snapshot:
the optimizer's moments, the schedule, the generator, the epoch, and the place in the epoch.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed.nn  # before there is a group: see `train.leave`
from torch import distributed as dist
from torch import nn
from torch.nn import functional as F

from hpml_lab.core.system.children import end_with_parent
from hpml_lab.distributed.recovery import Snapshots, average_in_order, fingerprint, my_shards, snapshot_bytes

SHARDS, PER_SHARD, BATCHES = 4, 16, 6  # samples of a shard; batches of an epoch
PARTS = ("net", "optimizer", "scheduler", "generator", "epoch", "batch")  # of a complete snapshot


class TrainingRun:
    """A small network that learns ten classes, with noise on its inputs, dropout, Adam and a schedule."""

    def __init__(self, width: int = 32) -> None:
        torch.manual_seed(0)
        self.x = torch.randn(SHARDS * PER_SHARD * BATCHES, 64)
        self.y = (self.x @ torch.randn(64, 10)).argmax(dim=1)  # a class that a linear map decides
        self.net = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, 10))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=3e-3)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=4, gamma=0.9)
        self.generator = torch.Generator().manual_seed(0)
        self.epoch = self.batch = 0

    @property
    def steps(self) -> int:
        """How many steps are done."""
        return self.epoch * BATCHES + self.batch

    def state(self) -> dict[str, Any]:
        """Everything that the next step depends on, and that no rank can compute from anything else."""
        return {
            "net": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "generator": self.generator.get_state(),
            "epoch": self.epoch,
            "batch": self.batch,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over what `state` has; what it has forgotten stays as in a new run."""
        for name, value in state.items():
            if name in ("epoch", "batch"):
                setattr(self, name, int(value))
            elif name == "generator":
                self.generator.set_state(value)
            else:
                getattr(self, name).load_state_dict(value)

    def step(self, average: Callable[[dict[int, torch.Tensor], int], torch.Tensor] = average_in_order) -> float:
        """One step on this rank's shards of the next batch; returns the mean loss of these shards."""
        order = torch.randperm(len(self.x), generator=torch.Generator().manual_seed(self.epoch))
        shards = order[self.batch * SHARDS * PER_SHARD :][: SHARDS * PER_SHARD].view(SHARDS, PER_SHARD)
        seed = int(torch.randint(2**31, (), generator=self.generator))
        losses, gradients = [], {}
        for shard in my_shards(SHARDS):
            torch.manual_seed(seed + shard)  # noise and dropout belong to the step and the shard, not to the rank
            x = self.x[shards[shard]]
            loss = F.cross_entropy(self.net(x + 0.1 * torch.randn_like(x)), self.y[shards[shard]])
            found = torch.autograd.grad(loss, list(self.net.parameters()))
            gradients[shard] = torch.cat([gradient.flatten() for gradient in found])
            losses.append(loss.item())
        parameters = list(self.net.parameters())
        flat = average(gradients, SHARDS).split([parameter.numel() for parameter in parameters])
        for parameter, gradient in zip(parameters, flat, strict=True):
            parameter.grad = gradient.view_as(parameter)
        self.optimizer.step()
        self.scheduler.step()
        self.epoch, self.batch = divmod(self.steps + 1, BATCHES)
        return sum(losses) / len(losses)


def average_by_rank(gradients: dict[int, torch.Tensor], shards: int) -> torch.Tensor:
    """As data parallelism does it: each rank adds its own shards, then the ranks' sums are added."""
    total = sum(gradients.values())
    if dist.is_initialized():
        dist.all_reduce(total)
    return total / shards


# ---- a run with faults ---------------------------------------------------------------------------------------------------

AT_STEP, AT_REPLACE, HALF_WRITTEN = "before the step", "while it writes", "half of the file under its final name"


@dataclass(frozen=True)
class Fault:
    """Rank `rank` is killed once after `step` steps; with the last two values of `how`, while it saves that snapshot."""

    rank: int
    step: int
    how: str = AT_STEP

    def due(self, run: TrainingRun, folder: Path) -> bool:
        """True the first time that this rank comes here."""
        rank = dist.get_rank() if dist.is_initialized() else 0
        mark = folder / f"fault-{self.rank}-{self.step}"
        if rank != self.rank or run.steps != self.step or mark.exists():
            return False
        mark.touch()
        return True


def _die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def train(
    folder: str,
    steps: int = 30,
    every: int = 5,
    faults: Collection[Fault] = (),
    average: Callable[[dict[int, torch.Tensor], int], torch.Tensor] = average_in_order,
    width: int = 32,
) -> dict[str, Any]:
    """Go on from the newest snapshot in `folder` up to `steps` steps; on every rank.

    Returns the step at which it started, the weights' sha256, and the names of snapshots that were damaged.
    """
    run, snapshots = TrainingRun(width), Snapshots(folder)
    if (saved := snapshots.newest()) is not None:
        run.load(saved.state)
    start = run.steps
    while run.steps < steps:
        if any(fault.how == AT_STEP and fault.due(run, Path(folder)) for fault in faults):
            _die()
        run.step(average)
        if run.steps % every == 0 and (not dist.is_initialized() or dist.get_rank() == 0):
            save(snapshots, run, [fault for fault in faults if fault.how != AT_STEP and fault.due(run, Path(folder))])
    return {"start": start, "sha": fingerprint(run.net), "damaged": list(saved.damaged) if saved else []}


def save(snapshots: Snapshots, run: TrainingRun, faults: list[Fault]) -> None:
    """Save a snapshot, or die on the way as `faults` says."""
    if not faults:
        snapshots.save(run.steps, run.state())
    elif faults[0].how == AT_REPLACE:
        with mock.patch("os.replace", _die):  # all bytes are in the temporary file; its name is still the temporary one
            snapshots.save(run.steps, run.state())
    else:
        path = snapshots.save(run.steps, run.state())
        path.write_bytes(snapshot_bytes(run.state())[: path.stat().st_size // 2])  # as torch.save(state, path) leaves it
        _die()


def main() -> None:
    """A rank of torchrun: the options of `train` as JSON in the first argument, the result as JSON on rank 0."""
    end_with_parent()
    options = json.loads(sys.argv[1])
    options["faults"] = [Fault(**fault) for fault in options.get("faults", [])]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    result = train(**options)
    if dist.get_rank() == 0:
        print(json.dumps({**result, "restarts": int(os.environ["TORCHELASTIC_RESTART_COUNT"])}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
