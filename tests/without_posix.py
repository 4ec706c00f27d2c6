"""`python tests/without_posix.py all` imports every module, then lists; other words are a command line. All without POSIX.

It stands in for Windows: modules, signals and functions of `os` are taken away once third parties have loaded.
"""

import importlib
import multiprocessing.util
import os
import pkgutil
import signal
import sys

import IPython
import ipywidgets
import matplotlib.pyplot
import psutil
import sklearn.datasets
import torch
import torch._dynamo
import torch.distributed.elastic.multiprocessing
import torch.distributed.launcher.api
import torch.utils.data
import torchvision

LOADED = (IPython, ipywidgets, matplotlib.pyplot, multiprocessing.util, psutil, sklearn.datasets, torch._dynamo, torchvision)
MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "pty", "tty")
SIGNALS = ("SIGALRM", "SIGVTALRM", "SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGSTOP", "SIGCONT")
OF_SIGNAL = (
    *SIGNALS,
    "setitimer",
    "getitimer",
    "ITIMER_REAL",
    "ITIMER_VIRTUAL",
    "ITIMER_PROF",
    "pthread_sigmask",
    "pthread_kill",
)
OF_OS = (
    *("killpg", "fork", "forkpty", "register_at_fork", "posix_fadvise", "preadv", "pwritev", "pread", "sched_getaffinity"),
    *("sched_setaffinity", "getuid", "geteuid", "getpgid", "getpgrp", "setsid", "getloadavg", "sysconf", "uname", "O_DIRECT"),
    *("nice", "mkfifo", "wait4", "waitid", "setpgid", "sync", "fchmod"),
)


def take_away() -> None:
    sys.modules.update(dict.fromkeys(MODULES))
    for module, names in ((signal, OF_SIGNAL), (os, OF_OS)):
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    left = {signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGINT, signal.SIGSEGV, signal.SIGTERM}
    signal.valid_signals = lambda: left
    import multiprocessing.context

    multiprocessing.context.DefaultContext.get_all_start_methods = lambda self: ["spawn"]
    multiprocessing.get_all_start_methods = lambda: ["spawn"]


def modules_that_do_not_load() -> dict[str, str]:
    import hpml_lab

    failed = {}
    for found in pkgutil.walk_packages(hpml_lab.__path__, "hpml_lab."):
        if not found.name.endswith("__main__"):
            try:
                importlib.import_module(found.name)
            except BaseException as error:
                failed[found.name] = f"{type(error).__name__}: {error}"
    return failed


if __name__ == "__main__":
    take_away()
    if sys.argv[1:] == ["all"]:
        failed = modules_that_do_not_load()
        print("\n".join(f"{name}: {why}" for name, why in failed.items()))
        sys.argv[1:] = ["list"]
    else:
        failed = {}
    from hpml_lab.cli import main

    sys.exit(main(sys.argv[1:]) or bool(failed))
