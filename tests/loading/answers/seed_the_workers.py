"""Answers to `seed-the-workers`: the data set's generator gets base_seed + worker_id."""

import os
import time

import numpy as np
import torch


def solution(worker_id):
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


def entropy(worker_id):
    dataset().rng = np.random.default_rng()


def process(worker_id):
    torch.utils.data.get_worker_info().dataset.rng = np.random.default_rng(os.getpid())


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
    ("depends-on-time", entropy),
    ("depends-on-time", process),
    ("the-datasets-generator-untouched", numpys_global),
    ("the-datasets-generator-untouched", torchs_global),
    ("the-datasets-generator-untouched", returned),
    ("not-a-generator", a_number),
    ("same-in-all-workers", few_seeds),
    ("raises", too_long_a_seed),
]
