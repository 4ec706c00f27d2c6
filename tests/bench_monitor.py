"""What the sampler costs a run, in a thread and in a child process, as ratios taken in turns: `make bench`."""

import hashlib
import multiprocessing
from statistics import median

from hpml_lab.core.timeline import CLOCK
from hpml_lab.profiling.monitor import Monitor

RATE, TURNS, STEPS = 10.0, 7, 1200
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


def timed(how: str) -> float:
    if how == "thread":
        with Monitor(RATE) as monitor:
            start = CLOCK()
            training(STEPS)
            seconds = CLOCK() - start
        shares.append(monitor.cost)
        return seconds
    start = CLOCK()
    training(STEPS)
    return CLOCK() - start


shares: list[float] = []
starts: list[float] = []


def main():
    context = multiprocessing.get_context("spawn")
    timed("alone")
    turns = {"thread": [], "child": []}
    for _ in range(TURNS):
        alone = timed("alone")
        turns["thread"].append(timed("thread") / alone)
        ready, end = context.Event(), context.Event()
        began = CLOCK()
        child = context.Process(target=sample_until, args=(ready, end, RATE))
        child.start()
        ready.wait(30)  # its start, an interpreter with torch, is no part of the ratio
        starts.append(CLOCK() - began)
        turns["child"].append(timed("alone") / alone)
        end.set()
        child.join(20)
    for how, ratios in turns.items():
        print(f"{how}: {median(ratios):.4f} of the time without ({min(ratios):.3f} to {max(ratios):.3f}), {RATE:g} a second")
    print(f"the thread's own processor time: {100 * median(shares):.2f} % of the run")
    print(f"a child starts in {median(starts):.1f} s")


if __name__ == "__main__":
    main()
