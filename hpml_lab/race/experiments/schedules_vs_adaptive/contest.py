"""The contest of schedules and adaptive methods: every entrant at every peak rate and seed, trained as one program."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import inf
from pathlib import Path

import torch

from hpml_lab.core.show.live_curve import LiveCurve
from hpml_lab.core.show.progress import progress
from hpml_lab.optim.formulas.colors import OPTIMIZER_COLORS, optimizer_key
from hpml_lab.optim.schedules import factor
from hpml_lab.race.experiments.checkpoints import FOLDER, Checkpoint, digest, key_of
from hpml_lab.race.tools.program import CLASSES, FullyConnected, Program, Setting

# The peak rates of each optimizer's sweep: the lecture's and its neighbors.
PEAKS = {
    "SGD": (0.1, 0.3, 1.0, 3.0, 10.0),
    "Momentum": (0.01, 0.03, 0.1, 0.3, 1.0),
    "Adagrad": (0.01, 0.03, 0.1, 0.3),
    "RMSprop": (0.0003, 0.001, 0.003, 0.01),
    "Adam": (0.0003, 0.001, 0.003, 0.01, 0.03),
}
# Set by hand: a line for each optimizer, or two of one schedule.
ENTRANTS = (
    ("SGD", "constant"), ("SGD", "step"), ("SGD", "cosine"),
    ("Momentum", "constant"), ("Momentum", "step"), ("Momentum", "cosine"), ("Momentum", "one-cycle"),
    ("Adagrad", "constant"), ("RMSprop", "constant"),
    ("Adam", "constant"), ("Adam", "step"), ("Adam", "cosine"), ("Adam", "one-cycle"),
)  # fmt: skip
# One program setting each: (optimizer, schedule, peak rate).
PLAN = [(optimizer, schedule, peak) for optimizer, schedule in ENTRANTS for peak in PEAKS[optimizer]]
SHARES = 15  # programs on a CPU, whatever the number of threads: a program's size can change the last digits of its results

Images = tuple[torch.Tensor, torch.Tensor]  # rows (N, H·W) and labels (N,)


@dataclass(frozen=True)
class ContestCurves:
    """Accuracies (looks, K, R) on validation and test images and validation loss, measured at `iterations`."""

    iterations: list[int]
    valid: torch.Tensor
    loss: torch.Tensor
    test: torch.Tensor


def train_contest(
    net: FullyConnected,
    seeds: Sequence[int],
    train: Images,
    valid: Images,
    test: Images,
    iterations: int,
    batch: int,
    looks: int,
    workers: int = 1,
    folder: Path = FOLDER,
) -> ContestCurves:
    """Train everything in PLAN with every seed, and evaluate all nets `looks` times, evenly spaced.

    A GPU trains the plan as one program. On a CPU it is split into SHARES programs, which `workers` threads take in turn: the
    numbers do not depend on how many threads there are, because the split does not.
    A run of minutes leaves a checkpoint in `folder` once a minute and resumes from it after it was killed.
    """
    count = 1 if train[0].is_cuda else SHARES
    shares = [range(first, len(PLAN), count) for first in range(count)]
    programs = [Program(net, [_setting(PLAN[k]) for k in share], seeds, *train, batch) for share in shares]
    back = torch.tensor([k for share in shares for k in share]).argsort()  # from the order of the shares to the plan's

    def advance(share: range, program: Program, steps: int) -> tuple[torch.Tensor, ...]:
        scheduled = [(k, *PLAN[index][1:]) for k, index in enumerate(share) if PLAN[index][1] != "constant"]

        def before_step(t: int) -> None:
            for k, schedule, peak in scheduled:
                program.set_lr(k, peak * factor(schedule, t, iterations))

        program.run(steps, before_step)
        loss, accuracy = program.evaluate(*valid)
        return tuple(values.double().cpu() for values in (accuracy, loss, program.evaluate(*test)[1]))

    stops = sorted({round(iterations * i / looks) for i in range(looks + 1)})
    where = dict(device=str(train[0].device), dtype=str(train[0].dtype), shares=count)
    plan = dict(net=net, places=PLAN, seeds=list(seeds), iterations=iterations, batch=batch, looks=looks)
    checkpoint = Checkpoint(key_of(race="schedules", data=digest(*train, *valid, *test), **plan, **where), folder)
    found: list[tuple[torch.Tensor, ...]] = []
    if saved := checkpoint.load():
        found = saved["found"]
        for program, state in zip(programs, saved["programs"], strict=True):
            program.load_state_dict(state)
    colors = {name: OPTIMIZER_COLORS[optimizer_key(name)] for name in PEAKS}
    with (
        LiveCurve("iterations", "validation accuracy of the best entrant", colors) as live,
        ThreadPoolExecutor(workers) as pool,
    ):
        for stop in progress(stops[len(found) :], "schedules"):
            steps = stop - programs[0].iteration
            parts = list(pool.map(advance, shares, programs, [steps] * count))
            found.append(tuple(torch.cat(values)[back] for values in zip(*parts, strict=True)))
            for name, best in best_of_each(found[-1][0]).items():
                live.add(name, stop, best)
            if checkpoint.due():
                checkpoint.save({"found": found, "programs": [program.state_dict() for program in programs]})
    checkpoint.remove()
    accuracies, losses, on_test = (torch.stack(values) for values in zip(*found, strict=True))
    return ContestCurves(stops, accuracies, losses, on_test)


def _setting(planned: tuple[str, str, float]) -> Setting:
    optimizer, _, peak = planned
    return Setting(optimizer, lr=peak)


def best_of_each(accuracy: torch.Tensor) -> dict[str, float]:
    """For each optimizer the highest median over the seeds of `accuracy` (K, R), among its schedules and peak rates."""
    medians = accuracy.median(1).values.tolist()
    best = dict.fromkeys(PEAKS, 0.0)
    for (optimizer, _, _), value in zip(PLAN, medians, strict=True):
        best[optimizer] = max(best[optimizer], value)
    return best


def with_wrong_labels(y: torch.Tensor, fraction: float, seed: int = 0) -> torch.Tensor:
    """A copy of the labels in which a fraction was drawn again, at random."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.rand(len(y), generator=generator) < fraction
    return torch.where(drawn, torch.randint(CLASSES, (len(y),), generator=generator), y.cpu()).to(y.device)


def first_reached(iterations: Sequence[int], accuracy: Sequence[float], threshold: float) -> float:
    """The first of `iterations` at which the accuracy is at least `threshold`; inf if there is none."""
    return next((float(t) for t, value in zip(iterations, accuracy, strict=True) if value >= threshold), inf)
