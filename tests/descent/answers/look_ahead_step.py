"""Answers to `look-ahead-step`: the gradient at θ − γ v, the step from θ."""

import torch
from edited_source import edited, wrong_answers


def solution(params, gradient, state, lr=0.1, momentum=0.9):
    v = state.setdefault("v", [torch.zeros_like(p) for p in params])
    ahead = gradient([p - momentum * velocity for p, velocity in zip(params, v, strict=True)])
    for i, (p, g) in enumerate(zip(params, ahead, strict=True)):
        v[i] = momentum * v[i] + lr * g
        p -= v[i]


def one_velocity_for_all(params, gradient, state, lr=0.1, momentum=0.9):
    v = state.get("v", 0.0)
    ahead = gradient([p - momentum * v if p.shape == getattr(v, "shape", p.shape) else p for p in params])
    for p, g in zip(params, ahead, strict=True):
        before = state.get("v", torch.zeros_like(p))
        state["v"] = momentum * (before if before.shape == p.shape else torch.zeros_like(p)) + lr * g
        p -= state["v"]


VELOCITY, STEP = "v[i] = momentum * v[i] + lr * g", "p -= v[i]"
AHEAD = "[p - momentum * velocity for p, velocity in zip(params, v, strict=True)]"
WRONG = wrong_answers(
    solution,
    [
        ("argument-ignored", ("momentum *", "0.9 *")),
        ("argument-ignored", (VELOCITY, "v[i] = momentum * v[i] + 0.1 * g")),
        ("gradient-edited-in-place", (VELOCITY, "g *= lr; v[i] = momentum * v[i] + g")),
        ("gradient-of-some", (AHEAD, "[params[0] - momentum * v[0]]")),
        ("wrong-value", (STEP, "p -= momentum * v[i] + lr * g")),
    ],
)
WRONG += [("state-shared-between-parameters", one_velocity_for_all)]


def per_parameter_state(params, gradient, state, lr=0.1, momentum=0.9):
    for i, p in enumerate(params):
        state.setdefault(i, p.new_zeros(p.shape))
    points = tuple(p.clone().sub_(state[i], alpha=momentum) for i, p in enumerate(params))
    for i, g in enumerate(gradient(points)):
        state[i].mul_(momentum).add_(g, alpha=lr)
        params[i].sub_(state[i])


ALSO_RIGHT = [
    per_parameter_state,
    edited(solution, (STEP, "p.copy_(p - v[i])")),
    edited(solution, (VELOCITY, "v[i] = torch.add(v[i] * momentum, g, alpha=lr)")),
    edited(solution, ("torch.zeros_like(p) for p in params", "0 for _ in params")),
]
