"""Answers to `fix-the-broadcast`: output and target get one shape before they are subtracted."""

import torch
import torch.nn.functional as F


def solution(output, target):
    return F.mse_loss(output.squeeze(1), target)


def as_it_was(output, target):
    return ((output - target) ** 2).mean()


def row_instead_of_column(output, target):
    return ((output - target.unsqueeze(0)) ** 2).mean()


def divided_by_n(output, target):
    return ((output - target) ** 2).sum() / len(target)


def squares_only(output, target):
    return (output[:, 0] - target) ** 2


def sum_of_squares(output, target):
    return F.mse_loss(output[:, 0], target, reduction="sum")


def absolute_values(output, target):
    return (output[:, 0] - target).abs().mean()


def root_mean_square(output, target):
    return ((output[:, 0] - target) ** 2).mean().sqrt()


def difference_of_means(output, target):
    return (output.mean() - target.mean()) ** 2


def plain_number(output, target):
    return F.mse_loss(output[:, 0], target).item()


def from_data(output, target):
    return F.mse_loss(output.data.reshape(-1), target)


def assert_on_the_shapes(output, target):
    if output.shape != target.shape:
        raise ValueError("shapes differ")
    return ((output - target) ** 2).mean()


def from_a_new_leaf(output, target):
    return F.mse_loss(output.detach()[:, 0].requires_grad_(), target)


def multiplied_out(output, target):
    o, t = output[:, 0], target
    return (o * o).mean() - 2 * (o * t).mean() + (t * t).mean()


WRONG = [
    ("all-pairs", as_it_was),
    ("wrong-value", multiplied_out),  # cancels for large numbers
    ("all-pairs", row_instead_of_column),
    ("all-pairs-divided", divided_by_n),
    ("not-averaged", squares_only),
    ("summed", sum_of_squares),
    ("absolute", absolute_values),
    ("root", root_mean_square),
    ("means-compared", difference_of_means),
    ("wrong-type", plain_number),
    ("detached", from_data),
    ("detached", from_a_new_leaf),
    ("raises", assert_on_the_shapes),
]

WRONG += [
    ("halved", lambda output, target: ((output[:, 0] - target) ** 2).mean() / 2),
    ("not-squared", lambda output, target: (output[:, 0] - target).mean()),
    ("divided-twice", lambda output, target: F.mse_loss(output[:, 0], target) / len(target)),
    ("sorted", lambda output, target: F.mse_loss(output.flatten().sort().values, target.sort().values)),
    ("first-sample-only", lambda output, target: F.mse_loss(output[0], target[:1])),
    ("one-size-only", lambda output, target: F.mse_loss(output.view(4), target)),
    ("wrong-dtype", lambda output, target: torch.tensor(F.mse_loss(output[:, 0], target).item(), requires_grad=True)),
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
