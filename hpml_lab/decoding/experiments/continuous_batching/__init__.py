"""continuous-batching: many requests in shared blocks, static batches next to continuous ones; each gets its own tokens."""

from collections import Counter

from matplotlib.axes import Axes

from hpml_lab.core.experiment import Params, Result, Table, experiment
from hpml_lab.core.show import style
from hpml_lab.decoding.experiments.continuous_batching.decoded_batches import compared_schedules, decoded_here
from hpml_lab.decoding.experiments.continuous_batching.policies import (
    BASE,
    BUDGET,
    CHUNKS,
    CONTINUOUS,
    MS,
    PER_TOKEN,
    POLICIES,
    PREFIX,
    SLOTS,
    STATIC,
    ServedLoad,
    later_with_continuous,
    load_row,
    slot_boxes,
    slots_in_use,
    waiting_trace,
)
from hpml_lab.decoding.experiments.continuous_batching.random_schedules import run_schedules

QUICK = dict(schedules=1500, with_decoder=8, lists=200, rates=[4, 8, 16, 24, 32], served=120, here=24, slots=8, samples=9)
FULL = dict(schedules=10_000, with_decoder=200, lists=2000, rates=[*range(4, 41, 4)], served=600, here=64, slots=16, samples=11)
SHOWN, SHOWN_SLOTS = (9, 3, 5, 2, 7, 4, 8, 3, 6, 5), 4  # tokens of the ten requests in the timelines
BOUND, LONGEST = 1e-12, (BASE + PER_TOKEN * BUDGET) / MS
HIGH = 0.8  # of a box, where slots are 1 apart


def draw(result: Result):
    """Left: ten requests in four slots, static batches above, continuous batching below. An orange box is the step that reads a
    request's prompt, with its number; blue boxes are the tokens after the first; empty space is a slot in which nothing is
    computed. Right: by the rate at which requests arrive on the virtual clock, tokens a second and the median time to the first
    token, which has a logarithmic axis. Look for the rate from which static batches do not keep up."""
    figure = style.new_figure(11, 5.4)
    grid = figure.add_gridspec(2, 2, width_ratios=(1.25, 1))
    lasts = {policy: 1 + max(step for _, step, _ in boxes) for policy, boxes in result.arrays["boxes"].items()}
    for number, (policy, boxes) in enumerate(result.arrays["boxes"].items()):
        axes = figure.add_subplot(grid[number, 0])
        draw_boxes(axes, boxes)
        axes.set(title=f"{policy}: {lasts[policy]} steps", xlim=(0, max(lasts.values())))
    axes.set_xlabel("step")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower left", ncols=2)
    upper, lower = (figure.add_subplot(grid[number, 1]) for number in range(2))
    for policy, color, marker, line in zip(POLICIES, style.CYCLE, style.MARKERS, style.LINES, strict=False):
        rows = [row for row in result.rows(ServedLoad) if row.policy == policy]
        look = dict(color=color, marker=marker, linestyle=line, markersize=5, alpha=0.85, label=policy)
        upper.plot([row.rate for row in rows], [row.throughput for row in rows], **look)
        lower.plot([row.rate for row in rows], [row.first_p50 for row in rows], **look)
    upper.set(xlabel="requests a second", ylabel="throughput (tokens/s)", ylim=(0, None))
    lower.set(xlabel="requests a second", ylabel="time to first token (ms)", yscale="log")
    upper.legend(fontsize=8)
    return figure


def draw_boxes(axes: Axes, boxes: list[list[int]]) -> None:
    """A row for each slot, and a box for each step that computes something in it."""
    begins = {number: [slot, step] for slot, step, number in reversed(boxes)}
    slots = 1 + max(slot for slot, _, _ in boxes)
    for name, color, at_begin in (("prompt, and the first token", style.ORANGE, True), ("one more token", style.BLUE, False)):
        for slot in range(slots):
            own = [(step, 1) for at, step, number in boxes if at == slot and (begins[number] == [at, step]) == at_begin]
            label = name if slot == 0 else None
            axes.broken_barh(own, (slot - HIGH / 2, HIGH), facecolor=color, edgecolor="white", linewidth=0.7, label=label)
    for number, (slot, step) in begins.items():
        axes.text(step + 0.5, slot, str(number), color=style.DARK, fontsize=8, ha="center", va="center")
    axes.set_yticks(range(slots), [f"slot {slot}" for slot in range(slots)])
    axes.set_ylim(slots - 0.5, -0.5)
    axes.grid(visible=False)


