"""Stacks that a sampler saw: read from folded text into a tree, counted by function, drawn as an icicle; and py-spy's runs.

Folded text has one line a stack: the frames from the outermost inwards with semicolons between them, a space, the samples.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import hpml_lab
from hpml_lab.core import style
from hpml_lab.core.errors import LabError
from hpml_lab.data import DataSet
from hpml_lab.profiling import training_program

END_SECONDS = 10.0
NOTHING_LEFT = "no process and no file is left behind"
HOT = training_program.noise_by_hand.__name__  # the function that was planted in the training program
FORMATS = {".txt": "raw", ".json": "speedscope", ".svg": "flamegraph"}


# ---- the tree -----------------------------------------------------------------------------------------------------------


@dataclass
class StackNode:
    """A frame and what it called: `own` samples ended in it, `total` passed through it."""

    frame: str
    own: int = 0
    total: int = 0
    children: dict[str, "StackNode"] = field(default_factory=dict)

    def walk(self) -> Iterator["StackNode"]:
        """This node and all below it."""
        yield self
        for child in self.children.values():
            yield from child.walk()


def tree(folded: str) -> StackNode:
    """The tree of all stacks of a folded text, below a root called "all". Raises LabError for a line that is no stack."""
    root = StackNode("all")
    for line in filter(None, map(str.strip, folded.splitlines())):
        stack, _, samples = line.rpartition(" ")
        if not stack or not samples.isdecimal():
            raise LabError(f"{line!r} is no folded stack.", "A line is `outer;inner 12`: frames, a space, samples.")
        node, count = root, int(samples)
        node.total += count
        for frame in stack.split(";"):
            node = node.children.setdefault(frame, StackNode(frame))
            node.total += count
        node.own += count
    return root


def folded(root: StackNode) -> str:
    """The tree as folded text again, its lines sorted."""
    lines = []

    def write(node: StackNode, above: str) -> None:
        stack = f"{above};{node.frame}" if above else node.frame
        if node.own:
            lines.append(f"{stack} {node.own}")
        for child in node.children.values():
            write(child, stack)

    for child in root.children.values():
        write(child, "")
    return "\n".join(sorted(lines)) + "\n"


def shares(root: StackNode) -> list[dict[str, Any]]:
    """One row a frame, the largest self share first; a stack in which a function called itself counts once in its total."""
    found: dict[str, list[int]] = {}

    def count(node: StackNode, above: frozenset[str]) -> None:
        own_total = found.setdefault(node.frame, [0, 0])
        own_total[0] += node.own
        if node.frame not in above:
            own_total[1] += node.total
        for child in node.children.values():
            count(child, above | {node.frame})

    for child in root.children.values():
        count(child, frozenset())
    rows = [
        {
            "frame": frame,
            "self samples": own,
            "self %": 100 * own / root.total,
            "total samples": total,
            "total %": 100 * total / root.total,
        }
        for frame, (own, total) in found.items()
    ]
    return sorted(rows, key=lambda row: (-row["self samples"], -row["total samples"]))


def function_of(frame: str) -> str:
    """The function's name in a frame as py-spy writes it, "name (file.py:12)"."""
    return frame.split(" (")[0]


def icicle(axes, root: StackNode, hot: str = "") -> None:
    """Draw a tree as an icicle, the flame graph upside down: a box a frame, as wide as its share, below the one that called it.

    hot  the function whose boxes are drawn in red
    """

    def box(node: StackNode, left: float, depth: int) -> None:
        width = 100 * node.total / root.total
        name = function_of(node.frame)
        colour = style.RED if name == hot else style.GREY if depth == 0 else (style.ORANGE, style.YELLOW)[depth % 2]
        axes.barh(depth, width, 0.96, left, align="center", color=colour, edgecolor="white", linewidth=0.8)
        room = int(width * 1.1)  # letters of this size in a box of this width, in a figure ten inches wide
        if room >= 4:
            text = name if len(name) <= room else f"{name[: room - 1]}…"
            axes.text(
                left + 0.4, depth, text, va="center", fontsize=8, color="white" if name == hot else style.INK, clip_on=True
            )
        for child in sorted(node.children.values(), key=lambda one: one.frame):
            box(child, left, depth + 1)
            left += 100 * child.total / root.total

    box(root, 0.0, 0)
    axes.invert_yaxis()
    axes.set(xlim=(0, 100), xlabel="share of the samples, %", ylabel="depth of the call")
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.grid(visible=False)


# ---- py-spy -------------------------------------------------------------------------------------------------------------


