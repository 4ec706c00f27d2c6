"""Profiles anybody's Python script and writes one HTML page: flame graph, functions, and torch's operators if torch ran.

py-spy watches from outside where it is installed and may; otherwise cProfile traces from inside. Imports are shown separately.
"""

import contextlib
import json
import os
import pstats
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hpml_lab.core import machine
from hpml_lab.core.errors import LabError
from hpml_lab.core.files import atomic_write
from hpml_lab.core.paths import ROOT
from hpml_lab.core.programs import started
from hpml_lab.core.tools import find_tool
from hpml_lab.profiling import launcher
from hpml_lab.profiling.flames import SCRIPT, flame_svg
from hpml_lab.profiling.foreground import exit_code, in_foreground
from hpml_lab.profiling.operator_recorder import OperatorRecorder
from hpml_lab.profiling.py_spy import reason
from hpml_lab.profiling.stacks import StackNode, frame_shares, read_stacks, split_imports

TEMPLATE = "profile.html.j2"
TOP = 30  # rows of a table
ATTACH_SECONDS = 15.0  # for py-spy to begin
WRITE_SECONDS = 30.0  # for py-spy to write its file once the script has ended
IMPORT_HOOK = OperatorRecorder.find_spec.__qualname__


@dataclass(frozen=True)
class ScriptProfile:
    """What was seen of one script.

    work, imports  its stacks, without and with the import of a module
    functions      cProfile's rows, where it measured
    operators      torch's operators: one dict a row, and the seconds that were recorded
    """

    command: str
    exit_code: int
    seconds: float
    how: str
    work: StackNode
    imports: StackNode
    functions: list[Any]
    operators: list[dict[str, Any]]
    operator_seconds: float
    notes: list[str]


def profile_script(
    script: Sequence[str], *, rate: int = 100, operator_seconds: float = 3.0, subprocesses: bool = False
) -> ScriptProfile:
    """Run `script` (a path, or -m and a module, then its arguments) under a profiler.

    rate              samples a second
    operator_seconds  how long torch's operators are recorded, 0 for not at all
    subprocesses      let py-spy watch what the script starts too, such as a DataLoader's workers
    """
    if script[0] != "-m" and not Path(script[0]).is_file():
        raise LabError(f"there is no script {script[0]!r}.", "Name a Python file, or -m and a module.")
    notes: list[str] = []
    with tempfile.TemporaryDirectory(prefix="hpml-profile-") as folder:
        read_end, write_end = os.pipe()
        settings = {
            "folder": folder,
            "measure": "functions",
            "operators": operator_seconds,
            "ready_fd": read_end,
            "rate": rate,
            "path": os.environ.get("PYTHONPATH"),
        }
        command = [sys.executable, "-P", "-m", launcher.__name__, json.dumps(settings), *script]
        start = time.perf_counter()
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, write_end)
            process = stack.enter_context(in_foreground(command, launch_environment(), pass_fds=(read_end,)))
            os.close(read_end)
            sampler = stack.enter_context(_py_spy(process.pid, Path(folder), rate, subprocesses, notes))
            with contextlib.suppress(BrokenPipeError):
                os.write(write_end, launcher.SAMPLED if sampler else launcher.TRACED)
            code = exit_code(process.wait())
            seconds = time.perf_counter() - start
            if sampler:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    sampler.wait(WRITE_SECONDS)
        how = f"py-spy, {rate} samples a second" if sampler else "cProfile, and a sampler for the stacks"
        return _read(Path(folder), " ".join(script), code, seconds, how, notes)


def launch_environment() -> dict[str, str]:
    """The environment in which the launcher is found; it gives the script the one that it should have."""
    search = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": search}


