"""Answers to `write-adagrad`: each parameter has its own sum of squares, and the sum comes before the step."""

import torch
from edited_source import wrong_answers


def solution(params, grads, state, lr=0.01, eps=1e-10):
    for i, (p, g) in enumerate(zip(params, grads)):
        if i not in state:
            state[i] = torch.zeros_like(p)
        state[i] += g * g
        p -= lr * g / (state[i].sqrt() + eps)


WRONG = wrong_answers(
    solution,
    [
        ("state-shared-between-parameters", ("i not in", "p.shape not in"), ("state[i]", "state[p.shape]")),
        ("argument-ignored", ("+ eps)", "+ 1e-10)")),
        ("argument-ignored", ("p -= lr", "p -= 0.01")),
        ("wrong-value", ("g / (state[i].sqrt() + eps)", "torch.tanh(g) / (1 + eps)")),
    ],
)


def by_lists(params, grads, state, lr=0.01, eps=1e-10):
    sums = state.setdefault("sums", [0.0 * g for g in grads])
    for k in range(len(params)):
        sums[k] = sums[k] + grads[k].square()
        params[k].sub_(grads[k] / (sums[k].sqrt() + eps), alpha=lr)


def by_identity(params, grads, state, **options):
    lr, eps = options.get("lr", 0.01), options.get("eps", 1e-10)
    with torch.no_grad():
        for p, g in zip(params, grads, strict=True):
            G = state[id(p)] = state.get(id(p), 0) + g.pow(2)
            p.copy_(p - lr * g / (torch.sqrt(G) + eps))


def with_numpy(params, grads, state, lr=0.01, eps=1e-10):
    for i, (p, g) in enumerate(zip(params, grads)):
        numbers = g.numpy()
        state[i] = state.get(i, 0) + numbers**2
        p -= torch.from_numpy(lr * numbers / (state[i] ** 0.5 + eps))


def by_hypot(params, grads, state, lr=0.01, eps=1e-10):
    for i, (p, g) in enumerate(zip(params, grads)):
        root = state[f"root {i}"] = torch.hypot(state.get(f"root {i}", torch.zeros_like(p)), g)
        p.addcdiv_(g, root + eps, value=-lr)


class Memory:
    def __init__(self, p):
        self.squares = [torch.zeros_like(p)]


def with_objects(params, grads, state, lr=0.01, eps=1e-10):
    for i, (p, g) in enumerate(zip(params, grads)):
        own = state.setdefault(i, Memory(p))
        own.squares.append(g**2)
        p.data = p.data - lr * g / (sum(own.squares).sqrt() + eps)


def number_by_number(params, grads, state, lr=0.01, eps=1e-10):
    for k, (p, g) in enumerate(zip(params, grads)):
        flat, squares = p.view(-1), state.setdefault(k, torch.zeros(p.numel(), dtype=p.dtype))
        for i, slope in enumerate(g.reshape(-1)):
            squares[i] += slope * slope
            flat[i] -= lr * slope / (squares[i].sqrt() + eps)


ALSO_RIGHT = [by_lists, by_identity, with_numpy, by_hypot, with_objects, number_by_number]


def on_a_flat_copy(params, grads, state, lr=0.01, eps=1e-10):
    """Where a parameter cannot be seen as one row of numbers, reshape makes a copy, and the copy moves."""
    for i, (p, g) in enumerate(zip(params, grads)):
        flat, slope = p.reshape(-1), g.reshape(-1)
        state[i] = state.get(i, 0) + slope * slope
        flat -= lr * slope / (state[i].sqrt() + eps)


WRONG += [("one-layout", on_a_flat_copy)]
