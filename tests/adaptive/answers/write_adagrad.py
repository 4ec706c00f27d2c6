"""Answers to `write-adagrad`: each parameter has its own sum of squares, and the sum comes before the step."""

import torch
from adaptive.edited_source import wrong_answers


def solution(params, grads, state, lr=0.01, eps=1e-10):
    for i, (p, g) in enumerate(zip(params, grads)):
        if i not in state:
            state[i] = torch.zeros_like(p)
        state[i] += g * g
        p -= lr * g / (state[i].sqrt() + eps)


SUM = "        state[i] += g * g\n"
STEP = "        p -= lr * g / (state[i].sqrt() + eps)\n"
DEFAULT_SUMS = ("eps=1e-10", "eps=1e-10, sums={}")
START = "        if i not in state:\n            state[i] = torch.zeros_like(p)\n"

WRONG = wrong_answers(
    solution,
    [
        ("eps-inside-root", ("(state[i].sqrt() + eps)", "(state[i] + eps).sqrt()")),
        ("eps-on-weights", ("(state[i].sqrt() + eps)", "state[i].sqrt() + eps")),
        ("eps-on-weights", ("g / (state[i].sqrt() + eps)", "(g / state[i].sqrt() + eps)")),
        ("eps-missing", ("(state[i].sqrt() + eps)", "state[i].sqrt()")),
        ("squares-not-accumulated", ("state[i] += g * g", "state[i] = g * g")),
        ("accumulated-after-use", (f"{SUM}{STEP}", f"{STEP}{SUM}")),
        ("root-missing", ("state[i].sqrt()", "state[i]")),
        ("not-squared", ("g * g", "g.abs()")),
        ("signs-cancel", ("g * g", "g"), ("state[i].sqrt()", "(state[i] ** 2).sqrt()")),
        (
            "mean-instead-of-sum",
            ("    for i,", '    state["t"] = state.get("t", 0) + 1\n    for i,'),
            ("state[i].sqrt()", '(state[i] / state["t"]).sqrt()'),
        ),
        ("wrong-sign", ("p -= lr", "p += lr")),
        ("rebinds", ("p -= ", "p = p - ")),
        ("replaces-the-tensors", ("p -= ", "params[i] = p - ")),
        (
            "state-shared-between-parameters",
            (START, ""),
            (SUM, '        state["G"] = state.get("G", 0) + g * g\n'),
            ("[i]", '["G"]'),
        ),
        ("state-shared-between-optimizers", ("in state", "in MEMORY"), ("state[i]", "MEMORY[i]")),
        ("state-shared-between-optimizers", DEFAULT_SUMS, ("in state", "in sums"), ("state[i]", "sums[i]")),
        (
            "state-shared-between-optimizers",
            DEFAULT_SUMS,
            ("i not in state", "p not in sums"),
            ("state[i]", "sums[p]"),
        ),
        ("gradient-edited-in-place", (SUM, "        old = g.clone()\n        state[i] += g.pow_(2)\n"), ("lr * g", "lr * old")),
        ("float32-state-under-float64", ("torch.zeros_like(p)", "torch.zeros(p.shape)")),
        ("wrong-value", ("g / (state[i].sqrt() + eps)", "torch.tanh(g)")),
    ],
)  # fmt: skip
