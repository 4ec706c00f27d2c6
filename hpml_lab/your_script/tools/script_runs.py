"""Runs a training script with one option after the other, and reads the line that it prints for each epoch."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.system.children import kill_group
from hpml_lab.core.system.programs import started, why_ended

NUMBER = r"(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?|nan|inf)"
EPOCH = re.compile(
    rf"epoch (\d+): load {NUMBER} s, train {NUMBER} s, total {NUMBER} s, loss {NUMBER}(?:, accuracy {NUMBER})?", re.IGNORECASE
)
FORM = "epoch 1: load 0.5 s, train 3.1 s, total 3.7 s, loss 1.82, accuracy 0.35"  # an example of that line
UNKNOWN_OPTION = re.compile(r"unrecognized arguments: (.*)|[Nn]o such option:? (.*)|(invalid choice: .*)")
ROUNDED = 0.15  # s: half a digit of each, where one is printed behind the point
GRACE_SECONDS = 10.0  # for a launcher to end its ranks, which are in process groups of their own


@dataclass
class EpochRow(Row):
    """One epoch, as the script has timed it."""

    epoch: int = column("epoch")
    load: float = column("load", "s")
    train: float = column("train", "s")
    total: float = column("total", "s")
    loss: float = column("loss")
    accuracy: float | None = column("accuracy", default=None)


@dataclass(frozen=True)
class ScriptRun:
    """One run of the script: its epochs, and why there are none, or not all; "" where it came to its end."""

    epochs: list[EpochRow] = field(default_factory=list)
    failed: str = ""
    seconds: float = 0.0

    @property
    def last(self) -> EpochRow:
        return self.epochs[-1]

    @property
    def losses(self) -> list[float]:
        return [row.loss for row in self.epochs]

    @property
    def warm_seconds(self) -> list[float]:
        """Of each epoch after the first, which starts workers and compiles; of the first where it is the only one."""
        return [row.total for row in self.epochs[1:] or self.epochs]

    @property
    def epoch_seconds(self) -> float:
        return min(self.warm_seconds)


def run_script(command: Sequence[str], *, deadline_seconds: float, environment: Mapping[str, str] | None = None) -> ScriptRun:
    """Run `python COMMAND…` to its end, or until the deadline, and read its epochs.

    A run that fails, or that prints no epoch, is no error here: `failed` says why.
    """
    start, pipe = time.monotonic(), subprocess.PIPE
    variables = {**os.environ, "PYTHON_COLORS": "0", **(environment or {})}
    options = {"stdout": pipe, "stderr": pipe, "text": True, "errors": "replace", "env": variables}
    late = False
    with started([sys.executable, *command], **options) as program:
        try:
            stdout, stderr = program.communicate(timeout=deadline_seconds)
        except subprocess.TimeoutExpired:
            late = True
            stdout, stderr = _end(program)
        except BaseException:
            _end(program)
            raise
    epochs = [_row(found) for found in EPOCH.finditer(stdout)]
    if late:
        failed = f"it was not done after {deadline_seconds:.0f} s; a shorter training, or --seconds, helps"
    else:
        failed = _why(program.returncode, stderr, epochs)
    return ScriptRun(epochs, failed, time.monotonic() - start)


def _end(program: subprocess.Popen) -> tuple[str, str]:
    """Ask a program to end, so that a launcher ends its ranks; kill it if it does not. Returns what it wrote."""
    program.terminate()
    try:
        return program.communicate(timeout=GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        kill_group(program.pid)
        program.kill()
        return program.communicate(timeout=GRACE_SECONDS)


def _row(found: re.Match[str]) -> EpochRow:
    number, load, train, total, loss, accuracy = found.groups()
    return EpochRow(int(number), *map(float, (load, train, total, loss)), None if accuracy is None else float(accuracy))


def _why(code: int, stderr: str, epochs: Sequence[EpochRow]) -> str:
    if code and (unknown := UNKNOWN_OPTION.search(stderr)):
        return f"it does not take this: {next(filter(None, unknown.groups())).strip()}"
    if code:
        return why_ended(code, stderr) or f"exit code {code}"
    if not epochs:
        return f"it prints no line of the form `{FORM}`"
    if not all(row.train > 0 and row.total > 0 for row in epochs):
        return "it prints epochs of 0 s: print more digits"
    return "its load and train are more than the epoch's total" if any(map(more_than_whole, epochs)) else ""


def more_than_whole(row: EpochRow) -> bool:
    """Whether an epoch's parts are none of its total, beyond what three numbers lose by rounding; nan is none, either."""
    return not (row.load >= 0 and row.load + row.train <= 1.05 * row.total + ROUNDED)
