"""context-parallel: attention of a sequence that is cut among ranks on a ring, what it sends, and who waits for whom."""

from dataclasses import dataclass

import torch
from matplotlib.patches import Rectangle
from torch import distributed as dist
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import grouped_bars
from hpml_lab.core.system.launcher import launch
from hpml_lab.model_parallel.experiments.one_process import BOUND, NUMBER, relative_difference
from hpml_lab.model_parallel.lessons.ring_attention import RingAttention, chunks_of, part_of_sequence, visible_pairs
from hpml_lab.model_parallel.tools.communication import SEND, Traffic

QUICK = dict(ranks=2, batch=2, heads=4, length=256, head_width=32)
FULL = dict(ranks=4, batch=1, heads=8, length=1024, head_width=64)
LARGEST = 32  # ranks for which the numbers of blocks are checked
ORDERS = {"in order": False, "zig-zag": True}


@dataclass
class RingOrder(Row):
    """Attention on a ring, with the sequence cut in one of two orders."""

    order: str = column("chunks")
    output: float = column("output", "relative difference from the whole")
    gradients: float = column("gradients", "relative difference from the whole")
    forward_kb: float = column("a rank sends forward", "kB")
    backward_kb: float = column("backward", "kB")
    slowest: int = column("blocks in turn", "the slowest rank of each step")
    waiting: float = column("ranks wait", "% of the time")


@dataclass
class RingOnRank:
    """One forward and backward pass on a rank: relative differences, bytes sent, and FLOPs of the forward pass."""

    output: float
    gradients: float
    forward: list[int]
    backward: list[int]
    flops: int


def ring_on_rank(batch: int, heads: int, length: int, head_width: int) -> dict[str, RingOnRank]:
    """{order: this rank's part}, compared with attention on one process."""
    torch.manual_seed(0)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    q, k, v, gradient = (torch.randn(batch, heads, length, head_width, dtype=torch.float64) for _ in range(4))
    leaves = [tensor.requires_grad_() for tensor in (q, k, v)]
    whole = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    goals = torch.autograd.grad(whole, leaves, gradient)
    found = {}
    for order, zigzag in ORDERS.items():
        own = [part_of_sequence(tensor.detach(), rank, ranks, zigzag).requires_grad_() for tensor in leaves]
        with Traffic() as traffic, FlopCounterMode(display=False) as flops:
            output = RingAttention.apply(*own, zigzag)
        with Traffic() as back:
            gradients = torch.autograd.grad(output, own, part_of_sequence(gradient, rank, ranks, zigzag))
        found[order] = RingOnRank(
            output=relative_difference(output, part_of_sequence(whole, rank, ranks, zigzag)),
            gradients=max(
                relative_difference(own_one, part_of_sequence(goal, rank, ranks, zigzag))
                for own_one, goal in zip(gradients, goals, strict=True)
            ),
            forward=[one.sent for one in traffic.sendings if one.kind == SEND],
            backward=[one.sent for one in back.sendings if one.kind == SEND],
            flops=flops.get_total_flops(),
        )
    return found


def blocks_by_step(rank: int, ranks: int, zigzag: bool) -> list[int]:
    """How many blocks of scores a rank computes in each step: pairs of its chunks and the visitors'."""
    return [len(visible_pairs(rank, (rank - step) % ranks, ranks, zigzag)) for step in range(ranks)]


def slowest_by_step(ranks: int, zigzag: bool) -> list[int]:
    """The blocks of the slowest rank in each step: the step lasts as long as these."""
    return [max(counts) for counts in zip(*(blocks_by_step(rank, ranks, zigzag) for rank in range(ranks)), strict=True)]


def waiting(ranks: int, zigzag: bool) -> float:
    """The share of the ranks' time in which they wait for the slowest, in %."""
    work = sum(sum(blocks_by_step(rank, ranks, zigzag)) for rank in range(ranks))
    return 100 * (1 - work / (ranks * sum(slowest_by_step(ranks, zigzag))))


