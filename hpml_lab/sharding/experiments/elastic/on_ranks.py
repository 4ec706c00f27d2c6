"""A training run on ranks that are killed, at any step or while they save a snapshot.

torchrun --standalone --nproc-per-node 2 --max-restarts 2 -m hpml_lab.sharding.experiments.elastic.on_ranks '{"folder": "run"}'
"""

import hashlib
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

from hpml_lab.core.system.children import end_with_parent
from hpml_lab.sharding.lessons.recovery import Snapshots, average_in_order, fingerprint, snapshot_bytes
from hpml_lab.sharding.lessons.sharded_checkpoint import load_sharded, save_sharded
from hpml_lab.sharding.lessons.training_run import TrainingRun


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


# ---- a sharded run -------------------------------------------------------------------------------------------------------


def train_sharded(folder: str, steps: range, saved_after: int | None = None) -> tuple[str, str, list[float]]:
    """On each rank, with `fully_shard`: the sha256 of weights and moments at the start and at the end, and the end's weights.

    A run that does not begin at step 0 loads what was saved in `folder`.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    for layer in (net[0], net[2], net):
        fully_shard(layer, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    if steps.start:
        load_sharded(folder, net, optimizer)
    start = _whole_sha(net, optimizer)
    for step in steps:
        x = torch.randn(64, 64, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        net(x.chunk(dist.get_world_size())[dist.get_rank()]).logsumexp(1).mean().backward()
        optimizer.step()
        if step + 1 == saved_after:
            save_sharded(folder, net, optimizer)
            start = _whole_sha(net, optimizer)
    whole = torch.cat([parameter.full_tensor().detach().flatten() for parameter in net.parameters()])
    return start, _whole_sha(net, optimizer), whole.tolist()


def _whole_sha(net: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    moments = [state[name] for state in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
    content = hashlib.sha256()
    for tensor in (*net.parameters(), *moments):
        content.update(tensor.full_tensor().detach().numpy().tobytes())
    return content.hexdigest()


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
