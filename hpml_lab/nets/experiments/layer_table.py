"""Where the parameters, the FLOPs and the memory of five known nets are, layer by layer, counted from shapes."""

import math
from dataclasses import dataclass

import torch
from torch import nn

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.timing.counting import saved_tensors
from hpml_lab.nets.lessons.layer_costs import BETWEEN, LayerCosts, layer_costs
from hpml_lab.nets.lessons.networks import parameter_count

NOTEBOOK = "03_nets"
NETS = ("alexnet", "vgg19", "inception_v3", "resnet18", "resnet50")
QUICK = dict(batch=8, ran=2)
FULL = dict(batch=256, ran=32)
SIDE = {"inception_v3": 299}  # pixels; 224 else
PRODUCTS = ("Conv2d", "Linear")
WHAT = {"parameters": "parameters", "flops": "FLOPs", "kept": "kept for\nthe backward pass"}


@dataclass
class NetCosts(Row):
    """One net: all its layers together, for one image; `products` are the layers that multiply, each with what follows it."""

    net: str = column("net")
    side: int = column("image", "pixels")
    layers: int = column("layers that multiply")
    parameters: int = column("parameters")
    gflop: float = column("forward pass", "GFLOP an image")
    kept: float = column("kept for the backward pass", "MB an image")
    weights: float = column("its parameters", "MB")
    field: str = column("receptive field of the last convolution", "pixels")


def built(name: str) -> tuple[nn.Module, int]:
    """(a net of torchvision on the device meta, the side of its images): no weights are drawn or downloaded."""
    from torchvision.models import get_model  # late: this import takes seconds

    options = {"init_weights": False} if name == "inception_v3" else {}
    with torch.device("meta"):
        return get_model(name, weights=None, **options), SIDE.get(name, 224)


def published(name: str) -> tuple[int, float]:
    """(parameters, 10⁹ multiplications with an addition for one image) as torchvision's own page of the net has them."""
    from torchvision.models import get_model_weights

    meta = get_model_weights(name).DEFAULT.meta
    return meta["num_params"], meta["_ops"]


def by_product(rows: list[LayerCosts]) -> list[dict[str, float | str]]:
    """The rows as shares in percent of the net, one entry for each layer that multiplies and what follows up to the next."""
    totals = {what: sum(getattr(row, what) for row in rows) for what in WHAT}
    found: list[dict[str, float | str]] = []
    for row in rows:
        if row.kind in PRODUCTS or not found:
            found.append({"kind": row.kind, **dict.fromkeys(WHAT, 0.0)})
        for what, total in totals.items():
            found[-1][what] += 100 * getattr(row, what) / total
    return found


