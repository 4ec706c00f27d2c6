"""Three fully connected layers, and the loss of an output and a target whose shapes differ.

The lecture's net and its dummy target run as on the slide. Then the same net, with one output, is trained twice from the
same weights on the same data: once with a target of shape (N,), which broadcasts, and once with a target of shape (N, 1).
"""

import copy
import warnings
from dataclasses import dataclass

import networkx as nx
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.graph import draw_graph
from hpml_lab.core.system.attempt import attempt
from hpml_lab.nets.lessons.networks import Layer, ThreeLayerNet, layer_shapes, parameter_count, shape_graph

NOTEBOOK = "03_nets"
QUICK = dict(samples=64, steps=300, lr=0.05)
FULL = dict(samples=512, steps=3000, lr=0.05)

BROADCAST, EQUAL = "(N, 1) and (N,)", "(N, 1) and (N, 1)"  # shapes of output and target


@dataclass
class LossCase(Row):
    """nn.MSELoss of one pair of output and target."""

    case: str = column("nn.MSELoss of")
    output: str = column("output shape")
    target: str = column("target shape")
    loss: float | None = column("loss")
    outcome: str = column("outcome")


def loss_and_warning(output: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, str]:
    """nn.MSELoss and the start of the warning that it gave, "" for none."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loss = nn.MSELoss()(output, target)
    return loss, str(caught[0].message).split(" (")[0] if caught else ""


def fit(net: nn.Module, x: torch.Tensor, target: torch.Tensor, steps: int, lr: float) -> tuple[list[float], torch.Tensor]:
    """Train a copy of `net` on MSELoss(net(x), target): the losses as printed, and the last predictions (N,)."""
    net = copy.deepcopy(net)
    optimizer, losses = torch.optim.SGD(net.parameters(), lr=lr), []
    for _ in range(steps):
        loss, _ = loss_and_warning(net(x), target)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return losses, net(x)[:, 0]


# ---- drawing -------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Top: the net as a graph; each node shows the shape of its output. Bottom: the loss of two trainings that differ only
    in the target's shape, and what the two nets predict after training. The net whose target broadcasts gives nearly the
    same value for every input."""
    figure = style.new_figure(9, 5.4)
    top, bottom = figure.subfigures(2, 1, height_ratios=[1, 2.6])
    graph = nx.DiGraph()
    for node in result.arrays["nodes"]:
        graph.add_node(node["name"], label=node["label"], kind=node["kind"])
    graph.add_edges_from(map(tuple, result.arrays["edges"]))
    draw_graph(top.subplots(), graph, font_size=8)

    curves, scatter = bottom.subplots(1, 2)
    targets = result.arrays["targets"]
    looks = ((style.RED, "s", "--"), (style.BLUE, "o", "-"))
    for (shapes, losses), (color, marker, line) in zip(result.arrays["losses"].items(), looks, strict=True):
        predictions = result.arrays["predictions"][shapes]
        curves.plot(losses, linestyle=line, color=color, label=shapes)
        scatter.plot(targets, predictions, marker, color=color, markersize=4, label=shapes)
    curves.axhline(np.var(targets), color=style.GREY, linestyle=":", label="variance of the target")
    curves.set(xlabel="training step", ylabel="MSE loss as printed", yscale="log")
    curves.set_title("Output and target shapes")
    curves.legend(fontsize=8, loc="center right")
    ends = [min(targets), max(targets)]
    scatter.plot(ends, ends, color=style.GREY, linestyle=":", linewidth=1.2, label="prediction = target")
    scatter.set(xlabel="target", ylabel="prediction after training", title="What each net has learned")
    scatter.legend(fontsize=8)
    return figure


# ---- the experiment ------------------------------------------------------------------------------------------------


