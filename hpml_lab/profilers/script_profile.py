"""Profiles anybody's Python script and writes one HTML page: flame graph, functions, lines, and torch's operators if torch ran.

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

from hpml_lab.core.system import machine
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.files import atomic_write
from hpml_lab.core.system.installed import find_tool
from hpml_lab.core.system.programs import started
from hpml_lab.profilers import script_launcher
from hpml_lab.profilers.flames import SCRIPT, flame_svg
from hpml_lab.profilers.foreground import exit_code, in_foreground
from hpml_lab.profilers.operator_table import OperatorTable, operator_table
from hpml_lab.profilers.py_spy import reason
from hpml_lab.profilers.script_stacks import ScriptStacks, script_stacks
from hpml_lab.profilers.stacks import frame_shares

TEMPLATE = "profile.html.j2"
TOP = 30  # rows of a table
ATTACH_SECONDS = 15.0  # for py-spy to begin
WRITE_SECONDS = 30.0  # for py-spy to write its file once the script has ended


@dataclass(frozen=True)
class ScriptProfile:
    """What was seen of one script.

    stacks      its threads, functions and lines
    functions   cProfile's rows, where it measured
    operators   torch's
    speedscope  the stacks as they were recorded, "" if there are none
    """

    command: str
    exit_code: int
    seconds: float
    how: str
    stacks: ScriptStacks
    functions: list[Any]
    operators: OperatorTable
    speedscope: str
    notes: list[str]


def profile_script(
    script: Sequence[str], *, rate: int = 25, operator_seconds: float = 3.0, subprocesses: bool = False
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
        settings = {"folder": folder, "operators": operator_seconds, "ready_fd": read_end, "rate": rate}
        command = [sys.executable, script_launcher.__file__, json.dumps(settings), *script]
        start = time.perf_counter()
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, write_end)
            process = stack.enter_context(in_foreground(command, pass_fds=(read_end,)))
            os.close(read_end)
            sampler = stack.enter_context(_py_spy(process.pid, Path(folder), rate, subprocesses, notes))
            with contextlib.suppress(BrokenPipeError):
                os.write(write_end, script_launcher.SAMPLED if sampler else script_launcher.TRACED)
            code = exit_code(process.wait())
            seconds = time.perf_counter() - start
            if sampler:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    sampler.wait(WRITE_SECONDS)
        how = f"py-spy, {rate} samples a second" if sampler else "cProfile, and a sampler for the stacks"
        return _read(Path(folder), process.pid, " ".join(script), code, seconds, how, notes)


@contextlib.contextmanager
def _py_spy(process_id: int, folder: Path, rate: int, subprocesses: bool, notes: list[str]):
    """py-spy on the process, or None where it is absent or may not watch; `notes` then says why."""
    program = find_tool("py-spy")
    if program is None:
        notes.append("py-spy is not installed (`pip install py-spy`): cProfile traced every call, which slows small functions.")
        yield None
        return
    command = [program, "record", "--pid", str(process_id), "--format", "speedscope"]
    command += ["--output", str(folder / "stacks.json"), "--rate", str(rate), *(["--subprocesses"] if subprocesses else [])]
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


def _read(folder: Path, process_id: int, command: str, code: int, seconds: float, how: str, notes: list[str]) -> ScriptProfile:
    recorded, stats = folder / "stacks.json", folder / "functions.pstats"
    text = recorded.read_text(encoding="utf-8") if recorded.is_file() else ""
    try:
        stacks = script_stacks(json.loads(text), process_id) if text else ScriptStacks()
    except ValueError:  # it ran out of time, or of space
        text, stacks = "", ScriptStacks()
        notes.append("What was sampled is lost: its file was not written to the end.")
    else:
        if not stacks.work.total:
            notes.append("No sample fell into the script's own work: it was too short, or only waited.")
    rows = []
    if stats.is_file():
        from hpml_lab.profilers.functions import function_rows

        rows = [row for row in function_rows(pstats.Stats(str(stats))) if "<frozen importlib" not in row.where]
    operators = operator_table(folder.glob("operators-*.json"))
    if operators.seconds and not operators.rows:
        notes.append("torch's operators were not recorded: the script did not call any, or profiled itself.")
    return ScriptProfile(command, code, seconds, how, stacks, rows, operators, text, notes)


def page(profile: ScriptProfile) -> str:
    """The profile as one HTML page that needs nothing but itself."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("hpml_lab.profilers", ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    work, imports = profile.stacks.work, profile.stacks.imports
    threads = {share.thread for share in profile.stacks.threads}  # boxes of the flame graph, but no functions
    return environment.get_template(TEMPLATE).render(
        profile=profile,
        where=f"{machine.cpu_name()}, {machine.cores()} cores, Python {sys.version.split()[0]}",
        when=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        flame=Markup(flame_svg(work, script=False)) if work.total else "",
        import_flame=Markup(flame_svg(imports, script=False)) if imports.total else "",
        import_percent=100 * imports.total / ((work.total + imports.total) or 1),
        shares=[row for row in frame_shares(work) if row.frame not in threads][:TOP] if work.total else [],
        lines=profile.stacks.lines[:TOP],
        functions=profile.functions[:TOP],
        operators=profile.operators.rows[:TOP],
        script=Markup(SCRIPT),
    )


def write_page(profile: ScriptProfile, path: Path) -> list[Path]:
    """Write the page, and next to it the stacks for speedscope.app; each whole or not at all."""
    written = [atomic_write(path, page(profile))]
    if profile.speedscope:
        written.append(atomic_write(path.with_suffix(".speedscope.json"), profile.speedscope))
    return written
