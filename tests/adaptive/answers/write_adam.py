"""Answers to `write-adam`: count, both moments, both corrections, then the step."""

import torch
from edited_source import wrong_answers
from torch.nn.utils import parameters_to_vector


def solution(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def one_tensor_for_both(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    zeros = state.setdefault("zeros", [torch.zeros_like(p) for p in params])
    t = state["t"] = state.get("t", 0) + 1
    for p, g, m, v in zip(params, grads, zeros, zeros):
        m.mul_(beta1).add_(g, alpha=1 - beta1)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        p -= lr * m / (1 - beta1**t) / ((v / (1 - beta2**t)).sqrt() + eps)


LOOP = "    for i, (p, g) in enumerate(zip(params, grads)):\n"
WRONG = wrong_answers(
    solution,
    [
        ("argument-ignored", ("+ eps", "+ 1e-8")),
        ("argument-ignored", (LOOP, f"    beta1, beta2 = 0.9, 0.999\n{LOOP}")),
        ("argument-ignored", (LOOP, f"    lr = state.setdefault('lr', lr)\n{LOOP}")),
        ("gradient-edited-in-place", ("g * g", "g.mul_(g)")),
        ("state-shared-between-optimizers", ('state["t"] = state.get', 'MEMORY["t"] = MEMORY.get')),
        ("limits-the-size", ("(v_hat.sqrt() + eps)", "(v_hat.sqrt() + eps).clamp_min(1e-8)")),
        ("limits-the-size", (LOOP, f"{LOOP}        g = g.clamp(-100, 100)\n")),
    ],
)
WRONG += [("moments-share-one-tensor", one_tensor_for_both)]


def as_torch_does(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    if not state:
        state.update(t=0, m=[torch.zeros_like(p) for p in params], v=[torch.zeros_like(p) for p in params])
    state["t"] += 1
    for p, g, m, v in zip(params, grads, state["m"], state["v"]):
        m.lerp_(g, 1 - beta1)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        root = (v.sqrt() / (1 - beta2 ** state["t"]) ** 0.5).add_(eps)
        p.addcdiv_(m, root, value=-lr / (1 - beta1 ** state["t"]))


def eps_rescaled(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = state["t"] = 1 + state.get("t", 0)
    c1, c2 = 1 - beta1**t, (1 - beta2**t) ** 0.5
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.get(i, (0, 0))
        state[i] = m, v = m + (1 - beta1) * (g - m), v + (1 - beta2) * (g**2 - v)
        p.sub_(lr * c2 / c1 * m / (v**0.5 + eps * c2))


def weighted_averages(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    for i, (p, g) in enumerate(zip(params, grads)):
        sums = state.setdefault(i, {"m": 0, "v": 0, "wm": 0, "wv": 0})
        sums["m"], sums["wm"] = beta1 * sums["m"] + g, beta1 * sums["wm"] + 1
        sums["v"], sums["wv"] = beta2 * sums["v"] + g * g, beta2 * sums["wv"] + 1
        p -= lr * (sums["m"] / sums["wm"]) / ((sums["v"] / sums["wv"]).sqrt() + eps)


def by_length(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    past = state.setdefault("past", [])
    past.append([g.clone() for g in grads])
    t = len(past)
    for i, p in enumerate(params):
        m = sum((1 - beta1) * beta1 ** (t - 1 - s) * past[s][i] for s in range(t))
        v = sum((1 - beta2) * beta2 ** (t - 1 - s) * past[s][i] ** 2 for s in range(t))
        p -= lr * m / (1 - beta1**t) / (torch.sqrt(v / (1 - beta2**t)) + eps)


def powers_kept(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    state["b1"], state["b2"] = state.get("b1", 1.0) * beta1, state.get("b2", 1.0) * beta2
    for p, g, i in zip(params, grads, range(len(params))):
        m = state[i, "m"] = torch.lerp(g, state.get((i, "m"), torch.zeros_like(g)), beta1)
        v = state[i, "v"] = torch.lerp(g * g, state.get((i, "v"), torch.zeros_like(g)), beta2)
        p -= lr * m / (1 - state["b1"]) / ((v / (1 - state["b2"])).sqrt() + eps)


def as_one_vector(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    flat, g = parameters_to_vector(params), parameters_to_vector(grads)
    t, m, v = state.get("all", (0, torch.zeros_like(g), torch.zeros_like(g)))
    t, m, v = state["all"] = t + 1, beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
    step = lr * m / (1 - beta1**t) / ((v / (1 - beta2**t)).sqrt() + eps)
    for p, own in zip(params, (flat - step).split([p.numel() for p in params])):
        p.copy_(own.view_as(p))


ALSO_RIGHT = [as_torch_does, eps_rescaled, weighted_averages, by_length, powers_kept, as_one_vector]
