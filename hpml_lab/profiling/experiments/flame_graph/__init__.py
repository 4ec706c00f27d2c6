"""Flame graphs: where a running training program spends its time, seen from outside."""

import contextlib
import random
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.programs import python_environment, started
from hpml_lab.core.system.installed import find_tool
from hpml_lab.data import DataSet, load
from hpml_lab.profilers import stacks
from hpml_lab.profiling.views.icicle import draw_icicle
from hpml_lab.profilers.py_spy import NOT_INSTALLED, read_speedscope, record_stacks
from hpml_lab.profiling.tools.perf import perf_stacks
from hpml_lab.profilers.stacks import function_name
from hpml_lab.profiling.lessons import native_program, training_program

QUICK = dict(seconds=0.6, rate=200, stacks=60, deadline_seconds=60.0)
FULL = dict(seconds=10.0, rate=100, stacks=600, deadline_seconds=120.0)
HOT = training_program.noise_by_hand.__name__  # the function of the training program that is slow on purpose
SHARE, IMPORTS = "self share of the slow function", "share of samples in imports"
WATCHED, WRITTEN = "py-spy on a training program", "stacks that this run wrote"
NATIVE, BELOW = "perf on a program of Python and C", "share of samples in C, below the function that calls zlib"


@dataclass
class SpeedscopeFile(Row):
    """What a recorded speedscope file holds."""

    samples: int = column("samples")
    weights: float = column("sum of the weights", "s")
    end: float = column("end of the profile", "s")
    names_hot: bool = column("names the slow function")


# ---- measuring -------------------------------------------------------------------------------------------------------


def written_stacks(number: int) -> list[tuple[str, int]]:
    """Stacks with samples that a sampler might have seen, recursion among them; the slow function holds most of them."""
    chance = random.Random(0)
    others = ("train_step;forward", "train_step;backward", "load;decode", "load;walk;walk;walk", "train_step;forward;walk")
    found = [(f"main;train;{chance.choice(others)}", chance.randint(1, 5)) for _ in range(number)]
    return [*found, (f"main;train;{HOT}", 5 * number)]


