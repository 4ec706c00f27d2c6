"""The checks of notebook 07's exercises. All judge in this process and without waiting: what could block has a deadline."""

import contextlib
import functools
import math
import pickle
import pickletools
import signal
import threading
import types
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

from hpml_lab.core.exercises import Mistake, exercise, expect

NOTEBOOK = "07_processes"


class _TooLong(BaseException):
    """Not an Exception, so that an answer's own `except Exception` does not catch it."""


@contextlib.contextmanager
def _deadline(computing: float = 0.2, waiting: float = 1.0) -> Iterator[None]:
    """End a `with` block that computes or waits too long, in the main thread (elsewhere there is no deadline)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: Any) -> None:
        raise _TooLong

    kinds = ((signal.ITIMER_VIRTUAL, signal.SIGVTALRM, computing), (signal.ITIMER_REAL, signal.SIGALRM, waiting))
    handlers = [signal.signal(number, ring) for _, number, _ in kinds]
    timers = [signal.setitimer(timer, seconds, 0.05) for timer, _, seconds in kinds]  # again, should the first be caught
    try:
        yield
    finally:
        for (timer, number, _), handler, before in zip(kinds, handlers, timers, strict=True):
            signal.setitimer(timer, *before)
            signal.signal(number, handler)


# ---- ring-buffer: put and take of a ring ----------------------------------------------------------------------------------

# What the two sides do in turn: p puts the next item, t takes one. With 3 slots: fill, overfill, drain, overdrain, go round.
INTERLEAVINGS = ("ptptptptpt", "pppttt", "t", "pt" + "t", "ppp" + "p" + "tttt", "pppptpttpptppttttpptt", "pppppttttt" * 2)


def _script(make: Callable[[int], Any], moves: str, slots: int) -> None:
    """Play `moves` on a ring of `slots` and on a queue that is right; raise the Mistake that the first difference shows."""
    pair = make(slots)
    if pair is None:
        raise Mistake("returns-nothing", "Your function returns None: end it with `return put, take`.")
    if not (isinstance(pair, tuple) and len(pair) == 2 and all(callable(one) for one in pair)):
        raise Mistake("not-two-functions", "Return the two functions themselves: `return put, take`, without calling them.")
    put, take = pair
    right: deque[int] = deque()
    done = ""
    for number, move in enumerate(moves, start=1):
        done += move
        story = f"With {slots} slots, after {' '.join('put' if one == 'p' else 'take' for one in done)}: "
        if move == "p":
            room = len(right) < slots
            accepted = put(number)
            if accepted is None:
                raise Mistake(
                    "put-says-nothing", "put returns None. It must tell the producer True (taken in) or False (full)."
                )
            if room and not accepted:
                raise Mistake(
                    "off-by-one-full", f"{story}put says full with {len(right)} items in the ring. All slots can be used."
                )
            if not room and accepted:
                raise _full_but_accepted(make, slots)
            if room:
                right.append(number)
        else:
            expected, got = (right.popleft() if right else None), take()
            if got == expected:
                continue
            if expected is None:
                raise Mistake("reads-an-empty-slot", f"{story}the ring is empty, but take gives {got}, which was read before.")
            if got is None:
                raise Mistake("off-by-one-empty", f"{story}take says empty, but item {expected} is still in the ring.")
            if got in right:
                raise Mistake("wrong-order", f"{story}take gives {got}; the oldest item is {expected}. First in, first out.")
            raise Mistake("wrong-item", f"{story}take gives {got}, but the oldest item is {expected}.")


def _full_but_accepted(make: Callable[[int], Any], slots: int) -> Mistake:
    """Where did the item go that was put into a full ring?"""
    put, take = make(slots)
    for number in range(slots + 1):
        put(number)
    kept = [take() for _ in range(slots + 1)]
    if kept == list(range(slots)) + [None]:
        return Mistake(
            "drops-items", "The ring is full, put says True, but the item is lost. Say False, so that the producer tries again."
        )
    if kept == list(range(slots + 1)):
        return Mistake(
            "grows", "Your ring keeps more items than it has slots. A ring has a fixed memory: say False when it is full."
        )
    return Mistake(
        "overwritten-before-read",
        f"After one put too many the consumer reads {kept[:slots]}: an item was overwritten before it was read."
        " Say False when all slots are filled.",
    )


@exercise("ring-buffer", notebook=NOTEBOOK)
def judge_ring_buffer(answer: Callable) -> None:
    """put and take of a ring with a fixed number of slots, played through in every order that matters."""
    try:
        with _deadline():
            for slots in (3, 1, 4):
                for moves in INTERLEAVINGS:
                    _script(answer, moves, slots)
            put, take = answer(2)
            put(1)
            other_put, other_take = answer(2)
            if other_take() is not None:
                raise Mistake(
                    "one-ring-for-all", "A second ring contains what was put into the first: make the slots in the call."
                )
            for item in (0, "", False):  # an item may be anything but None
                put, take = answer(2)
                if not put(item) or take() != item:
                    raise Mistake("empty-by-value", f"The item {item!r} was lost: is emptiness told by the item's value?")
    except _TooLong:
        raise Mistake(
            "blocks-forever",
            "Your put or take waits, but nobody else can run meanwhile. Say at once what is the case: False for full, None for"
            " empty.",
        ) from None


# ---- sendable-work: no closure for a spawned worker -----------------------------------------------------------------------


def _why_not(item: Any) -> tuple[str, str]:
    """The mistake's name and the hint for a work function that cannot be sent."""
    if isinstance(item, functools.partial):
        inner = [one for one in (item.func, *item.args, *item.keywords.values()) if not _goes(one)]
        return _why_not(inner[0] if inner else item.func)
    if isinstance(item, types.MethodType):
        return _why_not(item.__self__)
    if isinstance(item, types.FunctionType) and item.__name__ == "<lambda>":
        return "pickled-lambda", "A lambda has no name under which the worker could import it. Which objects do have one?"
    kind = item if isinstance(item, types.FunctionType | type) else type(item)
    if "<locals>" in kind.__qualname__:
        return (
            "pickled-closure",
            f"{kind.__qualname__} lives inside a function call: pickle sends a function as its module and name, and a worker"
            " cannot import that one. functools.partial and the module `operator` make work that can be sent.",
        )
    if kind.__module__ == "__main__" or (kind is item and not _goes(kind)):
        return (
            "lives-in-the-notebook",
            "Its code lives in the notebook, that is in __main__. A spawned worker has another __main__ and does not find it:"
            " build on functions of a module.",
        )
    return "holds-what-cannot-be-sent", "Something in it cannot be pickled, such as a lock, a file or a thread."


