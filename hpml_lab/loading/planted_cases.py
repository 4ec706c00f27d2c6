"""Data sets with a planted character, for the tuner and for faults. They stand in a module, so every start method works."""

import os
import signal
import time

import torch
from torch.utils.data import Dataset


class Planted(Dataset):
    """Samples of `floats` numbers that take `wait` seconds of waiting and `work` rounds of arithmetic each.

    first  seconds that a process's first sample takes in addition: opening files, filling caches
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


class Tailed(Planted):
    """Waits of very uneven length: one sample in sixteen takes twelve times as long."""

    def __getitem__(self, index: int) -> torch.Tensor:
        if index % 16 == 0:
            time.sleep(11 * self.wait)
        return super().__getitem__(index)


class Faulty(Planted):
    """At sample 5 it goes wrong: `fault` is "raises", "hangs", "killed" or "exits"."""

    def __init__(self, fault: str, size: int = 32) -> None:
        super().__init__(size)
        self.fault = fault

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 5:
            if self.fault == "raises":
                raise KeyError("no label for sample 5")
            if self.fault == "hangs":
                time.sleep(600)
            if self.fault == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.fault == "exits":
                os._exit(3)
        return super().__getitem__(index)


CASES = {  # name: (data set, seconds of a step, whether workers pay)
    "waiting for storage": (Planted(wait=0.004), 0.002, True),
    "uneven waiting": (Tailed(wait=0.002), 0.002, True),
    "cheap samples": (Planted(size=2048), 0.0, False),
    "hidden behind the steps": (Planted(), 0.02, False),
    "a first sample that is dear": (Planted(first=0.15), 0.0, False),
}
