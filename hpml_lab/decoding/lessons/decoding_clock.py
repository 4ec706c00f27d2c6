"""Requests served on a virtual clock: nothing sleeps, and a step of n tokens takes base + per_token·n whole ticks.

The base is what a step costs however few tokens it has: all weights are read once. So on one clock

    time to first token   from a request's arrival to the end of the step that computed the last token of its prompt
    throughput            tokens decoded / (end of the last step − first arrival)

Notebook 20's queue has the same server, base + per_request·n. There a request is one step; here it takes a step for each token,
and between two steps its batch can change.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from hpml_lab.decoding.lessons.batch_scheduler import BatchScheduler, DecodingRequest, StepPart

Net = Callable[[Sequence[StepPart]], Sequence[int]]  # of the parts of a step, the tokens that follow their last ones


@dataclass
class DecodingTrace:
    """In ticks: (start, end, parts) of each step, and when each request had its first and its last token."""

    steps: list[tuple[int, int, list[StepPart]]] = field(default_factory=list)
    first_token: dict[DecodingRequest, int] = field(default_factory=dict)
    last_token: dict[DecodingRequest, int] = field(default_factory=dict)

    @property
    def waits(self) -> list[int]:
        """The time to first token of each request, in ticks."""
        return [moment - request.arrival for request, moment in self.first_token.items()]

    @property
    def throughput(self) -> float:
        """Decoded tokens per tick, from the first arrival to the last token."""
        span = self.steps[-1][1] - min(request.arrival for request in self.last_token)
        return sum(request.new for request in self.last_token) / span


def serve(
    scheduler: BatchScheduler, net: Net, requests: Iterable[DecodingRequest], base: int = 1, per_token: int = 0
) -> DecodingTrace:
    """Serve requests, which come in the order of their arrival; one that arrives during a step waits for its end."""
    coming, now, trace = deque(requests), 0, DecodingTrace()
    while coming or scheduler.waiting or scheduler.running:
        while coming and coming[0].arrival <= now:
            scheduler.add(coming.popleft())
        if not (parts := scheduler.schedule()):
            now = coming[0].arrival  # nobody is there
            continue
        start, now = now, now + base + per_token * sum(end - first for _, first, end in parts)
        scheduler.finish_step(parts, net(parts))
        trace.steps.append((start, now, parts))
        for request, _, _ in parts:
            if len(request.tokens) > len(request.prompt):
                trace.first_token.setdefault(request, now)
            if request.done:
                trace.last_token[request] = now
    return trace
