"""The step that puts the script's net under the roofline: its forward pass and its training step, at two batch sizes."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from hpml_lab.core.experiment import Row, Table, column
from hpml_lab.core.timing.clock import Ceiling, ceiling, measure
from hpml_lab.core.timing.counting import operators
from hpml_lab.tensors.lessons.model_flops import convolution_flops
from hpml_lab.your_script.tools.lab_task import Findings, Lab, NotDone, not_run
from hpml_lab.your_script.tools.own_net import each_position, own_functions

SAMPLES = 5  # the fewest that have an interval
BATCHES = {"cpu": (2, 8), "cuda": (2, 128)}  # batch norm in training takes no single sample


@dataclass
class RoofRow(Row):
    """A part of a training step, and the two limits of the same device: the bandwidth of a large copy, and as its peak the
    faster of a large product and a large convolution."""

    part: str = column("part")
    batch: int = column("batch")
    milliseconds: float = column("median", "ms")
    spread: float = column("spread", "ms")
    flops: float = column("computed", "GFLOP")
    moved: float = column("read and written", "MB")
    intensity: float = column("intensity", "FLOP/byte")
    rate: float = column("rate", "GFLOP/s")
    share: float = column("rate / roofline", "%")
    bandwidth: float = column("bandwidth", "GB/s")
    peak: float = column("peak", "GFLOP/s")


def place_under_roof(lab: Lab) -> Findings:
    """What the script's net reaches of the machine's two limits, in its forward pass and in a training step by SGD."""
    device = torch.device("cpu" if "cpu" in lab.words or not torch.cuda.is_available() else "cuda")
    end, rows = time.monotonic() + lab.seconds, []
    left = [(part, batch) for batch in BATCHES[device.type] for part in (forward_pass, training_step)]
    with own_functions(lab) as (make_net, make_batch):
        limits = measured_limits(device)
        while left and not (rows and time.monotonic() > end):
            part, batch = left.pop(0)
            try:
                net, given = make_net().to(device), [each.to(device) for each in make_batch(batch)]
                rows.append(roof_row(part, batch, part(net, *given), limits, device))
            except Exception as error:  # the reader's own code
                raise NotDone(f"a {named(part)} of {batch}: {type(error).__name__}: {error}") from error
    says = [
        f"{row.part} of {row.batch}: {row.share:.0f} % of what the roof allows at {row.intensity:.3g} FLOP/byte, where "
        f"{'arithmetic' if row.intensity > limits.ridge else 'memory'} is the limit."
        for row in rows
    ]
    where = "On the GPU" if device.type == "cuda" else "On one thread"
    says.append(
        f"{where} memory is the limit below {limits.ridge:.3g} FLOP/byte. Bytes are those of the tensors that each operator "
        "reads and writes, FLOPs those of products, as FlopCounterMode counts them."
    )
    late = [f"{named(part)} of {batch}" for part, batch in left]
    return Findings(says + not_run(lab, late), [Table("The net under the roofline", rows)])


def measured_limits(device: torch.device) -> Ceiling:
    """The ceiling of the device, with the rate of a convolution as its peak where that is the faster one: on some processors
    the library of convolutions uses wider vectors than that of products."""
    found, (images, channels, side) = ceiling(device, tf32=True), (64, 128, 16)
    x, weight = torch.randn(images, channels, side, side), torch.randn(channels, channels, 3, 3)
    flops = convolution_flops(images, side * side, channels, channels, 3)
    convolution = measure(partial(F.conv2d, x.to(device), weight.to(device), padding=1), samples=SAMPLES, flops=flops)
    return replace(found, gflop_per_s=max(found.gflop_per_s, convolution.gflop_per_s))


def named(part: Callable[..., Any]) -> str:
    """What a part is called in a table."""
    return part.__name__.replace("_", " ")


def forward_pass(net: Any, x: Any, _: Any) -> Callable[[], object]:
    """The scores alone, without a graph."""

    @torch.no_grad()
    def work() -> object:
        return net(x)

    return work


def training_step(net: Any, x: Any, y: Any) -> Callable[[], object]:
    """Forward, backward, and an update by SGD with momentum."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def work() -> None:
        optimizer.zero_grad()
        each_position(net(x), y).backward()
        optimizer.step()

    return work


def roof_row(
    part: Callable[..., Any], batch: int, work: Callable[[], object], limits: Ceiling, device: torch.device
) -> RoofRow:
    """Count one call of `work`, and time it."""
    work()  # the optimizer makes its state
    with FlopCounterMode(display=False) as counter:
        moved = sum(operator.bytes for operator in operators(work, device))
    timing = measure(work, samples=SAMPLES, bytes=moved, flops=counter.get_total_flops())
    if not timing.flops:
        raise ValueError("FlopCounterMode counts no FLOPs in it")
    return RoofRow(
        named(part),
        batch,
        1e3 * timing.seconds,
        1e3 * timing.spread,
        timing.flops / 1e9,
        moved / 1e6,
        timing.intensity,
        timing.gflop_per_s,
        100 * limits.fraction(timing),
        limits.gb_per_s,
        limits.gflop_per_s,
    )
