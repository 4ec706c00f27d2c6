"""tune-loader: the tuner's choice against every setting of a grid, on data sets of known cost."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.utils.data import Dataset

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import horizontal_bars
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.system.workers import sleep_until
from hpml_lab.core.timing.noise import SpeedUp, speed_up_of
from hpml_lab.loading.tools.known_datasets import Computed, KnownCost
from hpml_lab.loading.tools.search import GAIN, loader_options
from hpml_lab.loading.tools.trials import Trials
from hpml_lab.loading.tools.tuner import tune

NOTEBOOK = "08_loading"
BATCH, EPOCHS = 8, 5
DEADLINE_SECONDS = 60.0  # for a batch
# Each setting takes a whole training, with the start of its workers: fewer rounds than a shorter sample has.
QUICK = dict(samples=128, wait=0.001, workers=(2, 4), ahead=(2,), rounds=5)
FULL = dict(samples=1024, wait=0.01, workers=(1, 2, 4, 8, 16), ahead=(2, 4), rounds=7)


@dataclass
class GridSetting(Row):
    """One setting for one data set: an epoch, the mean over the epochs of a training, start of the workers included."""

    data: str = column("data set")
    setting: str = column("setting")
    chosen: bool = column("the tuner's choice")
    seconds: float = column("epoch", "s")
    gain: float = column("speed-up over the choice")
    interval: str = column("90 % interval")
    verdict: str = column("verdict")


def draw_tune_loader(result: Result):
    """Seconds of an epoch by the setting, one panel for each data set; the tuner's choice is hatched and orange.

    No bar should be clearly shorter than the hatched one. A simpler setting, with fewer workers or fewer batches ahead, should
    be more than 5 % longer.
    """
    rows = result.rows(GridSetting)
    names = list(dict.fromkeys(row.data for row in rows))
    figure = style.new_figure(9, 3.6)
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        mine = [row for row in rows if row.data == name]
        horizontal_bars(
            axes,
            [row.setting for row in mine],
            [row.seconds for row in mine],
            labels="{:.2g}",
            color=[style.ORANGE if row.chosen else style.BLUE for row in mine],
            hatch=["///" if row.chosen else None for row in mine],
        )
        axes.set(xlabel="seconds of an epoch", ylabel="num_workers", title=name)
        axes.title.set_fontsize(9)
    return figure


def data_sets(samples: int, wait: float) -> dict[str, tuple[Dataset, float]]:
    """{name: (data set, seconds of a step)}: what takes long is waiting, computing, nothing, or the step."""
    return {
        "samples wait": (KnownCost(samples, wait=wait), wait),
        "samples compute": (Computed(samples, wait), wait),
        "samples are there": (KnownCost(samples), wait),
    }


def grid_times(
    dataset: Dataset, step: Callable[[Any], object], settings: list[dict[str, Any]], chosen: dict[str, Any], rounds: int
) -> tuple[list[float], list[list[float]]]:
    """Seconds of an epoch by the placebo, the choice once more, and by each setting, round by round in turns."""
    run = Trials(dataset, BATCH, step, DEADLINE_SECONDS, {}, float("inf"))
    batches = -(-len(dataset) // BATCH)
    turns = [[run.trial(options).epoch(batches, EPOCHS) for options in [chosen, *settings]] for _ in range(rounds)]
    again, *times = zip(*turns, strict=True)
    return list(again), [list(taken) for taken in times]


@experiment("tune-loader", lecture="L0 L3 L4", notebook=NOTEBOOK, draw=draw_tune_loader, quick=QUICK, full=FULL)
def tune_loader(params: Params) -> Result:
    """The tuner's choice against every setting of a grid."""
    rows: list[GridSetting] = []
    result = Result()
    for name, (dataset, seconds) in data_sets(params.samples, params.wait).items():

        def step(_: Any, seconds: float = seconds) -> None:
            sleep_until(CLOCK() + seconds)

        most = max(params.workers)
        tuned = tune(dataset, BATCH, step=step, restore=[], epochs=EPOCHS, max_workers=most, deadline_seconds=DEADLINE_SECONDS)
        grid = [loader_options(count, ahead, EPOCHS) for count in params.workers for ahead in params.ahead]
        settings = [{"num_workers": 0}, *grid]
        if tuned.options not in settings:  # with more batches ahead, or pinned
            settings.append(tuned.options)
        again, times = grid_times(dataset, step, settings, tuned.options, params.rounds)
        gains = _gains(settings, times, tuned.options, again)
        for options, taken, gain in zip(settings, times, gains, strict=True):
            median = sorted(taken)[len(taken) // 2]
            fields = (options == tuned.options, median, gain.ratio, gain.interval, gain.verdict)
            rows.append(GridSetting(name, _label(options), *fields))
        _compare(result, name, settings, gains, tuned.options)
    result.tables.append(Table("Every setting of the grid", rows))
    return result


def _gains(
    settings: list[dict[str, Any]], times: list[list[float]], chosen: dict[str, Any], again: list[float]
) -> list[SpeedUp]:
    """The speed-up of each setting over the chosen one."""
    base = times[settings.index(chosen)]
    return [speed_up_of(base, taken, again) for taken in times]


def _compare(result: Result, name: str, settings: list[dict[str, Any]], gains: list[SpeedUp], chosen: dict[str, Any]) -> None:
    best = max(range(len(settings)), key=lambda index: gains[index].ratio)
    result.key_figure(f"{name}: workers chosen", chosen["num_workers"])
    result.key_figure(f"{name}: best of the grid", gains[best].ratio, "speed-up over the choice")
    pairs = list(zip(settings, gains, strict=True))
    beaten = [options for options, gain in pairs if gain.faster and gain.ratio > 1 / (1 - GAIN)]
    result.measured(
        f"{name}: no setting of the grid beats the tuner's choice by more than the noise and 5 %",
        not beaten,
        f"the choice has {_label(chosen)}; the best, {_label(settings[best])}, is {gains[best]}",
    )
    equals = [(options, gain) for options, gain in pairs if _is_simpler(options, chosen) and gain.ratio > 1 - GAIN]
    measured = [f"{_label(options)} is {gain}" for options, gain in equals] or ["each takes longer"]
    result.measured(
        f"{name}: the choice is at least 5 % faster than each simpler setting",
        not equals,
        f"the choice has {_label(chosen)}; {', '.join(measured) if chosen['num_workers'] else 'none is simpler'}",
    )


def _is_simpler(options: dict[str, Any], than: dict[str, Any]) -> bool:
    """Whether options ask for no more workers, batches ahead or pinned memory than others, and are not the same."""
    names = ("num_workers", "prefetch_factor", "pin_memory")
    return options != than and all(options.get(name, 0) <= than.get(name, 0) for name in names)


def _label(options: dict[str, Any]) -> str:
    """The setting in few words: the workers, and what is not usual."""
    further = [f"{options['prefetch_factor']} ahead"] if options.get("prefetch_factor", 2) != 2 else []
    return ", ".join([str(options["num_workers"]), *further, *(["pinned"] if options.get("pin_memory") else [])])
