"""Answers to `trust-ratio`: one step of LARS; biases take the plain step."""

import math

import numpy as np
import torch


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


def with_ratio(ratio, guard=True):
    """The solution with another ratio of (w, g, λ, η)."""

    def step(weights, gradients, lr, weight_decay, trust_coeff):
        new = []
        for w, g in zip(weights, gradients, strict=True):
            if w.ndim == 1:
                new.append(w - lr * g)
                continue
            plain = guard and not (w.any() and g.any())
            r = 1.0 if plain else ratio(w, g, weight_decay, trust_coeff)
            new.append(w - lr * r * (g + weight_decay * w))
        return new

    return step


def true_ratio(w, g, decay, eta):
    return eta * w.norm() / (g.norm() + decay * w.norm())


def all_alike(weights, gradients, lr, decay, eta):
    return [w - lr * true_ratio(w, g, decay, eta) * (g + decay * w) for w, g in zip(weights, gradients, strict=True)]


def all_alike_guarded(weights, gradients, lr, decay, eta):
    new = []
    for w, g in zip(weights, gradients, strict=True):
        r = true_ratio(w, g, decay, eta) if w.norm() * g.norm() > 0 else 1.0
        new.append(w - lr * r * (g + decay * w))
    return new


def biases_scaled_but_not_decayed(weights, gradients, lr, decay, eta):
    new = []
    for w, g in zip(weights, gradients, strict=True):
        own = decay if w.ndim > 1 else 0.0
        r = true_ratio(w, g, own, eta) if w.any() and g.any() else 1.0
        new.append(w - lr * r * (g + own * w))
    return new


def biases_decayed(weights, gradients, lr, decay, eta):
    new = solution(weights, gradients, lr, decay, eta)
    return [n - lr * decay * w if w.ndim == 1 else n for n, w in zip(new, weights, strict=True)]


def one_norm(weights, gradients, lr, decay, eta):
    w_norm = math.sqrt(sum(float((w**2).sum()) for w in weights if w.ndim > 1))
    g_norm = math.sqrt(sum(float((g**2).sum()) for g in gradients if g.ndim > 1))
    return with_ratio(lambda *_: eta * w_norm / (g_norm + decay * w_norm), guard=False)(weights, gradients, lr, decay, eta)


def in_place(weights, gradients, lr, decay, eta):
    for w, new in zip(weights, solution(weights, gradients, lr, decay, eta), strict=True):
        w.copy_(new)
    return weights


def gradients_in_place(weights, gradients, lr, decay, eta):
    new = solution(weights, gradients, lr, decay, eta)
    for w, g in zip(weights, gradients, strict=True):
        g += decay * w
    return new


def step_without_decay(weights, gradients, lr, decay, eta):
    return [
        w - lr * (true_ratio(w, g, decay, eta) if w.ndim > 1 and w.any() and g.any() else 1.0) * g
        for w, g in zip(weights, gradients, strict=True)
    ]


def decay_like_adamw(weights, gradients, lr, decay, eta):
    new = step_without_decay(weights, gradients, lr, decay, eta)
    return [n if w.ndim == 1 else n - lr * decay * w for n, w in zip(new, weights, strict=True)]


def plain_sgd(weights, gradients, lr, decay, eta):
    return [w - lr * (g + (decay * w if w.ndim > 1 else 0)) for w, g in zip(weights, gradients, strict=True)]


def uphill(weights, gradients, lr, decay, eta):
    return [2 * w - new for w, new in zip(weights, solution(weights, gradients, lr, decay, eta), strict=True)]


def steps_only(weights, gradients, lr, decay, eta):
    return [w - new for w, new in zip(weights, solution(weights, gradients, lr, decay, eta), strict=True)]


def ratios_only(weights, gradients, lr, decay, eta):
    return [
        true_ratio(w, g, decay, eta) if w.ndim > 1 and w.any() and g.any() else torch.tensor(1.0)
        for w, g in zip(weights, gradients, strict=True)
    ]


def nothing(weights, gradients, lr, decay, eta):
    solution(weights, gradients, lr, decay, eta)


def first_only(weights, gradients, lr, decay, eta):
    for w, g in zip(weights, gradients, strict=True):
        return [w - lr * true_ratio(w, g, decay, eta) * (g + decay * w)]


