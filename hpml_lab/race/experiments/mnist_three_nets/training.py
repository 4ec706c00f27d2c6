"""Training many settings to the end, with curves: evaluation at chosen iterations, checkpoints, workers and on_ranks."""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from hpml_lab.core.show.progress import progress
from hpml_lab.data import DataSet
from hpml_lab.race.experiments.checkpoints import FOLDER, Checkpoint, digest, key_of
from hpml_lab.race.experiments.mnist_three_nets import on_ranks
from hpml_lab.race.tools.program import FullyConnected, Program, Setting, flat_inputs

PIECE = 50  # steps after which a worker looks at the clock and at whether to stop
WORTH_KEEPING_SECONDS = 5.0  # of training; what takes less to repeat is not written to disk


@dataclass(frozen=True)
class Inputs:
    """Images as rows and labels: for training, for choosing rates, for the test; and how many of them the curves look at."""

    name: str
    x: torch.Tensor
    y: torch.Tensor
    x_valid: torch.Tensor
    y_valid: torch.Tensor
    x_test: torch.Tensor
    y_test: torch.Tensor
    watched: int
    digest: str

    @classmethod
    def of(cls, data: DataSet, watched: int, valid: int, device: torch.device, dtype: torch.dtype = torch.float32) -> "Inputs":
        """The rows of `data` on `device`. The last `valid` training images are kept from training: they choose rates.

        Curves are measured on the first `watched` training and test images.
        """
        x, x_test = flat_inputs(data, dtype)
        kept = len(x) - valid
        parts = (x[:kept], data.train_y[:kept], x[kept:], data.train_y[kept:], x_test, data.test_y)
        return cls(data.name, *(part.to(device) for part in parts), watched, digest(*parts))


@dataclass(frozen=True)
class Task:
    """What one program trains: some settings and all seeds of one net."""

    net: str
    shape: FullyConnected
    settings: tuple[Setting, ...]
    seeds: tuple[int, ...]


# (task, point, training loss (K, R) there), called on the thread that called Trainer.train
Seen = Callable[[Task, int, list[list[float]]], None]


def split_into_tasks(
    net: str, shape: FullyConnected, settings: Sequence[Setting], seeds: Sequence[int], at_most: int
) -> list[Task]:
    """The settings as tasks of at most `at_most` each, as even as possible.

    The split does not depend on the number of workers or ranks, so the results cannot depend on it either.
    """
    count = -(-len(settings) // at_most)
    return [Task(net, shape, tuple(settings[index::count]), tuple(seeds)) for index in range(count)]


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
    tick: Callable[[int], None] = lambda steps: None,
    seen: Seen = lambda task, point, loss: None,
) -> dict[str, Any]:
    """Train a task up to the last of `points` and return its curves, continuing from `checkpoint` if there is one.

    Returns
      loss            (points, K, R) on the watched training images
      accuracy        (points, K, R) on the watched test images
      valid_loss      (K, R) on all validation images, at the end
      final_accuracy  (K, R) on all test images, at the end
      seconds         of training, without evaluation
      problem         why no checkpoint could be written, or ""

    tick(steps) is called after every few steps, seen(task, point, loss) at every point. `stop` ends the training early: it
    saves and raises KeyboardInterrupt.
    """
    program = Program(task.shape, task.settings, task.seeds, inputs.x, inputs.y, batch)
    loss, accuracy, seconds = [], [], 0.0
    saved = checkpoint.load() if checkpoint else None
    if saved:
        tick(saved["iteration"])
        if "curves" in saved:  # it had finished
            return saved["curves"]
        loss, accuracy, seconds = saved["loss"], saved["accuracy"], saved["seconds"]
        program.load_state_dict(saved["program"])

    def save() -> None:
        state = {"loss": loss, "accuracy": accuracy, "seconds": seconds, "iteration": program.iteration}
        checkpoint.save({**state, "program": program.state_dict()})

    device = inputs.x.device
    for point, values in zip(points, loss, strict=False):
        seen(task, point, values)
    for point in points[len(loss) :]:
        while program.iteration < point:
            steps = min(PIECE, point - program.iteration)
            start = time.perf_counter()
            program.run(steps)
            if program.iteration == point and device.type == "cuda":
                torch.cuda.synchronize(device)  # the evaluation below would wait for it, which is not training time
            seconds += time.perf_counter() - start
            tick(steps)
            stopping = stop is not None and stop.is_set()
            if checkpoint and (checkpoint.due() or (stopping and seconds > WORTH_KEEPING_SECONDS)):
                save()
            if stopping:
                raise KeyboardInterrupt
        train_loss, _ = program.evaluate(inputs.x[: inputs.watched], inputs.y[: inputs.watched])
        _, test_accuracy = program.evaluate(inputs.x_test[: inputs.watched], inputs.y_test[: inputs.watched])
        loss.append(train_loss.tolist())
        accuracy.append(test_accuracy.tolist())
        seen(task, point, loss[-1])
    final = program.evaluate(inputs.x_test, inputs.y_test)[1].tolist()
    valid = program.evaluate(inputs.x_valid, inputs.y_valid)[0].tolist()
    curves = {"loss": loss, "accuracy": accuracy, "valid_loss": valid, "final_accuracy": final, "seconds": seconds}
    curves["problem"] = checkpoint.problem if checkpoint else ""
    if checkpoint and seconds > WORTH_KEEPING_SECONDS:
        checkpoint.save({"iteration": program.iteration, "curves": curves})
    return curves