def reach(net: nn.Sequential, side: int) -> tuple[int, int]:
    """(rows, columns) of the image that change the middle value of net(image): where its gradient is not 0.

    So that no path is lost, all weights are positive and no maximum chooses: pooling averages here.
    """
    layers = []
    for layer in net:
        if isinstance(layer, nn.MaxPool2d):
            layers.append(nn.AvgPool2d(layer.kernel_size, layer.stride, layer.padding))
        elif isinstance(layer, nn.Conv2d):
            again = nn.Conv2d(
                layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, layer.padding, dtype=torch.float64
            )
            nn.init.constant_(again.weight, 1 / again.weight[0].numel())
            layers.append(again)
    image = torch.ones(1, 3, side, side, dtype=torch.float64, requires_grad=True)
    y = nn.Sequential(*layers)(image)
    y[0, 0, y.shape[2] // 2, y.shape[3] // 2].backward()
    rows, columns = (image.grad[0].abs().sum(0) > 0).nonzero(as_tuple=True)
    return int(rows.max() - rows.min()) + 1, int(columns.max() - columns.min()) + 1


def kept_by_a_run(name: str, batch: int) -> tuple[int, int]:
    """(bytes that a real forward pass on the CPU keeps, bytes counted from shapes)."""
    net, side = built(name)
    counted = sum(row.kept for row in layer_costs(net, torch.empty(batch, 3, side, side)))
    net, x = net.to_empty(device="cpu"), torch.zeros(batch, 3, side, side)
    for tensor in [*net.parameters(), *net.buffers()]:
        nn.init.zeros_(tensor)
    with saved_tensors([*net.parameters(), *net.buffers(), x]) as saved:
        output = net(x)
    del output
    return sum(saved.values()), counted


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """A column for each net, a bar for each layer that multiplies, in order: its share of the parameters, of the FLOPs and of
    the bytes kept for the backward pass, with what follows it up to the next such layer. Blue: convolutions; orange with lines:
    fully connected layers. Look for the row in which the highest bars come first, and for the one in which they come last."""
    shares = result.arrays["shares"]
    figure = style.new_figure(10.5, 5.2)
    axes = figure.subplots(len(WHAT), len(shares), sharey="row", squeeze=False)
    for column_, (net, found) in enumerate(shares.items()):
        axes[0][column_].set_title(net)
        axes[-1][column_].set_xlabel("layers, in order")
        for (what, label), of_net in zip(WHAT.items(), axes, strict=True):
            axis = of_net[column_]
            for conv in (True, False):
                chosen = [(n, each[what]) for n, each in enumerate(found) if (each["kind"] == "Conv2d") == conv]
                color, hatch = (style.BLUE, None) if conv else (style.ORANGE, "///")
                axis.bar(*zip(*chosen, strict=True), width=0.9, color=color, hatch=hatch)
            axis.set(xticks=[], ylim=(0, None))
            if column_ == 0:
                axis.set_ylabel(f"{label}, %")
    return figure


# ---- the experiment --------------------------------------------------------------------------------------------------


@experiment("layer-table", lecture="own", notebook=NOTEBOOK, draw=draw, quick=QUICK, full=FULL)
def layer_table(params: Params) -> Result:
    """Where the parameters, the FLOPs and the memory of five known nets are, layer by layer."""
    rows, shares, costs, kept_by = [], {}, {}, {}
    counts, differs = [], []
    for name in NETS:
        net, side = built(name)
        alone = layer_costs(net.eval(), torch.empty(1, 3, side, side))
        found = costs[name] = layer_costs(net.train(), torch.empty(params.batch, 3, side, side))
        differs += [row.name for row in alone + found if row.flops != (row.formula or 0)]
        flops = sum(row.flops for row in alone)
        counts.append((parameter_count(net), flops / 2e9, *published(name)))
        multiplied = [row for row in alone if row.kind in PRODUCTS]
        last = next(row for row in reversed(multiplied) if row.field)
        rows.append(
            NetCosts(
                net=name,
                side=side,
                layers=len(multiplied),
                parameters=parameter_count(net),
                gflop=flops / 1e9,
                kept=sum(row.kept for row in found) / params.batch / 1e6,
                weights=4 * parameter_count(net) / 1e6,
                field=last.field,
            )
        )
        kept_by[name] = {}
        for row in found:
            kept_by[name][row.kind] = kept_by[name].get(row.kind, 0.0) + row.kept / params.batch / 1e6
        shares[name] = by_product([row for row in found if row.name != BETWEEN])
    by_name = {row.net: row for row in rows}
    layers = [row for row in costs["alexnet"] if row.name != BETWEEN]
    result = Result(
        [Table("Five nets", rows), Table(f"AlexNet, a batch of {params.batch}", layers)],
        arrays={"shares": shares, "kept_by": kept_by},  # % of the net; MB an image by the kind of layer
    )
    vgg, resnet = by_name["vgg19"], by_name["resnet50"]
    result.key_figure("kept for the backward pass, ResNet-50 over VGG-19", resnet.kept / vgg.kept, "times")
    result.key_figure("FLOPs, VGG-19 over ResNet-50", vgg.gflop / resnet.gflop, "times")
    result.claim(
        "In each layer the FLOPs by the formula are those that torch's FlopCounterMode counts; all others are 0",
        not differs,
        f"{sum(len(found) - 1 for found in costs.values())} calls of layers of {len(rows)} nets",
    )
    result.claim(
        "Parameters and FLOPs of each net are the published ones, a multiplication and its addition being two FLOPs",
        all(count == known and abs(gmac - ops) < 0.001 for count, gmac, known, ops in counts),
        ", ".join(f"{name} {gmac:.3f}·10⁹" for name, (_, gmac, *_) in zip(NETS, counts, strict=True)),
    )
    of_parameters, of_flops = (
        sum(getattr(row, what) for row in layers if row.kind == "Linear") / sum(getattr(row, what) for row in layers)
        for what in ("parameters", "flops")
    )
    result.claim(
        "AlexNet's fully connected layers have more than nine tenths of its parameters, and do less than a tenth of its FLOPs",
        of_parameters > 0.9 and of_flops < 0.1,
        f"{100 * of_parameters:.0f} % and {100 * of_flops:.0f} %",
    )
    result.claim(
        "ResNet-50 has a fifth of VGG-19's parameters and of its FLOPs, and keeps more for the backward pass",
        max(resnet.parameters / vgg.parameters, resnet.gflop / vgg.gflop) < 0.22 and resnet.kept > vgg.kept,
        f"{resnet.kept:.0f} and {vgg.kept:.0f} MB an image",
    )
    ran, counted = kept_by_a_run("resnet18", params.ran)
    result.claim(
        "A forward pass of ResNet-18 keeps as many bytes as its shapes say",
        ran == counted,
        f"{ran / 1e6:.1f} MB for {params.ran} images",
    )
    [pooled] = [row for row in layers if row.name == "features.12"]
    seen = reach(built("alexnet")[0].features, 256)
    result.claim(
        "One value of AlexNet's last map of features sees what the formula says: its gradient is 0 everywhere else",
        seen == pooled.sees and math.prod(seen) > 0,
        f"{seen[0]} × {seen[1]} pixels",
    )
    return result
