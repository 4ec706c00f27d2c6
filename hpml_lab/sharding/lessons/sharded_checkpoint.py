"""Snapshots of a run that `fully_shard` has cut: all ranks write at the same time, and another number of ranks can read.

    save_sharded(folder, net, optimizer)     # on every rank
    load_sharded(folder, net, optimizer)     # on every rank of a later run

torch.distributed.checkpoint writes one file for each rank and `.metadata`, which says where each part of a tensor is. It does
not see that a bit of them has flipped, or that a second save was interrupted between two files: other numbers are loaded. So
rank 0 writes into SHA256SUMS first that the save is not finished, and at the end the sha256 of all files. One that does not
match is refused on every rank: those that saw no damage would wait for the others for ever. Rank r of N checks the files
r, r + N, r + 2N, … of the list, so each file is read once more, whatever N is.
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

    Give each save its own folder, which all ranks see: over an older one that save is lost while this one is written.
    Raises LabError on every rank if a part cannot be written; what is there is refused until another save is whole.
    """
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict

    folder, rank = Path(folder), rank_and_ranks()[0]
    own = [f"__{rank}_0.distcp"] if rank else ["__0_0.distcp", ".metadata"]
    _on_every_rank(lambda: _refuse_streams(folder))
    _on_every_rank(lambda: rank or write_digests(folder / DIGESTS, None))
    with _torchs_errors(f"Not all parts could be written into {folder}", "Make room, or name another folder."):
        parts, moments = get_state_dict(net, optimizer)  # DTensors: numbers, and where in the whole tensor they belong
        checkpoint.save({"net": parts, "optimizer": moments}, checkpoint_id=folder)
    digests = _on_every_rank(lambda: {name: digest_of_file(folder / name) for name in own})
    _on_every_rank(lambda: rank or write_digests(folder / DIGESTS, {name: one[name] for one in digests for name in one}))


def load_sharded(folder: Path | str, net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """On every rank, and there may be more or fewer than before: read what is this rank's part now. Gradients go.

    Raises LabError on every rank if a file is not as it was saved: damaged, gone, or of another save; then the net and the
    optimizer stay as they were. What others saved has no digests and is read without; where net and optimizer are not like
    those that were saved, an error may leave them half read. `.metadata` is a pickle: load what you saved, not what was sent.
    """
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    folder = Path(folder)
    _on_every_rank(lambda: _refuse_streams(folder))
    if any(_on_every_rank(lambda: os.path.lexists(folder / DIGESTS))):
        _on_every_rank(lambda: check_digests(folder / DIGESTS, *rank_and_ranks()))
    fix = "Check the path, and that net and optimizer are like those that were saved."
    with _torchs_errors(f"{folder} does not hold all parts of this net and its optimizer", fix):
        optimizer.zero_grad()  # torch asks for no moments of a parameter with a gradient, and would load none
        parts, moments = get_state_dict(net, optimizer)  # of a new run: tensors to read into
        checkpoint.load({"net": parts, "optimizer": moments}, checkpoint_id=folder)
        set_state_dict(net, optimizer, model_state_dict=parts, optim_state_dict=moments)


def _refuse_streams(folder: Path) -> None:
    """Raise LabError for what torch would wait for."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if not path.is_file() and not path.is_dir():
            raise LabError(
                f"{path} is a pipe, a socket, a device or a link to nothing.", "Move it away or name another folder."
            )


@contextlib.contextmanager
def _torchs_errors(problem: str, fix: str) -> Iterator[None]:
    """torch raises the errors of all ranks on every rank, as a BaseException; a LabError says the first of them. Ctrl-C and
    time limits of a rank pass."""
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        yield
    except CheckpointException as error:
        failures = {f"rank {rank}: ": failure for rank, (failure, _) in sorted(error.failures.items())}
        for failure in failures.values():
            if not isinstance(failure, Exception):
                raise failure from error
        rank, first = next(iter(failures.items()))
        raise LabError(f"{problem} ({rank}{reason(first)}).", fix) from error
    except (RuntimeError, LookupError, TypeError, ValueError) as error:
        raise LabError(f"{problem} ({reason(error)}).", fix) from error


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
