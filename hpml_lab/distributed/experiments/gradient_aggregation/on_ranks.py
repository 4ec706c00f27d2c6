"""Training steps on ranks over links of chosen speed: gradients summed after the backward pass, or while it goes on."""

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hpml_lab.core.measure.timeline import CLOCK, Span, busy, overlap, span
from hpml_lab.core.measure.timing import PLACEBO
from hpml_lab.distributed.lessons.buckets import Link, ddp_hook
from hpml_lab.distributed.lessons.ddp import OverlappingDDP

AFTER, DDP = "after the backward pass", "torch's DDP"  # one message for all gradients; buckets
MESSAGE = 0.04  # what the latencies of one all-reduce take, 2(N−1)·α, in backward passes
WARM_UP = 2  # steps: DDP arranges its buckets after its first one
Step = Callable[[list[Span]], None]


def own(bucket_mb: float) -> str:
    """The name of OverlappingDDP with buckets of this size."""
    return f"OverlappingDDP, {bucket_mb:g} MiB"


@dataclass
class LinkRun:
    """What this rank measured with one way of synchronizing over one link.

    seconds   of each step
    spans     what computed and what was sent when, in the fastest step
    messages  the bytes of each message of a step
    hidden    seconds of transfer during forward and backward, as a share of the transfer: the median over the steps
    """

    traffic: float
    way: str
    seconds: list[float]
    spans: list[Span]
    messages: list[int]
    hidden: float
    mbit_per_s: float = 0.0


@dataclass
class OverlapReport:
    """What one rank found: seconds of forward and backward for the balanced link, the runs, and torch's DDP's buckets."""

    forward: float
    backward: float
    runs: list[LinkRun]
    ddp_buckets: list[list[int]]


def slowest_rank(reports: list[OverlapReport]) -> dict[tuple[float, str], list[float]]:
    """{(traffic, way): seconds of each step}; a step takes as long as its slowest rank."""
    return {
        (run.traffic, run.way): [max(times) for times in zip(*(report.runs[i].seconds for report in reports), strict=True)]
        for i, run in enumerate(reports[0].runs)
    }


def deep_network(width: int, depth: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())))


def run_overlap(
    width: int, depth: int, batch: int, traffics: Sequence[float], bucket_mb: float, further_mb: Sequence[float], samples: int
) -> OverlapReport:
    """Time the ways of synchronizing in turns, for each link.

    traffics    how long a link needs for all gradients, in backward passes
    further_mb  further sizes of buckets, tried with the link that needs one backward pass
    """
    net, x = deep_network(width, depth), torch.randn(batch, width)
    runs, passes = [], {}
    for traffic in traffics:
        passes[traffic] = compute_seconds(net, x)  # anew for each link, because the machine's speed drifts
        link = link_for(net, traffic, passes[traffic][1])
        sizes = [bucket_mb, *(further_mb if traffic == 1 else ())]
        steps = {AFTER: step_after(net, x, link), PLACEBO: step_after(net, x, link), DDP: step_of_ddp(net, x, link, bucket_mb)}
        steps |= {own(size): step_of_own(net, x, link, size) for size in sizes}
        runs += timed_in_turns(steps, link, traffic, samples)
    return OverlapReport(*passes[1], runs, buckets_of_ddp(net, x, bucket_mb))


def compute_seconds(net: nn.Module, x: torch.Tensor, repeats: int = 7) -> tuple[float, float]:
    """Seconds of a forward and of a backward pass while all ranks compute; all ranks return rank 0's."""
    found = []
    for _ in range(repeats + 1):
        dist.barrier()
        spans: list[Span] = []
        forward_and_backward(net, x, spans)
        found.append([each.seconds for each in spans])
    seconds = torch.tensor([median(column) for column in zip(*found[1:], strict=True)])
    dist.broadcast(seconds, src=0)
    return tuple(seconds.tolist())


