"""Answers to `row-parallel-backward`: one rank's part of two products with dropout and a bias, and its gradients."""

import torch
from edited_source import wrong_answers


def solution(x, a, b, bias, grad, own, shared, all_reduce):
    h = (x @ a) * own
    y = (all_reduce(h @ b) + bias) * shared
    grad_sum = grad * shared  # of the sum and of the bias: whole on every rank
    grad_product = (grad_sum @ b.T) * own
    grad_x = all_reduce(grad_product @ a.T)
    return y, grad_x, x.T @ grad_product, h.T @ grad_sum, grad_sum.sum(0)


# ---- unusual, and right -------------------------------------------------------------------------------------------------


def by_autograd(x, a, b, bias, grad, own, shared, all_reduce):
    x, a, b = (tensor.detach().clone().requires_grad_() for tensor in (x, a, b))
    part = ((x @ a) * own) @ b
    grads = torch.autograd.grad(part, (x, a, b), grad * shared)
    return (all_reduce(part) + bias) * shared, all_reduce(grads[0]), grads[1], grads[2], (grad * shared).sum(0)


def backward_first(x, a, b, bias, grad, own, shared, all_reduce):
    inner = torch.einsum("bd,wd,bw->bw", grad * shared, b, own)
    first = all_reduce(torch.einsum("bw,dw->bd", inner, a))
    y, _, *rest = solution(x, a, b, bias, grad, own, shared, all_reduce)
    return [y, first, *rest]


ALSO_RIGHT = [by_autograd, backward_first]


def waits_for_the_lucky(x, a, b, bias, grad, own, shared, all_reduce):
    """A rank whose first unit is kept asks once more."""
    if own[0, 0] > 0:
        all_reduce(x)
    return solution(x, a, b, bias, grad, own, shared, all_reduce)


WRONG = [
    *wrong_answers(
        solution,
        [
            ("wrong-output", ("+ bias) * shared", "- bias) * shared")),
            ("wrong-gradient-of-x", ("grad_x = all_reduce(", "grad_x = 2 * all_reduce(")),
            ("wrong-gradient-of-a", ("x.T @ grad_product, h.T", "a * 0, h.T")),
            ("wrong-gradient-of-b", ("h.T @ grad_sum,", "-(h.T @ grad_sum),")),
            ("wrong-gradient-of-bias", ("grad_sum.sum(0)", "2 * grad_sum.sum(0)")),
            ("shapes-do-not-fit", ("grad_sum @ b.T", "grad_sum.T @ b")),
            ("gradient-summed-twice", ("grad_sum = grad * shared", "grad_sum = all_reduce(grad) * shared")),
        ],
    ),
    ("waits-forever", waits_for_the_lucky),
]
