"""Answers to `trust-ratio`: one step of LARS; biases take the plain step."""

import math

import numpy as np
import torch
from edited_source import wrong_answers


def solution(weights, gradients, lr, weight_decay, trust_coeff):
    new = []
    for w, g in zip(weights, gradients, strict=True):
        if w.ndim == 1:
            new.append(w - lr * g)
            continue
        r = 1.0
        if w.norm() > 0 and g.norm() > 0:
            r = trust_coeff * w.norm() / (g.norm() + weight_decay * w.norm())
        new.append(w - lr * r * (g + weight_decay * w))
    return new


def with_ratio(ratio):
    """The solution with another ratio of (w, g, λ, η)."""

    def step(weights, gradients, lr, weight_decay, trust_coeff):
        new = []
        for w, g in zip(weights, gradients, strict=True):
            if w.ndim == 1:
                new.append(w - lr * g)
                continue
            r = ratio(w, g, weight_decay, trust_coeff) if w.any() and g.any() else 1.0
            new.append(w - lr * r * (g + weight_decay * w))
        return new

    return step


def true_ratio(w, g, decay, eta):
    return eta * w.norm() / (g.norm() + decay * w.norm())


def one_norm(weights, gradients, lr, decay, eta):
    w_norm = math.sqrt(sum(float((w**2).sum()) for w in weights if w.ndim > 1))
    g_norm = math.sqrt(sum(float((g**2).sum()) for g in gradients if g.ndim > 1))
    r = eta * w_norm / (g_norm + decay * w_norm)
    return [w - lr * g if w.ndim == 1 else w - lr * r * (g + decay * w) for w, g in zip(weights, gradients, strict=True)]


def in_place(weights, gradients, lr, decay, eta):
    for w, new in zip(weights, solution(weights, gradients, lr, decay, eta), strict=True):
        w.copy_(new)
    return weights


def ratios_only(weights, gradients, lr, decay, eta):
    return [
        true_ratio(w, g, decay, eta) if w.ndim > 1 and w.any() and g.any() else torch.tensor(1.0)
        for w, g in zip(weights, gradients, strict=True)
    ]


def decay_afterwards(weights, gradients, lr, decay, eta):
    """As AdamW does it, with factors."""
    new = []
    for w, g, right in zip(weights, gradients, solution(weights, gradients, lr, decay, eta), strict=True):
        new.append((w - lr * true_ratio(w, g, decay, eta) * g) * (1 - lr * decay) if w.ndim > 1 and w.any() else right)
    return new


def ratio_of(size):
    """The source of the ratio, with another size of a tensor."""
    w, g = size.format("w"), size.format("g")
    return f"trust_coeff * {w} / ({g} + weight_decay * {w})"


RATIO, GUARD, IS_BIAS = ratio_of("{}.norm()"), "w.norm() > 0 and g.norm() > 0", "w.ndim == 1"
STEP = "new.append(w - lr * r * (g + weight_decay * w))"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("wrong-length", (RATIO, f"({RATIO}) ** 0.5")),
            ("wrong-length", ("trust_coeff * w.norm()", "trust_coeff * w.norm().clamp(max=10)")),
            ("biases-adapted", (IS_BIAS, "False"), (GUARD, "True")),
            ("wrong-decay", (STEP, "new.append(w - lr * r * (g + weight_decay / 2 * w))")),
            ("inputs-changed", (STEP, "g += weight_decay * w\n        new.append(w - lr * r * g)")),
            ("other-number", ("return new", "return new[:1]")),
            ("wrong-dtype", ("return new", "return [w.to(torch.bfloat16) for w in new]")),
            ("returns-nothing", ("    return new\n", "")),
        ],
    ),
    ("one-ratio-for-all", one_norm),
    ("inputs-changed", in_place),
    ("wrong-dtype", ratios_only),
    ("decay-outside", decay_afterwards),
    ("wrong-type", lambda *given: iter(solution(*given))),
    ("wrong-shape", lambda *given: [new.flatten() for new in solution(*given)]),
    ("wrong-length", lambda weights, gradients, lr, decay, eta: [w - lr * g for w, g in zip(weights, gradients, strict=True)]),
]


def by_numpy(weights, gradients, lr, decay, eta):
    new = []
    for w, g in zip((w.numpy() for w in weights), (g.numpy() for g in gradients), strict=True):
        w_norm, g_norm = np.sqrt((w**2).sum()), np.sqrt((g**2).sum())
        plain = w.ndim == 1 or not w_norm * g_norm
        own = 0.0 if w.ndim == 1 else decay
        new.append(w - lr * (1.0 if plain else eta * w_norm / (g_norm + decay * w_norm)) * (g + own * w))
    return new


def by_where(weights, gradients, lr, decay, eta):
    def one(w, g):
        if w.ndim < 2:
            return torch.sub(w, g, alpha=lr)
        a, b = torch.linalg.vector_norm(w), torch.linalg.vector_norm(g)
        safe = torch.where((a > 0) & (b > 0), eta * a / (b + decay * a).clamp(min=1e-300), torch.ones_like(a))
        return torch.add(w, torch.add(g, w, alpha=decay).mul(safe), alpha=-lr)

    return tuple(map(one, weights, gradients))


def with_a_tiny_epsilon(weights, gradients, lr, decay, eta):
    return with_ratio(lambda w, g, d, e: e * w.norm() / (g.norm() + d * w.norm() + 1e-12))(weights, gradients, lr, decay, eta)


def through_copies(weights, gradients, lr, decay, eta):
    new = [w.clone() for w in weights]
    for w, g in zip(new, gradients, strict=True):
        matrix = len(w.shape) >= 2
        r = 1.0
        if matrix and float(w.norm()) != 0 and float(g.norm()) != 0:
            r = eta * float(w.norm()) / (float(g.norm()) + decay * float(w.norm()))
        if matrix:
            g = g + decay * w
        w -= lr * r * g
    return new


def by_flat_dot_products(weights, gradients, lr, decay, eta):
    def ratio(w, g, decay, eta):
        w, g = w.reshape(-1), g.reshape(-1)
        return eta * math.sqrt(w @ w) / (math.sqrt(g @ g) + decay * math.sqrt(w @ w))

    return with_ratio(ratio)(weights, gradients, lr, decay, eta)


def by_frobenius(weights, gradients, lr, decay, eta):
    def size(x):
        return torch.linalg.norm(x.flatten(1), "fro")

    return with_ratio(lambda w, g, d, e: 1 / ((size(g) / size(w) + d) / e))(weights, gradients, lr, decay, eta)


def with_the_library(weights, gradients, lr, decay, eta):
    from hpml_lab.optim import LARS, matrices_and_rest

    params = [w.clone().requires_grad_() for w in weights]
    for p, g in zip(params, gradients, strict=True):
        p.grad = g.clone()
    groups = matrices_and_rest(params, weight_decay=0.0, always_adapt=False)
    LARS(groups, lr=lr, weight_decay=decay, trust_coeff=eta, eps=0.0).step()
    return [p.detach() for p in params]


def by_root_mean_squares(weights, gradients, lr, decay, eta):
    def size(x):  # the number of elements cancels
        return x.square().mean().sqrt()

    return with_ratio(lambda w, g, d, e: e * size(w) / (size(g) + d * size(w)))(weights, gradients, lr, decay, eta)


ALSO_RIGHT = [
    by_root_mean_squares,
    by_where,
    with_a_tiny_epsilon,
    through_copies,
    by_flat_dot_products,
    by_frobenius,
    with_the_library,
]


WRONG += [  # right numbers in another kind than the exercise asks for
    ("wrong-type", by_numpy)
]
