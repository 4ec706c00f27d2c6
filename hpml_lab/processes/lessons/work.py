"""What the workers of this topic do. Nothing here needs torch: a spawned child imports this module when it starts."""

import os
import time
from typing import Any

from hpml_lab.core.system.shared_clock import CLOCK


def greet(name: str) -> None:
    """The lecture's first f: say hello."""
    print("hello", name)


def square(x: float) -> float:
    """The lecture's second f: x·x."""
    return x * x


def square_with_times(task: tuple[float, float]) -> tuple[float, int, float, float]:
    """x·x after a wait that stands for work, with who did it and when.

    task  (x, seconds to wait)
    Returns (x·x, process id, start, end) in seconds of timeline.CLOCK.
    """
    x, seconds = task
    start = CLOCK()
    time.sleep(seconds)
    return square(x), os.getpid(), start, CLOCK()


def report_ready(arrivals: Any) -> None:
    """Put this process's id and the time into the queue `arrivals`."""
    arrivals.put((os.getpid(), CLOCK()))


def send_time(connection: Any) -> None:
    """Send the time of this line: the first moment at which a started worker could work."""
    connection.send(CLOCK())
    connection.close()
