"""`python tests/without_processes.py load|check TOPIC …`: a Python in which no thread, process or timer can start.

It stands in for Python in a browser (WebAssembly): what such a Python lacks is taken away once third parties have loaded.
`load` imports every module of the packages, `check` judges all answers of the tests to the exercises of the topics.
"""

import importlib
import os
import pkgutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import IPython
import ipywidgets
import matplotlib.pyplot
import sklearn.datasets
import torch
import torch._dynamo
import torch.utils.data
import torchvision

LOADED = (IPython, ipywidgets, matplotlib.pyplot, sklearn.datasets, torch._dynamo, torch.utils.data, torchvision)
ABSENT = (
    *("psutil", "pynvml", "line_profiler", "cloudpickle"),  # not built for it
    *("fcntl", "resource", "pwd", "grp", "termios", "pty", "tty", "_multiprocessing", "_posixshmem"),
)
OF_SIGNAL = ("setitimer", "getitimer", "SIGALRM", "SIGVTALRM", "SIGPROF", "ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF")


def refuse_threads(*arguments, **options):
    raise RuntimeError("can't start new thread")


def refuse_processes(*arguments, **options):
    raise OSError("no processes here")


def take_away() -> None:
    torch.set_num_threads(1)
    for name in ABSENT:
        for known in [module for module in sys.modules if module == name or module.startswith(f"{name}.")]:
            del sys.modules[known]
        sys.modules[name] = None
    for name in OF_SIGNAL:
        if hasattr(signal, name):
            delattr(signal, name)
    threading.Thread.start = refuse_threads
    subprocess.Popen.__init__ = os.fork = refuse_processes


def modules_that_do_not_load(packages: list[str]) -> dict[str, str]:
    failed = {}
    for package in packages:
        for found in pkgutil.walk_packages(importlib.import_module(f"hpml_lab.{package}").__path__, f"hpml_lab.{package}."):
            try:
                importlib.import_module(found.name)
            except BaseException as error:
                failed[found.name] = f"{type(error).__name__}: {error}"
    return failed


def answers_that_are_judged_otherwise(topics: list[str]) -> tuple[int, int, dict[str, str]]:
    """(right answers, wrong answers, what is said of those of which the tests want something else)."""
    from hpml_lab.core.judge.exercises import all_exercises, check

    tests = Path(__file__).parent
    sys.path.insert(0, str(tests))
    counts, failed = [0, 0], {}
    for exercise in all_exercises():
        topic = exercise.notebook.partition("_")[2]
        if topic not in topics:
            continue
        module = importlib.import_module(f"{topic}.answers.{exercise.name.replace('-', '_')}")
        wanted = [("", answer) for answer in (module.solution, *getattr(module, "ALSO_RIGHT", ()))] + list(module.WRONG)
        for number, (mistake, answer) in enumerate(wanted):
            counts[bool(mistake)] += 1
            verdict = check(exercise.name, answer)
            if verdict.mistake != mistake or verdict.state == "not yet":
                failed[f"{exercise.name}, answer {number}"] = f"not {mistake or 'right'}: {verdict}"
    return *counts, failed


if __name__ == "__main__":
    os.environ["HPML_RESULTS"] = ""
    take_away()
    what, *names = sys.argv[1:]
    if what == "load":
        failed = modules_that_do_not_load(names)
    else:
        right, wrong, failed = answers_that_are_judged_otherwise(names)
        print(f"{right} right answers, {wrong} wrong ones")
    print("\n".join(f"{name}: {why}" for name, why in failed.items()))
    sys.exit(bool(failed))
