"""What the sampler costs a run, in a thread and in a child process, taken in turns: `make bench`.

Processor time shows costs far below 1 %. The wall ratio holds what processor time cannot show, such as waits for the
interpreter; it is printed with its own uncertainty, so that it is seen whether it could have shown 1 %.
"""

import hashlib
import multiprocessing
import os
import signal
import time
from statistics import median, quantiles

from hpml_lab.profilers.monitor import Monitor

RATE, TURNS, STEPS = 10.0, 30, 1200
BLOCK = bytes(1 << 18)


def training(steps: int) -> None:
    """Small steps: half Python that holds the interpreter, half a library's work that gives it free."""
    for _ in range(steps):
        sum(range(20_000))
        hashlib.sha256(BLOCK).digest()


def sample_until(ready, end, rate: float) -> None:
    """A child that does as the thread does."""
    with Monitor(rate):
        ready.set()
        end.wait()


def timed() -> tuple[float, float]:
    """Wall seconds of one training, and the processor seconds of this process meanwhile."""
    wall, used = time.perf_counter(), time.process_time()
    training(STEPS)
    return time.perf_counter() - wall, time.process_time() - used


def ratio(with_it: list[float], alone: list[float]) -> str:
    """The median of the turns' ratios, and half the width of its 95 % interval (1.57 quartile ranges / √turns)."""
    ratios = [turn / other for turn, other in zip(with_it, alone, strict=True)]
    low, _, high = quantiles(ratios, n=4)
    return f"{median(ratios):.4f} ± {1.57 * (high - low) / len(ratios) ** 0.5:.4f}"


def main():
    context, shares = multiprocessing.get_context("spawn"), []
    walls, used = ({"alone": [], "thread": [], "child": []} for _ in range(2))
    ready, end = context.Event(), context.Event()
    began = time.perf_counter()
    child = context.Process(target=sample_until, args=(ready, end, RATE))
    child.start()
    ready.wait(30)  # its start is no part of the ratio
    started = time.perf_counter() - began

    def turn(how: str) -> None:
        wall, processor = timed()
        walls[how].append(wall)
        used[how].append(processor)

    os.kill(child.pid, signal.SIGSTOP)
    timed()  # to warm up
    for _ in range(TURNS):
        turn("alone")
        with Monitor(RATE) as monitor:
            turn("thread")
        shares.append(monitor.cost)
        os.kill(child.pid, signal.SIGCONT)
        turn("child")
        os.kill(child.pid, signal.SIGSTOP)
    os.kill(child.pid, signal.SIGCONT)
    end.set()
    child.join(20)

    print(f"a run of {median(walls['alone']):.2f} s, {TURNS} turns, {RATE:g} samples a second")
    print(f"thread: its own processor time is {100 * median(shares):.2f} % of the run (at most {100 * max(shares):.2f} %)")
    print(f"thread: the process takes {ratio(used['thread'], used['alone'])} of the processor time without")
    for how in ("thread", "child"):
        print(f"{how}: the run takes {ratio(walls[how], walls['alone'])} of the wall time without")
    print(f"a child starts in {started:.1f} s")


if __name__ == "__main__":
    main()
