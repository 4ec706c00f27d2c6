"""`ring-buffer`: put and take of a ring with a fixed number of slots, played through in every order that matters."""

import inspect
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.time_limit import TimeLimitReached, time_limit
from hpml_lab.core.system.signatures import signature_of

# What the two sides do in turn: p puts the next item, t takes one. With 3 slots: fill, overfill, drain, overdrain, go round.
INTERLEAVINGS = (
    "ptptptptpt",
    "pppttt",
    "t",
    "ptt",
    "pppptttt",
    "pppptpttpptppttttpptt",
    "pppppttttt" * 2,
    "pp" + "pt" * 260 + "ttt",  # longer than a counter of 8 bits can count
    "ppt" * 12 + "t" * 20,
)


@exercise("ring-buffer", notebook="07_processes", takes="slots", returns={Callable})
def judge_ring_buffer(answer: Callable) -> None:
    """Play every sequence of moves on the answer and on a queue that is right."""
    try:
        with time_limit():
            for slots in (3, 1, 4):
                for moves in INTERLEAVINGS:
                    _play(answer, moves, slots)
            _check_second_ring(answer)
            _check_items(answer)
    except UnboundLocalError as error:
        code = getattr(inspect.unwrap(answer), "__code__", None)
        if code is None or str(error).split("'")[1] not in code.co_varnames + code.co_cellvars:
            raise  # no variable of the outer function has this name
        raise Mistake(
            "nonlocal-missing",
            f"{error}: an assignment makes a name local to put or take. Declare it `nonlocal`, or keep the counters in a list.",
        ) from error
    except TimeLimitReached:
        raise Mistake(
            "blocks-forever",
            "Your put or take waits. || Nothing else can run meanwhile: return at once, False if the ring is full, None if "
            "it is empty.",
        ) from None


def _play(make: Callable[[int], Any], moves: str, slots: int) -> None:
    """Raise the Mistake that the first difference from the right queue shows."""
    pair = list(make(slots))
    if len(pair) != 2:
        raise Mistake("not-two-functions", "Return the two functions themselves: `return put, take`, without calling them.")
    put, take = pair
    if not _takes(put, 1) and _takes(take, 1):
        raise Mistake("swapped", "The order is put, take: put comes first.")
    right: deque[int] = deque()
    taken: list[int] = []
    for number, move in enumerate(moves, start=1):
        names = " ".join("put" if earlier == "p" else "take" for earlier in moves[:number])
        past = names if number <= 12 else f"{names.count('put')} puts and {names.count('take')} takes"
        story = f"With {slots} slots, after {past}: "
        item = number * 600 % 1009  # the oldest is neither the smallest nor the largest
        has_room = len(right) < slots
        wanted = right[0] if right else None
        try:
            got = put(item) if move == "p" else take()
        except IndexError as error:
            if move == "p" and not has_room:
                hint = f"{story}the ring is full: return False. Yours raises IndexError: {error}."
                raise Mistake("raises-when-full", hint) from error
            if move == "t" and wanted is None:
                hint = f"{story}the ring is empty: return None. Yours raises IndexError: {error}."
                raise Mistake("raises-when-empty", hint) from error
            hint = f"{story}{error}. After the last slot comes the first one again: take the position modulo `slots`."
            raise Mistake("runs-past-the-end", hint) from error
        if move == "p":
            if got is None:
                when = "" if has_room else " when the ring is full"
                raise Mistake("put-says-nothing", f"put returns None{when}. It must return True (accepted) or False (full).")
            if got not in (True, False):
                raise Mistake("put-says-a-number", f"{story}put returns {got!r}. It must return True or False.")
            if has_room and not got:
                raise _full_too_early(story, len(right), slots, len(taken))
            if got and not has_room:
                raise _accepted_when_full(make, slots)
            if has_room:
                right.append(item)
        else:
            if right:
                right.popleft()
            if got == wanted:
                taken.append(got)
                continue
            if wanted is None and got in taken:
                raise Mistake("reads-an-empty-slot", f"{story}the ring is empty, but take returns {got}, taken before.")
            if wanted is None:
                raise Mistake("empty-is-not-none", f"{story}the ring is empty: return None. Yours returns {got!r}.")
            if got is None:
                raise Mistake("off-by-one-empty", f"{story}take reports empty, but item {wanted} is still in the ring.")
            if got in right and wanted in [take() for _ in range(slots)]:
                raise Mistake("wrong-order", f"{story}take returns {got}; the oldest item is {wanted}. First in, first out.")
            lost = " That is lost: another item was written over it." if got in right else ""
            raise Mistake(
                "overwritten-before-read" if lost else "wrong-item",
                f"{story}take returns {got!r}; the oldest item is {wanted!r}.{lost}",
            )


