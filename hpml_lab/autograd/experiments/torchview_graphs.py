"""Networks drawn from their modules, with the shapes between them."""

from dataclasses import dataclass

import torch
from torch import nn

from hpml_lab.autograd.tools.torch_graphs import ModelGraph, model_graph
from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show.graph import chain_figure, graph_from_record, graph_record
from hpml_lab.core.show.progress import progress
from hpml_lab.core.system.installed import find_tool

QUICK = dict(more=())
FULL = dict(more=("resnet50", "densenet121", "vit_b_16"))
DRAWN = ("one block of ResNet-18", "small Transformer")


@dataclass
class NetworkGraph(Row):
    """The graph of one network, down to a depth of nesting."""

    network: str = column("network")
    parameters: int = column("parameters")
    depth: int = column("depth")
    nodes: int = column("nodes")
    edges: int = column("edges")
    input: str = column("input")
    output: str = column("output")
    merges: int = column("nodes with two inputs")


class SmallTransformer(nn.Module):
    """Token numbers (N, T) → logits (N, T, words): embedding, one encoder layer, a linear head."""

    def __init__(self, words: int = 100, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, heads, dim_feedforward=2 * width, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=1, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embed(tokens)))


def draw(result: Result):
    """Two networks as torchview records them: one block of ResNet-18 and a small Transformer. Each box shows the shape that
    leaves it. A line around boxes is a skip connection: its tensor is added further down to what the boxes computed."""
    return chain_figure({name: graph_from_record(result.arrays["graphs"][name]) for name in DRAWN})


def recorded_networks(more: tuple[str, ...]) -> dict[str, tuple[nn.Module, torch.Tensor, int]]:
    """{name: (network, input, depth)}, all on the device "meta": shapes without numbers."""
    from torchvision import models

    with torch.device("meta"):
        image = torch.zeros(1, 3, 224, 224)
        resnet = models.resnet18(weights=None)
        chosen = {
            "MLP 64-32-10": (nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)), torch.zeros(1, 64), 1),
            "one block of ResNet-18": (resnet.layer2[0], torch.zeros(1, 64, 56, 56), 1),
            "ResNet-18, blocks closed": (resnet, image, 2),
            "small Transformer": (SmallTransformer(), torch.zeros(2, 8, dtype=torch.long), 3),
            "ResNet-18, all open": (resnet, image, 3),
        }
        return chosen | {name: (getattr(models, name)(weights=None), image, 3) for name in more}


@experiment(
    "torchview-graphs",
    lecture="L0",
    notebook="02_autograd",
    draw=draw,
    quick=QUICK,
    full=FULL,
    uses=("graphviz",),
    same_picture=True,
)
def torchview_graphs(params: Params) -> Result:
    """Networks drawn from their modules, with shapes, with and without graphviz."""
    recorded: dict[str, ModelGraph] = {}
    rows, shapes_agree, merges = [], True, {}
    chosen = recorded_networks(params.more)
    for name, (net, x, depth) in progress(chosen.items(), "recording models"):
        recorded[name] = model_graph(net, x, depth=depth)
        graph = recorded[name].graph
        [output] = [data["label"].split("\n")[1] for _, data in graph.nodes(data=True) if data["kind"] == "output"]
        shapes_agree &= output == str(tuple(net(x).shape))
        merges[name] = sum(degree == 2 for _, degree in graph.in_degree)
        parameters = sum(p.numel() for p in net.parameters())
        sizes = len(graph), graph.number_of_edges()
        rows.append(NetworkGraph(name, parameters, depth, *sizes, str(tuple(x.shape)), output, merges[name]))

    result = Result([Table("Networks as graphs", rows)])
    result.arrays["graphs"] = {name: graph_record(recorded[name].graph) for name in DRAWN}
    result.key_figure("skip connections of ResNet-18", merges["ResNet-18, all open"])
    result.claim("The output shapes in the graphs are those that the networks give", shapes_agree)
    result.claim("ResNet-18 has 8 skip connections: 8 additions with two inputs each", merges["ResNet-18, all open"] == 8)
    result.claim(
        "A network on the device meta has shapes and no numbers",
        all(p.is_meta for net, _, _ in chosen.values() for p in net.parameters()),
    )
    if not find_tool("dot"):
        result.notes.append(
            "No graphviz here: the pictures are drawn by networkx and matplotlib alone. For graphviz's own layout: "
            "sudo apt-get install graphviz, or conda install graphviz."
        )
    return result
