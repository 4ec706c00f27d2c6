"""Answers to `two-locks`: one order for both directions, one lock where both accounts are one."""

import contextlib
import threading


def solution(source, target, amount):
    import contextlib

    with contextlib.ExitStack() as held:
        for account in sorted({source, target}, key=lambda account: account.name):
            held.enter_context(account.lock)
        if source.balance < amount:
            raise ValueError(f"{source.name} has less than {amount}")
        source.balance -= amount
        target.balance += amount


def no_lock(source, target, amount):
    if source.balance < amount:
        raise ValueError("too little")
    source.balance -= amount
    target.balance += amount


def source_only(source, target, amount):
    with source.lock:
        if source.balance < amount:
            raise ValueError("too little")
        source.balance -= amount
        target.balance += amount


def source_first(source, target, amount):
    with source.lock, target.lock:
        if source.balance < amount:
            raise ValueError("too little")
        source.balance -= amount
        target.balance += amount


def given_back_too_early(source, target, amount):
    with source.lock:
        left = source.balance - amount
    if left < 0:
        raise ValueError("too little")
    with target.lock:
        target.balance += amount
    source.balance = left


def checked_too_early(source, target, amount):
    if source.balance < amount:
        raise ValueError("too little")
    first, second = sorted((source, target), key=lambda account: account.name)
    with first.lock, second.lock:
        source.balance -= amount
        target.balance += amount


def kept_after_the_error(source, target, amount):
    accounts = sorted({source, target}, key=lambda account: account.name)
    for account in accounts:
        account.lock.acquire()
    if source.balance < amount:
        raise ValueError("too little")
    source.balance -= amount
    target.balance += amount
    for account in accounts:
        account.lock.release()


def never_given_back(source, target, amount):
    for account in sorted({source, target}, key=lambda account: account.name):
        account.lock.acquire()
    source.balance -= amount
    target.balance += amount


def same_lock_twice(source, target, amount):
    first, second = sorted((source, target), key=lambda account: account.name)
    with first.lock, second.lock:
        if source.balance < amount:
            raise ValueError("too little")
        source.balance -= amount
        target.balance += amount


def ordered(source, target):
    held = contextlib.ExitStack()
    for account in sorted({source, target}, key=lambda account: account.name):
        held.enter_context(account.lock)
    return held


def unchecked(source, target, amount):
    with ordered(source, target):
        source.balance -= amount
        target.balance += amount


def checked_after_taking(source, target, amount):
    with ordered(source, target):
        source.balance -= amount
        if source.balance < 0:
            raise ValueError("too little")
        target.balance += amount


def gone(source, target, amount):
    with ordered(source, target):
        if source.balance < amount:
            raise ValueError("too little")
        source.balance -= amount


def other_way_round(source, target, amount):
    with ordered(source, target):
        if source.balance < amount:
            raise ValueError("too little")
        source.balance += amount
        target.balance -= amount


def local_balances(source, target, amount):
    with ordered(source, target):
        a, b = source.balance, target.balance
        a, b = a - amount, b + amount


def read_before_both_are_written(source, target, amount):
    with ordered(source, target):
        left, more = source.balance - amount, target.balance + amount
        if left < 0:
            raise ValueError("too little")
        source.balance, target.balance = left, more


def waits_for_more(source, target, amount):
    with ordered(source, target):
        while source.balance < amount:
            pass
        source.balance -= amount
        target.balance += amount


def read_in_one_holding_and_written_in_the_next(source, target, amount):
    with ordered(source, target):
        left, more = source.balance - amount, target.balance + amount
        if left < 0:
            raise ValueError("too little")
    with ordered(source, target):
        source.balance, target.balance = left, more


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


def never_two_at_once(source, target, amount):
    with source.lock:
        if source.balance < amount:
            raise ValueError("too little")
        source.balance -= amount
    with target.lock:
        target.balance += amount


