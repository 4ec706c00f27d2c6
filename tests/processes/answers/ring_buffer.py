"""Answers to `ring-buffer`: two counters that only grow; their difference is how many items wait."""

import queue
from collections import deque

import numpy as np
from edited_source import wrong_answers


def solution(slots):
    places = [None] * slots
    count = {"put": 0, "taken": 0}

    def put(item):
        if count["put"] - count["taken"] == slots:
            return False
        places[count["put"] % slots] = item
        count["put"] += 1
        return True

    def take():
        if count["put"] == count["taken"]:
            return None
        item = places[count["taken"] % slots]
        count["taken"] += 1
        return item

    return put, take


def by_list(slots):
    items = []

    def put(item):
        if len(items) == slots:
            return False
        items.append(item)
        return True

    def take():
        return items.pop(0) if items else None

    return put, take


def pointers_of_a_list(slots):
    """Write and read position alone: equal positions mean empty, so one slot must stay free."""
    places, at = [None] * slots, [0, 0]

    def put(item):
        if (at[0] + 1) % slots == at[1] % slots:
            return False
        places[at[0]] = item
        at[0] = (at[0] + 1) % slots
        return True

    def take():
        if at[0] == at[1]:
            return None
        at[1] = (at[1] + 1) % slots
        return places[at[1] - 1]

    return put, take


def none_in_a_slot_is_empty(slots):
    places, at = [None] * slots, [0, 0]

    def put(item):
        if places[at[0] % slots]:
            return False
        places[at[0] % slots] = item
        at[0] += 1
        return True

    def take():
        item = places[at[1] % slots]
        if not item:
            return None
        places[at[1] % slots] = None
        at[1] += 1
        return item

    return put, take


def without_nonlocal(slots):
    ring, count = [None] * slots, 0

    def put(item):
        if count == slots:  # noqa: F823
            return False
        ring[count] = item
        count += 1  # noqa: F841
        return True

    return put, lambda: None


FULL, EMPTY, ENDS = 'count["put"] - count["taken"] == slots', 'count["put"] == count["taken"]', "return put, take"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("overwritten-before-read", (FULL, "False")),
            ("overwritten-before-read", (FULL, 'count["put"] - count["taken"] > slots')),
            ("drops-items", ("return False", "return True")),
            ("copied", ("= item", '= item.copy() if hasattr(item, "copy") else item')),
            ("off-by-one-full", (FULL, 'count["put"] - count["taken"] == slots - 1')),
            ("slot-stays-filled", (FULL, 'count["put"] == slots')),
            ("slot-stays-filled", (FULL, 'count["put"] >= slots')),
            ("off-by-one-empty", (EMPTY, 'count["put"] - count["taken"] <= 1')),
            ("off-by-one-empty", (EMPTY, 'count["put"] % slots == count["taken"] % slots')),
            ("reads-an-empty-slot", (EMPTY, "False")),
            ("wrong-item", ('count["taken"] += 1', "pass")),
            ("put-says-nothing", ("return True", "return None")),
            ("put-says-nothing", ("return False", "return None")),
            ("empty-is-not-none", ("return None", "return False")),
            ("grows", ("places = ", "slots = 8\n    places = ")),
            ("grows", ("places = ", "slots = slots + 1\n    places = ")),
            ("blocks-forever", (f"if {FULL}:\n            return False", f"while {FULL}:\n            pass")),
            ("raises", ("return False", 'raise OverflowError("full")')),
            ("raises-when-full", ("return False", 'raise IndexError("full")')),
            ("runs-past-the-end", (" % slots", "")),
            ("runs-past-the-end", ('places[count["taken"] % slots]', 'places[count["taken"]]')),
            ("one-ring-for-all", ('count = {"put": 0, "taken": 0}', "count = MEMORY\n    count.update(put=0, taken=0)")),
            ("not-two-functions", (ENDS, "return [put]")),
            ("swapped", (ENDS, "return take, put")),
        ],
    ),
    *wrong_answers(
        by_list,
        [
            ("wrong-order", ("items.pop(0)", "items.pop()")),
            ("wrong-order", ("items.pop(0)", "items.pop(items.index(min(items)))")),
            ("empty-by-value", ("items.pop(0) if", "(items.pop(0) or None) if")),
            ("raises-when-empty", (" if items else None", "")),
            ("put-says-a-number", ("return True", "return len(items)")),
            ("finds-by-value", ("items.append(item)", "items.extend([item] * (item not in items))")),
            (
                "raises",  # a name that is not set when full
                ("if len(items) == slots:\n            return False", "if len(items) < slots:\n            accepted = True"),
                ("return True", "return accepted"),
            ),
        ],
    ),
    ("off-by-one-full", pointers_of_a_list),
    ("empty-by-value", none_in_a_slot_is_empty),
    ("nonlocal-missing", without_nonlocal),
]


def by_deque(slots):
    items = deque()

    def put(item):
        return len(items) < slots and (items.append(item) or True)

    return put, lambda: items.popleft() if items else None


def by_methods(slots):
    class Ring:
        def __init__(self):
            self.items, self.head, self.waiting = [None] * slots, 0, 0

        def put(self, item):
            if self.waiting == slots:
                return np.False_
            self.items[(self.head + self.waiting) % slots] = item
            self.waiting += 1
            return np.True_

        def take(self):
            if not self.waiting:
                return None
            item, self.head, self.waiting = self.items[self.head], (self.head + 1) % slots, self.waiting - 1
            return item

    ring = Ring()
    return ring.put, ring.take


def by_queue(slots):
    waiting = queue.Queue(slots)

    def put(item):
        try:
            waiting.put_nowait(item)
        except queue.Full:
            return False
        return True

    def take():
        try:
            return waiting.get_nowait()
        except queue.Empty:
            return None

    return put, take


def with_empty_marks(slots):
    EMPTY = object()
    places, at = [EMPTY] * slots, [0, 0]

    def put(item):
        if places[at[0]] is not EMPTY:
            return False
        places[at[0]] = item
        at[0] = (at[0] + 1) % slots
        return True

    def take():
        item, places[at[1]] = places[at[1]], EMPTY
        if item is EMPTY:
            return None
        at[1] = (at[1] + 1) % slots
        return item

    return put, take


def counted_by_numpy(slots):
    ring, count = [None] * slots, np.zeros(2, int)

    def put(item):
        full = count[0] - count[1] >= slots
        if not full:
            ring[count[0] % slots] = item
            count[0] += 1
        return np.bool_(not full)

    def take():
        if count[0] > count[1]:
            count[1] += 1
            return ring[(count[1] - 1) % slots]

    return [put, take]


ALSO_RIGHT = [
    by_list,
    by_deque,
    by_methods,
    by_queue,
    with_empty_marks,
    counted_by_numpy,
    lambda slots: dict(zip(("put", "take"), solution(slots))).values(),
]
