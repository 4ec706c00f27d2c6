"""Where a data-parallel step goes, part by part: a small net with batch norm, on one rank and more, at several batch sizes."""

from dataclasses import dataclass

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.system.launcher import launch
from hpml_lab.core.system.placement import crowded, placement
from hpml_lab.distributed.tools.parts_of_a_step import StepRow, time_step_parts

QUICK = dict(ranks=2, batches=(8, 32, 128), samples=11)
FULL = dict(ranks=4, batches=(16, 64, 256), samples=15)
PARTS = {"forward": style.BLUE, "backward": style.GREEN, "waiting": style.ORANGE, "optimizer": style.PURPLE}


@dataclass
class SentRow(Row):
    """What a step sends."""

    what: str = column("what")
    nbytes: int = column("size", "bytes")


@dataclass
class StrongRow(Row):
    """A batch that the ranks divide."""

    batch: int = column("batch of all ranks")
    ranks: int = column("ranks")
    speed_up: float = column("speed-up over one rank")


def make_net() -> nn.Module:
    """Two convolutions with batch norm for 32 × 32 pictures, and a wide layer: many parameters for little to compute."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 64, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )


def make_batch(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(size, 3, 32, 32), torch.randint(10, (size,))


def sent_in_a_step() -> tuple[int, bool, bool]:
    """On a rank: (bytes of all buckets of a step's gradients, whether training has moved this rank's buffers away from those of
    rank 0, whether a forward pass has brought rank 0's)."""
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(make_net())
    sent = []

    def hook(state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        sent.append(bucket.buffer().nbytes)
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])

    model.register_comm_hook(None, hook)
    model(make_batch(8)[0]).sum().backward()
    own = [buffer.clone() for buffer in model.buffers()]
    of_rank_0 = [buffer.clone() for buffer in own]
    for buffer in of_rank_0:
        dist.broadcast(buffer, 0)
    model.eval()
    model(make_batch(8)[0])
    return sum(sent), not _equal(own, of_rank_0), _equal(list(model.buffers()), of_rank_0)


def _equal(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Left: the parts of a step, by ranks and by the batch of each rank. Right: the speed-up in samples per second over one
    rank; circles: each rank keeps its batch (weak), squares: they divide it (strong). Lines: what compute + all-reduce would
    give if nothing were hidden; gray: ideal. For which batches does the orange part matter?"""
    figure = style.new_figure(11, 4.4)
    left, right = figure.subplots(1, 2, width_ratios=(1.3, 1))
    rows = result.rows(StepRow)
    labels = [f"{row.ranks} × {row.batch}" for row in rows]
    bottom = [0.0] * len(rows)
    for part, color in PARTS.items():
        values = [max(0.0, getattr(row, part)) for row in rows]
        hatch = "///" if part == "waiting" else None
        name = "all-reduce, not hidden" if part == "waiting" else part
        left.bar(labels, values, bottom=bottom, color=color, hatch=hatch, label=name)
        bottom = [a + b for a, b in zip(bottom, values, strict=True)]
    left.set(xlabel="ranks × batch of a rank", ylabel="ms", title="One step")
    left.tick_params(axis="x", rotation=40 if len(rows) > 8 else 0)
    left.legend(fontsize=8)
    counts = sorted({row.ranks for row in rows})
    colors = dict(zip(sorted({row.batch for row in rows}), style.CYCLE, strict=False))
    for batch, color in colors.items():
        of_batch = [row for row in rows if row.batch == batch]
        right.plot(counts, [row.speed_up for row in of_batch], "o", color=color, label=f"batch {batch} on each, weak")
        right.plot(counts, [row.ranks * of_batch[0].step / row.predicted for row in of_batch], "-", color=color, linewidth=1)
    divided = strong(rows)
    for batch in dict.fromkeys(row.batch for row in divided):
        points = [(1, 1.0), *((row.ranks, row.speed_up) for row in divided if row.batch == batch)]
        label = f"batch {batch} divided, strong"
        right.plot(*zip(*points, strict=True), "s--", color=colors[batch], markerfacecolor="none", label=label)
    right.plot(counts, counts, color=style.GREY, linestyle=":")
    right.set(xlabel="ranks", ylabel="speed-up", xticks=counts, title="Samples per second")
    right.legend(fontsize=8)
    return figure


def strong(rows: list[StepRow]) -> list[StrongRow]:
    """What was measured with one rank and with parts of the same batch."""
    steps = {(row.ranks, row.batch): row.step for row in rows}
    divided = [(ranks * batch, ranks, step) for (ranks, batch), step in steps.items() if ranks > 1]
    return [StrongRow(whole, ranks, steps[1, whole] / step) for whole, ranks, step in divided if (1, whole) in steps]


# ---- the experiment --------------------------------------------------------------------------------------------------


@experiment("step-parts", lecture="own", notebook="13_distributed", draw=draw, quick=QUICK, full=FULL, uses=("two-gpus",))
def step_parts(params: Params) -> Result:
    """Where a data-parallel step goes, by ranks and batch size."""
    where = placement(params.ranks, params.device, all_gpus=params.size == "full", power_of_two=True)
    counts = [count for count in (1, 2, 4, 8) if count <= where.ranks]
    smallest = min(params.batches)
    batches = sorted({*params.batches, *(count * smallest for count in counts)})
    rows = time_step_parts(make_net, make_batch, ranks=counts, batches=batches, samples=params.samples, device=where.device)
    net = make_net()
    gradients, buffers = (sum(t.nbytes for t in tensors) for tensors in (net.parameters(), net.buffers()))
    ranks = launch(sent_in_a_step, ranks=2)
    result = Result(
        [
            Table("One step, by ranks and by the batch of each rank", rows),
            Table("What DDP sends in a step", [SentRow("gradients", gradients), SentRow("buffers of batch norm", buffers)]),
            Table("A batch that the ranks divide (strong scaling)", strong(rows)),
        ]
    )
    two = [row for row in rows if row.ranks == 2]
    small, large = two[0], two[-1]
    result.key_figure(f"not hidden, 2 ranks, batch {small.batch}", 100 * small.waiting / small.step, "% of the step")
    result.key_figure(f"not hidden, 2 ranks, batch {large.batch}", 100 * large.waiting / large.step, "% of the step")
    result.claim(
        "The buckets of a step hold each gradient once: as many bytes as the parameters",
        all(sent == gradients for sent, _, _ in ranks),
        f"{ranks[0][0]:,} bytes",
    )
    result.claim(
        "Batch norm's averages part in training, and the next forward pass brings those of rank 0 to all",
        ranks[1][1] and all(same for _, _, same in ranks),
        f"{buffers:,} bytes",
    )
    result.measured(
        "The larger the batch, the smaller is the part of the step that waits for the all-reduce",
        large.waiting / large.step < small.waiting / small.step,
        ", ".join(f"batch {row.batch}: {100 * row.waiting / row.step:.0f} %" for row in two),
    )
    result.measured(
        "Compute + all-reduce predicts the step of two ranks within 25 % at the largest batch",
        abs(large.step / large.predicted - 1) < 0.25,
        f"predicted {large.predicted:.3g} ms, measured {large.step:.3g} ms",
    )
    if where.device == "cpu":
        result.notes += [note for note in (where.note if params.device.is_cuda else "", *crowded(counts[-1])) if note]
    return result
