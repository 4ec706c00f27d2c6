"""`wall-time`: ⌈tasks / how many run at once⌉ · seconds, for threads and for processes."""

import math
from collections.abc import Callable

from hpml_lab.core.exercises import exercise, expect_function

# (tasks, seconds, workers, cores)
SIZES = ((4, 1.0, 4, 8), (8, 0.5, 4, 2), (9, 2.0, 4, 4), (12, 0.1, 12, 4))
WORK = {"python": "a Python loop", "wait": "waiting for a disk", "numpy": "a NumPy product, which releases the GIL"}


def _at_once(kind: str, on: str, workers: int, cores: int) -> int:
    """How many of the workers are really served at the same time."""
    if kind == "wait":
        return workers
    return 1 if kind == "python" and on == "threads" else min(workers, cores)


def _wall_time(at_once: Callable[[str, str, int, int], int], rounds: Callable[[float], float] = math.ceil) -> Callable:
    """The right function with one part replaced: how many run at once, or how the number of rounds is rounded."""

    def wall_time(tasks: int, seconds: float, workers: int, cores: int, kind: str, on: str) -> float:
        return rounds(tasks / at_once(kind, on, workers, cores)) * seconds

    return wall_time


MISTAKES: dict[str, tuple[Callable, str]] = {
    "gil-forgotten": (
        _wall_time(lambda kind, on, workers, cores: workers if kind == "wait" else min(workers, cores)),
        "Threads of one process share the GIL: how many of them can run a Python loop at the same time?",
    ),
    "gil-while-waiting": (
        _wall_time(
            lambda kind, on, workers, cores: 1 if on == "threads" and kind != "numpy" else _at_once(kind, on, workers, cores)
        ),
        "A thread that waits for a disk or a network has released the GIL. Which threads can wait meanwhile?",
    ),
    "gil-in-numpy": (
        _wall_time(
            lambda kind, on, workers, cores: 1 if on == "threads" and kind != "wait" else _at_once(kind, on, workers, cores)
        ),
        "NumPy releases the GIL during a large product. Does a second thread have to wait for it?",
    ),
    "threads-never-help": (
        _wall_time(lambda kind, on, workers, cores: 1 if on == "threads" else _at_once(kind, on, workers, cores)),
        "That is the slide's rule, and it is only right for Python bytecode. Waiting, or computing in C, needs no GIL.",
    ),
    "cores-forgotten": (
        _wall_time(lambda kind, on, workers, cores: 1 if kind == "python" and on == "threads" else workers),
        "More workers than cores do not compute faster. min(workers, …)",
    ),
    "waiting-needs-cores": (
        _wall_time(
            lambda kind, on, workers, cores: min(workers, cores) if kind == "wait" else _at_once(kind, on, workers, cores)
        ),
        "Waiting needs no core: a hundred threads can wait on one.",
    ),
    "part-of-a-round": (
        _wall_time(_at_once, rounds=float),
        "9 tasks on 4 workers do not take 2.25 rounds: the last task takes its whole time. math.ceil",
    ),
    "full-rounds-only": (
        _wall_time(_at_once, rounds=math.floor),
        "The tasks that are left over after the last full round take time too.",
    ),
    "speed-up-for-time": (
        lambda tasks, seconds, workers, cores, kind, on: float(_at_once(kind, on, workers, cores)),
        "That is how many run at once. The time until all are done is wanted.",
    ),
}


@exercise("wall-time", notebook="07_processes")
def judge_wall_time(answer: Callable) -> None:
    """Every kind of work, on threads and on processes; over all cases, because in a single one several mistakes look alike."""
    cases = {
        f"{tasks} tasks of {seconds:g} s, {workers} {on}, {cores} cores, {WORK[kind]}": (
            tasks,
            seconds,
            workers,
            cores,
            kind,
            on,
        )
        for kind in WORK
        for on in ("threads", "processes")
        for tasks, seconds, workers, cores in SIZES
    }
    expect_function(answer, _wall_time(_at_once), cases, mistakes=MISTAKES)
