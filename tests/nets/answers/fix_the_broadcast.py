"""Answers to `fix-the-broadcast`: output and target get one shape before they are subtracted."""

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


WRONG = [
    ("all-pairs", as_it_was),
    ("all-pairs", row_instead_of_column),
    ("all-pairs-divided", divided_by_n),
    ("not-averaged", squares_only),
    ("summed", sum_of_squares),
    ("absolute", absolute_values),
    ("root", root_mean_square),
    ("means-compared", difference_of_means),
    ("detached", plain_number),
    ("detached", from_data),
    ("detached", from_a_new_leaf),
    ("raises", assert_on_the_shapes),
]
