"""Loss scaling: which gradients underflow in fp16, how a scaler works, and the lecture's five recipes."""

from dataclasses import dataclass, field
from math import log2
from statistics import median

import torch
from matplotlib.axes import Axes

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.data import load
from hpml_lab.precision.experiments.loss_scaling.emulation import EmulatedLayer, emulated_layers
from hpml_lab.precision.lessons.formats import FP16 as FP16_FORMAT
from hpml_lab.precision.experiments.loss_scaling.recipe_runs import (
    FP16,
    MASTER,
    MIXED,
    SCALED,
    RecipeRun,
    run_recipes,
    underflowing,
)
from hpml_lab.precision.lessons.recipes import RECIPES
from hpml_lab.precision.experiments.underflow import EDGES

QUICK = dict(data="digits", seeds=3, steps=80, batch=128, rate=0.1, trace=80)
FULL = dict(data="mnist", seeds=5, steps=2340, batch=128, rate=0.1, trace=400)
FIRST_SCALE, INTERVAL = 2.0**16, 8
# The slide's top-1 and top-5 accuracies in %, one number each, without a spread. ResNet had master weights with a scale of 1.
# Inception's rows for fp16 without master weights cannot be read in the lecture's file.
LECTURE = {
    "AlexNet": {MIXED: (58.12, 80.71), FP16: (54.89, 78.12), SCALED: (57.76, 80.76), MASTER: (58.56, 80.89)},
    "ResNet": {"fp32": (71.75, 90.52), MIXED: (71.17, 90.1), FP16: (71.17, 90.33), MASTER: (70.53, 90.14)},
    "Inception": {MIXED: (73.6, 91.11), MASTER: (73.52, 91.08)},
}


@dataclass
class SlideRow(Row):
    """One recipe in the slide's table, top-1 / top-5 on ImageNet's 1000 classes, and in this run on 10 classes (medians)."""

    recipe: str = column("recipe")
    alexnet: str | None = column("AlexNet, top-1 / top-5", "%", None)
    resnet: str | None = column("ResNet, top-1 / top-5", "%", None)
    inception: str | None = column("Inception, top-1 / top-5", "%", None)
    here: str = column("here, top-1 / top-5", "%", "")


@dataclass
class RecipeRow(Row):
    """One recipe, trained as it is, with the loss times 2e-5, and with a rate 100 times smaller. Accuracies are medians."""

    recipe: str = column("recipe")
    accuracy: float = column("accuracy", "%")
    lowest: float = column("lowest", "%")
    highest: float = column("highest", "%")
    tiny_accuracy: float = column("accuracy, loss × 2e-5", "%")
    tiny_lowest: float = column("lowest, loss × 2e-5", "%")
    tiny_highest: float = column("highest, loss × 2e-5", "%")
    zeros: float = column("zero gradients", "%")
    tiny_zeros: float = column("zero gradients, loss × 2e-5", "%")
    lost: float = column("updates lost", "%")
    slow_lost: float | None = column("updates lost, rate ÷ 100", "%")
    slow_loss_fall: float | None = column("fall of the loss, rate ÷ 100")
    skipped: int = column("skipped steps")
    accuracies: list[float] = field(default_factory=list)
    tiny_accuracies: list[float] = field(default_factory=list)


@dataclass
class ScalerStep(Row):
    """One training step with torch's GradScaler: drawn, and not shown as a table of hundreds of rows."""

    step: int
    scale: float
    overflow: bool  # of a gradient
    changed: bool  # a weight
    next_scale: float


def lecture_difference(recipe: str) -> str | None:
    """The lecture's accuracies of a recipe minus those of the mixed recipe, as text."""
    differences = []
    for net, table in LECTURE.items():
        if recipe in table:
            where = f"{net}, scale 1" if (net, recipe) == ("ResNet", MASTER) else net
            differences.append(f"{table[recipe][0] - table[MIXED][0]:+.2f} ({where})")
    return ", ".join(differences) or None


