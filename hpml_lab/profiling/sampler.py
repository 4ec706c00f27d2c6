"""A sampler of stacks in a few lines: a thread that notes now and then where another thread is. Standard library only."""

import sys
import threading
from collections import Counter
from collections.abc import Callable
from types import CodeType


def frame_name(code: CodeType) -> str:
    """A frame as py-spy writes it, "name (file.py)"."""
    return f"{code.co_qualname} ({code.co_filename})"


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

    def folded(self) -> str:
        """All samples as folded text."""
        return "".join(f"{stack} {samples}\n" for stack, samples in sorted(self.samples.items()))

    def _sample_until_stopped(self) -> None:
        while not self._stop.wait(1 / self.rate):
            frame, names = sys._current_frames().get(self._watched), []
            while frame is not None:
                names.append(self._name(frame.f_code))
                frame = frame.f_back
            self.samples[";".join(reversed(names))] += 1
