"""`two-locks`: a transfer between two accounts without a lost update and without a deadlock.

No lock is waited for against the order of the other direction, all are released on every way out, and each balance is read
and changed while its lock is held. One thread suffices to see that: accounts and locks keep a record of what is done to them.
"""

import contextlib
from collections.abc import Callable

from hpml_lab.core.exercises import Mistake, exercise, expect
from hpml_lab.processes.time_limit import TimeLimitReached, time_limit


class _Record:
    """Which locks were taken, in order; which are held; and the waits that can happen: (held, wanted) pairs."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.held: list[str] = []
        self.waits: set[tuple[str, str]] = set()


class _Lock:
    """A lock that keeps a record and raises where a real one would wait forever."""

    def __init__(self, name: str, record: _Record) -> None:
        self.name, self._record = name, record

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
        if blocking and timeout < 0:  # a try, or a wait with a timeout, cannot hang here
            self._record.waits |= {(held, self.name) for held in self._record.held}
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


class _Account:
    """An account that notices when its balance is read or written without its lock."""

    def __init__(self, name: str, balance: int, record: _Record) -> None:
        self.name, self.lock, self._balance, self.bare = name, _Lock(name, record), balance, set()

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


def _accounts() -> tuple[_Record, dict[str, _Account]]:
    record = _Record()
    return record, {name: _Account(name, 100, record) for name in ("ann", "bob")}


def _refused(answer: Callable, accounts: dict[str, _Account], source: str, target: str, amount: int) -> bool:
    try:
        answer(accounts[source], accounts[target], amount)
    except ValueError:
        return True
    return False


@exercise("two-locks", notebook="07_processes")
def judge_two_locks(answer: Callable) -> None:
    """Transfers in both directions, one that is refused, and one from an account to itself."""
    with contextlib.suppress(TimeLimitReached), time_limit():
        _judge_transfer(answer)
        return
    raise Mistake("blocks-forever", "Your transfer does not end, although no other thread holds a lock.")


def _judge_transfer(answer: Callable) -> None:
    record, accounts = _accounts()
    if _refused(answer, accounts, "ann", "bob", 30):
        raise Mistake("refuses-too-much", "30 of 100 can be moved, but your transfer raises ValueError.")
    bare = {name: account.bare for name, account in accounts.items() if account.bare}
    if len(bare) == 2 or (bare and set(record.taken) == {"ann", "bob"}):
        raise Mistake(
            "lost-update",
            "A balance is read or written while its lock is not held: between the two another thread can change it, and its"
            " change is lost.",
        )
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
    forward, record.taken = record.taken, []
    _refused(answer, accounts, "bob", "ann", 30)  # the same two accounts: an order by id(lock) is an order, too
    backward = record.taken
    if record.waits >= {("ann", "bob"), ("bob", "ann")}:
        raise Mistake(
            "opposite-order",
            f"From ann to bob the locks are taken in the order {', '.join(forward)}; from bob to ann {', '.join(backward)}."
            " Two threads that do both at once hold one lock each and wait for the other forever. Choose an order that does"
            " not depend on the direction.",
        )
    _, accounts = _accounts()
    refused = _refused(answer, accounts, "ann", "bob", 500)
    _nothing_held(accounts, "after a transfer that was refused")
    if not refused:
        raise Mistake("overdrawn", "500 of 100 were moved: raise ValueError, under the lock, before anything is changed.")
    if [account._balance for account in accounts.values()] != [100, 100]:
        raise Mistake("half-done", "The transfer raised ValueError, but a balance had been changed already.")
    if any(account.bare for account in accounts.values()):
        raise Mistake(
            "lost-update", "The balance is checked before its lock is held: it may have changed when the money is moved."
        )
    _, accounts = _accounts()
    _refused(answer, accounts, "ann", "ann", 30)
    _nothing_held(accounts, "after a transfer from ann to ann")
    if accounts["ann"]._balance != 100:
        raise Mistake("money-made", f"From ann to ann: 100 before, {accounts['ann']._balance} after.")


def _nothing_held(accounts: dict[str, _Account], when: str) -> None:
    for account in accounts.values():
        if account.lock.held:
            raise Mistake(
                "lock-kept", f"The lock of {account.name} is still held {when}: use `with`, which always releases it."
            )