def _goes(item: Any) -> bool:
    try:
        ForkingPickler.dumps(item)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return _homes(item)


def _homes(item: Any) -> bool:
    """True where nothing in the message names this process's __main__, which a spawned worker does not share."""
    words = [word for _, word, _ in pickletools.genops(bytes(ForkingPickler.dumps(item)))]
    return "__main__" not in words and not any(isinstance(word, str) and word.startswith("__main__ ") for word in words)


@exercise("sendable-work", notebook=NOTEBOOK)
def judge_sendable_work(answer: Callable) -> None:
    """A work function with a parameter that pickles by names which any process can import."""
    made = {factor: answer(factor) for factor in (3, 10)}
    for factor, work in made.items():
        if work is None:
            raise Mistake("returns-nothing", "Your function returns None: is a `return` missing?")
        if not callable(work):
            raise Mistake("not-a-function", f"scaler({factor}) gives {work!r}; it should give a function that is called later.")
        if not _goes(work):
            raise Mistake(*_why_not(work))
    received = {factor: pickle.loads(ForkingPickler.dumps(work)) for factor, work in made.items()}
    if received[3](7) == 70:
        raise Mistake("one-factor-for-all", "scaler(10) has changed what scaler(3) does: the factor must travel with the work.")
    for factor, work in received.items():
        for x in (7, 0.5):
            expect(
                work(x),
                factor * x,
                case=f"scaler({factor})({x}), as the worker gets it",
                mistakes={
                    "factor-forgotten": (x, "It gives its argument back: where is the factor?"),
                    "adds": (factor + x, "It adds; asked is the product."),
                    "power": (x**factor, "It raises to a power; asked is the product."),
                },
            )