def rounded(weights, gradients, lr, decay, eta):
    return [new.to(torch.bfloat16) for new in solution(weights, gradients, lr, decay, eta)]


def only_matrices(weights, gradients, lr, decay, eta):
    new = solution(weights, gradients, lr, decay, eta)
    return [n if w.ndim < 3 else w - lr * g for n, w, g in zip(new, weights, gradients, strict=True)]


def biases_stay(weights, gradients, lr, decay, eta):
    new = solution(weights, gradients, lr, decay, eta)
    return [n if w.ndim > 1 else w for n, w in zip(new, weights, strict=True)]


def rows(x):
    return x.norm(dim=-1, keepdim=True)


def half_decayed(weights, gradients, lr, decay, eta):
    """The right ratio, and half of the decay in the step."""
    new = []
    for w, g, right in zip(weights, gradients, solution(weights, gradients, lr, decay, eta), strict=True):
        r = true_ratio(w, g, decay, eta) if w.ndim > 1 and w.any() and g.any() else 1.0
        new.append(right + lr * r * decay / 2 * w if w.ndim > 1 else right)
    return new


def slices(w, g, decay, eta):
    norm, of_g = (torch.linalg.matrix_norm(x).sum() for x in (w, g))
    return eta * norm / (of_g + decay * norm)


def every_second_plain(weights, gradients, lr, decay, eta):
    plain = [w - lr * g for w, g in zip(weights, gradients, strict=True)]
    return [
        p if i % 2 else a
        for i, (p, a) in enumerate(zip(plain, all_alike_guarded(weights, gradients, lr, decay, eta), strict=True))
    ]


def biases_with_the_coefficient(weights, gradients, lr, decay, eta):
    new = solution(weights, gradients, lr, decay, eta)
    return [w - lr * eta * g if w.ndim == 1 else n for w, g, n in zip(weights, gradients, new, strict=True)]


def decay_afterwards(weights, gradients, lr, decay, eta):
    """As AdamW does it, with factors."""
    new = []
    for w, g, right in zip(weights, gradients, solution(weights, gradients, lr, decay, eta), strict=True):
        new.append((w - lr * true_ratio(w, g, decay, eta) * g) * (1 - lr * decay) if w.ndim > 1 and w.any() else right)
    return new


def plain_without_decay(weights, gradients, lr, decay, eta):
    return plain_sgd(weights, gradients, lr, 0, eta) if decay == 0 else solution(weights, gradients, lr, decay, eta)


def with_threshold(least):
    """A norm below `least` is taken for 0."""

    def lars_step(weights, gradients, lr, weight_decay, trust_coeff):
        small = [w.ndim > 1 and min(w.norm(), g.norm()) < least for w, g in zip(weights, gradients, strict=True)]
        new = solution(weights, gradients, lr, weight_decay, trust_coeff)
        plain = [w - lr * (g + weight_decay * w) for w, g in zip(weights, gradients, strict=True)]
        return [b if is_small else a for a, b, is_small in zip(new, plain, small, strict=True)]

    return lars_step


def three_dimensions_as_a_bias(weights, gradients, lr, weight_decay, trust_coeff):
    new = solution(weights, gradients, lr, weight_decay, trust_coeff)
    return [w - lr * g if w.ndim == 3 else a for a, w, g in zip(new, weights, gradients, strict=True)]


