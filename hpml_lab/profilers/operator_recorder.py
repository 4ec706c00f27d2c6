"""Records torch's operators in a foreign script, with nothing to change in it and nothing that could hurt it.

torch's profiler runs for short slices, each of which goes to a file; who reads them is another process. A slice begins and
ends in the main thread, at a moment when it runs Python code of its own. Three rules keep the script as it is:

* Operators only. A `record_function` span that is open while a profiler ends, and closes under the next one, writes to memory
  that is free: torch 2.15 crashes so. Spans do not concern a profiler that records RecordScope.FUNCTION alone.
* An operator may be open too, if it calls Python code. The slice's file then says so, and no further slice begins.
* A bound on events, not only on seconds: small operators give a million a second, and each costs 6 us and 1.7 KB at the end.

A script that profiles or traces itself comes first: the recorder ends, and is not in what the script measures. Standard
library only.
"""

import _thread
import atexit
import contextlib
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

SLICE, DEVICE_SLICE = 0.02, 0.1  # seconds; a GPU is waited for at the end of each
EVENTS = 20_000  # no slice begins after so many; the last one may add as many as fit into it
WORK = tuple(os.path.join("torch", *names) for names in (("nn", "modules", "module.py"), ("optim", "optimizer.py")))
CALLS = ("_call_impl", "wrapper")  # by which these run a module's call and an optimizer's step
WORK_SECONDS = 1.0  # a script that calls no module and no optimizer for so long is recorded all the same
# Python calls it in the main thread as soon as that runs Python code: torch's profiler must stop in the thread that started it.
_PENDING = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class OperatorRecorder:
    """Records from the end of torch's import on; it leaves one `operators-N.json` a slice, as Chrome's tracing reads it.

    folder   where the files go
    seconds  how long to record from the first call of a module or an optimizer on
    """

    def __init__(self, folder: Path | str, seconds: float) -> None:
        self.folder, self.seconds = Path(folder), seconds
        self._recording, self._over, self._asked, self._wanted, self._forking = False, False, False, False, False
        self._device: bool | None = None
        self._recorded, self._events, self._files = 0.0, 0, 0
        self._began = 0.0
        self._work = threading.Event()
        self._process = os.getpid()
        self._call = _PENDING(self._next_slice)  # kept: C calls it

    # ---- waiting for torch and for the script's work -----------------------------------------------------------------

    def begin(self) -> None:
        """Wait for the script's work; torch has just been imported."""
        from torch.autograd import profiler
        from torch.nn.modules.module import register_module_forward_pre_hook

        self._prepare, self._enable = profiler._prepare_profiler, profiler._enable_profiler
        self._disable = profiler._disable_profiler
        profiler._prepare_profiler = self._after_our_end(self._prepare)
        profiler._enable_profiler = self._after_our_end(self._enable)
        self._hook = register_module_forward_pre_hook(lambda *_: self._work.set())  # starts nothing: operators may be open
        if hasattr(os, "register_at_fork"):
            # A child would go on recording, and never stop: nothing records from here until the fork is over.
            # It has no thread that would take the hook away.
            os.register_at_fork(before=self._before_fork, after_in_parent=self._after_fork, after_in_child=self._hook.remove)
        atexit.register(self._end)
        try:
            _thread.start_new_thread(self._ask_for_slices, ())  # not threading: a script does not find it among its own
        except RuntimeError:  # none may be started: then nothing is recorded
            self._hook.remove()

    def _after_our_end(self, function: Callable) -> Callable:
        """torch's own function, by which another profile than ours begins: ours ends before."""

        def begin(*arguments: Any, **options: Any) -> Any:
            self._end()
            return function(*arguments, **options)

        return begin

    def _works(self) -> bool:
        """Whether a module or an optimizer has been called.

        A hook says it. torch.compile would warn of the hook and trace it: where that is loaded, as it is by every optimizer,
        the main thread's stack says it instead.
        """
        compiles = "torch._dynamo" in sys.modules
        if compiles and not self._work.is_set() and _in_a_call(sys._current_frames().get(threading.main_thread().ident)):
            self._work.set()
        if compiles or self._over or self._work.is_set():
            self._hook.remove()  # here alone: the main thread may go through the hooks
        return self._work.is_set()

    def _ask_for_slices(self) -> None:
        """In a thread: first what the script does before it calls a module; then, in its place, what it does from there on."""
        end = time.monotonic() + WORK_SECONDS
        while not self._works() and time.monotonic() < end:
            time.sleep(SLICE)
        if not self._work.is_set():
            self._record_until(self._works)
            while not (self._works() or self._over):
                time.sleep(SLICE)
            if self._over:
                return
            for number in range(self._files):
                self._file(number).unlink(missing_ok=True)
            self._recorded, self._events = 0.0, 0
        self._record_until(lambda: False)

    def _record_until(self, over: Callable[[], bool]) -> None:
        self._wanted = True
        while not self._over and (self._wanted or self._recording):
            self._ask()
            time.sleep(DEVICE_SLICE if self._device else SLICE)
            self._wanted = not (over() or self._enough())

    def _ask(self) -> None:
        """Ask for a call of the main thread, one at a time: under a tracer, Python 3.11 never comes out of a pending call
        during which another one is asked for.
        """
        if not self._asked:
            self._asked = True
            ctypes.pythonapi.Py_AddPendingCall(self._call, None)

    def _enough(self) -> bool:
        return self._recorded >= self.seconds or self._events >= EVENTS

    # ---- recording, in the main thread -------------------------------------------------------------------------------

    def _next_slice(self, _: object) -> int:
        """End a slice and begin the next one: Python's pending call."""
        try:
            self._pause()
            self._over |= _is_traced()
            if self._wanted and not (self._forking or self._over or self._enough() or os.getpid() != self._process):
                self._start()
        except KeyboardInterrupt:  # came while this ran, and is the script's
            ctypes.pythonapi.PyErr_SetInterrupt()
        except BaseException:  # whatever goes wrong here, the script goes on
            self._over = True
        self._asked = False  # the very last: no other thread runs between an assignment and the return
        return 0

    def _start(self) -> None:
        from torch._C._profiler import ProfilerConfig, ProfilerState, RecordScope, _ExperimentalConfig
        from torch.profiler import ProfilerActivity

        activities = {ProfilerActivity.CPU, ProfilerActivity.CUDA} if self._can_use_gpu() else {ProfilerActivity.CPU}
        config = ProfilerConfig(ProfilerState.KINETO, False, False, False, False, False, _ExperimentalConfig())
        # kineto writes status lines to stderr otherwise. It reads this once, at its first profile: those that the script makes
        # itself write none either, which is the one difference that a script's output can show.
        with _environment("KINETO_LOG_LEVEL", "99"):
            self._prepare(config, activities)
            self._recording, self._began = True, time.monotonic()
            self._enable(config, activities, {RecordScope.FUNCTION})

    def _pause(self) -> None:
        """End the slice that is being recorded, if there is one, and write its file."""
        if not self._recording or os.getpid() != self._process or threading.current_thread() is not threading.main_thread():
            return
        self._recording = False
        try:
            result = self._disable()
            self._recorded += time.monotonic() - self._began
            path = self._file(self._files)
            self._files += 1
            result.save(str(path))
            text = path.read_bytes()
            self._events += text.count(b'"cat": "cpu_op"')
            self._over |= b'"finished": false' in text
        except Exception:
            self._over = True

    def _before_fork(self) -> None:
        self._forking = True  # first: a pending call may come at any call of a function from here on
        self._pause()

    def _after_fork(self) -> None:
        self._forking = False

    def _end(self) -> None:
        """End for good, from whatever thread; in a child that the script forked there is nothing to end."""
        self._over = True
        if threading.current_thread() is threading.main_thread():
            self._pause()
        elif self._recording and os.getpid() == self._process:
            end = time.monotonic() + 1.0
            while self._recording and time.monotonic() < end:
                self._ask()
                time.sleep(0.001)

    def _file(self, number: int) -> Path:
        return self.folder / f"operators-{number}.json"

    def _can_use_gpu(self) -> bool:
        """Whether torch can; NVML is asked, not CUDA: a process that has begun to use CUDA cannot hand it to a forked child."""
        if self._device is None:
            import torch

            with _environment("PYTORCH_NVML_BASED_CUDA_CHECK", "1"):
                self._device = torch.cuda.is_available()
        return self._device


def _in_a_call(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name in CALLS and frame.f_code.co_filename.endswith(WORK):
            return True
        frame = frame.f_back
    return False


def _is_traced() -> bool:
    """Whether something profiles or traces this thread; from Python 3.12 on cProfile is known by its name only."""
    monitoring = getattr(sys, "monitoring", None)
    return bool(sys.getprofile() or sys.gettrace() or (monitoring and monitoring.get_tool(monitoring.PROFILER_ID)))


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
