"""Answers to `average-uneven-shards`: what each rank calls backward on, so that DDP's mean is the whole batch's."""

import math

import torch


def solution(losses, samples, ranks):
    return losses.sum() * ranks / samples


def weighted_mean(losses, samples, ranks):
    return losses.mean() * len(losses) * ranks / samples


WRONG = [
    ("other-weights", lambda losses, samples, ranks: losses.clamp(min=0).sum() * ranks / samples),
    ("other-weights", lambda losses, samples, ranks: losses.sum() * round(ranks / samples, 2)),
    ("wrong-shape", lambda losses, samples, ranks: losses.sum().expand(2)),
    ("calls-backward", lambda losses, samples, ranks: (losses.sum() * ranks / samples).backward()),
    ("asks-the-group", lambda losses, samples, ranks: losses.sum() * torch.distributed.get_world_size() / samples),
    ("detached", lambda losses, samples, ranks: losses.detach().sum() * ranks / samples),
    ("empty-share", weighted_mean),
    ("empty-share-left-out", lambda losses, *rest: solution(losses, *rest) if len(losses) else losses.new_zeros(())),
]
ALSO_RIGHT = [
    lambda losses, samples, ranks: sum((loss * (ranks / samples) for loss in losses), (0 * losses).sum()),
    lambda losses, samples, ranks: (losses / samples).sum() * ranks,
    lambda losses, samples, ranks: losses.mean() * (len(losses) / (samples / ranks)) if len(losses) else losses.sum(),
    lambda losses, samples, ranks: sum(losses, losses[:0].sum()) * (ranks / samples),
    lambda losses, samples, ranks: losses.sum(0, keepdim=True) * ranks / samples,
    lambda losses, samples, ranks: torch.dot(losses, torch.full_like(losses, ranks / samples)),
    lambda losses, samples, ranks: (losses * ranks).sum().div(samples),
    lambda losses, samples, ranks: losses.nanmean().nan_to_num() * math.prod((len(losses), ranks)) / samples,
]
