"""Training that survives the loss of a rank: atomic snapshots, and sums whose bits do not depend on the number of ranks.

    snapshots = Snapshots(folder)
    saved = snapshots.newest()                       # the newest whole one, or None
    ...
    snapshots.save(step, {"net": net.state_dict(), …})     # on rank 0

**Snapshots.** A rank can die at any moment, also while it writes. So the bytes go to a temporary name and take the real one
in a single step (os.replace): a reader finds the old file or the new one. The name holds the first digits of the content's
sha256; a file that was cut off or damaged later does not match it, and the snapshot before is used.

**Virtual shards.** Floating-point sums depend on their order, and the order of an all-reduce depends on the number of ranks.
With V fixed shards of each batch the gradient is

    g = (g_0 + g_1 + … + g_(V−1)) / V,   added in this order on every rank, whatever the number N of ranks.

Rank r computes the shards r, r + N, r + 2N, …, each alone. The all-reduce only moves them: each rank fills its rows of a
(V, P) matrix and leaves zeros in the others, and x + 0 = x exactly. That is V times the traffic, the price of equal bits.
"""

import contextlib
import hashlib
import io
import os
import pickle
import random
import re
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from numbers import Integral
from pathlib import Path, PurePath
from typing import Any
from uuid import UUID

import numpy as np
import torch
from torch import distributed as dist
from torch import nn
from torch.utils._pytree import tree_leaves

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.files import atomic_write
from hpml_lab.core.system.launcher import launch
from hpml_lab.core.system.rank_errors import RankError

_NAME = re.compile(r"step(\d{6,})-([0-9a-f]{12})\.pt")
DIGITS = 12  # of the sha256 that a name holds
DEEPEST = 50  # lists in lists: so far a part that cannot be saved is looked for


# ---- snapshots -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Snapshot:
    """A saved state: after which step, what, where, and the newer names that were passed over because they hold none."""

    step: int
    state: dict[str, Any]
    path: Path
    damaged: tuple[str, ...] = ()


class Snapshots:
    """The snapshots of a run in one folder, of which the newest `keep` stay."""

    def __init__(self, folder: Path | str, keep: int = 2) -> None:
        if isinstance(keep, bool) or not isinstance(keep, int) or keep < 2:
            raise LabError(f"keep={keep!r} leaves nothing to go back to if the newest snapshot is damaged.", "Keep at least 2.")
        self.folder, self.keep = Path(folder), keep

    def files(self) -> list[Path]:
        """All files with the name of a snapshot, newest first."""
        found = [path for path in self.folder.glob("step*.pt") if _NAME.fullmatch(path.name)]
        return sorted(found, key=lambda path: (_step(path), _written(path)), reverse=True)

    def save(self, step: int, state: Mapping[str, Any]) -> Path:
        """Write the state after `step`, completely or not at all. One rank calls this.

        Another snapshot of the same step goes. Those of later steps are damaged, or of a course of training that was taken
        back, or of another run: they are set aside under a name with `.later` at its end.
        Raises LabError if `step` is not a whole number of at least 0, or the state holds other objects than newest() reads.
        """
        if isinstance(step, bool) or not isinstance(step, Integral) or step < 0:
            raise LabError(f"step={step!r} is not a number of steps.", "Use a whole number of at least 0.")
        content = snapshot_bytes(state)
        path = atomic_write(self.folder / f"step{step:06d}-{_digest(content)}.pt", content)
        for later in [file for file in self.files() if _step(file) > step]:
            with contextlib.suppress(OSError):
                os.replace(later, f"{later}.later")
        before = [file for file in self.files() if _step(file) < step][: self.keep - 1]
        for leftover in {*self.files(), *self.folder.glob(".step*.part")} - {path, *before}:
            with contextlib.suppress(OSError):  # a folder, which is not ours to remove
                leftover.unlink(missing_ok=True)  # also what a writer left that was killed
        return path

    def newest(self) -> Snapshot | None:
        """The newest whole snapshot, or None if there is none. Every rank calls this, and all read the same file."""
        damaged = []
        for path in self.files():
            state = _read(path, _NAME.fullmatch(path.name)[2])
            if state is not None:
                return Snapshot(_step(path), state, path, tuple(damaged))
            damaged.append(path.name)
        return None


def _step(path: Path) -> int:
    return int(_NAME.fullmatch(path.name)[1])