def slide_row(recipe: str, run: RecipeRun) -> SlideRow:
    """The slide's row for a recipe, with this run's accuracies."""
    lecture = [f"{table[recipe][0]:.2f} / {table[recipe][1]:.2f}" if recipe in table else None for table in LECTURE.values()]
    return SlideRow(recipe, *lecture, f"{median(run.accuracies):.2f} / {median(run.top5):.2f}")


# ---- drawing ----------------------------------------------------------------------------------------------------------------


def draw_histograms(axes: Axes, gradients: dict[str, list[float]]) -> None:
    looks = ((style.GREEN, "-"), (style.RED, "--"), (style.BLUE, ":"))
    for (name, shares), (color, dash) in zip(gradients.items(), looks, strict=True):
        axes.step(EDGES, [100 * share for share in shares], dash, where="post", color=color, label=name)
    for value, text in ((FP16_FORMAT.smallest_subnormal, "2⁻²⁴"), (FP16_FORMAT.smallest_normal, "2⁻¹⁴")):
        axes.axvline(log2(value), color=style.INK, linewidth=1)
        axes.annotate(
            text, (log2(value), 1), (3, -9), xycoords=("data", "axes fraction"), textcoords="offset points", fontsize=9
        )
    axes.axvspan(EDGES[0], log2(FP16_FORMAT.smallest_subnormal), color=style.GREY, alpha=0.15)
    axes.set(xlabel="log₂ of the gradient's magnitude", ylabel="share of all gradients, %", xlim=(-48, 28), title="Gradients")
    axes.margins(y=0.12)
    axes.legend(loc="upper right", fontsize=8)


def draw_accuracies(axes: Axes, names: list[str], accuracies: list[list[float]]) -> None:
    base = median(accuracies[names.index(MIXED)])
    for index, values in enumerate(accuracies):
        axes.plot([index] * len(values), [value - base for value in values], "o", color=style.BLUE, alpha=0.6)
        axes.plot(index, median(values) - base, "_", color=style.BLUE, markersize=22, markeredgewidth=3)
    axes.set_xticks(range(len(names)), [name.replace(", ", ",\n") for name in names], fontsize=8)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set(xlabel="recipe", ylabel="accuracy − mixed, points")


def draw(result: Result):
    """Above left: magnitudes of the gradients; below 2⁻¹⁴ fp16 loses bits, and in the grey area almost all become zero; a
    scale moves the histogram to the right. Above right: the scale of torch's GradScaler, with a cross for each skipped step.
    Below: test accuracy minus that of the mixed recipe, one point per seed and a bar at the median, with the loss as it is
    (and the lecture's numbers) and with the loss times 2e-5."""
    figure = style.new_figure(9, 7.5)
    (histograms, trace), (plain, tiny) = figure.subplots(2, 2)
    draw_histograms(histograms, result.arrays["gradients"])
    steps = result.rows(ScalerStep)
    skipped = [row for row in steps if row.overflow]
    trace.step([row.step for row in steps], [row.scale for row in steps], where="mid", color=style.BLUE, label="scale")
    trace.plot([row.step for row in skipped], [row.scale for row in skipped], "X", color=style.RED, label="skipped step")
    trace.set_yscale("log", base=2)
    trace.set(xlabel="step", ylabel="scale", title=f"torch's GradScaler, growth interval {INTERVAL}")
    trace.legend(loc="lower right")
    rows = result.rows(RecipeRow)
    names = [row.recipe for row in rows]
    draw_accuracies(plain, names, [row.accuracies for row in rows])
    draw_accuracies(tiny, names, [row.tiny_accuracies for row in rows])
    for (net, table), marker, color in zip(LECTURE.items(), "Ds^", (style.RED, style.ORANGE, style.PURPLE), strict=True):
        positions = [names.index(name) + 0.2 for name in table]
        differences = [top1 - table[MIXED][0] for top1, _ in table.values()]
        plain.plot(positions, differences, marker, color=color, label=f"lecture: {net}")
    plain.set_title("Loss as it is")
    plain.legend(fontsize=8, loc="lower right")
    tiny.set_title("Loss × 2e-5, rate ÷ 2e-5")
    return figure


