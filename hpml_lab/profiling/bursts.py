"""A load whose use is known: it computes for a part of each cycle, on one core and, where there is one, on the GPU."""

import hashlib
import itertools
import time
from collections.abc import Callable

import torch

from hpml_lab.core.measure.counting import synchronize
from hpml_lab.core.measure.timeline import CLOCK
from hpml_lab.profiling.known_loops import BLOCK

PRODUCTS = 16  # matrix products in a row, so that the GPU computes for nearly all of a burst and waits for no launch


class Bursts:
    """Computes for `duty` of each `cycle` seconds. A burst is over when it has had its processor time: where other programs
    want the core too, it takes longer.

    spans  (begin, end) of each burst of the last run, by `core.timeline.CLOCK`
    """

    def __init__(self, duty: float, cycle: float, device: torch.device) -> None:
        self.duty, self.cycle, self.spans = duty, cycle, []
        self._multiply = _products(device)
        self._multiply()  # the first product loads the library, which takes longer than a burst

    def run(self, seconds: float, after_each: Callable[[], object] = lambda: None) -> None:
        """Bursts for `seconds`; `after_each()` is called after each of them."""
        start, self.spans = CLOCK(), []
        for number in itertools.count():
            begin = start + number * self.cycle
            if begin >= start + seconds:
                return
            used, began = time.thread_time(), CLOCK()
            while time.thread_time() - used < self.duty * self.cycle:
                hashlib.sha256(BLOCK).digest()
                self._multiply()
            self.spans.append((began, CLOCK()))
            after_each()
            time.sleep(max(0.0, begin + self.cycle - CLOCK()))


def _products(device: torch.device) -> Callable[[], None]:
    if device.type != "cuda":
        return lambda: None
    matrix = torch.ones(2048, 2048, device=device)
    out = torch.empty_like(matrix)

    def multiply() -> None:
        for _ in range(PRODUCTS):
            torch.mm(matrix, matrix, out=out)
        synchronize(device)  # waits at work, so that the processor's time goes on

    return multiply
