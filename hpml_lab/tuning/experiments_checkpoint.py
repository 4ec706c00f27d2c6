"""The experiment of notebook 10 on checkpointing: keep less for the backward pass, and compute it again."""

import contextlib
import functools
import warnings
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from hpml_lab.core import style
from hpml_lab.core.attempt import attempt
from hpml_lab.core.counting import operators, peak_bytes, saved_tensors
from hpml_lab.core.device import NO_CUDA
from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.result import Claim, Result
from hpml_lab.core.timing import interleaved, measure
from hpml_lab.tuning.blocks import mlp_blocks

NOTEBOOK = "10_tuning"

recompute = functools.partial(checkpoint, use_reentrant=False)


def in_segments(net: nn.Sequential, x: torch.Tensor, segments: int) -> torch.Tensor:
    """Run `net` in `segments` equal parts, of which autograd keeps the inputs only; the rest is computed again."""
    length = len(net) // segments
    for start in range(0, len(net), length):
        x = recompute(net[start : start + length], x)
    return x


def each_linear(net: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    """The wrong choice: each linear layer alone. Its input is all it keeps, and checkpointing keeps that as well."""
    for block in net:
        x = recompute(block.second, block.gelu(recompute(block.first, x)))
    return x


def gelu_and_consumer(net: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    """The right choice: GELU with the layer that keeps its output. Recomputing stops when that output is there again."""
    for block in net:
        x = recompute(lambda hidden, block=block: block.second(block.gelu(hidden)), block.first(x))
    return x


def keep_products(net: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    """The same by a policy (selective checkpointing): keep the outputs of matrix products, compute all else again."""
    policy = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])
    for block in net:
        x = recompute(block, x, context_fn=policy)
    return x


VARIANTS: dict[str, Callable[[nn.Sequential, torch.Tensor], torch.Tensor]] = {
    "none": lambda net, x: net(x),
    "2 segments": functools.partial(in_segments, segments=2),
    "4 segments": functools.partial(in_segments, segments=4),
    "8 segments": functools.partial(in_segments, segments=8),
    "each block": functools.partial(in_segments, segments=16),
    "each linear alone": each_linear,
    "GELU + next linear": gelu_and_consumer,
    "policy: keep products": keep_products,
}


def draw_checkpointing(result: Result):
    """Left: the most memory in use and the time of a training step for each choice of what to checkpoint. Right: for single
    operators (products orange), how many megabytes of output a millisecond of computing them again gives."""
    figure = style.new_figure(10, 4.2)
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
    for number, row in enumerate(result.rows):
        colour, marker = (*style.CYCLE, style.INK)[number], (*style.MARKERS, "*")[number]
        left.plot(row["step, ms"], row["peak, MB"], marker, color=colour, markersize=9, label=row["checkpointed"])
    left.set(xlabel="time of a step in ms", ylabel="most memory in use in MB", ylim=(0, None))
    left.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    kinds = sorted(result.arrays["operators"], key=lambda one: one["MB per ms"])
    colours = [style.ORANGE if one["products"] else style.BLUE for one in kinds]
    right.barh([one["operator"] for one in kinds], [one["MB per ms"] for one in kinds], color=colours)
    right.set_axisbelow(True)
    right.set(xscale="log", xlabel="MB of output per ms")
    return figure


def operator_kinds(batch: int, width: int, device: torch.device, samples: int) -> list[dict]:
    """Output and time of single operators on x (batch, width): what a millisecond of recomputing saves."""
    x = torch.randn(batch, width, device=device, requires_grad=True)
    image = x.view(batch, 1, 1, width)
    thin = torch.randn(batch, 8, device=device, requires_grad=True)
    kinds = {
        "ReLU": lambda: F.relu(x),
        "GELU": lambda: F.gelu(x),
        "sigmoid": lambda: torch.sigmoid(x),
        "dropout": lambda: F.dropout(x, 0.5),
        "layer norm": lambda: F.layer_norm(x, (width,)),
        "batch norm": lambda: F.batch_norm(x, None, None, training=True),
        "upsampling ×4": lambda: F.interpolate(image, scale_factor=2),
        "product, depth 8": nn.Linear(8, width, device=device).forward,
        f"product, depth {width}": nn.Linear(width, width, device=device).forward,
    }
    told = []
    for name, work in kinds.items():
        products = name.startswith("product")
        if products:
            work = functools.partial(work, thin if name.endswith(" 8") else x)
        time = measure(work, samples=samples)
        output = work().nbytes
        told.append({"operator": name, "output, MB": output / 1e6, "ms": time.seconds * 1e3, "products": products})
        told[-1]["MB per ms"] = told[-1]["output, MB"] / told[-1]["ms"]
    return told


def dropout_gradients(device: torch.device, preserve: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """exp(dropout(x)) at x = 1 and the gradient of its sum, checkpointed: both are made of one mask, or of two."""
    torch.manual_seed(1)
    x = torch.ones(1000, device=device, requires_grad=True)
    y = recompute(lambda x: torch.exp(F.dropout(x, 0.5)), x, preserve_rng_state=preserve)
    y.sum().backward()
    return y.detach(), x.grad


def reentrant_forms(device: torch.device) -> dict[str, str]:
    """What each form of `checkpoint` does for a layer whose input needs no gradient, such as the first of a net."""
    layer = nn.Linear(4, 4, device=device)
    x = torch.ones(2, 4, device=device)
    told = {}
    for name, options in (("nothing said", {}), ("True", {"use_reentrant": True}), ("False", {"use_reentrant": False})):
        layer.zero_grad()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            told[name] = attempt(lambda options=options: checkpoint(layer, x, **options).sum().backward())
        if any("use_reentrant parameter should be passed" in str(one.message) for one in caught):
            told[name] += " (and a warning: pass use_reentrant)"
    return told


@experiment(
    "checkpointing",
    lecture="L4",
    notebook=NOTEBOOK,
    draw=draw_checkpointing,
    quick=dict(batch=256, width=64, depth=128, samples=3),
    full=dict(batch=2048, width=512, depth=512, samples=7),
    uses=("cuda",),
)
def checkpointing(size: Size) -> Result:
    """Keep less and compute it again: memory and time for right and wrong choices of what to checkpoint."""
    device = size.device.torch
    net = mlp_blocks(16, size.width).to(device)
    x = torch.randn(size.batch, size.width, device=device)
    unit = x.nbytes  # one activation

    def gradients(way: Callable) -> list[torch.Tensor]:
        return list(torch.autograd.grad(way(net, x).sum(), list(net.parameters())))

    def step(way: Callable) -> None:
        way(net, x).sum().backward()
        net.zero_grad()

    right = gradients(VARIANTS["none"])
    times = interleaved({name: functools.partial(step, way) for name, way in VARIANTS.items()}, samples=size.samples)
    rows = []
    for name, way in VARIANTS.items():
        called = [one.name for one in operators(functools.partial(step, way))]
        kept = saved_tensors([*net.parameters(), x]) if way is not keep_products else contextlib.nullcontext({})
        with kept as saved:  # a policy keeps tensors of its own, which hooks do not see
            way(net, x)
        rows.append(
            {
                "checkpointed": name,
                "saved, activations": sum(saved.values()) / unit if way is not keep_products else None,
                "saved, MB": sum(saved.values()) / 1e6 if way is not keep_products else None,
                "peak, MB": peak_bytes(functools.partial(step, way), device) / 1e6,
                "products forward": called.count("addmm"),
                "GELUs forward": called.count("gelu"),
                "step, ms": times[name].seconds * 1e3,
                "times as long": times[name].seconds / times["none"].seconds,
                "gradients equal": all(torch.equal(a, b) for a, b in zip(gradients(way), right, strict=True)),
            }
        )
    by = {row["checkpointed"]: row for row in rows}
    held = {name: row["saved, activations"] for name, row in by.items()}
    peaks = {name: row["peak, MB"] for name, row in by.items()}
    kinds = operator_kinds(size.batch, size.depth, device, size.samples)
    deep = next(one for one in kinds if one["operator"].startswith(f"product, depth {size.depth}"))
    pointwise = [one for one in kinds if one["operator"] in ("ReLU", "sigmoid", "upsampling ×4")]
    masks = {preserve: dropout_gradients(device, preserve) for preserve in (True, False)}
    # Where x was kept the output is exp(2) and the gradient 2·exp(2); where it was dropped they are 1 and 0.
    agree = {preserve: bool(torch.equal(y > 1.5, grad != 0)) for preserve, (y, grad) in masks.items()}
    forms = reentrant_forms(device)
    claims = [
        Claim("every choice gives the same gradients, bit for bit", all(row["gradients equal"] for row in rows)),
        Claim(
            "16 blocks keep 47 activations; in n equal segments they keep the n - 1 inputs after the first",
            [held[name] for name in list(VARIANTS)[:5]] == [47, 1, 3, 7, 15],
        ),
        Claim(
            "the peak falls up to 8 segments and is higher for 16: one segment must be there whole as well",
            peaks["none"] > peaks["2 segments"] > peaks["4 segments"] > peaks["8 segments"] < peaks["each block"],
            ", ".join(f"{peaks[name]:.1f}" for name in list(VARIANTS)[:5]) + " MB",
        ),
        Claim(
            "checkpointing each linear layer alone saves nothing: the same 47 activations, and no lower peak",
            held["each linear alone"] == 47 and peaks["each linear alone"] >= 0.99 * peaks["none"],
        ),
        Claim(
            "GELU with the layer that reads its output: 16 activations less, 16 GELUs more, not one product more",
            (held["GELU + next linear"], by["GELU + next linear"]["GELUs forward"]) == (31, 32)
            and by["GELU + next linear"]["products forward"] == 32,
        ),
        Claim(
            "the policy that keeps products repeats no product, and lowers the peak",
            by["policy: keep products"]["products forward"] == 32 and peaks["policy: keep products"] < peaks["none"],
        ),
        Claim("a checkpointed dropout draws the same mask again", agree[True]),
        Claim("with preserve_rng_state=False it draws another, and the gradient is wrong", not agree[False]),
        Claim(
            "without use_reentrant torch warns; True finds no gradient where the input needs none, False does",
            "warning" in forms["nothing said"] and forms["True"].startswith("RuntimeError") and forms["False"] == "works",
            forms["True"],
        ),
        Claim(
            "recomputing GELU costs less time than recomputing whole blocks",
            by["GELU + next linear"]["step, ms"] < by["each block"]["step, ms"],
            f"{by['GELU + next linear']['times as long']:.2f} against {by['each block']['times as long']:.2f} times as long",
            exact=False,
        ),
        Claim(
            "ReLU, sigmoid and upsampling give more memory for a millisecond than a deep product",
            all(one["MB per ms"] > deep["MB per ms"] for one in pointwise),
            f"{min(one['MB per ms'] for one in pointwise):.2g} against {deep['MB per ms']:.2g} MB per ms",
            exact=False,
        ),
    ]
    quantities = {
        **{f"peak, {name}, MB": peaks[name] for name in list(VARIANTS)[:5]},
        "8 segments, times as long": by["8 segments"]["times as long"],
        "peak, GELU + next linear, MB": peaks["GELU + next linear"],
        "GELU + next linear, times as long": by["GELU + next linear"]["times as long"],
    }
    notes = []
    if not size.device.is_cuda:
        what = "bytes are the same there, but the times are a CPU's"
        notes.append(NO_CUDA.format(what=what, slug="checkpointing"))
    return Result(rows, claims, quantities, notes, {"operators": kinds, "use_reentrant": forms})
