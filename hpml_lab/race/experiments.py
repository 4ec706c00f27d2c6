"""The experiments of notebook 06: which optimizer?"""

from statistics import median

from hpml_lab.core import style
from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.result import Claim, Result
from hpml_lab.core.threads import all_threads
from hpml_lab.data import load
from hpml_lab.race import ranks
from hpml_lab.race.figures import curves_panel, legend_of, sweep_panel
from hpml_lab.race.program import NETS
from hpml_lab.race.three_nets import (
    LECTURE_LR,
    at_best,
    at_lecture,
    band,
    plateau_claim,
    program_claims,
    seconds_alone,
    study_claims,
    summarise,
    sweep,
)
from hpml_lab.race.training import Inputs, log_points, shared_out, train_all

NOTEBOOK = "06_race"


# ---- mnist-three-nets ------------------------------------------------------------------------------------------------


def draw_mnist_three_nets(result: Result):
    """Seven optimizers on three nets, one row a net. From left: training loss against iterations at the lecture's rates, the
    same at each optimizer's best rate of the sweep, test accuracy at the best rates against seconds of training alone, and the
    final training loss over the learning rate with the lecture's rate ringed. Lines are medians over the seeds, bands go from
    the smallest to the largest; a rate at which a seed diverged stands as a cross at the top."""
    figure = style.new_figure(15.0, 10.5)
    axes = figure.subplots(3, 4)
    data = result.arrays
    for row, (net, found) in zip(axes, data["nets"].items(), strict=True):
        points = data["points"]
        curves_panel(row[0], found["lecture"], points, "loss")
        curves_panel(row[1], found["best"], points, "loss")
        curves_panel(row[2], found["best"], points, "accuracy", found["seconds"])
        sweep_panel(row[3], found["sweep"])
        title = found["title"].replace(", ", ",\n", 1) if len(found["title"]) > 30 else found["title"]
        row[0].set_ylabel(f"{net}: {title}\n\ntraining loss")
        for panel in row[:2]:
            panel.set_xlabel("iterations")
        low, high = (f(panel.get_ylim()[place] for panel in row[:2]) for place, f in ((0, min), (1, max)))
        for panel in row[:2]:
            panel.set_ylim(low, high)
    titles = ("Loss, the lecture's rates", "Loss, best rates", "Accuracy, best rates, by time", "Sweep of the rate")
    for panel, title in zip(axes[0], titles, strict=True):
        panel.set_title(title)
    legend_of(figure, axes[0, 0])
    return figure


