"""The experiments of notebook 06: which optimizer?"""

from statistics import median

import torch

from hpml_lab.core import style
from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.progress import progress
from hpml_lab.core.result import Claim, Result
from hpml_lab.core.threads import all_threads
from hpml_lab.data import load
from hpml_lab.race import ranks, scheduled
from hpml_lab.race import sparse_data as sparse
from hpml_lab.race.figures import curves_panel, draw_schedules_vs_adaptive, draw_sparse_data, legend_of, sweep_panel
from hpml_lab.race.program import NETS, Setting, flat_inputs, seconds_alone
from hpml_lab.race.three_nets import (
    LECTURE_LR,
    at_best,
    at_lecture,
    band,
    plateau_claim,
    program_claims,
    ranking,
    seconds_on_each,
    study_claims,
    summarise,
    sweep,
)
from hpml_lab.race.training import Inputs, log_points, shared_out, train_all
from hpml_lab.race.words import corpus, learn

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
    measured = seconds_on_each(nets, inputs.x, inputs.y, batch, 3) if ranks.rank() == 0 else None
    alone = ranks.gather(measured)[0]
    records, seconds, notes = {}, 0.0, []
    for name, some in tasks.items():
        found = {}
        for task in some:
            part = next(curves)
            seconds += part["seconds"]
            if part["problem"]:
                notes.append(f"Had it been stopped, it would have started anew: {part['problem']}")
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
    notes = list(dict.fromkeys(notes))
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
            **{
                f"ranking on {name} by loss, {where}": ranking(group[name])
                for where, group in (("lecture's rates", lecture), ("best rates", best))
                for name in nets
            },
        },
        notes=notes,
        arrays=arrays,
    )


def _which(record, lecture, best) -> str:
    return " (both)" if lecture is best else " (lecture)" if record is lecture else " (best)"


def _curves(group):
    return {name: {"lr": one["lr"], "loss": one["loss"], "accuracy": one["accuracy"]} for name, one in group.items()}


# ---- sparse-data -----------------------------------------------------------------------------------------------------

CORPORA = {"Rare words weigh more": 0.5, "All words weigh alike": 0.0}  # how a word's weight grows with its rank


@experiment(
    "sparse-data",
    lecture="L0",
    notebook=NOTEBOOK,
    draw=draw_sparse_data,
    quick=dict(
        vocabulary=1000,
        texts=2000,
        held_out=1000,
        epochs=2,
        batch=32,
        seeds=8,
        vocabularies=(1_000, 10_000, 100_000),
        samples=5,
    ),
    full=dict(
        vocabulary=10_000,
        texts=20_000,
        held_out=4000,
        epochs=2,
        batch=32,
        seeds=16,
        vocabularies=(1_000, 10_000, 100_000, 1_000_000),
        samples=7,
    ),
    lecture_says={"leads on sparse data": "one of the adaptive methods"},
    uses=("cuda",),
)
def sparse_data(size: Size) -> Result:
    """Sparse data: do adaptive methods win, and what does a sparse gradient save."""
    device, rows, claims, corpora = size.device.torch, [], [], {}
    for where, power in progress(CORPORA.items(), "corpora"):
        made = corpus(range(size.seeds), size.vocabulary, size.texts, size.held_out, power)
        found = sparse.summarise(learn(sparse.SETTINGS, made, size.epochs, size.batch, device))
        corpora[where] = found
        rows += [
            {
                "corpus": where,
                "optimizer": name,
                "best rate": one["lr"],
                "test accuracy %, median (band)": band([100 * value for value in one["test"]]),
                "decided by rare words %, median (band)": band([100 * value for value in one["rare"]]),
                "at the first rate of its sweep %": 100 * median(one["first rate"]),
                "best rate at the sweep's edge": one["edge"],
            }
            for name, one in found.items()
        ]
        claims += sparse.corpus_claims(found, where)
    weighted = corpora["Rare words weigh more"]
    claims.append(sparse.tuning_claim(weighted, "Rare words weigh more"))
    costs = sparse.step_costs(size.vocabularies, 16, 64, 20, device, size.samples)
    first, last = costs[0], costs[-1]
    grown = {name: last[name] / first[name] for name in ("vocabulary", "Adam µs a step", "SparseAdam µs a step")}
    claims.append(
        Claim(
            "From the smallest to the largest vocabulary a step of SparseAdam grows less than a tenth as much as one of Adam",
            grown["SparseAdam µs a step"] * 10 < grown["Adam µs a step"],
            ", ".join(f"{name} ×{factor:.3g}" for name, factor in grown.items()),
            exact=False,
        )
    )
    return Result(
        rows=rows,
        claims=[*sparse.sparse_claims(device), *claims],
        quantities={
            "leads on sparse data": sparse.winners(weighted)[0],
            "its lead on texts that rare words decide, points": round(sparse.lead(weighted), 1),
            "SparseAdam over Adam at the largest vocabulary, times faster": round(last["times faster"], 2),
            "dense over sparse gradient at the largest vocabulary, times the bytes": round(
                last["dense gradient KiB"] / last["sparse gradient KiB"], 1
            ),
        },
        notes=[]
        if device.type == "cuda"
        else [
            "No CUDA GPU here: the times are a CPU's. `hpml-lab run sparse-data --size full` on a machine with one shows its."
        ],
        arrays={"corpora": corpora, "costs": costs},
    )


