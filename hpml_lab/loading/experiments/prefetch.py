"""prefetch: what is gained by loading the next batches while the current one is computed on."""

from dataclasses import dataclass
from typing import Any

from torch.utils.data import BatchSampler, SequentialSampler

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.experiment.render import plural
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.core.system.workers import allow_oversubscription
from hpml_lab.core.timing.noise import SpeedUp, speed_up_of
from hpml_lab.core.timing.timeline import Span, gantt, overlap
from hpml_lab.core.timing.timeline import rows as timeline_rows
from hpml_lab.loading.experiments.slow_clips import Clips, StorageModel, batch_loads, clips_on_disk
from hpml_lab.loading.lessons.epoch_bounds import lower_bound, simulate
from hpml_lab.loading.lessons.prefetchers import ThreadPrefetcher
from hpml_lab.loading.tools.epochs import Accelerator, Epoch, Fetch, run_epoch, stamped_loader

NOTEBOOK = "08_loading"
COLORS = {"load": style.BLUE, "collate": style.PURPLE, "compute": style.ORANGE}
PLAIN, AHEAD, THREADS = "plain loop", "thread, depth 2", "2 threads, depth 4"
AGAIN = "plain loop, again"  # the placebo
DRAWN = (PLAIN, AHEAD, THREADS, "DataLoader, 2 workers")
# An epoch takes 0.1 to 0.4 seconds (at full 1 to 4), and a round has fourteen: fewer rounds than a shorter sample has.
QUICK = dict(batches=8, batch_size=3, scale=0.02, depths=(1, 2, 4), workers=(1, 2), ratios=(0.25, 1.0, 3.0), rounds=5)
FULL = dict(
    batches=32, batch_size=8, scale=0.02, depths=(1, 2, 4), workers=(1, 2, 4, 8), ratios=(0.125, 0.25, 0.5, 1, 2, 4), rounds=7
)


@dataclass
class LoopTime(Row):
    """Epochs with one way to load ahead, with as much to compute as to load: the median one, and its gain over the rounds."""

    way: str = column("way")
    seconds: float = column("epoch", "s")
    simulated: float = column("simulated", "s")
    gain: float = column("speed-up over the plain loop")
    interval: str = column("90 % interval")
    verdict: str = column("verdict")
    both: float = column("load and compute together", "s")
    start_up: float = column("start-up", "s")
    waiting: float = column("waiting", "s")


@dataclass
class RatioGain(Row):
    """One thread ahead of the loop compared with the plain loop, both measured or both simulated, for one ratio."""

    ratio: float = column("compute / load")
    simulated: float = column("simulated, speed-up")
    gain: float = column("measured, speed-up")
    interval: str = column("90 % interval")
    low: float
    high: float
    seconds: float = column("shortest epoch", "s")
    bound: float = column("max(load, compute)", "s")


def draw_prefetch(result: Result):
    """From the first load on, when each batch is loaded and when it is computed on, one lane for each process or thread: a
    plain loop, one thread ahead of it, two threads ahead of it, and two workers ahead of it.

    In the plain loop no two bars overlap in time; with a loader ahead, blue bars run below the orange ones; with two
    threads or workers they also run below each other.
    """
    figure = style.new_figure(8, 7.2)
    grid = figure.subplots(4, 1, height_ratios=(1, 1.3, 1.7, 1.7))
    timelines = result.arrays["timelines"]
    longest = max(span["end"] for name in DRAWN for span in timelines[name])
    for axes, name in zip(grid, DRAWN, strict=True):
        timeline = timelines[name]
        gantt(axes, timeline, COLORS, sorted({span["lane"] for span in timeline}))
        axes.set_xlim(0, longest * style.time_unit(max(span["end"] for span in timeline))[0])
        axes.set_title(name)
        if name != DRAWN[-1]:
            axes.set_xlabel("")
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=3)
    return figure


