"""Answers to `clip-with-scaler`: unscale_, then clip, then step, then update."""

import torch
import torch.nn.functional as F


def solution(model, optimizer, scaler, x, y, max_norm):
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()


def lines(*order):
    """A training step made of the named lines in the given order."""

    def step(model, optimizer, scaler, x, y, max_norm):
        def backward(scaled=True):
            loss = F.mse_loss(model(x), y)
            (scaler.scale(loss) if scaled else loss).backward()

        known = {
            "zero": optimizer.zero_grad,
            "backward": backward,
            "bare-backward": lambda: backward(False),
            "unscale": lambda: scaler.unscale_(optimizer),
            "clip": lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm),
            "clip-value": lambda: torch.nn.utils.clip_grad_value_(model.parameters(), max_norm),
            "clip-half": lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm / 2),
            "step": lambda: scaler.step(optimizer),
            "bare-step": optimizer.step,
            "update": scaler.update,
        }
        for line in order:
            known[line]()

    return step


WRONG = [
    ("clipped-before-unscale", lines("zero", "backward", "clip", "unscale", "step", "update")),
    ("never-unscaled", lines("zero", "backward", "clip", "step", "update")),
    ("unscale-after-step", lines("zero", "backward", "clip", "step", "unscale", "update")),
    ("unscaled-twice", lines("zero", "backward", "unscale", "clip", "unscale", "step", "update")),
    ("unscaled-before-backward", lines("zero", "unscale", "backward", "clip", "step", "update")),
    ("step-without-scaler", lines("zero", "backward", "unscale", "clip", "bare-step", "update")),
    ("step-without-scaler", lines("zero", "backward", "unscale", "clip", "bare-step")),
    ("update-missing", lines("zero", "backward", "unscale", "clip", "step")),
    ("update-before-step", lines("zero", "backward", "unscale", "clip", "update", "step")),
    ("zeroed-too-early", lines("backward", "unscale", "clip", "zero", "step", "update")),
    ("zeroed-too-early", lines("backward", "zero", "unscale", "clip", "step", "update")),
    ("zeroed-too-early", lines("zero", "step", "update")),
    ("stepped-twice", lines("zero", "backward", "unscale", "clip", "step", "bare-step", "update")),
    ("stepped-twice", lines("zero", "backward", "unscale", "clip", "bare-step", "step", "update")),
    ("stepped-twice", lines("zero", "backward", "unscale", "clip", "step", "update", "bare-step")),
    ("not-zeroed", lines("backward", "unscale", "clip", "step", "update")),
    ("not-clipped", lines("zero", "backward", "unscale", "step", "update")),
    ("not-clipped", lines("zero", "backward", "step", "update")),
    ("clipped-after-step", lines("zero", "backward", "unscale", "step", "clip", "update")),
    ("clipped-by-value", lines("zero", "backward", "unscale", "clip-value", "step", "update")),
    ("wrong-gradient", lines("zero", "backward", "unscale", "clip-half", "step", "update")),
    ("loss-not-scaled", lines("zero", "bare-backward", "clip", "bare-step")),
    ("never-steps", lines("zero", "backward", "unscale", "clip")),
]