@dataclass
class Trainer:
    """Trains tasks, each on one of `workers` threads of one of the ranks; call `finished` when all trainings are done.

    Several workers are better here than torch's own threads: those wait for each other after every operation, which costs
    more than it brings when the machine has other work. And what a worker computes does not depend on how many there are.

    What was trained stays in `folder` until `finished`: an experiment of several calls continues in the one that was killed.
    """

    inputs: Inputs
    batch: int = 128
    workers: int = 1
    folder: Path = FOLDER
    every_seconds: float = 60.0
    seconds: float = 0.0  # of training by all workers, without evaluation
    problems: list[str] = field(default_factory=list)  # why no checkpoint could be written
    _checkpoints: list[Checkpoint] = field(default_factory=list)

    def train(
        self,
        tasks: Sequence[Task],
        points: Sequence[int],
        description: str = "training",
        seen: Seen = lambda task, point, loss: None,
    ) -> list[dict[str, Any]]:
        """Train all tasks up to the last of `points` and return their curves (see `train`), on every rank."""
        costly_first = sorted(range(len(tasks)), key=lambda index: -_cost(tasks[index], self.inputs))
        mine = on_ranks.own(costly_first)
        reports: queue.Queue[int | tuple] = queue.Queue()  # a number of steps, or the arguments of `seen`
        stop = threading.Event()

        def tell(*report: Any) -> None:
            reports.put(report)

        checkpoints = {index: self._checkpoint(tasks[index], points) for index in mine}
        self._checkpoints += checkpoints.values()
        with ThreadPoolExecutor(max(1, self.workers)) as pool:
            futures = {
                index: pool.submit(train, tasks[index], self.inputs, points, self.batch, checkpoint, stop, reports.put, tell)
                for index, checkpoint in checkpoints.items()
            }
            pieces = _pieces(reports, list(futures.values()), seen)
            try:
                total = len(mine) * points[-1] // PIECE
                for _ in progress(pieces, description, total=total) if on_ranks.rank() == 0 else pieces:
                    pass
                done = {index: future.result() for index, future in futures.items()}
            except BaseException:
                stop.set()  # the workers save what they have; leaving the block waits for them
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        curves: dict[int, dict[str, Any]] = {}
        for share in on_ranks.gather(done):
            curves |= share
        self.seconds += sum(found["seconds"] for found in curves.values())
        self.problems += [found["problem"] for found in curves.values() if found["problem"]]
        return [curves[index] for index in range(len(tasks))]

    def finished(self) -> None:
        """Remove the checkpoints of everything that was trained."""
        while self._checkpoints:
            self._checkpoints.pop().remove()

    def _checkpoint(self, task: Task, points: Sequence[int]) -> Checkpoint:
        key = key_of(
            task=task,
            data=(self.inputs.name, self.inputs.digest, str(self.inputs.x.dtype)),
            device=_device_name(self.inputs.x.device),
            batch=self.batch,
            points=list(points),
            watched=self.inputs.watched,
        )
        return Checkpoint(key, self.folder, self.every_seconds)


def _pieces(reports: "queue.Queue[int | tuple]", futures: list[Future], seen: Seen) -> Iterator[None]:
    """One item for each PIECE of steps that any worker has taken, until all have finished; raises what one of them raised."""
    steps = 0
    while True:
        try:
            report = reports.get(timeout=0.1)
        except queue.Empty:
            state = wait(futures, timeout=0, return_when=FIRST_EXCEPTION)
            for future in state.done:
                future.result()  # raises what a worker has raised, so that the others stop
            if not state.not_done:
                return
            continue
        if isinstance(report, tuple):
            seen(*report)
            continue
        steps += report
        for _ in range(steps // PIECE):
            yield
        steps %= PIECE


def _cost(task: Task, inputs: Inputs) -> int:
    widths = [inputs.x.shape[1], *(width for width, _ in task.shape.hidden), 10]
    return len(task.settings) * sum(a * b for a, b in zip(widths[:-1], widths[1:], strict=True))


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
