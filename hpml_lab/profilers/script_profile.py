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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hpml_lab.core.system import machine
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.files import atomic_write
from hpml_lab.core.system.installed import find_tool
from hpml_lab.core.system.programs import started
from hpml_lab.profilers import script_launcher
from hpml_lab.profilers.beside import never_fatal, printable
from hpml_lab.profilers.flames import SCRIPT, flame_svg
from hpml_lab.profilers.foreground import exit_code, in_foreground, wait_with_usage
from hpml_lab.profilers.operator_table import OperatorTable, operator_table
from hpml_lab.profilers.py_spy import reason
from hpml_lab.profilers.script_stacks import ScriptStacks, script_stacks
from hpml_lab.profilers.stacks import frame_shares

TEMPLATE = "profile.html.j2"
TOP = 30  # rows of a table
ATTACH_SECONDS = 15.0  # for py-spy to begin
WRITE_SECONDS = 30.0  # for py-spy to write its file once the script has ended


@dataclass
class ScriptProfile:
    """What was seen of one script.

    stacks      its threads, functions and lines
    functions   cProfile's rows, where it measured
    operators   torch's
    speedscope  the stacks as they were recorded, "" if there are none
    """

    command: str
    exit_code: int = 0
    seconds: float = 0.0
    how: str = ""
    stacks: ScriptStacks = field(default_factory=ScriptStacks)
    functions: list[Any] = field(default_factory=list)
    operators: OperatorTable = field(default_factory=lambda: OperatorTable([], 0.0, 0, False))
    speedscope: str = ""
    notes: list[str] = field(default_factory=list)


def profile_script(
    script: Sequence[str],
    *,
    rate: int = 25,
    operator_seconds: float = 3.0,
    subprocesses: bool = False,
    report: Callable[[ScriptProfile], None] = lambda profile: None,
) -> ScriptProfile:
    """Run `script` (a path, or -m and a module, then its arguments) under a profiler.

    rate              samples a second
    operator_seconds  how long torch's operators are recorded, 0 for not at all
    subprocesses      let py-spy watch what the script starts too, such as a DataLoader's workers
    report            is called with the profile; its failure, like that of all that follows the script, is a line on stderr
    """
    if script[0] != "-m" and not Path(script[0]).is_file():
        raise LabError(f"there is no script {script[0]!r}.", "Name a Python file, or -m and a module.")
    found = ScriptProfile(" ".join(script))
    # The script, or what it leaves running, may write there until the end.
    with tempfile.TemporaryDirectory(prefix="hpml-profile-", ignore_cleanup_errors=True) as folder:
        read_end, write_end = os.pipe()
        os.set_inheritable(read_end, True)
        settings = {"folder": folder, "operators": operator_seconds, "ready_fd": read_end, "rate": rate}
        command = [sys.executable, script_launcher.__file__, json.dumps(settings), *script]
        start = time.perf_counter()
        with os.fdopen(read_end, "rb") as of_script, os.fdopen(write_end, "wb", 0) as pipe, in_foreground(command) as process:
            of_script.close()
            with pipe, _py_spy(process.pid, Path(folder), rate, subprocesses, found.notes) as sampler:
                with contextlib.suppress(BrokenPipeError):  # without a word, as where we fail, the script is traced
                    pipe.write(script_launcher.SAMPLED if sampler else script_launcher.TRACED)
                found.exit_code = exit_code(wait_with_usage(process)[0])
                found.seconds = time.perf_counter() - start
                if sampler:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        sampler.wait(WRITE_SECONDS)
            found.how = f"py-spy, {rate} samples a second" if sampler else "cProfile, and a sampler for the stacks"
            _read(Path(folder), process.pid, found)
            report(found)
    found.exit_code = exit_code(process.returncode)  # also where all of ours has failed
    return found


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
    log, sampler = folder / "py-spy.log", None
    with contextlib.ExitStack() as stack:
        with never_fatal("py-spy does not run: cProfile traced every call", notes.append):
            messages = stack.enter_context(log.open("wb"))
            # In a group of its own, a Ctrl-C at the terminal does not end it before the script has ended.
            sampler = stack.enter_context(started(command, stdout=messages, stderr=messages))
            end = time.monotonic() + ATTACH_SECONDS
            while sampler.poll() is None and time.monotonic() < end and b"Sampling process" not in log.read_bytes():
                time.sleep(0.02)
            if sampler.poll() is not None:
                sampler = None
                notes.append(f"py-spy may not watch here ({reason(log.read_bytes())}): cProfile traced every call.")
        yield sampler


def _read(folder: Path, process_id: int, found: ScriptProfile) -> None:
    recorded, stats = folder / "stacks.json", folder / "functions.pstats"
    if recorded.is_file():
        # It ran out of time, or of space, or this is a form that is not known.
        with never_fatal("What was sampled is lost: its file was not written to the end", found.notes.append):
            text = recorded.read_text(encoding="utf-8")
            found.stacks, found.speedscope = script_stacks(json.loads(text), process_id), text
    if not found.stacks.work.total and (found.speedscope or not recorded.is_file()):
        found.notes.append("No sample fell into the script's own work: it was too short, or only waited.")
    with never_fatal("The functions are lost", found.notes.append):
        if stats.is_file():
            from hpml_lab.profilers.functions import function_rows

            rows = function_rows(pstats.Stats(str(stats)))
            found.functions = [row for row in rows if "<frozen importlib" not in row.where]
    with never_fatal("torch's operators are lost", found.notes.append):
        found.operators = operator_table(folder.glob("operators-*.json"))
    if found.operators.seconds and not found.operators.rows:
        found.notes.append("torch's operators were not recorded: the script did not call any, or profiled itself.")


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
    written = [atomic_write(path, printable(page(profile)))]
    if profile.speedscope:
        with never_fatal("there is no file for speedscope.app"):
            written.append(atomic_write(path.with_suffix(".speedscope.json"), printable(profile.speedscope)))
    return written