# ---- wall-time: threads or processes --------------------------------------------------------------------------------------

# tasks, seconds, workers, cores
WALL_CASES = ((4, 1.0, 4, 8), (8, 0.5, 4, 2), (9, 2.0, 4, 4), (12, 0.1, 12, 4))
WORK = {"python": "a Python loop", "wait": "waiting for a disk", "numpy": "a NumPy product, which gives the GIL back"}


def _wall(parallel: Callable[[str, str, int, int], int], rounds: Callable[[float], float] = math.ceil) -> Callable:
    def wall(tasks: int, seconds: float, workers: int, cores: int, kind: str, on: str) -> float:
        return rounds(tasks / parallel(kind, on, workers, cores)) * seconds

    return wall


def _at_once(kind: str, on: str, workers: int, cores: int) -> int:
    """How many of the workers are really served at the same time."""
    if kind == "wait":
        return workers
    return 1 if kind == "python" and on == "threads" else min(workers, cores)


_WALL_MISTAKES: dict[str, tuple[Callable, str]] = {
    "gil-forgotten": (
        _wall(lambda kind, on, workers, cores: workers if kind == "wait" else min(workers, cores)),
        "Threads of one process share the GIL: how many of them can be in a Python loop at the same time?",
    ),
    "gil-while-waiting": (
        _wall(lambda kind, on, w, c: 1 if on == "threads" and kind != "numpy" else _at_once(kind, on, w, c)),
        "A thread that waits for a disk or a network has given the GIL back. Who else can wait meanwhile?",
    ),
    "gil-in-numpy": (
        _wall(lambda kind, on, w, c: 1 if on == "threads" and kind != "wait" else _at_once(kind, on, w, c)),
        "NumPy gives the GIL back during a large product. Does a second thread have to stand in line?",
    ),
    "threads-never-help": (
        _wall(lambda kind, on, w, c: 1 if on == "threads" else _at_once(kind, on, w, c)),
        "That is the slide's rule, and it is only right for Python bytecode. Who waits or computes in C needs no GIL.",
    ),
    "cores-forgotten": (
        _wall(lambda kind, on, workers, cores: 1 if kind == "python" and on == "threads" else workers),
        "More workers than cores do not compute faster. min(workers, …)",
    ),
    "waiting-needs-cores": (
        _wall(lambda kind, on, w, c: min(w, c) if kind == "wait" else _at_once(kind, on, w, c)),
        "Who waits needs no core: a hundred threads can wait on one.",
    ),
    "part-of-a-round": (
        _wall(_at_once, rounds=float),
        "9 tasks on 4 workers are no 2.25 rounds: the last task takes its whole time. math.ceil",
    ),
    "full-rounds-only": (
        _wall(_at_once, rounds=math.floor),
        "The tasks that are left over after the last full round take their time too.",
    ),
    "speed-up-for-time": (
        lambda tasks, seconds, workers, cores, kind, on: float(_at_once(kind, on, workers, cores)),
        "That is how many run at once. Asked is the time until all are done.",
    ),
}


@exercise("wall-time", notebook=NOTEBOOK)
def judge_wall_time(answer: Callable) -> None:
    """⌈tasks / how many at once⌉ · seconds."""
    cases = [(*case, kind, on) for kind in WORK for on in ("threads", "processes") for case in WALL_CASES]
    got = [answer(*case) for case in cases]
    right = [_wall(_at_once)(*case) for case in cases]
    for name, (wrong, hint) in _WALL_MISTAKES.items():  # over all cases: in a single one several mistakes look alike
        if _close(got, [wrong(*case) for case in cases]):
            raise Mistake(name, hint)
    for case, mine, yours in zip(cases, right, got, strict=True):
        tasks, seconds, workers, cores, kind, on = case
        expect(yours, mine, case=f"{tasks} tasks of {seconds:g} s, {workers} {on}, {cores} cores, {kind}")


