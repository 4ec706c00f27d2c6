"""What happens to a thread that still works when the program ends: `python -m hpml_lab.processes.lessons.thread_exit KIND`.

plain   an ordinary thread: the interpreter waits for it before it exits
daemon  a daemon thread: it is cut off where it is; not even its `finally` block runs
joined  a daemon thread that the program itself waits for
"""

import sys
import threading
import time

from hpml_lab.core.system.programs import Finished, run_python

THREAD_KINDS = ("plain", "daemon", "joined")
SHORT_SECONDS, LONG_SECONDS = 0.2, 60.0  # of work; an interpreter that waited for the long one would miss its deadline


def work(seconds: float) -> None:
    """Wait, then print that it is done; and print when the block is left, on which ordinary Python code can rely."""
    try:
        time.sleep(seconds)
        print("thread done", flush=True)
    finally:
        print("thread cleaned up", flush=True)


def main(kind: str) -> None:
    """Start the thread at the program's end; one that is to be joined, before its last line, and wait for it."""
    seconds = LONG_SECONDS if kind == "daemon" else SHORT_SECONDS
    thread = threading.Thread(target=work, args=(seconds,), daemon=kind != "plain")
    if kind == "joined":
        thread.start()
        thread.join()
    print("main done", flush=True)
    if kind != "joined":
        thread.start()


def thread_at_exit(kind: str, deadline_seconds: float = 30.0) -> Finished:
    """Run one kind ("plain", "daemon" or "joined") as a program of its own, to see how that program ends."""
    return run_python(["-m", "hpml_lab.processes.lessons.thread_exit", kind], deadline_seconds=deadline_seconds)


if __name__ == "__main__":
    main(sys.argv[1])
