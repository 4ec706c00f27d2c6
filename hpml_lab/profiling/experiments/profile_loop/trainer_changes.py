"""The steps of the ladder: each change, the part that it attacks, and what the losses may differ by after it."""

import torch

from hpml_lab.core.system.device import Device
from hpml_lab.core.timing.ladder import Change

# What a loss may differ by between two rungs, largest difference over the iterations that are checked. Training lets rounding
# differences grow, as it does a change of seed: after hundreds of iterations equal losses mean equal bits, or nothing.
# BITS: the change keeps every operation on every element and its order; nothing else than equal is right.
# ROUNDING: sums are taken in another order. One spacing of a float32 near 2 is 2.4e-7; training carries the differences on
#   and lets them grow. The row measures how far: the weights moved by one spacing each, and trained as long.
# SIXTEEN: bfloat16 has 8 significant bits: a product may be off by 0.4 %, a loss of 2.3 by 0.01. Allowed is twice that.
BITS, ROUNDING, SIXTEEN = 0.0, 1e-3, 2e-2

CHANGES = (
    Change("decode_once", "input", "decode all files once, before training", BITS),
    Change("batch_transform", "transform", "one operation a batch, in place, instead of a loop over samples", BITS),
    Change("prepare_once", "transform", "transform all images once, before training", BITS, on="decode_once"),
    Change("late_log", "logging", "keep the figures on the device, ask once at the end", BITS),
    Change("batch_evaluation", "evaluation", "test images in batches, without a graph", ROUNDING),
    Change("debug_off", "forward", "anomaly detection off: it was left on after a search for a NaN", BITS),
    Change("library_layers", "backward", "torch's batch norm, ReLU and cross-entropy instead of written-out ones", ROUNDING),
    Change("drop_gradients", "backward", "gradients to None, so that backward need not add to zeros", BITS),
    Change("channels_last", "backward", "the memory order N H W C", ROUNDING, needs="cuda", on="library_layers"),
    Change(
        "compiled", "backward", "torch.compile: operations fused into few kernels", ROUNDING, needs="compile", on="debug_off"
    ),
    Change("bfloat16", "backward", "convolutions and products in 16 bits (autocast)", SIXTEEN, needs="bfloat16"),
    Change("fused_adam", "optimizer", "Adam for all parameters in one call", ROUNDING),
    Change("pinned_copy", "copy", "copy from page-locked memory, without waiting", BITS, needs="cuda"),
    Change("stay_on_device", "copy", "all prepared images lie on the device", BITS, needs="cuda", on="prepare_once"),
)


def applicable(change: Change, device: Device, compile: bool) -> bool:
    """Whether the change means anything on this device."""
    has = {"cuda": device.is_cuda, "bfloat16": device.dtype is torch.bfloat16, "compile": compile}
    return not change.needs or has[change.needs]
