"""What the ranks do in `gradient-aggregation`: gradients compared with one process, and steps over links of chosen speed.

Gradients are summed after the backward pass, or while it goes on.
"""

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median, median_low

import torch
from torch import distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.timing.clock import PLACEBO
from hpml_lab.core.timing.timeline import Span, busy, overlap, span
from hpml_lab.distributed.lessons.buckets import Link, ddp_hook
from hpml_lab.distributed.lessons.ddp import OverlappingDDP
from hpml_lab.distributed.lessons.ring import gather_and_broadcast, ring_all_reduce

UNEVEN = {2: (16, 32), 3: (8, 16, 24), 4: (4, 9, 14, 21)}  # samples by rank: 48 in all
INTEGER_SHARES = {2: (32, 32), 3: (16, 16, 32), 4: (16, 16, 16, 16)}  # 64 in all, a power of two
PAYLOAD = 24_000  # numbers: divisible by 2, 3 and 4
SMALL_BUCKETS = 0.01  # MiB, so that a small network has several
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
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
    spans     what computed and what was sent when, in the median step
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
    """What one rank found: seconds of forward and backward for the balanced link, and the runs."""

    forward: float
    backward: float
    runs: list[LinkRun]


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
    return OverlapReport(*passes[1], runs)


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
    drawn: dict[str, list[list[Span]]] = {way: [] for way in steps}
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
            run.seconds.append(seconds)
            drawn[way].append(spans + link.spans)
            run.messages = list(link.sent)
            hidden[way].append(hidden_share(spans, link, start))
    for way, run in runs.items():
        run.hidden = median(hidden[way])
        run.spans = drawn[way][run.seconds.index(median_low(run.seconds))]
    return list(runs.values())


def hidden_share(compute: list[Span], link: Link, start: float) -> float:
    """The share of the transfers during which this rank computed.

    It computed until its backward pass ended. DDP's ends with the last sum: it computed until the last one was asked for.
    """
    end = min(max(each.end for each in compute), max(link.asked))
    return overlap([Span("compute", "", start, end)], link.spans) / busy(link.spans)


# ---- the gradient compared with that of one process ----------------------------------------------------------------------


@dataclass
class RankReport:
    """What one rank found.

    integers   {"DDP" or "OverlappingDDP": bitwise equal to the whole batch's gradient}
    errors     {(number format, shares, loss): {"DDP" or "OverlappingDDP": largest difference / largest gradient}}
    predicted  how far the mean of means should be off, and `prediction_error`: how far it is from that
    sent       {way of the all-reduce: payloads sent by this rank}, and `sums_right`: all ways gave the right sum
    """

    integers: dict[str, bool]
    errors: dict[tuple[str, str, str], dict[str, float]] = field(default_factory=dict)
    predicted: float = 0.0
    prediction_error: float = 0.0
    sent: dict[str, float] = field(default_factory=dict)
    sums_right: bool = False


def check_gradients(images: torch.Tensor, labels: torch.Tensor) -> RankReport:
    """All checks on this rank; `images` (48, features) and `labels` are the whole batch."""
    ranks = dist.get_world_size()
    report = RankReport(integers=integer_gradients())
    even = (len(images) // ranks,) * ranks
    for dtype in (torch.float64, torch.float32):
        report.errors[str(dtype).removeprefix("torch."), "even", "mean"] = gradient_errors(
            images.to(dtype), labels, even, F.cross_entropy
        )
    for loss, compute in {"mean": F.cross_entropy, "sum · N/G": summed_loss(len(images))}.items():
        report.errors["float64", "uneven", loss] = gradient_errors(images.double(), labels, UNEVEN[ranks], compute)
    report.predicted, report.prediction_error = mean_of_means(images.double(), labels, UNEVEN[ranks])
    report.sent, report.sums_right = count_bytes()
    return report


# ---- gradients of a share and of the whole batch ------------------------------------------------------------------------


def flat_gradient(net: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in net.parameters()])


def own_share(sizes: Sequence[int]) -> slice:
    """The samples of this rank, where rank r has sizes[r] of them."""
    start = sum(sizes[: dist.get_rank()])
    return slice(start, start + sizes[dist.get_rank()])


