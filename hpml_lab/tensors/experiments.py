"""The experiments of notebook 01."""

import numpy as np
import torch
from matplotlib.patches import Rectangle
from torch.utils.flop_counter import FlopCounterMode

from hpml_lab.core import style
from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.progress import progress
from hpml_lab.core.result import Claim, Result
from hpml_lab.core.threads import all_threads
from hpml_lab.core.timing import Timing, ceiling, measure
from hpml_lab.tensors import kernels
from hpml_lab.tensors.memory import shares_memory, visits

NOTEBOOK = "01_tensors"


# ---- tensor-basics ------------------------------------------------------------------------------------------------------


def draw_tensor_basics(result: Result):
    """The memory of a 3 × 4 tensor as a strip of twelve cells. Each line is one view of it: the shaded cells are those that
    it reads, numbered in its own order."""
    drawn = result.arrays["visits"]
    figure = style.new_figure(8, 0.55 * len(drawn) + 1.2)
    axes = figure.subplots()
    for line, places in enumerate(drawn.values()):
        for cell in range(12):
            used = cell in places
            axes.add_patch(Rectangle((cell, -line), 0.94, 0.8, facecolor=style.SKY if used else "#f3f4f6", edgecolor="white"))
            if used:
                axes.text(cell + 0.47, 0.4 - line, places.index(cell), ha="center", va="center", fontsize=9)
    axes.set_yticks([0.4 - line for line in range(len(drawn))], list(drawn))
    axes.set_xticks([cell + 0.47 for cell in range(12)], range(12))
    axes.set(xlim=(-0.1, 12.1), ylim=(0.8 - len(drawn), 1), xlabel="place in memory, in elements")
    axes.grid(False)
    axes.tick_params(length=0)
    return figure


@experiment("tensor-basics", lecture="L0 L2", notebook=NOTEBOOK, draw=draw_tensor_basics, uses=("cuda",))
def tensor_basics(size: Size) -> Result:
    """Shapes, strides, views and copies, and the gradient of a sum."""
    device = size.device.torch
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = torch.from_numpy(array)
    made = {
        "x = torch.from_numpy(a)": x,
        "x[:, 1]": x[:, 1],
        "x[0, :]": x[0, :],
        "x[::2]": x[::2],
        "x.T": x.T,
        "x.reshape(2, 6)": x.reshape(2, 6),
        "x.T.reshape(2, 6)": x.T.reshape(2, 6),
        "x[[0, 2]]": x[[0, 2]],
        "x.clone()": x.clone(),
        "torch.tensor(a)": torch.tensor(array),
        "x[:, :1].expand(3, 4)": x[:, :1].expand(3, 4),
    }
    rows = [
        {
            "expression": name,
            "shape": str(tuple(t.shape)),
            "dtype": str(t.dtype),
            "stride": str(t.stride()),
            "contiguous": t.is_contiguous(),
            "memory": "shared with x" if shares_memory(t, x) else "its own",
        }
        for name, t in made.items()
    ]

    array[0, 1] = 100.0  # through NumPy: must be seen in every view, and in no copy
    seen = [float(made[name].flatten()[at]) for name, at in (("x = torch.from_numpy(a)", 1), ("x[:, 1]", 0), ("x[0, :]", 1))]
    unseen = [float(made[name].flatten()[1]) for name in ("x.clone()", "torch.tensor(a)", "x[[0, 2]]")]
    array[0, 1] = 1.0

    a = torch.tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)
    b = torch.tensor([4.0, 5.0, 6.0], device=device, requires_grad=True)
    results = {"a + b": a + b, "a - b": a - b, "a * b": a * b, "a / b": a / b}
    results["a + b"].backward(torch.ones_like(a))
    rows += [
        {
            "expression": name,
            "shape": "(3,)",
            "dtype": str(t.dtype),
            "stride": "(1,)",
            "contiguous": True,
            "memory": f"its own, on {t.device.type}: {[round(v, 4) for v in t.tolist()]}",
        }
        for name, t in results.items()
    ]

    column, row = torch.arange(3.0).reshape(3, 1), torch.arange(4.0)
    moved = x.to(device)
    claims = [
        Claim("a write through NumPy is seen through from_numpy and through slices", seen == [100.0] * 3, str(seen)),
        Claim("clone, torch.tensor and a list of indices make copies that do not see it", unseen == [1.0] * 3, str(unseen)),
        Claim(
            "a transpose is a view; reshaping it has to copy", shares_memory(x.T, x) and not shares_memory(x.T.reshape(12), x)
        ),
        Claim(
            "offset + index · stride, worked out by hand, finds the elements of every view",
            all(x.flatten()[visits(t)].tolist() == t.flatten().tolist() for t in made.values() if shares_memory(t, x)),
        ),
        Claim(
            "broadcasting (3, 1) with (4,) gives (3, 4), and expand repeats a value with stride 0, without memory",
            (column + row).shape == (3, 4) and column.expand(3, 4).stride() == (1, 0),
        ),
        Claim(
            "the gradient of a + b is ones for a and for b",
            torch.equal(a.grad, torch.ones_like(a)) and torch.equal(b.grad, torch.ones_like(b)),
        ),
        Claim(
            "moving to the device it is on gives the same tensor back, moving to another a copy",
            (moved is x) == (device.type == "cpu"),
        ),
    ]
    notes = (
        []
        if size.device.is_cuda
        else ["No CUDA GPU here: every tensor lives on the CPU. On a machine with one the same cells place them on cuda:0."]
    )
    views = {name: visits(t) for name, t in made.items() if shares_memory(t, x) and t.stride().count(0) == 0}
    return Result(rows, claims, notes=notes, arrays={"visits": views})


