"""The lecture's race: seven optimizers on three nets, at the lecture's rates and at rates chosen on validation data.

First a sweep with few seeds and iterations chooses each optimizer's rate. Then the race is run with all seeds, at the lecture's
rates and at the chosen ones. All settings (optimizers × learning rates) and seeds of a net train together as one batched
program. A race of many minutes keeps checkpoints and may be shared among the ranks of torchrun.
"""

from dataclasses import dataclass
from statistics import median
from typing import Any

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.timing.clock import SAMPLES
from hpml_lab.core.timing.noise import SpeedUp
from hpml_lab.core.timing.threads import all_threads
from hpml_lab.core.show.live_curve import LiveCurve
from hpml_lab.data import DataSet, load
from hpml_lab.optim.formulas.colors import OPTIMIZER_COLORS, optimizer_key
from hpml_lab.race.experiments.mnist_three_nets import on_ranks
from hpml_lab.race.views.curves import loss_at
from hpml_lab.race.tools.program import NETS, FullyConnected, Setting
from hpml_lab.race.lessons.rate_sweep import LECTURE_LR, RateSweep, Sweeps, choose_rates
from hpml_lab.race.experiments.mnist_three_nets.setting_records import Group, Record, at_rates, ranking, records_of
from hpml_lab.race.lessons.seed_by_seed import median_and_range, percent
from hpml_lab.race.experiments.training_speed import BATCHED, LOADER, WayToTrain, seconds_alone, ways_to_train
from hpml_lab.race.experiments.mnist_three_nets.study import judge_study
from hpml_lab.race.experiments.mnist_three_nets.training import Inputs, Task, Trainer, log_points, split_into_tasks

BATCH = 128
QUICK = dict(
    data="digits",
    width=0.25,  # of the lecture's hidden layers
    iterations=300,
    seeds=4,
    sweep_iterations=300,  # of each training that chooses a rate
    sweep_seeds=2,
    valid=200,  # training images that are kept for choosing the rates
    points=24,  # of each curve
    watched=400,  # images that the curves are measured on
    settings_per_task=32,
    samples=8,  # of the times: one of the loader loop takes half a second
)
FULL = dict(
    data="mnist",
    width=1.0,
    iterations=20_000,
    seeds=4,
    sweep_iterations=2000,
    sweep_seeds=2,
    valid=5000,
    points=30,
    watched=2000,
    settings_per_task=4,
    samples=8,
)
ON_GPU = dict(settings_per_task=16)  # few large kernels; on a CPU one task per core, whose tensors fit its cache


@dataclass
class RaceEntry(Row):
    """One optimizer at one learning rate on one net, over all seeds."""

    net: str = column("net")
    optimizer: str = column("optimizer")
    lr: float = column("learning rate")
    rate_from: str = column("which is")  # "the lecture's", "the best" or "both"
    at_edge: bool = column("at the edge of the sweep")
    loss: str = column("training loss, median (range)")
    accuracy: str = column("test accuracy, median (range)", "%")
    diverged: int = column("diverged seeds")
    exit: str = column("leaves the plateau after, median (range)", "iterations")
    seconds: float = column("training alone", "s")


@dataclass
class Ranking(Row):
    """The optimizers on one net in the order of their final training loss."""

    net: str = column("net")
    rates: str = column("rates")
    order: str = column("from the lowest final loss to the highest")


def draw(result: Result):
    """The lecture's plot with several seeds: training loss on its three nets, each optimizer at the lecture's rate. Lines are
    medians over the seeds, bands go from the smallest to the largest. Note the order of the optimizers on each net, and the
    width of the bands on net 3."""
    return loss_at(result, "lecture")


