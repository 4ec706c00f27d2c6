"""`wall-time`: ⌈tasks / how many run at the same time⌉ · seconds, for threads and for processes."""

import math
from collections.abc import Callable

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.rubric import Rubric

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


def right(tasks: int, seconds: float, workers: int, cores: int, kind: str, on: str) -> float:
    """The workers that are served at the same time, then full rounds."""
    served = workers if kind == "wait" else min(workers, cores)
    if kind == "python" and on == "threads":
        served = 1
    rounds = math.ceil(tasks / served)
    return rounds * seconds


RUBRIC = Rubric(
    right,
    """
workers if kind == "wait" else min(workers, cores)
    cores-forgotten :: workers :: More workers than cores do not compute faster. min(workers, …)
    waiting-needs-cores :: min(workers, cores) :: Waiting needs no core: a hundred threads can wait on one.
    waiting-needs-cores :: workers if (kind, on) == ("wait", "threads") else min(workers, cores) :: Waiting needs no core: as
        many processes can wait at the same time as threads.
    workers-forgotten :: workers if kind == "wait" else cores :: Fewer workers than cores leave cores idle: no more tasks run at
        the same time than there are workers.
    product-needs-no-core :: min(workers, cores) if kind == "python" else workers :: A product that has released the GIL still
        needs a core to compute on.
    processes-never-limited :: workers if kind == "wait" or on == "processes" else min(workers, cores) :: More processes than
        cores do not compute faster.
if kind == "python" and on == "threads":
    gil-forgotten :: if False: :: Threads of one process share the GIL: how many of them can run a Python loop at the same time?
    gil-while-waiting :: if kind != "numpy" and on == "threads": :: A thread that waits for a disk or a network has released the
        GIL. Which threads can wait meanwhile?
    gil-in-numpy :: if kind != "wait" and on == "threads": :: NumPy releases the GIL during a large product. Does a second
        thread have to wait for it?
    threads-never-help :: if on == "threads": :: That is the slide's rule, and it is only right for Python bytecode. Waiting, or
        computing in C, needs no GIL.
    gil-between-processes :: if kind == "python": :: Each process has a GIL of its own: processes run Python loops at the same
        time.
    threads-and-processes-swapped :: if kind == "python" and on == "processes": :: Threads share one GIL, processes do not: in
        yours it is the other way round.
    one-after-the-other :: if True: :: That is the time of one worker: which tasks can run at the same time?
math.ceil(tasks / served)
    rounds-of-workers :: (tasks if (kind, on) == ("python", "threads") else -(-tasks // workers) * -(-workers // served)) ::
        Workers do not wait for each other after each round. A core that is free takes the next task at once.
    rounds-of-workers :: math.ceil(tasks / workers) * math.ceil(workers / served) :: Workers do not wait for each other after
        each round. A core that is free takes the next task at once.
    one-round-too-many :: tasks // served + 1 :: $LEFT_OVER
    one-round-too-many :: tasks if (kind, on) == ("python", "threads") else tasks // served + 1 :: $LEFT_OVER
    rounded-to-the-nearest :: round(tasks / served) :: 9 tasks on 4 workers take 3 rounds, not round(2.25): a round that is not
        full takes its whole time.
    all-in-one-round :: 1 :: That is one round. How many are needed if not all tasks run at the same time?
    part-of-a-round :: tasks / served :: $WHOLE
    part-of-a-round :: max(1, tasks / served) :: $WHOLE
    full-rounds-only :: tasks // served :: The tasks that are left over after the last full round take time too.
""",
    LEFT_OVER="8 tasks on 4 workers take 2 rounds, not 3: + 1 is right only if tasks are left over.",
    WHOLE="9 tasks on 4 workers do not take 2.25 rounds: the last task takes its whole time. math.ceil",
)


@exercise("wall-time", notebook="07_processes", takes="tasks, seconds, workers, cores, kind, on", returns=float)
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
    RUBRIC.expect(answer, cases)
