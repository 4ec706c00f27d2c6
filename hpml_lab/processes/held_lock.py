"""The deadlock of forking while another thread holds a lock, and two ways out. Each case runs in a child with a deadline."""

import multiprocessing
import os
import threading
from multiprocessing.connection import Connection
from typing import Any

from hpml_lab.core.children import child_process
from hpml_lab.core.timeline import CLOCK, Span, span

LOCK = threading.Lock()  # a library's lock: every process has its own, and fork copies it as it is at that moment
HOLDS, STARTS, WAITS, NEVER = "holds the lock", "is in start()", "waits for the lock", "waits in vain"
CASES = ("fork", "fork with hooks", "spawn")


def want_the_lock(connection: Connection) -> None:
    """The worker: say when it asks for the lock, and when it has it."""
    connection.send(CLOCK())
    with LOCK:
        connection.send(CLOCK())


def start_while_held(case: str, hold: float, patience: float) -> dict[str, Any]:
    """Start a process while a thread of this one holds LOCK; the thread gives it back in time, but does the child notice?

    case      "fork"; "fork with hooks" (os.register_at_fork takes the lock around the fork); "spawn"
    hold      seconds for which the thread holds the lock
    patience  seconds that the child gets for it once the thread has given it back
    Returns {"asked", "child has it", "parent has it", "spans"}; "asked": the child lived to ask for the lock.
    Call it in a child (core.children.run_in_child): the hooks stay for good.
    """
    context = multiprocessing.get_context("spawn" if case == "spawn" else "fork")
    if case == "fork with hooks":
        os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release)
    spans: list[Span] = []
    held, may_end = threading.Event(), threading.Event()

    def hold_it() -> None:
        with LOCK, span(spans, "its other thread", HOLDS):
            held.set()
            may_end.wait(hold)

    thread = threading.Thread(target=hold_it)
    thread.start()
    held.wait()
    with child_process(want_the_lock, context=context) as child:
        spans.append(Span("the parent", STARTS, child.called, child.started))
        thread.join()
        asked = child.receive(30)
        got = child.receive(patience) if asked is not None else None
        until = CLOCK() if got is None else got
        parent_has = LOCK.acquire(timeout=patience)
    if asked is not None:
        spans.append(Span("the child", NEVER if got is None else WAITS, asked, until))
    return {"asked": asked is not None, "child has it": got is not None, "parent has it": parent_has, "spans": spans}
