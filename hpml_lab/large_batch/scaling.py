"""How the learning rate should follow the batch: the rules, and a start that is hard on large rates.

From a batch of b and a rate of η to a batch of k·b:
    rate kept    η
    square root  η √k, which keeps the variance of a step (η² / B)
    linear       η k, which keeps the distance of an epoch: k steps of η become one of k η
"""

import torch

from hpml_lab.large_batch.batched import BatchedTrainings, Rate, warmed_up

RATE = 0.005  # at the small batch
KEPT, ROOT, LINEAR, WARM = "rate kept", "square root", "linear", "linear, warm-up"
RULES = (KEPT, ROOT, LINEAR, WARM)
EXPONENTS = {KEPT: 0.0, ROOT: 0.5, LINEAR: 1.0, WARM: 1.0}
WARM_SHARE = 1 / 2  # of the steps
SHARP = 2 * 6**0.5  # times torch's weights: He's start has √6 times their standard deviation, and this is twice that


def scaled_rate(rule: str, rate: float, k: float) -> float:
    """The (peak) rate for k times the batch."""
    return rate * k ** EXPONENTS[rule]


def schedule(rule: str, rate: float, k: float, steps: int) -> Rate:
    """The rate of step t of `steps` under the rule."""
    warm = int(WARM_SHARE * steps) if rule == WARM else 0
    return warmed_up(scaled_rate(rule, rate, k), warm, steps)


@torch.no_grad()
def sharpen(trainings: BatchedTrainings) -> BatchedTrainings:
    """Start from weights that are SHARP times as large: the gradients of the first steps are larger than any later ones."""
    for W in trainings.parameters[0::2]:
        W.mul_(SHARP)
    return trainings
