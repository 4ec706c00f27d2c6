"""`two-locks`: a transfer between two accounts without a lost update and without a deadlock.

No lock is waited for against the order of the other direction, all are released on every way out, and each balance is read
and changed while its lock is held. One thread suffices to see that: accounts and locks keep a record of what is done to them.
"""

import contextlib
import inspect
import threading
from collections.abc import Callable
from typing import Any

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.time_limit import TimeLimitReached, time_limit


class _Record:
    """Which locks were taken, in order; which are held; and the waits that can happen: (held, wanted) pairs."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.held: list[str] = []
        self.waits: dict[tuple[str, str], list[set[int]]] = {}  # with the ids of those of `guards` that were held
        self.guarded: dict[str, set[int]] = {}  # the same for each lock when it was taken
        self.guards: list[Any] = []  # locks of the student's own


class _Lock:
    """A lock that keeps a record and raises where a real one would wait forever."""

    def __init__(self, name: str, record: _Record, refusals: int = 0) -> None:
        self.name, self._record, self._refusals = name, record, refusals

    @property
    def held(self) -> bool:
        return self.name in self._record.held

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self.held:
            raise Mistake(
                "locks-itself",
                f"The lock of {self.name} is taken a second time while it is held: a thread that does that waits for itself."
                " Source and target may be the same account.",
            )
        guards = {id(guard) for guard in self._record.guards if _is_held(guard)}
        if blocking and timeout < 0:  # a try, or a wait with a timeout, cannot hang here
            for held in self._record.held:
                self._record.waits.setdefault((held, self.name), []).append(guards & self._record.guarded[held])
        elif self._refusals:  # as if another thread held it for a while
            self._refusals -= 1
            return False
        self._record.guarded[self.name] = guards
        self._record.held.append(self.name)
        self._record.taken.append(self.name)
        return True

    def release(self) -> None:
        if not self.held:
            raise Mistake("released-twice", f"The lock of {self.name} is released, but it is not held.")
        self._record.held.remove(self.name)

    def locked(self) -> bool:
        return self.held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def _is_held(lock: Any) -> bool:
    return lock._is_owned() if hasattr(lock, "_is_owned") else lock.locked()


def _own_locks(answer: Callable) -> list[Any]:
    """The locks that a function can reach by a global name, its closure, a default or an attribute."""
    answer = inspect.unwrap(answer)
    code = getattr(answer, "__code__", None)
    if code is None:
        return []
    reached = [answer.__globals__.get(name) for name in code.co_names]
    reached += [cell.cell_contents for cell in answer.__closure__ or ()]
    reached += [*(answer.__defaults__ or ()), *(answer.__kwdefaults__ or {}).values(), *vars(answer).values()]
    return [found for found in reached if isinstance(found, (type(threading.Lock()), type(threading.RLock())))]


class _Account:
    """An account that notices when its balance is read or written without its lock."""

    def __init__(self, name: str, balance: int, record: _Record, refusals: int = 0) -> None:
        self.name, self.lock, self._balance, self.bare = name, _Lock(name, record, refusals), balance, set()

    @property
    def balance(self) -> int:
        if not self.lock.held:
            self.bare.add("read")
        return self._balance

    @balance.setter
    def balance(self, value: int) -> None:
        if not self.lock.held:
            self.bare.add("written")
        self._balance = value


def _accounts(names: tuple[str, str] = ("ann", "bob"), refusals: int = 0) -> tuple[_Record, dict[str, _Account]]:
    """Two accounts with 100 each; the second one's lock is busy for some tries (those that do not wait for ever)."""
    record = _Record()
    return record, {name: _Account(name, 100, record, refusals * (name == names[1])) for name in names}


def _refused(answer: Callable, accounts: dict[str, _Account], source: str, target: str, amount: int) -> bool:
    try:
        answer(accounts[source], accounts[target], amount)
    except ValueError:
        return True
    return False


@exercise("two-locks", notebook="07_processes", takes="source, target, amount", returns=None)
def judge_two_locks(answer: Callable) -> None:
    """Transfers in both directions, one that is refused, and one from an account to itself."""
    with contextlib.suppress(TimeLimitReached), time_limit():
        _judge_transfer(answer)
        return
    raise Mistake(
        "blocks-forever",
        "Your transfer does not end, although no other thread holds a lock. || Where every lock is free, no call may wait: "
        "think of one account as both source and target, too.",
    )