def _close(got: list, wrong: list) -> bool:
    return all(isinstance(one, int | float) and math.isclose(one, other) for one, other in zip(got, wrong, strict=True))


# ---- handle-or-copy: the size from which handles win ----------------------------------------------------------------------

# seconds for a pickled and for a handed message of no size, copies of a pickled one, bytes/s of one copy, already shared?
HANDLE_CASES = ((50e-6, 500e-6, 7, 5e9, False), (40e-6, 840e-6, 5, 10e9, True), (20e-6, 260e-6, 4, 2e9, False))


def _right_size(pickled: float, handed: float, copies: int, rate: float, shared: bool) -> float:
    return (handed - pickled) * rate / (copies - (0 if shared else 1))


_HANDLE_MISTAKES: dict[str, tuple[Callable, str]] = {
    "first-copy-forgotten": (
        lambda p, h, c, r, s: (h - p) * r / c,
        "A new tensor has to be moved into shared memory first: that is one copy for the handle as well.",
    ),
    "always-copied": (
        lambda p, h, c, r, s: (h - p) * r / (c - 1),
        "A tensor that lies in shared memory already is not copied again.",
    ),
    "shared-upside-down": (
        lambda p, h, c, r, s: (h - p) * r / (c - (1 if s else 0)),
        "`shared` is True where the tensor lies in shared memory already; then it is not copied.",
    ),
    "one-copy-only": (
        lambda p, h, c, r, s: (h - p) * r,
        "A pickled message is copied several times on its way; each of them costs n / rate.",
    ),
    "pickling-costs-nothing": (
        lambda p, h, c, r, s: h * r / (c - (0 if s else 1)),
        "A small pickled message is not free either: only the difference of the fixed costs has to be won back.",
    ),
    "costs-add": (
        lambda p, h, c, r, s: (h + p) * r / (c - (0 if s else 1)),
        "At the size asked for, both take the same time. Write both sides, then bring the fixed costs to one.",
    ),
    "upside-down": (
        lambda p, h, c, r, s: (c - (0 if s else 1)) / ((h - p) * r),
        "A faster memory makes copies cheaper, so that handles win later: should your size grow with the rate?",
    ),
    "seconds-for-bytes": (
        lambda p, h, c, r, s: (h - p) / (c - (0 if s else 1)),
        "That is a time. How many bytes are copied in it?",
    ),
    "wrong-sign": (
        lambda p, h, c, r, s: -_right_size(p, h, c, r, s),
        "A size below zero: which of the two has the higher fixed cost?",
    ),
}


@exercise("handle-or-copy", notebook=NOTEBOOK)
def judge_handle_or_copy(answer: Callable) -> None:
    """n with t_pickled + copies · n / rate = t_handed + (0 or 1) · n / rate."""
    got = [answer(*case) for case in HANDLE_CASES]
    for name, (wrong, hint) in _HANDLE_MISTAKES.items():
        if _close(got, [wrong(*case) for case in HANDLE_CASES]):
            raise Mistake(name, hint)
    for case, yours in zip(HANDLE_CASES, got, strict=True):
        expect(yours, _right_size(*case), case=f"(pickled, handed, copies, rate, shared) = {case}")


# ---- two-locks: no lost update, no deadlock ---------------------------------------------------------------------------------


