"""Which weights to prune: masks from scratch, each equal to torch.nn.utils.prune's.

    masks = global_masks(weights_of(net), 0.2)  # {"conv1.weight": mask, …}: False where a weight is pruned
    apply_masks(net, masks)
    train(net, data, steps, after_step=lambda: apply_masks(net, masks))  # or the optimizer moves them again

amount  how much to prune: a share between 0 and 1, or a number of weights (of channels, for `channel_mask`)
keep    an earlier mask: `amount` is a share of what it left, and what it pruned stays pruned
"""

import math
from collections.abc import Callable, Mapping
from numbers import Integral, Real

import torch
from torch import Tensor, nn

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.net_copies import require_own_weights

Rule = Callable[[Tensor, float, Tensor | None], Tensor]  # (weight, amount, keep) -> mask


def number_to_prune(amount: float, total: int, of: str = "weights") -> int:
    """How many of `total` are `amount`. Raises LabError for an amount out of range, or one that would leave nothing."""
    if not isinstance(amount, Real) or isinstance(amount, bool) or math.isnan(amount):
        raise LabError(
            f"amount = {amount!r} is not a number.", "Give a share, such as 0.2, or a number of weights, such as 20."
        )
    most, share = (total, "") if isinstance(amount, Integral) else (1, ", as a share")
    if not 0 <= amount <= most:
        raise LabError(
            f"amount = {amount} is out of range: there are {total} {of}.",
            f"Give a number from 0 to {most}{share}; an int counts {of}, a float is a share.",
        )
    count = int(amount) if isinstance(amount, Integral) else round(amount * total)
    if count == total:
        raise LabError(f"amount = {amount} would prune all {total} {of}.", "Nothing would come through: prune less.")
    return count


def random_mask(weight: Tensor, amount: float, keep: Tensor | None = None) -> Tensor:
    """Prune weights at random, each with the same probability."""
    keep = _keep(weight, keep)
    left = weight.detach()[keep]
    return _without(keep, torch.rand_like(left).topk(number_to_prune(amount, left.numel())).indices)


def l1_mask(weight: Tensor, amount: float, keep: Tensor | None = None) -> Tensor:
    """Prune the weights that are smallest by absolute value."""
    keep = _keep(weight, keep)
    left = weight.detach()[keep].abs()
    return _without(keep, left.topk(number_to_prune(amount, left.numel()), largest=False).indices)


def channel_mask(weight: Tensor, amount: float, n: float = 2, dim: int = 0, keep: Tensor | None = None) -> Tensor:
    """Prune whole channels along `dim`: those whose weights have the smallest L-n norm."""
    keep = _keep(weight, keep)
    if not -weight.ndim <= dim < weight.ndim or weight.ndim < 2:
        raise LabError(
            f"a weight with {weight.ndim} dimensions has no channels along dim = {dim}.", "Prune a matrix's rows, say."
        )
    dim %= weight.ndim
    others = [d for d in range(weight.ndim) if d != dim]
    left = keep.movedim(dim, 0).flatten(1).any(1).nonzero().flatten()  # channels that are not pruned as a whole
    norms = torch.linalg.vector_norm((weight.detach() * keep).index_select(dim, left), n, dim=others)
    stay = left[norms.topk(len(left) - number_to_prune(amount, len(left), "channels")).indices]
    channels = torch.zeros(weight.shape[dim], dtype=torch.bool, device=weight.device).index_fill(0, stay, True)
    return keep & channels.view([-1 if d == dim else 1 for d in range(weight.ndim)])


def global_masks(
    weights: Mapping[str, Tensor], amount: float, rule: Rule = l1_mask, keep: Mapping[str, Tensor] | None = None
) -> dict[str, Tensor]:
    """Prune `amount` of all weights together: they are compared across the layers, so each layer loses another share."""
    if not weights:
        raise LabError("there are no weights to prune.", "Give {name: weight}, for example weights_of(net).")
    keep = {name: _keep(weight, (keep or {}).get(name)) for name, weight in weights.items()}
    whole = rule(_flat(weights.values()), amount, _flat(keep.values()))
    parts = whole.split([weight.numel() for weight in weights.values()])
    return {name: part.view_as(weights[name]) for name, part in zip(weights, parts, strict=True)}


def _flat(tensors) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])


def _keep(weight: Tensor, keep: Tensor | None) -> Tensor:
    if not torch.isfinite(weight).all():
        raise LabError("a weight is NaN or infinite.", "Such weights have no order: find where the training diverged.")
    keep = torch.ones_like(weight, dtype=torch.bool) if keep is None else keep.bool()
    if keep.shape != weight.shape:
        raise LabError(
            f"a mask of shape {tuple(keep.shape)} does not fit a weight of {tuple(weight.shape)}.", "They are alike."
        )
    return keep


def _without(keep: Tensor, pruned: Tensor) -> Tensor:
    """`keep` without the weights that `pruned` numbers, counted among those that it keeps."""
    left = torch.ones(int(keep.sum()), dtype=torch.bool, device=keep.device).index_fill(0, pruned, False)
    return keep.masked_scatter(keep, left)


# ---- a net and its masks ---------------------------------------------------------------------------------------------


def weights_of(net: nn.Module) -> dict[str, Tensor]:
    """The weights that are worth pruning, by name: those of convolutions and of Linear layers, without biases.

    One that two layers share is there once, under the name that `net.named_parameters()` has.
    """
    kinds, found = (nn.Linear, nn.modules.conv._ConvNd), {}
    for name, layer in net.named_modules():
        if isinstance(layer, kinds) and all(layer.weight is not weight for weight in found.values()):
            found[f"{name}.weight".lstrip(".")] = layer.weight
    return found


@torch.no_grad()
def apply_masks(net: nn.Module, masks: Mapping[str, Tensor]) -> None:
    """Set what the masks prune to 0, in place. Raises LabError where the net has no such parameter."""
    parameters = dict(net.named_parameters(remove_duplicate=False))  # of a tied weight all names
    for name, mask in masks.items():
        if name not in parameters:
            require_own_weights({path: layer for path, layer in net.named_modules() if f"{path}.weight".lstrip(".") == name})
            raise LabError(f"the net has no parameter {name!r}.", f"It has {', '.join(parameters) or 'none'}.")
        if mask.shape != parameters[name].shape:
            shapes = f"{tuple(mask.shape)}, the parameter {tuple(parameters[name].shape)}"
            raise LabError(f"the mask of {name!r} has the shape {shapes}.", "Make the masks from this net's own weights.")
        parameters[name].masked_fill_(~mask.bool(), 0)


def zeros(weights: Mapping[str, Tensor]) -> dict[str, int]:
    """How many elements of each tensor are 0."""
    return {name: int((weight == 0).sum()) for name, weight in weights.items()}
