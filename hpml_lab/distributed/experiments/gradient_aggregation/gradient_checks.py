"""What runs on each rank when gradients of several ranks are compared with those of one process on the whole batch."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from hpml_lab.distributed.experiments.gradient_aggregation.awkward_network import relative_difference, train_awkward_network
from hpml_lab.distributed.lessons.ddp import OverlappingDDP
from hpml_lab.distributed.lessons.ring import gather_and_broadcast, ring_all_reduce

UNEVEN = {2: (16, 32), 3: (8, 16, 24), 4: (4, 9, 14, 21)}  # samples by rank: 48 in all
INTEGER_SHARES = {2: (32, 32), 3: (16, 16, 32), 4: (16, 16, 16, 16)}  # 64 in all, a power of two
PAYLOAD = 24_000  # numbers: divisible by 2, 3 and 4
SMALL_BUCKETS = 0.01  # MiB, so that a small network has several
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass
class RankReport:
    """What one rank found.

    integers   {"DDP" or "OverlappingDDP": bitwise equal to the whole batch's gradient}
    errors     {(number format, shares, loss): {"DDP" or "OverlappingDDP": largest difference / largest gradient}}
    predicted  how far the mean of means should be off, and `prediction_error`: how far it is from that
    bits       {a way to sum the ranks' gradients: bitwise equal to DDP's}
    same_bits  all ranks hold bitwise the same gradient
    sent       {way of the all-reduce: payloads sent by this rank}, and `sums_right`: all ways gave the right sum
    awkward    {what: whether it holds} for tied, frozen and unused parameters, and `awkward_errors`: how far the trained ones
               are from those of one process, by "DDP" and "OverlappingDDP"
    """

    integers: dict[str, bool]
    errors: dict[tuple[str, str, str], dict[str, float]] = field(default_factory=dict)
    predicted: float = 0.0
    prediction_error: float = 0.0
    bits: dict[str, bool] = field(default_factory=dict)
    same_bits: bool = False
    sent: dict[str, float] = field(default_factory=dict)
    sums_right: bool = False
    awkward: dict[str, bool] = field(default_factory=dict)
    awkward_errors: dict[str, float] = field(default_factory=dict)


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
    report.bits, report.same_bits = orders_with_the_bits_of_ddp(images, labels, even)
    report.sent, report.sums_right = count_bytes()
    report.awkward, report.awkward_errors = train_awkward_network(images.double(), labels)
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


# ---- bits and bytes -----------------------------------------------------------------------------------------------------


def orders_with_the_bits_of_ddp(images: torch.Tensor, labels: torch.Tensor, sizes: Sequence[int]) -> tuple[dict, bool]:
    """Which ways to average the ranks' float32 gradients are bitwise identical to torch's DDP with one bucket."""
    ranks, share = dist.get_world_size(), own_share(sizes)
    net = digits_net(images)
    ddp = DistributedDataParallel(copy.deepcopy(net))
    F.cross_entropy(ddp(images[share]), labels[share]).backward()
    bits = flat_gradient(ddp)
    F.cross_entropy(net(images[share]), labels[share]).backward()
    own = flat_gradient(net)
    gathered = [torch.empty_like(own) for _ in range(ranks)]
    dist.all_gather(gathered, own / ranks)
    scaled_first, scaled_last, by_ring = own * (1 / ranks), own.clone(), own * (1 / ranks)
    dist.all_reduce(scaled_first)
    dist.all_reduce(scaled_last)
    ring_all_reduce(by_ring)
    ways = {
        "all_reduce(g · 1/N)": scaled_first,
        "all_reduce(g) · 1/N": scaled_last * (1 / ranks),
        "g/N, rank after rank": sum(gathered[1:], gathered[0]),
        "g · 1/N, on our ring": by_ring,
    }
    dist.all_gather(gathered, bits)
    same = all(torch.equal(gathered[0], other) for other in gathered)
    return {way: torch.equal(total, bits) for way, total in ways.items()}, same


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
