"""The same requests under several policies on a virtual clock: whole ticks, the same on every machine."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from hpml_lab.core.experiment import Row, column
from hpml_lab.decoding.lessons.batch_scheduler import BatchScheduler, DecodingRequest, StepPart
from hpml_lab.decoding.lessons.block_manager import BlockManager
from hpml_lab.decoding.lessons.decoding_clock import DecodingTrace, serve

# A net of 8 billion weights in 16 bits on an H100: 16 GB at 3.35 TB/s, and 16 GFLOP a token at 990 TFLOP/s, in µs.
BASE, PER_TOKEN = 4_800, 16
TICKS_A_SECOND = 1_000_000
SLOTS, BLOCKS, SIZE = 16, 1024, 16
BUDGET = 256  # tokens of a step, with chunks
STATIC, CONTINUOUS, PREFIX, CHUNKS = "static", "continuous", "with a prefix cache", "and chunks"
POLICIES = {
    STATIC: dict(continuous=False),
    CONTINUOUS: dict(),
    PREFIX: dict(prefix_cache=True),
    CHUNKS: dict(prefix_cache=True, budget=BUDGET),
}
NEW = (8, 16, 32, 64, 256)  # tokens that are wanted: most answers are short, some are long
SHOWN = (9, 3, 5, 2, 7, 4, 8, 3, 6, 5)  # of the requests in the timelines
SHOWN_SLOTS = 4


@dataclass
class ServedLoad(Row):
    """Requests at one rate under one policy, on the virtual clock."""

    policy: str = column("policy")
    rate: float = column("requests arrive", "1/s")
    throughput: float = column("throughput", "tokens/s")
    first_p50: float = column("time to first token, median", "ms")
    first_p95: float = column("95 %", "ms")
    longest: float = column("longest step", "ms")
    busy: float = column("slots in use", "%")


def scheduler_of(slots: int, blocks: int, size: int, prefix_cache: bool = False, **policy) -> BatchScheduler:
    return BatchScheduler(BlockManager(blocks, size, prefix_cache), slots, **policy)


def busy(trace: DecodingTrace, slots: int) -> float:
    """The percentage of slots, over all steps, in which a token was computed."""
    return 100 * sum(len(parts) for _, _, parts in trace.steps) / (slots * len(trace.steps))


def ranked(values: Sequence[float], share: float) -> float:
    """The smallest value that this share of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(-(-int(share * 100) * len(ordered) // 100), 1) - 1]


def nothing(parts: Sequence[StepPart]) -> list[int]:
    """A net that computes nothing: how long an answer is was drawn before."""
    return [0] * len(parts)


def arriving_requests(rate: float, count: int) -> list[DecodingRequest]:
    """Three in four prompts begin with one of two texts of 384 tokens. The gaps are equally likely up to twice their mean."""
    rng, now, requests = random.Random(0), 0, []
    texts = [[rng.randrange(1000) for _ in range(384)] for _ in range(2)]
    for _ in range(count):
        text = rng.choice(texts) if rng.randrange(4) else []
        own = [rng.randrange(1000) for _ in range(rng.randint(16, 512))]
        requests.append(DecodingRequest(text + own, rng.choice(NEW), now))
        now += rng.randint(0, 2 * round(TICKS_A_SECOND / rate))
    return requests


def load_row(policy: str, rate: float, count: int) -> ServedLoad:
    trace = serve(
        scheduler_of(SLOTS, BLOCKS, SIZE, **POLICIES[policy]), nothing, arriving_requests(rate, count), BASE, PER_TOKEN
    )
    waits = [wait / 1000 for wait in trace.waits]
    longest = max(end - start for start, end, _ in trace.steps) / 1000
    middle, late = ranked(waits, 0.5), ranked(waits, 0.95)
    return ServedLoad(policy, rate, trace.throughput * TICKS_A_SECOND, middle, late, longest, busy(trace, SLOTS))


def waiting_trace(lengths: Sequence[int], slots: int, continuous: bool) -> DecodingTrace:
    """Requests that all wait at the start, one tick a step."""
    requests = [DecodingRequest([0], new) for new in lengths]
    return serve(scheduler_of(slots, sum(lengths), 1, continuous=continuous), nothing, requests)


def slot_boxes(trace: DecodingTrace, slots: int) -> list[list[int]]:
    """[slot, step, request] for each slot in use, requests by their number."""
    numbers, slot_of, boxes = {request: i for i, request in enumerate(trace.first_token)}, {}, []
    for step, (start, _, parts) in enumerate(trace.steps):
        slot_of = {request: slot for request, slot in slot_of.items() if trace.last_token[request] > start}
        for request, _, _ in parts:
            if request not in slot_of:
                slot_of[request] = min(set(range(slots)) - set(slot_of.values()))
            boxes.append([slot_of[request], step, numbers[request]])
    return boxes


def later_with_continuous(draws: int) -> int:
    """How many requests, of lists drawn at random, end at a later step with continuous batching than with static batches."""
    later, rng = 0, random.Random(1)
    for _ in range(draws):
        lengths, slots = [rng.randint(1, 12) for _ in range(rng.randint(1, 20))], rng.randint(1, 6)
        ends = [waiting_trace(lengths, slots, continuous).last_token.values() for continuous in (False, True)]
        later += sum(new > old for old, new in zip(*map(sorted, ends), strict=True))
    return later
