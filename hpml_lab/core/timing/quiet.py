"""Whether this machine is quiet enough that what is measured now can be shown to others."""

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor

import torch

from hpml_lab.core.system.machine import cores
from hpml_lab.core.timing.laps import lap
from hpml_lab.core.timing.noise import compare

MOST_STRETCH, MOST_NOISE = 1.1, 0.1  # a quiet machine has 1.00 to 1.03, and 0.01 to 0.04
SECONDS = 1.0
BLOCK = bytes(1 << 20)  # hashed without Python's lock, so that each thread has a core of its own


def disturbance() -> str:
    """What would be seen of other programs in the times of this machine now; nothing where it is quiet. Takes two seconds.

    As many threads as cores compute for a second: how many times as long does the last of them take on the wall clock? One
    alone would move to the core that is left. And does a placebo, the same code twice, move beyond 10 %?
    """

    def compute() -> float:
        start, end = time.perf_counter(), time.thread_time() + SECONDS
        while time.thread_time() < end:
            hashlib.sha256(BLOCK).digest()
        return time.perf_counter() - start

    with ThreadPoolExecutor(cores()) as pool:
        laps = list(pool.map(lap, [compute] * cores()))
    stretch = max(taken.wall / (taken.cpu or SECONDS) for taken in laps)
    if stretch > MOST_STRETCH:
        return f"a second of computing takes {stretch:.2f} seconds here: other programs have the cores"
    x = torch.randn(1 << 16)
    noise = compare(x.sin, x.sin).speed_up.noise
    if noise > MOST_NOISE:
        return f"the same code twice differs by {100 * noise:.0f} % here"
    return ""
