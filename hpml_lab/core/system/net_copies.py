"""A copy of a network, for tools that change one and leave the reader's as it is."""

import copy

from torch import nn

from hpml_lab.core.system.errors import LabError


def copy_of(net: nn.Module) -> nn.Module:
    """A deep copy of `net`. Raises LabError where a weight of it is computed from others, which torch does not copy."""
    try:
        return copy.deepcopy(net)
    except RuntimeError as error:
        if "deepcopy" not in str(error):
            raise
        raise LabError(
            f"this {type(net).__name__} cannot be copied: a tensor of it was computed from others, such as a weight of a layer"
            " with masks of torch.nn.utils.prune or with weight_norm.",
            'Make that permanent first: prune.remove(layer, "weight"), or remove_weight_norm(layer).',
        ) from error