@experiment(
    "mnist-three-nets",
    lecture="L0",
    notebook=NOTEBOOK,
    draw=draw_mnist_three_nets,
    quick=dict(
        data="digits",
        width=0.25,
        iterations=300,
        seeds=4,
        factors=(0.3, 3.0, 10.0),
        study=False,
        points=14,
        watched=400,
        share=32,
    ),
    full=dict(
        data="mnist",
        width=1.0,
        iterations=20_000,
        seeds=4,
        factors=(0.1, 0.3, 3.0, 10.0),
        study=True,
        points=30,
        watched=2000,
        share=4,
    ),
    lecture_says={"batch size": "128", "iterations": "20 000", "epochs": "about 42"},
    uses=("cuda",),
)
def mnist_three_nets(size: Size) -> Result:
    """The lecture's race: seven optimizers on three nets, at the lecture's rates and at their best."""
    batch = 128
    device = ranks.own_device(size.device.torch)
    inputs = Inputs.of(load(size.data), size.watched, device)
    nets = {name: net.scaled(size.width) if size.width != 1 else net for name, net in NETS.items()}
    settings, seeds = sweep(size.factors, size.study), tuple(range(size.seeds))
    points = log_points(size.iterations, size.points)
    on_gpu = device.type == "cuda"
    at_most = 16 if on_gpu else size.share  # a GPU wants few starts of large kernels, a CPU tasks for every core
    tasks = {name: shared_out(name, net, settings, seeds, at_most) for name, net in nets.items()}
    workers = 1 if on_gpu or size.name == "quick" else all_threads()
    curves = iter(train_all([t for some in tasks.values() for t in some], inputs, points, batch, workers))
    measured = seconds_alone(nets, inputs.x, inputs.y, batch, 3) if ranks.rank() == 0 else None
    alone = ranks.gather(measured)[0]
    records, seconds = {}, 0.0
    for name, some in tasks.items():
        found = {}
        for task in some:
            part = next(curves)
            seconds += part["seconds"]
            for setting, record in zip(task.settings, summarise(task.settings, part, points), strict=True):
                found[setting] = record
        records[name] = [found[setting] for setting in settings]
    lecture = {name: at_lecture(some) for name, some in records.items()}
    best = {name: at_best(some) for name, some in records.items()}
    rows = [
        {
            "net": name,
            "optimizer": optimizer,
            "rate": f"{record['lr']:g}" + _which(record, lecture[name][optimizer], best[name][optimizer]),
            "loss, median (band)": band(record["end"]),
            "test accuracy %, median (band)": band([100 * value for value in record["final"]]),
            "seeds diverged": record["diverged"],
            "leaves plateau after, median (band)": band(record["exit"]),
            "s for all iterations, alone": alone[name][optimizer] * size.iterations,
        }
        for name in nets
        for optimizer in LECTURE_LR
        for record in {id(one[name][optimizer]): one[name][optimizer] for one in (lecture, best)}.values()
    ]
    starts = [[[one["loss"][seed][0] for one in some] for seed in seeds] for some in records.values()]
    apart = max(max(losses) - min(losses) for some in starts for losses in some)
    chosen = [one for group in best.values() for one in group.values()]
    bad = sum(one["diverged"] for some in records.values() for one in some)
    claims = [
        *program_claims(device),
        Claim("All optimizers of a seed start from the same loss, to 1e-4", apart <= 1e-4, f"{apart:.0e}"),
        Claim(
            "No best rate is one at which a seed diverged",
            not any(one["diverged"] for one in chosen),
            f"{bad} of {3 * len(settings) * size.seeds} trainings diverged, at the rates marked in the figure",
        ),
        *study_claims(lecture, "the lecture's rates"),
        *study_claims(best, "best rates"),
        plateau_claim(records["net 3"], size.iterations),
    ]
    arrays = {"points": points, "nets": {}}
    for name, net in nets.items():
        arrays["nets"][name] = {
            "title": net.title,
            "lecture": _curves(lecture[name]),
            "best": _curves(best[name]),
            "seconds": alone[name],
            "sweep": {
                optimizer: {
                    "lecture": LECTURE_LR[optimizer],
                    "lr": [one["lr"] for one in records[name] if one["optimizer"] == optimizer],
                    "end": [one["end"] for one in records[name] if one["optimizer"] == optimizer],
                }
                for optimizer in LECTURE_LR
            },
        }
    notes = []
    if size.data == "digits":
        notes.append(
            "quick: scikit-learn's digits (8 × 8), hidden layers a quarter as wide, few iterations. The lecture's own: "
            "`hpml-lab data fetch mnist`, then `hpml-lab run mnist-three-nets --size full`."
        )
    if not on_gpu:
        notes.append("No CUDA GPU here: full takes some two hours on 2 cores, can be stopped, and goes on where it stopped.")
    return Result(
        rows=rows,
        claims=claims,
        quantities={
            "batch size": batch,
            "iterations": size.iterations,
            "epochs": round(size.iterations * batch / len(inputs.x), 1),
            "trainings": 3 * len(settings) * size.seeds,
            "seconds of training, all workers": round(seconds, 1),
            "best accuracy on net 3, %": round(100 * max(median(one["final"]) for one in best["net 3"].values()), 2),
        },
        notes=notes,
        arrays=arrays,
    )


def _which(record, lecture, best) -> str:
    return " (both)" if lecture is best else " (lecture)" if record is lecture else " (best)"


def _curves(group):
    return {name: {"lr": one["lr"], "loss": one["loss"], "accuracy": one["accuracy"]} for name, one in group.items()}
