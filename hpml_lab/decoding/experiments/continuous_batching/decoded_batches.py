"""The decoder on paged memory: compared with each request alone, and timed under two policies."""

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import torch

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.timing.clock import interleaved
from hpml_lab.core.timing.noise import SpeedUp, speed_up
from hpml_lab.decoding.experiments.continuous_batching.policies import CONTINUOUS, POLICIES, STATIC, scheduler_of, slots_in_use
from hpml_lab.decoding.experiments.continuous_batching.random_schedules import run_schedules
from hpml_lab.decoding.lessons.batch_scheduler import DecodingRequest, StepPart
from hpml_lab.decoding.lessons.decoder import Decoder, DecoderSize, decode
from hpml_lab.decoding.lessons.decoding_clock import serve
from hpml_lab.decoding.lessons.paged_decoder import PagedDecoder

BLOCKS_A_SLOT, SIZE, NEW = 16, 4, (4, 4, 8, 32)


@dataclass
class ServedHere(Row):
    """Requests that all wait at the start, decoded on this machine."""

    policy: str = column("policy")
    steps: int = column("steps")
    busy: float = column("slots in use", "%")
    throughput: float = column("throughput", "tokens/s")
    first_p50: float = column("time to first token, median", "ms")


def small_decoder(dtype: torch.dtype) -> Decoder:
    torch.manual_seed(0)
    return Decoder(DecoderSize()).to(dtype).eval()


def compared_schedules(schedules: int) -> tuple[Counter[str], float]:
    """Random schedules with the decoder in float64, and how far its scores are from those of a request alone, at most."""
    net, distances = small_decoder(torch.float64), [0.0]

    class ComparedDecoder(PagedDecoder):
        @torch.no_grad()
        def __call__(self, parts: Sequence[StepPart]) -> list[int]:
            following = super().__call__(parts)
            for (request, _, end), scores in zip(parts, self.scores, strict=True):
                right = self.net(torch.tensor([request.tokens[:end]]), last_only=True)[0, -1]
                distances.append((scores - right).abs().max().item())
            return following

    def alone(prompt: Sequence[int], new: int) -> list[int]:
        return decode(net, torch.tensor([prompt]), new)[0].tolist()

    found = run_schedules(range(schedules), lambda blocks, size: ComparedDecoder(net, blocks, size), alone)
    return found, max(distances)


def decoded_here(count: int, slots: int, samples: int) -> tuple[list[ServedHere], SpeedUp]:
    """Static and continuous batching of the same requests in turns, in float32 on one thread."""
    net, blocks, seen = small_decoder(torch.float32), slots * BLOCKS_A_SLOT, {}

    def run(policy: str) -> None:
        rng, paged, moments, start = random.Random(0), PagedDecoder(net, blocks, SIZE), [], time.perf_counter()
        requests = [DecodingRequest([rng.randrange(128) for _ in range(12)], rng.choice(NEW)) for _ in range(count)]

        def timed(parts: Sequence[StepPart]) -> list[int]:
            following = paged(parts)
            moments.append(time.perf_counter() - start)
            return following

        seen[policy] = serve(scheduler_of(slots, blocks, SIZE, **POLICIES[policy]), timed, requests), moments

    times = interleaved({p: lambda p=p: run(p) for p in (STATIC, CONTINUOUS)}, samples=samples, placebo=STATIC)
    rows = []
    for policy, (trace, moments) in seen.items():
        throughput = sum(request.new for request in trace.last_token) / times[policy].seconds
        first = 1e3 * median(moments[step - 1] for step in trace.first_token.values())  # a tick is a step here
        rows.append(ServedHere(policy, len(moments), slots_in_use(trace, slots), throughput, first))
    return rows, speed_up(times, STATIC, CONTINUOUS)
