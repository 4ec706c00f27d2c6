"""Answers to `write-adamw`: the decay acts on the parameter, the moments see the gradient alone."""

import torch
from adaptive.edited_source import ADAM_EDITS, ADAM_STEP, wrong_answers


def solution(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        p *= 1 - lr * weight_decay
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


DECAY = "        p *= 1 - lr * weight_decay\n"
DECAY_EDITS = [
    ("coupled-decay", ("p *= 1 - lr * weight_decay", "g = g + weight_decay * p")),
    ("decay-missing", (DECAY, "")),
    ("decay-without-rate", ("lr * weight_decay", "weight_decay")),
    ("decay-grows", ("1 - lr * weight_decay", "1 + lr * weight_decay")),
    ("decay-after-step", (DECAY, ""), (ADAM_STEP, f"{ADAM_STEP}\n{DECAY}")),
    ("decay-scaled", (DECAY, ""), (ADAM_STEP, "(m_hat + weight_decay * p) / (v_hat.sqrt() + eps)")),
    ("wrong-sign", ("1 - lr * weight_decay", "1 + lr * weight_decay"), ("p -= lr", "p += lr")),
    ("rebinds", ("p *= 1 - lr * weight_decay", "p = p * (1 - lr * weight_decay)"), ("p -= ", "p = p - ")),
    ("gradient-edited-in-place", ("p *= 1 - lr * weight_decay", "g += weight_decay * p")),
]

WRONG = wrong_answers(solution, [*DECAY_EDITS, *ADAM_EDITS])