# ---- measuring --------------------------------------------------------------------------------------------------------------


def trace_scaler(x: torch.Tensor, y: torch.Tensor, *, steps: int, start: float, interval: int) -> list[ScalerStep]:
    """Train a small network with autocast in fp16 and torch's GradScaler, on the device of x.

    x (N, inputs) and y (N,) are one batch that is used in every step; `start` is the first scale, `interval` the growth
    interval.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(x.shape[1], 16), torch.nn.ReLU(), torch.nn.Linear(16, 10)).to(x.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler(x.device.type, init_scale=start, growth_interval=interval)
    rows = []
    for step in range(steps):
        before = [weight.detach().clone() for weight in model.parameters()]
        scale = scaler.get_scale()
        optimizer.zero_grad()
        with torch.autocast(x.device.type, dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        overflow = not all(weight.grad.isfinite().all() for weight in model.parameters())
        scaler.step(optimizer)
        scaler.update()
        changed = any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
        rows.append(ScalerStep(step, scale, overflow, changed, scaler.get_scale()))
    return rows


def doubles_every_interval(trace: list[ScalerStep], interval: int) -> bool:
    """Whether the scale doubles exactly after every `interval` steps in a row without an overflow, and at least once."""
    good, as_expected = 0, []
    for row in trace:
        good = 0 if row.overflow else good + 1
        as_expected.append((row.next_scale == 2 * row.scale) == (good == interval))
        good %= interval
    return all(as_expected) and any(row.next_scale > row.scale for row in trace)


@experiment("loss-scaling", lecture="L1", notebook="12_precision", draw=draw, quick=QUICK, full=FULL, uses=("cuda", "mnist"))
def loss_scaling(params: Params) -> Result:
    """Loss scaling: what underflows in fp16, and the lecture's five recipes."""
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=False):
        return measure_recipes(params)


