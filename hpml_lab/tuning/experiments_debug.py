"""The experiment of notebook 10 on debugging left on: what it costs, and what anomaly mode finds."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn import functional as F

from hpml_lab.core import style
from hpml_lab.core.attempt import attempt
from hpml_lab.core.device import NO_CUDA
from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.result import Claim, Result
from hpml_lab.core.timing import compare
from hpml_lab.tuning.blocks import deep_mlp, images_and_classes, resnet

NOTEBOOK = "10_tuning"


def hidden_root(x: torch.Tensor) -> torch.Tensor:
    """√x, whose derivative at 0 is infinite: the line that anomaly mode must name."""
    return torch.sqrt(x)


FAULTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "NaN in a gradient": lambda x: hidden_root(x) * 0,  # 0 · ∞
    "infinity in a gradient": lambda x: hidden_root(x),
    "NaN in the loss, gradient finite": lambda x: torch.log(x - 1),  # log(-1) is NaN, its derivative -1
    "nothing wrong": lambda x: hidden_root(x + 1),
}


@contextmanager
def quiet() -> Iterator[list[str]]:
    """Collect the texts of all warnings within a `with` block instead of showing them."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield texts
        finally:
            texts += [str(one.message) for one in caught]


def anomaly_report(fault: Callable[[torch.Tensor], torch.Tensor], device: torch.device) -> dict:
    """What anomaly mode says of one loss at x = 0, what the gradient is without it, and whether the mode is off again."""
    x = torch.zeros(1, device=device, requires_grad=True)
    loss = fault(x).sum()
    loss.backward()
    plain = x.grad.item()

    def watched() -> None:
        with torch.autograd.detect_anomaly():
            fault(torch.zeros(1, device=device, requires_grad=True)).sum().backward()

    with quiet() as texts:
        says = attempt(watched)
    return {
        "loss": loss.item(),
        "gradient": plain,
        "anomaly mode says": "nothing" if says == "works" else says,
        "names the forward line": any("hidden_root" in text for text in texts),
        "off afterwards": not torch.is_anomaly_enabled(),
    }


def draw_debug_apis(result: Result):
    """How many times as long a training step takes under each debugging API, for a small deep net and for a convolutional
    one (gradcheck: for one layer); the dashed line is the plain step."""
    figure = style.new_figure(7.5, 3.6)
    axes = figure.subplots()
    nets = list(dict.fromkeys(row["net"] for row in result.rows))
    apis = list(dict.fromkeys(row["API"] for row in result.rows))
    for number, (net, colour, hatch) in enumerate(
        zip(nets, (style.ORANGE, style.BLUE, style.GREEN), (None, "///", "..."), strict=True)
    ):
        told = {row["API"]: row["times as long"] for row in result.rows if row["net"] == net}
        places = [apis.index(api) + (0.4 * number if len(told) > 1 else 0.2) for api in told]
        bars = axes.bar(places, list(told.values()), 0.4, color=colour, hatch=hatch, edgecolor="white", label=net)
        axes.bar_label(bars, fmt="%.2g", fontsize=8)
    axes.axhline(1, color=style.GREY, linestyle="--")
    axes.set_xticks([place + 0.2 for place in range(len(apis))], apis)
    axes.set_axisbelow(True)
    axes.margins(x=0.08)
    axes.set_yscale("log")
    axes.set(xlabel="debugging API", ylabel="times as long as the plain step")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)
    return figure