@picture
def prefetch_gain(result: Result):
    """How much faster one thread ahead makes the loop, by the ratio of compute to load, on a logarithmic axis, with 90 %
    intervals.

    The line is the limit (L + C) / max(L, C): it peaks at 2, where load and compute take equally long.
    """
    figure = style.new_figure(7, 3.4)
    axes = figure.subplots()
    gains = result.rows(RatioGain)
    ratios = [2 ** (k / 8) for k in range(-24, 25)]
    axes.plot(ratios, [(1 + r) / max(1, r) for r in ratios], color=style.GREY, label="limit: (L + C) / max(L, C)")
    at = [gain.ratio for gain in gains]
    simulated, measured = [gain.simulated for gain in gains], [gain.gain for gain in gains]
    reach = [[gain.gain - gain.low for gain in gains], [gain.high - gain.gain for gain in gains]]
    axes.plot(at, simulated, "s", color=style.GREEN, markersize=11, markerfacecolor="none", label="simulated")
    axes.errorbar(at, measured, reach, fmt="o", color=style.BLUE, markersize=8, capsize=4, label="measured")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set(xlabel="compute C / load L", ylabel="speed-up")
    axes.set_ylim(min(0.9, 0.95 * min(gain.low for gain in gains)), max(2.1, 1.05 * max(gain.high for gain in gains)))
    axes.legend(loc="upper right", fontsize=9)
    return figure


def _in_turns(ways: dict[str, Any], step_seconds: float, rounds: int) -> dict[str, list[Epoch]]:
    """The epochs of each way: in each round every way has its turn."""
    turns = [{way: run_epoch(batches, Accelerator(step_seconds)) for way, batches in ways.items()} for _ in range(rounds)]
    return {way: [turn[way] for turn in turns] for way in ways}


def _ways(
    params: Params, clips: Clips, indices: list[list[int]], loads: list[float], step: float
) -> dict[str, tuple[Any, float]]:
    """{way: (what to iterate over, the simulated seconds)}."""
    ways = {PLAIN: (stamped_loader(clips, params.batch_size, 0), simulate(loads, step, 0))}
    for depth in params.depths:
        batches = ThreadPrefetcher(indices, Fetch(clips), depth=depth)
        ways[f"thread, depth {depth}"] = (batches, simulate(loads, step, 1, depth))
    ways[THREADS] = (ThreadPrefetcher(indices, Fetch(clips), threads=2, depth=4), simulate(loads, step, 2, 2))
    for workers in params.workers:
        batches = stamped_loader(clips, params.batch_size, workers)
        ways[f"DataLoader, {plural(workers, 'worker')}"] = (batches, simulate(loads, step, workers))
    ways[AGAIN] = ways[PLAIN]
    return ways


