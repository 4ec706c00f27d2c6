"""What the clock claims of A against A and of a real 1.2 times, on a quiet machine and with 20 programs at once: `make bench`.

    python tests/bench_clock.py [runs] [programs …]

At a load, each of the programs takes such comparisons itself, so that every one is measured while all others run. Whole
scripts, of which a comparison starts seven copies, are measured next to programs that only compute, in a twentieth of the runs.
"""

import contextlib
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path

import torch
import torch.nn.functional as F

from hpml_lab.core.timing.noise import CLAIMED, compare, wilson
from hpml_lab.referee.script_turns import Candidate, Yardstick, compared

RUNS, PROGRAMS = 200, (1, 20)
UNITS = 6, 5  # a real gain of 6 / 5
SCRIPT = """
import sys, torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
optimizer, x = torch.optim.SGD(net.parameters(), lr=0.01), torch.randn(128, 64)
while True:
    for _ in range(int(sys.argv[1])):
        net(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


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
    say(found, [*works(), ""])


@contextlib.contextmanager
def busy(programs: int) -> Iterator[None]:
    """So many programs compute meanwhile."""
    with contextlib.ExitStack() as stack:
        for _ in range(programs):
            stack.callback(subprocess.Popen([sys.executable, "-c", "while True: pass"]).kill)
        yield


def of_scripts(programs: int, runs: int) -> None:
    """Print the same for whole scripts, next to `programs` − 1 that only compute."""
    found = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
        stack.enter_context(busy(programs - 1))
        base, fewer = (Candidate(f"units-{units}", [str(folder / "train.py"), str(units)]) for units in UNITS)
        same = Candidate("same", base.script)
        yardstick = Yardstick(base, 600.0)
        for _ in range(runs):
            shown = compared([same, fewer], yardstick, steps=20)
            found.append(("scripts", "A against A", shown["same"].gain.verdict))
            found.append(("scripts", "1.2 times", shown[fewer.name].gain.verdict))
    say(found, ["scripts"])


def say(found: list[tuple[str, str, str]], kinds: list[str]) -> None:
    for question in ("A against A", "1.2 times"):
        for name in kinds:
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
        of_scripts(count, -(-runs // 20))