@experiment("continuous-batching", lecture="own", notebook="22_decoding", draw=draw, quick=QUICK, full=FULL)
def continuous_batching(params: Params) -> Result:
    """Requests share slots and blocks: each gets the tokens that it gets alone, and no slot need wait for the longest."""
    loads = [load_row(policy, rate, params.served) for policy in POLICIES for rate in params.rates]
    here, gain = decoded_here(params.here, params.slots, params.samples)
    costs = f"a step of n tokens takes {BASE / MS:g} + {PER_TOKEN / MS:g}·n ms"
    result = Result(
        [
            Table(f"On the virtual clock: {params.served} requests, {SLOTS} slots; {costs}", loads),
            Table(f"On this machine: {params.here} requests that all wait at the start, {params.slots} slots", here),
        ]
    )
    shown = {policy: waiting_trace(SHOWN, SHOWN_SLOTS, policy == CONTINUOUS) for policy in (STATIC, CONTINUOUS)}
    result.arrays["boxes"] = {policy: slot_boxes(trace, SHOWN_SLOTS) for policy, trace in shown.items()}
    for policy, trace in shown.items():
        result.key_figure(f"slots in use by the ten requests, {policy}", slots_in_use(trace, SHOWN_SLOTS), unit="%")
    top = {row.policy: row for row in loads if row.rate == params.rates[-1]}
    for policy in (STATIC, CONTINUOUS, PREFIX):
        result.key_figure(f"throughput at the highest rate, {policy}", top[policy].throughput, unit="tokens/s")
        result.key_figure(f"time to first token at the highest rate, {policy}", top[policy].first_p50, unit="ms")

    found = run_schedules(range(params.schedules))
    result.claim(
        "In random schedules with arrivals, preemptions and shared prefixes each request's tokens are those that it gets alone",
        found["other"] == 0 and happened(found),
        f"{params.schedules:,} schedules: {counted(found)}",
    )
    result.claim(
        "After each of their steps a request with n tokens in blocks of s holds ⌈n/s⌉ of them, each block is free or in a "
        "table, and in two tables only if it is full and what both requests begin with",
        found["broken"] == 0 and happened(found),
        f"{found['steps']:,} steps",
    )
    paged, distance = compared_schedules(params.with_decoder)
    result.claim(
        "On such schedules the decoder's scores, from paged blocks, are within 1e-12 of those of each request alone, in "
        "float64, and its greedy tokens are the same",
        distance < BOUND and paged["other"] == 0 and happened(paged),
        f"at most {distance:.1g} apart; {counted(paged)}",
    )
    result.claim(
        "Of requests that all wait at the start none ends at a later step with continuous batching than with static batches",
        later_with_continuous(params.lists) == 0,
        f"{params.lists:,} random lists",
    )
    longest, most = (max(row.longest for row in loads if row.policy == chosen) for chosen in (CHUNKS, PREFIX))
    result.claim(
        f"With at most {BUDGET} tokens a step no step takes longer than {LONGEST:g} ms on the virtual clock",
        longest <= LONGEST,
        f"without chunks up to {most:g} ms",
    )
    result.measured("Continuous batching decodes the same requests faster on this machine", gain.faster, str(gain))
    return result


def happened(found: Counter[str]) -> bool:
    """Whether the schedules had what they are to check."""
    return found["preemptions"] > 0 and found["hit_tokens"] > 0


def counted(found: Counter[str]) -> str:
    names = {"requests": "requests", "preemptions": "preemptions", "hit_tokens": "tokens found in blocks"}
    return ", ".join(f"{found[name]:,} {words}" for name, words in names.items())
