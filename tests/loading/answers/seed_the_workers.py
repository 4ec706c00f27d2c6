"""Answers to `seed-the-workers`: the data set's generator gets base_seed + worker_id."""

import os
import random
import time

import numpy as np
import torch


def solution(worker_id):
    import numpy as np

    info = torch.utils.data.get_worker_info()
    info.dataset.rng = np.random.default_rng(info.seed)


def dataset():
    return torch.utils.data.get_worker_info().dataset


def set_seed(seed):
    dataset().rng = np.random.default_rng(seed)


def base_only(worker_id):
    set_seed(torch.initial_seed() - worker_id)


def number_only(worker_id):
    set_seed(worker_id)


def constant(worker_id):
    set_seed(0)


def other_constant(worker_id):
    set_seed(1234)


def clock(worker_id):
    set_seed(int(time.time()))


def clock_and_number(worker_id):
    set_seed(time.time_ns() + worker_id)


def numpys_global(worker_id):
    np.random.seed(torch.initial_seed() % 2**32)


def torchs_global(worker_id):
    torch.manual_seed(torch.initial_seed() + worker_id)


def too_long_a_seed(worker_id):
    np.random.seed(torch.initial_seed())


def a_number(worker_id):
    dataset().rng = torch.initial_seed()


def few_seeds(worker_id):
    set_seed(torch.initial_seed() % 2)


def returned(worker_id):
    return np.random.default_rng(torch.initial_seed())


WRONG = [
    ("same-in-all-workers", base_only),
    ("same-in-every-epoch", number_only),
    ("one-seed-for-all", constant),
    ("one-seed-for-all", other_constant),
    ("depends-on-time", clock),
    ("depends-on-time", clock_and_number),
    ("the-datasets-generator-untouched", numpys_global),
    ("the-datasets-generator-untouched", torchs_global),
    ("returned-instead", returned),
    ("not-a-generator", a_number),
    ("same-in-all-workers", few_seeds),
    ("seed-too-long", too_long_a_seed),
    ("raises", lambda worker_id: dataset().rng.seed(worker_id)),
]


def info():
    return torch.utils.data.get_worker_info()


def says_its_number(worker_id):
    os.getpid()
    set_seed(info().seed)


def in_the_generators_state(worker_id):
    dataset().rng.bit_generator.state = np.random.default_rng(info().seed).bit_generator.state


WRONG += [
    ("too-few-seeds", lambda worker_id: set_seed(info().seed % 256)),
    ("too-few-seeds", lambda worker_id: set_seed(info().seed % 1000)),
    ("same-in-every-epoch", lambda worker_id: set_seed([0, worker_id])),
    ("not-a-generator", lambda worker_id: setattr(dataset(), "rng", torch.Generator().manual_seed(info().seed))),
    ("wrong-arguments", lambda: set_seed(info().seed)),
]


def counting(worker_id, calls=[]):  # noqa: B006
    calls.append(worker_id)
    set_seed([worker_id, len(calls)])


WRONG += [
    ("counts-its-calls", counting),
    ("seed-too-long", lambda worker_id: setattr(dataset(), "rng", np.random.RandomState(info().seed))),
]
ALSO_RIGHT = [
    lambda worker_id: set_seed(random.getrandbits(64)),  # torch seeds Python's random and NumPy's for each worker
    lambda worker_id: set_seed(np.random.SeedSequence(info().seed - worker_id).spawn(info().num_workers)[worker_id]),
    says_its_number,
    in_the_generators_state,
    lambda worker_id: set_seed(torch.initial_seed()),
    lambda worker_id: set_seed(np.random.randint(2**31)),  # NumPy's generator is seeded by torch
    lambda worker_id: set_seed(torch.initial_seed() % 2**32),
    lambda worker_id: set_seed([info().seed - worker_id, worker_id]),
    lambda worker_id: set_seed(np.random.SeedSequence(info().seed)),
]
