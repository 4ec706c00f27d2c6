"""The bytes that training keeps on each rank, counted tensor by tensor, and what ZeRO's stages leave of them.

In bytes per parameter, with Adam, on N ranks (ZeRO: Rajbhandari et al. 2020, section 3.1 and figure 1):

    stage                      parameters  gradients  optimizer state        float32        mixed precision
    0  every rank keeps all    p           g          s                      16             16
    1  optimizer state shared  p           g          s / N                  8 + 8/N        4 + 12/N
    2  and gradients           p           g / N      s / N                  4 + 12/N       2 + 14/N
    3  and parameters          p / N       g / N      s / N                  16/N           16/N

float32 has p = 4, g = 4, s = 8 (Adam's two moments). In mixed precision p = 2, g = 2, and s = 12: the moments and the float32
copy of the parameters that the optimizer updates. To the state torch adds a step counter of 4 bytes for each tensor.
"""

import contextlib
import gc
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from typing import Any

import torch

from hpml_lab.core.system.errors import LabError


@dataclass(frozen=True)
class Footprint:
    """Bytes by what they are for; `rest` is every other tensor that lives, such as copies and buffers."""

    parameters: float
    gradients: float
    state: float
    rest: float = 0

    @property
    def owned(self) -> float:
        """What the formula is about: parameters, gradients and optimizer state."""
        return self.parameters + self.gradients + self.state

    @property
    def total(self) -> float:
        return self.owned + self.rest

    def __add__(self, other: "Footprint") -> "Footprint":
        return Footprint(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __truediv__(self, number: float) -> "Footprint":
        return Footprint(*(value / number for value in astuple(self)))


STAGES = (0, 1, 2, 3)
FLOAT32, MIXED = Footprint(4, 4, 8), Footprint(2, 2, 12)  # bytes per parameter on one rank alone


def zero_formula(stage: int, ranks: int, whole: Footprint = FLOAT32) -> Footprint:
    """Bytes per parameter that each of `ranks` ranks keeps at a stage of ZeRO; `whole` is what one rank alone keeps."""
    if stage not in STAGES:
        raise LabError(f"ZeRO has no stage {stage!r}.", "Use 0 (every rank keeps all), 1, 2 or 3.")
    if ranks < 1:
        raise LabError(f"ranks={ranks!r} is not a number of ranks.", "Use a whole number of at least 1.")
    return Footprint(
        parameters=whole.parameters / (ranks if stage >= 3 else 1),
        gradients=whole.gradients / (ranks if stage >= 2 else 1),
        state=whole.state / (ranks if stage >= 1 else 1),
    )


def footprint(
    parameters: Iterable[torch.Tensor], gradients: Iterable[torch.Tensor | None], state: Any, ignored: Any = ()
) -> Footprint:
    """Count the memory of this process's tensors now: each storage once, at its full size, whatever looks into it.

    state    the optimizer's `state`, or anything of lists and dictionaries that holds its tensors
    ignored  tensors that are no part of the training's memory, such as the data
    What lives in C++ alone, such as what autograd keeps for the backward pass, belongs to no kind and is not counted.
    """
    gc.collect()
    seen = set(storages(ignored))
    counts = []
    for tensors in (list(parameters), list(gradients), state, _live_tensors()):
        found = {address: nbytes for address, nbytes in storages(tensors).items() if address not in seen}
        seen.update(found)
        counts.append(sum(found.values()))
    return Footprint(*counts)


def storages(tree: Any) -> dict[int, int]:
    """{address: bytes} of the distinct storages of all tensors in lists and dictionaries; of a DTensor this rank's part."""
    found = {}
    for tensor in _tensors(tree):
        storage = tensor.untyped_storage()
        with contextlib.suppress(RuntimeError):  # a tensor that torch.compile traced with has a size, but no memory
            if address := storage.data_ptr():
                found[address] = storage.nbytes()
    return found


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        yield tree.to_local() if hasattr(tree, "to_local") else tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from _tensors(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from _tensors(value)


def _live_tensors() -> list[torch.Tensor]:
    """Every tensor that Python knows. type(), because isinstance() would wake objects that only pose as something else."""
    found = [item for item in gc.get_objects() if issubclass(type(item), torch.Tensor)]
    return found + [item.grad for item in found if item.is_leaf and item.grad is not None]
