"""The steps of the ladder: each change, the part that it attacks, and what the losses may differ by after it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from hpml_lab.core.system.device import Device
from hpml_lab.profiling import habits
from hpml_lab.profiling.slow_trainer import PARTS, TrainerSwitches

# What a loss may differ by between two rungs, largest difference over the iterations that are checked. Training lets rounding
# differences grow, as it does a change of seed: after hundreds of iterations equal losses mean equal bits, or nothing.
# BITS: the change keeps every operation on every element and its order; nothing else than equal is right.
# ROUNDING: sums are taken in another order. One spacing of a float32 near 2 is 2.4e-7; training carries the differences on
#   and lets them grow. The row measures how far: the weights moved by one spacing each, and trained as long.
# SIXTEEN: bfloat16 has 8 significant bits: a product may be off by 0.4 %, a loss of 2.3 by 0.01. Allowed is twice that.
BITS, ROUNDING, SIXTEEN = 0.0, 1e-3, 2e-2


@dataclass(frozen=True)
class TrainerChange:
    """One change: the switch it turns on, the part of the profile it attacks, and what the losses may differ by after it.

    slow, fast  the two pieces of code, to be read side by side (None where a setting is all there is)
    needs       "cuda", "bfloat16" or "compile", where the change means nothing without
    on          a switch that must be on before
    """

    switch: str
    part: str
    change: str
    bound: float
    slow: Callable | None = None
    fast: Callable | None = None
    needs: str = ""
    on: str = ""


CHANGES = (
    TrainerChange("decode_once", "input", "decode all files once, before training", BITS, habits.input_slow, habits.input_fast),
    TrainerChange(
        "batch_transform",
        "transform",
        "one operation a batch, in place, instead of a loop over samples",
        BITS,
        habits.transform_slow,
        habits.transform_fast,
    ),
    TrainerChange("prepare_once", "transform", "transform all images once, before training", BITS, on="decode_once"),
    TrainerChange(
        "late_log", "logging", "keep the figures on the device, ask once at the end", BITS, habits.LogSlow, habits.LogFast
    ),
    TrainerChange(
        "batch_evaluation",
        "evaluation",
        "test images in batches, without a graph",
        ROUNDING,
        habits.evaluate_slow,
        habits.evaluate_fast,
    ),
    TrainerChange("debug_off", "forward", "anomaly detection off: it was left on after a search for a NaN", BITS),
    TrainerChange(
        "library_layers",
        "backward",
        "torch's batch norm, ReLU and cross-entropy instead of written-out ones",
        ROUNDING,
        habits.forward_slow,
        habits.forward_fast,
    ),
    TrainerChange(
        "drop_gradients",
        "backward",
        "gradients to None, so that backward need not add to zeros",
        BITS,
        habits.clear_slow,
        habits.clear_fast,
    ),
    TrainerChange("channels_last", "backward", "the memory order N H W C", ROUNDING, needs="cuda", on="library_layers"),
    TrainerChange(
        "compiled", "backward", "torch.compile: operations fused into few kernels", ROUNDING, needs="compile", on="debug_off"
    ),
    TrainerChange("bfloat16", "backward", "convolutions and products in 16 bits (autocast)", SIXTEEN, needs="bfloat16"),
    TrainerChange(
        "fused_adam", "optimizer", "Adam for all parameters in one call", ROUNDING, habits.AdamSlow, habits.adam_fast
    ),
    TrainerChange(
        "pinned_copy",
        "copy",
        "copy from page-locked memory, without waiting",
        BITS,
        habits.copy_slow,
        habits.copy_fast,
        needs="cuda",
    ),
    TrainerChange("stay_on_device", "copy", "all prepared images lie on the device", BITS, needs="cuda", on="prepare_once"),
)


def applicable(step: TrainerChange, device: Device, compile: bool) -> bool:
    """Whether the step means anything on this device."""
    has = {"cuda": device.is_cuda, "bfloat16": device.dtype is torch.bfloat16, "compile": compile}
    return not step.needs or has[step.needs]


def next_step(profile: dict[str, float], steps: list[TrainerChange], switches: TrainerSwitches) -> TrainerChange | None:
    """The first step of the largest part that has one left; None where no step is left."""
    for part in sorted(PARTS, key=lambda part: -profile[part]):
        for step in steps:
            if step.part == part and (not step.on or getattr(switches, step.on)):
                return step
    return None
