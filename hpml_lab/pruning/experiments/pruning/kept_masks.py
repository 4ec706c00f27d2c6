"""Ways to keep a mask while a pruned net is trained on, of which some lose it: the optimizer moves pruned weights."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch.nn import functional as F
from torch.nn.utils import prune

from hpml_lab.core.experiment import Result, Row, column
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.pruning.lessons.masks import Tensor, apply_masks, global_masks, weights_of
from hpml_lab.quantization import LabeledImages, LeNet

Optimizer = torch.optim.Optimizer
LR = 1e-3
AFTER, BEFORE, ONCE = "mask after each step", "mask before each step", "mask once, at the start"
HOOKS = "torch.nn.utils.prune, weight decay"
GRADIENTS, DECAY, MOMENTUM = (f"gradients masked{more}" for more in ("", ", weight decay", ", old momentum"))


@dataclass
class KeptMask(Row):
    """One way to train a pruned net on, with a batch a step."""

    way: str = column("way")
    optimizer: str = column("optimizer")
    pruned: int = column("pruned weights")
    still_zero: int = column("of them still 0")
    lost: float = column("lost", "%")
    dead_unit: int | None = column("still 0: their unit got no gradient", "", None)
    zero_input: int | None = column("still 0: their input was always 0", "", None)
    stored_moved: int | None = column("stored values that moved", "", None)


def kept_masks(dense: LeNet, data: LabeledImages, sparsity: float, steps: int, batch: int) -> list[KeptMask]:
    """Train pruned copies of the net for a few steps, each way with the same batches."""
    masks = global_masks(weights_of(dense), sparsity)
    batches = [(data.x[i : i + batch], data.y[i : i + batch]) for i in range(0, (steps + 1) * batch, batch)]
    adam, adamw = partial(torch.optim.Adam, lr=LR), partial(torch.optim.AdamW, lr=LR, weight_decay=0.1)
    decayed = partial(torch.optim.Adam, lr=LR, weight_decay=0.1)
    return [
        _trained_on(dense, masks, batches, AFTER, adam),
        _hooked(dense, masks, batches, decayed),
        *(_trained_on(dense, masks, batches, way, adam) for way in (ONCE, BEFORE, GRADIENTS, MOMENTUM)),
        _trained_on(dense, masks, batches, DECAY, adamw),
    ]


def _step(net: LeNet, optimizer: Optimizer, x: Tensor, y: Tensor, before_step: Callable[[], None] = lambda: None) -> None:
    optimizer.zero_grad()
    F.cross_entropy(net(x), y).backward()
    before_step()
    optimizer.step()


def _trained_on(dense: LeNet, masks: dict[str, Tensor], batches: list, way: str, make: Callable[..., Optimizer]) -> KeptMask:
    net, (first, *rest) = copy.deepcopy(dense), batches
    optimizer = make(net.parameters())
    before = {name: weight.detach().clone() for name, weight in weights_of(net).items()}
    if way == MOMENTUM:  # the optimizer that has trained the dense net goes on
        _step(net, optimizer, *first)
    apply_masks(net, masks)
    parameters = dict(net.named_parameters())

    def mask_gradients() -> None:
        for name, mask in masks.items():
            parameters[name].grad.masked_fill_(~mask, 0)

    for x, y in rest:
        if way == BEFORE:
            apply_masks(net, masks)
        _step(net, optimizer, x, y, mask_gradients if way in (GRADIENTS, MOMENTUM, DECAY) else lambda: None)
        if way == AFTER:
            apply_masks(net, masks)
    return replace(
        _row(way, optimizer, weights_of(net), masks), **(still_zero(before, weights_of(net), masks) if way == ONCE else {})
    )


def still_zero(before: dict[str, Tensor], after: dict[str, Tensor], masks: dict[str, Tensor]) -> dict[str, int]:
    """Why pruned weights are still 0, if the optimizer moves whatever has had a gradient: no weight of their unit has moved, or
    else none that reads their input."""
    dead_unit = zero_input = 0
    for name, mask in masks.items():
        moved = ((after[name] != before[name]) & mask).flatten(1)  # the kept ones: setting the others to 0 is no step
        still = (~mask & (after[name] == 0)).flatten(1)
        no_unit = ~moved.any(1, keepdim=True)
        dead_unit += int((still & no_unit).sum())
        zero_input += int((still & ~no_unit & ~moved.any(0)).sum())
    return {"dead_unit": dead_unit, "zero_input": zero_input}


def _hooked(dense: LeNet, masks: dict[str, Tensor], batches: list, make: Callable[..., Optimizer]) -> KeptMask:
    """The same with torch's hooks, which multiply by the mask in each forward pass and leave the stored weights alone."""
    net = copy.deepcopy(dense)
    for name, mask in masks.items():
        prune.custom_from_mask(net.get_submodule(name.removesuffix(".weight")), "weight", mask)
    optimizer = make(net.parameters())
    stored = {name: net.get_parameter(f"{name}_orig") for name in masks}
    before = {name: weight.detach().clone() for name, weight in stored.items()}
    for x, y in batches[1:]:
        _step(net, optimizer, x, y)
    moved = sum(int((stored[name] != before[name])[~mask].sum()) for name, mask in masks.items())
    for name in masks:
        prune.remove(net.get_submodule(name.removesuffix(".weight")), "weight")
    return _row(HOOKS, optimizer, weights_of(net), masks, moved)


def _row(
    way: str, optimizer: Optimizer, weights: dict[str, Tensor], masks: dict[str, Tensor], moved: int | None = None
) -> KeptMask:
    pruned = sum(int((~mask).sum()) for mask in masks.values())
    still = sum(int((weights[name][~mask] == 0).sum()) for name, mask in masks.items())
    return KeptMask(way, type(optimizer).__name__, pruned, still, 100 * (1 - still / pruned), stored_moved=moved)


def compare_masks(result: Result) -> None:
    """Claim which ways keep the mask."""
    found = {row.way: row for row in result.rows(KeptMask)}
    result.claim(
        "Mask after each step, or torch's hooks: every pruned weight is still 0", found[AFTER].lost == found[HOOKS].lost == 0
    )


@picture
def lost_masks(result: Result):
    """The share of pruned weights that are not 0 any more after a few steps, by the way in which the mask is kept. Look at the
    ways with a bar: which of the rules that are meant to keep the zeros does not?"""
    figure = style.new_figure(8, 3.2)
    axes = figure.subplots()
    rows = result.rows(KeptMask)
    bars = axes.barh(range(len(rows)), [row.lost for row in rows], color=style.RED)
    axes.bar_label(bars, [f"{row.lost:.0f} %" if row.lost else "none" for row in rows], padding=4, fontsize=9)
    axes.set_yticks(range(len(rows)), [f"{row.way} · {row.optimizer}" for row in rows], fontsize=9)
    axes.invert_yaxis()
    axes.set(xlabel="pruned weights that are not 0 any more (%)", xlim=(0, 112))
    axes.set_axisbelow(True)
    axes.grid(axis="y", visible=False)
    return figure
