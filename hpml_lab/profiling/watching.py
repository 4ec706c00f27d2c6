"""Watches a piece of work from a thread beside it: who runs, who waits for a core, who is blocked, and where.

The scheduler's counters tell running from waiting for a core, so that a busy machine looks like a quiet one. They, and the
kernel's word on what a thread is blocked at, are Linux's: elsewhere only running counts, and no lock is recognised. macOS does
not even tell which thread ran: there no wait for input is seen, and a loop that waits gets no name.
"""

import contextlib
import multiprocessing
import os
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import psutil
from torch.optim.optimizer import register_optimizer_step_pre_hook

PERIOD = 0.01  # seconds between two looks
SWITCH = 0.0005  # seconds until the watch is given the interpreter; by Python's 0.005 it would hardly see threads that contend
GENERATOR = 0x20  # CO_GENERATOR of code.co_flags
# A thread whose innermost Python frame lies in these waits for another to give it work or to end: that is no contention.
PATIENT_MODULES = ("threading", "queue", "selectors", "concurrent.futures", "multiprocessing", "asyncio")
READS = ("pipe", "read", "io_schedule", "wait_on_page", "folio_wait", "sock", "skb", "poll", "select", "request", "nfs")
WRITES = ("write", "send")  # the kernel's names for a full pipe or socket contain one of READS too
PROC = Path("/proc/self/task")


