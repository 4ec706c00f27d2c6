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


def gradient_difference(part: nn.Module, whole: nn.Module, group: dist.ProcessGroup | None = None) -> float:
    """The largest relative difference of a part's gradients from those of `whole`.

    The part has the slices of `slice_of` in a group, or DTensors.
    """
    rank, ranks, found = dist.get_rank(group), dist.get_world_size(group), []
    for (name, parameter), other in zip(part.named_parameters(), whole.parameters(), strict=True):
        gradient, goal = parameter.grad, other.grad
        if isinstance(gradient, DTensor):
            gradient = gradient.full_tensor()
        elif (dim := CUT.get(name.split(".")[-2])) is not None:
            goal = goal.chunk(ranks, dim)[rank]
        found.append(relative_difference(gradient, goal))
    return max(found)


def on_this_rank(tensor: Tensor) -> Tensor:
    """What this rank has of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
