"""Answers to `ring-buffer`: two counters that only grow; their difference is how many items wait."""

import queue
import threading
from collections import deque

import numpy as np


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


def ring(full, empty, when_full=False, moves=True, overwrite=False):
    """A ring with the given tests for full and empty of (put, taken, slots)."""

    def make(slots):
        places, count = [None] * slots, [0, 0]

        def put(item):
            if full(*count, slots) and not overwrite:
                return when_full
            places[count[0] % slots] = item
            count[0] += 1
            return True

        def take():
            if empty(*count, slots):
                return None
            item = places[count[1] % slots]
            count[1] += moves
            return item

        return put, take

    return make


def is_full(put, taken, slots):
    return put - taken == slots


def is_empty(put, taken, slots):
    return put == taken


def says_nothing(slots):
    put, take = solution(slots)
    return lambda item: put(item) and None, take


def waits_while_full(slots):
    put, take = solution(slots)

    def waiting(item):
        while not put(item):
            pass
        return True

    return waiting, take


def waits_for_a_semaphore(slots):
    put, take = solution(slots)
    filled = threading.Semaphore(0)

    def releasing(item):
        done = put(item)
        if done:
            filled.release()
        return done

    def waiting():
        filled.acquire()
        return take()

    return releasing, waiting


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


def unbounded(slots):
    items = []
    return lambda item: items.append(item) or True, lambda: items.pop(0) if items else None


def stack(slots):
    items = []

    def put(item):
        if len(items) == slots:
            return False
        items.append(item)
        return True

    return put, lambda: items.pop() if items else None


def by_value(slots):
    items = []

    def put(item):
        if len(items) == slots:
            return False
        items.append(item)
        return True

    return put, lambda: (items.pop(0) or None) if items else None


shared_put, shared_take = [], []


def one_for_all(slots):
    if not shared_put or shared_put[-1][0] != slots:
        put, take = solution(slots)
        shared_put.append((slots, put))
        shared_take.append(take)
    while len(shared_put) > 1:
        shared_put.pop(0), shared_take.pop(0)
    return shared_put[0][1], shared_take[0]


def oldest_is_overwritten(slots):
    items = []

    def put(item):
        items.append(item)
        del items[:-slots]
        return True

    return put, lambda: items.pop(0) if items else None


POSITIONS = {}


def positions_of_all_rings(slots):
    """The items are each ring's own, the positions are not."""
    items = [None] * slots
    POSITIONS.update(put=0, taken=0)

    def put(item):
        if POSITIONS["put"] - POSITIONS["taken"] == slots:
            return False
        items[POSITIONS["put"] % slots] = item
        POSITIONS["put"] += 1
        return True

    def take():
        if POSITIONS["put"] == POSITIONS["taken"]:
            return None
        POSITIONS["taken"] += 1
        return items[(POSITIONS["taken"] - 1) % slots]

    return put, take


WRONG = [
    ("one-ring-for-all", positions_of_all_rings),
    ("overwritten-before-read", ring(is_full, is_empty, overwrite=True)),
    ("overwritten-before-read", oldest_is_overwritten),
    ("overwritten-before-read", ring(lambda put, taken, slots: put - taken > slots, is_empty)),
    ("drops-items", ring(is_full, is_empty, when_full=True)),
    ("off-by-one-full", ring(lambda put, taken, slots: put - taken == slots - 1, is_empty)),
    ("off-by-one-full", pointers_of_a_list),
    ("slot-stays-filled", ring(lambda put, taken, slots: put == slots, is_empty)),
    ("off-by-one-empty", ring(is_full, lambda put, taken, slots: put - taken <= 1)),
    ("reads-an-empty-slot", ring(is_full, lambda put, taken, slots: False)),
    ("wrong-item", ring(is_full, is_empty, moves=False)),
    ("wrong-order", stack),
    ("blocks-forever", waits_while_full),
    ("blocks-forever", waits_for_a_semaphore),
    ("grows", unbounded),
    ("put-says-nothing", says_nothing),
    ("empty-by-value", by_value),
    ("one-ring-for-all", one_for_all),
    ("not-two-functions", lambda slots: [None] * slots),
    ("returns-nothing", lambda slots: None),
]


def by_index_of_item(slots):
    items = []

    def put(item):
        if len(items) == slots:
            return False
        if item not in items:
            items.append(item)
        return True

    return put, lambda: items.pop(0) if items else None


def eight_slots(slots):
    return solution(8)


def one_slot_more(slots):
    return solution(slots + 1)


def forgets_to_return_when_full(slots):
    put, take = solution(slots)
    return lambda item: put(item) or None, take


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


def counts_only_up(slots):
    places, count = [None] * slots, [0, 0, 0]

    def put(item):
        if count[2] == slots:
            return False
        places[count[0]] = item
        count[0] = (count[0] + 1) % slots
        count[2] += 1
        return True

    def take():
        if count[2] == 0:
            return None
        item = places[count[1]]
        count[1] = (count[1] + 1) % slots
        return item

    return put, take


def raises_when_full(slots):
    put, take = solution(slots)

    def raising(item):
        if not put(item):
            raise OverflowError("full")
        return True

    return raising, take


def by_deque(slots):
    items = deque()

    def put(item):
        return len(items) < slots and (items.append(item) or True)

    return put, lambda: items.popleft() if items else None


def as_a_list(slots):
    return list(solution(slots))


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


