"""What LARS, LAMB and NovoGrad share: numbers of a whole layer, such as the norm of its weights."""

from typing import Any

import torch
from torch import Tensor

from hpml_lab.optim.machinery.base import Optimizer
from hpml_lab.optim.machinery.tensor_stand_ins import Tracked, at_least_float32, pairs


class LayerwiseOptimizer(Optimizer):
    """An optimizer whose rule needs norms of a whole tensor, and so takes one tensor after the other, never cut into pieces.

    torch.optim has none of these. Biases and the weights of normalization layers are usually left out of decay and trust ratio:
    put them into a group of their own (`matrices_and_rest`) with `weight_decay=0` and `always_adapt=False`.
    """

    takes_lists = False

    @staticmethod
    def decay(theta: Any, g: Any, lr: Any, weight_decay: Any, decoupled: bool) -> Any:
        """Decoupled decay comes before the update, as in AdamW; otherwise the update itself contains λ θ.

            θ = θ − α λ θ, if decoupled
        Loshchilov and Hutter 2019.
        """
        if decoupled: theta.mul_(1 - lr * weight_decay)  # fmt: skip
        return g

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for p, state in self.state.items():  # also where the state was saved on another device
            state.update({name: state[name].to(p.device) for name in self.exact_numbers if name in state})


def norm(value: Any) -> Tensor:
    """‖x‖, the root of the sum of the squares of all elements, in float32 at least."""
    tensor = pairs(value.tensor if isinstance(value, Tracked) else value)
    return torch.linalg.vector_norm(tensor, dtype=at_least_float32(tensor))


def trust_ratio(w: Tensor, u: Tensor, coefficient: float = 1.0, more: Any = 0.0) -> Tensor:
    """coefficient · w / (u + more), or 1 where a norm is 0: a tensor of zeros has no scale that its steps could keep."""
    both = (w > 0) & (u > 0)
    return torch.where(both, coefficient * w, 1.0) / torch.where(both, u + more, 1.0)


def average_from_first(v: Any, n: Tensor, beta: float) -> Tensor:
    """β v + (1 − β) n, but n itself while v is 0: an average that starts at the first value needs no bias correction."""
    v = v.tensor if isinstance(v, Tracked) else v
    return torch.where(v > 0, beta * v + (1 - beta) * n, n)


def layer_number(theta: Tensor, value: float) -> Tensor:
    """A number in the state of a tensor, on its device and in float32 at least."""
    return torch.full((), value, dtype=at_least_float32(theta), device=theta.device)


def matrices_and_rest(parameters: Any, **rest: Any) -> list[dict[str, Any]]:
    """Parameter groups: tensors with two dimensions or more, and all others with the options `rest`.

    parameters  what an optimizer takes: tensors, pairs (name, tensor), or groups, each of which is divided
    By default those others, biases and the weights of normalization layers, have neither decay nor trust ratio.
    """
    entries = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    rest = rest or {"weight_decay": 0.0, "always_adapt": False}
    found = []
    for group in entries if entries and isinstance(entries[0], dict) else [{"params": entries}]:
        listed = [group["params"]] if isinstance(group["params"], Tensor) else list(group["params"])
        is_matrix = [(entry[1] if isinstance(entry, tuple) else entry).ndim > 1 for entry in listed]
        matrices, others = (
            [entry for entry, is_one in zip(listed, is_matrix, strict=True) if is_one == kind] for kind in (True, False)
        )
        found += [{**group, "params": matrices}, {**group, "params": others, **rest}]
    return [group for group in found if group["params"]]
