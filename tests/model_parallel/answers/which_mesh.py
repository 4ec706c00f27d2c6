"""Answers to `which-mesh`: how many data, tensor and pipeline ranks train a net that has to fit."""

import math

import numpy as np
from edited_source import wrong_answers


def solution(layers, width, ranks, memory):
    parameters = 12 * layers * width * width
    divisors = [n for n in range(1, ranks + 1) if ranks % n == 0]
    for data in reversed(divisors):
        divided = ranks // data
        if 16 * parameters > memory * divided:
            continue
        for tensor in (8, 7, 6, 5, 4, 3, 2, 1):
            if divided % tensor == 0 and width % tensor == 0 and layers % (divided // tensor) == 0:
                return data, tensor, divided // tensor
    raise ValueError("no mesh holds this net")


# ---- unusual, and right -------------------------------------------------------------------------------------------------


def with_numpy(layers, width, ranks, memory):
    return np.array(solution(layers, width, ranks, memory))


def by_key(layers, width, ranks, memory):
    need = math.ceil(192 * layers * width**2 / memory)
    meshes = [
        (t, p) for t in range(1, 9) for p in range(1, layers + 1) if layers % p == 0 == width % t and ranks % (t * p) == 0
    ]
    t, p = min((mesh for mesh in meshes if math.prod(mesh) >= need), key=lambda mesh: (math.prod(mesh), -mesh[0]))
    return [ranks // (t * p), t, p]


ALSO_RIGHT = [with_numpy, by_key]


def tensor_of_a_whole_node(layers, width, ranks, memory):
    """Always eight tensor ranks, where they divide."""
    tensor = math.gcd(8, width, ranks)
    for pipeline in range(1, ranks + 1):
        if layers % pipeline == 0 == ranks % (tensor * pipeline) and 192 * layers * width**2 <= memory * tensor * pipeline:
            return ranks // (tensor * pipeline), tensor, pipeline
    return 1, tensor, ranks // tensor


def only_replicas(layers, width, ranks, memory):
    return ranks, 1, 1


def two_and_two(layers, width, ranks, memory):
    return 2, 2, 2


def only_tensor(layers, width, ranks, memory):
    return 1, ranks, 1


def axes_swapped(layers, width, ranks, memory):
    """The tensor axis divides the layers, and the stages the width."""
    meshes = [(t, p) for t in range(1, 9) for p in range(1, ranks + 1) if layers % t == width % p == ranks % (t * p) == 0]
    t, p = min(
        (mesh for mesh in meshes if 192 * layers * width**2 <= memory * math.prod(mesh)), key=lambda m: (m[0] * m[1], m[1])
    )
    return ranks // (t * p), t, p


def only_stages(layers, width, ranks, memory):
    for pipeline in range(1, ranks + 1):
        if layers % pipeline == ranks % pipeline == 0 and 192 * layers * width**2 <= memory * pipeline:
            return ranks // pipeline, 1, pipeline
    return 1, 1, ranks


WRONG = [
    ("too-few-replicas", tensor_of_a_whole_node),
    ("does-not-fit", only_replicas),
    ("not-all-ranks", two_and_two),
    ("beyond-the-node", only_tensor),
    ("does-not-divide", axes_swapped),
    ("too-many-stages", only_stages),
    *wrong_answers(
        by_key,
        [
            ("pipeline-first", ("-mesh[0]", "mesh[0]")),
            ("fewest-stages-first", ("math.prod(mesh), -mesh[0]", "mesh[1], mesh[0]")),
        ],
    ),
]
