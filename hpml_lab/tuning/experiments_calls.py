"""The experiments of notebook 10 on needless work: a bias that is subtracted again, and gradients set to zero."""

from collections import Counter

import torch
from torch import nn
from torch.nn import functional as F

from hpml_lab.core import style
from hpml_lab.core.counting import kernels, operators, peak_bytes
from hpml_lab.core.device import NO_CUDA
from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.result import Claim, Result
from hpml_lab.core.timing import interleaved
from hpml_lab.tuning.blocks import deep_mlp, gradient_bytes, images_and_classes, resnet

NOTEBOOK = "10_tuning"


def train_step(net: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> None:
    """One step as every loop has it today: gradients dropped, forward, backward, update."""
    optimizer.zero_grad(set_to_none=True)
    F.cross_entropy(net(x), y).backward()
    optimizer.step()


def sgd(net: nn.Module, **options: float) -> torch.optim.SGD:
    """SGD that updates one parameter after the other, so that what each parameter costs can be counted."""
    return torch.optim.SGD(net.parameters(), lr=0.01, foreach=False, **options)


# --- conv-bias-bn ------------------------------------------------------------------------------------------------------------


def draw_conv_bias_bn(result: Result):
    """Left: parameter tensors, operator calls and, on a GPU, kernels of a training step of ResNet-18 with a bias in each
    convolution and without. Right: the time of that step; bars show the middle half of the samples."""
    figure = style.new_figure(8.5, 3.4)
    left, right = figure.subplots(1, 2, width_ratios=(2.2, 1))
    counts = [name for name in ("parameter tensors", "operators", "kernels") if name in result.rows[0]]
    for number, (row, colour, hatch) in enumerate(zip(result.rows, (style.ORANGE, style.BLUE), (None, "///"), strict=True)):
        places = [place + 0.4 * number for place in range(len(counts))]
        bars = left.bar(
            places, [row[name] for name in counts], 0.4, color=colour, hatch=hatch, edgecolor="white", label=row["convolutions"]
        )
        left.bar_label(bars, fontsize=8)
        right.bar([number], [row["step, ms"]], yerr=[row["± ms"] / 2], color=colour, hatch=hatch, edgecolor="white")
    left.set_xticks([place + 0.2 for place in range(len(counts))], counts)
    left.set_ylabel("number in one step")
    left.legend(loc="upper left")
    for axes in (left, right):
        axes.set_axisbelow(True)
        axes.margins(y=0.1)
    right.set_xticks([0, 1], ["with bias", "without"])
    right.set_ylabel("time of a step in ms")
    return figure


@experiment(
    "conv-bias-bn",
    lecture="L4",
    notebook=NOTEBOOK,
    draw=draw_conv_bias_bn,
    quick=dict(batch=4, side=32, samples=3),
    full=dict(batch=64, side=224, samples=9),
    uses=("cuda",),
)
def conv_bias_bn(size: Size) -> Result:
    """A bias before batch norm: computed, subtracted again, and trained with a gradient of zero."""
    device = size.device.torch
    nets = {}
    for name, bias in (("with bias", True), ("without bias", False)):
        torch.manual_seed(0)
        nets[name] = resnet(bias).to(device)
    x, y = images_and_classes(size.batch, size.side, device)

    # The comparison, in float64: rounding then stands far below everything that a bias could change.
    outputs, means, norms, grads = {}, {}, {}, {}
    few, classes = x[:4].double(), y[:4]
    for name, net in nets.items():
        net.double().train()
        out = net(few)
        F.cross_entropy(out, classes).backward()
        outputs[name], means[name] = out.detach(), net.bn1.running_mean.clone()
        norms[name] = net.bn1.momentum
        grads[name] = {key: parameter.grad for key, parameter in net.named_parameters()}
    convs = [key for key, layer in nets["with bias"].named_modules() if isinstance(layer, nn.Conv2d)]
    bias_gradient = max(grads["with bias"][f"{key}.bias"].abs().max().item() for key in convs)
    weight_gradient = min(grads["with bias"][f"{key}.weight"].abs().max().item() for key in convs)
    same = {key: grad for key, grad in grads["without bias"].items()}
    gradients_apart = max((grads["with bias"][key] - g).abs().max().item() / g.abs().max().item() for key, g in same.items())
    apart = ((outputs["with bias"] - outputs["without bias"]).abs().max() / outputs["without bias"].abs().max()).item()
    evaluated = {name: net.eval()(few).detach() for name, net in nets.items()}
    returned = (evaluated["with bias"] - evaluated["without bias"]).abs().max() / evaluated["without bias"].abs().max()
    lag = means["with bias"] - means["without bias"] - norms["with bias"] * nets["with bias"].conv1.bias.detach()

    rows, works = [], {}
    for name, net in nets.items():
        net.float().train()
        net.zero_grad()
        optimizer = sgd(net)
        works[name] = lambda net=net, optimizer=optimizer: train_step(net, optimizer, x, y)
        called = operators(works[name])
        rows.append(
            {
                "convolutions": name,
                "parameters": sum(parameter.numel() for parameter in net.parameters()),
                "parameter tensors": len(list(net.parameters())),
                "operators": len(called),
                "bytes moved, MB": sum(one.bytes for one in called) / 1e6,
            }
        )
        if size.device.is_cuda:
            rows[-1]["kernels"] = sum(one.calls for one in kernels(works[name], device))
    times = interleaved(works, samples=size.samples)
    for row in rows:
        row["step, ms"] = times[row["convolutions"]].seconds * 1e3
        row["± ms"] = times[row["convolutions"]].spread * 1e3
    biased, plain = rows
    ratio = biased["step, ms"] / plain["step, ms"]
    claims = [
        Claim("in training both nets give the same outputs: 1e-10 of the largest, in float64", apart <= 1e-10, f"{apart:.1e}"),
        Claim(
            "the weights' gradients are the same too: 1e-8 of the largest of each",
            gradients_apart <= 1e-8,
            f"{gradients_apart:.1e}",
        ),
        Claim(
            "a bias' gradient is zero but for rounding: below 1e-10 of any layer's largest weight gradient",
            bias_gradient <= 1e-10 * weight_gradient,
            f"{bias_gradient:.1e} against {weight_gradient:.1e}",
        ),
        Claim(
            "20 biases with 4800 numbers go",
            (biased["parameters"] - plain["parameters"], biased["parameter tensors"] - plain["parameter tensors"])
            == (4800, 20),
        ),
        Claim(
            "a step calls 20 operators less, one update for each bias, and moves fewer bytes",
            biased["operators"] - plain["operators"] == 20 and biased["bytes moved, MB"] > plain["bytes moved, MB"],
            f"{biased['operators']} → {plain['operators']}",
        ),
        Claim(
            "after one batch the running mean holds only a tenth (its momentum) of the bias, so evaluation still differs",
            lag.abs().max().item() <= 1e-12 and norms["with bias"] == 0.1 and returned.item() > 1e-3,
            f"{returned.item():.1e} of the largest output",
        ),
        Claim("the step is faster without", ratio > 1, f"{ratio:.2f} times", exact=False),
    ]
    quantities = {"operators saved": biased["operators"] - plain["operators"], "step without bias, times faster": ratio}
    if size.device.is_cuda:
        quantities["kernels saved"] = biased["kernels"] - plain["kernels"]
    notes = []
    if not size.device.is_cuda:
        what = "a CPU adds the bias inside its convolution, so the time saved lies in the noise"
        notes.append(NO_CUDA.format(what=what, slug="conv-bias-bn"))
    return Result(rows, claims, quantities, notes)


# --- zero-grad ---------------------------------------------------------------------------------------------------------------

WAYS = ("memset, one by one", "memset, all at once", "set to None")


def clear(net: nn.Module, way: str) -> None:
    """Clear the gradients of `net` in one of three ways: the old loop, its form for many tensors, and today's default."""
    if way == "memset, all at once":
        held = [parameter.grad for parameter in net.parameters() if parameter.grad is not None]
        if held:
            torch._foreach_zero_(held)
    else:
        net.zero_grad(set_to_none=way == "set to None")


def idle_parameter_moves(way: str, device: torch.device) -> bool:
    """Whether a layer moves in a step that does not use it, after one that did (SGD with momentum)."""
    torch.manual_seed(0)
    net = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)]).to(device)
    optimizer = sgd(net, momentum=0.9)
    x = torch.ones(2, 4, device=device)
    before = net[1].weight.detach().clone()
    for used in ((0, 1), (0,)):
        clear(net, way)
        before.copy_(net[1].weight.detach())
        sum(net[layer](x).square().sum() for layer in used).backward()
        optimizer.step()
    return not torch.equal(before, net[1].weight)


