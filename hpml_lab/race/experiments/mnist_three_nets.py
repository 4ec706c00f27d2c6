"""The lecture's race: seven optimizers on three nets, at the lecture's rates and at each one's best.

All settings (optimizers × learning rates) and seeds of a net train together as one batched program. A race of hours keeps
checkpoints and may be shared among the ranks of torchrun.
"""

from dataclasses import dataclass
from statistics import median

from hpml_lab.core.experiment import Params, experiment
from hpml_lab.core.findings import Table, column
from hpml_lab.core.live_curve import LiveCurve
from hpml_lab.core.result import Result
from hpml_lab.core.threads import all_threads
from hpml_lab.data import load
from hpml_lab.optim.colors import OPTIMIZER_COLORS, optimizer_key
from hpml_lab.race import ranks
from hpml_lab.race.curves import loss_at
from hpml_lab.race.ordinary import check_program
from hpml_lab.race.program import NETS, FullyConnected, Setting, seconds_alone
from hpml_lab.race.records import LECTURE_LR, Group, Record, at_best, at_lecture, ranking, records_of, sweep
from hpml_lab.race.seeds import median_and_range, percent
from hpml_lab.race.study import judge_plateau, judge_study
from hpml_lab.race.training import Inputs, Task, log_points, split_into_tasks, train_all

BATCH = 128
QUICK = dict(
    data="digits",
    width=0.25,  # of the lecture's hidden layers
    iterations=300,
    seeds=4,
    factors=(0.3, 3.0, 10.0),  # the sweep, as multiples of the lecture's rate
    study=False,  # whether the study's own rates are in the sweep
    points=14,  # of each curve
    watched=400,  # images that the curves are measured on
    settings_per_task=32,
)
FULL = dict(
    data="mnist",
    width=1.0,
    iterations=20_000,
    seeds=4,
    factors=(0.1, 0.3, 3.0, 10.0),
    study=True,
    points=30,
    watched=2000,
    settings_per_task=4,
)


@dataclass
class RaceEntry:
    """One optimizer at one learning rate on one net, over all seeds."""

    net: str = column("net")
    optimizer: str = column("optimizer")
    lr: float = column("learning rate")
    rate_from: str = column("which is")  # "the lecture's", "the best" or "both"
    loss: str = column("training loss, median (range)")
    accuracy: str = column("test accuracy, median (range)", "%")
    diverged: int = column("diverged seeds")
    exit: str = column("leaves the plateau after, median (range)", "iterations")
    seconds: float = column("training alone", "s")


@dataclass
class Ranking:
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
    device = ranks.own_device(params.device.torch)
    inputs = Inputs.of(load(params.data), params.watched, device)
    nets = {name: net.scaled(params.width) if params.width != 1 else net for name, net in NETS.items()}
    settings, seeds = sweep(params.factors, params.study), tuple(range(params.seeds))
    points = log_points(params.iterations, params.points)
    on_gpu = device.type == "cuda"
    at_most = 16 if on_gpu else params.settings_per_task  # a GPU runs few large kernels best, a CPU one task per core
    tasks = [task for name, net in nets.items() for task in split_into_tasks(name, net, settings, seeds, at_most)]
    workers = 1 if on_gpu or params.size == "quick" else all_threads()
    with LiveCurve("iterations", "training loss, net 3", _colors(), yscale="log") as live:
        curves = train_all(tasks, inputs, points, BATCH, workers, seen=_shown_on(live))
    by_net = {name: _records(name, tasks, curves, settings, points) for name in nets}
    seconds = ranks.gather(_seconds_alone(nets, inputs) if ranks.rank() == 0 else None)[0]
    lecture = {name: at_lecture(records) for name, records in by_net.items()}
    best = {name: at_best(records) for name, records in by_net.items()}

    result = Result(
        [
            Table("The race, at the lecture's rates and at the best", _entries(lecture, best, seconds, params.iterations)),
            Table("Rankings by median final training loss", _rankings(lecture, best)),
        ]
    )
    trainings = len(nets) * len(settings) * params.seeds
    accuracy = max(median(record.final) for record in best["net 3"].values())
    result.key_figure("batch size", BATCH, lecture="128")
    result.key_figure("iterations", params.iterations, lecture="20 000")
    result.key_figure("epochs", round(params.iterations * BATCH / len(inputs.x), 1), lecture="about 42")
    result.key_figure("trainings", trainings)
    result.key_figure("training time of all workers", round(sum(found["seconds"] for found in curves), 1), unit="s")
    result.key_figure("best accuracy on net 3", round(100 * accuracy, 2), unit="%")
    _claims(result, by_net, best, trainings)
    judge_study(result, lecture, "the lecture's rates")
    judge_study(result, best, "the best rates")
    judge_plateau(result, by_net["net 3"], params.iterations)
    result.notes = _notes(params, on_gpu, curves)
    result.arrays = {"points": points, "nets": {}}
    for name, net in nets.items():
        result.arrays["nets"][name] = {
            "title": net.title,
            "lecture": _curves(lecture[name]),
            "best": _curves(best[name]),
            "seconds": seconds[name],
            "sweep": {optimizer: _sweep(by_net[name], optimizer) for optimizer in LECTURE_LR},
        }
    check_program(result, device)
    return result


