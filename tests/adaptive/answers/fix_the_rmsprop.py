"""Answers to `fix-the-rmsprop`: an entry of the parameter's type for each parameter, the average first, g left alone."""

import torch
from adaptive.edited_source import wrong_answers


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
        ("state-shared-between-parameters", SHARED_ENTRY),
        ("float32-state-under-float64", FLOAT32),
        ("accumulated-after-use", AFTER_USE),
        ("gradient-edited-in-place", (AVERAGE, f"        old = g.clone()\n{AVERAGE}"), ("lr * g", "lr * old"), SQUARE_IN_PLACE),
        ("squares-not-accumulated", ("state.setdefault(i, torch.zeros_like(p))", "torch.zeros_like(p)")),
        ("squares-not-accumulated", (AVERAGE, ""), ("v.sqrt()", "(g**2).sqrt()")),
        ("averages-as-sums", ("g**2, alpha=1 - alpha", "g**2")),
        ("weights-swapped", ("mul_(alpha)", "mul_(1 - alpha)"), ("alpha=1 - alpha", "alpha=alpha")),
        ("adagrad-instead", ("v.mul_(alpha).add_(g**2, alpha=1 - alpha)", "v.add_(g**2)")),
        ("eps-inside-root", ("(v.sqrt() + eps)", "(v + eps).sqrt()")),
        ("root-missing", ("v.sqrt()", "v")),
        ("eps-on-weights", ("(v.sqrt() + eps)", "v.sqrt() + eps")),
        ("eps-missing", ("(v.sqrt() + eps)", "v.sqrt()")),
        ("wrong-sign", ("p -= lr", "p += lr")),
        (
            "gradient-kept-by-reference",
            ("v = state.setdefault(i, torch.zeros_like(p))", "state.setdefault(i, []).append(g)"),
            (AVERAGE, "        v = sum((1 - alpha) * alpha**k * old**2 for k, old in enumerate(reversed(state[i])))\n"),
        ),
    ],
)
