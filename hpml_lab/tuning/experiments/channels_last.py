"""The same images in two orders in memory: channel by channel (NCHW) and pixel by pixel (NHWC, `channels_last`)."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import timed_bars
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.core.timing.counting import operators
from hpml_lab.core.timing.noise import SpeedUp, speed_up
from hpml_lab.tuning.experiments.tuned_networks import images_and_classes, resnet
from hpml_lab.tuning.experiments.turns import REPLAYED, steps_in_turns

QUICK = dict(batch=4, side=32, samples=9)  # a step takes 60 ms
FULL = dict(batch=64, side=224, samples=9)


@dataclass
class LayoutTiming(Row):
    """One training step of ResNet-18 in each layout."""

    number_format: str = column("number format")
    nchw_ms: float = column("NCHW", "ms")
    nhwc_ms: float = column("NHWC", "ms")
    nchw_spread_ms: float = column("spread, NCHW", "ms")
    nhwc_spread_ms: float = column("spread, NHWC", "ms")
    gain: float = column("NHWC, speed-up")
    interval: str = column("90 % interval")
    verdict: str = column("verdict")


def conv_layouts(net: nn.Module, x: torch.Tensor) -> tuple[int, int]:
    """How many convolutions of `net` run on `x`, and how many of them produce an output in NHWC."""
    in_nhwc: list[bool] = []

    def note(layer: nn.Module, inputs: tuple, output: torch.Tensor) -> None:
        in_nhwc.append(output.is_contiguous(memory_format=torch.channels_last))

    hooks = [layer.register_forward_hook(note) for layer in net.modules() if isinstance(layer, nn.Conv2d)]
    try:
        net(x)
    finally:
        for hook in hooks:
            hook.remove()
    return len(in_nhwc), sum(in_nhwc)


def draw(result: Result):
    """Time of one training step of ResNet-18 with images stored channel by channel (NCHW) and pixel by pixel (NHWC), for each
    number format. A time in NHWC is in color only if it differs from the one above it by more than noise."""
    rows = result.rows(LayoutTiming)
    figure = style.new_figure(7, 1.2 + 0.9 * len(rows))
    axes = figure.subplots()
    bars = [
        (f"{row.number_format}, {layout}", ms, verdict)
        for row in rows
        for layout, ms, verdict in (("NCHW", row.nchw_ms, None), ("NHWC (channels_last)", row.nhwc_ms, row.verdict))
    ]
    timed_bars(axes, *zip(*bars, strict=True), unit="ms")
    axes.set_xlabel("time of a step in ms")
    axes.set_ylabel("number format, layout")
    return figure


@experiment("channels-last", lecture="L4", notebook="11_tuning", draw=draw, quick=QUICK, full=FULL, uses=("cuda",))
def channels_last(params: Params) -> Result:
    """NCHW and NHWC: the same images and the same numbers in a different order in memory."""
    device = params.device.torch
    nchw = resnet().to(device)
    nhwc = resnet().to(device)
    nhwc.load_state_dict(nchw.state_dict())
    nhwc.to(memory_format=torch.channels_last)
    x, y = images_and_classes(params.batch, params.side, device)
    layouts = {"NCHW": (nchw, x), "NHWC": (nhwc, x.to(memory_format=torch.channels_last))}

    def step(layout: str, dtype: torch.dtype) -> torch.Tensor:
        net, images = layouts[layout]
        with torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32):
            loss = F.cross_entropy(net(images), y)
        net.zero_grad()
        loss.backward()
        return loss.detach()

    convolutions, in_nhwc = conv_layouts(*layouts["NHWC"])
    called = {name: [op.name for op in operators(partial(net, images))] for name, (net, images) in layouts.items()}
    # In float64, because the last block's batch statistics (over 4 numbers of a channel at quick) magnify rounding differences.
    with torch.no_grad():
        outputs = {name: net.double().train()(images.double()) for name, (net, images) in layouts.items()}
    difference = ((outputs["NCHW"] - outputs["NHWC"]).abs().max() / outputs["NCHW"].abs().max()).item()
    for net, _ in layouts.values():
        net.float()

    rows: list[LayoutTiming] = []
    gains: list[SpeedUp] = []
    for dtype in dict.fromkeys([torch.float32, params.device.dtype]):
        steps = {name: partial(step, name, dtype) for name in layouts}
        times = steps_in_turns(steps, samples=params.samples, placebo="NCHW", device=params.device)
        gains.append(speed_up(times, "NCHW", "NHWC"))
        rows.append(
            LayoutTiming(
                number_format=str(dtype).removeprefix("torch."),
                nchw_ms=times["NCHW"].seconds * 1e3,
                nhwc_ms=times["NHWC"].seconds * 1e3,
                nchw_spread_ms=times["NCHW"].spread * 1e3,
                nhwc_spread_ms=times["NHWC"].spread * 1e3,
                **gains[-1].columns,
            )
        )

    result = Result([Table("One training step of ResNet-18", rows)])
    for row, gain in zip(rows, gains, strict=True):
        result.key_figure(f"step in NHWC, {row.number_format}", str(gain))
    result.claim(
        "Both layouts give the same outputs in float64, within 1e-12 of the largest", difference <= 1e-12, f"{difference:.1e}"
    )
    result.claim(
        "Given NHWC once, every convolution of ResNet-18 keeps it",
        in_nhwc == convolutions == 20,
        f"{in_nhwc} of {convolutions}",
    )
    result.claim(
        "The forward pass calls the same operators in both layouts: none of them converts", called["NCHW"] == called["NHWC"]
    )
    for row, gain in zip(rows, gains, strict=True):
        result.measured(f"NHWC is faster in {row.number_format}", gain.faster, str(gain))
    if params.device.is_cuda:
        result.notes.append(REPLAYED)
        if params.device.can("tf32"):
            result.notes.append("By torch's default, convolutions in float32 use this GPU's tensor cores, in the format TF32.")
        else:
            result.notes.append("This GPU has no TF32: convolutions in float32 do not use its tensor cores.")
    else:
        what = "convolutions on a CPU choose their own layout internally"
        result.notes.append(NO_CUDA.format(what=what, slug="channels-last"))
    return result
