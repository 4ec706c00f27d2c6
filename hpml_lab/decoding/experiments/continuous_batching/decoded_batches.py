"""The decoder on paged memory: compared with each request alone, and timed under two policies."""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.timing.clock import interleaved
from hpml_lab.core.timing.noise import SpeedUp, speed_up
from hpml_lab.decoding.experiments.continuous_batching.policies import CONTINUOUS, POLICIES, STATIC, busy, ranked, scheduler_of
from hpml_lab.decoding.lessons.batch_scheduler import DecodingRequest, StepPart
from hpml_lab.decoding.lessons.decoder import Decoder, DecoderSize, decode
from hpml_lab.decoding.lessons.decoding_clock import serve
from hpml_lab.decoding.lessons.paged_decoder import PagedDecoder


@dataclass
class ServedHere(Row):
    """Requests that all wait at the start, decoded on this machine."""

    policy: str = column("policy")
    steps: int = column("steps")
    busy: float = column("slots in use", "%")
    throughput: float = column("throughput", "tokens/s")
    first_p50: float = column("time to first token, median", "ms")
    interval: str = column("times faster", default="")


def small_decoder(dtype: torch.dtype) -> Decoder:
    torch.manual_seed(0)
    return Decoder(DecoderSize(length=128)).to(dtype).eval()


def shared_prompts(count: int) -> list[DecodingRequest]:
    """Prompts of which most begin with one of two texts, all there at the start."""
    rng = random.Random(2)
    texts = [[rng.randrange(128) for _ in range(24)] for _ in range(2)]
    return [
        DecodingRequest(
            rng.choice(texts)[: rng.choice((8, 16, 24))] + [rng.randrange(128) for _ in range(rng.randrange(4))] or [1],
            rng.choice((4, 4, 8, 32)),
        )
        for _ in range(count)
    ]


@dataclass
class PagedAgainstAlone:
    """The decoder on blocks, compared with each request alone."""

    distance: float  # the largest between two scores of one token
    gap: float  # the least between the best and the second best score
    other_tokens: int
    preemptions: int
    hit_tokens: int


@torch.no_grad()
def paged_against_alone(count: int) -> PagedAgainstAlone:
    """In float64, in few blocks, with chunks: `count` requests together, and each of them alone."""
    net, requests, scores = small_decoder(torch.float64), shared_prompts(count), []
    paged, scheduler = PagedDecoder(net, 24, 4), scheduler_of(5, 24, 4, prefix_cache=True, budget=12)

    def noted(parts: Sequence[StepPart]) -> list[int]:
        following = paged(parts)
        scores.extend((request, end, row) for (request, _, end), row in zip(parts, paged.scores, strict=True))
        return following

    serve(scheduler, noted, requests)
    whole = {request: net(torch.tensor([request.tokens]))[0] for request in requests}
    best = torch.stack([row.topk(2).values for _, _, row in scores])
    return PagedAgainstAlone(
        distance=max((row - whole[request][end - 1]).abs().max().item() for request, end, row in scores),
        gap=(best[:, 0] - best[:, 1]).min().item(),
        other_tokens=sum(decode(net, torch.tensor([r.prompt]), r.new)[0].tolist() != r.tokens for r in requests),
        preemptions=scheduler.preemptions,
        hit_tokens=scheduler.hit_tokens,
    )


def decoded_here(count: int, slots: int, samples: int) -> tuple[list[ServedHere], SpeedUp]:
    """Static and continuous batching of the same requests in turns, in float32 on one thread; the larger throughput's gain."""
    net, seen = small_decoder(torch.float32), {}
    blocks = slots * 16

    def run(policy: str) -> None:
        paged, moments, start = PagedDecoder(net, blocks, 4), [], time.perf_counter()

        def stamped(parts: Sequence[StepPart]) -> list[int]:
            following = paged(parts)
            moments.append(time.perf_counter() - start)
            return following

        seen[policy] = serve(scheduler_of(slots, blocks, 4, **POLICIES[policy]), stamped, shared_prompts(count)), moments

    times = interleaved({p: lambda p=p: run(p) for p in (STATIC, CONTINUOUS)}, samples=samples, placebo=STATIC)
    gain, rows = speed_up(times, STATIC, CONTINUOUS), []
    for policy, (trace, moments) in seen.items():
        tokens = sum(request.new for request in trace.last_token)
        first = [1e3 * moments[step - 1] for step in trace.first_token.values()]  # a step is a tick
        rows.append(ServedHere(policy, len(moments), busy(trace, slots), tokens / times[policy].seconds, ranked(first, 0.5)))
    rows[-1].interval = str(gain)
    return rows, gain