@experiment("mnist-three-nets", lecture="L0", notebook="06_race", draw=draw, quick=QUICK, full=FULL, uses=("cuda", "mnist"))
def mnist_three_nets(params: Params) -> Result:
    """The lecture's race: seven optimizers on three nets, at the lecture's rates and at their best."""
    device = on_ranks.own_device(params.device.torch)
    data = load(params.data)
    inputs = Inputs.of(data, params.watched, params.valid, device)
    nets = {name: net.scaled(params.width) if params.width != 1 else net for name, net in NETS.items()}
    race = _Race(params, nets, inputs)
    sweeps = choose_rates(nets, race.sweep)
    points = log_points(params.iterations, params.points)
    by_net = race.run(sweeps, points)
    lecture = {name: at_rates(records, LECTURE_LR) for name, records in by_net.items()}
    best = {
        name: at_rates(records, {optimizer: sweep.best_lr for optimizer, sweep in sweeps[name].items()})
        for name, records in by_net.items()
    }
    seconds, ways, gain = on_ranks.gather(_times(params, nets, data, inputs) if on_ranks.rank() == 0 else None)[0]

    result = Result(
        [
            Table(
                "The race, at the lecture's rates and at the best", _entries(lecture, best, sweeps, seconds, params.iterations)
            ),
            Table("Rankings by median final training loss", _rankings(lecture, best)),
            Table("Seven times net 3, one for each optimizer, and the same number of steps, in three ways", ways),
        ]
    )
    _key_figures(result, params, race, inputs, best, gain)
    judge_study(result, lecture, best)
    result.notes = _notes(params, race)
    result.arrays = {"points": points, "nets": {}, "speed_up": str(gain)}
    for name, net in nets.items():
        result.arrays["nets"][name] = {
            "title": net.title,
            "lecture": _curves(lecture[name]),
            "best": _curves(best[name]),
            "seconds": seconds[name],
            "sweep": {optimizer: _swept(sweep) for optimizer, sweep in sweeps[name].items()},
        }
    race.trainer.finished()
    return result


class _Race:
    """The trainings of one experiment: those of the sweep, and those of the race."""

    def __init__(self, params: Params, nets: dict[str, FullyConnected], inputs: Inputs) -> None:
        self.params, self.nets = params, nets
        on_gpu = inputs.x.device.type == "cuda"
        self.settings_per_task = ON_GPU["settings_per_task"] if on_gpu else params.settings_per_task
        self.trainer = Trainer(inputs, BATCH, workers=1 if on_gpu or params.size == "quick" else all_threads())
        self.swept, self.raced = 0, 0  # trainings

    def sweep(self, settings: dict[str, list[Setting]]) -> dict[str, list[Record]]:
        """Short trainings with few seeds, for choosing rates."""
        self.swept += self.params.sweep_seeds * sum(map(len, settings.values()))
        return self._train(settings, self.params.sweep_seeds, [0, self.params.sweep_iterations], "sweep of the rates")

    def run(self, sweeps: Sweeps, points: list[int]) -> dict[str, list[Record]]:
        """The race at the lecture's and at the chosen rates; a rate that is both is trained once."""
        settings = {
            net: [Setting(name, lr=lr) for name, sweep in of_net.items() for lr in sorted({LECTURE_LR[name], sweep.best_lr})]
            for net, of_net in sweeps.items()
        }
        self.raced = self.params.seeds * sum(map(len, settings.values()))
        with LiveCurve("iterations", "training loss, net 3", _colors(), yscale="log") as live:
            return self._train(settings, self.params.seeds, points, "race", _shown_on(live))

    def _train(self, settings: dict[str, list[Setting]], seeds: int, points: list[int], name: str, *seen: Any):
        tasks = [
            task
            for net, some in settings.items()
            for task in split_into_tasks(net, self.nets[net], some, range(seeds), self.settings_per_task)
        ]
        curves = self.trainer.train(tasks, points, name, *seen)
        return {net: _records(net, tasks, curves, some, points) for net, some in settings.items()}


def _records(name: str, tasks: list[Task], curves: list[dict], settings: list[Setting], points: list[int]) -> list[Record]:
    """The records of one net, in the order of `settings`."""
    found = {}
    for task, curve in zip(tasks, curves, strict=True):
        if task.net == name:
            found |= dict(zip(task.settings, records_of(task.settings, curve, points), strict=True))
    return [found[setting] for setting in settings]


def _times(
    params: Params, nets: dict[str, FullyConnected], data: DataSet, inputs: Inputs
) -> tuple[dict, list[WayToTrain], SpeedUp]:
    """The seconds of an iteration of each optimizer alone on each net; the ways to train net 3, and the program's speed-up."""
    settings = [Setting(optimizer, lr=lr) for optimizer, lr in LECTURE_LR.items()]
    seconds = {name: seconds_alone(net, settings, inputs.x, inputs.y, BATCH, samples=SAMPLES) for name, net in nets.items()}
    return seconds, *ways_to_train(nets["net 3"], settings, data, inputs.x, inputs.y, BATCH, params.samples)


