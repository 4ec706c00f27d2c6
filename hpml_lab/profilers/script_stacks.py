"""A script's stacks in speedscope's form, as py-spy records them: work, waiting and imports by thread, function and line.

What ran in the script for the profiler is left out.
"""

import linecache
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpml_lab.core.experiment import Row, column
from hpml_lab.profilers.at_start import sitecustomize
from hpml_lab.profilers.python_stacks import LIBRARIES, PATIENT
from hpml_lab.profilers.stacks import DEEPEST, IMPORT_FRAMES, StackNode

RUNPY = "<frozen runpy>"
OWN_FILES = (sitecustomize.__file__, str(Path(__file__).with_name("operator_recorder.py")))  # what of us is in the script
IMPORT_HOOK = "_Torch.find_spec"
SLEEP = re.compile(r"\bsleep\(")
THREAD = re.compile(r'(?:Process (?P<process>\d+) )?Thread (?P<number>\d+)? ?"(?P<name>.*)"$')

Frame = tuple[str, str, int]  # function, file, line


@dataclass
class ThreadShare(Row):
    """One thread: its samples in which it worked, waited for something, or imported a module, in seconds."""

    thread: str = column("thread")
    work: float = column("worked", "s")
    waiting: float = column("waited", "s")
    imports: float = column("imported", "s")


@dataclass
class CodeLineShare(Row):
    """One line of the script's own code: its share of all work, with what it called (total), with what it called of libraries
    only (own), and without (self)."""

    line: str = column("line")
    source: str = column("source")
    total_percent: float = column("total", "%")
    self_percent: float = column("self", "%")
    own_percent: float = column("with libraries only", "%")


@dataclass
class ScriptStacks:
    """What was seen of a script.

    work, imports  trees of functions; where several threads worked, the threads are below the root
    threads        one row a thread, the one that worked most first
    lines          own lines (not those of libraries), the one with the largest total first
    """

    work: StackNode = field(default_factory=lambda: StackNode("all"))
    imports: StackNode = field(default_factory=lambda: StackNode("all"))
    threads: list[ThreadShare] = field(default_factory=list)
    lines: list[CodeLineShare] = field(default_factory=list)


def script_stacks(content: dict[str, Any], process_id: int = 0) -> ScriptStacks:
    """The stacks of a speedscope file (its content): samples are counted, weights give the seconds.

    process_id  of the script: its main thread may have no name yet at the first sample
    """
    found, in_line, at_line = ScriptStacks(), Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    own_line = Counter[tuple[str, int]]()
    shares: dict[str, ThreadShare] = {}
    for thread, stack, seconds in _samples(content, process_id):
        share = shares.setdefault(thread, ThreadShare(thread, 0.0, 0.0, 0.0))
        if any(name in file for _, file, _ in stack for name in IMPORT_FRAMES):
            share.imports += seconds
            found.imports.add([thread, *map(_function, stack[:DEEPEST])], 1)
        elif is_waiting(stack[-1]):
            share.waiting += seconds
        else:
            share.work += seconds
            found.work.add([thread, *map(_function, stack[:DEEPEST])], 1)
            own = [(file, line) for _, file, line in stack if line and not _is_library(file)]
            in_line.update(dict.fromkeys(own).keys())
            own_line.update(own[-1:])
            at_line[stack[-1][1:]] += 1
    for tree in (found.work, found.imports):
        if len(tree.children) == 1:  # a single thread needs no box
            (tree.children,) = (thread.children for thread in tree.children.values())
    found.threads = sorted(shares.values(), key=lambda share: (-share.work, -share.waiting))
    found.lines = [
        CodeLineShare(
            f"{short_file(file)}:{line}",
            linecache.getline(file, line).strip(),
            100 * samples / found.work.total,
            100 * at_line[file, line] / found.work.total,
            100 * own_line[file, line] / found.work.total,
        )
        for (file, line), samples in in_line.most_common()
    ]
    return found


def _samples(content: dict[str, Any], process_id: int) -> Iterator[tuple[str, list[Frame], float]]:
    """Thread, stack from the outermost frame inwards, and seconds of each sample of the script's own."""
    frames = [(frame["name"], frame.get("file") or "", frame.get("line") or 0) for frame in content["shared"]["frames"]]
    profiles = content["profiles"]
    processes = {_thread(profile["name"], process_id)[0] for profile in profiles}
    for profile in profiles:
        process, name = _thread(profile["name"], process_id)
        thread = f"process {process}, {name}" if len(processes) > 1 else name
        for numbers, seconds in zip(profile["samples"], profile["weights"], strict=True):
            if stack := own_frames([frames[number] for number in numbers]):
                yield thread, stack, seconds


def _thread(name: str, process_id: int) -> tuple[str, str]:
    """Process and thread, from a profile's name as py-spy writes it."""
    found = THREAD.match(name)
    if found is None:
        return "", name
    main = found["number"] == (found["process"] or str(process_id))
    return found["process"] or "", found["name"] or ("MainThread" if main else f"thread {found['number']}")


def own_frames(stack: Sequence[Frame]) -> list[Frame]:
    """The stack from the script's own first frame on; empty where what ran was the profiler's part of it."""
    frames = [frame for frame in stack if not (frame[0].startswith("process ") and not frame[1])]  # py-spy names the process so
    start = next((index for index, (_, file, _) in enumerate(frames) if file != RUNPY), len(frames))  # python -m begins with it
    own = [frame for frame in frames[start:] if not frame[0].startswith(IMPORT_HOOK)]  # called when torch is imported
    return [] if any(file.endswith(OWN_FILES) for _, file, _ in own) else own


def is_waiting(frame: Frame) -> bool:
    """Whether a thread whose innermost frame this is waits: for another thread or process, for input, or for time to pass."""
    _, file, line = frame
    innermost = file.removesuffix(".py") + "/"
    if _is_library(file) and any(f"/{name}/" in innermost for name in PATIENT):
        return True
    return bool(line and SLEEP.search(linecache.getline(file, line)))


def _is_library(file: str) -> bool:
    return any(name in file for name in LIBRARIES)


def _function(frame: Frame) -> str:
    return f"{frame[0]} ({short_file(frame[1])})".replace(";", ",")


def short_file(file: str) -> str:
    """A file's path below the current folder, below its package's folder, or as it is."""
    for marker in ("-packages/", "/lib/python"):
        if marker in file:
            rest = file.rpartition(marker)[2]
            return rest if marker == "-packages/" else rest.partition("/")[2]
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_absolute() and path.is_relative_to(os.getcwd()) else file