# ---- cpu-vs-gpu ---------------------------------------------------------------------------------------------------------

INFERENCE = "small CNN, inference: GPU over CPU, times"
TRAINING = "small CNN, training: GPU over CPU, times"
CPU_MEMORY = "CPU memory bandwidth, GB/s"
PCIE = "host to GPU, pinned (PCIe or better), GB/s"
NVLINK = "GPU to GPU (NVLink where there is one), GB/s"
CROSSOVER = "matmul size n below which the GPU loses"


def draw_cpu_vs_gpu(result: Result):
    """Top left: copy bandwidth by working set; where it falls to the right, the data has outgrown a cache. Top right: matrix
    product rate by size. Bottom left: images a second of a small CNN by batch size, training and inference. Bottom right:
    roofline; each kernel is a point under the two limits measured in the same run."""
    figure = style.new_figure(11, 8.5)
    (bandwidth, product), (cnn, roof) = figure.subplots(2, 2)
    for number, device in enumerate(dict.fromkeys(row["device"] for row in result.rows)):
        colour, marker = style.CYCLE[number], style.MARKERS[number]
        of = {
            part: [r for r in result.rows if r["device"] == device and r["part"] == part]
            for part in ("copy", "matmul", "inference", "training", "roofline")
        }
        bandwidth.plot(
            [r["size"] for r in of["copy"]], [r["GB/s"] for r in of["copy"]], marker=marker, color=colour, label=device
        )
        product.plot(
            [r["size"] for r in of["matmul"]], [r["GFLOP/s"] for r in of["matmul"]], marker=marker, color=colour, label=device
        )
        for part, line in (("inference", "-"), ("training", "--")):
            cnn.plot(
                [r["size"] for r in of[part]],
                [r["images/s"] for r in of[part]],
                line,
                marker=marker,
                color=colour,
                label=f"{device}, {part}",
            )
        limit = result.arrays["ceilings"][device]
        peak, width = limit["GFLOP/s"], limit["GB/s"]
        intensities = np.geomspace(0.03, 5000, 200)
        roof.plot(intensities, np.minimum(peak, width * intensities), color=colour, label=f"{device}: measured limits")
        points = [r for r in [*of["roofline"], of["matmul"][-1]] if r["FLOP/byte"]]
        roof.plot([r["FLOP/byte"] for r in points], [r["GFLOP/s"] for r in points], marker, color=colour, markersize=7)
        for r in points:
            under = (6, -23 if "conv" in r["kernel"] else -11)  # the convolution lies beside the matrix product
            roof.annotate(r["kernel"], (r["FLOP/byte"], r["GFLOP/s"]), xytext=under, textcoords="offset points", fontsize=8)
    bandwidth.set(xscale="log", xlabel="working set, bytes", ylabel="GB/s (read + written)", title="Copy bandwidth")
    product.set(xscale="log", yscale="log", xlabel="n of an n × n product", ylabel="GFLOP/s", title="Matrix product, float32")
    cnn.set(xscale="log", yscale="log", xlabel="batch size", ylabel="images/s", title="Small CNN, 28 × 28 images")
    roof.set(xscale="log", yscale="log", xlabel="arithmetic intensity, FLOP/byte", ylabel="GFLOP/s", title="Roofline")
    for axes in (bandwidth, product, cnn, roof):
        axes.legend(fontsize=8)
    bandwidth.set_ylim(bottom=0)
    return figure


