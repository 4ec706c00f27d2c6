"""Runs somebody's script and lets it be measured: `python script_launcher.py SETTINGS SCRIPT [ARGS]`, by the path of this file.

The script sees what it would see if Python had started it: its own `sys.argv`, `sys.path`, `sys.modules`, `__main__`,
environment, streams and signals. Its exceptions, exit code and Ctrl-C are passed on. Standard library only: any Python can
run this file and its neighbors, which are loaded by their paths.
"""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # this folder, before anything is imported: nothing in it takes the place of a module

import contextlib
import importlib.util
import json
import os
import runpy
import threading  # noqa: F401  py-spy reads the threads' names from it, from its first sample on
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

SAMPLED, TRACED = b"s", b"c"  # who profiles: py-spy from outside, or cProfile in here
HERE = Path(__file__).resolve().parent
RUNPY = "<frozen runpy>"
OWN_FILES = (RUNPY, str(HERE / "script_launcher.py"), str(HERE / "operator_recorder.py"))  # frames that are not the script's


def main(settings: dict[str, Any], script: list[str]) -> None:
    """Run `script` (a path, or -m and a module, and its arguments) and leave what was measured in the settings' folder.

    folder     where the files go
    operators  seconds of torch's operators to record, 0 for none
    rate       samples a second
    ready_fd   a pipe on which the parent says who profiles
    """
    folder = Path(settings["folder"])
    _neighbor("tracing_access").allow_tracing()
    with os.fdopen(settings["ready_fd"], "rb") as pipe:
        who = pipe.read(1) or TRACED
    with contextlib.ExitStack() as stack:
        if who == TRACED:
            stack.enter_context(_traced(folder, settings["rate"]))
        if settings["operators"]:
            stack.enter_context(_neighbor("operator_recorder").OperatorRecorder(folder, settings["operators"]))
        run_script(script)


def _neighbor(name: str) -> ModuleType:
    """A module of this folder; it does not enter sys.modules, where the script could find it."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_script(script: list[str]) -> None:
    """Run the script as `__main__`."""
    try:
        if script[0] == "-m":
            sys.argv = script[1:]
            if not sys.flags.safe_path:
                sys.path.insert(0, os.getcwd())
            runpy.run_module(script[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(script)
            if not sys.flags.safe_path:
                sys.path.insert(0, str(Path(script[0]).resolve().parent))
            run_file(os.path.abspath(script[0]))
    except SystemExit:
        raise
    except BaseException:  # also KeyboardInterrupt: Python ends as it does without us, and its traceback begins in the script
        show = sys.excepthook

        def show_script_part(kind: type, error: BaseException, trace: TracebackType | None) -> None:
            error.__traceback__ = script_part(trace)  # Python shows this one, whatever it is handed
            show(kind, error, error.__traceback__)

        sys.excepthook = show_script_part
        raise


def run_file(path: str) -> None:
    """Run a file as `__main__`. `runpy.run_path` would set `sys.argv[0]` to the path, which Python leaves as it was typed."""
    module = ModuleType("__main__")
    loader = module.__loader__ = SourceFileLoader("__main__", path)
    module.__file__ = path
    module.__dict__.update(__builtins__=sys.modules["builtins"], __annotations__={}, __cached__=None)
    sys.modules["__main__"] = module
    exec(loader.source_to_code(loader.get_data(path), path), module.__dict__)


def script_part(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames that started the script; whole where nothing else is in it."""
    part = trace
    while part is not None and part.tb_frame.f_code.co_filename.endswith(OWN_FILES):
        part = part.tb_next
    return part or trace


@contextlib.contextmanager
def _traced(folder: Path, rate: float) -> Iterator[None]:
    """cProfile counts the calls; a sampler sees the stacks, which cProfile does not keep."""
    import cProfile

    sys.modules.pop("profile", None)  # it imported this one: a name that a script's own module may have
    sampling, process = _neighbor("sampler"), os.getpid()
    profile, sampler = cProfile.Profile(), sampling.StackSampler(rate, sampling.frame_name)
    try:
        with sampler:
            profile.enable()
            try:
                yield
            finally:
                profile.disable()
    finally:
        if os.getpid() == process:  # a child that the script has forked ends here too, perhaps when the folder is gone
            profile.dump_stats(folder / "functions.pstats")
            (folder / "stacks.json").write_text(json.dumps(sampler.speedscope()), encoding="utf-8")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2:])
