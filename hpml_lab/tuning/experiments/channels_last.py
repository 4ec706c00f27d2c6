"""The same images in two orders in memory: channel by channel (NCHW) and pixel by pixel (NHWC, `channels_last`)."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from hpml_lab.core import style
from hpml_lab.core.counting import operators
from hpml_lab.core.device import NO_CUDA
from hpml_lab.core.experiment import Params, experiment
from hpml_lab.core.findings import Table, column
from hpml_lab.core.result import Result
from hpml_lab.core.timing import interleaved
from hpml_lab.tuning.bars import grouped_bars
from hpml_lab.tuning.networks import images_and_classes, resnet

QUICK = dict(batch=4, side=32, samples=3)
FULL = dict(batch=64, side=224, samples=9)


@dataclass
class LayoutTiming:
    """One training step of ResNet-18 in each layout."""

    number_format: str = column("number format")
    nchw_ms: float = column("NCHW", "ms")
    nhwc_ms: float = column("NHWC", "ms")
    speedup: float = column("speedup of NHWC", "times")
    nchw_spread_ms: float = column("spread, NCHW", "ms")
    nhwc_spread_ms: float = column("spread, NHWC", "ms")


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
    number format. Error bars show the middle half of the samples."""
    figure = style.new_figure(2.2 + 1.8 * len(result.rows(LayoutTiming)), 3.4)
    axes = figure.subplots()
    rows = result.rows(LayoutTiming)
    grouped_bars(
        axes,
        [row.number_format for row in rows],
        {"NCHW": [row.nchw_ms for row in rows], "NHWC (channels_last)": [row.nhwc_ms for row in rows]},
        spread={"NCHW": [row.nchw_spread_ms for row in rows], "NHWC (channels_last)": [row.nhwc_spread_ms for row in rows]},
    )
    axes.set_xlabel("number format")
    axes.set_ylabel("time of a step in ms")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.2), ncols=2, fontsize=8)
    return figure


@experiment("channels-last", lecture="L4", notebook="10_tuning", draw=draw, quick=QUICK, full=FULL, uses=("cuda",))
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
    # In float64, because the last block's batch statistics (over 4 pixels per image at quick) magnify rounding differences.
    outputs = {name: net.double().train()(images.double()) for name, (net, images) in layouts.items()}
    difference = ((outputs["NCHW"] - outputs["NHWC"]).abs().max() / outputs["NCHW"].abs().max()).item()
    for net, _ in layouts.values():
        net.float()

    rows = []
    for dtype in dict.fromkeys([torch.float32, params.device.dtype]):
        times = interleaved({name: partial(step, name, dtype) for name in layouts}, samples=params.samples)
        nchw_time, nhwc_time = times["NCHW"], times["NHWC"]
        rows.append(
            LayoutTiming(
                number_format=str(dtype).removeprefix("torch."),
                nchw_ms=nchw_time.seconds * 1e3,
                nhwc_ms=nhwc_time.seconds * 1e3,
                speedup=nchw_time.seconds / nhwc_time.seconds,
                nchw_spread_ms=nchw_time.spread * 1e3,
                nhwc_spread_ms=nhwc_time.spread * 1e3,
            )
        )

    result = Result([Table("One training step of ResNet-18", rows)])
    for row in rows:
        result.key_figure(f"step in NHWC, {row.number_format}, speedup", row.speedup, unit="times")
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
    for row in rows:
        result.measured(f"NHWC is faster in {row.number_format}", row.speedup > 1, f"{row.speedup:.2f} times")
    if not params.device.is_cuda:
        what = "convolutions on a CPU choose their own layout internally"
        result.notes.append(NO_CUDA.format(what=what, slug="channels-last"))
    return result