class _Diary:
    """Which locks were taken, in order; which are held; and who waits where: (held, wanted) pairs."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.held: list[str] = []
        self.waits: set[tuple[str, str]] = set()


class _Lock:
    """A lock that keeps a diary and, where a real one would wait for ever, raises."""

    def __init__(self, name: str, diary: _Diary) -> None:
        self.name, self._diary = name, diary

    @property
    def held(self) -> bool:
        return self.name in self._diary.held

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self.held:
            raise Mistake(
                "locks-itself",
                f"The lock of {self.name} is taken a second time while it is held: a thread that does that waits for itself."
                " Source and target may be the same account.",
            )
        if blocking and timeout < 0:  # who only tries, or gives up after a while, cannot hang here
            self._diary.waits |= {(held, self.name) for held in self._diary.held}
        self._diary.held.append(self.name)
        self._diary.taken.append(self.name)
        return True

    def release(self) -> None:
        if not self.held:
            raise Mistake("released-twice", f"The lock of {self.name} is released, but it is not held.")
        self._diary.held.remove(self.name)

    def locked(self) -> bool:
        return self.held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _Account:
    """An account that notices when its balance is read or written without its lock."""

    def __init__(self, name: str, balance: int, diary: _Diary) -> None:
        self.name, self.lock, self._balance, self.bare = name, _Lock(name, diary), balance, set()

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


def _accounts() -> tuple[_Diary, dict[str, _Account]]:
    diary = _Diary()
    return diary, {name: _Account(name, 100, diary) for name in ("ann", "bob")}


def _refused(answer: Callable, accounts: dict[str, _Account], source: str, target: str, amount: int) -> bool:
    try:
        answer(accounts[source], accounts[target], amount)
    except ValueError:
        return True
    return False


@exercise("two-locks", notebook=NOTEBOOK)
def judge_two_locks(answer: Callable) -> None:
    """No lock is waited for against the order of the other direction, all are given back on every way out, and each balance
    is read and changed under its lock."""
    with contextlib.suppress(_TooLong), _deadline():
        _judge_transfer(answer)
        return
    raise Mistake("blocks-forever", "Your transfer does not come to an end, although nobody else holds a lock.")


def _judge_transfer(answer: Callable) -> None:
    diary, accounts = _accounts()
    if _refused(answer, accounts, "ann", "bob", 30):
        raise Mistake("refuses-too-much", "30 of 100 can be moved, but your transfer raises ValueError.")
    bare = {name: account.bare for name, account in accounts.items() if account.bare}
    if len(bare) == 2 or (bare and set(diary.taken) == {"ann", "bob"}):
        raise Mistake(
            "lost-update",
            "A balance is read or written while its lock is not held: between the reading and the writing another thread can"
            " change it, and its change is lost.",
        )
    if bare:
        raise Mistake("one-lock-only", f"The account {next(iter(bare))} is changed without its lock.")
    again = [name for name in accounts if diary.taken.count(name) > 1]
    if again:
        raise Mistake(
            "lost-update",
            f"The lock of {again[0]} is given back and taken again: what you read before may have changed meanwhile.",
        )
    balances = [account._balance for account in accounts.values()]
    expect(
        balances,
        [70, 130],
        case="30 from ann (100) to bob (100)",
        mistakes={
            "wrong-direction": ([130, 70], "The money went from target to source."),
            "money-lost": ([70, 100], "It was taken from the source, but the target did not get it."),
            "money-made": ([100, 130], "The target got it, but it was not taken from the source."),
            "nothing-moved": ([100, 100], "No balance has changed. Assign to source.balance and target.balance."),
        },
    )
    _nothing_held(accounts, "after a transfer")
    there, diary.taken = diary.taken, []
    _refused(answer, accounts, "bob", "ann", 30)  # the same two accounts: an order by id(lock) is an order, too
    back = diary.taken
    if diary.waits >= {("ann", "bob"), ("bob", "ann")}:
        raise Mistake(
            "opposite-order",
            f"From ann to bob the locks are taken in the order {', '.join(there)}; from bob to ann {', '.join(back)}."
            " Two threads that do both at once hold one lock each and wait for the other for ever. Choose an order that does"
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
                "lock-kept", f"The lock of {account.name} is still held {when}: use `with`, which gives it back always."
            )
