"""Answers to `cross-layer-equalization`: the same function, with equal ranges for each channel between two layers."""

import torch
from edited_source import wrong_answers


def solution(w1, b1, w2):
    r1 = w1.abs().flatten(1).amax(1)
    r2 = w2.abs().transpose(0, 1).flatten(1).amax(1)
    s = torch.where((r1 > 0) & (r2 > 0), (r2 / r1).sqrt(), torch.ones_like(r1))
    return w1 * s.view(-1, *[1] * (w1.ndim - 1)), b1 * s, w2 / s.view(1, -1, *[1] * (w2.ndim - 2))


def spans(w1, w2):
    return w1.abs().flatten(1).amax(1), w2.abs().transpose(0, 1).flatten(1).amax(1)


def applied(s, w1, b1, w2):
    return w1 * s.view(-1, *[1] * (w1.ndim - 1)), b1 * s, w2 / s.view(1, -1, *[1] * (w2.ndim - 2))


def bias_dropped_where_nothing_is_written(w1, b1, w2):
    new = solution(w1, b1, w2)
    return new[0], torch.where(w1.flatten(1).any(1), new[1], torch.zeros_like(b1)), new[2]


def dead_by_the_norm(w1, b1, w2):
    """A channel of weights near 1e-25, whose squares are 0 in float32, stays as it is."""
    live = (w1.flatten(1).norm(dim=1) > 0) & (w2.transpose(0, 1).flatten(1).norm(dim=1) > 0)
    r1, r2 = spans(w1, w2)
    return applied(torch.where(live, (r2 / r1).sqrt(), torch.ones_like(r1)), w1, b1, w2)


R1, R2 = "w1.abs().flatten(1).amax(1)", "w2.abs().transpose(0, 1).flatten(1).amax(1)"
S, GUARD = "(r2 / r1).sqrt()", "torch.where((r1 > 0) & (r2 > 0), (r2 / r1).sqrt(), torch.ones_like(r1))"
FIRST, SECOND = "s.view(-1, *[1] * (w1.ndim - 1))", "w2 / s.view(1, -1, *[1] * (w2.ndim - 2))"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("linear-only", (R1, "w1.abs().amax(1)"), (R2, "w2.abs().amax(0)"), (FIRST, "s[:, None]"), (SECOND, "w2 / s")),
            ("ranges-differ", (GUARD, f"1.01 * {GUARD}")),
            ("not-finite", (SECOND, "w2 / torch.zeros(())")),
        ],
    ),
    ("ranges-differ", dead_by_the_norm),
    ("another-function", bias_dropped_where_nothing_is_written),
    ("wrong-shape", lambda w1, b1, w2: tuple(x.flatten() for x in solution(w1, b1, w2))),
]


def channel_by_channel(w1, b1, w2):
    w1, b1, w2 = w1.clone(), b1.clone(), w2.clone()
    for i in range(len(w1)):
        r1, r2 = w1[i].abs().max().item(), w2[:, i].abs().max().item()
        if r1 * r2:
            s = (r2 / r1) ** 0.5
            w1[i] *= s
            b1[i] *= s
            w2[:, i] /= s
    return [w1, b1, w2]


def as_in_the_paper(w1, b1, w2):
    r1, r2 = spans(w1, w2)
    s = torch.sqrt(r1 * r2) / r2  # the paper divides the first layer by this one
    s = torch.where(s.isfinite() & (s > 0), s, torch.ones_like(s))
    return applied(1 / s, w1, b1, w2)


def by_einsum(w1, b1, w2):
    r1, r2 = spans(w1, w2)
    s = ((r2.log() - r1.log()) / 2).exp()
    s = torch.where((r1 == 0) | (r2 == 0), torch.ones_like(s), s)
    return torch.einsum("i,i...->i...", s, w1), s * b1, torch.einsum("oi...,i->oi...", w2, 1 / s)


def by_moving_axes(w1, b1, w2):
    r1, r2 = spans(w1, w2)
    s = (r2 / r1).sqrt()
    s[(r1 == 0) | (r2 == 0)] = 1
    return w1.movedim(0, -1).mul(s).movedim(-1, 0), b1.mul(s), w2.movedim(1, -1).div(s).movedim(-1, 1)


def by_diagonal_matrices(w1, b1, w2):
    r1, r2 = spans(w1, w2)
    s = torch.where((r1 > 0) & (r2 > 0), torch.sqrt(r2 / r1), torch.ones_like(r1))
    S, inverse = torch.diag(s), torch.diag(1 / s)
    return torch.tensordot(S, w1, 1), S @ b1, torch.tensordot(w2.movedim(1, -1), inverse, 1).movedim(-1, 1)


def by_the_package(w1, b1, w2):
    from torch import nn

    from hpml_lab.quantization.lessons.equalization import equalizing_factors, scale_channels

    def layer(w):
        made = nn.Linear(1, 1) if w.ndim == 2 else nn.Conv2d(1, 1, 1)
        made.weight = nn.Parameter(w.clone())
        return made

    first, second = layer(w1), layer(w2)
    first.bias = nn.Parameter(b1.clone())
    scale_channels(first, second, equalizing_factors(first, second))
    return first.weight.detach(), first.bias.detach(), second.weight.detach()


ALSO_RIGHT = [channel_by_channel, as_in_the_paper, by_einsum, by_moving_axes, by_diagonal_matrices, by_the_package]
