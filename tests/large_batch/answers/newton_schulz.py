"""Answers to `newton-schulz`: steps of given coefficients, on the smaller side, in a new tensor of g's shape."""

import numpy as np
import torch
from edited_source import wrong_answers


def solution(g, coefficients, eps):
    tall = g.shape[0] > g.shape[1]
    X = g.mT if tall else g
    X = X / max(X.norm().item(), eps)
    for a, b, c in coefficients:
        A = X @ X.mT
        X = a * X + (b * A + c * (A @ A)) @ X
    return X.mT if tall else X


STEP = "X = a * X + (b * A + c * (A @ A)) @ X"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("other-singular-values", (STEP, STEP + "\n        X = X / max(X.norm().item(), 1)")),
            ("other-singular-vectors", (STEP, "X = a * X + b * A @ X + c * (A @ A).tril() @ X")),
        ],
    ),
    ("low-precision", lambda g, coefficients, eps: solution(g.bfloat16(), coefficients, eps).to(g.dtype)),
]


def by_svd(g, coefficients, eps):
    U, s, Vh = torch.linalg.svd(g, full_matrices=False)
    s = s / torch.linalg.vector_norm(s).clamp(min=eps)
    for a, b, c in coefficients:
        s = a * s + b * s**3 + c * s**5
    return U * s @ Vh


def from_the_right(g, coefficients, eps):
    """A tall matrix as it is, with XᵀX."""
    X = g / g.norm().clamp(min=eps)
    for a, b, c in coefficients:
        if X.size(0) > X.size(1):
            A = X.T @ X
            X = a * X + X @ (b * A + c * A @ A)
        else:
            A = X @ X.T
            X = a * X + (b * A + c * A @ A) @ X
    return X


def by_numpy(g, coefficients, eps):
    X = g.numpy().T if g.shape[0] > g.shape[1] else g.numpy()
    X = X / max(np.linalg.norm(X), eps)
    for a, b, c in coefficients:
        A = X @ X.T
        X = a * X + b * A @ X + c * A @ (A @ X)
    return torch.from_numpy(X.T if g.shape[0] > g.shape[1] else X)


def by_addmm(g, coefficients, eps):
    """As torch.optim.Muon has it, but for the dtype."""
    X = (g.T if g.size(0) > g.size(1) else g).clone()
    X.div_(X.norm().clamp(min=eps))
    for a, b, c in coefficients:
        A = X @ X.T
        X = torch.addmm(X, torch.addmm(A, A, A, beta=b, alpha=c), X, beta=a)
    return X.T if g.size(0) > g.size(1) else X


def by_recursion(g, coefficients, eps):
    if g.shape[0] > g.shape[1]:
        return by_recursion(g.T, coefficients, eps).T

    def steps(X, left):
        if not left:
            return X
        (a, b, c), A = left[0], X @ X.T
        return steps(a * X + (b * A + c * A @ A) @ X, left[1:])

    return steps(g / max(float((g * g).sum()) ** 0.5, eps), list(coefficients))


ALSO_RIGHT = [by_svd, from_the_right, by_numpy, by_addmm, by_recursion]
