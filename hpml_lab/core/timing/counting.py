"""What a piece of work asks of the machine, counted instead of timed: operators and bytes, kernels, memory.

Counts are the same on every run of the same code. Where a saving is real but too small to be timed on a CPU, they show it.
"""

import functools
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hpml_lab.core.system.device import choose_device

# The profiler writes status lines from C otherwise, which notebooks would store. It reads this at the first profile.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")
# Operators that only make or describe a tensor and move none of its elements; views are recognized by the operator itself.
_BARE = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_local_scalar_dense", "_reshape_alias"}
_COPIES = {"copy_", "_to_copy"}  # no kernels where they cross from one device to another
_BARE |= {"_record_function_enter_new", "_record_function_exit"}
_BARE |= {"_unsafe_view", "as_strided_", "detach", "alias", "set_", "resize_", "record_stream", "lift_fresh"}


@dataclass(frozen=True)
class Operator:
    """One call of an operator: its name without `aten::`, and the bytes of the tensors it read and wrote."""

    name: str
    read: int
    written: int

    @property
    def bytes(self) -> int:
        return self.read + self.written


class _Operators(TorchDispatchMode):
    def __init__(self, device: torch.device | None) -> None:
        super().__init__()
        self.device = device
        self.seen: list[Operator] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if not func.is_view and name not in _BARE and self._counts(name, (args, kwargs, out)):
            self.seen.append(Operator(name, self._nbytes((args, kwargs)), self._nbytes(out)))
        return out

    def _counts(self, name: str, tree: Any) -> bool:
        if self.device is None:
            return True
        types = {leaf.device.type for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)}
        return self.device.type in types and not (name in _COPIES and len(types) > 1)

    def _nbytes(self, tree: Any) -> int:
        tensors = (leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor))
        return sum(_stored(t) for t in tensors if self.device is None or t.device.type == self.device.type)


def _stored(tensor: torch.Tensor) -> int:
    """The bytes of a tensor: of a sparse one those of its values and indices, not of the zeros that it leaves out."""
    if tensor.layout == torch.sparse_coo:
        return tensor._values().nbytes + tensor._indices().nbytes
    if tensor.layout == torch.sparse_csr:
        return tensor.values().nbytes + tensor.col_indices().nbytes + tensor.crow_indices().nbytes
    return tensor.numel() * tensor.element_size()


def operators(work: Callable[[], object], device: torch.device | str | None = None) -> list[Operator]:
    """The operators that `work()` calls, in order, forward and backward, without those that move no element (views, empty).

    Run eagerly, each stands for at least one kernel on a GPU. Compiled code is seen only where it calls operators.

    device  count what works there only, and of the bytes those there; copies from and to other devices are left out
    """
    with _Operators(None if device is None else torch.device(device)) as mode:
        work()
    return mode.seen


@dataclass(frozen=True)
class Kernel:
    """All calls of one kernel: how many, and their time together in seconds."""

    name: str
    calls: int
    seconds: float


def profiled(work: Callable[[], object], device: torch.device, **options: Any) -> torch.profiler.profile:
    """Run `work()` once to warm up and once under torch.profiler; return the finished profile.

    options  as torch.profiler.profile takes them, such as record_shapes or profile_memory
    """
    options = {"acc_events": True} | options
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
        _start_cupti()
    work()
    synchronize(device)
    with torch.profiler.profile(activities=activities, **options) as profile:
        work()
        synchronize(device)
    return profile