def _judge_transfer(answer: Callable) -> None:
    record, accounts = _accounts()
    if _refused(answer, accounts, "ann", "bob", 30):
        raise Mistake(
            "refuses-too-much",
            "30 of 100 can be moved, but your transfer raises ValueError. || ValueError is for a source that has too little.",
        )
    bare = {name: account.bare for name, account in accounts.items() if account.bare}
    if len(bare) == 2 or (bare and set(record.taken) == {"ann", "bob"}):
        raise Mistake("lost-update", LOST)
    if bare:
        raise Mistake("one-lock-only", f"The account {next(iter(bare))} is changed while its lock is not held.")
    again = [name for name in accounts if record.taken.count(name) > 1]
    if again:
        raise Mistake(
            "lost-update",
            f"The lock of {again[0]} is released and taken again: what you read before may have changed meanwhile.",
        )
    balances = [account._balance for account in accounts.values()]
    expect(
        balances,
        [70, 130],
        case="30 from ann (100) to bob (100)",
        mistakes={
            "wrong-direction": ([130, 70], "The money went from target to source."),
            "money-lost": ([70, 100], "It was taken from the source, but the target did not get it."),
            "money-made": ([100, 130], "The target received it, but it was not taken from the source."),
            "nothing-moved": ([100, 100], "No balance has changed. Assign to source.balance and target.balance."),
        },
    )
    _nothing_held(accounts, "after a transfer")
    # An order by initial, by length or by letters without their case is none for all.
    for names in (("ann", "bob"), ("ann", "abe"), ("al", "robert"), ("Ann", "ann")):
        _judge_order(answer, *names)
    _, accounts = _accounts()
    if _refused(answer, accounts, "ann", "bob", 100):
        raise Mistake(
            "refuses-too-much",
            "100 of 100 can be moved, but your transfer raises ValueError. || A source may become empty: is it < or <=?",
        )
    _judge_busy(answer)
    _, accounts = _accounts()
    try:
        refused = _refused(answer, accounts, "ann", "bob", 500)
    except Exception as error:
        error.add_note("500 of 100, which cannot be moved and should raise ValueError")
        raise
    _nothing_held(accounts, "after a transfer that was refused")
    if not refused:
        left = accounts["ann"]._balance
        hint = f"500 of 100 cannot be moved, but your transfer leaves {left} and no ValueError: raise it under the lock."
        raise Mistake("overdrawn", hint)
    if [account._balance for account in accounts.values()] != [100, 100]:
        raise Mistake(
            "half-done",
            "The transfer raised ValueError, but a balance had been changed already. || ValueError comes before any balance "
            "is changed.",
        )
    if any(account.bare for account in accounts.values()):
        raise Mistake("lost-update", LOST)
    _, accounts = _accounts()
    _refused(answer, accounts, "ann", "ann", 30)
    _nothing_held(accounts, "after a transfer from ann to ann")
    if accounts["ann"]._balance != 100:
        raise Mistake("money-made", f"From ann to ann: 100 before, {accounts['ann']._balance} after.")


def _judge_order(answer: Callable, one: str, other: str) -> None:
    """Raise a Mistake if two transfers in opposite directions can wait for each other."""
    record, accounts = _accounts((one, other))
    record.guards = _own_locks(answer)
    _refused(answer, accounts, one, other, 30)
    forward, record.taken = record.taken, []
    _refused(answer, accounts, other, one, 30)  # the same two accounts: an order by id(lock) is an order, too
    backward = record.taken
    there, back = (record.waits.get(pair, []) for pair in ((one, other), (other, one)))
    if any(not (first & second) for first in there for second in back):  # no lock of the student's keeps the two apart
        raise Mistake(
            "opposite-order",
            f"From {one} to {other} the locks are taken in the order {', '.join(forward)}; from {other} to {one} "
            f"{', '.join(backward)}. Two threads that do both hold one lock each and wait for the other forever. "
            "Choose an order that does not depend on the direction.",
        )


def _judge_busy(answer: Callable) -> None:
    """The second account's lock is busy at first: a try, or a wait with a timeout, fails and says so."""
    for names in (("ann", "bob"), ("bob", "ann")):
        _, accounts = _accounts(names, refusals=3)
        gave_up = False
        try:
            answer(*accounts.values(), 30)
        except Mistake as mistake:
            if mistake.name != "released-twice":
                raise
            raise Mistake("acquire-ignored", IGNORED) from mistake
        except Exception:  # telling the caller that a lock stays busy
            gave_up = True
        if any(account.bare for account in accounts.values()):
            raise Mistake("acquire-ignored", IGNORED)
        _nothing_held(accounts, "after a transfer that found a lock busy")
        balances = [account._balance for account in accounts.values()]
        if sum(balances) != 200:
            raise Mistake("half-done", f"If a lock is busy for a while, 100 and 100 become {balances[0]} and {balances[1]}.")
        if balances == [100, 100] and not gave_up:
            raise Mistake(
                "gives-up-silently",
                "A lock may be busy for a while. If nothing is moved then, the caller cannot know it: try again.",
            )


LOST = (
    "A balance is read and written only while its lock is held: between the two another thread can change it, and its change "
    "is lost."
)
IGNORED = (
    "acquire with a timeout, or without blocking, returns False if it did not get the lock. Your code goes on as if it had it."
)


def _nothing_held(accounts: dict[str, _Account], when: str) -> None:
    for account in accounts.values():
        if account.lock.held:
            raise Mistake(
                "lock-kept", f"The lock of {account.name} is still held {when}: use `with`, which always releases it."
            )
