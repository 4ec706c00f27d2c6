"""Shapes, strides and storage: which expressions share memory with a tensor and which copy it."""

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.patches import Rectangle

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.system.attempt import attempt
from hpml_lab.tensors.lessons.memory import positions, shares_memory


@dataclass
class Expression(Row):
    """A tensor made from `x`, and where its elements lie."""

    text: str = column("expression")
    shape: str = column("shape")
    dtype: str = column("dtype")
    stride: str = column("stride")
    contiguous: bool = column("contiguous")
    memory: str = column("memory")


@dataclass
class Construction(Row):
    """A tensor made from nothing or from Python numbers, and the dtype that torch chose."""

    text: str = column("expression")
    shape: str = column("shape")
    dtype: str = column("dtype")
    values: str = column("values")


@dataclass
class Move(Row):
    """What `.to` returns."""

    text: str = column("expression")
    device: str = column("device")
    dtype: str = column("dtype")
    returns: str = column("returns")
    numbers: str = column("first row")


@dataclass
class Arithmetic(Row):
    """An element-wise operation on [1, 2, 3] and [4, 5, 6]."""

    text: str = column("expression")
    values: str = column("values")
    device: str = column("device")


def draw(result: Result):
    """The memory of a 3 × 4 tensor as a strip of twelve cells. Each line is one view of it: the shaded cells are those that
    the view reads, numbered in the view's own order."""
    views = result.arrays["positions"]
    figure = style.new_figure(8, 0.55 * len(views) + 1.2)
    axes = figure.subplots()
    for line, read in enumerate(views.values()):
        for cell in range(12):
            color = style.BLUE if cell in read else "none"
            axes.add_patch(Rectangle((cell, -line), 0.94, 0.8, facecolor=color, edgecolor=style.GREY))
            if cell in read:
                at = cell + 0.47, 0.4 - line
                axes.text(*at, read.index(cell), ha="center", va="center", fontsize=9, color="white")
    axes.set_yticks([0.4 - line for line in range(len(views))], list(views))
    axes.set_xticks([cell + 0.47 for cell in range(12)], range(12))
    axes.set(xlim=(-0.1, 12.1), ylim=(0.8 - len(views), 1), xlabel="position in memory, in elements")
    axes.grid(False)
    axes.tick_params(length=0)
    return figure


CONSTRUCTIONS = (
    "torch.zeros(2, 3)",
    "torch.ones(2, 3)",
    "torch.rand(1000)",
    "torch.tensor([1, 2])",
    "torch.tensor([1.0, 2.0])",
    "torch.from_numpy(np.array([1.0, 2.0]))",
    "torch.tensor([True, False])",
)


def construction(text: str, tensor: torch.Tensor) -> Construction:
    values = f"{tensor.min():.3f} to {tensor.max():.3f}" if tensor.numel() > 6 else str(tensor.tolist())
    return Construction(text, str(tuple(tensor.shape)), str(tensor.dtype), values)


def moves_of(x: torch.Tensor, device: torch.device) -> list[Move]:
    """What `.to` returns for x, which lies on the CPU: first for its own device, last for meta."""
    targets = {"x.to('cpu')": "cpu", "x.to(torch.float64)": torch.float64}
    if device.type != "cpu":
        targets[f"x.to('{device}')"] = device
    rows = []
    for text, target in (targets | {"x.to('meta')": "meta"}).items():
        moved = x.to(target)
        returns = "x itself" if moved is x else "a new tensor"
        outcome = attempt(moved[0].tolist)
        numbers = str(moved[0].tolist()) if outcome == "works" else outcome
        rows.append(Move(text, str(moved.device), str(moved.dtype), returns, numbers))
    return rows


@experiment("tensor-basics", lecture="L0 L2", notebook="01_tensors", draw=draw, uses=("cuda",), same_picture=True)
def tensor_basics(params: Params) -> Result:
    """Shapes, strides, views and copies, and the gradient of a sum."""
    device = params.device.torch
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
    expressions = [
        Expression(
            text,
            str(tuple(tensor.shape)),
            str(tensor.dtype),
            str(tensor.stride()),
            tensor.is_contiguous(),
            "shared with x" if shares_memory(tensor, x) else "its own",
        )
        for text, tensor in made.items()
    ]

    array[0, 1] = 100.0  # through NumPy: must be seen in every view, and in no copy
    seen = [float(made[text].flatten()[i]) for text, i in (("x = torch.from_numpy(a)", 1), ("x[:, 1]", 0), ("x[0, :]", 1))]
    unseen = [float(made[text].flatten()[1]) for text in ("x.clone()", "torch.tensor(a)", "x[[0, 2]]")]
    array[0, 1] = 1.0

    a = torch.tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)
    b = torch.tensor([4.0, 5.0, 6.0], device=device, requires_grad=True)
    sums = {"a + b": a + b, "a - b": a - b, "a * b": a * b, "a / b": a / b}
    sums["a + b"].backward(torch.ones_like(a))
    arithmetic = [Arithmetic(text, str([round(v, 4) for v in t.tolist()]), t.device.type) for text, t in sums.items()]

    built = {text: eval(text, {"torch": torch, "np": np}) for text in CONSTRUCTIONS}
    moves = moves_of(x, device)
    tall, row = torch.arange(3.0).reshape(3, 1), torch.arange(4.0)
    views = {text: tensor for text, tensor in made.items() if shares_memory(tensor, x)}
    result = Result(
        [
            Table("Expressions of a 3 × 4 tensor x", expressions),
            Table("Constructed tensors", [construction(text, tensor) for text, tensor in built.items()]),
            Table("Moves of x", moves),
            Table("Element-wise arithmetic", arithmetic),
        ]
    )
    result.claim("A write through NumPy is visible through `from_numpy` and through slices", seen == [100.0] * 3, str(seen))
    result.claim(
        "`clone`, `torch.tensor` and indexing with a list copy, and do not see the write", unseen == [1.0] * 3, str(unseen)
    )
    result.claim(
        "A transpose is a view; reshaping it has to copy", shares_memory(x.T, x) and not shares_memory(x.T.reshape(12), x)
    )
    result.claim(
        "offset + index · stride, computed by hand, finds the elements of every view",
        all(x.flatten()[positions(tensor)].tolist() == tensor.flatten().tolist() for tensor in views.values()),
    )
    result.claim(
        "Broadcasting (3, 1) with (4,) gives (3, 4), and `expand` repeats a value with stride 0, without memory",
        (tall + row).shape == (3, 4) and tall.expand(3, 4).stride() == (1, 0),
    )
    result.claim(
        "`.to` returns the same tensor if device and dtype fit, and else a new one: x itself is never moved",
        [move.returns for move in moves] == ["x itself", *["a new tensor"] * (len(moves) - 1)] and x.device.type == "cpu",
    )
    if not params.device.is_cuda:
        result.notes.append(
            "No CUDA GPU here: only the device meta is another one. With a GPU the same code moves x to cuda:0, too."
        )
    result.arrays["positions"] = {text: positions(t) for text, t in views.items() if 0 not in t.stride()}
    return result