def py_spy() -> str | None:
    """The py-spy of this Python, else the one on the path, else None."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.is_file() else shutil.which("py-spy")


def record(pid: int, path: Path | str, seconds: float = 1.0, rate: int = 100) -> Path:
    """Let py-spy watch the Python process `pid` and write what it saw to `path`.

    path     ends with .txt for folded stacks, .json for speedscope (speedscope.app opens it), .svg for a picture
    rate     samples a second
    A file that is there already is replaced. Raises LabError where py-spy is absent, may not watch, or sees nothing.
    """
    path, program = Path(path), py_spy()
    if path.suffix not in FORMATS:
        raise LabError(f"py-spy has no format for {path.name!r}.", f"Let it end with {', '.join(FORMATS)}.")
    if program is None:
        raise LabError("py-spy is not installed here.", "pip install py-spy")
    path.unlink(missing_ok=True)  # an older watch's file would pass for this one's where py-spy writes none
    # --duration takes whole seconds only; at an interrupt py-spy ends its watch and writes its file.
    command = [program, "record", "--pid", str(pid), "--format", FORMATS[path.suffix], "--output", str(path)]
    command += ["--rate", str(rate), "--function"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as watcher:
        try:
            _, said = watcher.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            watcher.send_signal(signal.SIGINT)
            try:
                _, said = watcher.communicate(timeout=END_SECONDS)
            except subprocess.TimeoutExpired:
                said = b"it did not end"
        finally:
            watcher.kill()
    if path.is_file() and not path.stat().st_size and watcher.returncode == 0:
        raise LabError("py-spy saw the process run no Python.", "Watch it while it works; one that waits has no samples.")
    if not path.is_file() or not path.stat().st_size:
        reason = next((line for line in said.decode(errors="replace").splitlines() if line.strip()), "it saw nothing")
        raise LabError(
            f"py-spy could not watch the process ({reason.strip()}).",
            "On Linux allow it (`sudo sysctl kernel.yama.ptrace_scope=0`; in Docker `--cap-add SYS_PTRACE`); macOS wants root.",
        )
    return path


@contextlib.contextmanager
def training(data: DataSet, deadline: float = 60.0) -> Iterator[int]:
    """Start the training program `trained` and give its process number once it is warm; at the end it is gone.

    Raises LabError where it does not get warm within `deadline` seconds.
    """
    home = str(Path(hpml_lab.__file__).resolve().parents[1])
    search = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryFile() as given:  # not a pipe: writing into one would wait for the program
        np.savez(given, x=data.train_x.numpy(), y=data.train_y.numpy())
        given.seek(0)
        child = subprocess.Popen(
            # -P: the current folder is not searched for modules. Should this process be killed, the program ends by itself.
            [sys.executable, "-P", "-m", training_program.__name__, str(2 * deadline)],
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": search},
        )
    try:
        ready, _, _ = select.select([child.stdout], [], [], deadline)
        if not ready or training_program.WARM.encode() not in child.stdout.readline():
            raise LabError(
                "The training program did not start.", f"Run `python -m {training_program.__name__} 5 < data.npz` to see why."
            )
        yield child.pid
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def record_training(data: DataSet, path: Path | str, seconds: float = 1.0, rate: int = 100) -> Path:
    """Watch a fresh training program and write what py-spy saw to `path` (.txt, .json for speedscope.app, or .svg)."""
    with training(data) as pid:
        return record(pid, path, seconds, rate)


def speedscope(path: Path | str) -> dict[str, Any]:
    """What a speedscope file holds: {"frames": names, "samples": stacks, "unit": …, "weights": their sum, "end": …}.

    py-spy writes nulls (`activeProfileIndex`, a frame's `col`) that the published schema does not allow; viewers take them.
    """
    content = json.loads(Path(path).read_text())
    profiles = content["profiles"]
    return {
        "frames": [one["name"] for one in content["shared"]["frames"]],
        "samples": sum(len(one["samples"]) for one in profiles),
        "weights": sum(sum(one["weights"]) for one in profiles),
        "end": sum(one["endValue"] for one in profiles),
        "unit": profiles[0]["unit"],
    }


def temporary() -> tempfile.TemporaryDirectory:
    """A folder for a run's own files; gone at the end of its `with` block."""
    return tempfile.TemporaryDirectory(prefix="hpml-stacks-")


def children() -> set[int]:
    """The numbers of all processes that this one has started and that still run."""
    return {child.pid for child in psutil.Process().children(recursive=True)}