@contextlib.contextmanager
def _py_spy(process_id: int, folder: Path, rate: int, subprocesses: bool, notes: list[str]):
    """py-spy on the process, or None where it is absent or may not watch; `notes` then says why."""
    program = find_tool("py-spy")
    if program is None:
        notes.append("py-spy is not installed (`pip install py-spy`): cProfile traced every call, which slows small functions.")
        yield None
        return
    command = [program, "record", "--pid", str(process_id), "--format", "raw", "--output", str(folder / "stacks.txt")]
    command += ["--rate", str(rate), "--function", *(["--subprocesses"] if subprocesses else [])]
    log = folder / "py-spy.log"
    # In a group of its own, a Ctrl-C at the terminal does not end it before the script has ended.
    with log.open("wb") as messages, started(command, stdout=messages, stderr=messages) as sampler:
        end = time.monotonic() + ATTACH_SECONDS
        while sampler.poll() is None and time.monotonic() < end and b"Sampling process" not in log.read_bytes():
            time.sleep(0.02)
        if sampler.poll() is not None:
            notes.append(f"py-spy may not watch here ({reason(log.read_bytes())}): cProfile traced every call.")
            yield None
        else:
            yield sampler


def _read(folder: Path, command: str, code: int, seconds: float, how: str, notes: list[str]) -> ScriptProfile:
    stacks, stats, operators = folder / "stacks.txt", folder / "functions.pstats", folder / "operators.json"
    text = stacks.read_text() if stacks.is_file() else ""
    work, imports = split_imports(without_launcher(text))
    if not work:
        notes.append("No sample fell into the script's own work: it was too short, or only waited.")
    rows = []
    if stats.is_file():
        from hpml_lab.profiling.functions import function_rows

        rows = [row for row in function_rows(pstats.Stats(str(stats))) if "<frozen importlib" not in row.where]
    found = json.loads(operators.read_text()) if operators.is_file() else {"rows": [], "seconds": 0.0}
    if found["seconds"] and not found["rows"]:
        notes.append("torch's operators were not recorded: the script did not call any, or profiled itself.")
    return ScriptProfile(
        command=command,
        exit_code=code,
        seconds=seconds,
        how=how,
        work=read_stacks(work),
        imports=read_stacks(imports),
        functions=rows,
        operators=found["rows"],
        operator_seconds=found["seconds"],
        notes=notes,
    )


def without_launcher(folded: str) -> str:
    """The stacks from the script's own first frame on; what the launcher did for itself is left out."""
    lines = []
    for line in filter(str.strip, folded.splitlines()):
        stack, _, samples = line.rpartition(" ")
        frames = list(filter(None, stack.split(";")))  # a thread that runs no Python has no frame
        start = next((index for index, frame in enumerate(frames) if not _is_own(frame)), len(frames))
        launched = [frame for frame in frames[:start] if "launcher" in frame]
        started = not launched or any(frame.startswith(launcher.run_script.__name__) for frame in launched)
        own = [frame for frame in frames[start:] if IMPORT_HOOK not in frame]  # the recorder is called when torch is imported
        if own and started and not any(map(_is_own, own)):
            lines.append(f"{';'.join(own)} {samples}\n")
    return "".join(lines)


def _is_own(frame: str) -> bool:
    return any(name in frame for name in launcher.OWN_FILES)


def page(profile: ScriptProfile) -> str:
    """The profile as one HTML page that needs nothing but itself."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("hpml_lab.profiling", ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    samples = profile.work.total + profile.imports.total
    return environment.get_template(TEMPLATE).render(
        profile=profile,
        where=f"{machine.cpu_name()}, {machine.cores()} cores, Python {sys.version.split()[0]}",
        when=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        flame=Markup(flame_svg(profile.work, script=False)) if profile.work.total else "",
        import_flame=Markup(flame_svg(profile.imports, script=False)) if profile.imports.total else "",
        import_percent=100 * profile.imports.total / samples if samples else 0.0,
        shares=frame_shares(profile.work)[:TOP] if profile.work.total else [],
        functions=profile.functions[:TOP],
        operators=profile.operators[:TOP],
        script=Markup(SCRIPT),
    )


def write_page(profile: ScriptProfile, path: Path) -> Path:
    """Write the page, whole or not at all."""
    return atomic_write(path, page(profile))