def _loop_time(way: str, epochs: list[Epoch], simulated: float, gain: SpeedUp) -> LoopTime:
    epoch = sorted(epochs, key=lambda epoch: epoch.seconds)[len(epochs) // 2]

    def spans(what: str) -> list[Span]:
        return [span for span in epoch.spans if span.what == what]

    waiting = sum(epoch.parts[part] for part in ("waiting", "collate", "queue"))
    both = overlap(spans("load"), spans("compute"))
    fields = (epoch.seconds, simulated, gain.ratio, gain.interval, gain.verdict, both, epoch.parts["start-up"], waiting)
    return LoopTime(way, *fields)


@experiment("prefetch", lecture="L0", notebook=NOTEBOOK, draw=draw_prefetch, quick=QUICK, full=FULL)
def prefetch(params: Params) -> Result:
    """Prefetching: load the next batches while the current one is computed on."""
    storage = StorageModel(params.scale)
    loads = batch_loads(storage, params.batches, params.batch_size)
    load = sum(loads)
    with clips_on_disk(params.batches * params.batch_size, storage) as clips, allow_oversubscription():
        indices = list(BatchSampler(SequentialSampler(clips), params.batch_size, drop_last=False))
        step = load / params.batches  # as much to compute as to load
        ways = _ways(params, clips, indices, loads, step)
        epochs = _in_turns({way: batches for way, (batches, _) in ways.items()}, step, params.rounds)
        ahead = {PLAIN: ways[PLAIN][0], AHEAD: ThreadPrefetcher(indices, Fetch(clips), depth=2), AGAIN: ways[PLAIN][0]}
        # As much to compute as to load, the ratio 1, is what the ways above took turns with.
        by_ratio = {ratio: epochs if ratio == 1 else _in_turns(ahead, ratio * step, params.rounds) for ratio in params.ratios}
    faster = {way: _gain(epochs, way) for way in epochs}
    loops = [_loop_time(way, epochs[way], ways[way][1], faster[way]) for way in ways if way != AGAIN]
    gains = [_ratio_gain(ratio, found, loads) for ratio, found in by_ratio.items()]
    timelines = {way: timeline_rows(found[0].spans) for way, found in epochs.items() if way != AGAIN}

    result = Result(
        [Table("An epoch with as much to compute as to load", loops), Table("One thread ahead, by compute / load", gains)],
        arrays={"timelines": timelines},
    )
    _compare(result, params, loops, faster, gains, load)
    return result


def _gain(epochs: dict[str, list[Epoch]], way: str) -> SpeedUp:
    """The speed-up over the plain loop."""
    return speed_up_of(*([epoch.seconds for epoch in epochs[name]] for name in (PLAIN, way, AGAIN)))


def _ratio_gain(ratio: float, epochs: dict[str, list[Epoch]], loads: list[float]) -> RatioGain:
    step, gain = ratio * sum(loads) / len(loads), _gain(epochs, AHEAD)
    simulated = simulate(loads, step, 0) / simulate(loads, step, 1, 2)
    shortest, bound = min(epoch.seconds for epoch in epochs[AHEAD]), lower_bound(sum(loads), step * len(loads), 1)
    return RatioGain(float(ratio), simulated, gain.ratio, gain.interval, gain.low, gain.high, shortest, bound)


def _compare(
    result: Result, params: Params, loops: list[LoopTime], faster: dict[str, SpeedUp], gains: list[RatioGain], load: float
) -> None:
    """Add the key figures and the claims."""
    by_way = {row.way: row for row in loops}
    deepest, shallowest = by_way[f"thread, depth {max(params.depths)}"], by_way[f"thread, depth {min(params.depths)}"]
    result.key_figure("loading", load, "s")
    result.key_figure("plain loop", loops[0].seconds, "s")
    result.key_figure("one thread ahead", by_way[AHEAD].gain, "speed-up")
    result.key_figure("best way", max(row.gain for row in loops), "speed-up")
    result.measured(
        "In the plain loop loading and computing never overlap; with one thread ahead they do",
        loops[0].both < 1e-6 < shallowest.both,
        f"{shallowest.both:.2f} s together with a thread",
    )
    result.claim(
        "With one loader ahead, no epoch is faster than max(load, compute)", all(gain.seconds >= gain.bound for gain in gains)
    )
    best = max(gains, key=lambda gain: gain.gain)
    others = [gain for gain in gains if gain is not best]
    result.measured(
        "One thread ahead gains most where load and compute take equally long",
        best.ratio == 1 and all(gain.high < best.low for gain in others),
        ", ".join(f"C/L = {gain.ratio:g}: {gain.gain:.2f} ({gain.interval})" for gain in gains),
    )
    result.measured("One thread ahead is faster than the plain loop", faster[AHEAD].faster, str(faster[AHEAD]))
    depths = f"{shallowest.gain:.2f} ({shallowest.interval}) → {deepest.gain:.2f} ({deepest.interval})"
    result.measured(
        "A deeper queue smooths uneven reads: the deepest gains more than the shallowest",
        faster[deepest.way].low > faster[shallowest.way].high,
        depths,
    )
    threads = [row.seconds / row.simulated for row in loops if "thread" in row.way]
    result.measured(
        "Each epoch with threads takes what the simulation predicts, within 10 %",
        all(abs(ratio - 1) < 0.1 for ratio in threads),
        ", ".join(f"{ratio:.2f}" for ratio in threads),
    )
