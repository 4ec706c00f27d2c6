"""What a grid of trajectories costs as one batched program, and how many times faster it is than stepping torch.optim cell
by cell: `make bench`.

200 × 200 settings × 500 steps, float32, one thread. Thread CPU time, the smallest of several runs: the machine may be shared.
The loop is timed on a few cells, in turns with the grid in one run, and counted up to 40 000.
"""

import time

import torch

from hpml_lab.core.timing.threads import one_thread
from hpml_lab.landscape import SURFACES, run_grid, torch_equivalent

SIDE, STEPS, ROUNDS, LOOPED = 200, 500, 3, 1
SECOND = {
    "gradient_descent": None,
    "momentum": "momentum",
    "nesterov": "momentum",
    "adagrad": None,
    "rmsprop": "alpha",
    "adam": "beta1",
    "adadelta": "rho",
}


def settings(name):
    lr = torch.linspace(0.001, 1.2 if name == "adadelta" else 0.12, SIDE)[None]
    if SECOND[name] is None:
        return {"lr": lr.expand(SIDE, SIDE)}
    return {"lr": lr, SECOND[name]: torch.linspace(0.01, 0.99, SIDE)[:, None]}


def grid(surface, name):
    start, wall = time.thread_time(), time.perf_counter()
    run_grid(surface, name, STEPS, **settings(name))
    return time.thread_time() - start, time.perf_counter() - wall


def loop(surface, name):
    """One cell by the loop that a student writes: the class, and autograd for the gradient. CPU seconds."""
    start = time.thread_time()
    for _ in range(LOOPED):
        theta = torch.tensor(surface.start, requires_grad=True)
        optimizer = torch_equivalent(name, [theta], lr=0.001)
        for _ in range(STEPS):
            optimizer.zero_grad()
            surface.value(theta[0], theta[1]).backward()
            optimizer.step()
    return (time.thread_time() - start) / LOOPED


@one_thread()
def main():
    print(f"{SIDE} x {SIDE} settings, {STEPS} steps: ms of CPU (ms of wall), and times faster than the loop over the classes")
    print(" " * 14 + "".join(f"{name[:12]:>20}" for name in SECOND))
    worst = 0.0
    for surface in SURFACES.values():
        cells = []
        for name in SECOND:
            grid(surface, name)
            turns = [(*grid(surface, name), loop(surface, name)) for _ in range(ROUNDS)]
            cpu, wall, one = (min(column) for column in zip(*turns, strict=True))
            worst = max(worst, cpu)
            cells.append(f"{cpu * 1e3:4.0f} ({wall * 1e3:4.0f}) {one * SIDE * SIDE / cpu:7.0f}x")
        print(f"{surface.name:14}" + "".join(f"{cell:>20}" for cell in cells), flush=True)
    print(f"slowest: {worst * 1e3:.0f} ms of CPU; asked for: at most 300 ms")


if __name__ == "__main__":
    main()
