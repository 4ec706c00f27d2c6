"""Snapshots of a run that `fully_shard` has cut: all ranks write at the same time, and another number of ranks can read.

    save_sharded(folder, net, optimizer)     # on every rank
    load_sharded(folder, net, optimizer)     # on every rank of a later run

torch.distributed.checkpoint writes one file for each rank and `.metadata`, which says where each part of a tensor is. It does
not see that a bit of them has flipped, or that a second save was interrupted between two files: other numbers are loaded. So
rank 0 writes the sha256 of all of them into SHA256SUMS when they are there, and a file that does not match it is refused, on
every rank: those that saw no damage would wait for the others for ever. Rank r of N checks the files r, r + N, r + 2N, … of
the list, so each file is read once more, whatever N is.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import torch
from torch import distributed as dist
from torch import nn

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.readers import reason
from hpml_lab.core.system.sealed import check_digests, digest_of_file, write_digests
from hpml_lab.sharding.lessons.recovery import rank_and_ranks

DIGESTS = "SHA256SUMS"  # beside the parts; `sha256sum -c SHA256SUMS` checks them, too

T = TypeVar("T")


def save_sharded(folder: Path | str, net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """On every rank: write this rank's part of a net that `fully_shard` has cut, and of its optimizer's state.

    Give each save its own folder, which all ranks see. One that is interrupted over an older one leaves parts of both, which
    are refused.
    """
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict

    folder = Path(folder)
    parts, moments = get_state_dict(net, optimizer)  # DTensors: numbers, and where in the whole tensor they belong
    with _torchs_errors(f"Not all parts could be written into {folder}", "Make room, or name another folder."):
        checkpoint.save({"net": parts, "optimizer": moments}, checkpoint_id=folder)
    rank = rank_and_ranks()[0]
    own = [f"__{rank}_0.distcp"] if rank else ["__0_0.distcp", ".metadata"]
    digests = _on_every_rank(lambda: {name: digest_of_file(folder / name) for name in own})
    _on_every_rank(lambda: rank or write_digests(folder / DIGESTS, {name: one[name] for one in digests for name in one}))


def load_sharded(folder: Path | str, net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """On every rank, and there may be more or fewer than before: read what is this rank's part now.

    Raises LabError on every rank if a file is not as it was saved: damaged, gone, or of another save; the net and the optimizer
    stay as they were. What others saved has no digests and is read without: an error may leave them half read. `.metadata` is a
    pickle: load what you saved, not what you were sent.
    """
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    sums = Path(folder, DIGESTS)
    if any(_on_every_rank(lambda: os.path.lexists(sums))):
        _on_every_rank(lambda: check_digests(sums, *rank_and_ranks()))
    parts, moments = get_state_dict(net, optimizer)  # of a new run: tensors to read into
    fix = "Check the path, and that net and optimizer are like those that were saved."
    with _torchs_errors(f"{folder} does not hold all parts of this net and its optimizer", fix):
        checkpoint.load({"net": parts, "optimizer": moments}, checkpoint_id=Path(folder))
    set_state_dict(net, optimizer, model_state_dict=parts, optim_state_dict=moments)


@contextlib.contextmanager
def _torchs_errors(problem: str, fix: str) -> Iterator[None]:
    """torch raises the errors of all ranks on every rank, as a BaseException; a LabError says the first of them. Ctrl-C and
    time limits of a rank pass."""
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        yield
    except CheckpointException as error:
        rank, (first, _) = min(error.failures.items(), key=lambda failure: failure[0])
        if not isinstance(first, Exception):
            raise
        raise LabError(f"{problem} (rank {rank}: {reason(first)}).", fix) from error


def _on_every_rank(work: Callable[[], T]) -> list[T]:
    """What `work` returns on each rank. Raises the first rank's LabError on all of them where it fails on any."""
    try:
        mine: T | LabError = work()
    except LabError as error:
        mine = error
    found = [mine] * rank_and_ranks()[1]
    if dist.is_initialized():
        dist.all_gather_object(found, mine)
    if error := next((one for one in found if isinstance(one, LabError)), None):
        raise error
    return [one for one in found if not isinstance(one, LabError)]
