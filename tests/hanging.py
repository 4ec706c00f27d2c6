"""A test that hangs fails or ends the run, and is named: a run would wait for it until somebody ends both, without a word."""

import contextlib
import faulthandler
import os
import threading

import psutil

TEST_SECONDS = 1200.0  # for a test: with a load of 20 on two cores, the slowest took 307 s
NIGHTLY_SECONDS = 7200.0  # for one marked `nightly`: the longest takes half an hour
CUDA_SECONDS = 300.0  # for one marked `cuda`, unless its marker says otherwise: cuda(seconds=900)
GRACE = 60.0  # from the end of what the test has started to that of the run


@contextlib.contextmanager
def watched(item, stderr):
    """Around a test: what it has started is ended when its time is over, and the run, if it still hangs after that.

    stderr  a descriptor: during a test 2 is a file of pytest's, which is lost when the process ends
    Most tests that hang wait for a process, or for one that keeps a pipe open; they fail then, and the others run. Without a
    process to end, no exception would do: a thread that waits for a kernel of a GPU never gets to raise one. faulthandler's
    clock needs no Python.
    """
    marks = {mark.name: mark for mark in item.iter_markers()}
    seconds, grace = (NIGHTLY_SECONDS if "nightly" in marks else TEST_SECONDS), GRACE
    if "cuda" in marks:
        seconds, grace = marks["cuda"].kwargs.get("seconds", CUDA_SECONDS), 0.0
    timer = threading.Timer(seconds, end_what_was_started, (item.nodeid, seconds, stderr))
    timer.daemon = True
    timer.start()
    faulthandler.dump_traceback_later(seconds + grace, file=stderr, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        timer.cancel()


def end_what_was_started(name, seconds, stderr):
    os.write(stderr, f"\n{name} has not ended after {seconds:g} s: what it has started is ended now.\n".encode())
    faulthandler.dump_traceback(stderr)
    for process in started():
        with contextlib.suppress(psutil.Error):
            os.write(stderr, f"ended: {' '.join(process.cmdline())[:200]}\n".encode())
            process.kill()


def started():
    """The processes that this one has started, directly or through others, children of init included."""
    found = {process.pid: process for process in psutil.Process().children(recursive=True)}
    mine = {name: os.environ.get(name) for name in ("HPML_TEST_RUN", "PYTEST_XDIST_WORKER")}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            environ = process.environ()  # as it was at its start: without the second name in a worker, which is none of these
            if mine == {name: environ.get(name) for name in mine} and process.pid != os.getpid():
                found[process.pid] = process
    return list(found.values())
