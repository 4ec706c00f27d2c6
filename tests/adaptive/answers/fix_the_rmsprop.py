"""Answers to `fix-the-rmsprop`: an entry of the parameter's type for each parameter, the average first, g left alone."""

import torch
from edited_source import wrong_answers


def solution(params, grads, state, lr=0.01, alpha=0.99, eps=1e-8):
    for i, (p, g) in enumerate(zip(params, grads)):
        v = state.setdefault(i, torch.zeros_like(p))
        v.mul_(alpha).add_(g**2, alpha=1 - alpha)
        p -= lr * g / (v.sqrt() + eps)


AVERAGE = "        v.mul_(alpha).add_(g**2, alpha=1 - alpha)\n"
STEP = "        p -= lr * g / (v.sqrt() + eps)\n"
AFTER_USE = (f"{AVERAGE}{STEP}", f"{STEP}{AVERAGE}")
SHARED_ENTRY = ("state.setdefault(i,", 'state.setdefault("v",')
FLOAT32 = ("torch.zeros_like(p)", "torch.zeros(p.shape)")
SQUARE_IN_PLACE = ("g**2", "g.pow_(2)")

WRONG = wrong_answers(
    solution,
    [
        ("state-shared-between-parameters", AFTER_USE, SHARED_ENTRY, FLOAT32, SQUARE_IN_PLACE),  # as it is in the notebook
        ("gradient-edited-in-place", AFTER_USE, FLOAT32, SQUARE_IN_PLACE),  # and with one bug less each time
        ("accumulated-after-use", AFTER_USE, FLOAT32),
        ("float32-state-under-float64", FLOAT32),
        ("gradient-edited-in-place", (AVERAGE, f"        old = g.clone()\n{AVERAGE}"), ("lr * g", "lr * old"), SQUARE_IN_PLACE),
        ("argument-ignored", ("alpha=1 - alpha", "alpha=0.01"), ("mul_(alpha)", "mul_(0.99)")),
        ("argument-ignored", ("+ eps)", "+ 1e-8)")),
        (
            "gradient-kept-by-reference",
            ("v = state.setdefault(i, torch.zeros_like(p))", "state.setdefault(i, []).append(g)"),
            (AVERAGE, "        v = sum((1 - alpha) * alpha**k * old**2 for k, old in enumerate(reversed(state[i])))\n"),
        ),
    ],
)


def as_list(params, grads, state, lr=0.01, alpha=0.99, eps=1e-8):
    v = state.setdefault("v", [torch.zeros(p.shape, dtype=p.dtype) for p in params])
    for k in range(len(params)):
        v[k] = alpha * v[k] + (1 - alpha) * grads[k] ** 2
        params[k] -= lr * grads[k] / (v[k].sqrt() + eps)


def by_name(params, grads, state, lr=0.01, alpha=0.99, eps=1e-8):
    for i, (p, g) in enumerate(zip(params, grads)):
        name = f"v{i}"
        state[name] = torch.lerp(g * g, state.get(name, torch.zeros_like(p)), alpha)
        p.addcdiv_(g, state[name].sqrt().add_(eps), value=-lr)


def copies_first(params, grads, state, lr=0.01, alpha=0.99, eps=1e-8):
    for i, (p, g) in enumerate(zip(params, [g.clone() for g in grads])):
        v = state.setdefault(i, torch.zeros_like(p))
        v.mul_(alpha).add_((1 - alpha) * g**2)
        p.sub_(g.mul_(lr).div_(v.sqrt() + eps))


def by_the_root(params, grads, state, lr=0.01, alpha=0.99, eps=1e-8):
    for i, (p, g) in enumerate(zip(params, grads)):
        rms = state[i] = torch.hypot(alpha**0.5 * state.get(i, torch.zeros_like(p)), (1 - alpha) ** 0.5 * g)
        p -= lr * g / (rms + eps)


def foreach(params, grads, state, lr=0.01, alpha=0.99, eps=1e-8):
    if not state:
        state["v"] = [torch.zeros_like(p) for p in params]
    torch._foreach_mul_(state["v"], alpha)
    torch._foreach_addcmul_(state["v"], grads, grads, value=1 - alpha)
    roots = torch._foreach_sqrt(state["v"])
    torch._foreach_add_(roots, eps)
    torch._foreach_addcdiv_(params, grads, roots, value=-lr)


ALSO_RIGHT = [as_list, by_name, copies_first, by_the_root, foreach]
