"""Answers to `many-nets`: s stays in every operand and result; biases get an axis for the samples."""

import torch
from edited_source import edited


def solution(x, W1, b1, W2, b2):
    a = torch.sigmoid(torch.einsum("nd,shd->snh", x, W1) + b1[:, None, :])
    return torch.sigmoid(torch.einsum("snh,soh->sn", a, W2) + b2)


def one_net(x, W1, b1, W2, b2):
    return torch.sigmoid(torch.sigmoid(x @ W1.T + b1) @ W2.T + b2)[:, 0]


def two_hidden_units(x, W1, b1, W2, b2):
    a = [torch.sigmoid(x @ W1[:, h].T + b1[:, h]).T for h in range(2)]
    return torch.sigmoid(sum(a[h] * W2[:, 0, h, None] for h in range(2)) + b2)


def output_bias_on_samples(x, W1, b1, W2, b2):
    a = torch.sigmoid(x @ W1.mT + b1[:, None])
    return torch.sigmoid((a @ W2.mT)[..., 0] + b2[:, 0])


WRONG = [
    ("loops", lambda x, *nets: torch.stack([one_net(x, *net) for net in zip(*nets)])),
    ("bias-along-samples", output_bias_on_samples),
    ("inputs-changed", edited(solution, ("b1[:, None, :]", "b1.unsqueeze_(1)"))),
    ("wrong-value", two_hidden_units),
    ("wrong-value", edited(solution, ("a = torch.sigmoid", "a = torch.relu"))),
    ("wrong-value", lambda *given: 1 - solution(*given)),
    ("wrong-value", lambda x, *nets: solution(x.flip(0), *nets)),
    ("raises", one_net),
]


def by_matmul(x, W1, b1, W2, b2):
    a = torch.sigmoid(x @ W1.mT + b1.unsqueeze(1))
    return torch.sigmoid(a @ W2.mT + b2.unsqueeze(1)).squeeze(2)


def by_baddbmm(x, W1, b1, W2, b2):
    a = torch.sigmoid(torch.baddbmm(b1[:, None], x.expand(len(W1), -1, -1), W1.transpose(1, 2)))
    return torch.sigmoid(torch.baddbmm(b2[:, None], a, W2.transpose(1, 2)))[..., 0]


def flattened(x, W1, b1, W2, b2):
    S, H, _ = W1.shape
    a = torch.sigmoid(x @ W1.reshape(S * H, -1).T + b1.flatten()).reshape(-1, S, H)
    return torch.sigmoid((a * W2[:, 0]).sum(2) + b2[:, 0]).T


ALSO_RIGHT = [by_matmul, by_baddbmm, flattened, torch.vmap(one_net, in_dims=(None, 0, 0, 0, 0))]
