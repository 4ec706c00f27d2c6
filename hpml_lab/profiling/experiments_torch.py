"""The experiments of notebook 09 with torch's own profiler: operators, traces, memory, and nvprof's table of kernels."""

import time
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, record_function, schedule

from hpml_lab.core import counting, style
from hpml_lab.core.device import NO_CUDA
from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.result import Claim, Result
from hpml_lab.data.batches import batches
from hpml_lab.data.dataset import DataSet
from hpml_lab.data.sets import load
from hpml_lab.profiling import traces

NOTEBOOK = "09_profiling"


# --- torch-profiler ----------------------------------------------------------------------------------------------------------


def draw_torch_profiler(result: Result):
    """Above: one forward pass of DenseNet-121 as a trace, time from left to right, each lane called by the lane above it:
    the net's blocks, the operators, what they call in turn, and the GPU's kernels where there is a GPU. Middle: the
    operators with the most time of their own. Below: memory in use over the same pass, once kept for the backward pass
    and once under no_grad.

    With gradients memory rises until the end; without them each block gives its memory back.
    """
    figure = style.new_figure(10, 9)
    trace, table, memory = figure.subplots(3, 1, height_ratios=(1.3, 1.2, 1.1))
    traces.draw_lanes(trace, result.arrays["lanes"])
    trace.set_title("trace of one forward pass")
    trace.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=9)
    names = [row["operator"].removeprefix("aten::") for row in result.rows]
    bars = table.barh(range(len(names)), [row["self, ms"] for row in result.rows], color=style.BLUE)
    table.bar_label(bars, [calls_of(row) for row in result.rows], padding=3, fontsize=8)
    table.set_yticks(range(len(names)), names)
    table.invert_yaxis()
    table.margins(x=0.12)
    table.set_axisbelow(True)
    table.grid(axis="y", visible=False)
    table.set(xlabel="self time in ms", title="operators with the most time of their own")
    for (name, curve), colour, line in zip(result.arrays["memory"].items(), (style.RED, style.GREEN), ("-", "--"), strict=True):
        memory.step([ms for ms, _ in curve], [b / 1e6 for _, b in curve], line, where="post", color=colour, label=name)
    memory.set(xlabel="time in ms", ylabel="memory in use in MB", title="memory of one forward pass", ylim=(0, None))
    memory.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=9)
    return figure


