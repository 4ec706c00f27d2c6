"""Answers to `sgd-step`: each weight moves in place by -lr times its gradient, which is then cleared."""

import torch
from edited_source import wrong_answers
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def solution(parameters, lr):
    with torch.no_grad():
        for p in parameters:
            p -= lr * p.grad
            p.grad = None


def new_tensors_in_the_list(parameters, lr):
    for index, p in enumerate(parameters):
        parameters[index] = (p - lr * p.grad).detach().requires_grad_()


def returns_new(parameters, lr):
    return [p - lr * p.grad for p in parameters]


def switches_tracking_off(parameters, lr):
    for p in parameters:
        p.requires_grad_(False)
        p -= lr * p.grad
        p.grad = None


def switched_off(parameters, lr):
    torch.set_grad_enabled(False)
    for p in parameters:
        p -= lr * p.grad
        p.grad = None


def clears_outside_the_loop(parameters, lr):
    with torch.no_grad():
        for p in parameters:
            p -= lr * p.grad
    p.grad = None


STEP, CLEAR = "p -= lr * p.grad", "p.grad = None"


WRONG = [
    *wrong_answers(
        solution,
        [
            ("records-the-update", ("torch.no_grad()", "torch.enable_grad()")),
            ("rebinds", (STEP, "p = p - lr * p.grad"), (CLEAR, "pass")),
            ("zeroed-too-soon", (STEP, f"p.grad.zero_(); {STEP}"), (CLEAR, "pass")),
            ("steps-the-gradient", (STEP, "p.grad -= lr * p"), (CLEAR, "pass")),
            ("ascends", (STEP, "p += lr * p.grad")),
            ("no-learning-rate", (STEP, "p -= p.grad")),
            ("shrinks-the-weight", (STEP, "p -= lr * p")),
            ("divides-by-lr", (STEP, "p -= p.grad / lr")),
            ("first-only", (CLEAR, f"{CLEAR}; return parameters")),
            ("keeps-the-gradient", (CLEAR, "pass")),
            ("steps-twice", (STEP, f"{STEP}; {STEP}")),
            ("sign-only", (STEP, "p -= lr * p.grad.sign()")),
            ("decays-too", (STEP, "p -= lr * (p.grad + p)")),
            ("some-left-out", ("for p in parameters", "for p in parameters[1:]")),
            ("zeroed-too-soon", (STEP, "new = p - lr * p.grad")),
            ("raises", (STEP, "p -= lr * torch.stack([q.grad for q in parameters])")),
            ("wrong-value", (STEP, "p -= lr**2 * p.grad")),
            ("wrong-value", (STEP, "p -= lr * p.grad.clamp(-1, 1)")),
            ("wrong-value", ("    with", "    torch.nn.utils.clip_grad_norm_(parameters, 100.0)\n    with")),
        ],
    ),
    ("rebinds", new_tensors_in_the_list),
    ("returns-new-ones", returns_new),
    ("stops-tracking", switches_tracking_off),
    ("leaves-autograd-off", switched_off),
    ("keeps-some-gradients", clears_outside_the_loop),
]


def takes_them_out_of_the_list(parameters, lr):
    with torch.no_grad():
        while parameters:
            p = parameters.pop()
            p -= lr * p.grad
            p.grad = None


def by_the_library(parameters, lr):
    optimizer = torch.optim.SGD(parameters, lr=lr)
    optimizer.step()
    optimizer.zero_grad()


def by_foreach(parameters, lr):
    with torch.no_grad():
        torch._foreach_add_(parameters, [p.grad for p in parameters], alpha=-lr)
    for p in parameters:
        p.grad.zero_()


def by_data(parameters, lr):
    for p in parameters:
        p.data -= lr * p.grad.data
        p.grad = torch.zeros_like(p)


@torch.no_grad()
def decorated(parameters, lr):
    for p in parameters:
        p.sub_(p.grad, alpha=lr)
        p.grad.fill_(0.0)


def copied(parameters, lr):
    for p in parameters:
        new = p.detach() - lr * p.grad
        p.detach().copy_(new)
        p.grad = None


def as_one_vector(parameters, lr):
    """torch's own `parameters_to_vector` takes a view of each, which tensors whose numbers lie apart do not have."""
    slopes = parameters_to_vector([p.grad for p in parameters])
    vector_to_parameters(parameters_to_vector(parameters).detach() - lr * slopes, parameters)
    for p in parameters:
        p.grad = None


def number_by_number(parameters, lr):
    with torch.no_grad():
        for p in parameters:
            flat, slopes = p.view(-1), p.grad.view(-1)
            for i in range(len(flat)):
                flat[i] -= lr * slopes[i]
            p.grad.zero_()


ALSO_RIGHT = [takes_them_out_of_the_list, by_the_library, by_foreach, by_data, decorated, copied]
ALSO_RIGHT += [as_one_vector, number_by_number]


def on_a_flat_copy(parameters, lr):
    for p in parameters:
        flat = p.detach().reshape(-1)
        flat -= lr * p.grad.reshape(-1)
        p.grad = None


WRONG += [("one-layout", on_a_flat_copy)]