def draw_zero_grad(result: Result):
    """Calls of zero_, of one call that clears all, and of add_ in a training step of ResNet-18 for three ways to clear the
    gradients (left), the time of the clearing itself (middle) and the most memory in use in a step (right)."""
    figure = style.new_figure(10, 3.4)
    calls, time, memory = figure.subplots(1, 3, width_ratios=(1.6, 1, 1))
    names = ("zero_", "_foreach_zero_", "add_")
    for number, row in enumerate(result.rows):
        look = dict(color=style.CYCLE[number], hatch=(None, "...", "///")[number], edgecolor="white")
        places = [place + 0.27 * number for place in range(len(names))]
        bars = calls.bar(places, [row[name] for name in names], 0.27, label=row["gradients cleared by"], **look)
        calls.bar_label(bars, fontsize=8)
        time.bar([number], [row["clearing, µs"]], **look)
        memory.bar([number], [row["peak, MB"]], **look)
    calls.set_xticks([place + 0.27 for place in range(len(names))], names)
    calls.set_ylabel("calls in one step")
    calls.legend(fontsize=8, loc="upper left")
    for axes in (calls, time, memory):
        axes.set_axisbelow(True)
        axes.margins(y=0.12)
    for axes, label in ((time, "time of clearing in µs"), (memory, "most memory in use in MB")):
        axes.set_xticks(range(3), ["memset\neach", "memset\nall", "None"])
        axes.set_ylabel(label)
    return figure


