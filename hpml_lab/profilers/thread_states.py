"""Watches a piece of work from a second thread: which threads run, wait for a core or are blocked, and where.

The scheduler's counters tell running from waiting for a core, so that a busy machine looks like a quiet one. These counters,
and the kernel's name for what a thread is blocked at, exist on Linux only: elsewhere only running counts, and no lock is
recognized. macOS does not report which thread ran either: there no wait for input is seen, and a loop that waits gets no name.
"""

import contextlib
import multiprocessing
import os
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from hpml_lab.core.system.machine import cores

PERIOD = 0.01  # seconds between two samples
SWITCH_SECONDS = 0.0005  # how soon the watch gets the interpreter; with Python's 0.005 it would hardly see threads that contend
GENERATOR = 0x20  # CO_GENERATOR of code.co_flags
# A thread whose innermost Python frame lies in these waits for another to give it work or to end: that is no contention.
PATIENT_MODULES = ("threading", "queue", "selectors", "concurrent.futures", "multiprocessing", "asyncio")
READS = ("pipe", "read", "io_schedule", "wait_on_page", "folio_wait", "sock", "skb", "poll", "select", "request", "nfs")
WRITES = ("write", "send")  # the kernel's names for a full pipe or socket contain one of READS too
PROC = Path("/proc/self/task")
SHORTEST_LIFE = 0.5  # of the run: a thread that existed for less is judged as if it had existed for so long

ThreadKey = tuple[int, int]  # process, thread


