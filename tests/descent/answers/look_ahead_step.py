"""Answers to `look-ahead-step`: the gradient at θ − γ v, the step from θ."""

import torch


def solution(params, gradient, state, lr=0.1, momentum=0.9):
    v = state.setdefault("v", [torch.zeros_like(p) for p in params])
    ahead = gradient([p - momentum * velocity for p, velocity in zip(params, v, strict=True)])
    for i, (p, g) in enumerate(zip(params, ahead, strict=True)):
        v[i] = momentum * v[i] + lr * g
        p -= v[i]


def at_theta(params, gradient, state, lr=0.1, momentum=0.9):
    v = state.setdefault("v", [torch.zeros_like(p) for p in params])
    for i, (p, g) in enumerate(zip(params, gradient(params), strict=True)):
        v[i] = momentum * v[i] + lr * g
        p -= v[i]


def looks_back(params, gradient, state, lr=0.1, momentum=0.9):
    v = state.setdefault("v", [torch.zeros_like(p) for p in params])
    behind = gradient([p + momentum * velocity for p, velocity in zip(params, v, strict=True)])
    for i, (p, g) in enumerate(zip(params, behind, strict=True)):
        v[i] = momentum * v[i] + lr * g
        p -= v[i]


def whole_velocity(params, gradient, state, lr=0.1, momentum=0.9):
    v = state.setdefault("v", [torch.zeros_like(p) for p in params])
    ahead = gradient([p - velocity for p, velocity in zip(params, v, strict=True)])
    for i, (p, g) in enumerate(zip(params, ahead, strict=True)):
        v[i] = momentum * v[i] + lr * g
        p -= v[i]


def moves_and_stays(params, gradient, state, lr=0.1, momentum=0.9):
    v = state.setdefault("v", [torch.zeros_like(p) for p in params])
    for p, velocity in zip(params, v, strict=True):
        p -= momentum * velocity
    for i, (p, g) in enumerate(zip(params, gradient(params), strict=True)):
        v[i] = momentum * v[i] + lr * g
        p -= v[i]


def running_average(params, gradient, state, lr=0.1, momentum=0.9):
    v = state.setdefault("v", [torch.zeros_like(p) for p in params])
    ahead = gradient([p - momentum * velocity for p, velocity in zip(params, v, strict=True)])
    for i, (p, g) in enumerate(zip(params, ahead, strict=True)):
        v[i] = momentum * v[i] + (1 - momentum) * lr * g
        p -= v[i]


def uphill(params, gradient, state, lr=0.1, momentum=0.9):
    v = state.setdefault("v", [torch.zeros_like(p) for p in params])
    ahead = gradient([p - momentum * velocity for p, velocity in zip(params, v, strict=True)])
    for i, (p, g) in enumerate(zip(params, ahead, strict=True)):
        v[i] = momentum * v[i] + lr * g
        p += v[i]


def velocity_uphill(params, gradient, state, lr=0.1, momentum=0.9):
    v = state.setdefault("v", [torch.zeros_like(p) for p in params])
    ahead = gradient([p - momentum * velocity for p, velocity in zip(params, v, strict=True)])
    for i, (p, g) in enumerate(zip(params, ahead, strict=True)):
        v[i] = momentum * v[i] - lr * g
        p -= v[i]


def edits_the_gradient(params, gradient, state, lr=0.1, momentum=0.9):
    v = state.setdefault("v", [torch.zeros_like(p) for p in params])
    ahead = gradient([p - momentum * velocity for p, velocity in zip(params, v, strict=True)])
    for i, (p, g) in enumerate(zip(params, ahead, strict=True)):
        g *= lr
        v[i] = momentum * v[i] + g
        p -= v[i]


def one_velocity_for_all(params, gradient, state, lr=0.1, momentum=0.9):
    v = state.get("v", 0.0)
    ahead = gradient([p - momentum * v if p.shape == getattr(v, "shape", p.shape) else p for p in params])
    for p, g in zip(params, ahead, strict=True):
        before = state.get("v", torch.zeros_like(p))
        state["v"] = momentum * (before if before.shape == p.shape else torch.zeros_like(p)) + lr * g
        p -= state["v"]


def shared_default(params, gradient, state, lr=0.1, momentum=0.9, velocities={}):  # noqa: B006
    for i, p in enumerate(params):
        velocities.setdefault(i, torch.zeros_like(p))
    ahead = gradient([p - momentum * velocities[i] for i, p in enumerate(params)])
    for i, (p, g) in enumerate(zip(params, ahead, strict=True)):
        velocities[i] = momentum * velocities[i] + lr * g
        p -= velocities[i]


WRONG = [
    ("nesterov-as-plain-momentum", at_theta),
    ("look-ahead-wrong-way", looks_back),
    ("look-ahead-whole-velocity", whole_velocity),
    ("stays-at-look-ahead", moves_and_stays),
    ("velocity-as-running-average", running_average),
    ("wrong-sign", uphill),
    ("wrong-sign", velocity_uphill),
    ("gradient-edited-in-place", edits_the_gradient),
    ("state-shared-between-parameters", one_velocity_for_all),
    ("state-shared-between-optimizers", shared_default),
]
