"""The measure against which ranks are held: the same computation on one process, up to rounding in float64."""

from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.tensor import DTensor

from hpml_lab.model_parallel.lessons.column_and_row import CUT

BOUND = 1e-12  # relative
NUMBER = 8  # bytes


def relative_difference(found: Tensor, wanted: Tensor) -> float:
    """‖found − wanted‖ / ‖wanted‖."""
    return ((found - wanted).norm() / wanted.norm()).item()


def part_of(whole: Tensor, group: dist.ProcessGroup | None, dim: int) -> Tensor:
    """What this rank has of a tensor that a group (None: all ranks) has cut."""
    return whole.chunk(dist.get_world_size(group), dim)[dist.get_rank(group)]


def gradient_difference(
    part: nn.Module, whole: nn.Module, slices: dist.ProcessGroup | None = None, rows: dist.ProcessGroup | None = None
) -> float:
    """The largest relative difference of a part's gradients from those of `whole`.

    slices  the ranks that have a slice of each weight, as by `slice_of`; None: all
    rows    the ranks among which the rows of a slice are fully sharded; None: they are not
    """
    found = []
    for (name, parameter), other in zip(part.named_parameters(), whole.parameters(), strict=True):
        gradient, goal = parameter.grad, other.grad
        if (dim := CUT.get(name.split(".")[-2])) is not None:
            gradient, goal = on_this_rank(gradient), part_of(goal, slices, dim)
            goal = goal if rows is None else part_of(goal, rows, 0)
        elif isinstance(gradient, DTensor):  # a norm's, which may be the ranks' parts of a sum
            gradient = gradient.full_tensor()
        found.append(relative_difference(gradient, goal))
    return max(found)


def on_this_rank(tensor: Tensor) -> Tensor:
    """What this rank has of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
