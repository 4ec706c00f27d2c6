"""A test that hangs fails or ends the run, and is named: a run would wait for it until somebody ends both, without a word."""

import contextlib
import faulthandler
import os
import threading
import time

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


class Silence:
    """A plugin of a run with workers. It ends them when they say no more: one was stopped, or killed while a child of its
    own keeps its pipe open, and the run would wait for it."""

    def __init__(self, at_night, stderr):
        self.seconds = (NIGHTLY_SECONDS if at_night else TEST_SECONDS) + 2 * GRACE
        self.stderr, self.since = stderr, time.monotonic()
        threading.Thread(target=self._watch, daemon=True, name="silence of a run").start()

    def pytest_runtest_logreport(self):
        self.since = time.monotonic()

    def _watch(self):
        while (left := self.since + self.seconds - time.monotonic()) > 0:
            time.sleep(left)
        end_what_was_started("The run", self.seconds, self.stderr)


def end_what_was_started(name, seconds, stderr):
    os.write(stderr, f"\n{name} hangs for {seconds:g} s: what it has started is ended now.\n".encode())
    faulthandler.dump_traceback(stderr)
    for process in started():
        with contextlib.suppress(psutil.Error):
            os.write(stderr, f"ended: {' '.join(process.cmdline())[:200]}\n".encode())
            process.kill()


def started():
    """The processes that this one has started, directly or through others, children of init included."""
    found = {process.pid: process for process in psutil.Process().children(recursive=True)}
    run, worker = os.environ["HPML_TEST_RUN"], os.environ.get("PYTEST_XDIST_WORKER")
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            environ = process.environ()  # as it was at its start: a worker has no second name then, and is none of these
            here = environ.get("HPML_TEST_RUN") == run and worker in (None, environ.get("PYTEST_XDIST_WORKER"))
            if here and process.pid != os.getpid():
                found[process.pid] = process
    return list(found.values())
