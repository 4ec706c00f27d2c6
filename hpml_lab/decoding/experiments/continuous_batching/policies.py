"""The same requests under several policies on a virtual clock: whole ticks, the same on every machine."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpml_lab.core.experiment import Row, column
from hpml_lab.decoding.lessons.batch_scheduler import BatchScheduler, DecodingRequest, StepPart
from hpml_lab.decoding.lessons.block_manager import BlockManager
from hpml_lab.decoding.lessons.decoding_clock import DecodingTrace, serve

# A net of 8 billion weights in 16 bits on an H100: 16 GB at 3.35 TB/s, and 16 GFLOP a token at 990 TFLOP/s, in µs.
BASE, PER_TOKEN, MS, SECOND = 4_800, 16, 1_000, 1_000_000
SLOTS, BLOCKS, SIZE, BUDGET = 16, 1024, 16, 256
STATIC, CONTINUOUS, PREFIX, CHUNKS = "static", "continuous", "with a prefix cache", "and chunks"
POLICIES = {
    STATIC: dict(continuous=False),
    CONTINUOUS: dict(),
    PREFIX: dict(prefix_cache=True),
    CHUNKS: dict(prefix_cache=True, budget=BUDGET),
}
NEW = (8, 16, 32, 64, 256)  # tokens that are wanted: most answers are short, some are long


@dataclass
class ServedLoad(Row):
    """Requests at one rate under one policy, on the virtual clock."""

    policy: str = column("policy")
    rate: float = column("requests arrive", "1/s")
    throughput: float = column("throughput", "tokens/s")
    first_p50: float = column("time to first token, median", "ms")
    first_p95: float = column("95th percentile", "ms")
    longest: float = column("longest step", "ms")
    busy: float = column("slots in use", "%")


def scheduler_of(slots: int, blocks: int, size: int, prefix_cache: bool = False, **policy) -> BatchScheduler:
    return BatchScheduler(BlockManager(blocks, size, prefix_cache), slots, **policy)


def slots_in_use(trace: DecodingTrace, slots: int) -> float:
    """The percentage of slots in which a step computed something, over all steps."""
    return 100 * sum(len(parts) for _, _, parts in trace.steps) / (slots * len(trace.steps))


def nothing_computed(parts: Sequence[StepPart]) -> list[int]:
    """A net for the clock alone: how long an answer is was drawn before."""
    return [0] * len(parts)


def arriving_requests(rate: float, count: int) -> list[DecodingRequest]:
    """Three in four prompts begin with one of two texts of 384 tokens. Gaps are equally likely up to twice their mean."""
    rng, now, requests = random.Random(0), 0, []
    texts = [[rng.randrange(1000) for _ in range(384)] for _ in range(2)]
    for _ in range(count):
        text, own = rng.choice(texts) if rng.randrange(4) else [], [rng.randrange(1000) for _ in range(rng.randint(16, 512))]
        requests.append(DecodingRequest(text + own, rng.choice(NEW), now))
        now += rng.randint(0, 2 * round(SECOND / rate))
    return requests


def load_row(policy: str, rate: float, count: int) -> ServedLoad:
    scheduler = scheduler_of(SLOTS, BLOCKS, SIZE, **POLICIES[policy])
    trace = serve(scheduler, nothing_computed, arriving_requests(rate, count), BASE, PER_TOKEN)
    waits = np.percentile(trace.waits, (50, 95)) / MS
    longest = max(end - start for start, end, _ in trace.steps) / MS
    return ServedLoad(policy, rate, trace.throughput * SECOND, *waits.tolist(), longest, slots_in_use(trace, SLOTS))


# ---- requests that all wait at the start, one tick a step --------------------------------------------------------------------


def waiting_trace(lengths: Sequence[int], slots: int, continuous: bool) -> DecodingTrace:
    requests = [DecodingRequest([0], new) for new in lengths]
    return serve(scheduler_of(slots, sum(lengths), 1, continuous=continuous), nothing_computed, requests)


def slot_boxes(trace: DecodingTrace, slots: int) -> list[list[int]]:
    """[slot, step, number of the request] of each slot in use."""
    numbers, slot_of, boxes = {request: number for number, request in enumerate(trace.first_token)}, {}, []
    for step, (start, _, parts) in enumerate(trace.steps):
        slot_of = {request: slot for request, slot in slot_of.items() if trace.last_token[request] > start}
        for request, _, _ in parts:
            slot_of.setdefault(request, min({*range(slots)} - {*slot_of.values()}, default=0))
            boxes.append([slot_of[request], step, numbers[request]])
    return boxes


def later_with_continuous(lists: int) -> int:
    """How many requests, of lists drawn at random, end at a later step with continuous batching than with static batches."""
    later, rng = 0, random.Random(1)
    for _ in range(lists):
        lengths, slots = [rng.randint(1, 12) for _ in range(rng.randint(1, 20))], rng.randint(1, 6)
        traces = [waiting_trace(lengths, slots, continuous) for continuous in (False, True)]
        ends = [[trace.last_token[request] for request in trace.first_token] for trace in traces]  # in the order of the list
        later += sum(second > first for first, second in zip(*ends, strict=True))
    return later
