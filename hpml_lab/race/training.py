"""Training many settings to the end with curves: evaluation at chosen iterations, checkpoints, workers and ranks."""

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hpml_lab.core.progress import progress
from hpml_lab.data import DataSet
from hpml_lab.race import ranks
from hpml_lab.race.checkpoints import FOLDER, Checkpoint, digest, key_of
from hpml_lab.race.program import Net, Program, Setting, flat_inputs

PIECE = 50  # steps between two looks at the clock and at whether to stop
WORTH_KEEPING = 5.0  # seconds of training; what is redone faster is not written to disk


@dataclass(frozen=True)
class Inputs:
    """Images as rows, labels, and the fixed parts of both that the curves are measured on."""

    name: str
    x: torch.Tensor
    y: torch.Tensor
    x_test: torch.Tensor
    y_test: torch.Tensor
    watched: int
    digest: str

    @classmethod
    def of(cls, data: DataSet, watched: int, device: torch.device, dtype: torch.dtype = torch.float32) -> "Inputs":
        """The rows of `data` on `device`; curves are measured on its first `watched` training and test images."""
        x, x_test = flat_inputs(data, dtype)
        parts = [part.to(device) for part in (x, data.train_y, x_test, data.test_y)]
        return cls(data.name, *parts, watched, digest(x, data.train_y, x_test, data.test_y))


@dataclass(frozen=True)
class Task:
    """What one program trains: some settings and all seeds of one net."""

    net: str
    shape: Net
    settings: tuple[Setting, ...]
    seeds: tuple[int, ...]


def shared_out(net: str, shape: Net, settings: Sequence[Setting], seeds: Sequence[int], at_most: int) -> list[Task]:
    """The settings as tasks of at most `at_most` each, as even as possible.

    How many workers or ranks there are has no say in it: so the numbers cannot depend on that.
    """
    count = -(-len(settings) // at_most)
    return [Task(net, shape, tuple(settings[part::count]), tuple(seeds)) for part in range(count)]


def log_points(iterations: int, count: int) -> list[int]:
    """0, then about `count` iterations evenly spaced in their logarithm, up to the last."""
    return sorted({0, *(round(iterations ** (i / (count - 1))) for i in range(count))})


def train(
    task: Task,
    inputs: Inputs,
    points: Sequence[int],
    batch: int = 128,
    checkpoint: Checkpoint | None = None,
    stop: threading.Event | None = None,
    tick=lambda steps: None,
) -> dict[str, Any]:
    """Train a task up to the last of `points` and return its curves, going on from `checkpoint` where there is one.

    loss (points, K, R) on the watched training images and accuracy (points, K, R) on the watched test images at each of the
    points; final_accuracy (K, R) on all test images; seconds of training, without evaluation; problem, why no checkpoint could
    be written, or "". `stop` ends it early: it saves and raises KeyboardInterrupt.
    """
    program = Program(task.shape, task.settings, task.seeds, inputs.x, inputs.y, batch)
    loss, accuracy, seconds = [], [], 0.0
    found = checkpoint.load() if checkpoint else None
    if found:
        tick(found["iteration"])
        if "curves" in found:  # it had finished
            return found["curves"]
        loss, accuracy, seconds = found["loss"], found["accuracy"], found["seconds"]
        program.load_state_dict(found["program"])

    def save() -> None:
        now = {"loss": loss, "accuracy": accuracy, "seconds": seconds, "iteration": program.iteration}
        checkpoint.save({**now, "program": program.state_dict()})

    device = inputs.x.device
    for point in points[len(loss) :]:
        while program.iteration < point:
            steps = min(PIECE, point - program.iteration)
            start = time.perf_counter()
            program.run(steps)
            if program.iteration == point and device.type == "cuda":
                torch.cuda.synchronize(device)  # the curve's next value waits anyway; its wait is no training time
            seconds += time.perf_counter() - start
            tick(steps)
            stopping = stop is not None and stop.is_set()
            if checkpoint and (checkpoint.due() or (stopping and seconds > WORTH_KEEPING)):
                save()
            if stopping:
                raise KeyboardInterrupt
        train_loss, _ = program.evaluate(inputs.x[: inputs.watched], inputs.y[: inputs.watched])
        _, test_accuracy = program.evaluate(inputs.x_test[: inputs.watched], inputs.y_test[: inputs.watched])
        loss.append(train_loss.tolist())
        accuracy.append(test_accuracy.tolist())
    final = program.evaluate(inputs.x_test, inputs.y_test)[1].tolist()
    curves = {"loss": loss, "accuracy": accuracy, "final_accuracy": final, "seconds": seconds}
    curves["problem"] = checkpoint.problem if checkpoint else ""
    if checkpoint and seconds > WORTH_KEEPING:
        checkpoint.save({"iteration": program.iteration, "curves": curves})
    return curves


def train_all(
    tasks: Sequence[Task],
    inputs: Inputs,
    points: Sequence[int],
    batch: int = 128,
    workers: int = 1,
    folder: Path = FOLDER,
    every: float = 60.0,
    what: str = "training",
) -> list[dict[str, Any]]:
    """Train all tasks, each on one of `workers` threads of one of the ranks, and return their curves, on every rank.

    Workers are better than torch's own threads here: those wait for each other after every operation, which on a machine
    with other work costs more than they bring. And what a worker computes does not depend on how many there are.
    """
    checkpoints = [
        Checkpoint(
            key_of(
                task=task,
                data=(inputs.name, inputs.digest, str(inputs.x.dtype)),
                device=_device_name(inputs.x.device),
                batch=batch,
                points=list(points),
                watched=inputs.watched,
            ),
            folder,
            every,
        )
        for task in tasks
    ]
    dear_first = sorted(range(len(tasks)), key=lambda place: -_cost(tasks[place], inputs))
    mine = ranks.own(dear_first)
    ticks: queue.Queue[int] = queue.Queue()
    stop = threading.Event()
    with ThreadPoolExecutor(max(1, workers)) as pool:
        futures = {
            place: pool.submit(train, tasks[place], inputs, points, batch, checkpoints[place], stop, ticks.put)
            for place in mine
        }
        steps = _ticks(ticks, list(futures.values()))
        try:
            for _ in progress(steps, what, total=len(mine) * points[-1] // PIECE) if ranks.rank() == 0 else steps:
                pass
            done = {place: future.result() for place, future in futures.items()}
        except BaseException:
            stop.set()  # the workers save what they have; leaving the block waits for them
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    everything: dict[int, dict[str, Any]] = {}
    for part in ranks.gather(done):
        everything |= part
    for place in mine:
        checkpoints[place].remove()
    return [everything[place] for place in range(len(tasks))]


def _ticks(ticks: "queue.Queue[int]", futures: list[Future]) -> Iterator[None]:
    """One item for each PIECE of steps that any worker has taken, until all have finished or one has failed."""
    steps = 0
    while True:
        try:
            steps += ticks.get(timeout=0.1)
        except queue.Empty:
            state = wait(futures, timeout=0, return_when=FIRST_EXCEPTION)
            if not state.not_done or any(future.exception() for future in state.done):
                return
        for _ in range(steps // PIECE):
            yield
        steps %= PIECE


def _cost(task: Task, inputs: Inputs) -> int:
    widths = [inputs.x.shape[1], *(width for width, _ in task.shape.hidden), 10]
    return len(task.settings) * sum(a * b for a, b in zip(widths[:-1], widths[1:], strict=True))


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
