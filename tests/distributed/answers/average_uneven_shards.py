"""Answers to `average-uneven-shards`: what each rank calls backward on, so that DDP's mean is the whole batch's."""

import math

import torch
from edited_source import wrong_answers


def solution(losses, samples, ranks):
    return losses.sum() * ranks / samples


def detached(losses, samples, ranks):
    return torch.tensor(losses.sum().item() * ranks / samples)


def as_float(losses, samples, ranks):
    return sum(losses.tolist()) * ranks / samples


def weighted_mean(losses, samples, ranks):
    return losses.mean() * len(losses) * ranks / samples


def rounds_the_shares(losses, samples, ranks):
    return losses.mean() * len(losses) / (samples // ranks)


def scaled_in_place(losses, samples, ranks):
    losses.mul_(ranks / samples)
    return losses.sum()


def nothing_if_empty(losses, samples, ranks):
    if len(losses):
        return losses.sum() * ranks / samples


WRONG = [
    ("other-weights", lambda losses, samples, ranks: losses.clamp(min=0).sum() * ranks / samples),
    ("other-weights", lambda losses, samples, ranks: losses.sum() * round(ranks / samples, 2)),
    ("mean-of-the-share", lambda losses, samples, ranks: losses.sum() / len(losses)),
    ("divided-by-n-twice", lambda losses, samples, ranks: losses.mean() * len(losses) / samples),
    ("share-times-mean", lambda losses, samples, ranks: losses.sum() / (samples * ranks)),
    ("weight-upside-down", lambda losses, samples, ranks: losses.mean() * (samples / ranks) / len(losses)),
    ("mean-times-ranks", lambda losses, samples, ranks: ranks * losses.mean()),
    ("mean-weighted-by-ranks", lambda losses, samples, ranks: losses.sum() / len(losses) / samples * ranks),
    ("calls-backward", lambda losses, samples, ranks: (losses.sum() * ranks / samples).backward()),
    ("asks-the-group", lambda losses, samples, ranks: losses.sum() * torch.distributed.get_world_size() / samples),
    ("wrong-dtype", detached),
    ("wrong-type", as_float),
    ("empty-share", weighted_mean),
    ("wrong-dtype", lambda losses, samples, ranks: sum(losses, torch.zeros(())) * (ranks / samples)),
    ("wrong-type", lambda losses, samples, ranks: sum(losses) * ranks / samples),
    ("returns-nothing", nothing_if_empty),
    ("rounded-factor", rounds_the_shares),
    ("inputs-changed", scaled_in_place),
    ("returns-nothing", lambda losses, samples, ranks: None),
    *wrong_answers(solution, []),
    ("own-samples-for-ranks", lambda losses, samples, ranks: losses.sum() / samples * len(losses)),
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


WRONG += [  # right numbers in another kind than the exercise asks for
]