@experiment(
    "cpu-vs-gpu",
    lecture="L0 L2 L1",
    notebook=NOTEBOOK,
    draw=draw_cpu_vs_gpu,
    uses=("cuda",),
    quick={
        "copy_kib": (32, 256, 2048, 16384, 131072, 262144),
        "matmul": (32, 128, 512, 1024),
        "batches": (1, 8, 64),
        "elements": 1 << 25,
        "matvec": 8192,
        "transfer_mib": 64,
    },
    full={
        "copy_kib": (32, 128, 512, 2048, 8192, 32768, 131072, 524288, 2097152),
        "matmul": (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192),
        "batches": (1, 4, 16, 64, 256, 1024),
        "elements": 1 << 27,
        "matvec": 16384,
        "transfer_mib": 1024,
    },
    lecture_says={
        INFERENCE: "up to 23 (GoogLeNet, P100 with TensorRT against one Xeon E5-2690v4)",
        TRAINING: "a bar chart of K80, M40 and P100 whose figures the text does not give",
        CPU_MEMORY: "77 (x86), 170 (POWER8)",
        PCIE: "16 each way (PCIe); 75 each way (NVLink to POWER8)",
        NVLINK: "75 each way (NVLink 2.0)",
    },
)
def cpu_vs_gpu(size: Size) -> Result:
    """CPU against GPU: bandwidth, matrix products, a small CNN, and the roofline."""
    cpu = torch.device("cpu")
    devices = [cpu, size.device.torch] if size.device.is_cuda else [cpu]
    threads = all_threads()
    rows, ceilings = [], {}
    for device in devices:
        limit = ceiling(device, threads=threads)
        ceilings[str(device)] = {"GB/s": limit.gb_per_s, "GFLOP/s": limit.gflop_per_s}
        for kernel, part, extent in progress(list(_kernels(size, device)), f"kernels on {device}"):
            timing = measure(kernel.work, threads=threads, bytes=kernel.bytes, flops=kernel.flops)
            rows.append(_kernel_row(part, kernel.name, device, extent, timing, limit.fraction(timing)))
        for part, make in (("inference", kernels.cnn_inference), ("training", kernels.cnn_training)):
            for batch in progress(size.batches, f"{part} on {device}"):
                timing = measure(make(batch, device), threads=threads)
                rows.append(_row(part, "small CNN", device, batch, timing) | {"images/s": batch / timing.seconds})

    quantities = {CPU_MEMORY: ceilings["cpu"]["GB/s"]}
    notes = [f"On the CPU torch used {threads} threads."]
    if size.device.is_cuda:
        quantities |= _speedups(rows, str(size.device)) | _transfers(size, rows)
    else:
        notes.append(
            "No CUDA GPU here: the GPU half is not measured. Run `hpml-lab run cpu-vs-gpu --size full` on a machine with one."
        )
    return Result(rows, _cpu_vs_gpu_claims(rows, size), quantities, notes, {"ceilings": ceilings})


