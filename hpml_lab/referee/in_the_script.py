"""In each copy of the script: waits for its turns at `Optimizer.step`, applies changes, and reports seconds and losses.

Loaded by `profilers/at_start` at the end of torch's import, outside `sys.modules`. Imports torch and the standard library.
A turn is a number of steps, of which a token of four bytes says how many, after a first one that is not timed. In between the
copy stops its own process group, with all workers, so that the others have the machine to themselves.
"""

import atexit
import contextlib
import ctypes
import functools
import hashlib
import inspect
import json
import os
import signal
import struct
import threading
import time

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._pytree import tree_map_only
from torch.utils.data import DataLoader, IterableDataset

DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG of <sys/prctl.h>


def begin(settings: str, neighbor) -> None:
    """settings: JSON with the two files, the changes and whether to look; neighbor: loads a module as this one was."""
    chosen = json.loads(settings)
    _let_workers_die_too()
    turns = Turns(chosen["tokens"], chosen["report"])
    if chosen["look"]:
        neighbor("look", "referee").Look(turns, options_of)
    for name, options in chosen["changes"]:
        CHANGES[name](turns, **options)
    turns.watch()


def _let_workers_die_too() -> None:
    """Workers end as the copy does: who is stopped would stay for ever. If the thread that forks them lives as long as it."""
    prctl, parent = ctypes.CDLL(None).prctl, [0]

    def before() -> None:
        parent[0] = os.getpid() if threading.current_thread() is threading.main_thread() else 0

    def in_child() -> None:
        if parent[0]:
            prctl(DIES_WITH_PARENT, signal.SIGKILL)
            if os.getppid() != parent[0]:  # it has ended already
                os._exit(1)

    os.register_at_fork(before=before, after_in_child=in_child)