@experiment(
    "zero-grad",
    lecture="L4",
    notebook=NOTEBOOK,
    draw=draw_zero_grad,
    quick=dict(batch=2, side=32, samples=2),
    full=dict(batch=64, side=224, samples=9),
    uses=("cuda",),
)
def zero_grad(size: Size) -> Result:
    """Clearing gradients: a memset for each parameter, or set to None."""
    device = size.device.torch
    torch.manual_seed(0)
    net = resnet().to(device)
    optimizer = sgd(net)
    x, y = images_and_classes(size.batch, size.side, device)
    parameters = len(list(net.parameters()))
    weights = sum(parameter.nbytes for parameter in net.parameters())

    def step(way: str) -> None:
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
        clear(net, way)  # last: each way then begins with what it holds

    def clear_full(way: str, kept: list[torch.Tensor]) -> None:
        for parameter, grad in zip(net.parameters(), kept, strict=True):
            parameter.grad = grad
        clear(net, way)

    rows, held = [], {}
    for way in WAYS:
        step(way)
        called = Counter(one.name for one in operators(lambda way=way: step(way)))
        held[way] = gradient_bytes(net)
        rows.append(
            {
                "gradients cleared by": way,
                **{name: called[name] for name in ("zero_", "_foreach_zero_", "add_")},
                "operators": called.total(),
                "gradients held in the forward pass, MB": held[way] / 1e6,
                "peak, MB": (held[way] + peak_bytes(lambda way=way: step(way), device)) / 1e6,
            }
        )
    kept = [torch.zeros_like(parameter) for parameter in net.parameters()]
    clearing = interleaved({way: lambda way=way: clear_full(way, kept) for way in WAYS}, samples=size.samples)
    whole = interleaved({way: lambda way=way: step(way) for way in WAYS}, samples=size.samples)
    for row in rows:
        row["clearing, µs"] = clearing[row["gradients cleared by"]].seconds * 1e6
        row["step, ms"] = whole[row["gradients cleared by"]].seconds * 1e3
    each, at_once, none = rows
    ends = {way: trained(way, device) for way in WAYS}
    moves = {way: idle_parameter_moves(way, device) for way in WAYS}
    faster = each["clearing, µs"] / none["clearing, µs"]
    claims = [
        Claim(
            "three steps give the same parameters in all three ways, bit for bit",
            all(torch.equal(a, b) for way in WAYS for a, b in zip(ends[WAYS[0]], ends[way], strict=True)),
        ),
        Claim(
            "the loop calls one zero_ for each of 62 parameters; None calls none, and all at once is one call",
            (each["zero_"] - none["zero_"], at_once["_foreach_zero_"], parameters) == (62, 1, 62),
            f"{each['zero_']} → {none['zero_']}",
        ),
        Claim(
            "None also spares one add_ for each parameter: the backward pass writes where it added",
            each["add_"] - none["add_"] == parameters == at_once["add_"] - none["add_"],
            f"{each['add_']} → {none['add_']}",
        ),
        Claim(
            "during the forward pass a memset holds all gradients, None not one byte",
            (held[WAYS[0]], held["set to None"]) == (weights, 0),
            f"{weights / 1e6:.1f} MB",
        ),
        Claim(
            "None never needs more memory in a step",
            none["peak, MB"] <= each["peak, MB"],
            f"{each['peak, MB']:.1f} → {none['peak, MB']:.1f} MB",
        ),
        Claim(
            "they differ for a layer that a step does not use: zeros let momentum move it on, None leaves it alone",
            moves == {"memset, one by one": True, "memset, all at once": True, "set to None": False},
        ),
        Claim("the clearing itself is faster with None", faster > 1, f"{faster:.1f} times", exact=False),
    ]
    quantities = {
        "zero_ calls saved in a step": each["zero_"] - none["zero_"],
        "add_ calls saved in a step": each["add_"] - none["add_"],
        "clearing with None, times faster": faster,
        "whole step with None, times faster": each["step, ms"] / none["step, ms"],
    }
    notes = []
    if not size.device.is_cuda:
        notes.append(NO_CUDA.format(what="a call saved is no kernel launch saved", slug="zero-grad"))
    return Result(rows, claims, quantities, notes)


def trained(way: str, device: torch.device) -> list[torch.Tensor]:
    """The parameters of a small net after three steps of SGD with momentum, its gradients cleared in one of the ways."""
    torch.manual_seed(0)
    net = deep_mlp(4, 16).to(device)
    optimizer = sgd(net, momentum=0.9)
    x = torch.randn(8, 16, device=device)
    for _ in range(3):
        clear(net, way)
        net(x).square().mean().backward()
        optimizer.step()
    return [parameter.detach() for parameter in net.parameters()]