def _takes(function: Callable, count: int) -> bool:
    """True where a function can be called with `count` arguments."""
    try:
        signature_of(function).bind(*range(count))
    except (TypeError, ValueError):  # it cannot, or is a builtin without a signature
        return False
    return True


def _full_too_early(story: str, items: int, slots: int, taken: int) -> Mistake:
    """A ring that is empty reports full where a slot stays filled after its item was taken; else a slot is never used."""
    if taken and not items:
        hint = f"{story}put reports full, but the ring is empty: every item was taken. A slot is free again after take."
        return Mistake("slot-stays-filled", hint)
    hint = f"{story}put reports full with {items} item{'s' * (items != 1)} in {slots} slots. All slots can be used."
    return Mistake("off-by-one-full", hint)


def _accepted_when_full(make: Callable[[int], Any], slots: int) -> Mistake:
    """Where did the item go that was put into a full ring?"""
    put, take = make(slots)
    for number in range(slots + 1):
        put(number)
    kept = [take() for _ in range(slots + 1)]
    if kept == [*range(slots), None]:
        return Mistake(
            "drops-items",
            "The ring is full and put returns True, but the item is lost. || When the ring is full, put returns False, so "
            "that the producer tries again.",
        )
    if kept == list(range(slots + 1)):
        return Mistake(
            "grows",
            "Your ring keeps more items than it has slots. || A ring has a fixed memory: put returns False when it is full.",
        )
    return Mistake(
        "overwritten-before-read",
        f"After one put too many the consumer reads {kept[:slots]}: an item was overwritten before it was read."
        " Return False when all slots are filled.",
    )


def _check_second_ring(make: Callable[[int], Any]) -> None:
    put, take_first = make(2)
    put(1)
    _, take = make(2)
    if take() is not None or take_first() != 1:
        raise Mistake(
            "one-ring-for-all",
            "A second ring has something in common with the first. || Each ring has slots and positions of its own: create "
            "them in the call.",
        )


def _check_items(make: Callable[[int], Any]) -> None:
    """An item may be anything but None, and two items may be equal."""
    put, take = make(2)
    if [put(5), put(5), take(), take(), take()] != [True, True, 5, 5, None]:
        raise Mistake(
            "finds-by-value",
            "Two equal items, 5 and 5, are put and do not both come back. || Items may be equal: go by position.",
        )
    put, take = make(2)
    if [put(0), put(0), put(1), take(), take()] != [True, True, False, 0, 0]:
        raise Mistake(
            "empty-by-value", "Two slots that hold 0 are filled: a third item waits. || Any object but None is an item."
        )
    for item in (0, "", False, np.arange(3)):
        put, take = make(2)
        accepted, got = put(item), take()
        if accepted and got is not item and type(got) is type(item) and np.array_equal(got, item):
            hint = f"take returns another object than the {type(item).__name__} that was put, with the same content."
            raise Mistake("copied", f"{hint} || A slot holds the item itself: nothing has to be copied within one process.")
        if not accepted or got is not item:
            raise Mistake(
                "empty-by-value", f"The item {item!r} was lost: does your code decide by the item whether it is empty?"
            )
