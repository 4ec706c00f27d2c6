"""Answers to `sgd-step`: each weight moves in place by -lr times its gradient, which is then cleared."""

import torch


def solution(parameters, lr):
    with torch.no_grad():
        for p in parameters:
            p -= lr * p.grad
            p.grad = None


def recorded(parameters, lr):
    for p in parameters:
        p -= lr * p.grad
        p.grad = None


def new_name(parameters, lr):
    with torch.no_grad():
        for p in parameters:
            p = p - lr * p.grad


def cleared_first(parameters, lr):
    with torch.no_grad():
        for p in parameters:
            p.grad.zero_()
            p -= lr * p.grad


def on_the_gradient(parameters, lr):
    with torch.no_grad():
        for p in parameters:
            p.grad -= lr * p


def upwards(parameters, lr):
    with torch.no_grad():
        for p in parameters:
            p += lr * p.grad
            p.grad = None


def whole_gradient(parameters, lr):
    with torch.no_grad():
        for p in parameters:
            p -= p.grad
            p.grad = None


def decays(parameters, lr):
    with torch.no_grad():
        for p in parameters:
            p -= lr * p
            p.grad = None


def divides(parameters, lr):
    with torch.no_grad():
        for p in parameters:
            p -= p.grad / lr
            p.grad = None


def returns_in_the_loop(parameters, lr):
    with torch.no_grad():
        for p in parameters:
            p -= lr * p.grad
            p.grad = None
            return parameters


def never_clears(parameters, lr):
    with torch.no_grad():
        for p in parameters:
            p -= lr * p.grad


def switches_tracking_off(parameters, lr):
    for p in parameters:
        p.requires_grad_(False)
        p -= lr * p.grad
        p.grad = None


def new_tensors_in_the_list(parameters, lr):
    for index, p in enumerate(parameters):
        parameters[index] = (p - lr * p.grad).detach().requires_grad_()


def takes_them_out_of_the_list(parameters, lr):
    with torch.no_grad():
        while parameters:
            p = parameters.pop()
            p -= lr * p.grad
            p.grad = None


ALSO_RIGHT = [takes_them_out_of_the_list]
WRONG = [
    ("records-the-update", recorded),
    ("rebinds", new_name),
    ("rebinds", new_tensors_in_the_list),
    ("zeroed-too-soon", cleared_first),
    ("steps-the-gradient", on_the_gradient),
    ("ascends", upwards),
    ("no-learning-rate", whole_gradient),
    ("shrinks-the-weight", decays),
    ("divides-by-lr", divides),
    ("first-only", returns_in_the_loop),
    ("keeps-the-gradient", never_clears),
    ("stops-tracking", switches_tracking_off),
]
