"""What loss-scaling checks beside the five recipes: that the factor is harmless in fp32, the scaler's rule, what underflows."""

from typing import Any

import torch

from hpml_lab.data.dataset import DataSet
from hpml_lab.precision import recipes, underflow

FACTOR = 2e-5  # of the loss: it moves the gradients of a small net to where fp16 ends


def gone(exact: torch.Tensor, found: torch.Tensor) -> float:
    """Share of the non-zero elements of `exact` that are zero in `found`."""
    return ((exact != 0) & (found == 0)).sum().item() / (exact != 0).sum().item()


def unchanged(data: DataSet, rate: float) -> bool:
    """Whether 20 steps of fp32 training with the loss times 2^-16 and the rate divided by it end at the same bits."""
    ends = []
    for factor in (1.0, 2.0**-16):
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
            ends.append(recipes.Trainings(recipes.RECIPES["fp32"], data, (0, 1), 64, rate, 20, factor).run().weights)
    return all(torch.equal(a, b) for a, b in zip(*ends, strict=True))


def same_scales(trace: list[dict[str, Any]], start: float, interval: int) -> bool:
    """Whether the batched scaler of the recipes takes the scales of torch's own GradScaler, given the same overflows."""
    scaler = recipes.Scaler(1, torch.device("cpu"), start, interval)
    for row in trace:
        scaler.update(torch.tensor([row["overflow"]]))
        if scaler.scale.item() != row["next"]:
            return False
    return True


def doubled_in_time(trace: list[dict[str, Any]], interval: int) -> bool:
    """Whether the scale grew exactly after every `interval` steps in a row without an overflow, and at least once."""
    good, grown = 0, []
    for row in trace:
        good = 0 if row["overflow"] else good + 1
        grown.append((row["next"] == 2 * row["scale"]) == (good == interval))
        good %= interval
    return all(grown) and any(row["next"] > row["scale"] for row in trace)


def underflowing(data: DataSet, batch: int, rate: float) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Histograms of the exact gradients (of weights and of layers' outputs) at a start of training, as each scale shows them
    to fp16; and the share of those that are not zero in float32 and are zero in each recipe."""
    one = recipes.Trainings(recipes.RECIPES["fp32"], data, (0,), batch, rate, steps=1)
    x, y = one.batch_of(0)
    ones = torch.ones(1, device=x.device)
    flat = {}
    for name, recipe in recipes.RECIPES.items():
        scale = ones * (2.0**16 if recipe.scale is None else recipe.scale)
        parts = recipes.loss_gradients(one.weights, x, y, recipe, scale, FACTOR)
        flat[name] = torch.cat([g.flatten() for part in parts for g in part])
    exact = flat["fp32"]
    shares = {name: gone(exact, gradient) for name, gradient in flat.items()}
    histograms = {
        "loss × 1": underflow.histogram(exact / FACTOR),
        "loss × 2e-5": underflow.histogram(exact),
        "loss × 2e-5, scale 1000": underflow.histogram(exact * 1000),
    }
    return histograms, shares
