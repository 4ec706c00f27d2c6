"""ZeRO's first stage: each rank keeps the optimizer's state of its own share of the parameters, and updates only these.

    g = mean over the ranks (all-reduce, by DDP)
    rank r:  θ_i ← optimizer(θ_i, g_i, state_i)     for the tensors i of its share
    rank r:  broadcast its θ_i to the others

Parameters and gradients stay whole on every rank; of Adam's 8 bytes per parameter a rank keeps about 8/N. Tensors are not cut,
so any optimizer works, also one that needs the norm of a whole tensor; the shares are as equal as whole tensors allow.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import distributed as dist

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.same_network import check_same_on_all_ranks


class ShardedOptimizer(torch.optim.Optimizer):
    """`optimizer_class(params, **options)`, its state partitioned among the ranks.

    params           tensors, named tensors or groups, the same on every rank and in the same order
    optimizer_class  any class of torch.optim but LBFGS; `options` are its own
    `param_groups` hold all parameters, so that schedulers work as usual; `state` holds those of this rank's share.
    """

    def __init__(self, params: Any, optimizer_class: Callable[..., torch.optim.Optimizer], **options: Any) -> None:
        check_same_on_all_ranks([])
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.owner: dict[torch.Tensor, int] = {}
        self._elements = {trains: [0] * self.ranks for trains in (True, False)}  # by rank; frozen ones may be thawed later
        self.local = optimizer_class([{"params": []}], **options)  # an empty group, for the checks and the defaults
        self.local.param_groups.clear()
        if isinstance(self.local, torch.optim.LBFGS):
            raise LabError("LBFGS searches along a line in all parameters, which no rank updates alone.", "Use it unsharded.")
        super().__init__(params, self.local.defaults)
        self.state = self.local.state

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, and share them out: each tensor, the largest first, goes to the rank that has least."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        check_same_on_all_ranks([(f"tensor {number} of a group", tensor) for number, tensor in enumerate(group["params"])])
        for parameter in sorted(group["params"], key=lambda parameter: -parameter.numel()):
            counts = self._elements[parameter.requires_grad]
            owner = self.owner[parameter] = min(range(self.ranks), key=counts.__getitem__)
            counts[owner] += parameter.numel()
        own = [parameter for parameter in group["params"] if self.owner[parameter] == self.rank]
        self.local.add_param_group({"params": own})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update this rank's share, then give it to the others and take theirs. The gradients must be the mean already."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._pass_options_on()
        self.local.step()
        sent = [
            dist.broadcast(parameter.detach(), src=owner, async_op=True)
            for parameter, owner in self.owner.items()
            if parameter.requires_grad or parameter.grad is not None  # frozen since its gradient was computed
        ]
        for work in sent:
            work.wait()
        return loss

    def _pass_options_on(self) -> None:
        """A scheduler changes the learning rate of our groups; those that update are the local ones."""
        for group, own in zip(self.param_groups, self.local.param_groups, strict=True):
            own.update({name: value for name, value in group.items() if name not in ("params", "param_names")})

    def whole_state_dict(self) -> dict[str, Any]:
        """What the optimizer on one process would save, the same on every rank, which all have to call it.

        `state_dict` holds only this rank's share: saved by rank 0 alone, it would lose the others'.
        """
        shares: list[Any] = [None] * self.ranks
        own = self.state_dict()
        dist.all_gather_object(shares, own["state"])
        merged = {index: state for share in shares for index, state in share.items()}
        return {**own, "state": dict(sorted(merged.items()))}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a whole state, saved on any number of ranks, or this rank's own; it keeps what belongs to its share."""
        super().load_state_dict(state_dict)
        for parameter in [found for found in self.state if self.owner.get(found) != self.rank]:
            del self.state[parameter]
        self.local.state = self.state
        self._pass_options_on()
