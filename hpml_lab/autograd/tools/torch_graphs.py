"""The graphs that torch builds, made visible: of gradients, and of a model's modules.

grad_fn_graph(loss, {"w": w})    what `loss.backward()` will follow
model_graph(net, x, depth=2)     modules, functions and shapes of net(x), drawn by `model_picture`
"""

import io
import subprocess
from dataclasses import dataclass

import networkx as nx
import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import nn

from hpml_lab.core.show import style
from hpml_lab.core.show.graph import chain_figure
from hpml_lab.core.show.picture import picture
from hpml_lab.core.system.attempt import error_message_of
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.installed import find_tool, need
from hpml_lab.core.system.net_copies import copy_of

RENDERERS = ("networkx", "graphviz")


# ---- the graph of gradients --------------------------------------------------------------------------------


def grad_fn_graph(root: torch.Tensor, names: dict[str, torch.Tensor] | None = None) -> nx.DiGraph:
    """The graph that autograd recorded for `root`, with edges in the direction of the forward pass.

    Each node is a `grad_fn`, the function that carries a gradient back through one operation; leaves are AccumulateGrad, which
    adds to `.grad` of a tensor. Constants and tensors that do not require a gradient do not appear.
    names  {name: leaf tensor} labels the leaves
    """
    if root.grad_fn is None:
        raise ValueError("this tensor has no grad_fn: nothing that requires a gradient led to it")
    names = {id(tensor): name for name, tensor in (names or {}).items()}
    graph, numbers, waiting = nx.DiGraph(), {root.grad_fn: 0}, [root.grad_fn]
    while waiting:
        function = waiting.pop()
        leaf = getattr(function, "variable", None)
        title = type(function).__name__
        if leaf is not None:
            shape = f" {tuple(leaf.shape)}" if leaf.ndim else ""
            title = f"{names.get(id(leaf), 'leaf')}{shape}\n{title}"
        kind = "output" if function is root.grad_fn else "operation" if leaf is None else "leaf"
        graph.add_node(numbers[function], label=title, kind=kind)
        for parent, _ in function.next_functions:
            if parent is not None:  # None stands for an operand that needs no gradient
                if parent not in numbers:
                    numbers[parent] = len(numbers)
                    waiting.append(parent)
                graph.add_edge(numbers[parent], numbers[function])
    return graph


# ---- the graph of a model ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelGraph:
    """A model's graph, ready for both renderers.

    graph  for networkx: nodes 0, 1, … carry `label` (name and output shape) and `kind`
    dot    for graphviz: torchview's own text in the DOT language
    """

    graph: nx.DiGraph
    dot: str


def model_graph(model: nn.Module, *inputs: torch.Tensor, depth: int = 3) -> ModelGraph:
    """Record `model(*inputs)` with torchview: modules and functions down to `depth` levels of nesting, with shapes.

    On the device "meta" a model has shapes but no numbers, so even a large one costs neither memory nor time.
    """
    if not inputs or not all(isinstance(tensor, torch.Tensor) for tensor in inputs):
        raise LabError(
            "a model is drawn from the tensors that it is called with.", "Give them after the model: model_graph(net, x)."
        )
    model = copy_of(model)  # torchview moves it to the device, and a forward pass changes the averages of BatchNorm
    mode, device = "train" if model.training else "eval", inputs[0].device
    try:
        drawn = need("torchview").draw_graph(model, input_data=inputs, device=device, depth=depth, mode=mode)
    except RuntimeError as error:
        cause = error.__cause__ or error.__context__ or error
        raise LabError(
            f"the model does not run on these inputs ({error_message_of(cause)}).", "Try model(*inputs) first."
        ) from error
    kinds = {"TensorNode": "leaf", "FunctionNode": "operation", "ModuleNode": "module"}
    graph = nx.DiGraph()
    for edge in drawn.edge_list:
        start, end = (drawn.id_dict[node.node_id] for node in edge)
        for node, number in zip(edge, (start, end), strict=True):
            kind = kinds[type(node).__name__]
            shapes = [node.tensor_shape] if kind == "leaf" else node.output_shape
            name = node.name.replace("auxiliary-tensor", "input-tensor")  # torchview's inner name for an input
            shown = ", ".join(str(tuple(shape)) for shape in shapes)
            kind = "output" if name == "output-tensor" else kind
            graph.add_node(number, label=f"{name}\n{shown}", kind=kind)
        graph.add_edge(start, end)
    return ModelGraph(graph, drawn.visual_graph.source)


def _dot(text: str) -> bytes:
    """The PNG that graphviz makes of a DOT text."""
    program = find_tool("dot")
    fix = 'Install graphviz (apt-get install graphviz, or conda install graphviz), or use the renderer "networkx".'
    if program is None:
        raise LabError("The program `dot` of graphviz is not installed.", fix)
    done = subprocess.run([program, "-Tpng", "-Gdpi=80"], input=text.encode(), capture_output=True, timeout=60)
    if done.returncode:
        raise LabError(f"graphviz could not draw this graph: {done.stderr.decode()[:200]}", fix)
    return done.stdout


def model_figure(model: ModelGraph, renderer: str = "networkx") -> Figure:
    """A model's graph, drawn by "networkx" (always available) or by the program "graphviz"."""
    if renderer not in RENDERERS:
        raise LabError(f"{renderer!r} is not a valid renderer.", f"Use {' or '.join(RENDERERS)}.")
    return _framed(_dot(model.dot)) if renderer == "graphviz" else chain_figure({"": model.graph})


@picture
def model_picture(model: ModelGraph, renderer: str = "networkx"):
    """A network from input to output: each box shows a module or function and its shapes."""
    return model_figure(model, renderer)


def _framed(png: bytes) -> Figure:
    """A PNG as a figure of its size."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    figure = style.new_figure(image.width / 100, image.height / 100)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.imshow(image, interpolation="none")
    axes.set_axis_off()
    return figure
