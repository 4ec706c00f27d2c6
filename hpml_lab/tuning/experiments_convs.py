"""The experiments of notebook 10 on convolutions: the search for the fastest algorithm, and the layout of images in memory."""

from time import perf_counter

import torch
from torch import nn
from torch.nn import functional as F

from hpml_lab.core import style
from hpml_lab.core.counting import kernels, operators, synchronize
from hpml_lab.core.device import NO_CUDA
from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.result import Claim, Result
from hpml_lab.core.timing import interleaved
from hpml_lab.tuning.switched import searching

NOTEBOOK = "10_tuning"


# --- cudnn-benchmark ---------------------------------------------------------------------------------------------------------


def draw_cudnn_benchmark(result: Result):
    """Time of a convolution, forward and forward with backward, with the search for the fastest algorithm off and on,
    beside the lecture's forward pass; bars show the middle half of the samples."""
    figure = style.new_figure(7, 3.6)
    axes = figure.subplots()
    names = [f"{row['pass']}\nbatch {result.arrays['batch']}" for row in result.rows] + [
        "forward, batch 32\n(the lecture's GPU)"
    ]
    for number, (state, colour, hatch) in enumerate((("off", style.ORANGE, None), ("on", style.BLUE, "///"))):
        own = [row[f"{state}, ms"] for row in result.rows]
        spread = [row[f"± {state}, ms"] / 2 for row in result.rows]
        lecture = result.arrays["lecture, ms"][state]
        places = [place + 0.4 * number for place in range(len(names))]
        axes.bar(
            places,
            [*own, lecture],
            0.4,
            yerr=[*spread, 0],
            color=colour,
            hatch=hatch,
            edgecolor="white",
            label=f"search {state}",
        )
    axes.set_xticks([place + 0.2 for place in range(len(names))], names)
    axes.set_axisbelow(True)
    axes.set_yscale("log")
    axes.set_ylim(0.3)
    axes.set_ylabel("time in ms")
    axes.set_title(f"3×3 convolution on {result.arrays['where']}")
    axes.legend()
    return figure


@experiment(
    "cudnn-benchmark",
    lecture="L4",
    notebook=NOTEBOOK,
    draw=draw_cudnn_benchmark,
    quick=dict(batch=2, channels=64, side=64, samples=3, shapes=4),
    full=dict(batch=32, channels=64, side=64, samples=15, shapes=16),
    lecture_says={"forward, search off, µs": 1430, "forward, search on, µs": 840, "forward, times faster": 1.7},
    uses=("cuda",),
)
def cudnn_benchmark(size: Size) -> Result:
    """cuDNN's search for the fastest convolution: what it gains, and what it costs when shapes change."""
    before = torch.backends.cudnn.benchmark
    device = size.device.torch
    torch.manual_seed(0)
    x = torch.randn(size.batch, size.channels, size.side, size.side, device=device, requires_grad=True)
    weight = torch.randn(size.channels, size.channels, 3, 3, device=device, requires_grad=True)

    def forward(on: bool) -> torch.Tensor:
        with searching(on):
            return F.conv2d(x, weight, padding=1)

    def both(on: bool) -> None:
        with searching(on):
            torch.autograd.grad(F.conv2d(x, weight, padding=1).sum(), (x, weight))

    rows = []
    for name, work in (("forward", forward), ("forward + backward", both)):
        told = interleaved({"off": lambda work=work: work(False), "on": lambda work=work: work(True)}, samples=size.samples)
        rows.append(
            {
                "pass": name,
                **{f"{state}, ms": told[state].seconds * 1e3 for state in told},
                "times faster": told["off"].seconds / told["on"].seconds,
                **{f"± {state}, ms": told[state].spread * 1e3 for state in told},
                "kernel, search on": kernels(lambda work=work: work(True), device)[0].name[:60],
            }
        )
    first = {state: first_calls(state == "on", size, device) for state in ("off", "on")}
    apart = (forward(True) - forward(False)).abs().max() / forward(False).abs().max()
    gain = rows[0]["times faster"]
    claims = [
        Claim(
            "the search may change the algorithm, not the result: 2e-3 of the largest output",
            apart.item() < 2e-3,
            f"{apart:.1e}",
        ),
        Claim("the flag is back at what it was", torch.backends.cudnn.benchmark == before),
        Claim("the search makes the forward pass at least 1.2 times faster", gain >= 1.2, f"{gain:.2f} times", exact=False),
        Claim(
            "with the search on, the first call with a new shape is dearer",
            first["on"] > 1.5 * first["off"],
            f"{first['on'] * 1e3:.2f} against {first['off'] * 1e3:.2f} ms",
            exact=False,
        ),
    ]
    quantities = {
        "forward, search off, µs": rows[0]["off, ms"] * 1e3,
        "forward, search on, µs": rows[0]["on, ms"] * 1e3,
        "forward, times faster": gain,
        "first call with a new shape, search off, ms": first["off"] * 1e3,
        "first call with a new shape, search on, ms": first["on"] * 1e3,
    }
    notes = []
    if not size.device.is_cuda:
        what = "cuDNN is not used and the flag has no effect, so both columns time the same code"
        notes.append(NO_CUDA.format(what=what, slug="cudnn-benchmark"))
    where = "the GPU" if size.device.is_cuda else "the CPU (no search)"
    arrays = {"lecture, ms": {"off": 1.43, "on": 0.84}, "where": where, "batch": size.batch}
    return Result(rows, claims, quantities, notes, arrays)