def _written(path: Path) -> int:
    """When a file was written. It orders two of one step, of which the writer that was killed did not remove the older."""
    with contextlib.suppress(OSError):  # gone meanwhile
        return path.lstat().st_mtime_ns
    return 0


def _read(path: Path, digest: str) -> dict[str, Any] | None:
    """The state in a file; None if it is no file, has another digest, or holds something else.

    Raises LabError for one that cannot be read now: a rank that took an older one in its place would part from the others.
    """
    try:
        content = path.read_bytes() if path.is_file() else b""  # a pipe would wait for a writer
    except FileNotFoundError:  # gone meanwhile
        return None
    except OSError as error:
        raise LabError(f"{path} cannot be read ({error.strerror}).", "Start again when it can be, or move it away.") from error
    if _digest(content) != digest:
        return None
    try:
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except (EOFError, RuntimeError, pickle.UnpicklingError):  # never a snapshot
        return None
    return state if isinstance(state, dict) else None


def snapshot_bytes(state: Mapping[str, Any]) -> bytes:
    """The state as torch.save writes it. Raises LabError for what torch.load(weights_only=True) would refuse to read."""
    if not isinstance(state, Mapping):
        raise LabError(f"The state is a {_kind(state)}.", 'Give a dictionary of states, such as {"net": net.state_dict()}.')
    content = _readable(dict(state))
    if content is None:
        place, value = _unreadable(dict(state), "")
        raise LabError(
            f"A snapshot holds tensors, numbers, texts, lists and dictionaries; {place or 'the whole'} is a {_kind(value)}.",
            _instead(value, place),
        )
    return content


def _readable(value: Any) -> bytes | None:
    """`value` as torch.save writes it; None if that cannot be written, or read with weights_only=True, or is a rank's part."""
    content = io.BytesIO()
    try:
        if any(isinstance(leaf, torch.Tensor) and hasattr(leaf, "to_local") for leaf in tree_leaves(value)):  # a DTensor
            return None
        torch.save(value, content)
        content.seek(0)
        torch.load(content, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception:  # an object of a reader's class can raise anything when it is pickled
        return None
    return content.getvalue()


def _unreadable(value: Any, place: str, around: tuple[Any, ...] = ()) -> tuple[str, Any]:
    """Of a value that cannot be read the innermost part that cannot, and its place, such as losses['best'][0]."""
    parts: list[tuple[str, Any]] = []
    if len(around) == DEEPEST:
        return place, value
    if isinstance(value, dict):
        parts = [(f"the key {key!r}" + f" of {place}" * bool(place), key) for key in value]
        parts += [(f"{place}[{key!r}]" if place else str(key), part) for key, part in value.items()]
    elif isinstance(value, list | tuple):
        parts = [(f"{place}[{number}]", part) for number, part in enumerate(value)]
    elif isinstance(value, set | frozenset):
        parts = [(f"an element of {place}", part) for part in value]
    for inner, part in parts:
        if _readable(part) is None and not any(part is outer for outer in (*around, value)):
            return _unreadable(part, inner, (*around, value))
    return place, value


# (What a value is, how to write it in a form that a snapshot holds.) Of an array the first form that is tried with success.
_FORMS: tuple[tuple[Any, str], ...] = (
    (np.ma.MaskedArray, "torch.from_numpy({0}.data) and torch.from_numpy({0}.mask)"),
    (np.ndarray, "torch.from_numpy({0})"),
    (np.ndarray, "torch.from_numpy({0}.copy())"),  # negative strides
    (np.ndarray, 'torch.from_numpy({0}.astype({0}.dtype.newbyteorder("=")))'),
    (np.ndarray, "{0}.tolist()"),
    (np.ndarray, "{0}.astype(str).tolist()"),  # dates, and more digits than Python's numbers have
    (np.bool_, "bool({0})"),
    (np.integer, "int({0})"),
    (np.longdouble | np.clongdouble, "str({0})"),
    (np.floating, "float({0})"),
    (np.complexfloating, "complex({0})"),
    (np.bytes_ | np.void, "bytes({0})"),
    (np.generic | np.dtype | PurePath | Decimal | Fraction | UUID, "str({0})"),
    (np.random.Generator, "{0}.bit_generator.state"),
    (np.random.BitGenerator, "{0}.state"),
    (np.random.RandomState, "{0}.get_state()"),
    (random.Random, "{0}.getstate()"),
    (torch.Generator, "{0}.get_state()"),
    (date | time, "{0}.isoformat()"),
    (timedelta, "{0}.total_seconds()"),
    (Enum, "{0}.name"),
    (dict, "dict({0})"),
    (list | deque | range, "list({0})"),
    (tuple, "tuple({0})"),
    (set, "set({0})"),
    (frozenset, "tuple({0})"),
)


def _instead(value: Any, place: str) -> str:
    """What to save in place of a value that a snapshot cannot hold."""
    if type(value) in (dict, list, tuple, set):  # all that it holds could be saved
        return "It holds itself, or too many others in one another: save numbers, tensors or texts from which it can be made."
    named = place if place.isidentifier() or "[" in place and " of " not in place else repr(value)
    for kinds, form in _FORMS:
        tried = isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray)
        if isinstance(value, kinds) and (not tried or _works(form, value)):
            said = form.format(named)
            return f"Use {said} as the key." if place.startswith("the key ") else f"Save {said}."
    if hasattr(value, "to_local"):  # every rank would load the part of the one that saved
        whole = f"save {named}.full_tensor(), which all ranks have to call"
        return f"It is a rank's part: use sharded_checkpoint.save_sharded, or {whole}."
    if hasattr(value, "state_dict"):
        return f"Save its state, {place}.state_dict()."
    return "Save numbers, tensors or texts from which it can be made again."