def _entries(
    lecture: dict[str, Group], best: dict[str, Group], sweeps: Sweeps, seconds: dict, iterations: int
) -> list[RaceEntry]:
    rows = []
    for net, group in lecture.items():
        for optimizer, at_lecture_rate in group.items():
            at_best_rate = best[net][optimizer]
            kinds = {"the lecture's": at_lecture_rate, "the best": at_best_rate}
            if at_lecture_rate is at_best_rate:
                kinds = {"both": at_best_rate}
            rows += [
                RaceEntry(
                    net=net,
                    optimizer=optimizer,
                    lr=record.lr,
                    rate_from=kind,
                    at_edge=sweeps[net][optimizer].at_edge(record.lr),
                    loss=median_and_range(record.end),
                    accuracy=median_and_range(percent(record.final)),
                    diverged=record.diverged,
                    exit=median_and_range(record.exit),
                    seconds=seconds[net][optimizer] * iterations,
                )
                for kind, record in kinds.items()
            ]
    return rows


def _rankings(lecture: dict[str, Group], best: dict[str, Group]) -> list[Ranking]:
    groups = {"the lecture's": lecture, "the best": best}
    return [Ranking(net, rates, ranking(nets[net])) for net in lecture for rates, nets in groups.items()]


def _key_figures(result: Result, params: Params, race: _Race, inputs: Inputs, best: dict[str, Group], gain: SpeedUp) -> None:
    accuracy = max(median(record.final) for record in best["net 3"].values())
    result.key_figure("batch size", BATCH, lecture="128")
    result.key_figure("iterations", params.iterations, lecture="20 000")
    result.key_figure("epochs", round(params.iterations * BATCH / len(inputs.x), 1), lecture="about 42")
    result.key_figure("trainings of the race", race.raced)
    result.key_figure("trainings of the sweep", race.swept)
    result.key_figure("training time of all workers", round(race.trainer.seconds, 1), unit="s")
    result.key_figure("best accuracy on net 3", round(100 * accuracy, 2), unit="%")
    result.key_figure(f"{BATCHED} compared with the {LOADER}, net 3", str(gain))


def _notes(params: Params, race: _Race) -> list[str]:
    problems = dict.fromkeys(race.trainer.problems)
    notes = [f"No checkpoint could be kept, so a stopped run would have started again from 0: {text}" for text in problems]
    rates = race.swept // params.sweep_seeds
    notes.append(
        f"The rates were chosen by the loss on {params.valid} training images that no net was trained on; the test images "
        f"chose nothing. The sweep tried {rates} rates, each with {params.sweep_seeds} of the {params.seeds} seeds of the race "
        f"and {params.sweep_iterations} of its {params.iterations} iterations: {100 * _share(params):.0f} % of the steps that "
        "these rates would take with all of them."
    )
    if params.data == "digits":
        notes.append(
            "quick: scikit-learn's digits (8 × 8), hidden layers a quarter as wide, few iterations. The lecture's own: "
            "`hpml-lab data fetch mnist`, then `hpml-lab run mnist-three-nets --size full`."
        )
    if race.trainer.inputs.x.device.type != "cuda":
        notes.append("No CUDA GPU here: full takes about 65 minutes on 2 cores. It can be stopped and continues where it was.")
    return notes


def _share(params: Params) -> float:
    """The part of a sweep with all seeds and iterations that was done."""
    return params.sweep_seeds * params.sweep_iterations / (params.seeds * params.iterations)


def _curves(group: Group) -> dict:
    return {
        name: {"lr": record.lr, "loss": _short(record.loss), "accuracy": _short(record.accuracy)}
        for name, record in group.items()
    }


def _short(curves: list[list[float]]) -> list[list[float]]:
    """Curves to four digits, which is finer than a figure can show."""
    return [[float(f"{value:.4g}") for value in curve] for curve in curves]


def _swept(sweep: RateSweep) -> dict:
    steps = sorted(sweep.found)
    return {
        "lecture": LECTURE_LR[sweep.optimizer],
        "best": sweep.best_lr,
        "lr": [sweep.lr(step) for step in steps],
        "valid": [sweep.found[step] for step in steps],
    }


def _colors() -> dict[str, str]:
    return {name: OPTIMIZER_COLORS[optimizer_key(name)] for name in LECTURE_LR}


def _shown_on(curve: LiveCurve):
    """A function for train_all that shows the loss of net 3 at the lecture's rates while the race runs."""

    def seen(task: Task, point: int, loss: list[list[float]]) -> None:
        for setting, by_seed in zip(task.settings, loss, strict=True):
            if task.net == "net 3" and setting.lr == LECTURE_LR[setting.optimizer]:
                curve.add(setting.optimizer, point, median(by_seed))

    return seen
