"""Answers to `wasted-biases`: layers with a bias right before a batch norm."""

from torch import nn


def solution(net):
    from torch import nn

    layers = list(net.named_children())
    return [
        name
        for (name, one), (_, after) in zip(layers, layers[1:])
        if isinstance(one, (nn.Conv2d, nn.Linear))
        and one.bias is not None
        and isinstance(after, (nn.BatchNorm1d, nn.BatchNorm2d))
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
]