class Watch:
    """Looks at the calling thread's work in a `with` block every PERIOD; `evidence()` then sums up what was seen."""

    def __enter__(self) -> "Watch":
        self._caller, self._home = threading.get_native_id(), sys._getframe(1)
        self._ident = threading.get_ident()
        self._known = {one.native_id for one in threading.enumerate()} - {self._caller}
        self._sums: Counter[str] = Counter()
        self._used: Counter[tuple[int, int]] = Counter()  # seconds by (process, thread)
        self._wanted: Counter[tuple[int, int]] = Counter()
        self._blocked: Counter[int] = Counter()  # seconds by thread, outside its input
        self._kinds: defaultdict[int, Counter[str]] = defaultdict(Counter)  # by thread: looks at which it was blocked so
        self._places: Counter[str] = Counter()
        self._trains: set[CodeType] = set()  # iterators in which an optimizer steps: they train, and give no input
        self._hook = register_optimizer_step_pre_hook(self._at_a_step)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="hpml-watch", daemon=True)
        self._ready = threading.Event()
        self._switch = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH)
        self._thread.start()
        self._ready.wait(10)
        return self

    def __exit__(self, *_: Any) -> None:
        self._hook.remove()
        self._stop.set()
        self._thread.join()
        sys.setswitchinterval(self._switch)

    def evidence(self) -> dict[str, Any]:
        """The fields of Evidence that concern the host."""
        seconds = self._sums["seconds"] or 1e-9
        own = (os.getpid(), self._caller)
        wanted = {who: value / seconds for who, value in self._wanted.items()}
        others = [value for who, value in wanted.items() if who != own]
        # A thread is seen blocked now and then; the kinds seen share out all the time it was blocked.
        at_lock = {one: self._blocked[one] * kinds["lock"] / kinds.total() for one, kinds in self._kinds.items()}
        # A thread at a lock now and then, for under a twentieth of the time, does not contend for it.
        contending = [value for value in at_lock.values() if value > 0.05 * seconds]
        place = self._places.most_common(1)
        return {
            "seconds": self._sums["seconds"],
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            "cores_used": sum(self._used.values()) / seconds,
            "cores_wanted": sum(wanted.values()),
            "busiest": max(wanted.values(), default=0.0),
            "workers": sum(others),
            "busiest_worker": max(others, default=0.0),
            "input_wait": self._sums["input wait"] / seconds,
            "input_run": self._sums["input run"] / seconds,
            "lock_wait": sum(contending) / seconds,
            "lock_threads": len(contending),
            "interpreter": self._sums["held up"] / (self._sums["looked"] or 1e-9),
            "unknown_wait": (self._blocked[self._caller] - at_lock.get(self._caller, 0.0)) / seconds,
            "where": place[0][0] if place else "",
        }

    def _look_on(self) -> None:
        me = threading.get_native_id()
        before, last, own = _times(me), time.perf_counter(), _asked(me)
        self._ready.set()
        over = False
        while not over:
            over = self._stop.wait(PERIOD)
            now, at = _times(me), time.perf_counter()
            elapsed = at - last
            self._sums["seconds"] += elapsed
            if not over:  # all that it was neither asleep nor asking for a core, it waited to be given the interpreter
                asked = _asked(me)
                self._sums["looked"] += max(0.0, elapsed - PERIOD)
                self._sums["held up"] += max(0.0, elapsed - PERIOD - (asked - own))
                own = asked
            blocked = {}
            for who, (ran, waited) in now.items():
                start = before.get(who, (0.0, 0.0) if who[0] == os.getpid() else (ran, waited))  # a new thread, or worker
                used = min(elapsed, max(0.0, ran - start[0]))
                wanted = min(elapsed, used + max(0.0, waited - start[1]))
                self._used[who] += used
                self._wanted[who] += wanted
                blocked[who[1]] = elapsed - wanted
            if not over or elapsed > PERIOD / 2:
                self._frames(blocked, elapsed)
            before, last = now, at

    def _frames(self, blocked: dict[int, float], elapsed: float) -> None:
        frames = sys._current_frames()
        natives = {one.ident: one.native_id for one in threading.enumerate()}
        for ident, frame in frames.items():
            native = natives.get(ident)
            if native is None or native in self._known or native not in blocked or ident == threading.get_ident():
                continue
            rest, kind = blocked[native], _blocked_at(native)
            patient = frame.f_globals.get("__name__", "").startswith(PATIENT_MODULES)
            caller = ident == self._ident
            inside = caller and self._in_input(frame)
            if caller and inside:
                self._sums["input run"] += elapsed - rest
            if inside or (caller and kind == "read"):
                self._sums["input wait"] += rest
            elif not patient:
                self._blocked[native] += rest
                if kind != "running":
                    self._kinds[native][kind] += 1
                    self._places[f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"] += 1

    def _in_input(self, frame: FrameType | None) -> bool:
        """Whether the thread is inside an iterator, a generator or a data set that the work calls."""
        return any(_gives_items(code) and code not in self._trains for code in self._called(frame))

    def _at_a_step(self, *_: object) -> None:
        self._trains.update(filter(_gives_items, self._called(sys._getframe())))

    def _called(self, frame: FrameType | None) -> Iterator[CodeType]:
        while frame is not None and frame is not self._home:
            yield frame.f_code
            frame = frame.f_back


def _gives_items(code: CodeType) -> bool:
    return bool(code.co_flags & GENERATOR) or code.co_name in ("__next__", "__getitem__", "__getitems__")


def _times(me: int) -> dict[tuple[int, int], tuple[float, float]]:
    """Seconds that each thread of this process, but `me`, and of its worker processes ran, and waited for a core, so far."""
    found = {}
    for process in (os.getpid(), *(child.pid for child in multiprocessing.active_children())):
        with contextlib.suppress(OSError, ValueError, psutil.Error):  # a thread or worker that has just ended
            for thread, seconds in _linux_times(process) if PROC.is_dir() else _portable_times(process):
                if thread != me:
                    found[process, thread] = seconds
    return found


def _linux_times(process: int) -> Iterator[tuple[int, tuple[float, float]]]:
    for thread in os.listdir(f"/proc/{process}/task"):
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{process}/task/{thread}/schedstat") as file:
            ran, waited, _ = file.read().split()
            yield int(thread), (int(ran) / 1e9, int(waited) / 1e9)


def _asked(me: int) -> float:
    """Seconds that the watch itself ran or waited for a core."""
    with contextlib.suppress(OSError, ValueError), open(PROC / str(me) / "schedstat") as file:
        ran, waited, _ = file.read().split()
        return (int(ran) + int(waited)) / 1e9
    return 0.0


def _portable_times(process: int) -> Iterator[tuple[int, tuple[float, float]]]:
    for one in psutil.Process(process).threads():
        yield one.id, (one.user_time + one.system_time, 0.0)


def _blocked_at(thread: int) -> str:
    """What the kernel says that a thread is blocked at: "lock", "read", "running" for nothing, or "" for all else."""
    try:
        with open(PROC / str(thread) / "wchan") as file:
            name = file.read()
    except OSError:
        return ""
    if name in ("", "0"):
        return "running"
    if "futex" in name:
        return "lock"
    return "read" if any(part in name for part in READS) and not any(part in name for part in WRITES) else ""
