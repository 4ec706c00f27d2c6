"""Python imports this on its way to a script that `hpml-lab profile` or `tuneup` runs: its folder is first in PYTHONPATH.

Python itself then runs the script, whatever it is: arguments, `__main__`, tracebacks, threads and exit code are Python's own.
The script finds nothing of this: environment and sys.path are as they were typed, and no module that one of its own could be
called stays in sys.modules. Hence only what Python has at its start is imported here.
"""

import os
import sys
import time

VARIABLE, TURNS = "HPML_LAB_AT_START", "HPML_LAB_TURNS"  # of `profile`, and of what runs copies of a script in turns
HERE = os.path.dirname(os.path.abspath(__file__))
STARTED, SAMPLED, UNSEEN = "started", "sampled", "unseen"  # files: Python is here; py-spy watches; nobody does


def begin(settings: str) -> None:
    """Leave no trace, wait until the parent says who samples, and prepare what watches from inside.

    settings  the parent's number, samples a second, seconds of torch's operators to record, whether PYTHONPATH was set, and the
              folder of the files
    """
    parent, rate, seconds, had_path, folder = settings.split(" ", 4)
    _leave_no_trace(had_path)
    if _wait(folder, int(parent)) == UNSEEN:
        before = [{*known} for known in (sys.modules, sys.path_importer_cache)]
        _neighbor("sampler").sample_until_exit(float(rate), os.path.join(folder, "stacks.txt"))
        for known, names in zip((sys.modules, sys.path_importer_cache), before, strict=True):
            for name in {*known} - names:
                del known[name]
    if float(seconds):
        sys.meta_path.insert(0, _Torch(lambda: _neighbor("operator_recorder").OperatorRecorder(folder, float(seconds)).begin()))


def begin_turns(settings: str) -> None:
    """Leave no trace, and let the script wait for its turns from the end of torch's import on.

    settings  whether PYTHONPATH was set, and the rest for `referee/in_the_script.py`
    """
    had_path, rest = settings.split(" ", 1)
    _leave_no_trace(had_path)
    sys.meta_path.insert(0, _Torch(lambda: _neighbor("in_the_script", "referee").begin(rest, _neighbor)))


def _leave_no_trace(had_path: str) -> None:
    os.environ["PYTHONPATH"] = os.environ["PYTHONPATH"].removeprefix(HERE).removeprefix(os.pathsep)
    if had_path == "0":
        del os.environ["PYTHONPATH"]
    sys.path.remove(HERE)
    sys.path_importer_cache.pop(HERE, None)


def _wait(folder: str, parent: int) -> str:
    """The parent's word. A Ctrl-C until then ends this process as it ends Python, without a traceback from here."""
    import _signal

    handler = _signal.getsignal(_signal.SIGINT)
    if handler is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    word = ""
    try:
        os.close(os.open(os.path.join(folder, STARTED), os.O_CREAT | os.O_WRONLY))
    except OSError:  # no space is left: nobody will see the script, which is not to hear of it
        word = STARTED
    while not word and (os.name == "nt" or os.getppid() == parent):  # a parent that was killed says nothing
        time.sleep(0.005)
        word = next((name for name in (SAMPLED, UNSEEN) if os.path.exists(os.path.join(folder, name))), "")
    if handler is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, handler)
    return word


def _neighbor(name: str, room: str = "profilers"):
    """A module of the package; it does not enter sys.modules, where the script could find it."""
    from _frozen_importlib_external import SourceFileLoader

    module = type(sys)(name)
    module.__file__ = os.path.join(os.path.dirname(os.path.dirname(HERE)), room, f"{name}.py")
    exec(SourceFileLoader(name, module.__file__).get_code(name), module.__dict__)
    return module


class _Torch:
    """Waits among the finders of modules for the import of torch, and calls `it_is_here` at its end."""

    def __init__(self, it_is_here) -> None:
        self.it_is_here = it_is_here

    def find_spec(self, name: str, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        import importlib.util

        spec = importlib.util.find_spec("torch")  # by Python's own finders
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module) -> None:
                load(module)
                try:  # whatever goes wrong here, the script goes on
                    self.it_is_here()
                except Exception:
                    pass

            spec.loader.exec_module = exec_module
        return spec


if VARIABLE in os.environ or TURNS in os.environ:
    if VARIABLE in os.environ:
        begin(os.environ.pop(VARIABLE))
    else:
        begin_turns(os.environ.pop(TURNS))
    # Now the environment's own, if it has one; if not, the error says so to Python, as it would without this one.
    del sys.modules[__name__]
    import sitecustomize  # noqa: F401  pyright: ignore