WRONG = [
    ("wrong-length", three_dimensions_as_a_bias),
    ("wrong-length", with_threshold(1e-3)),
    ("wrong-length", with_threshold(1e-8)),
    ("inverted", with_ratio(lambda w, g, decay, eta: eta * (g.norm() + decay * w.norm()) / w.norm())),
    ("decay-not-in-the-ratio", with_ratio(lambda w, g, decay, eta: eta * w.norm() / g.norm())),
    ("decay-not-in-the-ratio", with_ratio(lambda w, g, decay, eta: eta * w.norm() / g.norm(), guard=False)),
    ("norm-of-the-sum", with_ratio(lambda w, g, decay, eta: eta * w.norm() / (g + decay * w).norm())),
    ("norm-of-the-sum", with_ratio(lambda w, g, decay, eta: eta * w.norm() / (g + decay * w).norm(), guard=False)),
    ("decay-twice", with_ratio(lambda w, g, decay, eta: eta * w.norm() / ((g + decay * w).norm() + decay * w.norm()))),
    ("no-coefficient", with_ratio(lambda w, g, decay, eta: w.norm() / (g.norm() + decay * w.norm()))),
    ("no-weight-norm", with_ratio(lambda w, g, decay, eta: eta / (g.norm() + decay * w.norm()))),
    ("squared-norms", with_ratio(lambda w, g, decay, eta: eta * (w**2).sum() / ((g**2).sum() + decay * (w**2).sum()))),
    ("sum-of-absolute-values", with_ratio(lambda w, g, d, eta: eta * w.abs().sum() / (g.abs().sum() + d * w.abs().sum()))),
    ("largest-element", with_ratio(lambda w, g, d, eta: eta * w.abs().max() / (g.abs().max() + d * w.abs().max()))),
    (
        "spectral-norm",
        with_ratio(
            lambda w, g, d, eta: eta * torch.linalg.norm(w, 2) / (torch.linalg.norm(g, 2) + d * torch.linalg.norm(w, 2))
        ),
    ),
    ("clipped-at-one", with_ratio(lambda w, g, decay, eta: min(true_ratio(w, g, decay, eta), torch.tensor(1.0)))),
    ("zeros-not-plain", with_ratio(true_ratio, guard=False)),
    ("zeros-never-move", with_ratio(lambda *a: true_ratio(*a) if a[0].any() and a[1].any() else 0.0, guard=False)),
    ("biases-adapted", all_alike),
    ("biases-adapted", all_alike_guarded),
    ("biases-adapted", biases_scaled_but_not_decayed),
    ("biases-decayed", biases_decayed),
    ("one-ratio-for-all", one_norm),
    ("inputs-changed", in_place),
    ("inputs-changed", gradients_in_place),
    ("decay-not-in-the-step", step_without_decay),
    ("decay-outside", decay_like_adamw),
    ("plain-sgd", plain_sgd),
    ("wrong-sign", uphill),
    ("only-the-step", steps_only),
    ("numbers-not-tensors", ratios_only),
    ("returns-nothing", nothing),
    ("other-number", first_only),
    ("not-a-list", lambda *given: iter(solution(*given))),
    ("wrong-shape", lambda *given: [new.flatten() for new in solution(*given)]),
    ("no-rate", lambda weights, gradients, lr, decay, eta: solution(weights, gradients, 1.0, decay, eta)),
    ("plain-sgd", lambda weights, gradients, lr, decay, eta: [w - lr * g for w, g in zip(weights, gradients, strict=True)]),
    ("convolution-as-a-bias", only_matrices),
    ("zeros-with-the-coefficient", with_ratio(lambda *a: true_ratio(*a) if a[0].any() and a[1].any() else a[3], guard=False)),
    ("zeros-not-plain", with_ratio(lambda *a: true_ratio(*a) if a[0].any() else 1.0, guard=False)),
    ("norm-of-each-row", with_ratio(lambda w, g, d, e: e * rows(w) / (rows(g) + d * rows(w)))),
    ("unchanged", biases_stay),
    ("another-direction", rounded),
    ("wrong-length", with_ratio(lambda *a: true_ratio(*a) ** 0.5)),
    ("wrong-decay", lambda weights, gradients, lr, decay, eta: half_decayed(weights, gradients, lr, decay, eta)),
    ("biases-by-position", every_second_plain),
    ("biases-with-the-coefficient", biases_with_the_coefficient),
    ("inverted", with_ratio(lambda w, g, decay, eta: (g.norm() + decay * w.norm()) / (eta * w.norm()))),
    (
        "norm-of-each-row",
        with_ratio(lambda w, g, decay, eta: slices(w, g, decay, eta) if w.ndim > 2 else true_ratio(w, g, decay, eta)),
    ),
    ("decay-outside", decay_afterwards),
    ("plain-without-decay", plain_without_decay),
    (
        "rate-twice",
        lambda w, g, lr, decay, eta: [a + lr * (b - a) for a, b in zip(w, solution(w, g, lr, decay, eta), strict=True)],
    ),
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
    by_numpy,
    by_where,
    with_a_tiny_epsilon,
    through_copies,
    by_flat_dot_products,
    by_frobenius,
    with_the_library,
]

WRONG += [("wrong-length", with_ratio(lambda w, g, d, e: e * w.norm().clamp(max=10) / (g.norm() + d * w.norm())))]