class Turns:
    """What the copy reports: losses as they come, and for each turn its seconds by three clocks."""

    def __init__(self, tokens: int, report: int) -> None:
        for file in (tokens, report):
            os.set_inheritable(file, False)  # not for what the script starts
        self._tokens, self._report, self._process = tokens, report, os.getpid()
        self._losses: list[torch.Tensor] = []
        self._optimizers: list[Optimizer] = []  # of several that alternate, the first one's steps are counted
        self._left, self.steps, self._cold, self._start = 0, 0, False, (0.0, 0.0, 0.0)
        self._roots: dict[int, nn.Module] = {}
        self.at_roots: list = []  # (module, arguments) of each outermost module, before it is called for the first time
        self.at_first_step: list = []
        self._depth = threading.local()

    def watch(self) -> None:
        backward = torch.autograd.backward

        @functools.wraps(backward)
        def watched(tensors, *arguments, **options):
            several = (tensors,) if isinstance(tensors, torch.Tensor) else tensors
            if os.getpid() == self._process and not _in_backward():
                self._losses.append(sum(tensor.detach().double().sum() for tensor in several))
            return backward(tensors, *arguments, **options)

        torch.autograd.backward = watched
        register_optimizer_step_post_hook(lambda *given: self._after_step(*given))
        self._start, self._call = _clocks(), nn.Module.__call__
        nn.Module.__call__ = self._calling()  # until the first step is done
        atexit.register(self._at_end)

    def _calling(self):
        turns, call = self, nn.Module.__call__

        def called(module, *arguments, **options):
            depth = getattr(turns._depth, "now", 0)
            new = not (depth or turns.steps or id(module) in turns._roots or _in_backward())
            if new and module.training and torch.is_grad_enabled():
                if next(module.parameters(), None) is not None:
                    turns._start = turns._start if turns._roots else _clocks()  # of the first step, with what is compiled in it
                    turns._roots[id(module)] = module
                    for change in turns.at_roots:
                        change(module, arguments)
            turns._depth.now = depth + 1
            try:
                return call(module, *arguments, **options)
            finally:
                turns._depth.now = depth

        # For torch.compile it is the function in whose place it stands, else it is traced.
        called.__name__ = nn.Module._wrapped_call_impl.__name__
        called.__code__ = called.__code__.replace(co_filename=nn.Module._call_impl.__code__.co_filename)
        return called

    def _after_step(self, optimizer: Optimizer, _arguments, _options) -> None:
        if os.getpid() != self._process:
            return
        if all(optimizer is not known for known in self._optimizers):
            self._optimizers.append(optimizer)
            several = torch.distributed.is_available() and torch.distributed.is_initialized()
            if several and torch.distributed.get_world_size() > 1:
                self.say(ended="it trains on several processes", after=0)
                os._exit(0)
        if optimizer is not self._optimizers[0]:
            return
        self.steps += 1
        if self.steps == 1:
            nn.Module.__call__ = self._call
            for change in self.at_first_step:
                change(optimizer)
        if self._cold:  # the first step of a turn finds the caches of others
            self._cold, self._start = False, _clocks()
            return
        self._left -= 1
        if self._left <= 0:
            self._wait()

    def _wait(self) -> None:
        """Report the turn that ends here, and stop until the next one."""
        lap = [now - then for now, then in zip(_clocks(), self._start, strict=True)]
        losses, self._losses = [loss.item().hex() for loss in self._losses], []
        cuda = torch.cuda
        gpu_bytes = [cuda.max_memory_reserved(), cuda.mem_get_info()[0]] if cuda.is_initialized() else []
        self.say(steps=self.steps, lap=lap, losses=losses, gpu_bytes=gpu_bytes)
        os.killpg(0, signal.SIGSTOP)
        token = os.read(self._tokens, 4)
        if len(token) < 4:
            self._leave()
        [self._left] = struct.unpack("i", token)
        if self._left == 0:
            self.say(digest=self._digest())
            self._leave()
        self._cold = True

    def _digest(self) -> str:
        found = hashlib.sha256()
        for group in (group for optimizer in self._optimizers for group in optimizer.param_groups):
            for parameter in group["params"]:
                found.update(parameter.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        return found.hexdigest()

    def _at_end(self) -> None:
        """The script has come to its own end."""
        if os.getpid() == self._process:
            self.say(ended="", after=self.steps)

    def _leave(self) -> None:
        """Stand still, with the workers, until all are killed: what a process has started is not found once it is gone."""
        while True:
            os.killpg(0, signal.SIGSTOP)

    def say(self, **found) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more
            os.write(self._report, (json.dumps(found) + "\n").encode())


def _in_backward() -> bool:
    """Whether this thread is in a backward pass, as modules are that a checkpoint calls once more."""
    return torch._C._current_graph_task_id() != -1


def _clocks() -> tuple[float, float, float]:
    """Seconds on the wall, of this thread on a core, and in the queue for one; a GPU has done what it was asked for."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    queued = 0.0
    with contextlib.suppress(OSError), open(f"/proc/self/task/{threading.get_native_id()}/schedstat", encoding="ascii") as file:
        queued = int(file.read().split()[1]) / 1e9
    return time.perf_counter(), time.thread_time(), queued


# ---- the changes ------------------------------------------------------------------------------------------------------------


def options_of(cls: type, choose) -> None:
    """Call the constructor with `choose(arguments by name)` in place of what the script gives."""
    init = cls.__init__
    signature = inspect.signature(init)

    @functools.wraps(init)
    def changed(self, *arguments, **options):
        given = signature.bind(self, *arguments, **options).arguments
        new = {**given.get("kwargs", {}), **choose({name: value for name, value in given.items() if name != "kwargs"})}
        rest = {name: value for name, value in given.items() if name not in ("kwargs", "self")} | new
        init(self, **rest)

    cls.__init__ = changed


def loader(turns: Turns, **new) -> None:
    def choose(given):
        if isinstance(given.get("dataset"), IterableDataset):
            return {}  # each worker would give all samples
        if "num_workers" in new and given.get("num_workers"):
            return {}  # the change is of loaders without workers
        workers = new.get("num_workers", given.get("num_workers", 0))
        return {k: v for k, v in new.items() if workers or k not in ("persistent_workers", "prefetch_factor")}

    options_of(DataLoader, choose)


def optimizer(turns: Turns, **new) -> None:
    for cls in vars(torch.optim).values():
        if isinstance(cls, type) and issubclass(cls, Optimizer) and {*new} <= {*inspect.signature(cls.__init__).parameters}:
            options_of(cls, lambda given: new)


def zero_grad(turns: Turns) -> None:
    for cls in (Optimizer, nn.Module):
        cls.zero_grad = lambda self, set_to_none=True, clear=cls.zero_grad: clear(self, set_to_none=True)


class _Off(contextlib.AbstractContextManager):
    """Stands for a debugging tool: does nothing, and has whatever method is asked for."""

    def __init__(self, *_arguments, **_options) -> None:
        pass

    def __exit__(self, *_error) -> None:
        pass

    def __getattr__(self, name):
        return lambda *arguments, **options: _Off()


def debugging_off(turns: Turns) -> None:
    torch.autograd.set_detect_anomaly(False)
    torch.autograd.set_detect_anomaly = torch.autograd.detect_anomaly = _Off
    torch.autograd.anomaly_mode.set_detect_anomaly = torch.autograd.anomaly_mode.detect_anomaly = _Off
    torch.autograd.gradcheck = torch.autograd.gradgradcheck = lambda *arguments, **options: True
    torch.profiler.profile = torch.autograd.profiler.profile = torch.autograd.profiler.emit_nvtx = _Off


def _change_forward(root: nn.Module, change) -> None:
    """Have it compute `change(forward)`, by its class: a script may pickle or copy the module itself, which stays as it was."""
    own = inspect.getattr_static(type(root), "forward", None)
    if "forward" in vars(root) or not inspect.isfunction(own):  # another library's, or that of a scripted module
        root.forward = change(root.forward)
        return

    @functools.wraps(own)
    def forward(module, *given, **options):
        bound = functools.partial(own, module)
        return (change(bound) if module is root else bound)(*given, **options)

    type(root).forward = forward


def channels_last(turns: Turns) -> None:
    def converted(value):
        image = isinstance(value, torch.Tensor) and value.ndim == 4
        return value.contiguous(memory_format=torch.channels_last) if image else value

    def apply(root, arguments):
        if any(isinstance(value, torch.Tensor) and value.ndim == 4 for value in arguments):
            root.to(memory_format=torch.channels_last)
            _change_forward(root, lambda forward: lambda *given, **options: forward(*map(converted, given), **options))

    turns.at_roots.append(apply)


def autocast(turns: Turns, dtype: str) -> None:
    def apply(root, arguments):
        def change(forward):
            def in_autocast(*given, **options):
                with torch.autocast(device, getattr(torch, dtype)):
                    return tree_map_only(torch.Tensor, _in_float32, forward(*given, **options))

            return in_autocast

        device = next(root.parameters()).device.type
        _change_forward(root, change)

    turns.at_roots.append(apply)


def _in_float32(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() < 4 else tensor


def compiled(turns: Turns) -> None:
    turns.at_roots.append(lambda root, arguments: root.compile())


def nudged(turns: Turns, seed: int) -> None:
    """Each weight one unit in the last place further, up or down, at the start and after each step.

    So rounds a script whose operators add in another order: the training drifts as far as rounding may take it.
    """
    generator = torch.Generator().manual_seed(seed)

    def nudge(parameters) -> None:
        with torch.no_grad():
            for parameter in parameters:
                if not is_lazy(parameter) and parameter.is_floating_point():
                    up = torch.rand(parameter.shape, generator=generator, device="cpu").to(parameter.device) < 0.5
                    towards = torch.where(up, float("inf"), float("-inf")).to(parameter.dtype)
                    parameter.copy_(torch.nextafter(parameter, towards))

    turns.at_roots.append(lambda root, arguments: nudge(root.parameters()))
    register_optimizer_step_post_hook(
        lambda optimizer, *_: nudge(parameter for group in optimizer.param_groups for parameter in group["params"])
    )


def cudnn_search(turns: Turns) -> None:
    def switch(*_):
        torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = True, False

    turns.at_roots.append(switch)


def matmul_precision(turns: Turns, precision: str) -> None:
    def switch(*_):
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.allow_tf32 = True

    turns.at_roots.append(switch)


def threads(turns: Turns, number: int) -> None:
    turns.at_roots.append(lambda *_: torch.set_num_threads(number))


CHANGES = {
    made.__name__: made
    for made in (loader, optimizer, zero_grad, debugging_off, channels_last, autocast, compiled, nudged, cudnn_search)
} | {"matmul_precision": matmul_precision, "threads": threads}
