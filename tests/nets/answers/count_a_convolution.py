"""Answers to `count-a-convolution`: ⌊(side + 2p − k)/s⌋ + 1 places in a row, c_in/groups · k² weights for an output channel."""

import numpy as np
import torch


def solution(c_in, c_out, k, stride, padding, groups, side):
    n = (side + 2 * padding - k + stride) // stride
    weights = c_out * (c_in // groups) * k**2
    return n, weights + c_out, 2 * weights * n**2


def by_building_it(c_in, c_out, k, stride, padding, groups, side):
    with torch.device("meta"):
        layer = torch.nn.Conv2d(c_in, c_out, k, stride, padding, groups=groups)
        y = layer(torch.empty(1, c_in, side, side))
    parameters = sum(p.numel() for p in layer.parameters())
    return y.shape[-1], parameters, 2 * y.numel() * layer.weight[0].numel()


def by_places(c_in, c_out, k, stride, padding, groups, side):
    n = len(range(0, side + 2 * padding - k + 1, stride))
    return np.int64(n), np.int64(c_out * (c_in // groups * k * k + 1)), np.int64(n) ** 2 * c_out * c_in // groups * k * k * 2


def changed(**change):
    """The right answer for other settings than those given."""

    def answer(c_in, c_out, k, stride, padding, groups, side):
        given = dict(c_in=c_in, c_out=c_out, k=k, stride=stride, padding=padding, groups=groups, side=side)
        return solution(**{name: change[name](given) if name in change else value for name, value in given.items()})

    return answer


def backward_too(*settings):
    n, parameters, flops = solution(*settings)
    return n, parameters, 3 * flops


def weights_alone_shared(c_in, c_out, k, stride, padding, groups, side):
    n, parameters, flops = solution(c_in, c_out, k, stride, padding, groups, side)
    return n, parameters // groups, flops


WRONG = [
    ("bias-per-input", changed(c_in=lambda given: given["c_out"], c_out=lambda given: given["c_in"])),
    ("argument-ignored", changed(padding=lambda given: given["k"] // 2)),
    ("wrong-value", changed(k=lambda given: given["k"] + 1)),
    ("flops-alone", backward_too),
    ("flops-alone", lambda *settings: (*solution(*settings)[:2], int(np.float32(solution(*settings)[2])) + 1)),
    ("parameters-alone", weights_alone_shared),
    ("wrong-type", lambda *settings: list(solution(*settings))[2]),
    ("wrong-type", lambda *settings: solution(*settings)[:2]),
]
ALSO_RIGHT = [by_building_it, by_places]
