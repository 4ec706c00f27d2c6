"""Which requests a step computes: static batches, or continuous batching with preemption and a budget of tokens.

A request computes the tokens whose keys and values it does not have yet, tokens[stored:]. For a new request that is its prompt
(prefill), for a running one its last token (decode), after a preemption everything again: one rule for all three.
    static batches        a batch is filled when the one before is done; a slot whose request is done stays empty until then
    continuous batching   each step fills what is free
    budget                the most tokens of a step: a long prompt is computed in chunks, and does not hold up the others
Sources: Orca (Yu et al. 2022), vLLM (Kwon et al. 2023), Sarathi (Agrawal et al. 2023); nano-vllm's scheduler.py.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from hpml_lab.core.system.errors import LabError
from hpml_lab.decoding.lessons.block_manager import BlockManager


@dataclass(eq=False)
class DecodingRequest:
    """A prompt, how many new tokens are wanted, and when it arrives, in ticks.

    tokens  the prompt and what was decoded so far; the keys and values of the first `stored` are in the blocks of `table`
    """

    prompt: Sequence[int]
    new: int
    arrival: int = 0
    stored: int = 0
    table: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.prompt or self.new < 1:
            raise LabError("There is nothing to decode.", "Give a prompt of at least one token, and ask for at least one.")
        self.tokens = list(self.prompt)

    @property
    def done(self) -> bool:
        return len(self.tokens) == len(self.prompt) + self.new


class StepPart(NamedTuple):
    """What a step computes of one request: tokens[first:end]."""

    request: DecodingRequest
    first: int
    end: int


class BatchScheduler:
    """Requests wait, run in one of `slots` slots, and are done; `running` is in the order of admission."""

    def __init__(self, manager: BlockManager, slots: int, continuous: bool = True, budget: int | None = None) -> None:
        if slots < 1 or budget is not None and budget < 1:
            raise LabError(f"{slots} slots and a budget of {budget} compute nothing.", "Use whole numbers from 1 on.")
        self.manager, self.slots, self.continuous, self.budget = manager, slots, continuous, budget or inf
        self.waiting: deque[DecodingRequest] = deque()
        self.running: list[DecodingRequest] = []
        self.preemptions = self.hit_tokens = 0

    def add(self, request: DecodingRequest) -> None:
        """Let a request wait. LabError for one that all blocks together cannot hold."""
        stored, room = len(request.prompt) + request.new - 1, len(self.manager.references) * self.manager.size
        if stored > room:
            raise LabError(f"{stored} tokens of one request are more than all blocks hold, {room}.", "Use more blocks.")
        self.waiting.append(request)

    def schedule(self) -> list[StepPart]:
        """What the next step computes, oldest request first. Where no block is free, the youngest request loses its own."""
        parts: list[StepPart] = []
        left, before, admits = self.budget, self.preemptions, self.continuous or not self.running
        for request in [*self.running]:
            end = min(len(request.tokens), request.stored + left)
            while request in self.running and not self.manager.extend(request.table, end):
                self._preempt(self.running[-1])  # perhaps the request itself
            if left and request in self.running:
                parts.append(StepPart(request, request.stored, end))
                left -= end - request.stored
        while admits and self.preemptions == before and self.waiting and len(self.running) < self.slots and left:
            request = self.waiting[0]
            hits = self.manager.hits(request.tokens)  # also its own blocks, if it was preempted and they are still there
            first = len(hits) * self.manager.size
            end = min(len(request.tokens), first + left)
            if not self.manager.extend(request.table, end, hits):
                break
            request.stored, self.hit_tokens = first, self.hit_tokens + first
            self.running.append(self.waiting.popleft())
            parts.append(StepPart(request, first, end))
            left -= end - first
        return parts

    def _preempt(self, request: DecodingRequest) -> None:
        """Take a request's blocks: it waits in front of the others, keeps its tokens, and computes their keys again."""
        self.manager.release(request.table)
        request.stored = 0
        self.running.remove(request)
        self.waiting.appendleft(request)
        self.preemptions += 1

    def finish_step(self, parts: Sequence[StepPart], following: Sequence[int]) -> None:
        """After the step: `following` are the tokens that follow each part's last one."""
        for (request, first, end), token in zip(parts, following, strict=True):
            self.manager.publish(request.table, request.tokens, first, end)
            request.stored = end
            if end == len(request.tokens):  # and not in the middle of a prompt
                request.tokens.append(token)
            if request.done:
                self.running.remove(request)
                self.manager.release(request.table)
