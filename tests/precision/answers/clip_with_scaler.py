"""Answers to `clip-with-scaler`: unscale_, then clip, then step, then update."""

import math

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


# ---- more wrong answers, and right ones that do it in another way ----------------------------------------------------------


def step_with(clip, *, unscale=True, zero=True):
    """The right step with another way to clip: clip(model, scaler, max_norm)."""

    def step(model, optimizer, scaler, x, y, max_norm):
        if zero:
            optimizer.zero_grad()
        scaler.scale(F.mse_loss(model(x), y)).backward()
        if unscale:
            scaler.unscale_(optimizer)
        clip(model, scaler, max_norm)
        scaler.step(optimizer)
        scaler.update()

    return step


def norm(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()]).norm()


def each_alone(model, scaler, max_norm):
    for parameter in model.parameters():
        torch.nn.utils.clip_grad_norm_([parameter], max_norm)


def always_normalized(model, scaler, max_norm):
    factor = max_norm / norm(model)
    for parameter in model.parameters():
        parameter.grad.mul_(factor)


def unscaled_by_hand(model, scaler, max_norm):
    for parameter in model.parameters():
        parameter.grad.div_(scaler.get_scale())
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)


def clip_norm(**options):
    def clip(model, scaler, max_norm):
        torch.nn.utils.clip_grad_norm_(model.parameters(), **{"max_norm": max_norm, **options})

    return clip


def summed(model, optimizer, scaler, x, y, max_norm):
    optimizer.zero_grad()
    scaler.scale(F.mse_loss(model(x), y, reduction="sum")).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()


def scaled_by_hand(model, optimizer, scaler, x, y, max_norm):
    optimizer.zero_grad()
    (F.mse_loss(model(x), y) * scaler.get_scale()).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()


def bare_step_after_a_wrong_look(model, optimizer, scaler, x, y, max_norm):
    optimizer.zero_grad()
    scaler.scale(F.mse_loss(model(x), y)).backward()
    scaler.unscale_(optimizer)
    if not norm(model).isnan():
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
    scaler.update()


def no_update_after_an_overflow(model, optimizer, scaler, x, y, max_norm):
    optimizer.zero_grad()
    scaler.scale(F.mse_loss(model(x), y)).backward()
    scaler.unscale_(optimizer)
    if not norm(model).isfinite():
        return
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()


def zeroed_infinities(model, scaler, max_norm):
    for parameter in model.parameters():
        parameter.grad.nan_to_num_(0.0, 0.0, 0.0)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm * scaler.get_scale())


WRONG += [
    ("stepped-on-overflow", step_with(zeroed_infinities, unscale=False)),
    ("max-norm-ignored", step_with(clip_norm(max_norm=1.0))),
    ("clipped-separately", step_with(each_alone)),
    ("always-normalized", step_with(always_normalized)),
    ("unscaled-by-hand", step_with(unscaled_by_hand, unscale=False)),
    ("another-norm", step_with(clip_norm(norm_type=1.0))),
    ("another-norm", step_with(clip_norm(norm_type=math.inf))),
    ("raises", step_with(clip_norm(error_if_nonfinite=True))),
    ("one-parameter-only", step_with(lambda model, s, max_norm: torch.nn.utils.clip_grad_norm_([model.weight], max_norm))),
    ("never-unscaled", step_with(lambda m, s, max_norm: clip_norm()(m, s, max_norm / s.get_scale()), unscale=False)),
    ("unscaled-twice", step_with(unscaled_by_hand)),
    ("wrong-gradient", summed),
    ("loss-not-scaled", scaled_by_hand),
    ("step-without-scaler", bare_step_after_a_wrong_look),
    ("update-missing", no_update_after_an_overflow),
    ("loss-not-scaled", lines("zero", "bare-backward", "unscale", "clip", "step", "update")),
    ("loss-not-scaled", lines("zero", "bare-backward", "clip", "step", "update")),
    ("stepped-twice", lines("zero", "backward", "unscale", "clip", "step", "step", "update")),
    ("updated-twice", lines("zero", "backward", "unscale", "clip", "step", "update", "update")),
    ("not-clipped", lines("zero", "clip", "backward", "unscale", "step", "update")),
    ("never-steps", lines("zero", "backward", "unscale", "clip", "update")),
    ("step-without-scaler", lines("zero", "backward", "clip", "bare-step", "update")),
    ("not-zeroed", step_with(clip_norm(), zero=False)),
]


def guarded_scaler_step(model, optimizer, scaler, x, y, max_norm):
    optimizer.zero_grad()
    scaler.scale(F.mse_loss(model(x), y)).backward()
    scaler.unscale_(optimizer)
    if torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm).isfinite():
        scaler.step(optimizer)
    scaler.update()


def guarded_bare_step(model, optimizer, scaler, x, y, max_norm):
    optimizer.zero_grad()
    scaler.scale(F.mse_loss(model(x), y)).backward()
    scaler.unscale_(optimizer)
    total = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    if math.isfinite(total):
        optimizer.step()
    scaler.update()


def zeroed_at_the_end(model, optimizer, scaler, x, y, max_norm):
    solution(model, optimizer, scaler, x, y, max_norm)
    model.zero_grad()


def clipped_by_hand(model, optimizer, scaler, x, y, max_norm):
    for parameter in model.parameters():
        parameter.grad = None
    scaler.scale(((model(x) - y) ** 2).mean()).backward()
    scaler.unscale_(optimizer)
    total = norm(model)
    if total > max_norm:
        for parameter in model.parameters():
            parameter.grad = parameter.grad * (max_norm / total)
    scaler.step(optimizer)
    return scaler.update()


def with_torchs_two_parts(model, optimizer, scaler, x, y, max_norm):
    optimizer.zero_grad(set_to_none=True)
    scaler.scale(torch.nn.MSELoss()(model(x), y)).backward()
    scaler.unscale_(optimizer)
    parameters = optimizer.param_groups[0]["params"]
    total = torch.nn.utils.get_total_norm([p.grad for p in parameters])
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, total)
    scaler.step(optimizer)
    scaler.update()


def scaled_norm(model, optimizer, scaler, x, y, max_norm):
    optimizer.zero_grad()
    scaler.scale(F.mse_loss(model(x), y)).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm * scaler.get_scale())
    scaler.step(optimizer)
    scaler.update()


ALSO_RIGHT = [guarded_scaler_step, guarded_bare_step, zeroed_at_the_end, clipped_by_hand, with_torchs_two_parts, scaled_norm]
