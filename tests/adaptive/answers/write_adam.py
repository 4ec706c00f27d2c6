"""Answers to `write-adam`: count, both moments, both corrections, then the step."""

import torch
from adaptive.edited_source import ADAM_EDITS, wrong_answers


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


WRONG = wrong_answers(solution, [*ADAM_EDITS, ("rebinds", ("p -= ", "p = p - "))])
