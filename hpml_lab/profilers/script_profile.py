"""Profiles anybody's Python script and writes one HTML page: flame graph, functions, lines, and torch's operators if torch ran.

py-spy watches from outside where it is installed and may; otherwise a thread samples from inside. Imports are shown separately.
"""

import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from hpml_lab.core.system import machine
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.files import atomic_write
from hpml_lab.core.system.installed import find_tool
from hpml_lab.core.system.programs import started
from hpml_lab.profilers.at_start import sitecustomize as at_start
from hpml_lab.profilers.flames import SCRIPT, flame_svg
from hpml_lab.profilers.foreground import exit_code, in_foreground
from hpml_lab.profilers.operator_table import OperatorTable, operator_table
from hpml_lab.profilers.py_spy import reason, recording
from hpml_lab.profilers.sampler import speedscope
from hpml_lab.profilers.script_stacks import ScriptStacks, script_stacks
from hpml_lab.profilers.stacks import frame_shares

TEMPLATE = "profile.html.j2"
TOP = 30  # rows of a table
ATTACH_SECONDS = 15.0  # for py-spy to begin
KEEP_US_OUT = "EIS"  # with these options Python reads no PYTHONPATH, or imports nothing before the script
INSTEAD = "a thread in the script sampled its main thread instead."
WRITE_SECONDS = 30.0  # for py-spy to write its file once the script has ended


@dataclass(frozen=True)
class ScriptProfile:
    """What was seen of one script.

    stacks      its threads, functions and lines
    operators   torch's
    speedscope  the stacks as they were recorded, "" if there are none
    """

    command: str
    exit_code: int
    seconds: float
    how: str
    stacks: ScriptStacks
    operators: OperatorTable
    speedscope: str
    notes: list[str]


def profile_script(
    script: Sequence[str], *, rate: int = 25, operator_seconds: float = 3.0, subprocesses: bool = False
) -> ScriptProfile:
    """Run `python` with the words of `script` (its options, then a path, -m and a module or -c and code, and arguments) under a
    profiler.

    rate              samples a second
    operator_seconds  how long torch's operators are recorded, 0 for not at all
    subprocesses      let py-spy watch what the script starts too, such as a DataLoader's workers
    """
    check_script(script)
    notes: list[str] = []
    with tempfile.TemporaryDirectory(prefix="hpml-profile-") as name, contextlib.ExitStack() as stack:
        folder, paths = Path(name), os.environ.get("PYTHONPATH")
        settings = f"{os.getpid()} {rate} {operator_seconds} {int(paths is not None)} {folder}"
        environment = {**os.environ, at_start.VARIABLE: settings}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (at_start.HERE, paths)))
        start = time.perf_counter()
        process = stack.enter_context(in_foreground([sys.executable, *script], environment))
        _until(lambda: (folder / at_start.STARTED).exists() or process.poll() is not None)
        sampler = stack.enter_context(_py_spy(process.pid, folder, rate, subprocesses, notes))
        (folder / (at_start.SAMPLED if sampler else at_start.UNSEEN)).touch()
        code = exit_code(process.wait())
        seconds = time.perf_counter() - start
        if sampler:
            with contextlib.suppress(subprocess.TimeoutExpired):
                sampler.wait(WRITE_SECONDS)
        how = f"{'py-spy' if sampler else 'a thread in the script'}, {rate} samples a second"
        return _read(folder, process.pid, shlex.join(script), code, seconds, how, notes, rate)


def check_script(script: Sequence[str]) -> None:
    """Raise LabError where Python would find no script, or would start with nothing of ours in it."""
    words = list(script)
    while words and words[0].startswith("-") and words[0] != "-":
        word = words.pop(0)
        if word == "--":
            break
        if word == "--check-hash-based-pycs":
            del words[:1]
        for place, letter in enumerate("" if word.startswith("--") else word[1:], 2):
            if letter in KEEP_US_OUT:
                raise LabError(f"under Python's option -{letter} no script can be profiled.", f"Leave -{letter} out.")
            if letter in "cm":
                return
            if letter in "WX":  # the value follows, in this word or in the next one
                del words[: place == len(word)]
                break
    if words and words[0] != "-" and not Path(words[0]).exists():
        raise LabError(f"there is no script {words[0]!r}.", "Name a Python file, or -m and a module.")


def _until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, but not longer than ATTACH_SECONDS."""
    end = time.monotonic() + ATTACH_SECONDS
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)


@contextlib.contextmanager
def _py_spy(process_id: int, folder: Path, rate: int, subprocesses: bool, notes: list[str]):
    """py-spy on the process, or None where it is absent or may not watch; `notes` then says why."""
    program = find_tool("py-spy")
    if program is None:
        notes.append(f"py-spy is not installed (`pip install py-spy`): {INSTEAD}")
        yield None
        return
    command = recording(program, process_id, "speedscope", folder / "stacks.json", rate)
    command += ["--subprocesses"] if subprocesses else []
    log = folder / "py-spy.log"
    # In a group of its own, a Ctrl-C at the terminal does not end it before the script has ended.
    with log.open("wb") as messages, started(command, stdout=messages, stderr=messages) as sampler:
        _until(lambda: sampler.poll() is not None or b"Sampling process" in log.read_bytes())
        if sampler.poll() is not None:
            notes.append(f"py-spy may not watch here ({reason(log.read_bytes())}): {INSTEAD}")
            yield None
        else:
            yield sampler


def _read(
    folder: Path, process_id: int, command: str, code: int, seconds: float, how: str, notes: list[str], rate: int = 0
) -> ScriptProfile:
    recorded, folded = folder / "stacks.json", folder / "stacks.txt"
    text = recorded.read_text(encoding="utf-8") if recorded.is_file() else ""
    if folded.is_file():
        text = json.dumps(speedscope(folded.read_bytes().decode("utf-8", "surrogateescape"), rate))
    try:
        stacks = script_stacks(json.loads(text), process_id) if text else ScriptStacks()
    except ValueError:  # it ran out of time, or of space
        text, stacks = "", ScriptStacks()
        notes.append("What was sampled is lost: its file was not written to the end.")
    else:
        if not stacks.work.total:
            notes.append("No sample fell into the script's own work: it was too short, or only waited.")
    operators = operator_table(folder.glob("operators-*.json"))
    if operators.seconds and not operators.rows:
        notes.append("torch's operators were not recorded: the script did not call any, or profiled itself.")
    return ScriptProfile(command, code, seconds, how, stacks, operators, text, notes)


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
        operators=profile.operators.rows[:TOP],
        script=Markup(SCRIPT),
    )


def write_page(profile: ScriptProfile, path: Path) -> list[Path]:
    """Write the page, and next to it the stacks for speedscope.app; each whole or not at all."""
    written = [atomic_write(path, page(profile))]
    if profile.speedscope:
        written.append(atomic_write(path.with_suffix(".speedscope.json"), profile.speedscope))
    return written
