"""Answers to `wasted-biases`: layers with a bias right before a batch norm."""

from torch import nn


def solution(net):
    from torch import nn

    layers = list(net.named_children())
    return [
        name
        for (name, one), (_, after) in zip(layers, layers[1:])
        if getattr(one, "bias", None) is not None and isinstance(after, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d))
    ]


def chosen(kinds, norms=None, bias=True):
    def choose(net):
        layers = [*net.named_children(), ("", None)]
        return [
            name
            for (name, one), (_, after) in zip(layers, layers[1:])
            if isinstance(one, kinds) and (one.bias is not None or not bias) and (norms is None or isinstance(after, norms))
        ]

    return choose


def anywhere_behind(net):
    layers = list(net.named_children())
    return [
        name
        for number, (name, one) in enumerate(layers)
        if isinstance(one, (nn.Conv2d, nn.Linear))
        and one.bias is not None
        and any(isinstance(after, (nn.BatchNorm1d, nn.BatchNorm2d)) for _, after in layers[number:])
    ]


def only_the_first(net):
    return solution(net)[:1]


def norm_in_front(net):
    layers = list(net.named_children())
    return [
        name
        for (_, before), (name, one) in zip(layers, layers[1:])
        if isinstance(one, (nn.Conv2d, nn.Linear)) and one.bias is not None and isinstance(before, NORMS)
    ]


def modules(net):
    return [net[int(name)] for name in solution(net)]


def removes_them(net):
    names = solution(net)
    for name in names:
        net[int(name)].bias = None
    return names


def joined(net):
    return "".join(solution(net))


def next_ones(net):
    return [str(int(name) + 1) for name in solution(net)]


def only_batch_norm_2d(net):
    return chosen(BOTH, (nn.BatchNorm2d,))(net)


def truth_of_a_bias(net):
    layers = list(net)
    return [str(i) for i, (a, b) in enumerate(zip(layers, layers[1:])) if isinstance(b, NORMS) and a.bias]


def runs_over_the_end(net):
    return [str(i) for i in range(len(net)) if isinstance(net[i], BOTH) and isinstance(net[i + 1], NORMS)]


def the_ones_to_keep(net):
    wasted = solution(net)
    return [name for name, one in net.named_children() if isinstance(one, BOTH) and one.bias is not None and name not in wasted]


def parameters(net):
    return [f"{name}.weight" for name in solution(net)]


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
        [
            str(i)
            for i in range(len(net) - 1)
            if kinds[i + 1].startswith("BatchNorm") and getattr(net[i], "bias", None) is not None
        ]
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
        if isinstance(after, (*NORMS, nn.BatchNorm3d)) and "bias" in dict(one.named_parameters()):
            names.append(name)
        after = one
    return names


BOTH, NORMS = (nn.Conv2d, nn.Linear), (nn.BatchNorm1d, nn.BatchNorm2d)
WRONG = [
    ("every-convolution", chosen(nn.Conv2d)),
    ("every-bias", chosen(BOTH)),
    ("linear-forgotten", chosen(nn.Conv2d, NORMS)),
    ("not-next", anywhere_behind),
    ("any-norm", chosen(BOTH, (*NORMS, nn.LayerNorm, nn.GroupNorm))),
    ("bias-already-gone", chosen(BOTH, NORMS, bias=False)),
    ("names-the-norm", lambda net: [name for name, one in net.named_children() if isinstance(one, NORMS)]),
    ("wrong-value", lambda net: []),
    ("not-names", lambda net: 0),
    ("returns-nothing", lambda net: None),
    ("first-only", only_the_first),
    ("last-only", lambda net: solution(net)[-1:]),
    ("group-norm", chosen(BOTH, (*NORMS, nn.GroupNorm))),
    ("norm-anywhere", lambda net: chosen(BOTH)(net) if any(isinstance(layer, NORMS) for layer in net) else []),
    ("modules-not-names", lambda net: [net[int(name)].bias for name in solution(net)]),
    ("norm-in-front", norm_in_front),
    ("modules-not-names", modules),
    ("inputs-changed", removes_them),
    ("not-names", joined),
    ("names-the-norm", next_ones),
    ("linear-forgotten", only_batch_norm_2d),
    ("truth-of-a-tensor", truth_of_a_bias),
    ("raises", runs_over_the_end),
    ("kept-not-wasted", the_ones_to_keep),
    ("not-names", parameters),
    ("wrong-value", lambda net: ["0"]),
]
ALSO_RIGHT = [by_private_base, by_the_names_of_classes, by_parameter, by_index, backwards]


def every_layer_has_a_bias(net):
    norms = [isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)) for layer in net]
    return [str(index - 1) for index, norm in enumerate(norms) if norm and net[index - 1].bias is not None]


def all_that_have_a_bias(net):
    return [str(index) for index, layer in enumerate(net) if getattr(layer, "bias", None) is not None]


WRONG += [
    ("not-all-have-one", every_layer_has_a_bias),
    ("every-bias", all_that_have_a_bias),
    ("last-pair-missing", lambda net: [name for name in solution(net) if int(name) < len(net) - 2]),
]


def asked(net, of_layer=lambda layer: True, of_norm=lambda norm: True, layers=None):
    """The right names, with one more question to the layer and one to the norm."""
    layers = layers or list(net.named_children())
    return [
        name
        for (name, one), (_, after) in zip(layers, layers[1:])
        if getattr(one, "bias", None) is not None
        and isinstance(after, nn.modules.batchnorm._BatchNorm)
        and of_layer(one)
        and of_norm(after)
    ]


def through_dropout(net):
    return asked(net, layers=[(name, layer) for name, layer in net.named_children() if not isinstance(layer, nn.Dropout)])


WRONG += [
    ("kind-of-layer-forgotten", chosen(BOTH, NORMS)),
    ("kind-of-layer-forgotten", chosen((*BOTH, nn.Conv1d, nn.Conv3d), (*NORMS, nn.BatchNorm3d))),
    ("kind-of-layer-forgotten", lambda net: asked(net, of_norm=lambda norm: isinstance(norm, NORMS))),
    ("setting-of-the-norm", lambda net: asked(net, of_norm=lambda norm: norm.affine)),
    ("setting-of-the-norm", lambda net: asked(net, of_norm=lambda norm: norm.track_running_stats)),
    ("value-of-the-bias", lambda net: asked(net, of_layer=lambda layer: layer.bias.abs().sum() > 0)),
    ("many-layers", lambda net: asked(net, layers=sorted(net.named_children()))),
    ("not-next", through_dropout),
]
ALSO_RIGHT += [
    lambda net: [
        f"{i}"
        for i in range(len(net) - 1)
        if isinstance(net[i + 1], nn.modules.batchnorm._BatchNorm) and f"{i}.bias" in net.state_dict()
    ]
]
WRONG += [("many-layers", lambda net: [name for name in solution(net) if int(name) % 2 == 0])]