@functools.cache
def _start_cupti() -> None:
    """The first profile of a process loads CUPTI, which would be counted as time of the first kernel."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]):
        torch.zeros(1, device="cuda")
        torch.cuda.synchronize()


def kernels(work: Callable[[], object], device: torch.device | str) -> list[Kernel]:
    """The kernels of one `work()`, the most expensive first: those of the GPU, copies and fills too; on the CPU the operators
    that spent time of their own."""
    device = choose_device(device).torch
    events = profiled(work, device).key_averages()
    if device.type == "cuda":
        found = [Kernel(e.key, e.count, e.self_device_time_total / 1e6) for e in events if _on_gpu(e)]
    else:
        found = [Kernel(e.key, e.count, e.self_cpu_time_total / 1e6) for e in events if e.key.startswith("aten::")]
    return sorted((kernel for kernel in found if kernel.seconds > 0), key=lambda kernel: -kernel.seconds)


def short_kernel_names(names: Sequence[str], most: int = 40) -> list[str]:
    """Kernels' names without namespaces and what they return; a long one is cut, with the part in which it differs from others
    that begin alike."""
    plain = [re.sub(r"\bvoid |\b(?:at|std|cudnn|cutlass\w*)::(?:\w+::)*|\(anonymous namespace\)::", "", name) for name in names]
    short = []
    for index, name in enumerate(plain):
        alike = [
            other for other in plain[:index] + plain[index + 1 :] if other != name and other[: most - 1] == name[: most - 1]
        ]
        differs = max((len(os.path.commonprefix([name, other])) for other in alike), default=0)
        if len(name) > most and alike:
            name = f"{name[: most // 2]}…{name[differs : differs + most // 2 - 2]}…"
        short.append(name if len(name) <= most else name[: most - 1] + "…")
    return short


def _on_gpu(event: Any) -> bool:
    return event.device_type == torch.autograd.DeviceType.CUDA and not event.is_user_annotation


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all it was given; a CPU has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def saved_tensors(excluded: Iterable[torch.Tensor] = ()) -> Iterator[dict[int, int]]:
    """Collect what autograd keeps for the backward pass within a `with` block: {storage: bytes}, each storage once.

    excluded  tensors that exist anyway, such as parameters and inputs, and are not counted

    A storage is known by itself, not by its address: on the device meta all have the address 0.
    """
    known = {tensor.untyped_storage()._cdata for tensor in excluded}
    saved: dict[int, int] = {}
    # Kept alive, so that no later storage takes the place of one that was counted.
    held = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in known:
            saved[storage._cdata] = storage.nbytes()
            held.append(tensor.detach())
        return tensor.detach()  # an operator that keeps its own result would hold itself by it, and its graph would never end

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield saved


def peak_bytes(work: Callable[[], object], device: torch.device | str) -> int:
    """The most memory in bytes that one `work()` had in use at once beyond what was in use before it.

    On a GPU the allocator's own figure; on the CPU the running sum of the profiler's allocations and frees. `work` should end
    with the memory that it began with: the CPU's profiler does not see the end of what was there before.
    """
    device = torch.device(device)
    if device.type == "cuda":
        work()  # what stays, such as gradients and a library's workspace, is there before the measured run
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    # Only the trace is read: without acc_events torch does not make its own list of events as well, which takes far longer.
    events = trace_events(profiled(work, device, profile_memory=True, acc_events=False))
    return max([0, *(in_use for _, in_use in memory_curve(events))])


def memory_curve(events: Iterable[dict[str, Any]], device_type: int = 0) -> list[tuple[float, int]]:
    """(ms from the first event, bytes in use) after each allocation and free of a trace made with `profile_memory=True`.

    device_type  0 for the host's memory, 1 for a CUDA GPU's
    """
    found = [event for event in events if event.get("name") == "[memory]" and event["args"]["Device Type"] == device_type]
    in_use = accumulate(event["args"]["Bytes"] for event in found)
    return [((event["ts"] - found[0]["ts"]) / 1e3, total) for event, total in zip(found, in_use, strict=True)]


def trace_events(profile: torch.profiler.profile) -> list[dict[str, Any]]:
    """The events of a profile in Chrome's trace format, in order of time (ts and dur in µs); a profile gives them once."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return sorted((event for event in events if "ts" in event), key=lambda event: event["ts"])
