"""Answers to `fill-the-disk`: Little's law under the smaller of a disk's two limits."""

import numpy as np
import torch
from edited_source import wrong_answers


def solution(block, latency, iops, bandwidth):
    import math  # a solution stands alone

    requests = min(iops, bandwidth / block)
    return max(1, math.ceil(requests * latency)), requests * block


def by_search(block, latency, iops, bandwidth):
    depth = 1
    while depth * block / latency < min(iops * block, bandwidth):
        depth += 1
    return [depth, min(iops * block, bandwidth)]


def by_time(block, latency, iops, bandwidth):
    seconds = max(1 / iops, block / bandwidth)  # of the disk's, for one block
    return int(-(-latency // seconds)) or 1, block / seconds


def by_numpy(block, latency, iops, bandwidth):
    requests = np.minimum(iops, np.float64(bandwidth) / block)
    return np.maximum(1, np.ceil(requests * latency)).astype(int), requests * block


def by_torch(block, latency, iops, bandwidth):
    requests = torch.tensor([iops, bandwidth / block], dtype=torch.float64).min()
    return (requests * latency).ceil().long().clamp(min=1), requests * block


CEIL, LIMIT = "max(1, math.ceil(requests * latency))", "min(iops, bandwidth / block)"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("too-few", (CEIL, f"max(1, {CEIL} - 2)")),
            ("too-many", (CEIL, f"2 * {CEIL}")),
            ("other-bytes", ("requests * block", "requests * block / 1e6")),
            ("other-bytes", ("requests * block", "requests * block * 8")),
        ],
    )
]
ALSO_RIGHT = [by_search, by_time, by_numpy, by_torch]
