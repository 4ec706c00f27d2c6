"""Answers to `two-locks`: one order for both directions, one lock where both accounts are one."""

import contextlib
import functools
import threading

from edited_source import edited, wrong_answers


def solution(source, target, amount):
    import contextlib

    with contextlib.ExitStack() as held:
        for account in sorted({source, target}, key=lambda account: account.name):
            held.enter_context(account.lock)
        if source.balance < amount:
            raise ValueError(f"{source.name} has less than {amount}")
        source.balance -= amount
        target.balance += amount


ONE_LOCK = threading.Lock()


def move(source, target, amount):
    if source.balance < amount:
        raise ValueError("too little")
    source.balance -= amount
    target.balance += amount


def under_one_lock(source, target, amount):
    with ONE_LOCK, source.lock:
        with target.lock if target is not source else contextlib.nullcontext():
            move(source, target, amount)


def tells_that_it_gave_up(source, target, amount):
    if source is target:
        return
    with source.lock:
        if not target.lock.acquire(timeout=0.01):
            raise TimeoutError("busy")
        try:
            move(source, target, amount)
        finally:
            target.lock.release()


def never_two_at_once(source, target, amount):
    with source.lock:
        if source.balance < amount:
            raise ValueError("too little")
        source.balance -= amount
    with target.lock:
        target.balance += amount


def timeout_ignored(source, target, amount):
    first, second = (source, target) if source.name < target.name else (target, source)
    first.lock.acquire(timeout=1)
    if first is not second:
        second.lock.acquire(timeout=1)
    try:
        move(source, target, amount)
    finally:
        first.lock.release()
        if first is not second:
            second.lock.release()


def timeout_ignored_source_first(source, target, amount):
    with source.lock:
        if target is not source:
            target.lock.acquire(timeout=0.1)
        try:
            move(source, target, amount)
        finally:
            if target is not source and target.lock.locked():
                target.lock.release()


BOTH, BY_NAME = "{source, target}", "key=lambda account: account.name"
IN_ORDER = f"sorted({BOTH}, {BY_NAME})"
GIVEN_ORDER = (BOTH, "dict.fromkeys((source, target))")  # a set's own order would be the same for both directions
HOLD = f"""    with contextlib.ExitStack() as held:
        for account in {IN_ORDER}:
            held.enter_context(account.lock)
"""
CHECK = 'if source.balance < amount:\n            raise ValueError(f"{source.name} has less than {amount}")'
TAKE, GIVE = "source.balance -= amount", "target.balance += amount"
READ, WRITE = "left, more = source.balance - amount, target.balance + amount", "source.balance, target.balance = left, more"

WRONG = [
    *wrong_answers(
        solution,
        [
            ("lost-update", ("held.enter_context(account.lock)", "pass")),
            ("lost-update", (CHECK, "pass"), (HOLD, "    if source.balance < amount:\n        raise ValueError\n" + HOLD)),
            ("one-lock-only", (BOTH, "{source}")),
            ("opposite-order", (IN_ORDER, "(source, target)")),
            ("opposite-order", GIVEN_ORDER, (BY_NAME, f"{BY_NAME}[0]")),
            ("opposite-order", GIVEN_ORDER, (BY_NAME, f"{BY_NAME}.lower()")),
            ("lock-kept", ("held.enter_context(account.lock)", "account.lock.acquire()"), (CHECK, "pass")),
            ("locks-itself", (BOTH, "(source, target)")),
            ("released-twice", (GIVE, f"{GIVE}\n        source.lock.release()")),
            ("overdrawn", (CHECK, "pass")),
            ("overdrawn", (CHECK, "if source.balance < amount:\n            return False")),
            ("half-done", (CHECK, "pass"), (GIVE, f"if source.balance < 0:\n            raise ValueError\n        {GIVE}")),
            ("money-lost", (GIVE, "pass")),
            ("wrong-direction", (TAKE, "source.balance += amount"), (GIVE, "target.balance -= amount")),
            ("nothing-moved", (CHECK, "pass"), (TAKE, READ), (GIVE, "pass")),
            ("money-made", (TAKE, READ), (GIVE, WRITE)),
            ("blocks-forever", (CHECK, "while source.balance < amount:\n            pass")),
            ("refuses-too-much", ("source.balance < amount", "source.balance <= amount")),
            ("refuses-too-much", ("source.balance < amount", "source.balance > amount")),
            ("raises", (CHECK, "assert source.balance >= amount")),
            (
                "lost-update",  # the lock is taken twice
                (CHECK, "pass"),
                (HOLD, f"    with source.lock:\n        if source.balance < amount:\n            raise ValueError\n{HOLD}"),
            ),
            (
                "lost-update",  # the message reads the balance behind the lock
                (CHECK, "if source.balance < amount:\n            held.close()\n            raise ValueError(source.balance)"),
            ),
        ],
    ),
    (
        "gives-up-silently",
        edited(tells_that_it_gave_up, ("timeout=0.01", "blocking=False"), ('raise TimeoutError("busy")', "return")),
    ),
    (
        "half-done",
        edited(
            never_two_at_once,
            ("with target.lock:", "if target.lock.acquire(timeout=0.1):"),
            ("target.balance += amount", "target.balance += amount\n        target.lock.release()"),
        ),
    ),
    (
        "lock-kept",  # after the error
        edited(
            never_two_at_once,
            ("with source.lock:", "source.lock.acquire()\n    if True:"),
            ("with target.lock:", "source.lock.release()\n    with target.lock:"),
        ),
    ),
    ("acquire-ignored", timeout_ignored),
    ("acquire-ignored", timeout_ignored_source_first),
]


def by_id(source, target, amount):
    with contextlib.ExitStack() as held:
        for lock in sorted({source.lock, target.lock}, key=id):
            held.enter_context(lock)
        if source.balance < amount:
            raise ValueError("too little")
        source.balance -= amount
        target.balance += amount


def tries_and_steps_back(source, target, amount):
    while source is not target:
        with source.lock:
            if target.lock.acquire(blocking=False):
                try:
                    if source.balance < amount:
                        raise ValueError("too little")
                    source.balance -= amount
                    target.balance += amount
                    return
                finally:
                    target.lock.release()


def by_name_in_two_branches(source, target, amount):
    if source is target:
        return
    if source.name < target.name:
        with source.lock, target.lock:
            move(source, target, amount)
    else:
        with target.lock, source.lock:
            move(source, target, amount)


def with_finally(source, target, amount):
    locks = [account.lock for account in sorted({source, target}, key=lambda account: account.name)]
    for lock in locks:
        lock.acquire()
    try:
        move(source, target, amount)
    finally:
        for lock in filter(lambda lock: lock.locked(), locks):
            lock.release()


def both_in_a_dictionary(source, target, amount):
    accounts = {account.name: account for account in (source, target)}
    with contextlib.ExitStack() as stack:
        for name in sorted(accounts):
            stack.enter_context(accounts[name].lock)
        if source.balance < amount:
            raise ValueError(f"{source.name} has only {source.balance}")
        source.balance -= amount
        target.balance += amount


ALSO_RIGHT = [
    *[by_id] * 8,  # the order of two ids is a matter of chance
    tries_and_steps_back,
    never_two_at_once,
    under_one_lock,
    tells_that_it_gave_up,
    by_name_in_two_branches,
    with_finally,
    edited(solution, (BY_NAME, f"{BY_NAME}[::-1]")),
    both_in_a_dictionary,
    functools.partial(solution),
]
