"""Answers to `block-sampler`: blocks of neighbours in random order, shuffled within, each index once an epoch."""

import random

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