# ---- schedules-vs-adaptive -------------------------------------------------------------------------------------------


@experiment(
    "schedules-vs-adaptive",
    lecture="L0",
    notebook=NOTEBOOK,
    draw=draw_schedules_vs_adaptive,
    quick=dict(data="digits", width=0.25, iterations=400, batch=32, seeds=8, valid=200, wrong=0.2, threshold=0.9, looks=25),
    full=dict(data="mnist", width=1.0, iterations=5000, batch=128, seeds=8, valid=5000, wrong=0.2, threshold=0.95, looks=25),
    lecture_says={"ends with the best accuracy": "often SGD with a schedule", "is there first": "an adaptive method"},
    uses=("cuda",),
)
def schedules_vs_adaptive(size: Size) -> Result:
    """SGD with a schedule of the learning rate against adaptive methods, each at its best rate."""
    device = size.device.torch
    data = load(size.data, device)
    x, test_x = flat_inputs(data)
    kept = len(x) - size.valid
    train = x[:kept], scheduled.with_wrong_labels(data.train_y[:kept], size.wrong)
    valid, test = (x[kept:], data.train_y[kept:]), (test_x, data.test_y)
    net = NETS["net 2"] if size.width == 1 else NETS["net 2"].scaled(size.width)
    threads = 1 if size.name == "quick" else all_threads()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        curves = scheduled.run(net, range(size.seeds), train, valid, test, size.iterations, size.batch, size.looks)
    finally:
        torch.set_num_threads(before)
    found = scheduled.summarise(curves, size.threshold)
    settings = [Setting(name, lr=peaks[0]) for name, peaks in scheduled.PEAKS.items()]
    seconds = seconds_alone(net, settings, *train, size.batch, samples=3)
    percent = f"{100 * size.threshold:g} %"
    rows = [
        {
            "optimizer": optimizer,
            "schedule": schedule,
            "best peak rate": one["lr"],
            "final test accuracy %, median (band)": band([100 * value for value in one["final"]]),
            f"iterations to {percent}, median (band)": band(one["reached"]),
            f"seconds to {percent}, alone": median(one["reached"]) * seconds[optimizer],
            "best rate at the sweep's edge": one["edge"],
        }
        for (optimizer, schedule), one in found.items()
    ]
    ends = max(found, key=lambda one: median(found[one]["final"]))
    quickest = min(found, key=lambda one: median(found[one]["reached"]))
    notes = [
        f"{100 * size.wrong:g} % of the training labels were drawn anew at random; without that, the nets learn all "
        "images by heart, and the noise that a falling rate averages out is gone by itself."
    ]
    if size.data == "digits":
        notes.append(
            "quick: scikit-learn's digits and a small net 2; `hpml-lab run schedules-vs-adaptive --size full` takes MNIST."
        )
    if device.type != "cuda":
        notes.append("No CUDA GPU here: full takes the better part of an hour on 2 cores; killed, it goes on where it stopped.")
    return Result(
        rows=rows,
        claims=[*scheduled.schedule_claims(device), *scheduled.contest_claims(found, size.threshold)],
        quantities={
            "ends with the best accuracy": scheduled.named(ends),
            "is there first": scheduled.named(quickest),
            "its final accuracy, %": round(100 * median(found[ends]["final"]), 2),
            "trainings": len(scheduled.PLACES) * size.seeds,
        },
        notes=notes,
        arrays={
            "iterations": curves.iterations,
            "threshold": size.threshold,
            "entrants": [{"optimizer": a, "schedule": b, **one} for (a, b), one in found.items()],
            "shapes": {name: [scheduled.factor(name, t, 200) for t in range(200)] for name in scheduled.SCHEDULES},
        },
    )