def mlp(inputs: int, hidden: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def digits_net(images: torch.Tensor) -> nn.Module:
    torch.manual_seed(0)
    return mlp(images.shape[1], 32, 10).to(images.dtype)


def summed_loss(samples: int) -> Loss:
    """N/G times the sum over the share: the mean over ranks of its gradients is that of the mean over all G `samples`."""
    ranks = dist.get_world_size()
    return lambda outputs, labels: F.cross_entropy(outputs, labels, reduction="sum") * ranks / samples


def synchronized_gradients(net: nn.Module, loss: Callable[[nn.Module], torch.Tensor]) -> dict[str, torch.Tensor]:
    """The gradient of `loss(net)` averaged over ranks, by torch's DDP and by OverlappingDDP."""
    theirs = DistributedDataParallel(copy.deepcopy(net))
    loss(theirs).backward()
    own = OverlappingDDP(copy.deepcopy(net), SMALL_BUCKETS)
    loss(own).backward()
    own.finish_gradient_synchronization()
    return {"DDP": flat_gradient(theirs), "OverlappingDDP": flat_gradient(own)}


def integer_gradients() -> dict[str, bool]:
    """Weights, inputs and targets are small integers, so that every product and sum is exact, in whatever order it is done.

    The scale N/64 is exact as well, and so is the division by N that undoes it (3m/3 rounds to m for every float64 m).
    """
    ranks = dist.get_world_size()
    torch.manual_seed(0)
    net = mlp(12, 16, 4).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randint(-2, 3, parameter.shape))
    x, target = (torch.randint(-3, 4, (64, width)).double() for width in (12, 4))
    (0.5 * (net(x) - target).square().sum() / 64).backward()
    whole = flat_gradient(net)
    net.zero_grad()
    share = own_share(INTEGER_SHARES[ranks])
    gradients = synchronized_gradients(net, lambda net: 0.5 * (net(x[share]) - target[share]).square().sum() * ranks / 64)
    return {way: torch.equal(gradient, whole) and bool(whole.any()) for way, gradient in gradients.items()}


def gradient_errors(images: torch.Tensor, labels: torch.Tensor, sizes: Sequence[int], loss: Loss) -> dict[str, float]:
    """The largest difference from the whole batch's gradient, relative to its largest entry."""
    net = digits_net(images)
    F.cross_entropy(net(images), labels).backward()
    whole = flat_gradient(net)
    net.zero_grad()
    share = own_share(sizes)
    found = synchronized_gradients(net, lambda net: loss(net(images[share]), labels[share]))
    return {way: relative_difference(gradient, whole) for way, gradient in found.items()}


def mean_of_means(images: torch.Tensor, labels: torch.Tensor, sizes: Sequence[int]) -> tuple[float, float]:
    """How far the mean of the ranks' means is off by theory, and how far DDP's gradient is from that.

    DDP gives Σ 1/N · g_r, where g_r is the mean over share r; the whole batch's gradient is Σ n_r/G · g_r.
    """
    net = digits_net(images)
    means = []
    for x, y in zip(images.split(sizes), labels.split(sizes), strict=True):
        net.zero_grad()
        F.cross_entropy(net(x), y).backward()
        means.append(flat_gradient(net))
    whole = sum(size / sum(sizes) * mean for size, mean in zip(sizes, means, strict=True))
    off = sum((1 / len(sizes) - size / sum(sizes)) * mean for size, mean in zip(sizes, means, strict=True))
    net.zero_grad()
    share = own_share(sizes)
    found = synchronized_gradients(net, lambda net: F.cross_entropy(net(images[share]), labels[share]))["DDP"]
    return relative_difference(whole + off, whole), relative_difference(found, whole + off)


# ---- bytes -----------------------------------------------------------------------------------------------------


def count_bytes() -> tuple[dict[str, float], bool]:
    """How many payloads this rank sends in an all-reduce on a ring, and by way of rank 0; and whether the sums are right."""
    payload = torch.randint(-99, 100, (PAYLOAD,), generator=torch.Generator().manual_seed(dist.get_rank())).float()
    total = payload.clone()
    dist.all_reduce(total)
    sent, right = {}, True
    for way, all_reduce in {"ring": ring_all_reduce, "by way of rank 0": gather_and_broadcast}.items():
        summed = payload.clone()
        sent[way] = all_reduce(summed) / payload.nbytes
        right = right and torch.equal(summed, total)
    return sent, right


def relative_difference(found: torch.Tensor, right: torch.Tensor) -> float:
    """The largest difference, relative to the largest entry."""
    return ((found - right).abs().max() / right.abs().max()).item()
