"""Profiles anybody's Python script and writes one HTML page: flame graph, functions, lines, and torch's operators if torch ran.

py-spy watches from outside where it is installed and may; otherwise a thread samples from inside. Imports are shown separately.
"""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from hpml_lab.core.system import machine
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.files import atomic_write
from hpml_lab.core.system.installed import find_tool
from hpml_lab.core.system.programs import started
from hpml_lab.profilers.at_start import sitecustomize as at_start
from hpml_lab.profilers.beside import never_fatal, printable
from hpml_lab.profilers.flames import SCRIPT, flame_svg
from hpml_lab.profilers.foreground import in_foreground, wait_with_usage
from hpml_lab.profilers.operator_table import OperatorTable, operator_table
from hpml_lab.profilers.py_spy import reason, recording
from hpml_lab.profilers.sampler import speedscope
from hpml_lab.profilers.script_stacks import ScriptStacks, script_stacks
from hpml_lab.profilers.stacks import frame_shares

TEMPLATE = "profile.html.j2"
TOP = 30  # rows of a table
ATTACH_SECONDS = 15.0  # for py-spy to begin
KEEP_US_OUT = "EIS"  # with these options Python reads no PYTHONPATH, or imports nothing before the script
INSTEAD = "a thread in the script sampled its main thread instead"
WRITE_SECONDS = 30.0  # for py-spy to write its file once the script has ended


@dataclass
class ScriptProfile:
    """What was seen of one script.

    exit_code   as subprocess gives it: a signal's negative number where that ended it
    stacks      its threads, functions and lines
    operators   torch's
    speedscope  the stacks as they were recorded, "" if there are none
    """

    command: str
    exit_code: int = 0
    seconds: float = 0.0
    how: str = ""
    stacks: ScriptStacks = field(default_factory=ScriptStacks)
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
    """Run `python` with the words of `script` (its options, then a path, -m and a module or -c and code, and arguments) under a
    profiler.

    rate              samples a second
    operator_seconds  how long torch's operators are recorded, 0 for not at all
    subprocesses      let py-spy watch what the script starts too, such as a DataLoader's workers
    report            is called with the profile; its failure, like that of all that follows the script, is a line on stderr
    """
    check_script(script)
    try:
        tempfile.gettempdir()
    except FileNotFoundError as error:
        raise LabError("no folder takes temporary files: is the disk full?", "Let TMPDIR name one that does.") from error
    found = ScriptProfile(shlex.join(script))
    # The script, or what it leaves running, may write there until the end.
    with tempfile.TemporaryDirectory(prefix="hpml-profile-", ignore_cleanup_errors=True) as name:
        folder, paths = Path(name), os.environ.get("PYTHONPATH")
        settings = f"{os.getpid()} {rate} {operator_seconds} {int(paths is not None)} {folder}"
        environment = {**os.environ, at_start.VARIABLE: settings}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (at_start.HERE, paths)))
        start, sampler = time.perf_counter(), None
        with in_foreground([sys.executable, *script], environment) as process:
            with contextlib.ExitStack() as stack:
                try:
                    _until(lambda: (folder / at_start.STARTED).exists() or process.poll() is not None)
                    sampler = stack.enter_context(_py_spy(process.pid, folder, rate, subprocesses, found.notes))
                finally:  # the script waits for it
                    (folder / (at_start.SAMPLED if sampler else at_start.UNSEEN)).touch()
                found.exit_code = wait_with_usage(process)[0]
                found.seconds = time.perf_counter() - start
                if sampler:
                    if subprocesses:  # one that the script has left running would be watched on
                        sampler.send_signal(signal.SIGINT)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        sampler.wait(WRITE_SECONDS)
            found.how = f"{'py-spy' if sampler else 'a thread in the script'}, {rate} samples a second"
            _read(folder, process.pid, found, rate)
            report(found)
    found.exit_code = process.returncode  # also where all of ours has failed
    return found


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
    path = Path(words[0] if words else "-")
    if str(path) != "-" and not (path.exists() or any(folder.is_file() for folder in path.parents)):  # a package in an archive
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
        notes.append(f"py-spy is not installed (`pip install py-spy`): {INSTEAD}.")
        yield None
        return
    command = recording(program, process_id, "speedscope", folder / "stacks.json", rate)
    command += ["--subprocesses"] if subprocesses else []
    log, sampler = folder / "py-spy.log", None
    with contextlib.ExitStack() as stack:
        with never_fatal(f"py-spy does not run: {INSTEAD}", notes.append):
            messages = stack.enter_context(log.open("wb"))
            # In a group of its own, a Ctrl-C at the terminal does not end it before the script has ended.
            watcher = sampler = stack.enter_context(started(command, stdout=messages, stderr=messages))
            _until(lambda: watcher.poll() is not None or b"Sampling process" in log.read_bytes())
            if watcher.poll() is not None:
                sampler = None
                notes.append(f"py-spy may not watch here ({reason(log.read_bytes())}): {INSTEAD}.")
        yield sampler


def _read(folder: Path, process_id: int, found: ScriptProfile, rate: int = 0) -> None:
    recorded, folded = folder / "stacks.json", folder / "stacks.txt"
    # It ran out of time, or of space, or this is a form that is not known.
    with never_fatal("What was sampled is lost: its file was not written to the end", found.notes.append):
        text = recorded.read_text(encoding="utf-8") if recorded.is_file() else ""
        if folded.is_file():
            text = json.dumps(speedscope(folded.read_bytes().decode("utf-8", "surrogateescape"), rate))
        if text:
            found.stacks, found.speedscope = script_stacks(json.loads(text), process_id), text
        if not found.stacks.work.total:
            found.notes.append("No sample fell into the script's own work: it was too short, or only waited.")
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
        operators=profile.operators.rows[:TOP],
        script=Markup(SCRIPT),
    )


def write_page(profile: ScriptProfile, path: Path) -> list[Path]:
    """Write the page, and next to it the stacks for speedscope.app and torch's operators; each whole or not at all."""
    written = [atomic_write(path, printable(page(profile)))]
    if not path.is_file():  # nothing is put beside a device
        return written
    if profile.speedscope:
        with never_fatal("there is no file for speedscope.app"):
            written.append(atomic_write(path.with_suffix(".speedscope.json"), printable(profile.speedscope)))
    if profile.operators.rows:
        with never_fatal("there is no file of torch's operators"):
            rows = [asdict(row) for row in profile.operators.rows]
            written.append(atomic_write(path.with_suffix(".operators.json"), json.dumps(rows)))
    return written
