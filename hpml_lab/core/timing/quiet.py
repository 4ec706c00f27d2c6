"""Whether this machine is quiet enough that what is measured now can be shown to others."""

import time

import torch

from hpml_lab.core.timing.laps import lap
from hpml_lab.core.timing.noise import compare

MOST_STRETCH, MOST_NOISE = 1.1, 0.1  # a quiet machine has 1.00 to 1.03, and 0.01 to 0.04
SECONDS = 1.0


def disturbance() -> str:
    """What would be seen of other programs in the times of this machine now; nothing where it is quiet. Takes two seconds.

    One thread computes for a second: how many times as long does it take on the wall clock? And does a placebo, the same
    code twice, move beyond 10 %?
    """

    def compute() -> float:
        start, end = time.perf_counter(), time.thread_time() + SECONDS
        while time.thread_time() < end:
            pass
        return time.perf_counter() - start

    taken = lap(compute)
    stretch = taken.wall / taken.cpu if taken.cpu else taken.wall / SECONDS
    if stretch > MOST_STRETCH:
        return f"a second of computing takes {stretch:.2f} seconds here: other programs have the cores"
    x = torch.randn(1 << 16)
    noise = compare(x.sin, x.sin).speed_up.noise
    if noise > MOST_NOISE:
        return f"the same code twice differs by {100 * noise:.0f} % here"
    return ""
