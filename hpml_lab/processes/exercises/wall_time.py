"""`wall-time`: ⌈tasks / how many run at the same time⌉ · seconds, for threads and for processes."""

import math
from collections.abc import Callable

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect_function

# (tasks, seconds, workers, cores)
SIZES = (
    (4, 1.0, 4, 8),
    (8, 0.5, 4, 2),
    (9, 2.0, 4, 4),
    (12, 0.1, 12, 4),
    (9, 0.5, 2, 8),  # workers < cores < tasks
    (10, 3.0, 3, 1),
    (3, 2.0, 8, 5),  # more workers than tasks
    (9, 0.25, 9, 2),
    (7, 0.0123456, 3, 2),  # digits that rounding hides
)
WORK = {"python": "a Python loop", "wait": "waiting for a disk", "numpy": "a NumPy product, which releases the GIL"}


def _at_once(kind: str, on: str, workers: int, cores: int) -> int:
    """How many of the workers are really served at the same time."""
    if kind == "wait":
        return workers
    return 1 if kind == "python" and on == "threads" else min(workers, cores)


def _wall_time(at_once: Callable[[str, str, int, int], int], rounds: Callable[[float], float] = math.ceil) -> Callable:
    """The right function with one part replaced: how many run at the same time, or how the number of rounds is rounded."""

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
    "waiting-needs-cores, in processes": (
        _wall_time(
            lambda kind, on, workers, cores: min(workers, cores) if on == "processes" else _at_once(kind, on, workers, cores)
        ),
        "Waiting needs no core: as many processes can wait at the same time as threads.",
    ),
    "rounds-of-workers": (
        lambda tasks, seconds, workers, cores, kind, on: (
            seconds * tasks
            if kind == "python" and on == "threads"
            else seconds * math.ceil(tasks / workers) * math.ceil(workers / _at_once(kind, on, workers, cores))
        ),
        "You let the workers wait for each other after each round. A core that is free takes the next task at once.",
    ),
    "workers-forgotten": (
        _wall_time(
            lambda kind, on, workers, cores: 1 if kind == "python" and on == "threads" else workers if kind == "wait" else cores
        ),
        "Fewer workers than cores leave cores idle: no more tasks run at the same time than there are workers.",
    ),
    "gil-between-processes": (
        _wall_time(lambda kind, on, workers, cores: 1 if kind == "python" else _at_once(kind, on, workers, cores)),
        "Each process has a GIL of its own: processes run Python loops at the same time.",
    ),
    "threads-and-processes-swapped": (
        _wall_time(lambda kind, on, *n: _at_once(kind, "threads" if on == "processes" else "processes", *n)),
        "Threads share one GIL, processes do not: in yours it is the other way round.",
    ),
    "product-needs-no-core": (
        _wall_time(lambda kind, on, workers, cores: workers if kind == "numpy" else _at_once(kind, on, workers, cores)),
        "A product that has released the GIL still needs a core to compute on.",
    ),
    "processes-never-limited": (
        _wall_time(lambda kind, on, workers, cores: workers if on == "processes" else _at_once(kind, on, workers, cores)),
        "More processes than cores do not compute faster.",
    ),
    "one-after-the-other": (_wall_time(lambda *_: 1), "That is the time of one worker: which tasks can run at the same time?"),
    "one-round-too-many": (
        _wall_time(_at_once, rounds=lambda rounds: math.floor(rounds) + 1),
        "8 tasks on 4 workers take 2 rounds, not 3: + 1 is right only if tasks are left over.",
    ),
    "one-round-too-many, but not of Python threads": (
        lambda tasks, seconds, workers, cores, kind, on: _wall_time(
            _at_once, math.ceil if (kind, on) == ("python", "threads") else lambda rounds: math.floor(rounds) + 1
        )(tasks, seconds, workers, cores, kind, on),
        "8 tasks on 4 workers take 2 rounds, not 3: + 1 is right only if tasks are left over.",
    ),
    "rounded-to-the-nearest": (
        _wall_time(_at_once, rounds=round),
        "9 tasks on 4 workers take 3 rounds, not round(2.25): a round that is not full takes its whole time.",
    ),
    "rounds-for-time": (
        lambda tasks, seconds, *rest: math.ceil(_wall_time(_at_once)(tasks, 1.0, *rest)),
        "That is the number of rounds; each takes `seconds`.",
    ),
    "all-in-one-round": (
        lambda tasks, seconds, *rest: seconds,
        "That is one round. How many are needed if not all tasks run at the same time?",
    ),
    "part-of-a-round": (
        _wall_time(_at_once, rounds=float),
        "9 tasks on 4 workers do not take 2.25 rounds: the last task takes its whole time. math.ceil",
    ),
    "part-of-a-round, at least one": (
        lambda tasks, seconds, *rest: max(seconds, tasks * seconds / _at_once(rest[2], rest[3], rest[0], rest[1])),
        "9 tasks on 4 workers do not take 2.25 rounds: the last task takes its whole time. math.ceil",
    ),
    "full-rounds-only": (
        _wall_time(_at_once, rounds=math.floor),
        "The tasks that are left over after the last full round take time too.",
    ),
    "speed-up-for-time": (
        lambda tasks, seconds, workers, cores, kind, on: float(_at_once(kind, on, workers, cores)),
        "That is how many run at the same time. The time until all are done is wanted.",
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
