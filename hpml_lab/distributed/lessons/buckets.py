"""Gradients in buckets: a few flat buffers, each summed over ranks in one message while the backward pass goes on.

A message costs a latency α and n/β for its n bytes. One message per parameter pays α for each of them; one message for all
gradients can only start when the last gradient is ready. Buckets lie between: few messages, the first of which leaves early.

The backward pass starts at the last layer, so the last parameters fill the first bucket.
"""

from collections.abc import Sequence

import torch
from torch import distributed as dist
from torch import nn

from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.system.workers import sleep_until
from hpml_lab.core.timing.timeline import Span

MIB = 1 << 20


def assign_buckets(parameters: Sequence[torch.Tensor], bucket_mb: float) -> list[list[int]]:
    """The numbers of the parameters in each bucket, in the order in which the buckets become ready.

    From the last parameter to the first, a bucket takes parameters until it holds at least `bucket_mb` MiB. Parameters of
    different dtype or device need different buffers.
    """
    closed: list[list[int]] = []
    open_buckets: dict[tuple, list[int]] = {}
    for number in reversed(range(len(parameters))):
        kind = parameters[number].dtype, parameters[number].device
        bucket = open_buckets.setdefault(kind, [])
        bucket.append(number)
        if sum(parameters[i].nbytes for i in bucket) >= bucket_mb * MIB:
            closed.append(open_buckets.pop(kind))
    return closed + list(open_buckets.values())


def last_arrival(ready: Sequence[float], seconds: Sequence[float]) -> float:
    """When the last bucket has arrived: each leaves when it is ready and the link is free.

    end_k = max(ready_k, end_{k−1}) + seconds_k
    """
    end = 0.0
    for moment, duration in zip(ready, seconds, strict=True):
        end = max(moment, end) + duration
    return end


class GradientBucket:
    """The gradients of some parameters in one flat buffer, ready to be sent:

        buffer = [ gradient of p0 | gradient of p1 | … | one flag per parameter ]

    A parameter's gradient is a view of the buffer, so that nothing is copied back. The flag says whether a rank has a
    gradient for it; summed with the rest, it says whether any rank has one.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        sizes = [parameter.numel() for parameter in parameters]
        self.buffer = parameters[0].detach().new_zeros(sum(sizes) + len(sizes))
        *gradients, self.flags = self.buffer.split([*sizes, len(sizes)])
        self.kinds = [kind_of(parameter) for parameter in parameters]
        self.views = [
            flat.as_strided(parameter.shape, strides)
            for flat, parameter, (_, _, strides) in zip(gradients, parameters, self.kinds, strict=True)
        ]
        self.waits_for = set(self.parameters)  # whose gradients this backward pass has not computed yet

    def collect(self, scale: float) -> None:
        """Bring the gradients into the buffer, times `scale`; from now on each `grad` is a view of it."""
        self.flags.fill_(1)
        for number, (parameter, view) in enumerate(zip(self.parameters, self.views, strict=True)):
            if parameter.grad is None:
                view.zero_()
                self.flags[number] = 0
            elif parameter.grad is not view:  # after zero_grad() or for the first time
                view.copy_(parameter.grad.to_dense())  # an embedding's may be sparse
                parameter.grad = view
        self.buffer.mul_(scale)

    def hand_out(self) -> None:
        """After the sum: a parameter without a gradient gets the sum, if another rank had one."""
        for number, (parameter, view) in enumerate(zip(self.parameters, self.views, strict=True)):
            if parameter.grad is None and self.flags[number] != 0:
                parameter.grad = view
        self.waits_for = set(self.parameters)


def kind_of(parameter: torch.Tensor) -> tuple[torch.dtype, torch.device, tuple[int, ...]]:
    """How its gradient has to be: a fused optimizer goes through both in the order in which they lie in memory."""
    return parameter.dtype, parameter.device, torch.empty_like(parameter, device="meta").stride()


# ---- a link of chosen speed ---------------------------------------------------------------------------------------------


class SumUnderWay:
    """A sum on its way: `wait()` returns when it has arrived; `future` is what a communication hook of DDP returns."""

    def __init__(self, link: "Link", buffer: torch.Tensor) -> None:
        self._link, self._name = link, f"bucket {len(link.sent)}"
        link.asked.append(CLOCK())
        self._start = max(link.asked[-1], link.free_at)  # one transfer at a time
        link.free_at = self._end = self._start + link.seconds(buffer.nbytes)
        link.sent.append(buffer.nbytes)
        self.future = dist.all_reduce(buffer, async_op=True).get_future().then(self._arrive)

    def _arrive(self, summed: torch.futures.Future) -> torch.Tensor:
        """In a thread of gloo, once the sum is there: wait until the link would have delivered it."""
        sleep_until(self._end)
        self._link.spans.append(Span("link", self._name, self._start, CLOCK()))
        return summed.value()[0]

    def wait(self) -> None:
        self.future.wait()


class Link:
    """A link of chosen speed between ranks of one machine: sums are computed at once, and arrive when a ring would have them.

        seconds(n) = 2(N−1)·α + 2(N−1)/N · n/β

    bytes_per_second  β of the link from one rank to the next, and `latency_seconds`: α of one message on it
    `sent` lists the bytes of each transfer, `asked` when it was asked for, `spans` when it was under way. For ranks on gloo:
    with NCCL the CPU does not wait for sums.
    """

    def __init__(self, bytes_per_second: float, latency_seconds: float = 0.0) -> None:
        self.bytes_per_second, self.latency_seconds = bytes_per_second, latency_seconds
        self.clear()

    def clear(self) -> None:
        """Forget what was sent."""
        self.free_at = 0.0
        self.sent: list[int] = []
        self.asked: list[float] = []
        self.spans: list[Span] = []

    def seconds(self, nbytes: int) -> float:
        ranks = dist.get_world_size()
        return 2 * (ranks - 1) * (self.latency_seconds + nbytes / ranks / self.bytes_per_second)

    def all_reduce(self, buffer: torch.Tensor) -> SumUnderWay:
        """Start to sum `buffer` over ranks, in place."""
        return SumUnderWay(self, buffer)


def ddp_hook(link: Link, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """For torch's DDP: `ddp.register_comm_hook(link, ddp_hook)` sends its buckets through `link`. A hook has to average."""
    return link.all_reduce(bucket.buffer().mul_(1 / dist.get_world_size())).future
