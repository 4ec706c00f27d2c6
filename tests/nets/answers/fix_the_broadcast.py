"""Answers to `fix-the-broadcast`: output and target get one shape before they are subtracted."""

import torch.nn.functional as F


def solution(output, target):
    return F.mse_loss(output.squeeze(1), target)


def assert_on_the_shapes(output, target):
    if output.shape != target.shape:
        raise ValueError("shapes differ")
    return ((output - target) ** 2).mean()


def multiplied_out(output, target):
    o, t = output[:, 0], target
    return (o * o).mean() - 2 * (o * t).mean() + (t * t).mean()


WRONG = [
    ("wrong-value", multiplied_out),  # cancels for large numbers
    ("raises", assert_on_the_shapes),
    ("detached", lambda output, target: F.mse_loss(output.data.reshape(-1), target)),
    ("detached", lambda output, target: F.mse_loss(output.detach()[:, 0].requires_grad_(), target)),
    ("first-sample-only", lambda output, target: F.mse_loss(output[0], target[:1])),
    ("one-size-only", lambda output, target: F.mse_loss(output.view(4), target)),
    ("not-averaged", lambda output, target: (output.squeeze() - target) ** 2),
    ("wrong-value", lambda output, target: F.l1_loss(output[:, 0], target) ** 2),
    ("wrong-value", lambda output, target: F.mse_loss(output[:, 0], target.flip(0))),
    ("wrong-value", lambda output, target: F.huber_loss(output[:, 0], target)),
    ("raises", lambda output, target: F.mse_loss(output.squeeze_(1), target)),
]
ALSO_RIGHT = [
    lambda output, target: F.mse_loss(output, target[:, None]),
    lambda output, target: ((output - target[:, None]) ** 2).mean(0),
    lambda output, target: (output.flatten() - target) @ (output.flatten() - target) / len(target),
    lambda output, target: sum((o[0] - t) ** 2 for o, t in zip(output, target)) / len(target),
    lambda output, target: ((output.view(-1) - target) ** 2).sum() / output.numel(),
    lambda output, target: F.mse_loss(output.squeeze(), target.squeeze()),
]
