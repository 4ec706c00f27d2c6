"""The deadlock of forking while another thread holds a lock, and two ways out. Each case runs in a child with a deadline."""

import multiprocessing
import os
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection

from hpml_lab.core.system.children import START_SECONDS, child_process
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.timing.timeline import Span, span

LOCK = threading.Lock()  # a library's lock: every process has its own, and fork copies it as it is at that moment
PARENT, THREAD, CHILD = "the parent", "its other thread", "the child"
HOLDS, STARTS, WAITS, NEVER = "holds the lock", "is in start()", "waits for the lock", "waits forever"
GETS, GETS_NOT = "gets the lock", "never gets the lock"
GETS_OWN = "gets the lock while the thread still holds it"
GETS_SECONDS = 30.0
HELD_LOCK_CASES = ("fork", "fork with hooks", "spawn")


@dataclass(frozen=True)
class HeldLock:
    """What became of a child that was started while a thread of its parent held LOCK.

    asked   whether the child lived to ask for the lock
    child   GETS_OWN if it has its lock before the thread has released the parent's; GETS afterwards, or GETS_NOT
    parent  GETS or GETS_NOT, after the thread has released it
    """

    asked: bool
    child: str
    parent: str
    spans: list[Span]


def ask_for_lock(connection: Connection) -> None:
    """The child: send the time at which it asks for the lock, and at which it has it."""
    connection.send(CLOCK())
    with LOCK:
        connection.send(CLOCK())


def start_while_held(case: str, hold_seconds: float, patience_seconds: float) -> HeldLock:
    """Start a process while a thread of this one holds LOCK. The thread releases it; does the child notice?

    case              "fork"; "fork with hooks" (os.register_at_fork takes the lock around the fork); "spawn"
    hold_seconds      how long the thread holds the lock after the child has asked for it and, spawned, has it; with hooks,
                      where start() waits for the thread, from its start on
    patience_seconds  how long a plainly forked child waits for it after the thread has released it; the others, which are to
                      get it, have as long as a busy machine may need
    Call it in a child (core.system.children.run_in_child): the hooks cannot be removed.
    """
    context = multiprocessing.get_context("spawn" if case == "spawn" else "fork")
    if case == "fork with hooks":
        os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release)
    spans: list[Span] = []
    held, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with LOCK, span(spans, THREAD, HOLDS):
            held.set()
            may_end.wait(hold_seconds if case == "fork with hooks" else 2 * START_SECONDS)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    with child_process(ask_for_lock, context=context) as child:
        spans.append(Span(PARENT, STARTS, child.called, child.started))
        asked = child.receive(START_SECONDS)
        # A lock that nobody holds says nothing: a spawned child starts slowly, and has to ask while the thread holds the lock.
        got = child.receive(GETS_SECONDS) if asked is not None and case == "spawn" else None
        thread.join(hold_seconds)
        may_end.set()
        thread.join()
        held_until = next(span.end for span in spans if span.lane == THREAD)
        if got is None and asked is not None:
            got = child.receive(patience_seconds if case == "fork" else max(patience_seconds, GETS_SECONDS))
        end = CLOCK() if got is None else got
        parent_gets = LOCK.acquire(timeout=patience_seconds)
    if asked is not None:
        spans.append(Span(CHILD, NEVER if got is None else WAITS, asked, end))
    gets = GETS_NOT if got is None else GETS_OWN if got < held_until else GETS
    return HeldLock(asked is not None, gets, GETS if parent_gets else GETS_NOT, spans)
