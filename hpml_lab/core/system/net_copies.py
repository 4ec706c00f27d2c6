"""A copy of a network, for tools that change one and leave the reader's as it is."""

import copy
import re
from collections.abc import Mapping
from itertools import chain

import torch
from torch import nn

from hpml_lab.core.system.errors import LabError

WEIGHT = re.compile(r"weight(_[ih][hr].*)?")  # and weight_ih_l0, weight_hh_l0_reverse, weight_hr_l0 of a recurrent layer
MAKE_PERMANENT = (
    'Make it permanent first, by what undoes its kind: torch.nn.utils.parametrize.remove_parametrizations(layer, "weight"),'
    ' remove_weight_norm(layer), remove_spectral_norm(layer) or prune.remove(layer, "weight").'
)


def copy_of(net: nn.Module) -> nn.Module:
    """A deep copy of `net`. Raises LabError where torch or Python cannot copy something that it holds."""
    try:
        return copy.deepcopy(net)
    except RuntimeError as error:
        if "deepcopy" not in str(error):
            raise
        raise LabError(
            f"this {type(net).__name__} cannot be copied: a tensor of it was computed from others, such as a weight of a layer"
            " with masks of torch.nn.utils.prune or with weight_norm.",
            MAKE_PERMANENT,
        ) from error
    except TypeError as error:  # a lock, a generator, an open file, a module of Python
        if "pickle" not in str(error):
            raise
        raise LabError(
            f"this {type(net).__name__} cannot be copied: {error}.",
            "Keep such an object outside of the net, or give the class that holds it a `__deepcopy__`.",
        ) from error


def require_own_weights(layers: Mapping[str, nn.Module]) -> None:
    """Raise LabError where a layer computes its weight from other tensors whenever it is used, with the layer's path.

    What a tool puts in the place of such a weight would be computed anew, or be read where nobody looks for it.
    """
    for path, layer in layers.items():
        # A parametrization is a property of the class; the hooks of older functions set a plain attribute.
        for name, value in chain.from_iterable(vars(holder).items() for holder in (layer, *type(layer).__mro__)):
            if WEIGHT.fullmatch(name) and isinstance(value, torch.Tensor | property):
                problem = f"{name} of {path or 'the model itself'}, a {type(layer).__name__}, is computed from other tensors."
                raise LabError(problem, MAKE_PERMANENT)
