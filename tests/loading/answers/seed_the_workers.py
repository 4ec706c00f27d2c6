"""Answers to `seed-the-workers`: the data set's generator gets base_seed + worker_id."""

import functools
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


def info():
    return torch.utils.data.get_worker_info()


def counting(worker_id, calls=[]):  # noqa: B006
    calls.append(worker_id)
    set_seed([worker_id, len(calls)])


WRONG = [
    ("same-in-all-workers", lambda worker_id: set_seed(torch.initial_seed() - worker_id)),
    ("same-in-all-workers", lambda worker_id: set_seed(torch.initial_seed() % 2)),
    ("same-in-every-epoch", lambda worker_id: set_seed(worker_id)),
    ("one-seed-for-all", lambda worker_id: set_seed(1234)),
    ("depends-on-time", lambda worker_id: set_seed(int(time.time()))),
    ("depends-on-time", lambda worker_id: set_seed(time.time_ns() + worker_id)),
    ("counts-its-calls", counting),
    ("too-few-seeds", lambda worker_id: set_seed(info().seed % 256)),
    ("too-few-seeds", lambda worker_id: set_seed(info().seed % 1000)),
    ("seeds-meet", lambda worker_id: set_seed((info().seed - worker_id) % 11 + worker_id)),
    ("the-datasets-generator-untouched", lambda worker_id: np.random.seed(torch.initial_seed() % 2**32)),
    ("the-datasets-generator-untouched", lambda worker_id: torch.manual_seed(torch.initial_seed() + worker_id) and None),
    ("returned-instead", lambda worker_id: np.random.default_rng(torch.initial_seed())),
    ("not-a-generator", lambda worker_id: setattr(dataset(), "rng", torch.initial_seed())),
    ("not-a-generator", lambda worker_id: setattr(dataset(), "rng", torch.Generator().manual_seed(info().seed))),
    ("seed-too-long", lambda worker_id: np.random.seed(torch.initial_seed())),
    ("seed-too-long", lambda worker_id: setattr(dataset(), "rng", np.random.RandomState(info().seed))),
    ("raises", lambda worker_id: set_seed(-1)),
]


def says_its_number(worker_id):
    os.getpid()
    set_seed(info().seed)


def in_the_generators_state(worker_id):
    dataset().rng.bit_generator.state = np.random.default_rng(info().seed).bit_generator.state


ALSO_RIGHT = [
    lambda worker_id: set_seed(random.getrandbits(64)),  # torch seeds Python's random and NumPy's for each worker
    lambda worker_id: set_seed(np.random.SeedSequence(info().seed - worker_id).spawn(info().num_workers)[worker_id]),
    says_its_number,
    in_the_generators_state,
    functools.partial(lambda offset, worker_id: set_seed(torch.initial_seed() + offset), 0),
    lambda worker_id: set_seed(np.random.randint(2**31)),  # NumPy's generator is seeded by torch
    lambda worker_id: set_seed(torch.initial_seed() % 2**32),
    lambda worker_id: set_seed([info().seed - worker_id, worker_id]),
    lambda worker_id: set_seed(np.random.SeedSequence(info().seed)),
]
