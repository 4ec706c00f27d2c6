"""Schedules drawn at random, served with a net of whole numbers whose every token depends on all that its blocks hold."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from hpml_lab.decoding.lessons.batch_scheduler import BatchScheduler, DecodingRequest, StepPart
from hpml_lab.decoding.lessons.block_manager import BlockManager
from hpml_lab.decoding.lessons.decoding_clock import Net, serve

LETTERS = 3  # of prompts: so few that some begin alike by chance


def with_token(values: list[int], token: int) -> list[int]:
    """What is stored for a prefix and one more token: a number that depends on the token and on all numbers before it."""
    return [*values, hash((token, *values))]


def token_after(values: Sequence[int]) -> int:
    """The token that follows: one of a thousand, so that other values rarely give the same."""
    return hash(tuple(values)) % 1000


def decoded_alone(prompt: Sequence[int], new: int) -> list[int]:
    """The tokens of a request without blocks, schedules and other requests."""
    tokens, values = list(prompt), []
    while len(tokens) < len(prompt) + new:
        for token in tokens[len(values) :]:
            values = with_token(values, token)
        tokens.append(token_after(values))
    return tokens


class IntegerNet:
    """Keeps a whole number for each token in its block, and reads those of a request through its table.

    All of a step is read before any of it is written, as if its requests were computed at the same time.
    """

    def __init__(self, blocks: int, size: int) -> None:
        self.size, self.blocks = size, [[0] * size for _ in range(blocks)]

    def __call__(self, parts: Sequence[StepPart]) -> list[int]:
        read = [[value for block in request.table for value in self.blocks[block]][:first] for request, first, _ in parts]
        following = []
        for (request, first, end), values in zip(parts, read, strict=True):
            for i in range(first, end):
                values = with_token(values, request.tokens[i])
                self.blocks[request.table[i // self.size]][i % self.size] = values[i]
            following.append(token_after(values) if first < end else -1)  # without a token there are no scores
        return following


def broken_rules(scheduler: BatchScheduler) -> list[str]:
    """What does not hold of the blocks after a step."""
    manager, running = scheduler.manager, scheduler.running
    size, every = manager.size, range(len(manager.references))
    counts = Counter(block for request in running for block in request.table)
    places = [(block, r, index) for r in running for index, block in enumerate(r.table) if counts[block] > 1]
    prefixes = {(block, tuple(r.tokens[: (index + 1) * size])) for block, r, index in places}
    rules = {
        "⌈n / size⌉ blocks": all(len(r.table) == -(-r.stored // size) for r in running),
        "none while waiting": not any(r.table or r.stored for r in scheduler.waiting),
        "references": manager.references == [counts[block] for block in every],
        "none lost": sorted([*counts, *manager.free]) == [*every],
        "shared: full": all(r.stored >= (index + 1) * size for _, r, index in places),
        "shared: one prefix": len(prefixes) == len({block for block, _ in prefixes}),
    }
    return [rule for rule, holds in rules.items() if not holds]


class CheckedScheduler(BatchScheduler):
    """Looks at all blocks after each step."""

    steps = broken = 0

    def finish_step(self, parts: Sequence[StepPart], following: Sequence[int]) -> None:
        super().finish_step(parts, following)
        self.steps += 1
        self.broken += len(broken_rules(self))


def drawn_requests(rng: random.Random) -> list[DecodingRequest]:
    """3 to 9 requests that arrive at random; most of their prompts begin as others do."""
    starts, now, requests = [[rng.randrange(LETTERS) for _ in range(12)] for _ in range(2)], 0, []
    for _ in range(rng.randint(3, 9)):
        own = [rng.randrange(LETTERS) for _ in range(rng.choice((0, 0, 1, 5)))]
        requests.append(DecodingRequest(rng.choice(starts)[: rng.randint(1, 12)] + own, rng.randint(1, 10), now))
        now += rng.choice((0, 0, 1, 4))
    return requests


def run_schedules(
    seeds: Iterable[int],
    net: Callable[[int, int], Net] = IntegerNet,
    alone: Callable[[Sequence[int], int], list[int]] = decoded_alone,
    manager: type[BlockManager] = BlockManager,
) -> Counter[str]:
    """For each seed draw requests, blocks, slots, policy and budget; serve them, and compare each request with itself alone.

    Returns how many requests, steps, preemptions and tokens found in blocks there were, other tokens, and broken rules.
    """
    found: Counter[str] = Counter()
    for seed in seeds:
        rng = random.Random(seed)
        requests, size = drawn_requests(rng), rng.randint(1, 5)
        fewest = max(-(-(len(r.prompt) + r.new - 1) // size) for r in requests)
        blocks = rng.randint(fewest, 2 * fewest)
        policy = dict(slots=rng.randint(1, 6), continuous=rng.random() < 0.8, budget=rng.choice((None, rng.randint(1, 16))))
        scheduler = CheckedScheduler(manager(blocks, size), **policy)
        serve(scheduler, net(blocks, size), requests)
        found.update(requests=len(requests), other=sum(r.tokens != alone(r.prompt, r.new) for r in requests))
        found.update({name: getattr(scheduler, name) for name in ("steps", "preemptions", "hit_tokens", "broken")})
    return found
