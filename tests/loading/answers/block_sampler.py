"""Answers to `block-sampler`: blocks of neighbors in random order, shuffled within, each index once an epoch."""

import itertools
import random

import numpy as np
import torch
from edited_source import wrong_answers
from torch.utils.data import Sampler


def solution(size, block):
    class Blocks(torch.utils.data.Sampler):
        def __len__(self):
            return size

        def __iter__(self):
            for number in torch.randperm(-(-size // block)).tolist():
                inside = list(range(number * block, min(size, (number + 1) * block)))
                for place in torch.randperm(len(inside)).tolist():
                    yield inside[place]

    return Blocks()


class Given(Sampler):
    """A sampler of a function that gives an epoch."""

    def __init__(self, epoch, length):
        self.epoch, self.length = epoch, length

    def __iter__(self):
        return iter(self.epoch())

    def __len__(self):
        return self.length


def cut(size, block):
    return [list(range(at, min(size, at + block))) for at in range(0, size, block)]


def shuffled(items):
    return random.sample(items, len(items))


def order(size, block):
    return [i for inside in shuffled(cut(size, block)) for i in shuffled(inside)]


def inside_drawn_once(size, block):
    blocks = [shuffled(b) for b in cut(size, block)]
    return Given(lambda: [i for b in shuffled(blocks) for i in b], size)


def two_epochs_alike(size, block):
    count = itertools.count()

    def epoch():
        rng = random.Random(next(count) // 2)
        return [i for b in rng.sample(cut(size, block), -(-size // block)) for i in rng.sample(b, len(b))]

    return Given(epoch, size)


def used_up(size, block):
    class Once:
        def __init__(self):
            self.rest = iter(order(size, block))

        def __iter__(self):
            return self.rest

        def __len__(self):
            return size

    return Once()


def sets_itself_back(size, block):
    class Own(Given):
        def __iter__(self):
            self.todo = self.epoch()
            return self

        def __next__(self):
            if not self.todo:
                raise StopIteration
            return self.todo.pop()

    return Own(lambda: order(size, block), size)


def iter_gives_a_list(size, block):
    class Own(Given):
        def __iter__(self):
            return self.epoch()

    return Own(lambda: order(size, block), size)


def without_end(size, block):
    def epoch():
        while True:
            yield from order(size, block)

    return Given(epoch, size)


def one_order_for_all(size, block):
    def epoch():
        offsets = shuffled(range(block))
        return [b[o] for b in shuffled(cut(size, block)) for o in offsets if o < len(b)]

    return Given(epoch, size)


def jittered(size, block):
    def near(items):
        return sorted(range(len(items)), key=lambda at: at + 6 * random.random())

    def epoch():
        blocks = cut(size, block)
        return [i for at in near(blocks) for i in shuffled(blocks[at])]

    return Given(epoch, size)


def numbers_its_epochs(size, block):
    count = itertools.count()

    def epoch():
        random.seed(next(count))
        return order(size, block)

    return Given(epoch, size)


CLASS, ITER, EACH = "    class Blocks", "        def __iter__(self):\n", "            for number"
COUNT, NUMBERS, PLACES = "-(-size // block)", "torch.randperm(-(-size // block))", "torch.randperm(len(inside)).tolist()"
START, END, ITEM = "number * block", "min(size, (number + 1) * block)", "inside[place]"
KEPT = {}


def kept_by_size(size, block):
    return KEPT.setdefault(size, solution(size, block))


WRONG = [
    ("not-any-order", jittered),
    ("seeds-for-everybody", numbers_its_epochs),
    *wrong_answers(
        solution,
        [
            ("repeats-indices", (NUMBERS, f"torch.randint({COUNT}, ({COUNT},))")),
            ("repeats-indices", (END, "(number + 1) * block"), (ITEM, "inside[place] % size")),
            ("drops-indices", (COUNT, "size // block")),
            ("drops-indices", (COUNT, "round(size / block)")),
            (
                "same-order-every-epoch",
                (EACH, f"            generator = torch.Generator().manual_seed(0)\n{EACH}"),
                (").tolist()", ", generator=generator).tolist()"),
            ),
            ("same-order-every-epoch", (NUMBERS, "numbers"), (CLASS, f"    numbers = {NUMBERS}\n{CLASS}")),
            ("no-length", ("        def __len__(self):\n            return size\n", "")),
            ("wrong-type", ("Blocks()", "Blocks")),
            ("block-in-a-fixed-place", (f"{NUMBERS}.tolist()", f"[*torch.randperm({COUNT} - 1).tolist(), {COUNT} - 1]")),
            (
                "only-rotated",  # the blocks
                (EACH, f"            at = random.randrange({COUNT})\n{EACH}"),
                (f"{NUMBERS}.tolist()", f"[*range(at, {COUNT}), *range(at)]"),
            ),
            (
                "only-rotated",  # the indices of a block
                ("for place in", "at = random.randrange(len(inside))\n                for place in"),
                (PLACES, "[*range(at, len(inside)), *range(at)]"),
            ),
            ("same-shuffle-in-every-block", (PLACES, "reversed(range(len(inside)))")),
            ("few-orders", (PLACES, "range(len(inside))[:: random.choice((1, -1))]")),
            ("index-out-of-range", (END, "min(max(size, block), (number + 1) * block)")),
            ("blocks-torn", (CLASS, f"    block = 2 * block\n{CLASS}")),
            ("blocks-torn", (CLASS, f"    block = {COUNT}\n{CLASS}")),
        ],
    ),
    ("same-order-inside-every-epoch", inside_drawn_once),
    ("same-order-again", two_epochs_alike),
    ("empty-second-epoch", used_up),
    ("starts-again", sets_itself_back),
    ("no-iterator", iter_gives_a_list),
    ("never-ends", without_end),
    ("same-shuffle-in-every-block", one_order_for_all),
    ("length-counts-blocks", lambda size, block: Given(lambda: order(size, block), -(-size // block))),
    ("wrong-length", lambda size, block: Given(lambda: order(size, block), size + 1)),
    ("blocks-in-order", lambda size, block: Given(lambda: [i for b in cut(size, block) for i in shuffled(b)], size)),
    ("not-shuffled-inside", lambda size, block: Given(lambda: [i for b in shuffled(cut(size, block)) for i in b], size)),
    ("not-shuffled", lambda size, block: Given(lambda: range(size), size)),
    ("yields-blocks", lambda size, block: Given(lambda: shuffled(cut(size, block)), size)),
    ("index-out-of-range", lambda size, block: Given(lambda: [i + 1 for i in order(size, block)], size)),
    ("edge-in-order", lambda size, block: Given(lambda: range(size), size) if block >= size else solution(size, block)),
    ("empty-second-epoch", lambda size, block: iter(order(size, block))),
    ("length-counts-blocks", lambda size, block: Given(lambda: order(size, block), size // block)),
]


def by_numpy(size, block):
    class ByNumpy(torch.utils.data.Sampler):
        rng = np.random.default_rng()

        def __len__(self):
            return size

        def __iter__(self):
            starts = np.arange(0, size, block)
            self.rng.shuffle(starts)
            for start in starts:
                yield from start + self.rng.permutation(min(block, size - start))

    return ByNumpy()


def by_sorting(size, block):
    def epoch():
        keys = torch.rand(-(-size // block)).repeat_interleave(block)[:size]
        first = torch.randperm(size)
        return first[torch.argsort(keys[first], stable=True)]

    return Given(epoch, size)


def as_a_list_subclass(size, block):
    class Fresh(list):
        def __iter__(self):
            return iter(order(size, block))

    return Fresh(range(size))


def with_tensors(size, block):  # no Sampler of torch's, whole epochs as lists, indices as tensors
    class Plain:
        def __len__(self):
            return size

        def __iter__(self):
            parts = list(torch.arange(size).split(block))
            return iter([i for n in np.random.permutation(len(parts)) for i in parts[n][torch.randperm(len(parts[n]))]])

    return Plain()


ALSO_RIGHT = [
    with_tensors,
    by_numpy,
    by_sorting,
    as_a_list_subclass,
    lambda size, block: Given(lambda: torch.tensor(order(size, block)), size),
]
WRONG += [("remembers-calls", kept_by_size)]