def draw(result: Result):
    """Left and middle: the scores of a sequence, queries from top to bottom and keys from left to right, in chunks. A square's
    color is the rank that computes it, its number the step; what is later than the query is not computed. Look for steps in
    which a color is missing: that rank waits. Right: the blocks that the slowest rank computes in each step."""
    ranks = result.arrays["ranks"]
    figure = style.new_figure(11, 3.9)
    *maps, bars = figure.subplots(1, 3, width_ratios=(1, 1, 0.9))
    for axes, (order, zigzag) in zip(maps, ORDERS.items(), strict=True):
        for rank in range(ranks):
            for step in range(ranks):
                source = (rank - step) % ranks
                for i, j, _ in visible_pairs(rank, source, ranks, zigzag):
                    row, across = chunks_of(rank, ranks, zigzag)[i], chunks_of(source, ranks, zigzag)[j]
                    color = style.CYCLE[rank % len(style.CYCLE)]
                    axes.add_patch(Rectangle((across - 0.5, row - 0.5), 1, 1, facecolor=color, edgecolor="white"))
                    axes.text(across, row, str(step), color="white", fontsize=8, ha="center", va="center")
        owner = {chunk: rank for rank in range(ranks) for chunk in chunks_of(rank, ranks, zigzag)}
        axes.set(
            xlim=(-0.5, 2 * ranks - 0.5), ylim=(2 * ranks - 0.5, -0.5), aspect="equal", title=order, xlabel="chunk of keys"
        )
        axes.set_yticks(range(2 * ranks), [f"rank {owner[chunk]}" for chunk in range(2 * ranks)], fontsize=8)
        axes.set_xticks(range(2 * ranks))
        axes.grid(visible=False)
    maps[0].set_ylabel("chunk of queries, on")
    longest = {order: slowest_by_step(ranks, zigzag) for order, zigzag in ORDERS.items()}
    grouped_bars(bars, [f"step {step}" for step in range(ranks)], longest, labels="{:g}")
    bars.set(ylabel="blocks of the slowest rank", ylim=(0, 5.2))
    bars.legend(fontsize=8, loc="upper right", ncols=2)
    return figure


@experiment("context-parallel", lecture="L1 L3", notebook="23_model_parallel", draw=draw, quick=QUICK, full=FULL)
def context_parallel(params: Params) -> Result:
    """A sequence cut among ranks: attention on a ring equals the whole, and zig-zag order gives all ranks the same work."""
    ranks = params.ranks
    sizes = params.batch, params.heads, params.length, params.head_width
    reports = launch(ring_on_rank, *sizes, ranks=ranks, deadline_seconds=600)
    part_bytes = params.batch * params.heads * params.length * params.head_width * NUMBER // ranks  # of keys, or of values
    chunk = params.length // (2 * ranks)
    block_flops = 4 * params.batch * params.heads * chunk**2 * params.head_width  # Q Kᵀ and P V
    blocks = {order: [report[order].flops / block_flops for report in reports] for order in ORDERS}

    rows = [
        RingOrder(
            order=order,
            output=max(report[order].output for report in reports),
            gradients=max(report[order].gradients for report in reports),
            forward_kb=sum(reports[0][order].forward) / 1e3,
            backward_kb=sum(reports[0][order].backward) / 1e3,
            slowest=sum(slowest_by_step(ranks, zigzag)),
            waiting=waiting(ranks, zigzag),
        )
        for order, zigzag in ORDERS.items()
    ]
    result = Result([Table(f"Causal attention to {params.length:,} tokens on {ranks} ranks, in float64", rows)])
    result.arrays["ranks"] = ranks
    for row in rows:
        result.key_figure(f"blocks one after the other, {row.order}", row.slowest)
        result.key_figure(f"ranks wait, {row.order}", row.waiting, unit="% of the time")
    result.key_figure("a rank sends forward", rows[0].forward_kb, unit="kB")
    result.key_figure("a rank sends backward", rows[0].backward_kb, unit="kB")

    far = max(max(row.output, row.gradients) for row in rows)
    result.claim(
        "Attention on a ring gives the output and the gradients of attention to the whole sequence, in both orders, to 1e-12 "
        "in float64",
        far < BOUND,
        f"at most {far:.1g}",
    )
    result.claim(
        "Each rank sends 2 (n − 1)/n · B · H · N · d numbers forward and (4n − 2)/n · B · H · N · d backward, in messages of "
        "one part each",
        all(
            report[order].forward == 2 * (ranks - 1) * [part_bytes] and report[order].backward == (4 * ranks - 2) * [part_bytes]
            for report in reports
            for order in ORDERS
        ),
        f"{rows[0].forward_kb:g} and {rows[0].backward_kb:g} kB",
    )
    result.claim(
        "In order, rank r computes 4r + 3 blocks of scores, so the last has the most; in zig-zag order each rank computes "
        "2n + 1, by the FLOPs counted",
        blocks == {"in order": [4 * rank + 3 for rank in range(ranks)], "zig-zag": ranks * [2 * ranks + 1]},
        "; ".join(f"{order}: {', '.join(f'{found:g}' for found in counts)}" for order, counts in blocks.items()),
    )
    result.claim(
        f"On 2 to {LARGEST} ranks zig-zag order has two blocks on every rank in every step but the first, and no rank waits; "
        "in order the slowest rank has four: 4n − 1 blocks one after the other, not 2n + 1",
        all(
            (sum(slowest_by_step(n, False)), sum(slowest_by_step(n, True)), waiting(n, True)) == (4 * n - 1, 2 * n + 1, 0)
            and all(blocks_by_step(rank, n, True) == [3] + (n - 1) * [2] for rank in range(n))
            for n in range(2, LARGEST + 1)
        ),
    )
    return result
