"""A sampler of stacks in a few lines: a thread that notes now and then where another thread is. Standard library only."""

import _thread  # not threading: a script that is watched so does not find the sampler among its threads
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

BETWEEN = "\0"  # stands in no name of a frame, file or function


def frame_line(frame: FrameType) -> str:
    """A frame's function, file and line, as `speedscope` reads them; a semicolon would end the frame, a line end the stack."""
    code = frame.f_code
    return BETWEEN.join((code.co_qualname, code.co_filename, str(frame.f_lineno or 0))).replace(";", ",").replace("\n", " ")


_OWN_FILE = frame_line.__code__.co_filename  # as frames of this module say it


class StackSampler:
    """In a `with` block a thread notes `rate` times a second where the calling thread is, until that one is profiled otherwise.

    name     what a frame is called; by default its function's name
    samples  {folded stack: samples}; a folded stack names the frames from the outermost to the one that runs, with semicolons
    """

    def __init__(self, rate: float = 100.0, name: Callable[[FrameType], str] = lambda frame: frame.f_code.co_name) -> None:
        self.rate, self._name = rate, name
        self.samples: Counter[str] = Counter()
        self._watched = _thread.get_ident()

    def __enter__(self) -> "StackSampler":
        self._running, self._sampling = _thread.allocate_lock(), _thread.allocate_lock()
        self._running.acquire()
        self._sampling.acquire()
        _thread.start_new_thread(self._sample_until_stopped, ())
        return self

    def __exit__(self, *_: object) -> None:
        self._running.release()
        self._sampling.acquire()  # until it has ended

    def _sample_until_stopped(self) -> None:
        try:
            while not (self._running.acquire(timeout=1 / self.rate) or _is_profiled()):
                frame, frames = sys._current_frames().get(self._watched), []
                while frame is not None:
                    frames.append(frame)
                    frame = frame.f_back
                if all(frame.f_code.co_filename != _OWN_FILE for frame in frames):  # else it begins or ends
                    self.samples[";".join(self._name(frame) for frame in reversed(frames))] += 1
        finally:
            self._sampling.release()


def sample_until_exit(rate: float, path: str) -> None:
    """Sample the calling thread until Python ends, and write the folded stacks to `path` as the very last thing."""
    import atexit
    import contextlib
    import os
    import time

    sampler, process = StackSampler(rate, frame_line), os.getpid()

    def pause() -> None:
        if os.getpid() != process:  # a child has no sampler, whose end it would wait for, if it forks in turn
            return
        sampler.__exit__()
        time.sleep(0.001)  # until the system counts its thread no more

    def go_on() -> None:
        if os.getpid() != process:
            return
        try:
            sampler.__enter__()
        except RuntimeError:  # Python is about to end: no thread begins any more
            sampler._sampling.release()

    def write() -> None:
        if os.getpid() != process:  # a child that was forked has no sampler, and perhaps the folder is gone
            return
        sampler.__exit__()
        # The folder may be gone, full, or no longer this user's: the script is not to hear of it.
        with contextlib.suppress(OSError), open(path, "w", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            file.writelines(f"{stack} {samples}\n" for stack, samples in sampler.samples.items())

    try:
        sampler.__enter__()
    except RuntimeError:  # no thread may be started: there are no samples, and the script is not to hear of it
        return
    atexit.register(write)
    if sys.version_info >= (3, 12):  # it warns of a fork where a second thread runs
        os.register_at_fork(before=pause, after_in_parent=go_on)


def _is_profiled() -> bool:
    """Whether cProfile is on: from Python 3.12 on it sees the calls of all threads, and the sampler would be in its rows."""
    monitoring = getattr(sys, "monitoring", None)
    return monitoring is not None and monitoring.get_tool(monitoring.PROFILER_ID) is not None


def speedscope(folded: str, rate: float) -> dict[str, Any]:
    """What `sample_until_exit` wrote, in the form of speedscope.app, as py-spy writes it."""
    stacks: Counter[tuple[str, ...]] = Counter()
    for line in filter(None, folded.split("\n")):
        stack, _, samples = line.rpartition(" ")
        stacks[tuple(filter(None, stack.split(";")))] += int(samples)
    frames = sorted({frame for stack in stacks for frame in stack})
    number = {frame: index for index, frame in enumerate(frames)}
    named = [dict(zip(("name", "file", "line"), frame.split(BETWEEN), strict=True)) for frame in frames]
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {"frames": [{**frame, "line": int(frame["line"])} for frame in named]},
        "profiles": [
            {
                "type": "sampled",
                "name": 'Thread "MainThread"',
                "unit": "seconds",
                "startValue": 0.0,
                "endValue": stacks.total() / rate,
                "samples": [[number[frame] for frame in stack] for stack in stacks],
                "weights": [samples / rate for samples in stacks.values()],
            }
        ],
    }
