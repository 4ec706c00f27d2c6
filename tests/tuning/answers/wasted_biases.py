"""Answers to `wasted-biases`: layers with a bias right before a batch norm."""

from edited_source import wrong_answers
from torch import nn


def solution(net):
    from torch import nn

    layers = list(net.named_children())
    return [
        name
        for (name, one), (_, after) in zip(layers, layers[1:])
        if getattr(one, "bias", None) is not None and isinstance(after, nn.modules.batchnorm._BatchNorm)
    ]


def anywhere_behind(net):
    layers = list(net.named_children())
    return [
        name
        for number, (name, one) in enumerate(layers)
        if isinstance(one, (nn.Conv2d, nn.Linear))
        and one.bias is not None
        and any(isinstance(after, (nn.BatchNorm1d, nn.BatchNorm2d)) for _, after in layers[number:])
    ]


def truth_of_a_bias(net):
    layers = list(net)
    return [str(i) for i, (a, b) in enumerate(zip(layers, layers[1:])) if isinstance(b, NORMS) and a.bias]


def runs_over_the_end(net):
    return [str(i) for i in range(len(net)) if isinstance(net[i], BOTH) and isinstance(net[i + 1], NORMS)]


def every_layer_has_a_bias(net):
    norms = [isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)) for layer in net]
    return [str(index - 1) for index, norm in enumerate(norms) if norm and net[index - 1].bias is not None]


def before_the_first_comes_the_last(net):
    layers = list(net)
    before = [(i - 1) % len(layers) for i, layer in enumerate(layers) if isinstance(layer, BATCH_NORMS)]
    return [str(i) for i in before if getattr(layers[i], "bias", None) is not None]


BATCH_NORMS = nn.modules.batchnorm._BatchNorm
BOTH, NORMS = (nn.Conv2d, nn.Linear), (nn.BatchNorm1d, nn.BatchNorm2d)
LAYERS = "list(net.named_children())"
BIAS = 'getattr(one, "bias", None) is not None'
NORM = "isinstance(after, nn.modules.batchnorm._BatchNorm)"
PLAIN = "isinstance(after, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d))"
BIAS_OF_BOTH = (BIAS, "isinstance(one, BOTH) and one.bias is not None")
WRONG = [
    *wrong_answers(
        solution,
        [
            ("kind-of-layer-forgotten", BIAS_OF_BOTH),
            ("kind-of-layer-forgotten", (BIAS, f"isinstance(one, (*BOTH, nn.Conv1d, nn.Conv3d)) and {BIAS}")),
            ("value-of-the-bias", (BIAS, f"{BIAS} and one.bias.abs().sum() > 0")),
            ("setting-of-the-norm", (NORM, f"{NORM} and after.affine")),
            ("setting-of-the-norm", (NORM, f"{NORM} and after.track_running_stats")),
            ("class-of-batch-norm-forgotten", (NORM, PLAIN)),
            ("class-of-batch-norm-forgotten", (NORM, PLAIN.replace("(nn", "(nn.SyncBatchNorm, nn", 1))),
            ("many-layers", (LAYERS, "sorted(net.named_children())")),
            ("not-next", (LAYERS, "[pair for pair in net.named_children() if not isinstance(pair[1], nn.Dropout)]")),
        ],
    ),
    ("names-the-norm", lambda net: [name for name, one in net.named_children() if isinstance(one, NORMS)]),
    ("names-the-norm", lambda net: [str(int(name) + 1) for name in solution(net)]),
    ("wrong-value", lambda net: ["0"]),
    ("not-names", lambda net: [f"{name}.weight" for name in solution(net)]),
    ("many-layers", lambda net: [name for name in solution(net) if int(name) % 2 == 0]),
    ("not-next", anywhere_behind),
    ("before-the-first", before_the_first_comes_the_last),
    ("truth-of-a-tensor", truth_of_a_bias),
    ("raises", runs_over_the_end),
    ("not-all-have-one", every_layer_has_a_bias),
]


def by_private_base(net):
    from itertools import pairwise

    found = set()
    for (name, one), (_, after) in pairwise(net._modules.items()):
        if isinstance(after, nn.modules.batchnorm._BatchNorm) and getattr(one, "bias", None) is not None:
            found.add(name)
    return found


def by_the_names_of_classes(net):
    import numpy as np

    kinds = [type(one).__name__ for one in net]
    return np.array(
        [str(i) for i in range(len(net) - 1) if "BatchNorm" in kinds[i + 1] and getattr(net[i], "bias", None) is not None]
    )


def by_parameter(net):
    return tuple(
        name for name, _ in net.named_parameters() if name.endswith(".bias") and name[: -len(".bias")] in solution(net)
    )


def by_index(net):
    return (int(name) for name in solution(net))


def backwards(net):
    names, after = [], None
    for name, one in reversed(list(net.named_modules())[1:]):
        if "running_mean" in getattr(after, "_buffers", {}) and "bias" in dict(one.named_parameters()):
            names.append(name)
        after = one
    return names


ALSO_RIGHT = [
    by_private_base,
    by_the_names_of_classes,
    by_parameter,
    by_index,
    backwards,
    lambda net: [
        f"{i}"
        for i in range(len(net) - 1)
        if isinstance(net[i + 1], nn.modules.batchnorm._BatchNorm) and f"{i}.bias" in net.state_dict()
    ],
]