class Watch:
    """Samples the calling thread's work in a `with` block every PERIOD; `evidence()` then sums up what was seen."""

    def __enter__(self) -> "Watch":
        self._caller, self._home = threading.get_native_id(), sys._getframe(1)
        self._ident = threading.get_ident()
        self._known = {thread.native_id for thread in threading.enumerate()} - {self._caller}
        self._sums: Counter[str] = Counter()
        self._used: Counter[ThreadKey] = Counter()  # seconds
        self._wanted: Counter[ThreadKey] = Counter()
        self._lives: dict[ThreadKey, list[float]] = {}  # from when to when a thread was seen
        self._blocked: Counter[int] = Counter()  # seconds by thread, outside its input
        self._kinds: defaultdict[int, Counter[str]] = defaultdict(Counter)  # by thread: samples in which it was blocked so
        self._lines: Counter[str] = Counter()
        self._training: set[CodeType] = set()  # iterators in which an optimizer steps: they train, and give no input
        self._hook = None
        self._hook_optimizers()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_stopped, name="hpml-watch", daemon=True)
        self._ready = threading.Event()
        self._switch = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        self._thread.start()
        self._ready.wait(10)
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        self._thread.join()
        if self._hook is not None:
            self._hook.remove()
        sys.setswitchinterval(self._switch)

    def evidence(self) -> dict[str, Any]:
        """The fields of Evidence that concern the host."""
        seconds = self._sums["seconds"] or 1e-9
        caller = (os.getpid(), self._caller)
        handed_over = self._sums["handed over"] / seconds
        wanted = self._wanted[caller] / seconds + handed_over
        others = {who: value for who, value in self._wanted.items() if who != caller}
        busiest_other = max(shares_of_successors(others, self._lives, seconds), default=0.0)
        # A thread is seen blocked now and then; the kinds seen share out all the time it was blocked.
        at_lock = {who: self._blocked[who] * kinds["lock"] / kinds.total() for who, kinds in self._kinds.items()}
        # A thread at a lock now and then, for under a twentieth of the time, does not contend for it.
        contending = [value for value in at_lock.values() if value > 0.05 * seconds]
        line = self._lines.most_common(1)
        return {
            "seconds": self._sums["seconds"],
            "cores": cores(),
            "cores_used": sum(self._used.values()) / seconds,
            "cores_wanted": sum(self._wanted.values()) / seconds,
            "busiest": max(wanted, busiest_other),
            "handed_over": handed_over,
            "workers": sum(others.values()) / seconds,
            "busiest_worker": busiest_other,
            "input_wait": self._sums["input wait"] / seconds,
            "input_run": self._sums["input run"] / seconds,
            "lock_wait": sum(contending) / seconds,
            "lock_threads": len(contending),
            "interpreter": self._sums["held up"] / (self._sums["sampled"] or 1e-9),
            "unknown_wait": (self._blocked[self._caller] - at_lock.get(self._caller, 0.0)) / seconds,
            "where": line[0][0] if line else "",
        }

    def _sample_until_stopped(self) -> None:
        me = threading.get_native_id()
        before, last, own = _times(me), time.perf_counter(), _asked_seconds(me)
        self._ready.set()
        over = False
        while not over:
            over = self._stop.wait(PERIOD)
            now, at = _times(me), time.perf_counter()
            elapsed = at - last
            asked = _asked_seconds(me)
            self._hook_optimizers()
            if not over:  # all the time it was neither asleep nor asking for a core, it waited for the interpreter
                self._sums["sampled"] += max(0.0, elapsed - PERIOD)
                self._sums["held up"] += max(0.0, elapsed - PERIOD - (asked - own))
            wanted = self._count(before, now, last, at)
            if not over or elapsed > PERIOD / 2:
                self._attribute(wanted, elapsed)
            before, last, own = now, at, asked

    def _count(self, before: dict, now: dict, start: float, end: float) -> dict[int, float]:
        """Add what each thread used and wanted from `start` to `end`; return the seconds that each of this process wanted."""
        elapsed, asked = end - start, {}
        self._sums["seconds"] += elapsed
        for who, (ran, waited) in now.items():
            new_thread = who not in before and who[0] == os.getpid()
            # A worker's counters began before it was seen, those of a thread of this process with this period.
            ran_before, waited_before = before.get(who, (0.0, 0.0) if new_thread else (ran, waited))
            used = min(elapsed, max(0.0, ran - ran_before))
            wanted = min(elapsed, used + max(0.0, waited - waited_before))
            self._used[who] += used
            self._wanted[who] += wanted
            self._lives.setdefault(who, [start if who in before or new_thread else end, end])[1] = end
            if who[0] == os.getpid():
                asked[who[1]] = wanted
        return asked

    def _attribute(self, wanted: dict[int, float], elapsed: float) -> None:
        """Say where each thread was blocked: in the loop's input, at a lock, or elsewhere."""
        frames = sys._current_frames()
        natives = {thread.ident: thread.native_id for thread in threading.enumerate()}
        # Of threads that Python does not know, such as autograd's, in which a backward pass launches a GPU's kernels.
        elsewhere = sum(seconds for native, seconds in wanted.items() if native not in natives.values())
        for ident, frame in frames.items():
            native = natives.get(ident)
            if native is None or native in self._known or native not in wanted or ident == threading.get_ident():
                continue
            rest, kind = elapsed - wanted[native], blocked_at(PROC / str(native))
            patient = frame.f_globals.get("__name__", "").startswith(PATIENT_MODULES)
            caller = ident == self._ident
            inside = caller and self._in_input(frame)
            if caller and inside:
                self._sums["input run"] += elapsed - rest
            if inside or (caller and kind == "read"):
                self._sums["input wait"] += rest
            elif not patient:
                if caller and kind in ("lock", "running"):
                    handed_over = min(rest, elsewhere)
                    self._sums["handed over"] += handed_over
                    rest -= handed_over
                self._blocked[native] += rest
                if kind != "running":
                    self._kinds[native][kind] += 1
                    self._lines[f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"] += 1

    def _in_input(self, frame: FrameType | None) -> bool:
        """Whether the thread is inside an iterator, a generator or a data set that the work calls."""
        return any(_gives_items(code) and code not in self._training for code in self._calls(frame))

    def _hook_optimizers(self) -> None:
        """Be notified of each optimizer's step, as soon as torch is there."""
        torch_optimizer = sys.modules.get("torch.optim.optimizer")
        register = getattr(torch_optimizer, "register_optimizer_step_pre_hook", None)
        if self._hook is None and register is not None:
            self._hook = register(self._at_a_step)

    def _at_a_step(self, *_: object) -> None:
        self._training.update(filter(_gives_items, self._calls(sys._getframe())))

    def _calls(self, frame: FrameType | None) -> Iterator[CodeType]:
        while frame is not None and frame is not self._home:
            yield frame.f_code
            frame = frame.f_back


def shares_of_successors(wanted: dict[ThreadKey, float], lives: dict[ThreadKey, list[float]], seconds: float) -> list[float]:
    """The share of its life for which each thread wanted a core, where threads that follow one another count as one.

    A DataLoader starts fresh workers in every epoch: each exists for a part of the run only, and takes the place of one that
    has ended. What they do together is the same as what one lasting worker does.

    wanted   seconds by thread
    lives    from when to when each existed
    seconds  of the run; a life of less than SHORTEST_LIFE of it counts as one of so much, or a brief burst would seem a worker
    """
    # Threads of this process, workers' main threads and workers' other threads do different work: none replaces another kind.
    chains: dict[tuple[bool, bool], list[dict[str, float]]] = defaultdict(list)
    for who in sorted(wanted, key=lambda who: (lives[who][0], who)):
        process, thread = who
        begin, end = lives[who]
        same_kind = chains[process == os.getpid(), process == thread]
        chain = next((chain for chain in same_kind if chain["end"] <= begin), None)
        if chain is None:
            chain = {"end": end, "alive": 0.0, "wanted": 0.0}
            same_kind.append(chain)
        chain["end"] = end
        chain["alive"] += end - begin
        chain["wanted"] += wanted[who]
    shortest = SHORTEST_LIFE * seconds
    return [chain["wanted"] / max(chain["alive"], shortest) for same_kind in chains.values() for chain in same_kind]


def _gives_items(code: CodeType) -> bool:
    return bool(code.co_flags & GENERATOR) or code.co_name in ("__next__", "__getitem__", "__getitems__")


def _times(me: int) -> dict[ThreadKey, tuple[float, float]]:
    """Seconds that each thread of this process, but `me`, and of its worker processes ran, and waited for a core, so far."""
    times = times_of((os.getpid(), *(child.pid for child in multiprocessing.active_children())))
    times.pop((os.getpid(), me), None)
    return times


def times_of(processes: Iterable[int]) -> dict[ThreadKey, tuple[float, float]]:
    """Seconds that each thread of these processes ran, and waited for a core, so far; a process that has ended has none."""
    found = {}
    for process in processes:
        for thread, seconds in (_linux_times if PROC.is_dir() else _portable_times)(process):
            found[process, thread] = seconds
    return found


def _linux_times(process: int) -> Iterator[tuple[int, tuple[float, float]]]:
    with contextlib.suppress(OSError):  # a process that has just ended
        for thread in os.listdir(f"/proc/{process}/task"):
            with (
                contextlib.suppress(OSError, ValueError),
                open(f"/proc/{process}/task/{thread}/schedstat", encoding="utf-8") as file,
            ):
                ran, waited, _ = file.read().split()
                yield int(thread), (int(ran) / 1e9, int(waited) / 1e9)


def _portable_times(process: int) -> Iterator[tuple[int, tuple[float, float]]]:
    import psutil

    with contextlib.suppress(psutil.Error):
        for thread in psutil.Process(process).threads():
            yield thread.id, (thread.user_time + thread.system_time, 0.0)


def _asked_seconds(me: int) -> float:
    """Seconds that the watch itself ran or waited for a core."""
    with contextlib.suppress(OSError, ValueError), open(PROC / str(me) / "schedstat", encoding="utf-8") as file:
        ran, waited, _ = file.read().split()
        return (int(ran) + int(waited)) / 1e9
    return 0.0


def blocked_at(task: Path) -> str:
    """What the kernel says that a thread is blocked at: "lock", "read", "running" for nothing, or "" for all else.

    task  the thread's folder below /proc
    """
    try:
        return wait_kind((task / "wchan").read_text(encoding="utf-8"))
    except OSError:
        return ""


def wait_kind(name: str) -> str:
    """The same for the name of the kernel's function that a thread sleeps in."""
    if name in ("", "0"):
        return "running"
    if "futex" in name:
        return "lock"
    return "read" if any(part in name for part in READS) and not any(part in name for part in WRITES) else ""
