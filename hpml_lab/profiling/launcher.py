"""Runs somebody's script and measures it from inside: `python -P -m hpml_lab.profiling.launcher SETTINGS SCRIPT [ARGS]`.

The script sees what it would see if Python had started it: its own `sys.argv`, `sys.path`, `__main__`, environment, streams
and signals. Its exceptions, exit code and Ctrl-C are passed on. Standard library only, so that any Python can run it.
"""

import contextlib
import cProfile
import json
import os
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from hpml_lab.profiling.operator_recorder import OperatorRecorder
from hpml_lab.profiling.sampler import StackSampler, frame_name
from hpml_lab.profiling.tracing_access import allow_tracing
from hpml_lab.profiling.watching import Watch

SAMPLED, TRACED = b"s", b"c"  # who profiles: py-spy from outside, or cProfile in here
OWN_FILES = ("<frozen runpy>", "profiling/launcher.py", "profiling/operator_recorder.py")  # frames that are not the script's


def main(settings: dict[str, Any], script: list[str]) -> None:
    """Run `script` (a path, or -m and a module, and its arguments) and leave what was measured in the settings' folder.

    folder     where the files go
    measure    "functions" (profiler) or "bound" (the watch of the classifier)
    operators  seconds of torch's operators to record, 0 for none
    ready_fd   a pipe on which the parent says who profiles
    path       PYTHONPATH as it was
    """
    folder = Path(settings["folder"])
    recorder = OperatorRecorder(settings["operators"]) if settings["operators"] else None
    with contextlib.ExitStack() as stack:
        if settings["measure"] == "bound":
            stack.enter_context(_watched(folder))
        elif _who_profiles(settings["ready_fd"]) == TRACED:
            stack.enter_context(_traced(folder, settings["rate"]))
        if recorder is not None:
            stack.callback(_keep_operators, recorder, folder, settings["measure"] == "bound")
            stack.enter_context(recorder)
        _restore_environment(settings["path"])
        run_script(script)


def _who_profiles(ready_fd: int) -> bytes:
    allow_tracing()
    with os.fdopen(ready_fd, "rb") as pipe:
        return pipe.read(1) or TRACED


def run_script(script: list[str]) -> None:
    """Run the script as `__main__`."""
    try:
        if script[0] == "-m":
            sys.argv = script[1:]
            sys.path.insert(0, os.getcwd())
            runpy.run_module(script[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(script)
            sys.path.insert(0, str(Path(script[0]).resolve().parent))
            runpy.run_path(script[0], run_name="__main__")
    except SystemExit:
        raise
    except BaseException:  # also KeyboardInterrupt: Python ends as it does without us, and its traceback begins in the script
        show = sys.excepthook

        def show_script_part(kind: type, error: BaseException, trace: TracebackType | None) -> None:
            error.__traceback__ = script_part(trace)  # Python shows this one, whatever it is handed
            show(kind, error, error.__traceback__)

        sys.excepthook = show_script_part
        raise


def script_part(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames that started the script; whole where nothing else is in it."""
    part = trace
    while part is not None and any(name in part.tb_frame.f_code.co_filename for name in OWN_FILES):
        part = part.tb_next
    return part or trace


def _restore_environment(path: str | None) -> None:
    """PYTHONPATH as it was; this package stays importable, but behind everything else."""
    if path is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = path
    home = str(Path(__file__).resolve().parents[2])
    if home in sys.path and home not in (path or "").split(os.pathsep):
        sys.path.remove(home)
        sys.path.append(home)


# ---- measuring -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _traced(folder: Path, rate: float) -> Iterator[None]:
    """cProfile counts the calls; a sampler sees the stacks, which cProfile does not keep."""
    profile, sampler = cProfile.Profile(), StackSampler(rate, frame_name)
    try:
        with sampler:
            profile.enable()
            try:
                yield
            finally:
                profile.disable()
    finally:
        profile.dump_stats(folder / "functions.pstats")
        (folder / "stacks.txt").write_text(sampler.folded())


@contextlib.contextmanager
def _watched(folder: Path) -> Iterator[None]:
    watch = Watch(skip_imports=True)
    try:
        with watch:
            yield
    finally:
        seen = {"host": watch.evidence(), "import_seconds": watch.import_seconds}
        (folder / "evidence.json").write_text(json.dumps(seen))


def _keep_operators(recorder: OperatorRecorder, folder: Path, spans: bool) -> None:
    with contextlib.suppress(Exception):  # a script that ends badly may leave torch in any state
        found = {"seconds": recorder.window_seconds}
        found |= {"spans": recorder.device_spans()} if spans else {"rows": recorder.rows()}
        (folder / "operators.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2:])
