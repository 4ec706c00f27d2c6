"""All-reduce on a ring: in the end every rank holds the sum, and each has sent 2(N−1)/N of the payload.

Rank r sends only to rank r + 1 and receives only from rank r − 1; all numbers are modulo N. The payload is cut into N chunks.

    In step s = 0 … 2N−3 rank r sends chunk r − s.
    reduce-scatter  the first N−1 steps: the receiver adds the chunk to its own. In the end rank r has the sum of chunk r + 1.
    all-gather      the other N−1 steps: the receiver replaces its own chunk by the sum that arrives.

A rank always passes on what it has just received. Each of the 2(N−1) steps moves 1/N of the payload on every link of the ring
at once: the bytes that a rank sends hardly grow with N. If rank 0 collects all payloads and sends the sum back, it sends N−1
payloads and receives as many.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import distributed as dist

REDUCE_SCATTER, ALL_GATHER = "reduce-scatter", "all-gather"


@dataclass(frozen=True)
class RingStep:
    """One step on all ranks at once: rank r sends its chunk number `sends[r]` to rank r + 1."""

    phase: str
    sends: tuple[int, ...]

    @property
    def adds(self) -> bool:
        """Whether the receiver adds the chunk to its own, or replaces its own."""
        return self.phase == REDUCE_SCATTER


def ring_schedule(ranks: int) -> list[RingStep]:
    """The 2(N−1) steps of an all-reduce on a ring of N = `ranks`."""
    return [
        RingStep(REDUCE_SCATTER if step < ranks - 1 else ALL_GATHER, tuple((rank - step) % ranks for rank in range(ranks)))
        for step in range(2 * (ranks - 1))
    ]


def ring_states(payloads: Sequence[torch.Tensor]) -> Iterator[list[list[torch.Tensor]]]:
    """The ring in one process: what each rank holds at first, and after each step, as state[rank][chunk].

    payloads  what is to be summed, one tensor of the same shape for each rank
    """
    ranks = len(payloads)
    state = [list(payload.flatten().tensor_split(ranks)) for payload in payloads]
    yield state
    for step in ring_schedule(ranks):
        after = [list(chunks) for chunks in state]
        for rank, chunk in enumerate(step.sends):
            right = (rank + 1) % ranks
            after[right][chunk] = state[right][chunk] + state[rank][chunk] if step.adds else state[rank][chunk]
        state = after
        yield state


def ring_all_reduce(tensor: torch.Tensor) -> int:
    """On each rank: replace the contiguous `tensor` by its sum over all ranks. Returns the bytes that this rank sent."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % ranks, (rank + 1) % ranks
    chunks = tensor.view(-1).tensor_split(ranks)  # views: writing to a chunk writes to the tensor
    sent = 0
    for step in ring_schedule(ranks):
        outgoing, own = chunks[step.sends[rank]], chunks[step.sends[left]]
        incoming = torch.empty_like(own)
        sending = dist.isend(outgoing, right)  # does not wait: if all ranks waited to send first, nobody would receive
        dist.recv(incoming, left)
        sending.wait()
        if step.adds:
            own += incoming
        else:
            own.copy_(incoming)
        sent += outgoing.nbytes
    return sent


def gather_and_broadcast(tensor: torch.Tensor) -> int:
    """The same by way of rank 0, which receives every payload, adds them up and sends the sum to every rank."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if rank > 0:
        dist.send(tensor, 0)
        dist.recv(tensor, 0)
        return tensor.nbytes
    incoming = torch.empty_like(tensor)
    for other in range(1, ranks):
        dist.recv(incoming, other)
        tensor += incoming
    for other in range(1, ranks):
        dist.send(tensor, other)
    return (ranks - 1) * tensor.nbytes
