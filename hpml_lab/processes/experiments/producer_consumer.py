"""A ring of shared memory between a producer and a consumer: who waits for whom, and what more slots change."""

import multiprocessing
from collections.abc import Sequence
from dataclasses import dataclass

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.timing.noise import speed_up_of, times_faster
from hpml_lab.core.timing.timeline import busy, rows
from hpml_lab.processes.experiments import relay
from hpml_lab.processes.experiments.relay import CONSUMER, FILLS, PRODUCER, READS, WAITS_FREE, WAITS_ITEM, Relay
from hpml_lab.processes.experiments.start_cost import safe_methods
from hpml_lab.processes.views.timelines import draw_timelines, legend_entries

QUICK = dict(items=16, seconds=0.016, slots=4, kib=256, methods=("fork", "spawn"), rounds=8)  # a round takes a second
FULL = dict(items=40, seconds=0.05, slots=4, kib=1024, methods=("fork", "spawn", "forkserver"), rounds=8)
COLORS = {FILLS: style.BLUE, READS: style.GREEN, WAITS_FREE: style.ORANGE, WAITS_ITEM: style.YELLOW}


@dataclass(frozen=True)
class RelayCase:
    """How long each item takes to make and to use, and the slots between the two."""

    name: str
    make: Sequence[float]
    use: Sequence[float]
    slots: int


@dataclass
class RelayRow(Row):
    """One run of a producer and a consumer."""

    case: str = column("case")
    slots: int = column("slots")
    make: float = column("time to make all", "s")
    use: float = column("time to use all", "s")
    seconds: float = column("both at the same time", "s")
    in_turn: float = column("one after the other", "s")
    speedup: float = column("speed-up")
    producer_waits: float = column("producer waits", "s")
    consumer_waits: float = column("consumer waits", "s")
    most_in_ring: int = column("most items in the ring")


def draw(result: Result):
    """When the producer filled slots, when the consumer read them, and when each waited for the other. Top to bottom: a fast
    producer is held back as soon as all slots are full; a fast consumer waits for each item; with uneven times one slot makes
    both wait, and more slots let one side run ahead of the other.
    """
    timelines = result.arrays["timelines"]
    figure = style.new_figure(9, 1.25 * len(timelines) + 1)
    draw_timelines(figure.subplots(len(timelines), 1, sharex=True), timelines, COLORS, (PRODUCER, CONSUMER))
    figure.legend(handles=legend_entries(COLORS), loc="outside upper center", ncols=4)
    return figure


# ---- the experiment ------------------------------------------------------------------------------------------------------


@experiment("producer-consumer", lecture="L0", notebook="07_processes", draw=draw, quick=QUICK, full=FULL)
def producer_consumer(params: Params) -> Result:
    """A ring of shared tensors between a producer and a consumer.

    The lecture: shared memory, and the producer-consumer pattern on it.
    """
    cases = _cases(params.items, params.seconds, params.slots)
    shape = (params.kib * 1024 // 4,)
    method = safe_methods()[0]

    def run(case: RelayCase) -> Relay:
        return relay.run_relay(case.make, case.use, slots=case.slots, shape=shape, method=method)

    runs = [run(case) for case in cases]
    one, more = cases[2:]
    turns = [[run(case).seconds for case in (one, more, one)] for _ in range(params.rounds)]  # the third is the placebo
    gain = speed_up_of(*zip(*turns, strict=True))
    no_time, possible = [0.0] * params.items, set(multiprocessing.get_all_start_methods())
    started = {
        method: relay.run_relay(no_time, no_time, slots=params.slots, shape=(1024,), method=method)
        for method in params.methods
        if method in possible and (method != "fork" or "fork" in safe_methods())
    }

    table = [_row(case, run) for case, run in zip(cases, runs, strict=True)]
    fast_producer, fast_consumer, *_ = table
    producer_share = _share(runs[0], WAITS_FREE, FILLS)
    consumer_share = _share(runs[1], WAITS_ITEM, READS)
    result = Result([Table("A producer and a consumer at the same time", table)])
    result.key_figure("producer waits if the consumer is slow", producer_share, "% of its time")
    result.key_figure("consumer waits if the producer is slow", consumer_share, "% of its time")
    result.key_figure("uneven work, more slots compared with one", gain.ratio, "speed-up")

    right, small = relay.stream_checksum(params.items, shape), relay.stream_checksum(params.items, (1024,))
    in_order = list(range(params.items))
    result.claim(
        "The consumer's bytes are those of the producer, all and in order, with every start method: the checksums agree",
        all(run.put == run.taken == right for run in runs)
        and len(started) > 0
        and all(run.put == run.taken == small for run in started.values())
        and all(run.order == in_order for run in [*runs, *started.values()]),
        f"CRC-32 {right:08x}; {', '.join(started)}",
    )
    result.claim(
        "Back-pressure: no run ever has more items in the ring than slots",
        all(row.most_in_ring <= row.slots for row in table),
        ", ".join(f"{row.case}, {row.slots} slots: {row.most_in_ring}" for row in table),
    )
    result.measured(
        "The faster side waits more than the slower one",
        fast_producer.producer_waits > fast_producer.consumer_waits
        and fast_consumer.consumer_waits > fast_consumer.producer_waits,
        f"{producer_share:.0f} % and {consumer_share:.0f} % of its time",
    )
    result.measured(
        "Both together take little longer than the slower side alone",
        all(row.seconds < 1.25 * max(row.make, row.use) for row in (fast_producer, fast_consumer)),
        f"{times_faster(fast_producer.speedup)} and {times_faster(fast_consumer.speedup)} than one after the other",
    )
    result.measured("With uneven work, more slots are faster than one", gain.faster, str(gain))
    missing = [method for method in params.methods if method not in started]
    if missing:
        result.notes.append(f"Not run here: {', '.join(missing)}, which this system does not offer or not safely.")
    titles = [f"{case.name}, {case.slots} slot{'' if case.slots == 1 else 's'}" for case in cases]
    result.arrays["timelines"] = {title: rows(run.spans) for title, run in zip(titles, runs, strict=True)}
    result.arrays["segment"] = runs[-1].segment
    return result


def _cases(items: int, seconds: float, slots: int) -> list[RelayCase]:
    fast, slow = [seconds / 4] * items, [seconds] * items
    uneven = [[seconds if (number // 2) % 2 == side else 0.0 for number in range(items)] for side in range(2)]
    return [
        RelayCase("fast producer", fast, slow, slots),
        RelayCase("fast consumer", slow, fast, slots),
        RelayCase("uneven times", *uneven, 1),
        RelayCase("uneven times", *uneven, slots),
    ]


def _row(case: RelayCase, run: Relay) -> RelayRow:
    make, use = sum(case.make), sum(case.use)
    waits = busy(run.of(WAITS_FREE)), busy(run.of(WAITS_ITEM))
    speedup = (make + use) / run.seconds
    return RelayRow(case.name, case.slots, make, use, run.seconds, make + use, speedup, *waits, max(run.ahead))


def _share(run: Relay, waits: str, works: str) -> float:
    """How many percent of its own time a side waited."""
    waited = busy(run.of(waits))
    return 100 * waited / (waited + busy(run.of(works)))
