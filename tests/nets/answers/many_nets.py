"""Answers to `many-nets`: s stays in every operand and result; biases get an axis for the samples."""

import torch


def solution(x, W1, b1, W2, b2):
    a = torch.sigmoid(torch.einsum("nd,shd->snh", x, W1) + b1[:, None, :])
    return torch.sigmoid(torch.einsum("snh,soh->sn", a, W2) + b2)


def samples_first(x, W1, b1, W2, b2):
    a = torch.sigmoid(torch.einsum("nd,shd->nsh", x, W1) + b1)
    return torch.sigmoid((a * W2[:, 0]).sum(-1) + b2[:, 0])


def net_zero(x, W1, b1, W2, b2):
    a = torch.sigmoid(x @ W1[0].T + b1[0])
    p = torch.sigmoid(a @ W2[0].T + b2[0])
    return p.T.expand(len(W1), len(x))


def sums_over_nets(x, W1, b1, W2, b2):
    a = torch.sigmoid(torch.einsum("nd,shd->nh", x, W1) + b1[:, None, :])
    return torch.sigmoid(torch.einsum("snh,soh->sn", a, W2) + b2)


def bias_on_samples(x, W1, b1, W2, b2):
    a = torch.sigmoid(torch.einsum("nd,shd->snh", x, W1) + b1)
    return torch.sigmoid(torch.einsum("snh,soh->sn", a, W2) + b2)


def linear_hidden_layer(x, W1, b1, W2, b2):
    a = torch.einsum("nd,shd->snh", x, W1) + b1[:, None, :]
    return torch.sigmoid(torch.einsum("snh,soh->sn", a, W2) + b2)


def logits(x, W1, b1, W2, b2):
    a = torch.sigmoid(torch.einsum("nd,shd->snh", x, W1) + b1[:, None, :])
    return torch.einsum("snh,soh->sn", a, W2) + b2


def forgot_b1(x, W1, b1, W2, b2):
    a = torch.sigmoid(torch.einsum("nd,shd->snh", x, W1))
    return torch.sigmoid(torch.einsum("snh,soh->sn", a, W2) + b2)


def forgot_b2(x, W1, b1, W2, b2):
    a = torch.sigmoid(torch.einsum("nd,shd->snh", x, W1) + b1[:, None, :])
    return torch.sigmoid(torch.einsum("snh,soh->sn", a, W2))


def loop(x, W1, b1, W2, b2):
    rows = []
    for s in range(len(W1)):
        a = torch.sigmoid(x @ W1[s].T + b1[s])
        rows.append(torch.sigmoid(a @ W2[s].T + b2[s])[:, 0])
    return torch.stack(rows)


def keeps_the_output_axis(x, W1, b1, W2, b2):
    a = torch.sigmoid(torch.einsum("nd,shd->snh", x, W1) + b1[:, None, :])
    return torch.sigmoid(torch.einsum("snh,soh->sno", a, W2) + b2[:, None, :])


WRONG = [
    ("samples-first", samples_first),
    ("first-net-only", net_zero),
    ("mixes-nets", sums_over_nets),
    ("bias-along-samples", bias_on_samples),
    ("no-hidden-sigmoid", linear_hidden_layer),
    ("no-output-sigmoid", logits),
    ("no-hidden-bias", forgot_b1),
    ("no-output-bias", forgot_b2),
    ("loops-over-nets", loop),
    ("wrong-shape", keeps_the_output_axis),
]
