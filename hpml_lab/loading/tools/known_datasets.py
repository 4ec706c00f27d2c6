"""Data sets of known cost and with known faults, to try a loader on. They stand in a module, so every start method works."""

import os
import signal
import time

import torch
from torch.utils.data import Dataset


class KnownCost(Dataset):
    """Samples of `floats` numbers, each of which takes `wait` seconds of waiting and `work` rounds of arithmetic.

    first  seconds that a process's first sample takes in addition, as opening files and filling caches does
    """

    def __init__(self, size: int = 256, *, floats: int = 16, wait: float = 0.0, work: int = 0, first: float = 0.0) -> None:
        self.size, self.floats, self.wait, self.work, self.first = size, floats, wait, work, first
        self._opened_by = None

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.first and self._opened_by != os.getpid():
            self._opened_by = os.getpid()
            time.sleep(self.first)
        if self.wait:
            time.sleep(self.wait)
        value = float(index)
        for _ in range(self.work):
            value = value * 0.999 + 1.0
        return torch.full((self.floats,), value)


class FaultyData(KnownCost):
    """Goes wrong at the sample `at`: `fault` is "raises", "hangs", "killed" or "exits"."""

    def __init__(self, fault: str, size: int = 32, *, at: int = 5) -> None:
        super().__init__(size)
        self.fault, self.at = fault, at

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.at:
            if self.fault == "raises":
                raise KeyError(f"no label for sample {index}")
            if self.fault == "hangs":
                time.sleep(600)
            if self.fault == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.fault == "exits":
                os._exit(3)
        return super().__getitem__(index)


class Computed(Dataset):
    """Samples each of which keeps a core busy for `seconds` of processor time, as decoding does; none of it is waiting.

    A sample is (its index, the processor time that it took).
    """

    def __init__(self, size: int, seconds: float) -> None:
        self.size, self.seconds = size, seconds

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[int, float]:
        start, value = time.thread_time(), float(index)
        while (used := time.thread_time() - start) < self.seconds:
            for _ in range(200):
                value = value * 0.999 + 1.0
        return index, used
