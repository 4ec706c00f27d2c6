"""Answers to `block-sampler`: blocks of neighbors in random order, shuffled within, each index once an epoch."""

import itertools
import random

import numpy as np
import torch
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


def with_replacement(size, block):
    return Given(
        lambda: [i for inside in random.choices(cut(size, block), k=-(-size // block)) for i in shuffled(inside)], size
    )


def wraps_around(size, block):
    blocks = [[i % size for i in range(at, at + block)] for at in range(0, size, block)]
    return Given(lambda: [i for inside in shuffled(blocks) for i in shuffled(inside)], size)


def drops_the_last(size, block):
    return Given(lambda: order(size // block * block, block), size)


def drops_the_end(size, block):
    return Given(lambda: order(size, block)[: size - 1], size)


def drawn_once(size, block):
    fixed = order(size, block)
    return Given(lambda: fixed, size)


def seeded_anew(size, block):
    def epoch():
        generator = torch.Generator().manual_seed(0)
        blocks = cut(size, block)
        for number in torch.randperm(len(blocks), generator=generator).tolist():
            for place in torch.randperm(len(blocks[number]), generator=generator).tolist():
                yield blocks[number][place]

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


def a_generator(size, block):
    yield from order(size, block)


def without_length(size, block):
    class NoLength(Sampler):
        def __iter__(self):
            return iter(order(size, block))

    return NoLength()


def without_iter(size, block):
    class NoIter:
        def __len__(self):
            return size

    return NoIter()


def without_end(size, block):
    def epoch():
        while True:
            yield from order(size, block)

    return Given(epoch, size)


WRONG = [
    ("repeats-indices", with_replacement),
    ("repeats-indices", wraps_around),
    ("drops-indices", drops_the_last),
    ("drops-indices", drops_the_end),
    ("same-order-every-epoch", drawn_once),
    ("same-order-every-epoch", seeded_anew),
    ("empty-second-epoch", used_up),
    ("empty-second-epoch", a_generator),
    ("no-length", without_length),
    ("not-iterable", without_iter),
    ("never-ends", without_end),
    ("length-counts-blocks", lambda size, block: Given(lambda: order(size, block), -(-size // block))),
    ("wrong-length", lambda size, block: Given(lambda: order(size, block), size + 1)),
    ("blocks-torn", lambda size, block: Given(lambda: shuffled(list(range(size))), size)),
    ("blocks-in-order", lambda size, block: Given(lambda: [i for b in cut(size, block) for i in shuffled(b)], size)),
    ("not-shuffled-inside", lambda size, block: Given(lambda: [i for b in shuffled(cut(size, block)) for i in b], size)),
    ("not-shuffled", lambda size, block: Given(lambda: range(size), size)),
    ("yields-blocks", lambda size, block: Given(lambda: shuffled(cut(size, block)), size)),
    ("index-out-of-range", lambda size, block: Given(lambda: [i + 1 for i in order(size, block)], size)),
    ("returns-nothing", lambda size, block: None),
]


def last_block_last(size, block):
    def epoch():
        *blocks, last = cut(size, block)
        return [i for inside in [*shuffled(blocks), last] for i in shuffled(inside)]

    return Given(epoch, size)


def rotated_blocks(size, block):
    def epoch():
        blocks = cut(size, block)
        at = random.randrange(len(blocks))
        return [i for inside in blocks[at:] + blocks[:at] for i in shuffled(inside)]

    return Given(epoch, size)


def one_order_for_all(size, block):
    def epoch():
        offsets = shuffled(range(block))
        return [b[o] for b in shuffled(cut(size, block)) for o in offsets if o < len(b)]

    return Given(epoch, size)


def inside_drawn_once(size, block):
    blocks = [shuffled(b) for b in cut(size, block)]
    return Given(lambda: [i for b in shuffled(blocks) for i in b], size)


def blocks_drawn_once(size, block):
    blocks = shuffled(cut(size, block))
    return Given(lambda: [i for b in blocks for i in shuffled(b)], size)


def reversed_inside(size, block):
    return Given(lambda: [i for b in shuffled(cut(size, block)) for i in reversed(b)], size)


def starts_anywhere(size, block):
    def epoch():
        for b in shuffled(cut(size, block)):
            at = random.randrange(len(b))
            yield from b[at:] + b[:at]

    return Given(epoch, size)


def fails_for_small(size, block):
    return Given(lambda: order(size, block) if size > block else range(block), size)


def torn_by_two(size, block):
    return Given(lambda: order(size, 2 * block), size)


def stepping(size, block):
    count = -(-size // block)
    return Given(lambda: [i for k in shuffled(range(count)) for i in shuffled(range(k, size, count))], size)


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


WRONG += [
    ("block-in-a-fixed-place", last_block_last),
    ("only-rotated", rotated_blocks),
    ("same-shuffle-in-every-block", one_order_for_all),
    ("same-order-inside-every-epoch", inside_drawn_once),
    ("same-order-every-epoch", blocks_drawn_once),
    ("same-shuffle-in-every-block", reversed_inside),
    ("only-rotated", starts_anywhere),
    ("index-out-of-range", fails_for_small),
    ("blocks-torn", torn_by_two),
    ("blocks-torn", stepping),
    ("not-iterable", lambda size, block: order),
    ("empty-second-epoch", lambda size, block: iter(order(size, block))),
    ("length-counts-blocks", lambda size, block: Given(lambda: order(size, block), size // block)),
    ("same-order-every-epoch", lambda size, block: order(size, block)),
]


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


def to_and_fro(size, block):
    return Given(lambda: [i for b in shuffled(cut(size, block)) for i in random.choice((b, b[::-1]))], size)


def as_many_blocks_as_block(size, block):
    blocks = torch.arange(size).chunk(block)
    return Given(lambda: [i for b in shuffled(blocks) for i in shuffled(b.tolist())], size)


def for_the_example(size, block):
    return Given(lambda: order(5, 2), size)


def the_class(size, block):
    class Own(Given):
        def __init__(self):
            super().__init__(lambda: order(size, block), size)

    return Own


def iter_gives_a_list(size, block):
    class Own(Given):
        def __iter__(self):
            return self.epoch()

    return Own(lambda: order(size, block), size)


WRONG += [
    ("starts-again", sets_itself_back),
    ("few-orders", to_and_fro),
    ("blocks-torn", as_many_blocks_as_block),
    ("drops-indices", for_the_example),
    ("returns-the-class", the_class),
    ("no-iterator", iter_gives_a_list),
]


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
    lambda size, block: Given(lambda: [torch.tensor(i) for i in order(size, block)], size),
    by_numpy,
    by_sorting,
    as_a_list_subclass,
    lambda size, block: Given(lambda: torch.tensor(order(size, block)), size),
    lambda size, block: Given(lambda: np.array(order(size, block)), size),
]


def rounds_the_count(size, block):
    return Given(lambda: [i for k in shuffled(range(round(size / block))) for i in shuffled(cut(size, block)[k])], size)


WRONG += [("drops-indices", rounds_the_count)]


def two_epochs_alike(size, block):
    count = itertools.count()

    def epoch():
        rng = random.Random(next(count) // 2)
        return [i for b in rng.sample(cut(size, block), -(-size // block)) for i in rng.sample(b, len(b))]

    return Given(epoch, size)


WRONG += [("same-order-again", two_epochs_alike)]