WRONG += [
    ("finds-by-value", by_index_of_item),
    ("grows", eight_slots),
    ("grows", one_slot_more),
    ("put-says-nothing", forgets_to_return_when_full),
    ("empty-by-value", none_in_a_slot_is_empty),
    ("slot-stays-filled", counts_only_up),
    ("raises", raises_when_full),
    ("not-two-functions", lambda slots: solution(slots)[0]),
    ("not-two-functions", lambda slots: (True, None)),
    ("wrong-order", lambda slots: stack(slots)),
    ("overwritten-before-read", ring(lambda put, taken, slots: put - taken > slots + 1, is_empty)),
    ("off-by-one-empty", ring(is_full, lambda put, taken, slots: put % slots == taken % slots)),
    ("slot-stays-filled", ring(lambda put, taken, slots: put >= slots, is_empty)),
    ("wrong-arguments", lambda: solution(2)),
]
ALSO_RIGHT = [by_deque, as_a_list, by_methods, by_queue, with_empty_marks]


def never_wraps(slots):
    ring, head, tail = [None] * slots, 0, 0

    def put(item):
        nonlocal head
        if head - tail == slots:
            return False
        ring[head] = item
        head += 1
        return True

    def take():
        nonlocal tail
        if head == tail:
            return None
        tail += 1
        return ring[tail - 1]

    return put, take


def raises_when_empty(slots):
    items = []

    def put(item):
        if len(items) == slots:
            return False
        items.append(item)
        return True

    return put, lambda: items.pop(0)


def without_nonlocal(slots):
    ring, count = [None] * slots, 0

    def put(item):
        if count == slots:  # noqa: F823
            return False
        ring[count] = item
        count += 1  # noqa: F841
        return True

    return put, lambda: None


def raises_an_index_error_when_full(slots):
    items = deque()

    def put(item):
        if len(items) == slots:
            raise IndexError("full")
        items.append(item)
        return True

    return put, lambda: items.popleft() if items else None


def unset_when_full(slots):
    items = deque()

    def put(item):
        if len(items) < slots:
            accepted = True
            items.append(item)
        return accepted

    return put, lambda: items.popleft() if items else None


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


WRONG += [
    ("runs-past-the-end", never_wraps),
    ("raises-when-empty", raises_when_empty),
    ("nonlocal-missing", without_nonlocal),
    ("raises-when-full", raises_an_index_error_when_full),
    ("raises", unset_when_full),
    ("swapped", lambda slots: solution(slots)[::-1]),
]
ALSO_RIGHT += [counted_by_numpy]


def smallest_first(slots):
    import heapq

    items = []

    def put(item):
        if len(items) == slots:
            return False
        heapq.heappush(items, item)
        return True

    return put, lambda: heapq.heappop(items) if items else None


def counters_of_eight_bits(slots):
    places, count = [None] * slots, [0, 0]

    def put(item):
        if (count[0] - count[1]) % 256 == slots:
            return False
        places[count[0] % slots] = item
        count[0] = (count[0] + 1) % 256
        return True

    def take():
        if count[0] == count[1]:
            return None
        item = places[count[1] % slots]
        count[1] = (count[1] + 1) % 256
        return item

    return put, take


def how_many(slots):
    items = deque()

    def put(item):
        if len(items) == slots:
            return False
        items.append(item)
        return len(items)

    return put, lambda: items.popleft() if items else None


def first_free_slot(slots):
    places, at = [None] * slots, [0]

    def put(item):
        if None not in places:
            return False
        places[places.index(None)] = item
        return True

    def take():
        for _ in range(slots):
            item, places[at[0]] = places[at[0]], None
            at[0] = (at[0] + 1) % slots
            if item is not None:
                return item

    return put, take


def two_places(slots):
    put, take = solution(slots)
    places, count = [None] * 2, [0, 0]

    def put_in_two(item):
        if put(item):
            places[count[0] % 2] = item
            count[0] += 1
            return True
        return False

    def take_of_two():
        if take() is None:
            return None
        count[1] += 1
        return places[(count[1] - 1) % 2]

    return put_in_two, take_of_two


def false_when_empty(slots):
    put, take = solution(slots)

    def take_or_false():
        item = take()
        return False if item is None else item

    return put, take_or_false


WRONG += [
    ("wrong-order", smallest_first),
    ("overwritten-before-read", counters_of_eight_bits),
    ("put-says-a-number", how_many),
    ("wrong-order", first_free_slot),
    ("overwritten-before-read", two_places),
    ("empty-is-not-none", false_when_empty),
]
ALSO_RIGHT += [lambda slots: dict(zip(("put", "take"), solution(slots))).values()]


def take_leaves_the_item(slots):
    places, count = [None] * slots, [0, 0]

    def put(item):
        if places[count[0] % slots] is not None:
            return False
        places[count[0] % slots] = item
        count[0] += 1
        return True

    def take():
        if count[0] == count[1]:
            return None
        count[1] += 1
        return places[(count[1] - 1) % slots]

    return put, take


WRONG += [("slot-stays-filled", take_leaves_the_item)]


def take_moves_on_when_empty(slots):
    places, count = [None] * slots, [0, 0]

    def put(item):
        if places[count[0] % slots] is not None:
            return False
        places[count[0] % slots] = item
        count[0] += 1
        return True

    def take():
        place = count[1] % slots
        item, places[place] = places[place], None
        count[1] += 1
        return item

    return put, take


WRONG += [("wrong-order", take_moves_on_when_empty)]