ALSO_RIGHT = [*[by_id] * 8, tries_and_steps_back, never_two_at_once]  # the order of two ids is a matter of chance
WRONG = [
    ("lost-update", no_lock),
    ("lost-update", given_back_too_early),
    ("lost-update", checked_too_early),
    ("lost-update", read_in_one_holding_and_written_in_the_next),
    ("one-lock-only", source_only),
    ("opposite-order", source_first),
    ("lock-kept", kept_after_the_error),
    ("lock-kept", never_given_back),
    ("locks-itself", same_lock_twice),
    ("overdrawn", unchecked),
    ("half-done", checked_after_taking),
    ("money-lost", gone),
    ("wrong-direction", other_way_round),
    ("nothing-moved", local_balances),
    ("money-made", read_before_both_are_written),
    ("blocks-forever", waits_for_more),
]

ONE_LOCK = threading.Lock()


def move(source, target, amount):
    if source.balance < amount:
        raise ValueError("too little")
    source.balance -= amount
    target.balance += amount


def ordered_by(key):
    def transfer(source, target, amount):
        with contextlib.ExitStack() as held:
            for account in sorted(dict.fromkeys((source, target)), key=key):
                held.enter_context(account.lock)
            move(source, target, amount)

    return transfer


def under_one_lock(source, target, amount):
    with ONE_LOCK, source.lock:
        with target.lock if target is not source else contextlib.nullcontext():
            move(source, target, amount)


def only_one_lock(source, target, amount):
    with ONE_LOCK:
        move(source, target, amount)


def one_lock_too_late(source, target, amount):
    with source.lock, ONE_LOCK:
        with target.lock if target is not source else contextlib.nullcontext():
            move(source, target, amount)


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
            if target is not source:
                target.lock.release()


def gives_up(source, target, amount):
    if source is target:
        return
    with source.lock:
        if target.lock.acquire(blocking=False):
            try:
                move(source, target, amount)
            finally:
                target.lock.release()


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


def strictly_more(source, target, amount):
    with ordered(source, target):
        if source.balance <= amount:
            raise ValueError("too little")
        source.balance -= amount
        target.balance += amount


def returns_false(source, target, amount):
    with ordered(source, target):
        if source.balance < amount:
            return False
        source.balance -= amount
        target.balance += amount


def clamps(source, target, amount):
    with ordered(source, target):
        amount = min(amount, source.balance)
        source.balance -= amount
        target.balance += amount


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
        for lock in reversed(locks):
            lock.release()


WRONG += [
    ("opposite-order", ordered_by(lambda account: account.name[0])),
    ("opposite-order", ordered_by(lambda account: account.name == "ann")),
    ("opposite-order", one_lock_too_late),
    ("lost-update", only_one_lock),
    ("acquire-ignored", timeout_ignored),
    ("acquire-ignored", timeout_ignored_source_first),
    ("gives-up-silently", gives_up),
    ("refuses-too-much", strictly_more),
    ("overdrawn", returns_false),
    ("overdrawn", clamps),
    ("lost-update", ordered_by(lambda account: account.balance)),
    (
        "one-lock-only",
        lambda source, target, amount: [None for _ in [0] if target.lock.acquire()] and move(source, target, amount),
    ),
    ("raises", lambda source, target, amount: source.withdraw(amount)),
]
ALSO_RIGHT += [under_one_lock, tells_that_it_gave_up, by_name_in_two_branches, with_finally, ordered_by(lambda a: a.name[::-1])]


def asserts(source, target, amount):
    with contextlib.ExitStack() as stack:
        for account in sorted({source, target}, key=lambda account: account.name):
            stack.enter_context(account.lock)
        assert source.balance >= amount
        source.balance -= amount
        target.balance += amount


def both_in_a_dictionary(source, target, amount):
    accounts = {account.name: account for account in (source, target)}
    with contextlib.ExitStack() as stack:
        for name in sorted(accounts):
            stack.enter_context(accounts[name].lock)
        if source.balance < amount:
            raise ValueError(f"{source.name} has only {source.balance}")
        source.balance -= amount
        target.balance += amount


WRONG += [("another-error", asserts)]
ALSO_RIGHT += [both_in_a_dictionary]