def forward_and_backward(net: nn.Module, x: torch.Tensor, spans: list[Span]) -> None:
    net.zero_grad()
    with span(spans, "compute", "forward"):
        loss = net(x).square().mean()
    with span(spans, "compute", "backward"):
        loss.backward()


def link_for(net: nn.Module, traffic: float, backward: float) -> Link:
    """A link that needs `traffic` backward passes for the bytes of all gradients, and MESSAGE for each message."""
    ranks, nbytes = dist.get_world_size(), sum(parameter.nbytes for parameter in net.parameters())
    return Link(2 * (ranks - 1) / ranks * nbytes / (traffic * backward), MESSAGE * backward / (2 * max(1, ranks - 1)))


# ---- ways to synchronize ------------------------------------------------------------------------------------------------


def step_after(net: nn.Module, x: torch.Tensor, link: Link) -> Step:
    """One message with all gradients, after the backward pass."""
    net = copy.deepcopy(net)

    def step(spans: list[Span]) -> None:
        forward_and_backward(net, x, spans)
        gradients = torch.cat([parameter.grad.flatten() for parameter in net.parameters()])
        link.all_reduce(gradients.mul_(1 / dist.get_world_size())).wait()

    return step


def step_of_ddp(net: nn.Module, x: torch.Tensor, link: Link, bucket_mb: float) -> Step:
    ddp = DistributedDataParallel(copy.deepcopy(net), bucket_cap_mb=bucket_mb, gradient_as_bucket_view=True)
    ddp.register_comm_hook(link, ddp_hook)
    return functools.partial(forward_and_backward, ddp, x)  # its backward pass ends when all sums have arrived


def step_of_own(net: nn.Module, x: torch.Tensor, link: Link, bucket_mb: float) -> Step:
    net = OverlappingDDP(copy.deepcopy(net), bucket_mb, link.all_reduce)

    def step(spans: list[Span]) -> None:
        forward_and_backward(net, x, spans)
        net.finish_gradient_synchronization()

    return step


def timed_in_turns(steps: dict[str, Step], link: Link, traffic: float, samples: int) -> list[LinkRun]:
    """Run all ways in turns, on all ranks at once: every step starts together on all ranks."""
    runs = {way: LinkRun(traffic, way, [], [], [], 0.0, 8e-6 * link.bytes_per_second) for way in steps}
    hidden: dict[str, list[float]] = {way: [] for way in steps}
    for turn in range(WARM_UP + samples):
        for way, step in steps.items():
            link.clear()
            dist.barrier()
            spans: list[Span] = []
            start = CLOCK()
            step(spans)
            seconds, run = CLOCK() - start, runs[way]
            if turn < WARM_UP:
                continue
            if seconds < min(run.seconds, default=float("inf")):
                run.spans = spans + link.spans
            run.seconds.append(seconds)
            run.messages = list(link.sent)
            hidden[way].append(hidden_share(spans, link, start))
    for way, run in runs.items():
        run.hidden = median(hidden[way])
    return list(runs.values())


def hidden_share(compute: list[Span], link: Link, start: float) -> float:
    """The share of the transfers during which this rank computed.

    It computed until its backward pass ended. DDP's ends with the last sum: it computed until the last one was asked for.
    """
    end = min(max(each.end for each in compute), max(link.asked))
    return overlap([Span("compute", "", start, end)], link.spans) / busy(link.spans)


def buckets_of_ddp(net: nn.Module, x: torch.Tensor, bucket_mb: float) -> list[list[int]]:
    """The numbers of the parameters in each bucket of torch's DDP in its second step, as its communication hook sees them."""
    net = copy.deepcopy(net)
    number = {id(parameter): number for number, parameter in enumerate(net.parameters())}
    ddp = DistributedDataParallel(net, bucket_cap_mb=bucket_mb)
    seen: list[list[int]] = []

    def look(_: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        seen.append([number[id(parameter)] for parameter in bucket.parameters()])
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    ddp.register_comm_hook(None, look)
    for _ in range(2):
        seen.clear()
        ddp(x).sum().backward()
    return seen