@experiment(
    "debug-apis",
    lecture="L4",
    notebook=NOTEBOOK,
    draw=draw_debug_apis,
    quick=dict(layers=20, width=32, batch=2, side=32, samples=2, inputs=16),
    full=dict(layers=20, width=32, batch=64, side=224, samples=7, inputs=64),
    uses=("cuda",),
)
def debug_apis(size: Size) -> Result:
    """What debugging costs when it is left on, and what anomaly mode finds and does not."""
    device = size.device.torch
    small, conv = deep_mlp(size.layers, size.width).to(device), resnet().to(device)
    x = torch.randn(size.batch, size.width, device=device)
    images, classes = images_and_classes(size.batch, size.side, device)
    losses = {
        "small net": (small, lambda: small(x).square().mean()),
        "ResNet-18": (conv, lambda: F.cross_entropy(conv(images), classes)),
    }
    activities = [torch.profiler.ProfilerActivity.CPU]
    if size.device.is_cuda:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    apis = {
        "anomaly mode": torch.autograd.detect_anomaly,
        "profiler": lambda: torch.profiler.profile(activities=activities, acc_events=True),
    }
    if size.device.is_cuda:
        apis["emit_nvtx"] = torch.autograd.profiler.emit_nvtx

    rows, same = [], []
    for name, (net, loss) in losses.items():

        def step(net: nn.Module = net, loss: Callable = loss) -> list[torch.Tensor]:
            return list(torch.autograd.grad(loss(), list(net.parameters())))

        right = step()
        for api, on in apis.items():

            def watched(on: Callable = on, step: Callable = step) -> list[torch.Tensor]:
                with on():
                    return step()

            with quiet():  # the mode announces itself
                told = compare(watched, step, samples=size.samples)
                got = watched()
            same += [((a - b).abs().max() <= 1e-3 * b.abs().max() + 1e-7).item() for a, b in zip(got, right, strict=True)]
            rows.append({"net": name, "API": api, "plain, ms": told.b.seconds * 1e3, "with it, ms": told.a.seconds * 1e3})
            rows[-1]["times as long"] = told.ratio
    calls = 0
    layer = nn.Linear(size.inputs, 4).double().to(device)
    point = torch.randn(1, size.inputs, dtype=torch.float64, device=device, requires_grad=True)

    def counted(point: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return torch.tanh(layer(point))

    passed = torch.autograd.gradcheck(counted, (point,))
    needed = calls
    told = compare(
        lambda: torch.autograd.gradcheck(counted, (point,)),
        lambda: torch.autograd.grad(counted(point).sum(), point),
        samples=size.samples,
    )
    rows.append(
        {"net": "one layer", "API": "gradcheck", "plain, ms": told.b.seconds * 1e3, "with it, ms": told.a.seconds * 1e3}
    )
    rows[-1]["times as long"] = told.ratio

    reports = {name: anomaly_report(fault, device) for name, fault in FAULTS.items()}
    nan, infinite, lost, sound = reports.values()
    by = {(row["net"], row["API"]): row["times as long"] for row in rows}
    claims = [
        Claim("watching changes no gradient: 1e-3 of the largest of each parameter", all(same)),
        Claim(
            "anomaly mode stops at a NaN in the backward pass and names the operator, SqrtBackward0",
            nan["anomaly mode says"].startswith("RuntimeError") and "SqrtBackward0" in nan["anomaly mode says"],
            nan["anomaly mode says"],
        ),
        Claim("it names the function of the forward pass that made it", nan["names the forward line"]),
        Claim(
            "it lets an infinite gradient pass without a word: the lecture's 'or infinities' is wrong",
            infinite["gradient"] == float("inf") and infinite["anomaly mode says"] == "nothing",
        ),
        Claim(
            "it does not see a NaN of the forward pass whose gradient is finite",
            lost["loss"] != lost["loss"] and lost["gradient"] == -1 and lost["anomaly mode says"] == "nothing",
        ),
        Claim("it says nothing where nothing is wrong", sound["anomaly mode says"] == "nothing"),
        Claim(
            "the mode is off after every block, also after one that raised",
            all(one["off afterwards"] for one in reports.values()),
        ),
        Claim(
            "gradcheck calls the function at least twice for each input number",
            passed and needed >= 2 * size.inputs,
            f"{needed} calls for {size.inputs}",
        ),
        Claim(
            "anomaly mode makes a step of the small net at least 2 times as long",
            by["small net", "anomaly mode"] >= 2,
            f"{by['small net', 'anomaly mode']:.1f} times",
            exact=False,
        ),
        Claim(
            "it costs the small net more than ResNet-18: the cost is by operator, not by size",
            by["small net", "anomaly mode"] > by["ResNet-18", "anomaly mode"],
            f"{by['small net', 'anomaly mode']:.1f} against {by['ResNet-18', 'anomaly mode']:.1f} times",
            exact=False,
        ),
    ]
    quantities = {f"{api}, {net}, times as long": figure for (net, api), figure in by.items()}
    quantities["gradcheck, calls of the function"] = needed
    notes = []
    if not size.device.is_cuda:

        def marked() -> None:
            with torch.autograd.profiler.emit_nvtx():
                pass

        what = f"emit_nvtx was not timed ({attempt(marked)})"
        notes.append(NO_CUDA.format(what=what, slug="debug-apis"))
    return Result(rows, claims, quantities, notes, {"anomaly mode": reports})
