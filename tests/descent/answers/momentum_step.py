"""Answers to `momentum-step`: b = γ b + g, θ = θ − α b, each parameter with a velocity of its own."""

import torch


def solution(params, grads, state, lr=0.1, momentum=0.9):
    if "b" not in state:
        state["b"] = [torch.zeros_like(p) for p in params]
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        state["b"][i] = momentum * state["b"][i] + g
        p -= lr * state["b"][i]


def running_average(params, grads, state, lr=0.1, momentum=0.9):
    b = state.setdefault("b", [torch.zeros_like(p) for p in params])
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        b[i] = momentum * b[i] + (1 - momentum) * g
        p -= lr * b[i]


def rate_inside(params, grads, state, lr=0.1, momentum=0.9):
    v = state.setdefault("v", [torch.zeros_like(p) for p in params])
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        v[i] = momentum * v[i] + lr * g
        p -= v[i]


def uphill(params, grads, state, lr=0.1, momentum=0.9):
    b = state.setdefault("b", [torch.zeros_like(p) for p in params])
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        b[i] = momentum * b[i] + g
        p += lr * b[i]


def edits_the_gradient(params, grads, state, lr=0.1, momentum=0.9):
    b = state.setdefault("b", [torch.zeros_like(p) for p in params])
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        g += momentum * b[i]
        b[i] = g.clone()
        p -= lr * g


def one_velocity_for_all(params, grads, state, lr=0.1, momentum=0.9):
    for p, g in zip(params, grads, strict=True):
        state["b"] = momentum * state.get("b", torch.zeros_like(p)) + g
        p -= lr * state["b"]


VELOCITIES = {}


def global_velocity(params, grads, state, lr=0.1, momentum=0.9):
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        VELOCITIES[i] = momentum * VELOCITIES.get(i, torch.zeros_like(p)) + g
        p -= lr * VELOCITIES[i]


def nothing_kept(params, grads, state, lr=0.1, momentum=0.9):
    for p, g in zip(params, grads, strict=True):
        b = torch.zeros_like(p)
        b = momentum * b + g
        p -= lr * b


def new_names(params, grads, state, lr=0.1, momentum=0.9):
    b = state.setdefault("b", [torch.zeros_like(p) for p in params])
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        b[i] = momentum * b[i] + g
        p = p - lr * b[i]


def steps_first(params, grads, state, lr=0.1, momentum=0.9):
    b = state.setdefault("b", [torch.zeros_like(p) for p in params])
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        p -= lr * b[i]
        b[i] = momentum * b[i] + g


WRONG = [
    ("velocity-as-running-average", running_average),
    ("rate-inside-velocity", rate_inside),
    ("wrong-sign", uphill),
    ("gradient-edited-in-place", edits_the_gradient),
    ("state-shared-between-parameters", one_velocity_for_all),
    ("state-shared-between-optimizers", global_velocity),
    ("velocity-not-kept", nothing_kept),
    ("rebinds", new_names),
    ("velocity-used-before-update", steps_first),
]
