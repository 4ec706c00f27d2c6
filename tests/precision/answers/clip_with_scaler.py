"""Answers to `clip-with-scaler`: unscale_, then clip, then step, then update."""

import inspect
import math

import torch
import torch.nn.functional as F
from edited_source import wrong_answers


def solution(model, optimizer, scaler, x, y, max_norm):
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()


def norm(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()]).norm()


def each_alone(model, optimizer, scaler, x, y, max_norm):
    optimizer.zero_grad()
    scaler.scale(F.mse_loss(model(x), y)).backward()
    scaler.unscale_(optimizer)
    for parameter in model.parameters():
        torch.nn.utils.clip_grad_norm_([parameter], max_norm)
    scaler.step(optimizer)
    scaler.update()


def always_normalized(model, optimizer, scaler, x, y, max_norm):
    optimizer.zero_grad()
    scaler.scale(F.mse_loss(model(x), y)).backward()
    scaler.unscale_(optimizer)
    factor = max_norm / norm(model)
    for parameter in model.parameters():
        parameter.grad.mul_(factor)
    scaler.step(optimizer)
    scaler.update()


def zeroed_infinities(model, optimizer, scaler, x, y, max_norm):
    optimizer.zero_grad()
    scaler.scale(F.mse_loss(model(x), y)).backward()
    for parameter in model.parameters():
        parameter.grad.nan_to_num_(0.0, 0.0, 0.0)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm * scaler.get_scale())
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


ZERO, LOSS, BACKWARD, UNSCALE, CLIP, STEP, UPDATE = inspect.getsource(solution).splitlines(keepends=True)[1:]
BARE_BACKWARD, BARE_STEP = "    loss.backward()\n", "    optimizer.step()\n"
BY_HAND = "    for p in model.parameters():\n        p.grad.div_(scaler.get_scale())\n"
LIMIT = "model.parameters(), max_norm"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("not-zeroed", (ZERO, "")),
            ("no-gradients", (ZERO, ""), (STEP, ZERO + STEP)),
            ("no-gradients", (ZERO, ""), (UNSCALE, ZERO + UNSCALE)),
            ("loss-not-scaled", (LOSS + BACKWARD + UNSCALE + CLIP, "")),
            ("wrong-gradient", ("y)", "y, reduction='sum')")),
            ("loss-not-scaled", ("scaler.scale(loss)", "(loss * scaler.get_scale())")),
            ("loss-not-scaled", (BACKWARD, BARE_BACKWARD)),
            ("update-missing", (BACKWARD + UNSCALE, BARE_BACKWARD), (STEP + UPDATE, BARE_STEP)),
            ("clipped-before-unscale", (UNSCALE, "")),
            ("loss-not-scaled", (UNSCALE, ""), (ZERO, ZERO + UNSCALE)),
            ("unscale-after-step", (UNSCALE, ""), (STEP, STEP + UNSCALE)),
            ("unscaled-twice", (CLIP, CLIP + UNSCALE)),
            ("unscaled-twice", (UNSCALE, UNSCALE + BY_HAND)),
            ("unscaled-twice", (UNSCALE, BY_HAND)),
            ("clipped-before-unscale", (UNSCALE + CLIP, CLIP + UNSCALE)),
            ("not-clipped", (CLIP + STEP, STEP + CLIP)),
            ("not-clipped", (CLIP, "")),
            ("not-clipped", (CLIP, ""), (ZERO, ZERO + CLIP)),
            ("clipped-by-value", ("clip_grad_norm_", "clip_grad_value_")),
            ("wrong-gradient", (LIMIT, f"{LIMIT} / 2")),
            ("max-norm-ignored", (LIMIT, "model.parameters(), 1.0")),
            ("another-norm", (LIMIT, f"{LIMIT}, norm_type=1.0")),
            ("another-norm", (LIMIT, f"{LIMIT}, norm_type=math.inf")),
            ("raises", (LIMIT, f"{LIMIT}, error_if_nonfinite=True")),
            ("one-parameter-only", (LIMIT, "[model.weight], max_norm")),
            ("never-steps", (STEP, "")),
            ("stepped-on-overflow", (STEP, BARE_STEP)),
            ("nothing-to-update", (UNSCALE, ""), (STEP, BARE_STEP)),
            ("stepped-twice", (STEP, STEP + STEP)),
            ("stepped-twice", (STEP, STEP + BARE_STEP)),
            ("unscaled-twice", (STEP + UPDATE, UPDATE + STEP)),
            ("update-missing", (UPDATE, "")),
            ("nothing-to-update", (UPDATE, UPDATE + UPDATE)),
        ],
    ),
    ("scale-not-lowered", zeroed_infinities),
    ("clipped-separately", each_alone),
    ("always-normalized", always_normalized),
    ("stepped-on-overflow", bare_step_after_a_wrong_look),
    ("scale-not-lowered", no_update_after_an_overflow),
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


def with_a_scheduler(model, optimizer, scaler, x, y, max_norm):
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    optimizer.zero_grad()
    scaled = scaler.scale(F.mse_loss(model.forward(x), y))
    for parameter, gradient in zip(model.parameters(), torch.autograd.grad(scaled, list(model.parameters())), strict=True):
        parameter.grad = gradient
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], max_norm)
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()
    assert optimizer.state_dict()["param_groups"][0]["lr"] == scheduler.get_last_lr()[0]


ALSO_RIGHT = [guarded_scaler_step, guarded_bare_step, zeroed_at_the_end, clipped_by_hand, with_torchs_two_parts, scaled_norm]
ALSO_RIGHT += [with_a_scheduler]