def measure_recipes(params: Params) -> Result:
    data = load(params.data, params.device.torch)
    plain, tiny, slow = run_recipes(data, params)
    gradients, vanished = underflowing(data, params.batch, params.rate)
    x, y = data.train_x[:32].flatten(1), data.train_y[:32]
    trace: list[ScalerStep] = trace_scaler(x, y, steps=params.trace, start=FIRST_SCALE, interval=INTERVAL)
    layers: list[EmulatedLayer] = emulated_layers()
    rows = [
        RecipeRow(
            recipe=name,
            accuracy=median(plain[name].accuracies),
            lowest=min(plain[name].accuracies),
            highest=max(plain[name].accuracies),
            tiny_accuracy=median(tiny[name].accuracies),
            tiny_lowest=min(tiny[name].accuracies),
            tiny_highest=max(tiny[name].accuracies),
            zeros=100 * plain[name].zeros,
            tiny_zeros=100 * tiny[name].zeros,
            lost=100 * plain[name].lost,
            slow_lost=100 * slow[name].lost if name in slow else None,
            slow_loss_fall=median(slow[name].loss_falls) if name in slow else None,
            skipped=plain[name].skipped + tiny[name].skipped,
            accuracies=plain[name].accuracies,
            tiny_accuracies=tiny[name].accuracies,
        )
        for name in RECIPES
    ]
    by_name = {row.recipe: row for row in rows}
    overflows = [row for row in trace if row.overflow]
    others = [row for row in rows if row.recipe != FP16]

    result = Result(
        [
            Table("The slide's table (ImageNet) and this run", [slide_row(name, plain[name]) for name in RECIPES]),
            Table("The five recipes", rows),
            Table("torch's GradScaler, step by step", trace),
            Table("fp16 emulated in float32, compared with torch's fp16", layers),
        ],
        arrays={"gradients": gradients},
    )
    mixed = by_name[MIXED]
    for name in RECIPES:
        if name != MIXED:
            row = by_name[name]
            here = (
                f"{row.accuracy - mixed.accuracy:+.2f}, and {row.tiny_accuracy - mixed.tiny_accuracy:+.2f} with the loss × 2e-5"
            )
            result.key_figure(f"{name} minus mixed", here, unit="points", lecture=lecture_difference(name))
    result.key_figure("gradients that vanish in fp16, loss × 2e-5", 100 * vanished[FP16], unit="%")
    result.key_figure("the same with a scale of 1000", 100 * vanished[SCALED], unit="%")
    result.key_figure("steps that the scaler skipped", 100 * len(overflows) / len(trace), unit="%")

    result.claim(
        "With the loss times 2e-5, more than half of the gradients become zero in fp16; with a scale of 1000 or 65536, fewer "
        "than one in ten",
        vanished[FP16] > 0.5 and max(vanished[MIXED], vanished[SCALED], vanished[MASTER]) < 0.1,
        ", ".join(f"{name}: {share:.1%}" for name, share in vanished.items()),
    )
    result.claim(
        "A step whose gradients overflow changes no weight and halves the scale, which doubles after every "
        f"{INTERVAL} other steps in a row, and at no other time",
        bool(overflows)
        and all(row.changed != row.overflow for row in trace)
        and all(row.next_scale == row.scale / 2 for row in overflows)
        and doubles_every_interval(trace, INTERVAL),
        f"{len(overflows)} of {len(trace)} steps skipped",
    )
    result.claim(
        "fp32 master weights lose fewer updates than fp16 weights, with either rate",
        plain[MASTER].lost < plain[SCALED].lost and slow[MASTER].lost < slow[SCALED].lost,
        f"{plain[MASTER].lost:.0%} compared with {plain[SCALED].lost:.0%}; "
        f"rate ÷ 100: {slow[MASTER].lost:.0%} compared with {slow[SCALED].lost:.0%}",
    )
    spread = max(row.tiny_accuracy for row in others) - min(row.tiny_accuracy for row in others)
    result.measured(
        "With the loss times 2e-5 each seed of fp16 alone is below every seed of the others, whose medians are within 1 point",
        by_name[FP16].tiny_highest < min(row.tiny_lowest for row in others) and spread <= 1,
        ", ".join(f"{row.recipe}: {row.tiny_accuracy:.1f} %" for row in rows),
        depends_on="the data and the seeds",
    )
    result.measured(
        "With a small rate master weights help further: in every seed the loss falls more with them than without",
        all(a > b for a, b in zip(slow[MASTER].loss_falls, slow[SCALED].loss_falls, strict=True)),
        ", ".join(f"{name}: {median(run.loss_falls):.4f}" for name, run in slow.items()),
        depends_on="the data and the seeds",
    )
    spread = max(row.accuracy for row in rows) - min(row.accuracy for row in rows)
    result.measured(
        "Without the factor this small network needs none of it: all five medians are within 1 point",
        spread <= 1,
        ", ".join(f"{row.recipe}: {row.accuracy:.1f} %" for row in rows),
        depends_on="the data and the seeds",
    )
    result.notes.append(
        "The factor 2e-5 is synthetic: a network this small does not underflow by itself. The rate is divided by it, so that "
        "fp32 training stays the same. Rate, batch and steps were chosen so that the loss of gradients shows in the accuracy. "
        "With batches of 32 at half the rate, fp16 alone did as well as fp32."
    )
    if params.data == "digits":
        result.notes.append(
            "quick: scikit-learn's digits. On MNIST: `hpml-lab data fetch mnist`, then `hpml-lab run loss-scaling --size full`."
        )
    return result
