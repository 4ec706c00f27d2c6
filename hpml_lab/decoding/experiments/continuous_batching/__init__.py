"""continuous-batching: many requests in shared blocks, static batches next to continuous ones; the tokens are those got alone."""

from matplotlib.axes import Axes

from hpml_lab.core.experiment import Params, Result, Table, experiment
from hpml_lab.core.show import style
from hpml_lab.decoding.experiments.continuous_batching.decoded_batches import (
    PagedAgainstAlone,
    decoded_here,
    paged_against_alone,
)
from hpml_lab.decoding.experiments.continuous_batching.policies import (
    BASE,
    BUDGET,
    CHUNKS,
    CONTINUOUS,
    PER_TOKEN,
    POLICIES,
    PREFIX,
    SHOWN,
    SHOWN_SLOTS,
    SLOTS,
    STATIC,
    ServedLoad,
    busy,
    later_with_continuous,
    load_row,
    slot_boxes,
    waiting_trace,
)
from hpml_lab.decoding.experiments.continuous_batching.random_schedules import ScheduleCounts, run_schedules

QUICK = dict(schedules=1500, rates=[4, 8, 16, 24, 32], served=120, lists=200, decoded=16, slots=8, samples=5)
FULL = dict(
    schedules=10_000, rates=[2, 4, 8, 12, 16, 20, 24, 28, 32, 36], served=600, lists=2000, decoded=64, slots=16, samples=11
)
BOUND = 1e-12
MS = 1_000  # ticks a millisecond
HIGH = 0.8  # of a box, where slots are 1 apart


def draw(result: Result):
    """Left: ten requests in four slots, static batches above and continuous batching below: an orange box is the step that
    computes a prompt, with the request's number, blue ones are the tokens after it, and empty space is a slot in which nothing is
    computed. Right, on the virtual clock, by the rate at which requests arrive: tokens a second, and the median time to the first
    token, logarithmic. Look where static batches stop to keep up."""
    figure = style.new_figure(11, 5.4)
    grid = figure.add_gridspec(2, 2, width_ratios=(1.25, 1))
    last = 1 + max(step for boxes in result.arrays["boxes"].values() for _, step, _ in boxes)
    for number, (policy, boxes) in enumerate(result.arrays["boxes"].items()):
        axes = figure.add_subplot(grid[number, 0])
        draw_boxes(axes, boxes)
        axes.set(title=f"{policy}: {1 + max(step for _, step, _ in boxes)} steps", xlim=(0, last))
    axes.set_xlabel("step")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower left", ncols=2)
    upper, lower = (figure.add_subplot(grid[number, 1]) for number in range(2))
    for policy, color, marker, line in zip(POLICIES, style.CYCLE, style.MARKERS, style.LINES, strict=False):
        rows = [row for row in result.rows(ServedLoad) if row.policy == policy]
        look = dict(color=color, marker=marker, linestyle=line, markersize=5, alpha=0.85, label=policy)
        upper.plot([row.rate for row in rows], [row.throughput for row in rows], **look)
        lower.plot([row.rate for row in rows], [row.first_p50 for row in rows], **look)
    upper.set(ylabel="throughput (tokens/s)", ylim=(0, None))
    lower.set(xlabel="requests a second", ylabel="time to first token (ms)", yscale="log")
    upper.legend(fontsize=8)
    return figure


def draw_boxes(axes: Axes, boxes: list[list[int]]) -> None:
    """A row for each slot, a box for each token that it computes; the number stands where a request begins."""
    begins = {number: [slot, step] for slot, step, number in reversed(boxes)}
    slots = 1 + max(slot for slot, _, _ in boxes)
    for name, color, first in (("prompt, and the first token", style.ORANGE, True), ("one token", style.BLUE, False)):
        for slot in range(slots):
            own = [(step, 1) for at, step, number in boxes if at == slot and ([at, step] == begins[number]) == first]
            label = name if slot == 0 else None
            axes.broken_barh(own, (slot - HIGH / 2, HIGH), facecolor=color, edgecolor="white", linewidth=0.7, label=label)
    for number, (slot, step) in begins.items():
        axes.text(step + 0.5, slot, str(number), color=style.DARK, fontsize=8, ha="center", va="center")
    axes.set_yticks(range(slots), [f"slot {slot}" for slot in range(slots)])
    axes.set_ylim(slots - 0.5, -0.5)
    axes.grid(visible=False)


