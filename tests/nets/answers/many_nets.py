"""Answers to `many-nets`: s stays in every operand and result; biases get an axis for the samples."""

import numpy as np
import torch
from edited_source import edited


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


def loop(x, W1, b1, W2, b2):
    rows = []
    for s in range(len(W1)):
        a = torch.sigmoid(x @ W1[s].T + b1[s])
        rows.append(torch.sigmoid(a @ W2[s].T + b2[s])[:, 0])
    return torch.stack(rows)


WRONG = [("samples-first", samples_first), ("first-net-only", net_zero), ("loops", loop)]


def comprehension(x, W1, b1, W2, b2):
    return torch.stack([torch.sigmoid(torch.sigmoid(x @ w.T + b) @ v.T + c)[:, 0] for w, b, v, c in zip(W1, b1, W2, b2)])


def one_net(x, W1, b1, W2, b2):
    return torch.sigmoid(torch.sigmoid(x @ W1.T + b1) @ W2.T + b2)[:, 0]


def two_hidden_units(x, W1, b1, W2, b2):
    a = [torch.sigmoid(x @ W1[:, h].T + b1[:, h]).T for h in range(2)]
    return torch.sigmoid(sum(a[h] * W2[:, 0, h, None] for h in range(2)) + b2)


def in_place(x, W1, b1, W2, b2):
    b1 = b1.unsqueeze_(1)
    a = torch.sigmoid(torch.einsum("nd,shd->snh", x, W1) + b1)
    return torch.sigmoid(torch.einsum("snh,soh->sn", a, W2) + b2)


def through_numpy(x, W1, b1, W2, b2):
    x, W1, b1, W2, b2 = (t.numpy() for t in (x, W1, b1, W2, b2))
    rows = []
    for s in range(len(W1)):
        a = 1 / (1 + np.exp(-(x @ W1[s].T + b1[s])))
        rows.append(1 / (1 + np.exp(-(a @ W2[s, 0] + b2[s]))))
    return np.stack(rows)


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


def layers(hidden, last="torch.sigmoid"):
    """solution with another activation of the hidden layer or the output."""
    return edited(solution, ("a = torch.sigmoid", f"a = {hidden}"), ("return torch.sigmoid", f"return {last}"))


WRONG += [
    ("loops", comprehension),
    ("wrong-type", through_numpy),
    ("reshaped-not-transposed", lambda x, *nets: samples_first(x, *nets).reshape(len(nets[0]), len(x))),
    ("inputs-changed", in_place),
    ("wrong-value", two_hidden_units),
    ("wrong-value", layers("torch.relu")),
    ("wrong-value", lambda *given: 1 - solution(*given)),
    ("wrong-value", lambda x, *nets: solution(x.flip(0), *nets)),
    ("raises", lambda x, W1, b1, W2, b2: one_net(x, W1, b1, W2, b2)),
]
ALSO_RIGHT = [by_matmul, by_baddbmm, flattened, torch.vmap(one_net, in_dims=(None, 0, 0, 0, 0))]


def output_bias_on_samples(x, W1, b1, W2, b2):
    a = torch.sigmoid(x @ W1.mT + b1[:, None])
    return torch.sigmoid((a @ W2.mT)[..., 0] + b2[:, 0])


def by_vmap(x, W1, b1, W2, b2):
    def one(w1, c1, w2, c2):
        return torch.nn.functional.linear(torch.nn.functional.linear(x, w1, c1).sigmoid(), w2, c2).sigmoid()[:, 0]

    return torch.vmap(one)(W1, b1, W2, b2)


WRONG += [("bias-along-samples", output_bias_on_samples)]
ALSO_RIGHT += [by_vmap]


WRONG += [  # right numbers in another kind than the exercise asks for
    ("wrong-type", lambda *given: by_matmul(*given).numpy())
]