def _works(form: str, value: np.ndarray) -> bool:
    """Whether a form of an array can be had, and a snapshot can hold it."""
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an array that is read-only
        return _readable(eval(form.format("value"), {"torch": torch, "value": value})) is not None
    return False


def _kind(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:DIGITS]


# ---- virtual shards ------------------------------------------------------------------------------------------------------


def rank_and_ranks() -> tuple[int, int]:
    """This rank and their number; of one process without a group 0 and 1."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def my_shards(shards: int) -> list[int]:
    """The virtual shards of this rank: r, r + N, r + 2N, …"""
    rank, ranks = rank_and_ranks()
    if ranks > shards:
        raise LabError(f"{ranks} ranks have nothing to do with {shards} virtual shards.", "Use at least one shard per rank.")
    return list(range(rank, shards, ranks))


def average_in_order(gradients: Mapping[int, torch.Tensor], shards: int) -> torch.Tensor:
    """The mean of all shards' gradients, bitwise identical for every number of ranks.

    gradients  {shard: its flat gradient} of this rank's shards
    """
    first = next(iter(gradients.values()))
    rows = first.new_zeros(shards, first.numel())
    for shard, gradient in gradients.items():
        rows[shard] = gradient
    if dist.is_initialized():
        dist.all_reduce(rows)  # a sum with zeros: it moves the rows and rounds nothing
    total = torch.zeros_like(first)  # from +0, because the all-reduce may have turned −0 into +0
    for row in rows:
        total += row
    return total / shards


def fingerprint(net: nn.Module) -> str:
    """The sha256 of all parameters and buffers: equal only if every bit is."""
    content = hashlib.sha256()
    for tensor in net.state_dict().values():
        content.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy())
    return content.hexdigest()


# ---- restarts ------------------------------------------------------------------------------------------------------------


def launch_elastic(
    function: Callable[..., Any], *arguments: Any, ranks: Sequence[int] = (2, 2, 2), **options: Any
) -> tuple[list[Any], list[RankError]]:
    """Launch on ranks[0] ranks; each time a rank fails, launch again on the next number of ranks.

    Returns what the ranks returned and the failures on the way. Like torchrun, it restarts all ranks, not only the one that
    died: the others' process group has lost a member for good. So the function has to begin by loading its snapshot.
    Raises the last RankError when the numbers of ranks are used up.
    """
    failures: list[RankError] = []
    for attempt, number in enumerate(ranks):
        try:
            return launch(function, *arguments, ranks=number, **options), failures
        except RankError as error:
            failures.append(error)
            if attempt == len(ranks) - 1:
                raise
    raise LabError("ranks is empty.", "Give the number of ranks for each attempt, such as (4, 2, 1).")


def best_interval(snapshot_seconds: float, seconds_between_failures: float) -> float:
    """Young's formula for the seconds of work between two snapshots: √(2 δ M).

    A snapshot costs δ; a failure, once in M, costs half an interval on average. The sum δ/τ + τ/(2M) is least at this τ.
    """
    return (2 * snapshot_seconds * seconds_between_failures) ** 0.5
