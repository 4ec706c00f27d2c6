"""What collectives move: the numbers of each rank before and after, from a real run."""

from collections.abc import Callable

import torch
from torch import distributed as dist

from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.core.system.launcher import launch


def _broadcast(mine: torch.Tensor) -> torch.Tensor:
    dist.broadcast(mine, src=0)
    return mine


def _all_reduce(mine: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(mine)
    return mine


def _reduce_scatter(mine: torch.Tensor) -> torch.Tensor:
    part = mine.new_empty(len(mine) // dist.get_world_size())
    dist.reduce_scatter_tensor(part, mine)
    return part


def _all_gather(mine: torch.Tensor) -> torch.Tensor:
    whole = mine.new_empty(len(mine) * dist.get_world_size())
    dist.all_gather_into_tensor(whole, mine)
    return whole


def _all_to_all(mine: torch.Tensor) -> torch.Tensor:
    received = torch.empty_like(mine)
    dist.all_to_all_single(received, mine)
    return received


COLLECTIVES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "broadcast": _broadcast,
    "all_reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
    "all_to_all": _all_to_all,
}


def call_all() -> dict[str, tuple[list[int], list[int]]]:
    """On a rank: {collective: (this rank's numbers before, after)}. Rank 0 has units, rank 1 tens, rank 2 hundreds.

    So the digits of a sum say whose numbers are in it. An all-gather begins with one number per rank.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    found = {}
    for name, call in COLLECTIVES.items():
        before = 10**rank * torch.arange(1, 1 + (1 if name == "all_gather" else ranks))
        found[name] = before.tolist(), call(before.clone()).tolist()
    return found


@picture
def collectives_drawn(ranks: int = 3):
    """Five collectives of a real run, one row per rank: its numbers before the call, in its own color, and after it. Sums of
    all ranks are dark."""
    found = launch(call_all, ranks=ranks)
    figure = style.new_figure(11, 0.5 + 0.45 * ranks)
    for axes, name in zip(figure.subplots(1, len(COLLECTIVES)), COLLECTIVES, strict=True):
        for rank, row in enumerate(found):
            before, after = row[name]
            _boxes(axes, before, ranks - len(before), rank, ranks)  # next to the arrow
            _boxes(axes, after, ranks + 1, rank, ranks)
            axes.text(ranks + 0.5, rank, "→", ha="center", va="center", fontsize=12, color=style.INK)
        axes.set(xlim=(-0.7, 2 * ranks + 1.7), ylim=(ranks - 0.4, -0.6), title=name, xticks=[])
        axes.set_yticks(range(ranks), [f"rank {rank}" for rank in range(ranks)] if name == "broadcast" else [""] * ranks)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.grid(visible=False)
    return figure


def _boxes(axes, numbers: list[int], left: int, rank: int, ranks: int) -> None:
    for i, number in enumerate(numbers):
        digits = str(number)
        is_sum = ranks > 1 and len(digits) == ranks and "0" not in digits
        color = style.INK if is_sum else style.CYCLE[len(digits) - 1]
        ink = style.DARK if color == style.ORANGE else "white"
        axes.barh(rank, 0.94, left=left + i, height=0.8, color=color)
        axes.text(left + i + 0.47, rank, digits, ha="center", va="center", fontsize=8, color=ink)
