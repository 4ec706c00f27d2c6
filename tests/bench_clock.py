"""What the clock claims of A against A and of a real 1.2 times, on a quiet machine and with 20 programs at once: `make bench`.

    python tests/bench_clock.py [runs] [programs …]

At a load, each of the programs takes such comparisons itself, so that every one is measured while all others run.
"""

import contextlib
import multiprocessing
import os
import random
import sys
from collections import Counter
from collections.abc import Callable
from itertools import repeat

import torch
import torch.nn.functional as F

from hpml_lab.core.timing.noise import CLAIMED, compare, wilson

RUNS, PROGRAMS = 200, (1, 20)
UNITS = 6, 5  # a real gain of 6 / 5


def works() -> dict[str, Callable[[], object]]:
    """One unit of work of each kind: in cache, bound by memory, many small operators, and Python alone."""
    square, wide, small = torch.randn(96, 96), torch.randn(1 << 19), torch.randn(64)
    return {
        "products": lambda: square @ square,
        "memory": lambda: wide + 1,
        "operators": lambda: F.gelu(small * 2 + small).sum(),
        "Python": lambda: sum(i * i for i in range(500)),
    }


def times(unit: Callable[[], object], count: int) -> Callable[[], None]:
    def work() -> None:
        for _ in repeat(None, count):
            unit()

    return work


def verdicts(number: int) -> list[tuple[str, str, str]]:
    """(kind of work, question, verdict) of A against A and of a real gain, by one program; `number` draws their order."""
    torch.set_num_threads(1)
    torch.manual_seed(number)
    found, kinds = [], works()
    for name in random.Random(number).sample(sorted(kinds), len(kinds)):
        before, after = (times(kinds[name], count) for count in UNITS)
        found.append((name, "A against A", compare(before, before).speed_up.verdict))
        found.append((name, "1.2 times", compare(before, after).speed_up.verdict))
    return found


def table(programs: int, runs: int) -> None:
    """Print the shares of claims with `programs` programs at once, each with one thread."""
    rounds = range(-(-runs // len(works())))
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(multiprocessing.get_context("spawn").Pool(programs)) if programs > 1 else None
        found = [row for rows in (pool.imap_unordered if pool else map)(verdicts, rounds) for row in rows]
    print(f"{programs} programs at once on {len(os.sched_getaffinity(0))} cores")
    for question in ("A against A", "1.2 times"):
        for name in [*works(), ""]:
            seen = Counter(verdict for kind, asked, verdict in found if asked == question and name in ("", kind))
            said = sum(seen[word] for word in CLAIMED) if question == "A against A" else seen["faster"]
            low, high = wilson(said, seen.total())
            print(
                f"    {question:12} {name or 'all':10} claimed in {said:4} of {seen.total():4}  ({low:.1%} to {high:.1%}; "
                f"{seen['slower']} slower)"
            )


if __name__ == "__main__":
    runs, *programs = [int(text) for text in sys.argv[1:]] or [RUNS]
    for count in programs or PROGRAMS:
        table(count, runs)