@experiment("continuous-batching", lecture="own", notebook="22_decoding", draw=draw, quick=QUICK, full=FULL)
def continuous_batching(params: Params) -> Result:
    """Requests share slots and blocks: none gets other tokens than alone, and continuous batching leaves no slot empty."""
    found = run_schedules(range(params.schedules))
    paged = paged_against_alone(params.decoded)
    loads = [load_row(policy, rate, params.served) for policy in POLICIES for rate in params.rates]
    here, gain = decoded_here(params.decoded, params.slots, params.samples)
    shown = {policy: waiting_trace(SHOWN, SHOWN_SLOTS, policy == CONTINUOUS) for policy in (STATIC, CONTINUOUS)}

    result = Result(
        [
            Table(
                f"{params.served} requests, {SLOTS} slots; a step of n tokens takes {BASE / MS:g} + {PER_TOKEN / MS:g}·n ms",
                loads,
            ),
            Table(f"{params.decoded} requests in {params.slots} slots, on this machine", here),
        ]
    )
    result.arrays["boxes"] = {policy: slot_boxes(trace, SHOWN_SLOTS) for policy, trace in shown.items()}
    for policy, trace in shown.items():
        result.key_figure(f"slots in use, {policy}, ten requests in {SHOWN_SLOTS} slots", busy(trace, SHOWN_SLOTS), unit="%")
    rate = params.rates[-1]
    top = {row.policy: row for row in loads if row.rate == rate}
    for policy in (STATIC, CONTINUOUS, PREFIX):
        result.key_figure(f"throughput, {policy}, {rate} requests/s", top[policy].throughput, unit="tokens/s")
    for policy in (STATIC, CONTINUOUS, PREFIX):
        result.key_figure(f"time to first token, {policy}, {rate} requests/s", top[policy].first_p50, unit="ms")
    add_claims(result, found, params, paged)
    longest = {policy: max(row.longest for row in loads if row.policy == policy) for policy in POLICIES}
    result.claim(
        f"With at most {BUDGET} tokens a step no step takes longer than {(BASE + PER_TOKEN * BUDGET) / MS:g} ms on the virtual "
        "clock, however long prompts are",
        longest[CHUNKS] <= (BASE + PER_TOKEN * BUDGET) / MS,
        f"{longest[CHUNKS]:g} ms; without chunks {longest[PREFIX]:g} ms",
    )
    result.measured("Continuous batching decodes the same requests faster on this machine", gain.faster, str(gain))
    return result


def add_claims(result: Result, found: ScheduleCounts, params: Params, paged: PagedAgainstAlone) -> None:
    result.claim(
        "In random schedules with arrivals, preemptions and shared prefixes each request's tokens are those that it gets alone",
        found.other_tokens == 0 and found.preemptions > 0 and found.hit_tokens > 0,
        f"{params.schedules:,} schedules with {found.requests:,} requests, {found.preemptions:,} preemptions, and "
        f"{found.hit_tokens:,} tokens that were found in blocks",
    )
    result.claim(
        "After each of their steps a request with n tokens in blocks of s holds ⌈n/s⌉ of them, each block is free or in a table, "
        "and in two tables only if it is full and both requests begin with the same tokens",
        found.broken == 0,
        f"{found.steps:,} steps",
    )
    result.claim(
        "On paged blocks the decoder's scores are within 1e-12 of those of each request alone, in float64, and its greedy tokens "
        "are the same, with preemptions and prefix hits",
        paged.distance < BOUND and paged.other_tokens == 0 and paged.preemptions > 0 and paged.hit_tokens > 0,
        f"at most {paged.distance:.1g} apart, where the best two scores are at least {paged.gap:.1g} apart; "
        f"{paged.preemptions} preemptions, {paged.hit_tokens} tokens found",
    )
    result.claim(
        "Of requests that all wait at the start none ends at a later step with continuous batching than with static batches",
        later_with_continuous(params.lists) == 0,
        f"{params.lists:,} random lists",
    )
