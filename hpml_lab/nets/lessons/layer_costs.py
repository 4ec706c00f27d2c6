"""What each layer of a net costs: parameters, values, FLOPs, bytes kept for the backward pass; and how far it sees.

Nothing is computed: the net runs on the device `meta`, whose tensors have shapes and no memory, so that VGG-19 takes no longer
than its Python.
"""

import contextlib
import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import FlopCounterMode

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.timing.counting import saved_tensors
from hpml_lab.nets.lessons.networks import parameter_count

# Behind these a value has no place in the image, or one that is not followed.
LOST = ("mm", "addmm", "bmm", "baddbmm", "upsample_", "im2col", "col2im", "grid_sampler", "fractional_")
BETWEEN = "between the layers"  # functions that `forward` calls itself, and parameters of layers that are not called


@dataclass
class LayerCosts(Row):
    """One call of a layer.

    formula  its FLOPs by the formula; None for a kind that has none
    sees     the receptive field along each axis of the image, in pixels; () where there is none
    """

    name: str = column("layer")
    kind: str = column("kind")
    output: str = column("output shape")
    parameters: int = column("parameters")
    values: int = column("values")
    flops: int = column("FLOPs")
    kept: int = column("kept for the backward pass", "bytes")
    field: str = column("receptive field", "pixels")
    formula: int | None = None
    sees: tuple[float, ...] = ()


class View(NamedTuple):
    """What one value of a feature map sees of the image along one axis: so many pixels, its neighbor `step` pixels further."""

    pixels: float
    step: float

    def through(self, taps: float, stride: float) -> "View":
        """After a kernel that reads `taps` neighbors and moves by `stride`: r ← r + (taps − 1) · step, step ← step · stride."""
        return View(self.pixels + (taps - 1) * self.step, self.step * stride)


