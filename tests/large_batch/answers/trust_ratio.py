"""Answers to `trust-ratio`: one step of LARS; biases take the plain step."""

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


RATIO = "trust_coeff * w.norm() / (g.norm() + weight_decay * w.norm())"
STEP = "new.append(w - lr * r * (g + weight_decay * w))"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("wrong-length", (RATIO, f"({RATIO}) ** 0.5")),
            ("wrong-decay", (STEP, "new.append(w - lr * r * (g + weight_decay / 2 * w))")),
            ("other-number", ("return new", "return new[:1]")),
        ],
    ),
    ("numbers-not-tensors", lambda *given: [new.sum() for new in solution(*given)]),
    ("another-direction", lambda weights, gradients, lr, *_: [w - lr * g.sign() for w, g in zip(weights, gradients)]),
    ("wrong-shape", lambda *given: [new.flatten() for new in solution(*given)]),
]


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


ALSO_RIGHT = [by_root_mean_squares, by_where, with_a_tiny_epsilon, through_copies, with_the_library]


def a_bias_by_its_squeezed_shape(weights, gradients, lr, weight_decay, trust_coeff):
    stepped = solution(weights, gradients, lr, weight_decay, trust_coeff)
    return [w - lr * g if w.squeeze().dim() < 2 else new for w, g, new in zip(weights, gradients, stepped)]


WRONG += [("wrong-length", a_bias_by_its_squeezed_shape)]