def first_calls(on: bool, size: Size, device: torch.device) -> float:
    """Median seconds of the first call with a shape, over `size.shapes` shapes that were not seen before."""
    weight = torch.randn(size.channels, size.channels, 3, 3, device=device)
    taken = []
    for number in range(size.shapes + 1):
        # Shapes that the other state of the flag does not meet; the first call of all loads kernels and is not counted.
        side = size.side + 2 * number + (3 if on else 2)
        x = torch.randn(size.batch, size.channels, side, side, device=device)
        synchronize(device)
        start = perf_counter()
        with searching(on):
            F.conv2d(x, weight, padding=1)
        synchronize(device)
        taken.append(perf_counter() - start)
    return sorted(taken[1:])[size.shapes // 2]


# --- channels-last -----------------------------------------------------------------------------------------------------------


def draw_channels_last(result: Result):
    """Time of a training step of ResNet-18 with images laid out channel by channel (NCHW) and pixel by pixel (NHWC), by
    number format; bars show the middle half of the samples."""
    figure = style.new_figure(6.5, 3.4)
    axes = figure.subplots()
    for number, (layout, colour, hatch) in enumerate((("NCHW", style.ORANGE, None), ("NHWC", style.BLUE, "///"))):
        places = [place + 0.4 * number for place in range(len(result.rows))]
        axes.bar(
            places,
            [row[f"{layout}, ms"] for row in result.rows],
            0.4,
            yerr=[row[f"± {layout}, ms"] / 2 for row in result.rows],
            color=colour,
            hatch=hatch,
            edgecolor="white",
            label=f"{layout}" + (" (channels_last)" if layout == "NHWC" else ""),
        )
    axes.set_xticks([place + 0.2 for place in range(len(result.rows))], [row["format"] for row in result.rows])
    axes.set_axisbelow(True)
    axes.set_xlabel("number format of convolutions and matrix products")
    axes.set_ylabel("time of a step in ms")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.2), ncols=2)
    return figure


def conv_layouts(net: nn.Module, x: torch.Tensor) -> tuple[int, int]:
    """How many convolutions of `net` ran on `x`, and how many of them gave an output in NHWC."""
    told: list[bool] = []

    def note(layer: nn.Module, inputs: tuple, output: torch.Tensor) -> None:
        told.append(output.is_contiguous(memory_format=torch.channels_last))

    hooks = [layer.register_forward_hook(note) for layer in net.modules() if isinstance(layer, nn.Conv2d)]
    try:
        net(x)
    finally:
        for hook in hooks:
            hook.remove()
    return len(told), sum(told)


@experiment(
    "channels-last",
    lecture="L4",
    notebook=NOTEBOOK,
    draw=draw_channels_last,
    quick=dict(batch=4, side=32, samples=3),
    full=dict(batch=64, side=224, samples=9),
    uses=("cuda",),
)
def channels_last(size: Size) -> Result:
    """NCHW against NHWC: the same images, the same numbers, another order in memory."""
    from torchvision.models import resnet18

    device = size.device.torch
    torch.manual_seed(0)
    plain = resnet18(weights=None, num_classes=10).to(device)
    last = resnet18(weights=None, num_classes=10).to(device)
    last.load_state_dict(plain.state_dict())
    last.to(memory_format=torch.channels_last)
    x = torch.randn(size.batch, 3, size.side, size.side, device=device)
    y = torch.randint(10, (size.batch,), device=device)
    pairs = {"NCHW": (plain, x), "NHWC": (last, x.to(memory_format=torch.channels_last))}

    def step(layout: str, dtype: torch.dtype) -> torch.Tensor:
        net, images = pairs[layout]
        with torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32):
            loss = F.cross_entropy(net(images), y)
        net.zero_grad()
        loss.backward()
        return loss.detach()

    counted, kept = conv_layouts(last, pairs["NHWC"][1])
    names = {k: [one.name for one in operators(lambda k=k: pairs[k][0](pairs[k][1]))] for k in pairs}
    # Batch statistics of the last block, over 4 pixels an image at quick, enlarge a difference of rounding: float64 tells.
    exact = {layout: net.double().train()(images.double()) for layout, (net, images) in pairs.items()}
    apart = ((exact["NCHW"] - exact["NHWC"]).abs().max() / exact["NCHW"].abs().max()).item()
    for net, _ in pairs.values():
        net.float()
    formats = {"float32": torch.float32}
    if size.device.dtype != torch.float32:
        formats[str(size.device.dtype).removeprefix("torch.")] = size.device.dtype
    rows = []
    for name, dtype in formats.items():
        told = interleaved({k: lambda k=k, dtype=dtype: step(k, dtype) for k in pairs}, samples=size.samples)
        rows.append(
            {
                "format": name,
                **{f"{layout}, ms": told[layout].seconds * 1e3 for layout in pairs},
                "times faster": told["NCHW"].seconds / told["NHWC"].seconds,
                **{f"± {layout}, ms": told[layout].spread * 1e3 for layout in pairs},
            }
        )
    claims = [
        Claim("both layouts give the same outputs: 1e-12 of the largest, in float64", apart <= 1e-12, f"{apart:.1e}"),
        Claim("given NHWC once, every convolution of ResNet-18 keeps it", kept == counted == 20, f"{kept} of {counted}"),
        Claim("forward, both layouts call the same operators: none converts between them", names["NCHW"] == names["NHWC"]),
        *(
            Claim(
                f"NHWC is faster in {row['format']}", row["times faster"] > 1, f"{row['times faster']:.2f} times", exact=False
            )
            for row in rows
        ),
    ]
    quantities = {f"step in NHWC, {row['format']}, times faster": row["times faster"] for row in rows}
    notes = []
    if not size.device.is_cuda:
        what = "the CPU's convolutions choose layouts of their own inside"
        notes.append(NO_CUDA.format(what=what, slug="channels-last"))
    return Result(rows, claims, quantities, notes)
