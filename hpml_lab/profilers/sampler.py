"""A sampler of stacks in a few lines: a thread that notes now and then where another thread is. Standard library only."""

import sys
import threading
from collections import Counter
from collections.abc import Callable
from types import CodeType
from typing import Any

BETWEEN = "\0"  # stands in no name of a frame, file or function


def frame_name(code: CodeType) -> str:
    """A frame's function and file, as `StackSampler.speedscope` reads them; a semicolon would end the frame."""
    return f"{code.co_qualname}{BETWEEN}{code.co_filename}".replace(";", ",")


class StackSampler:
    """In a `with` block a thread notes `rate` times a second where the calling thread is.

    name     what a frame is called; by default its function's name
    samples  {folded stack: samples}; a folded stack names the frames from the outermost to the one that runs, with semicolons
    """

    def __init__(self, rate: float = 100.0, name: Callable[[CodeType], str] = lambda code: code.co_name) -> None:
        self.rate, self._name = rate, name
        self.samples: Counter[str] = Counter()

    def __enter__(self) -> "StackSampler":
        self._watched, self._stop = threading.get_ident(), threading.Event()
        self._thread = threading.Thread(target=self._sample_until_stopped, name="hpml-sampler", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def speedscope(self) -> dict[str, Any]:
        """All samples in the form of speedscope.app, as py-spy writes them, but without lines; with `frame_name` only."""
        stacks = {tuple(filter(None, stack.split(";"))): samples for stack, samples in sorted(self.samples.items())}
        frames = sorted({frame for stack in stacks for frame in stack})
        number = {frame: index for index, frame in enumerate(frames)}
        named = [dict(zip(("name", "file"), frame.split(BETWEEN), strict=True)) for frame in frames]
        return {
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "shared": {"frames": named},
            "profiles": [
                {
                    "type": "sampled",
                    "name": 'Thread "MainThread"',
                    "unit": "seconds",
                    "startValue": 0.0,
                    "endValue": sum(stacks.values()) / self.rate,
                    "samples": [[number[frame] for frame in stack] for stack in stacks],
                    "weights": [samples / self.rate for samples in stacks.values()],
                }
            ],
        }

    def _sample_until_stopped(self) -> None:
        while not self._stop.wait(1 / self.rate):
            frame, names = sys._current_frames().get(self._watched), []
            while frame is not None:
                names.append(self._name(frame.f_code))
                frame = frame.f_back
            self.samples[";".join(reversed(names))] += 1