def _records(name: str, tasks: list[Task], curves: list[dict], settings: list[Setting], points: list[int]) -> list[Record]:
    """The records of one net, in the order of `settings`."""
    found = {}
    for task, curve in zip(tasks, curves, strict=True):
        if task.net == name:
            found |= dict(zip(task.settings, records_of(task.settings, curve, points), strict=True))
    return [found[setting] for setting in settings]


def _seconds_alone(nets: dict[str, FullyConnected], inputs: Inputs) -> dict[str, dict[str, float]]:
    """Seconds of one iteration of each optimizer that trains each net alone, on one CPU thread or the GPU."""
    settings = [Setting(optimizer, lr=lr) for optimizer, lr in LECTURE_LR.items()]
    return {name: seconds_alone(net, settings, inputs.x, inputs.y, BATCH, samples=3) for name, net in nets.items()}


def _entries(lecture: dict[str, Group], best: dict[str, Group], seconds: dict, iterations: int) -> list[RaceEntry]:
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


def _claims(result: Result, by_net: dict[str, list[Record]], best: dict[str, Group], trainings: int) -> None:
    records = [record for some in by_net.values() for record in some]
    bad = sum(record.diverged for record in records)
    result.claim(
        "No best rate is one at which a seed diverged",
        not any(record.diverged for group in best.values() for record in group.values()),
        f"{bad} of {trainings} trainings diverged, at the rates marked in the figure of the sweep",
    )
    starts = [[record.loss[seed][0] for record in some] for some in by_net.values() for seed in range(len(some[0].loss))]
    widest = max(max(losses) - min(losses) for losses in starts)
    result.check("All optimizers of a seed start from the same loss, to 1e-4", widest <= 1e-4, f"{widest:.0e}")


def _notes(params: Params, on_gpu: bool, curves: list[dict]) -> list[str]:
    problems = dict.fromkeys(found["problem"] for found in curves if found["problem"])
    notes = [f"No checkpoint could be kept, so a stopped run would have started again from 0: {text}" for text in problems]
    if params.data == "digits":
        notes.append(
            "quick: scikit-learn's digits (8 × 8), hidden layers a quarter as wide, few iterations. The lecture's own: "
            "`hpml-lab data fetch mnist`, then `hpml-lab run mnist-three-nets --size full`."
        )
    if not on_gpu:
        notes.append("No CUDA GPU here: full takes about two hours on 2 cores. It can be stopped and continues where it was.")
    return notes


def _curves(group: Group) -> dict:
    return {name: {"lr": record.lr, "loss": record.loss, "accuracy": record.accuracy} for name, record in group.items()}


def _sweep(records: list[Record], optimizer: str) -> dict:
    swept = [record for record in records if record.optimizer == optimizer]
    return {"lecture": LECTURE_LR[optimizer], "lr": [row.lr for row in swept], "end": [row.end for row in swept]}


def _colors() -> dict[str, str]:
    return {name: OPTIMIZER_COLORS[optimizer_key(name)] for name in LECTURE_LR}


def _shown_on(curve: LiveCurve):
    """A function for train_all that shows the loss of net 3 at the lecture's rates while the race runs."""

    def seen(task: Task, point: int, loss: list[list[float]]) -> None:
        for setting, by_seed in zip(task.settings, loss, strict=True):
            if task.net == "net 3" and setting.lr == LECTURE_LR[setting.optimizer]:
                curve.add(setting.optimizer, point, median(by_seed))

    return seen