@contextlib.contextmanager
def training_process(data: DataSet, deadline_seconds: float = 60.0) -> Iterator[int]:
    """Start the training program and give its process number once it is warm; at the end of the block it is gone.

    Raises LabError where it does not get warm within `deadline_seconds`.
    """
    name = training_program.__name__
    with tempfile.TemporaryFile() as images:  # not a pipe: writing into one would wait for the program
        np.savez(images, x=data.train_x.numpy(), y=data.train_y.numpy())
        images.seek(0)
        # -P: the current folder is not searched for modules. Should this process be killed, the program ends by itself.
        command = [sys.executable, "-P", "-m", name, str(2 * deadline_seconds)]
        streams = {"stdin": images, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with started(command, env=python_environment(), **streams) as program:
            ready, _, _ = select.select([program.stdout], [], [], deadline_seconds)
            if not ready or training_program.WARM.encode() not in program.stdout.readline():
                raise LabError("The training program did not start.", f"Run `python -m {name} 5 < data.npz` to see why.")
            yield program.pid


def watch_training(params: Params, folder: str) -> tuple[str, SpeedscopeFile]:
    """The stacks, imports among them, that py-spy saw of a training program, and its speedscope file. Raises LabError if it
    may not watch."""
    if find_tool("py-spy") is None:
        raise NOT_INSTALLED
    options = dict(seconds=params.seconds, rate=params.rate, imports=True)
    with training_process(load("digits"), params.deadline_seconds) as process_id:
        folded = record_stacks(process_id, Path(folder) / "stacks.txt", **options).read_text(encoding="utf-8")
        scope = read_speedscope(record_stacks(process_id, Path(folder) / "scope.json", **options))
    return folded, SpeedscopeFile(scope["samples"], scope["weights"], scope["end"], HOT in scope["frames"])


def watch_native(seconds: float, folder: str) -> str:
    """The stacks that perf saw of a program of Python and C, by this Python or by python3.13, where perf sees its functions;
    without Python's own start and end. Raises LabError where it sees those of neither, or may not watch."""
    failed, script = None, Path(native_program.__file__)
    for python in filter(None, (sys.executable, find_tool("python3.13"))):
        try:
            folded = perf_stacks([str(script), str(seconds)], folder, python)
            return "".join(line for line in folded.splitlines(keepends=True) if script.name in line)
        except LabError as error:
            failed = failed or error
    raise failed


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Icicle of a training program: each box is a function, as wide as its share of the samples, below the one that called it;
    neighbors stand in alphabetical order, not in order of time. The function that is slow on purpose is red: look for wide
    boxes with nothing below them. Where py-spy may not watch a program, the figure shows stacks that the run wrote itself.
    Where perf sees Python's functions, a second icicle has them and C's in one: what the red function calls is C."""
    drawn = [(result.arrays["source"], result.arrays["folded"], HOT)]
    if native := result.arrays.get("native"):
        drawn.append((NATIVE, native, native_program.packed.__name__))
    figure = style.new_figure(9, 4.4 * len(drawn))
    for axes, (source, folded, hot) in zip(figure.subplots(len(drawn), squeeze=False)[:, 0], drawn, strict=True):
        root = stacks.read_stacks(folded)
        draw_icicle(axes, root, hot)
        axes.set_title(f"{source}: {root.total} samples")
    return figure


# ---- the experiment --------------------------------------------------------------------------------------------------


@experiment(
    "flame-graph", lecture="L1 L3", notebook="10_profiling", draw=draw, quick=QUICK, full=FULL, uses=("py-spy", "perf")
)  # fmt: skip
def flame_graph(params: Params) -> Result:
    """Flame graph: where a running training program spends its time, seen from outside."""
    watched: tuple[str, SpeedscopeFile] | None = None
    notes, native = [], ""
    with tempfile.TemporaryDirectory(prefix="hpml-stacks-") as folder:
        try:
            watched = watch_training(params, folder)
        except LabError as error:
            notes.append(f"{error} Until then the figure shows stacks that this run wrote itself.")
        try:
            native = watch_native(params.seconds, folder)
        except LabError as error:
            notes.append(f"{error} Until then there is no graph of Python's and C's functions in one.")

    result = Result(notes=notes)
    if watched is None:
        text = "".join(f"{stack} {samples}\n" for stack, samples in written_stacks(params.stacks))
        result.arrays |= {"folded": text, "source": WRITTEN}
        result.key_figure(SHARE, unit="%")
    else:
        result.arrays |= {"folded": watched[0], "source": WATCHED}
        measure_training(result, params, *watched)
    root = stacks.read_stacks(result.arrays["folded"])
    shares = stacks.frame_shares(root)
    result.tables.insert(0, Table(f"Functions by their self share: {result.arrays['source']}", shares[:10]))
    result.claim(
        "The self samples of all functions are all samples: each stack ends in one function, and passes through many",
        sum(row.own for row in shares) == root.total < sum(row.total for row in shares),
        f"{root.total} samples; the totals sum to {sum(row.total for row in shares)}",
    )
    result.key_figure(BELOW, measure_native(result, native) if native else None, unit="%")
    return result


def measure_native(result: Result, folded: str) -> float:
    """What perf saw of Python and C; returns the share of the samples in C below the function that calls it, in %."""
    result.arrays["native"], name = folded, native_program.packed.__name__
    root = stacks.read_stacks(folded)
    result.tables.append(Table(f"Functions by their self share: {NATIVE}", stacks.frame_shares(root)[:10]))
    callers = [node for node in root.walk() if function_name(node.frame) == name]
    share = 100 * sum(called.total for node in callers for called in node.children.values()) / root.total
    result.measured(
        "perf shows C's functions below the Python function that calls them, in one graph",
        share > 0,
        f"{share:.0f} % of the samples are in C below {name}",
    )
    return share


def measure_training(result: Result, params: Params, folded: str, scope: SpeedscopeFile) -> None:
    """Claims about what py-spy saw of the running program."""
    shares: list[Any] = stacks.frame_shares(stacks.read_stacks(folded))
    hot = next((row.own_percent for row in shares if function_name(row.frame) == HOT), 0.0)
    work, imported = stacks.split_imports(folded)
    imports = 100 * stacks.read_stacks(imported).total / stacks.read_stacks(work + imported).total
    result.tables.append(Table("The speedscope file", [scope]))
    result.key_figure(SHARE, hot, unit="%")
    result.key_figure(IMPORTS, imports, unit="%")
    result.measured(
        "In the running program the slow function has the largest self share",
        function_name(shares[0].frame) == HOT,
        f"{shares[0].frame} with {shares[0].own_percent:.0f} %",
    )
    result.measured(
        "The weights of the speedscope file sum to the time covered, one period a sample",
        abs(scope.weights - scope.end) < 1e-6 and abs(scope.weights - scope.samples / params.rate) < 1e-6,
        f"{scope.samples} samples, {scope.weights:.2f} s",
    )
    result.measured("A program that is watched once it is warm shows no import", imports == 0, f"{imports:.0f} %")
