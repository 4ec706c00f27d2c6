"""Answers to `momentum-step`: b = γ b + g, θ = θ − α b, each parameter with a velocity of its own."""

import torch
from edited_source import wrong_answers


def solution(params, grads, state, lr=0.1, momentum=0.9):
    if "b" not in state:
        state["b"] = [torch.zeros_like(p) for p in params]
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        state["b"][i] = momentum * state["b"][i] + g
        p -= lr * state["b"][i]


def keyed_by_shape(params, grads, state, lr=0.1, momentum=0.9):
    for p, g in zip(params, grads, strict=True):
        b = state.get(p.shape, torch.zeros_like(p))
        state[p.shape] = momentum * b + g
        p -= lr * state[p.shape]


OLD = 'state["b"][i]'
VELOCITY, STEP = f"{OLD} = momentum * {OLD} + g", f"p -= lr * {OLD}"
WRONG = wrong_answers(
    solution,
    [
        ("float32-state-under-float64", ("torch.zeros_like(p)", "torch.zeros(p.shape)"), ("+ g", "+ g.float()")),
        ("argument-ignored", (VELOCITY, f"{OLD} = 0.9 * {OLD} + g")),
        ("argument-ignored", (STEP, f"p -= 0.1 * {OLD}")),
        ("wrong-value", (VELOCITY, f"{OLD} = momentum * {OLD} + g.clamp(-1, 1)")),
        ("wrong-value", (STEP, f"p -= lr * {OLD} / {OLD}.norm()")),
    ],
)
WRONG += [("state-shared-between-parameters", keyed_by_shape)]


def keyed_by_id(params, grads, state, lr=0.1, momentum=0.9):
    for p, g in zip(params, grads, strict=True):
        b = state.setdefault(id(p), torch.zeros_like(p))
        b.mul_(momentum).add_(g)
        p.sub_(b, alpha=lr)


def by_foreach(params, grads, state, lr=0.1, momentum=0.9):
    if not state:
        state["b"] = [torch.zeros_like(p) for p in params]
    torch._foreach_mul_(state["b"], momentum)
    torch._foreach_add_(state["b"], grads)
    torch._foreach_add_(params, state["b"], alpha=-lr)


def starts_with_the_gradient(params, grads, state, lr=0.1, momentum=0.9):
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        state[i] = g.clone() if i not in state else momentum * state[i] + g
        p.copy_(p - lr * state[i])


def the_librarys(params, grads, state, lr=0.1, momentum=0.9):
    if "optimizer" not in state:
        state["optimizer"] = torch.optim.SGD(params, lr=lr, momentum=momentum)
    for p, g in zip(params, grads, strict=True):
        p.grad = g.clone()
    state["optimizer"].param_groups[0]["lr"] = lr
    state["optimizer"].step()


def in_views(params, grads, state, lr=0.1, momentum=0.9):
    for i, (p, g) in enumerate(zip(params, grads)):
        velocity = state.setdefault(i, torch.zeros_like(g)).mul_(momentum).add_(g)
        p.view(-1).sub_(lr * velocity.view(-1))


ALSO_RIGHT = [keyed_by_id, by_foreach, starts_with_the_gradient, the_librarys, in_views]


def velocity_in_the_last_rate(params, grads, state, lr=0.1, momentum=0.9):
    """Its velocity has the rate in it, and is brought to the new rate by a division."""
    last = state.get("lr", lr)
    for i, (p, g) in enumerate(zip(params, grads)):
        state[i] = momentum * state.get(i, 0) * (lr / last) + lr * g
        p -= state[i]
    state["lr"] = lr


WRONG += [("raises", velocity_in_the_last_rate)]
