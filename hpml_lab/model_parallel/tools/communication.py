"""What a rank sends: each collective and message that a piece of work asks torch.distributed for, counted, with its bytes.

    with Traffic() as traffic:
        model(x).sum().backward()
    traffic.counts(), traffic.sent      # {"all-reduce": 4}, 16384

A collective's bytes are those that a ring sends, on each of the n ranks of its group:

    all-reduce                2 (n − 1)/n · the tensor, as a reduce-scatter and an all-gather
    all-gather                (n − 1) · what the rank gives = (n − 1)/n · what it gets
    reduce-scatter            (n − 1) · what the rank gets
    all-to-all                (n − 1)/n · the tensor: what is for the rank itself is not sent

They are counted where torch hands the work over to gloo or NCCL, also what autograd and DTensor ask for. The parts of an
all-to-all have to be equal. On a mesh each axis has a group of its own: `traffic.sent_in(mesh.get_group("data"))`.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from torch import distributed as dist
from torch.distributed.distributed_c10d import _resolve_process_group
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, SEND = "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send"
# {operator: (kind, which of its arguments is a rank's tensor, whether that is one of n parts)}
OPERATORS = {
    "c10d::allreduce_": (ALL_REDUCE, 0, False),
    "c10d::allgather_": (ALL_GATHER, 1, True),
    "c10d::_allgather_base_": (ALL_GATHER, 1, True),
    "c10d::reduce_scatter_": (REDUCE_SCATTER, 0, True),
    "c10d::_reduce_scatter_base_": (REDUCE_SCATTER, 0, True),
    "c10d::alltoall_": (ALL_TO_ALL, 1, False),
    "c10d::alltoall_base_": (ALL_TO_ALL, 1, False),
    "c10d::send": (SEND, 0, False),
    "_c10d_functional::all_reduce": (ALL_REDUCE, 0, False),
    "_c10d_functional::all_gather_into_tensor": (ALL_GATHER, 0, True),
    "_c10d_functional::reduce_scatter_tensor": (REDUCE_SCATTER, 0, False),
    "_c10d_functional::all_to_all_single": (ALL_TO_ALL, 0, False),
}


@dataclass(frozen=True)
class Sending:
    """A collective or a message: its kind, the bytes that this rank sends by it, and the name of the group that it is in."""

    kind: str
    sent: int
    group: str = field(default="", compare=False)


class Traffic(TorchDispatchMode):
    """Collects what this rank sends within a `with` block, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.sendings: list[Sending] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # then DTensor does its work first, and this mode sees the operators that it is made of
        if (found := OPERATORS.get(func.name().partition(".")[0])) is not None:
            kind, argument, is_part = found
            group = _group_of(func, args)
            ranks = group.size()
            whole = sum(tensor.nbytes for tensor in tree_leaves(args[argument])) * (ranks if is_part else 1)
            share = whole * (ranks - 1) // ranks
            self.sendings.append(Sending(kind, {ALL_REDUCE: 2 * share, SEND: whole}.get(kind, share), group.group_name))
        return func(*args, **(kwargs or {}))

    def counts(self) -> dict[str, int]:
        """{kind: how many}, in the order of their first."""
        return dict(Counter(sending.kind for sending in self.sendings))

    @property
    def sent(self) -> int:
        """The bytes of all of them."""
        return sum(sending.sent for sending in self.sendings)

    def sent_in(self, group: dist.ProcessGroup) -> int:
        """The bytes of those in one group."""
        return sum(sending.sent for sending in self.sendings if sending.group == group.group_name)


def _group_of(func: Any, args: tuple) -> dist.ProcessGroup:
    """The group of a call: c10d's operators have it in a box, the functional ones its name or, in new torch, itself."""
    names = [argument.name for argument in func._schema.arguments]
    group = args[names.index("process_group" if "process_group" in names else "group_name")]
    if isinstance(group, str):
        return _resolve_process_group(group)
    return group if isinstance(group, dist.ProcessGroup) else dist.ProcessGroup.unbox(group)