@experiment("three-layer-net", lecture="L0", notebook=NOTEBOOK, draw=draw, quick=QUICK, full=FULL)
def three_layer_net(params: Params) -> Result:
    """Three fully connected layers, and a loss that broadcasts."""
    device = params.device.torch
    net, batch = ThreeLayerNet().to(device), torch.randn(4, 256).to(device)
    layers = layer_shapes(net, batch)
    total = parameter_count(net)
    whole_net = Layer("whole net", type(net).__name__, layers[0].input, layers[-1].output, total)
    cases: list[LossCase] = []
    result = Result([Table("The layers of the net", [*layers, whole_net]), Table("nn.MSELoss", cases)])

    def add_case(case: str, output: torch.Tensor, target: torch.Tensor, loss: torch.Tensor | None, outcome: str) -> None:
        value = None if loss is None else loss.item()
        cases.append(LossCase(case, str(tuple(output.shape)), str(tuple(target.shape)), value, outcome))

    # The slide's own lines: one sample, and an integer target.
    sample, target = torch.randn(256).to(device), torch.arange(1, 11, device=device)
    output = net(sample)
    loss, warning = loss_and_warning(output, target)
    float_loss, _ = loss_and_warning(net(sample), target.float())
    integers = attempt(lambda: nn.MSELoss()(target, target))
    add_case("an int64 target", output, target, loss, warning or "no warning")
    promoted = warning == "" and torch.equal(loss, float_loss)
    add_case("an int64 target, backward pass in this torch", output, target, None, attempt(loss.backward))
    add_case("an int64 output and target", target, target, None, integers)
    add_case("a float target", output, target, float_loss, f"backward {attempt(float_loss.backward)}")

    # The same target and a batch: every sample is compared with the same ten numbers.
    outputs = net(batch).detach()
    batch_loss, batch_warning = loss_and_warning(outputs, target.float())
    every_sample = torch.stack([(output - target) ** 2 for output in outputs]).mean()
    add_case("a batch of 4 and one target", outputs, target, batch_loss, f"warning: {batch_warning} …")

    # One number per sample, the most common case: (N, 1) and (N,) broadcast to (N, N).
    x = torch.randn(params.samples, 256)
    truth = (x @ torch.randn(256) / 16 + 2).to(device)
    column_target, x = truth.unsqueeze(1), x.to(device)
    single = ThreeLayerNet(outputs=1).to(device)
    first_guess = single(x).detach()
    pairs, pairs_warning = loss_and_warning(first_guess, truth)
    fixed, fixed_warning = loss_and_warning(first_guess, column_target)
    n = len(truth)
    add_case("one number per sample, broadcast", first_guess, truth, pairs, f"mean of {n * n} squares")
    add_case("one number per sample, fixed", first_guess, column_target, fixed, f"mean of {n} squares")
    split = first_guess.var(correction=0) + truth.var(correction=0) + (first_guess.mean() - truth.mean()) ** 2
    broadcast_losses, broadcast = fit(single, x, truth, params.steps, params.lr)
    fixed_losses, fitted = fit(single, x, column_target, params.steps, params.lr)
    spread = (broadcast.std() / truth.std()).item()
    mean_error = abs((broadcast.mean() - truth.mean()).item())
    error = (F.mse_loss(fitted, truth) / truth.var()).item()

    widths = [net.fc1.in_features, *(layer.out_features for layer in net.children())]
    result.key_figure("layers", "-".join(map(str, widths)), lecture="256-120-84-10")
    result.key_figure("parameters", total)
    result.claim(
        "In the forward pass the slide's int64 target is converted to float without a warning; two integer tensors raise",
        promoted and integers.startswith("NotImplementedError"),
        f"{loss.item():.4f} and {float_loss.item():.4f}; {integers}",
    )
    result.claim(
        "(4, 10) and (10,) only give a warning, and every sample is compared with the same ten numbers",
        "target size" in batch_warning and torch.allclose(batch_loss, every_sample),
        f"{batch_loss.item():.4f} and {every_sample.item():.4f}",
    )
    result.claim(
        "(N, 1) and (N,) only give a warning, and the loss is the mean over all N² pairs: "
        "var(output) + var(target) + (difference of their means)²",
        "target size" in pairs_warning and torch.allclose(pairs, split, rtol=1e-4),
        f"{pairs.item():.5f} and {split.item():.5f}",
    )
    result.claim(
        "(N, 1) and (N, 1) give no warning, and the loss is the mean over the N samples",
        fixed_warning == "" and torch.allclose(fixed, (first_guess[:, 0] - truth).square().mean()),
        f"{fixed.item():.5f}",
    )
    result.claim(
        "Trained on the broadcast loss, the net gives nearly the same value for every input: the mean of the targets",
        spread < 0.1 and mean_error < 0.1,
        f"spread {spread:.3f} of the targets'",
    )
    result.claim(
        "Trained on the fixed loss, the same net fits the targets", error < 0.1, f"error {error:.1e} of the targets' variance"
    )
    graph = shape_graph(net, batch)
    result.arrays = {
        "nodes": [{"name": name, **data} for name, data in graph.nodes(data=True)],
        "edges": [list(edge) for edge in graph.edges],
        "losses": {BROADCAST: broadcast_losses, EQUAL: fixed_losses},
        "predictions": {BROADCAST: broadcast.tolist(), EQUAL: fitted.tolist()},
        "targets": truth.tolist(),
    }
    return result