def _kernels(size: Size, device: torch.device):
    """(kernel, part of the figure, size on its axis), one at a time so that the tensors of one are freed before the next."""
    for kib in size.copy_kib:
        yield kernels.copy(kib * 1024 // 8, device), "copy", kib * 1024  # source and target together fill the working set
    for n in size.matmul:
        yield kernels.matmul(n, device), "matmul", n
    yield kernels.add(size.elements, device), "roofline", size.elements
    yield kernels.matvec(size.matvec, device), "roofline", size.matvec
    yield kernels.conv(8, 64, 56, device), "roofline", 64


def _row(part: str, kernel: str, device: torch.device, extent: int, timing: Timing) -> dict:
    return {
        "part": part,
        "kernel": kernel,
        "device": str(device),
        "size": extent,
        "median, µs": timing.seconds * 1e6,
        "spread, µs": timing.spread * 1e6,
    }


def _kernel_row(part: str, kernel: str, device: torch.device, extent: int, timing: Timing, fraction: float) -> dict:
    return _row(part, kernel, device, extent, timing) | {
        "GFLOP/s": timing.gflop_per_s,
        "GB/s": timing.gb_per_s,
        "FLOP/byte": timing.intensity,
        "of the roof": fraction,
    }


def _speedups(rows: list[dict], gpu: str) -> dict:
    """How many times faster the GPU is on the CNN (at its best batch size), and from which matmul size on it wins."""

    def best(part: str, device: str) -> float:
        return max(r["images/s"] for r in rows if r["part"] == part and r["device"] == device)

    def times(device: str) -> dict[int, float]:
        return {r["size"]: r["median, µs"] for r in rows if r["part"] == "matmul" and r["device"] == device}

    on_cpu, on_gpu = times("cpu"), times(gpu)
    wins = [n for n in on_cpu if on_gpu[n] < on_cpu[n]]
    return {
        INFERENCE: best("inference", gpu) / best("inference", "cpu"),
        TRAINING: best("training", gpu) / best("training", "cpu"),
        CROSSOVER: min(wins) if wins else f"above {max(on_cpu)}",
    }


def _transfers(size: Size, rows: list[dict]) -> dict:
    """Bandwidth between host and GPU, pageable and pinned, both ways, and between two GPUs where there are two."""
    device = size.device.torch
    host = torch.ones(size.transfer_mib << 18)
    pinned, on_gpu = host.pin_memory(), host.to(device)
    ways = {
        "pageable host to GPU": lambda: on_gpu.copy_(host),
        "pinned host to GPU": lambda: on_gpu.copy_(pinned, non_blocking=True),
        "GPU to pinned host": lambda: pinned.copy_(on_gpu, non_blocking=True),
    }
    if torch.cuda.device_count() > 1:
        other = on_gpu.to(torch.device("cuda", (device.index + 1) % torch.cuda.device_count()))
        ways["GPU to GPU"] = lambda: other.copy_(on_gpu)
    rates = {}
    for way, work in ways.items():
        timing = measure(work, bytes=float(host.nbytes))
        rates[way] = timing.gb_per_s
        rows.append(_row("transfer", way, device, host.nbytes, timing) | {"GB/s": timing.gb_per_s})
    found = {PCIE: rates["pinned host to GPU"]}
    return found | ({NVLINK: rates["GPU to GPU"]} if "GPU to GPU" in rates else {})


def _cpu_vs_gpu_claims(rows: list[dict], size: Size) -> list[Claim]:
    net, images = kernels.SmallCNN(), torch.zeros(4, 1, 28, 28)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        net(images)
    on_cpu = [r for r in rows if r["device"] == "cpu"]
    copies = [r["GB/s"] for r in on_cpu if r["part"] == "copy"]
    rates = [r["GFLOP/s"] for r in on_cpu if r["part"] == "matmul"]
    streaming = [r for r in rows if r["kernel"] == "add"]
    claims = [
        Claim(
            "the CNN's FLOPs by formula equal those that torch counts",
            counter.get_total_flops() == net.flops(4),
            f"{net.flops(4)} for 4 images",
        ),
        Claim(
            "a copy that fits in the caches is faster than one that does not",
            max(copies[:-1]) > copies[-1],
            f"{max(copies[:-1]):.3g} against {copies[-1]:.3g} GB/s",
            exact=False,
        ),
        Claim(
            "a large matrix product runs at more GFLOP/s than a small one",
            rates[-1] > rates[0],
            f"{rates[-1]:.3g} against {rates[0]:.3g}",
            exact=False,
        ),
        Claim(
            "adding two long vectors reaches at least half of the memory bandwidth",
            all(r["of the roof"] > 0.5 for r in streaming),
            ", ".join(f"{r['of the roof']:.2f} on {r['device']}" for r in streaming),
            exact=False,
        ),
    ]
    if size.device.is_cuda:
        x = torch.randn(64, 1, 28, 28)
        apart = (net(x) - net.to(size.device.torch)(x.to(size.device.torch)).cpu()).abs().max().item()
        claims.append(Claim("CPU and GPU compute the same outputs to 1e-3", apart < 1e-3, f"largest difference {apart:.1e}"))
    return claims
