"""Data parallel training from scratch: every rank has the whole network and computes on its own share of the batch.

    gradient = 1/N · (gradient of rank 0 + … + gradient of rank N−1)

is the gradient of the whole batch if the shares are equally large and each rank's loss is the mean over its share. (If they
are not, let rank r call backward on N/G times the sum of its losses, where G is the number of samples on all ranks.)
"""

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import distributed as dist
from torch import nn

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.same_network import check_same_on_all_ranks, take_from_rank_0
from hpml_lab.distributed.lessons.buckets import GradientBucket, assign_buckets, kind_of

start_all_reduce = partial(dist.all_reduce, async_op=True)


class OverlappingDDP(nn.Module):
    """Averages gradients over ranks while the backward pass goes on.

        net = OverlappingDDP(net)
        loss(net(x), y).backward()               # buckets leave as soon as their gradients are ready
        net.finish_gradient_synchronization()    # now every parameter's grad is the mean over ranks
        optimizer.step()

    bucket_mb   a bucket is sent when it holds this many MiB; smaller buckets start earlier, and each costs a latency
    all_reduce  (flat tensor) starts to sum it over ranks and returns a handle with wait()
    All ranks start with the parameters and buffers of rank 0. Tied, frozen and unused parameters work: a tied one is sent
    once, a frozen one never, and one that no rank has used keeps `grad` None. A sparse gradient becomes dense. What trains is
    decided here: a parameter that is unfrozen, added or replaced later is an error. Buffers, such as the running statistics of
    batch norm, are not synchronized afterwards.
    """

    def __init__(
        self, module: nn.Module, bucket_mb: float = 25.0, all_reduce: Callable[[torch.Tensor], Any] = start_all_reduce
    ) -> None:
        super().__init__()
        self.module, self._all_reduce = module, all_reduce
        check_same_on_all_ranks(chain(module.named_parameters(), module.named_buffers()))
        take_from_rank_0(chain(module.parameters(), module.buffers()))
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]  # a tied one is listed once
        if not trained:
            raise LabError("No parameter of the network requires a gradient.", "Use it as it is, or unfreeze what shall train.")
        self.buckets = [GradientBucket([trained[i] for i in numbers]) for numbers in assign_buckets(trained, bucket_mb)]
        self._under_way: list[Any] = []  # handles of the buckets that were sent: the first ones, in order
        for bucket in self.buckets:
            for parameter in bucket.parameters:
                parameter.register_post_accumulate_grad_hook(partial(self._gradient_is_ready, bucket))

    def forward(self, *inputs: Any, **options: Any) -> Any:
        return self.module(*inputs, **options)

    @torch.no_grad()  # backward(create_graph=True) would record what happens here
    def _gradient_is_ready(self, bucket: GradientBucket, parameter: nn.Parameter) -> None:
        """Called in the backward pass for each parameter; a tied one is ready when all its uses have contributed."""
        if parameter not in bucket.waits_for:
            raise LabError(
                "A parameter got a second gradient before the first was synchronized.",
                "Call finish_gradient_synchronization() after each backward pass; where a layer that is used twice is "
                "checkpointed, give checkpoint use_reentrant=False.",
            )
        bucket.waits_for.remove(parameter)
        # Ranks match messages by their order, so a bucket waits for those before it, even if it is complete.
        while self.buckets[len(self._under_way) :] and not self.buckets[len(self._under_way)].waits_for:
            self._send_next()

    def _send_next(self) -> None:
        bucket = self.buckets[len(self._under_way)]
        bucket.collect(1 / dist.get_world_size())  # before the sum, as torch's DDP does: it keeps float16 in range
        self._under_way.append(self._all_reduce(bucket.buffer))

    @torch.no_grad()
    def finish_gradient_synchronization(self) -> None:
        """Send what is left, which are the buckets with unused parameters, and wait until all sums have arrived."""
        self._check_that_all_are_sent()
        while len(self._under_way) < len(self.buckets):
            self._send_next()
        for bucket, handle in zip(self.buckets, self._under_way, strict=True):
            handle.wait()
            bucket.hand_out()
        self._under_way.clear()

    def _check_that_all_are_sent(self) -> None:
        """Raise LabError for a parameter whose gradient would stay this rank's own, so that the ranks would drift apart."""
        sent = {p: kind for bucket in self.buckets for p, kind in zip(bucket.parameters, bucket.kinds, strict=True)}
        for name, parameter in self.module.named_parameters():
            if parameter.requires_grad and sent.get(parameter) != kind_of(parameter):
                how = "converted or moved" if parameter in sent else "unfrozen, added or replaced"
                raise LabError(
                    f"{name} was {how} after OverlappingDDP was made, and its gradient is not averaged.",
                    "Make the network as it shall train first, or wrap it anew.",
                )
