"""What happens to a thread that still works when the program ends: `python -m hpml_lab.processes.daemon plain|daemon|joined`.

plain   an ordinary thread: the interpreter waits for it before it exits
daemon  a daemon thread: it is cut off where it stands; not even its `finally` runs
joined  a daemon thread that the program waits for itself
"""

import sys
import threading
import time

from hpml_lab.core import programs

KINDS = ("plain", "daemon", "joined")
SHORT, LONG = 0.2, 60.0  # seconds of work; an interpreter that waited for the long one would miss its deadline


def work(seconds: float) -> None:
    """Wait, then say so; and say when the block is left, which ordinary Python code can rely on."""
    try:
        time.sleep(seconds)
        print("thread done", flush=True)
    finally:
        print("thread tidied up", flush=True)


def main(kind: str) -> None:
    """Start the thread, wait for it if it is to be joined, and end the program."""
    seconds = LONG if kind == "daemon" else SHORT
    thread = threading.Thread(target=work, args=(seconds,), daemon=kind != "plain")
    thread.start()
    if kind == "joined":
        thread.join()
    print("main done", flush=True)


def at_exit(kind: str, deadline_seconds: float = 30.0) -> programs.Finished:
    """Run one kind in an interpreter of its own, to see how that interpreter ends."""
    return programs.run_python(["-m", "hpml_lab.processes.daemon", kind], deadline_seconds=deadline_seconds)


if __name__ == "__main__":
    main(sys.argv[1])
