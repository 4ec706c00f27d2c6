"""Records torch's operators in a foreign script for a few seconds, with nothing to change in it.

The recorder waits until the script has imported torch. It then runs torch.profiler, begins anew at the first call of a module
or an optimizer, and stops after some seconds: a longer recording would fill the memory. A script that profiles itself comes
first: the recorder stops.
"""

import contextlib
import ctypes
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

SECONDS = 3.0
# Python calls it in the main thread as soon as that runs Python code: torch's profiler must stop in the thread that started it.
_PENDING = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class OperatorRecorder:
    """Use it in a `with` block around the script; `rows()` then gives what was recorded.

    seconds  how long to record
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self._profile: Any = None  # running
        self._kept: Any = None  # stopped
        self._began = self._window = 0.0
        self._over = False
        self._hooks: list[Any] = []
        self._process = os.getpid()
        self._stop_call = _PENDING(lambda _: self._stop() or 0)

    def __enter__(self) -> "OperatorRecorder":
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler writes status lines from C otherwise
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)
        if os.getpid() == self._process:  # not in a child that the script forked
            self._over = True
            self._unhook()
            self._stop()

    # ---- what was recorded -------------------------------------------------------------------------------------------

    def rows(self) -> list[dict[str, Any]]:
        """One row an operator, the one with the most time of its own first; times in ms, on the GPU where it computed."""
        if self._kept is None:
            return []
        events = [event for event in self._kept.key_averages() if event.key.startswith("aten::")]
        device_time = sum(event.self_device_time_total for event in events)
        kind = "device" if device_time else "cpu"
        self_time, total_time = f"self_{kind}_time_total", f"{kind}_time_total"
        whole = sum(getattr(event, self_time) for event in events) or 1.0
        rows = [
            {
                "operator": event.key.removeprefix("aten::"),
                "calls": event.count,
                "self_ms": getattr(event, self_time) / 1e3,
                "percent": 100 * getattr(event, self_time) / whole,
                "total_ms": getattr(event, total_time) / 1e3,
                "where": "GPU" if device_time else "CPU",
            }
            for event in events
        ]
        return sorted(rows, key=lambda row: -row["self_ms"])

    def device_spans(self) -> list[tuple[str, float, float]]:
        """(name, start, end) of all that ran on a GPU, in seconds."""
        if self._kept is None:
            return []
        import torch

        cuda = torch.autograd.DeviceType.CUDA
        events = [event for event in self._kept.events() if event.device_type == cuda and not event.is_user_annotation]
        return [(event.name, event.time_range.start / 1e6, event.time_range.end / 1e6) for event in events]

    @property
    def window_seconds(self) -> float:
        """How long was recorded."""
        return self._window

    # ---- waiting for torch -------------------------------------------------------------------------------------------

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Called by Python for every import; torch's own finder finds it, and its end is noted."""
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                load(module)
                with contextlib.suppress(Exception):  # whatever goes wrong here, the script goes on
                    self._torch_is_here()

            spec.loader.exec_module = exec_module
        return spec

    def _torch_is_here(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # torch's profiler sees the thread that starts it, and pending calls run in the main thread
        from torch.autograd import profiler
        from torch.nn.modules.module import register_module_forward_pre_hook
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        self._hooks = [register_module_forward_pre_hook(self._first_work), register_optimizer_step_pre_hook(self._first_work)]
        if (prepare := getattr(profiler, "_prepare_profiler", None)) is not None:
            profiler._prepare_profiler = self._yield_to_the_script(prepare)
        self._start()

    def _yield_to_the_script(self, prepare: Callable) -> Callable:
        """torch's own function; before any other profile than ours starts, ours ends."""

        def prepared(*arguments: Any, **options: Any) -> Any:
            if not self._starting:
                self._over = True
                self._stop()
            return prepare(*arguments, **options)

        return prepared

    def _first_work(self, *_: object) -> None:
        """A module or an optimizer is called for the first time: what was recorded before is hardly the script's work."""
        self._unhook()
        if not self._over and threading.current_thread() is threading.main_thread():
            if self._profile is None or time.monotonic() - self._began > self.seconds / 2:
                with contextlib.suppress(Exception):  # whatever goes wrong here, the script goes on
                    self._stop()
                    self._start()

    def _unhook(self) -> None:
        hooks, self._hooks = self._hooks, []
        for hook in hooks:
            hook.remove()

    # ---- recording ---------------------------------------------------------------------------------------------------

    _starting = False

    def _start(self) -> None:
        import torch

        activities = [torch.profiler.ProfilerActivity.CPU]
        with _no_cuda_context():
            if torch.cuda.is_available():
                activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._starting = True
        try:
            self._profile = torch.profiler.profile(activities=activities, acc_events=True)
            self._profile.start()
        finally:
            self._starting = False
        self._began = time.monotonic()
        threading.Thread(target=self._stop_later, args=(self._profile,), name="hpml-recorder", daemon=True).start()

    def _stop_later(self, profile: Any) -> None:
        time.sleep(self.seconds)  # not a Timer: its frames would be threading's, and could not be left out of the stacks
        if profile is self._profile:  # not one that has stopped meanwhile
            ctypes.pythonapi.Py_AddPendingCall(self._stop_call, None)

    def _stop(self) -> None:
        profile, self._profile = self._profile, None
        if profile is not None:
            self._window = time.monotonic() - self._began
            with contextlib.suppress(Exception):  # whatever goes wrong here, the script goes on
                profile.stop()
                self._kept = profile


@contextlib.contextmanager
def _no_cuda_context() -> Iterator[None]:
    """Ask NVML for GPUs, not CUDA: a process that has begun to use CUDA cannot hand it to the children that it forks."""
    name = "PYTORCH_NVML_BASED_CUDA_CHECK"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
