"""Python imports this on its way to a script that `hpml-lab profile` runs, since this folder is the first in its PYTHONPATH.

Python itself then runs the script, whatever it is: arguments, `__main__`, tracebacks, threads and exit code are Python's own.
The script finds nothing of this: environment and sys.path are as they were typed, and no module that one of its own could be
called stays in sys.modules. Hence only what Python has at its start is imported here.
"""

import os
import sys
import time

VARIABLE = "HPML_LAB_AT_START"
HERE = os.path.dirname(os.path.abspath(__file__))
STARTED, SAMPLED, UNSEEN = "started", "sampled", "unseen"  # files: Python is here; py-spy watches; nobody does


def begin(settings: str) -> None:
    """Leave no trace, wait until the parent says who samples, and prepare what watches from inside.

    settings  the parent's number, samples a second, seconds of torch's operators to record, whether PYTHONPATH was set, and the
              folder of the files
    """
    parent, rate, seconds, had_path, folder = settings.split(" ", 4)
    os.environ["PYTHONPATH"] = os.environ["PYTHONPATH"].removeprefix(HERE).removeprefix(os.pathsep)
    if had_path == "0":
        del os.environ["PYTHONPATH"]
    sys.path.remove(HERE)
    sys.path_importer_cache.pop(HERE, None)
    if _wait(folder, int(parent)) == UNSEEN:
        before = [{*known} for known in (sys.modules, sys.path_importer_cache)]
        _neighbor("sampler").sample_until_exit(float(rate), os.path.join(folder, "stacks.txt"))
        for known, names in zip((sys.modules, sys.path_importer_cache), before, strict=True):
            for name in {*known} - names:
                del known[name]
    if float(seconds):
        sys.meta_path.insert(0, _Torch(folder, float(seconds)))


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


def _neighbor(name: str):
    """A module of the folder above; it does not enter sys.modules, where the script could find it."""
    from _frozen_importlib_external import SourceFileLoader

    module = type(sys)(name)
    module.__file__ = os.path.join(os.path.dirname(HERE), f"{name}.py")
    exec(SourceFileLoader(name, module.__file__).get_code(name), module.__dict__)
    return module


class _Torch:
    """Waits among the finders of modules for the import of torch, and lets its operators be recorded from there on."""

    def __init__(self, folder: str, seconds: float) -> None:
        self.folder, self.seconds = folder, seconds

    def find_spec(self, name: str, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        try:  # whatever goes wrong here, the script goes on
            return _neighbor("operator_recorder").OperatorRecorder(self.folder, self.seconds).find_torch()
        except Exception:
            return None


if VARIABLE in os.environ:
    begin(os.environ.pop(VARIABLE))
    # Now the environment's own, if it has one; if not, the error says so to Python, as it would without this one.
    del sys.modules[__name__]
    import sitecustomize  # noqa: F401  pyright: ignore