def product_flops(layer: nn.Module, x: Tensor, y: Tensor) -> int | None:
    """The FLOPs of a convolution or a fully connected layer x → y: two for each weight that a value meets; None for others.

    Convolution: 2 · (values of y) · C_in / groups · k₁ · k₂ …; its transpose: 2 · (values of x) · C_out / groups · k₁ · k₂ …
    Fully connected: 2 · (values of y) · inputs. Adding the bias is not counted.
    """
    if isinstance(layer, nn.Linear):
        return 2 * y.numel() * layer.in_features
    if isinstance(layer, nn.modules.conv._ConvTransposeNd):
        return 2 * x.numel() * (layer.out_channels // layer.groups) * math.prod(layer.kernel_size)
    if isinstance(layer, nn.modules.conv._ConvNd):
        return 2 * y.numel() * (layer.in_channels // layer.groups) * math.prod(layer.kernel_size)
    return None


class ReceptiveFields(TorchDispatchMode):
    """Follows how much of an image (N, C, …) each value sees: through convolutions, pooling, upsampling by nearest neighbors.

    It looks at operators, not at layers, so that branches, additions and functions of `forward` are followed, too; where two
    branches meet, the larger field counts. It ends at the first matrix product, and where the number of axes changes.
    """

    def __init__(self, image: Tensor) -> None:
        super().__init__()
        self.held: list[Tensor] = []  # no later tensor gets the storage of an earlier one
        self.views: dict[int, tuple[View, ...]] = {}  # () where one can no longer be followed
        self._keep(image, (View(1, 1),) * (image.ndim - 2))

    def _keep(self, tensor: Tensor, views: tuple[View, ...]) -> None:
        self.held.append(tensor)
        self.views[tensor.untyped_storage()._cdata] = views

    def of(self, tensor: Tensor) -> tuple[View, ...]:
        """A view along each axis of the image; () for what has not seen it, such as weights, or is not followed."""
        return self.views.get(tensor.untyped_storage()._cdata, ())

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        keys = [tensor.untyped_storage()._cdata for tensor in _tensors((args, kwargs))]
        seen = [self.views[key] for key in keys if key in self.views]
        name, results, views = func.overloadpacket.__name__, _tensors(out), ()
        if all(seen) and not (name.startswith(LOST) and not name.startswith("upsample_nearest")):
            # What is broadcast, such as a mean over the image, has seen more; neighbors are then those of the others.
            joint = [View(max(v.pixels for v in axis), min(v.step for v in axis)) for axis in zip(*seen, strict=True)]
            kernel = _kernel(name, args, results[0].shape if results else (), len(joint))
            if len(kernel) == len(joint):
                views = tuple(view.through(*of_axis) for view, of_axis in zip(joint, kernel, strict=True))
        for result in results if seen else ():
            self._keep(result, views)
        return out


def _kernel(operator: str, args: Sequence[Any], shape: Sequence[int], axes: int) -> list[tuple[float, float]]:
    """(taps, stride) of an operator along each axis of its kernel; (1, 1) where a value of its result comes from one place."""
    if operator == "convolution":
        (_, weight, _, stride, _, dilation, transposed), last = args[:7], slice(2, None)
        of_kernel = weight.ndim - 2
        taps = [(k - 1) * d + 1 for k, d in zip(weight.shape[last], _each(dilation, of_kernel), strict=True)]
        kernel = list(zip(taps, _each(stride, of_kernel), strict=True))
        # Transposed, only each s-th tap meets an input, and neighbors are nearer.
        return [(-(-k // s), 1 / s) for k, s in kernel] if transposed else kernel
    if "adaptive" in operator:  # window i of b goes from ⌊i·a/b⌋ to ⌈(i + 1)·a/b⌉
        sides = list(zip(args[0].shape[-axes:], shape[-axes:], strict=True))
        return [(max(-(-(i + 1) * a // b) - i * a // b for i in range(b)), a / b) for a, b in sides]
    if operator.startswith("upsample_nearest"):
        return [(1, a / b) for a, b in zip(args[0].shape[2:], shape[2:], strict=True)]
    if "max_pool" in operator or "avg_pool" in operator:
        sizes = _each(args[1], axes)
        strides = _each(args[2], axes) if len(args) > 2 and args[2] else sizes
        dilations = _each(args[4], axes) if "max" in operator and len(args) > 4 else [1] * axes
        return [((k - 1) * d + 1, s) for k, d, s in zip(sizes, dilations, strides, strict=True)]
    if operator == "mean" and len(args) > 1 and args[0].ndim == axes + 2:
        means = {axis % args[0].ndim for axis in args[1]}
        return [(n, n) if axis in means else (1, 1) for axis, n in enumerate(args[0].shape)][2:]
    return [(1, 1)] * axes


def _each(value: int | Sequence[int], axes: int) -> list[int]:
    """One number for each axis; in one dimension torch pools with an axis of 1 in front."""
    values = [value] if isinstance(value, int) else list(value)
    return values * axes if len(values) == 1 else values[-axes:]


def without_numbers(net: nn.Module) -> nn.Module:
    """A copy on the device meta, in which what is shared stays shared."""
    memo: dict[int, Any] = {id(p): nn.Parameter(p.detach().to("meta"), p.requires_grad) for p in net.parameters()}
    return copy.deepcopy(net, memo | {id(buffer): buffer.to("meta") for buffer in net.buffers()})


def leaves(net: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """(name, layer) of the layers without children; attention and parametrized layers compute with what their children hold."""
    if isinstance(net, nn.MultiheadAttention) or is_parametrized(net) or not list(net.children()):
        yield name, net
        return
    for part, child in net.named_children():
        yield from leaves(child, f"{name}.{part}" if name else part)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def layer_costs(net: nn.Module, x: Any) -> list[LayerCosts]:
    """One row for each call of a layer without children in `net(x)`, in their order; the last row is what happens between them.

    net  any module, in the mode in which it is: a copy runs, on the device meta
    x    a batch (N, C, …), or a tuple of all that the net takes; only shapes and dtypes count

    Parameters that two layers share count at the first. Bytes are those that autograd keeps until the backward pass, besides
    parameters, buffers and x, by torch's plain operators: fused attention keeps less. A storage counts where it was kept first.
    Raises LabError for a net that does not run without numbers.
    """
    inputs = tree_map_only(Tensor, lambda tensor: tensor.detach().to("meta"), x if isinstance(x, tuple) else (x,))
    first = next(iter(_tensors(inputs)), torch.empty(0))
    rows: list[LayerCosts] = []
    counted: set[int] = set()
    start: list[tuple[int, int]] = []
    fields = ReceptiveFields(first)

    def new_parameters(layer: nn.Module) -> int:
        new = {id(p): p.numel() for p in layer.parameters() if id(p) not in counted}
        counted.update(new)
        return sum(new.values())

    def before(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        start.append((counter.get_total_flops(), sum(saved.values())))

    def recorder(name: str) -> Callable:
        def after(layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            flops, kept = start.pop()
            y = next(iter(_tensors(output)), None)
            sees = tuple(view.pixels for view in fields.of(y)) if y is not None and y.ndim == first.ndim else ()
            rows.append(
                LayerCosts(
                    name=name,
                    kind=type(layer).__name__,
                    output=str(tuple(y.shape)) if y is not None else "",
                    parameters=new_parameters(layer),
                    values=y.numel() if y is not None else 0,
                    flops=counter.get_total_flops() - flops,
                    kept=sum(saved.values()) - kept,
                    field=" × ".join(f"{pixels:.0f}" for pixels in sees),
                    formula=product_flops(layer, inputs[0], y) if inputs and y is not None else None,
                    sees=sees,
                )
            )

        return after

    try:
        net = without_numbers(net)
        names = {layer: name for name, layer in reversed([*leaves(net)])}  # of a shared layer the first
        for layer, name in names.items():
            layer.register_forward_pre_hook(before)
            layer.register_forward_hook(recorder(name))
        known = [*net.parameters(), *net.buffers(), *_tensors(inputs)]
        modes = saved_tensors(known), FlopCounterMode(display=False), fields, torch.device("meta"), torch.enable_grad()
        with contextlib.ExitStack() as stack:
            saved, counter, *_ = map(stack.enter_context, modes)
            output = net(*inputs)
    except Exception as error:
        raise LabError(
            f"{type(net).__name__} did not run without numbers: {type(error).__name__}: {error}",
            "Its costs are read from shapes, on the device meta: x has to fit, and `forward` must not read values (`.item()`, "
            "`if x.sum() > 0`), nor tensors that are neither parameters nor buffers.",
        ) from error
    flops, kept = counter.get_total_flops(), sum(saved.values())
    shapes = [str(tuple(tensor.shape)) for tensor in _tensors(output)]
    between = LayerCosts(
        name=BETWEEN,
        kind="",
        output=shapes[0] if shapes else "",
        parameters=parameter_count(net) - sum(row.parameters for row in rows),
        values=0,
        flops=flops - sum(row.flops for row in rows),
        kept=kept - sum(row.kept for row in rows),
        field="",
    )
    return [*rows, between]
