"""py-spy's runs: watch a Python process from outside, and read what it saw.

Two stages of a run are kept separate: what a program does while it imports its modules, and its own work.
"""

import json
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.files import atomic_write
from hpml_lab.core.system.installed import find_tool
from hpml_lab.core.system.readers import TRACE, reader, text_of
from hpml_lab.profilers.flames import flame_svg
from hpml_lab.profilers.stacks import IMPORT_FRAMES, read_stacks, split_imports

END_SECONDS = 10.0  # for py-spy to write its file once it is asked to stop
FORMATS = {".txt": "raw", ".json": "speedscope", ".svg": "raw"}
NOT_INSTALLED = LabError("py-spy is not installed here.", "pip install py-spy")
NO_PYTHON = LabError("py-spy saw the process run no Python.", "Watch it while it works; one that waits has no samples.")
ALLOW = "On Linux allow it (`sudo sysctl kernel.yama.ptrace_scope=0`; in Docker `--cap-add SYS_PTRACE`); macOS wants root."


def record_stacks(process_id: int, path: Path | str, seconds: float = 1.0, rate: int = 100, imports: bool = False) -> Path:
    """Let py-spy watch the Python process `process_id` and write what it saw to `path`.

    path     ends with .txt for folded stacks, .json for speedscope (speedscope.app opens it), .svg for a flame graph
    rate     samples a second
    imports  keep the samples that fell into the import of a module
    A file that is there already is replaced. Raises LabError where py-spy is absent, may not watch, or sees nothing.
    """
    path = Path(path)
    if path.suffix not in FORMATS:
        raise LabError(f"py-spy has no format for {path.name!r}.", f"Let it end with {', '.join(FORMATS)}.")
    with tempfile.TemporaryDirectory(prefix="hpml-py-spy-") as folder:
        seen = _watch(process_id, Path(folder) / "seen", FORMATS[path.suffix], seconds, rate)
    if path.suffix == ".json":
        return atomic_write(path, seen if imports else _speedscope_without_imports(seen))
    work, imported = split_imports(seen)
    if not work + imported:
        raise NO_PYTHON
    if not imports and not work:
        raise LabError("py-spy saw the process do nothing but import modules.", "Watch it longer, or pass imports=True.")
    stacks = imported + work if imports else work
    return atomic_write(path, stacks if path.suffix == ".txt" else flame_svg(read_stacks(stacks)))


def _watch(process_id: int, path: Path, format: str, seconds: float, rate: int) -> str:
    """Run py-spy for `seconds` and return the text that it wrote to `path`."""
    program = find_tool("py-spy")
    if program is None:
        raise NOT_INSTALLED
    # --duration takes whole seconds only; at an interrupt py-spy ends its watch and writes its file.
    command = [*recording(program, process_id, format, path, rate), "--function"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as watcher:
        try:
            _, message = watcher.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            watcher.send_signal(signal.SIGINT)
            try:
                _, message = watcher.communicate(timeout=END_SECONDS)
            except subprocess.TimeoutExpired:
                message = b"it did not end"
        finally:
            watcher.kill()
    written = path.is_file()
    if written and not path.stat().st_size and watcher.returncode == 0:
        raise NO_PYTHON
    if not written or not path.stat().st_size:
        raise LabError(f"py-spy could not watch the process ({reason(message)}).", ALLOW)
    return path.read_text(encoding="utf-8")


def recording(program: str, process_id: int, format: str, path: Path, rate: int) -> list[str]:
    """The command by which py-spy records a process without stopping it.

    A process that is stopped finds calls of the system interrupted: an unbuffered print of much text into a pipe then writes
    a part and drops the rest. Not stopped, it moves on while its stack is read: of 500 samples of functions that run for
    0.1 us, 4 % had a frame that was over, and the shares were the same.
    """
    command = [program, "record", "--pid", str(process_id), "--format", format, "--output", str(path)]
    return [*command, "--rate", str(rate), "--nonblocking"]


def reason(message: bytes) -> str:
    """The first line of what py-spy wrote to its standard error."""
    lines = message.decode(errors="replace").splitlines()
    return next((line.strip() for line in lines if line.strip()), "it saw nothing")


def _speedscope_without_imports(text: str) -> str:
    content = json.loads(text)
    importing = {
        number
        for number, frame in enumerate(content["shared"]["frames"])
        if any(name in f"{frame['name']} ({frame.get('file')}" for name in IMPORT_FRAMES)
    }
    for profile in content["profiles"]:
        pairs = zip(profile["samples"], profile["weights"], strict=True)
        kept = [(stack, weight) for stack, weight in pairs if not importing.intersection(stack)]
        profile["samples"], profile["weights"] = [stack for stack, _ in kept], [weight for _, weight in kept]
        profile["endValue"] = profile["startValue"] + sum(profile["weights"])
    return json.dumps(content)


@reader("a speedscope file", 'Record it again: `record_stacks(process_id, "stacks.json")`.')
def read_speedscope(path: Path | str) -> dict[str, Any]:
    """What a speedscope file holds: {"frames": names, "samples": stacks, "unit": …, "weights": their sum, "end": …}.

    py-spy writes nulls (`activeProfileIndex`, a frame's `col`) that the published schema does not allow; viewers take them.
    """
    content = json.loads(text_of(path, TRACE))
    profiles = content["profiles"]
    return {
        "frames": [frame["name"] for frame in content["shared"]["frames"]],
        "samples": sum(len(profile["samples"]) for profile in profiles),
        "weights": sum(sum(profile["weights"]) for profile in profiles),
        "end": sum(profile["endValue"] for profile in profiles),
        "unit": profiles[0]["unit"],
    }