@experiment(
    "torch-profiler",
    lecture="L1",
    notebook=NOTEBOOK,
    draw=draw_torch_profiler,
    quick=dict(top=8, hot=80, n=256),
    full=dict(top=12, hot=100, n=1024),
    lecture_says={"conv2d, one call, µs": "9976.544 (a call of the lecture's machine)"},
    uses=("cuda",),
)
def torch_profiler(size: Size) -> Result:
    """torch.profiler on DenseNet-121: a table of operators, a trace, memory over time."""
    from torchvision.models import densenet121  # late: this import takes seconds

    device = size.device.torch
    model = densenet121(weights=None).to(device)
    x = torch.randn(1, 3, 224, 224, device=device, requires_grad=True)

    def forward() -> None:
        with record_function("forward"):
            model(x)

    def without_grad() -> None:
        with torch.no_grad():
            forward()

    with traces.named_regions(model.features.named_children()):
        profile = counting.profiled(forward, device, record_shapes=True, profile_memory=True)
    events = counting.trace_events(profile)
    table = profile.key_averages()
    on_gpu = device.type == "cuda"
    time_of = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    operators = sorted((e for e in table if e.key.startswith("aten::")), key=lambda e: -getattr(e, time_of))
    whole = sum(getattr(e, time_of) for e in operators)
    dearest: dict[str, list] = {}
    for e in sorted(profile.key_averages(group_by_input_shape=True), key=lambda e: -getattr(e, time_of)):
        dearest.setdefault(e.key, (e.input_shapes or [[]])[0])
    rows = [
        {
            "operator": e.key,
            "calls": e.count,
            "self, ms": getattr(e, time_of) / 1e3,
            "self, %": 100 * getattr(e, time_of) / whole,
            "total, ms": (e.device_time_total if on_gpu else e.cpu_time_total) / 1e3,
            "dearest input": "×".join(map(str, dearest[e.key])) or "a list",
        }
        for e in operators[: size.top]
    ]

    calls = traces.nested(events)
    [region] = [e for e in calls if e["name"] == "forward"]
    inside = {e["name"] for e in calls if region["ts"] <= e["ts"] <= region["ts"] + region["dur"]}
    self_sum = sum(e.self_cpu_time_total for e in table if e.key in inside)
    own = sum(e["self"] for e in calls if e["name"].startswith("aten::"))
    theirs = sum(e.self_cpu_time_total for e in operators)
    convolutions = sum(isinstance(layer, nn.Conv2d) for layer in model.modules())
    convolved = next(e.count for e in table if e.key == "aten::convolution")
    in_trace = sum(e["name"] == "aten::convolution" for e in calls)

    bare = counting.trace_events(counting.profiled(without_grad, device, profile_memory=True))
    traced = {"with gradients": events, "under no_grad": bare}
    curves = {name: counting.memory_curve(trace, device_type=int(on_gpu)) for name, trace in traced.items()}
    peaks = {name: max(in_use for _, in_use in curve) for name, curve in curves.items()}
    again = counting.peak_bytes(forward, device)
    mib = torch.Size([1 << 18])  # elements of float32
    by_hand = counting.peak_bytes(lambda: torch.ones(mib, device=device) + torch.ones(mib, device=device), device)
    first, hot_share = hottest_region(device, size.hot, size.n)
    recorded = scheduled_steps(6, wait=1, warmup=1, active=2)

    claims = [
        Claim("a forward pass calls the convolution 120 times, by the table and by the trace", convolved == in_trace == 120),
        Claim("and the net has as many convolution layers", convolutions == 120),
        Claim(
            "self times sum to the time of the whole forward pass, to 2 %",
            abs(self_sum / region["dur"] - 1) < 0.02,
            f"{self_sum / 1e3:.1f} ms of {region['dur'] / 1e3:.1f} ms",
        ),
        Claim(
            "self times worked out from the trace alone are those of the table, to 2 %",
            abs(own / theirs - 1) < 0.02,
            f"{own / 1e3:.1f} ms and {theirs / 1e3:.1f} ms",
        ),
        Claim("the region with the planted hot work is the first row", first == "hot", f"{hot_share:.0f} % of the time"),
        Claim("two tensors of 1 MiB and their sum have a peak of 3 MiB", by_hand == 3 << 20),
        Claim(
            "the peak of the memory curve is that of another run, which on a GPU the allocator itself counts, to 1 %",
            abs(peaks["with gradients"] / again - 1) < 0.01,
            f"{peaks['with gradients'] / 1e6:.2f} MB and {again / 1e6:.2f} MB",
        ),
        Claim(
            "what is kept for the backward pass makes the peak at least 10 times as high",
            peaks["with gradients"] >= 10 * peaks["under no_grad"],
        ),
        Claim("of 6 steps, schedule(wait=1, warmup=1, active=2, repeat=1) records 2", recorded == 2),
    ]
    conv2d = next(e for e in table if e.key == "aten::conv2d")
    quantities = {
        "conv2d, one call, µs": (conv2d.device_time_total if on_gpu else conv2d.cpu_time_total) / conv2d.count,
        "forward pass, ms": region["dur"] / 1e3,
        "convolutions, calls": convolved,
        "peak memory with gradients, MB": peaks["with gradients"] / 1e6,
        "peak memory under no_grad, MB": peaks["under no_grad"] / 1e6,
    }
    notes = [] if on_gpu else [NO_CUDA.format(what="the trace has no lanes of kernels and copies", slug="torch-profiler")]
    shown = {name: thinned(curve) for name, curve in curves.items()}
    return Result(rows, claims, quantities, notes, {"lanes": traces.lanes(events), "memory": shown})


def thinned(curve: list, most: int = 800) -> list:
    """About `most` points of a memory curve: of neighbours the one with the most bytes, so that the figure has the peak."""
    step = max(1, len(curve) // most)
    return [max(curve[at : at + step], key=lambda point: point[1]) for at in range(0, len(curve), step)]


def hottest_region(device: torch.device, hot: int, n: int) -> tuple[str, float]:
    """Of three regions, one of which has `hot` products of n × n matrices and the others one each: the one with the most
    time, and its share in %.

    Of each region the shortest of three runs counts: another program that has the core meanwhile only adds to it.
    """
    a = torch.randn(n, n, device=device)

    def work() -> None:
        for name, products in (("load", 1), ("hot", hot), ("update", 1)):
            with record_function(name):
                for _ in range(products):
                    torch.mm(a, a)

    runs = []
    for _ in range(3):
        seen = dict.fromkeys(("load", "hot", "update"), 0.0)
        for e in counting.profiled(work, device).key_averages():
            if e.key in seen:  # on a GPU a region stands there twice, as the host and as the device saw it
                seen[e.key] = max(seen[e.key], e.device_time_total if device.type == "cuda" else e.cpu_time_total)
        runs.append(seen)
    times = {name: min(run[name] for run in runs) for name in runs[0]}
    first = max(times, key=times.get)
    return first, 100 * times[first] / sum(times.values())


def scheduled_steps(steps: int, **plan: int) -> int:
    """How many of `steps` steps a profiler with `schedule(**plan, repeat=1)` records."""
    with torch.profiler.profile(
        activities=[ProfilerActivity.CPU], schedule=schedule(**plan, repeat=1), acc_events=True
    ) as profile:
        for _ in range(steps):
            torch.ones(4).sum()
            profile.step()
    return next(e.count for e in profile.key_averages() if e.key.startswith("ProfilerStep"))


# --- kernel-table ------------------------------------------------------------------------------------------------------------


def draw_kernel_table(result: Result):
    """The dearest rows of the kernel table by their share of the time, and for each the mean and the range from the
    shortest to the longest call. Host-to-device copies have a colour of their own where a GPU has run."""
    figure = style.new_figure(10, 5)
    shares, spread = figure.subplots(1, 2, sharey=True, width_ratios=(1.2, 1))
    rows = result.rows
    names = [short(row["name"]) for row in rows]
    colours = [style.RED if "HtoD" in row["name"] else style.BLUE for row in rows]
    bars = shares.barh(range(len(rows)), [row["time %"] for row in rows], color=colours)
    shares.bar_label(bars, [calls_of(row) for row in rows], padding=3, fontsize=8)
    shares.set_yticks(range(len(rows)), names, fontsize=8)
    shares.invert_yaxis()
    shares.margins(x=0.15)
    shares.set(xlabel="share of the time in %")
    spread.hlines(range(len(rows)), *([row[f"{end}, µs"] for row in rows] for end in ("min", "max")), color=style.GREY)
    spread.scatter([row["avg, µs"] for row in rows], range(len(rows)), color=colours, zorder=3)
    spread.set_xscale("log")
    spread.set(xlabel="one call in µs: mean, least and most")
    for axes in (shares, spread):
        axes.set_axisbelow(True)
        axes.grid(axis="y", visible=False)
    return figure


def calls_of(row: dict) -> str:
    """How often, in words."""
    return "1 call" if row["calls"] == 1 else f"{row['calls']} calls"


def short(name: str, most: int = 42) -> str:
    """A kernel's name without what it returns, cut where it is long."""
    name = name.removeprefix("void ")
    return name if len(name) <= most else name[: most - 1] + "…"


def small_cnn(pixels: int, widths: tuple[int, ...], hidden: int) -> nn.Module:
    """The lecture's MNIST net without dropout: 3 × 3 convolutions with ReLU, a pooling, two linear layers."""
    channels = [1, *widths]
    layers = [layer for a, b in pairwise(channels) for layer in (nn.Conv2d(a, b, 3, padding=1), nn.ReLU())]
    flat = channels[-1] * (pixels // 2) ** 2
    return nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(flat, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def epoch(net: nn.Module, data: DataSet, batch: int, device: torch.device) -> torch.Tensor:
    """One epoch of SGD with momentum, each batch copied to `device` as it comes; the losses, one a batch."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    losses = []
    for images, labels in batches(data.train_x, data.train_y, batch, torch.Generator().manual_seed(0)):
        images, labels = images.to(device), labels.to(device)
        loss = F.cross_entropy(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)  # no .item() in the loop: each would copy back and wait


@experiment(
    "kernel-table",
    lecture="L1 L3",
    notebook=NOTEBOOK,
    draw=draw_kernel_table,
    quick=dict(data="digits", widths=(8, 16), hidden=32, batch=128, top=10),
    full=dict(data="mnist", widths=(32, 64), hidden=128, batch=128, top=20),
    lecture_says={
        "host-to-device copies, share of the time in %": "0.12",
        "host-to-device copies, ms": "204.61",
        "host-to-device copies, calls": "2888",
        "first row, share of the time in %": "11.36 (L3), 13.39 (L1)",
    },
    uses=("cuda",),
)
def kernel_table(size: Size) -> Result:
    """nvprof's table of an epoch of training: kernels and copies on a GPU, operators on a CPU."""
    device = size.device.torch
    on_gpu = device.type == "cuda"
    data = load(size.data)  # on the host: each batch is copied when its turn comes
    net = small_cnn(data.train_x.shape[-1], size.widths, size.hidden).to(device)
    start_weights = {name: weights.clone() for name, weights in net.state_dict().items()}
    in_batches = -(-len(data.train_x) // size.batch)

    def train() -> torch.Tensor:
        net.load_state_dict(start_weights)
        return epoch(net, data, size.batch, device)

    seen: list[torch.Tensor] = []
    plain = train()
    start = time.perf_counter()
    train()
    counting.synchronize(device)
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    profile = counting.profiled(lambda: seen.append(train()), device)
    events = counting.trace_events(profile)
    table = traces.kernel_rows(events, on_gpu)
    host = {row["name"]: row["calls"] for row in traces.kernel_rows(events, gpu=False)}
    layers = len(size.widths)
    copies = [row for row in table if row["name"] == "[CUDA memcpy HtoD]"]
    lecture = traces.read_nvprof(traces.LECTURE_LOG)
    first, last = lecture[0], lecture[-1]
    whole = first["time, µs"] / first["time %"] * 100
    claims = [
        Claim("shares sum to 100 %", abs(sum(row["time %"] for row in table) - 100) < 1e-6),
        Claim(
            "the convolution is called batches × layers times in each pass, forward and backward",
            host["aten::convolution"] == host["aten::convolution_backward"] == in_batches * layers,
            f"{in_batches} × {layers} × 2 = {host['aten::convolution'] + host['aten::convolution_backward']}",
        ),
        Claim("min ≤ avg ≤ max in every row", all(r["min, µs"] <= r["avg, µs"] + 1e-9 <= r["max, µs"] + 2e-9 for r in table)),
        Claim(
            "every row's time is calls × avg, and the dearest row is the first",
            all(abs(r["calls"] * r["avg, µs"] - r["time, µs"]) <= 1e-6 * r["time, µs"] for r in table)
            and all(a["time, µs"] >= b["time, µs"] for a, b in pairwise(table)),
        ),
        Claim(
            "each batch takes two copies from host to device (images, labels) where there is a GPU, none on a CPU",
            sum(row["calls"] for row in copies) == (2 * in_batches if on_gpu else 0),
        ),
        Claim(
            "profiling changes no loss by more than 0.1 %", all(torch.allclose(one, plain, rtol=1e-3, atol=0) for one in seen)
        ),
        Claim(
            "the lecture's row of copies agrees with itself: time / calls is its mean, time / whole its share",
            abs(last["time, µs"] / last["calls"] - last["avg, µs"]) < 0.01
            and round(100 * last["time, µs"] / whole, 2) == last["time %"],
            f"{last['time, µs'] / last['calls']:.3f} µs, {100 * last['time, µs'] / whole:.3f} %",
        ),
    ]
    quantities = {
        "first row, share of the time in %": table[0]["time %"],
        "rows": len(table),
        "batches": in_batches,
        "epoch, s": seconds,
    }
    notes = []
    if on_gpu:
        quantities["host-to-device copies, share of the time in %"] = traces.htod_share(table)
        quantities["host-to-device copies, ms"] = sum(row["time, µs"] for row in copies) / 1e3
        quantities["host-to-device copies, calls"] = sum(row["calls"] for row in copies)
    else:
        what = "the table has operators, each with the time of its own, and no copies to a device"
        notes.append(NO_CUDA.format(what=what, slug="kernel-table"))
    shown = table[: size.top] + [row for row in table[size.top :] if row in copies]
    return Result(shown, claims, quantities, notes)
