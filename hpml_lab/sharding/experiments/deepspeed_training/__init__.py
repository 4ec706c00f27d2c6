"""deepspeed-training: the lecture's JSON and loop, what they really train, and the settings that make them the plain loop."""

import importlib.util
import tempfile
from dataclasses import dataclass
from math import log

from matplotlib.ticker import MaxNLocator

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.sharding.tools.deepspeed_config import LECTURE_JSON, Hyperparameters, changed, meaning_of
from hpml_lab.sharding.experiments.deepspeed_training.on_ranks import (
    Trained,
    deepspeed_runs,
    first_gradient,
    pixels_and_labels,
    plain_run,
)
from hpml_lab.core.system.placement import placement
from hpml_lab.core.system.launcher import launch

NOTEBOOK = "14_sharding"
QUICK = dict(ranks=2, steps=20)
FULL = dict(ranks=4, steps=200)

# torch_adam takes torch's optimizer for FusedAdam, which DeepSpeed would compile; it computes the same.
AS_GIVEN = changed(LECTURE_JSON, optimizer={"params": {"torch_adam": True}})
NO_CLIPPING, L2 = {"gradient_clipping": 0.0}, {"optimizer": {"params": {"adam_w_mode": False}}}
CORRECTED = changed(AS_GIVEN, **NO_CLIPPING, **L2)
BUCKET = 100_000  # elements, for a network of 2,410 parameters
GIVEN = "the lecture's JSON as it is"
CORRECTED_STAGES = {
    f"corrected, ZeRO stage {stage}": changed(CORRECTED, zero_optimization={"stage": stage, "reduce_bucket_size": BUCKET})
    for stage in range(4)
}
PLAIN_STAGE = next(iter(CORRECTED_STAGES))
LEFT_IN = {
    GIVEN: AS_GIVEN,
    "corrected, but clipped": changed(AS_GIVEN, **L2),
    "corrected, but AdamW": changed(AS_GIVEN, **NO_CLIPPING),
}
FORMATS = {name: changed(CORRECTED_STAGES["corrected, ZeRO stage 1"], **{name: {"enabled": True}}) for name in ("bf16", "fp16")}
LINEAR, ON_TIME = "corrected; plain loop with linear warm-up", "corrected; plain loop without the late start"
ONE_STEP = {"train_batch_size": 4, "optimizer": {"type": "SGD", "params": {"lr": 1.0}}}


@dataclass
class RunOfJson(Row):
    """One JSON, trained by DeepSpeed, against the plain loop."""

    json: str = column("JSON")
    first_rates: str = column("plain loop's first rates")
    largest: float = column("largest difference of a weight")
    distance: float = column("distance from the plain loop's weights", "% of its way")
    never_lit: float = column("move of weights whose pixel is always 0, at most")


@dataclass
class FormatOfJson(Row):
    """The corrected JSON with a number format, against the plain loop without the skipped steps."""

    name: str = column("format")
    scales: str = column("DeepSpeed's loss scale, step by step")
    skipped: str = column("steps that it skips")
    distance: float = column("distance from the plain loop's weights", "% of its way")


@dataclass
class Trap(Row):
    """What one reads in the lecture's JSON, and what DeepSpeed does."""

    setting: str = column("setting")
    expected: str = column("one expects")
    does: str = column("DeepSpeed does")
    remedy: str = column("what to write")


def draw(result: Result):
    """Left: the rate of each step with the lecture's WarmupLR, and a linear warm-up to the same rate. Right: how far the
    weights are from the plain loop's after each step, as a fraction of its way: with one setting uncorrected or one change of
    the plain loop (solid), with the lecture's JSON as it is (dashed, on the line of AdamW), and with the corrected JSON in four
    ZeRO stages (green, on one line), in the gray band of rounding errors."""
    if not result.tables:
        return None
    figure = style.new_figure(10, 4.2)
    rates, apart = figure.subplots(1, 2, width_ratios=(1, 1.35))
    steps = range(1, 1201)
    rates.plot(
        steps, [meaning_of(LECTURE_JSON).rate(step) for step in range(1200)], color=style.ORANGE, label="WarmupLR, as given"
    )
    rates.plot(steps, [min(step / 1000, 1) / 1000 for step in steps], "--", color=style.BLUE, label="linear")
    rates.plot((1, 2), (0, 0), "o", color=style.RED, clip_on=False, zorder=5, label="two steps with rate 0")
    rates.set(xscale="log", xlabel="step", ylabel="learning rate", title="Rates of the warm-up", ylim=(0, None))
    rates.legend(loc="upper left")
    looks = zip((style.INK, style.ORANGE, style.RED, style.BLUE, style.PURPLE), ("*", *style.MARKERS), strict=False)
    every = max(1, len(result.arrays["distances"][GIVEN]) // 8)
    for (name, values), (color, marker) in zip(
        ((name, values) for name, values in result.arrays["distances"].items() if name not in CORRECTED_STAGES),
        looks,
        strict=True,
    ):
        shown = [(step, value) for step, value in enumerate(values, start=1) if value > 0]
        line = "--" if name == GIVEN else "-"  # it nearly covers another
        apart.plot(
            *zip(*shown, strict=True), line, marker=marker, markevery=every, color=color, label=name, zorder=3 + (name == GIVEN)
        )
    for number, name in enumerate(CORRECTED_STAGES):
        values = [max(value, 1e-8) for value in result.arrays["distances"][name]]
        label = "corrected, ZeRO stages 0 to 3" if number == 0 else None
        apart.plot(range(1, len(values) + 1), values, style.LINES[number], color=style.GREEN, label=label)
    apart.axhspan(1e-8, 1e-5, color=style.GREY, alpha=0.2)
    apart.set(yscale="log", xlabel="step", ylabel="distance from the plain loop\nfraction of its way", ylim=(1e-8, 3))
    apart.set_title("Weights, compared with the plain loop")
    apart.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(*apart.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=9)
    return figure


@experiment(
    "deepspeed-training", lecture="L3", notebook=NOTEBOOK, draw=draw, quick=QUICK, full=FULL, uses=("deepspeed", "two-gpus")
)
def deepspeed_training(params: Params) -> Result:
    """The lecture's DeepSpeed JSON and loop: what they really train, and what makes them train like the plain loop."""
    result = Result()
    if importlib.util.find_spec("deepspeed") is None:
        result.key_figure(f"distance, {GIVEN}", unit="% of the way")
        result.notes.append("DeepSpeed is not installed here, so nothing was run. pip install deepspeed")
        return result
    placed = placement(params.ranks, params.device, all_gpus=params.size == "full", power_of_two=True)
    ranks = min(placed.ranks, LECTURE_JSON["train_batch_size"])  # a sample at least for each
    result.notes = [placed.note] if placed.note else []

    asked = meaning_of(CORRECTED, ranks)
    # Before the launch, so that forked ranks inherit what the data and the first optimizer import.
    plain = plain_run([asked.rate(step) for step in range(params.steps)], asked)
    linear = plain_run([step / 1e6 for step in range(1, params.steps + 1)], asked)
    on_time = plain_run([asked.rate(step + 1) for step in range(params.steps)], asked)
    configs = {name: (config, params.steps) for name, config in (CORRECTED_STAGES | LEFT_IN | FORMATS).items()}
    configs["clipped"], configs["not clipped"] = (ONE_STEP, 1), (changed(ONE_STEP, **NO_CLIPPING), 1)
    default = changed(CORRECTED, zero_optimization={"stage": 3})
    with tempfile.TemporaryDirectory(prefix="hpml-deepspeed-") as folder:
        answers = launch(
            deepspeed_runs, folder, placed.device, configs, default, ranks=ranks, device=placed.device, deadline_seconds=600
        )
    runs, buffers = answers[0]

    compared = {name: (runs[name], plain) for name in CORRECTED_STAGES | LEFT_IN}
    base = runs[PLAIN_STAGE]
    compared |= {LINEAR: (base, linear), ON_TIME: (base, on_time)}
    way = plain.moved.norm().item()
    apart = result.arrays["distances"] = {name: run.distances(to, way) for name, (run, to) in compared.items()}
    rows = {name: _row(name, run, to, apart[name][-1]) for name, (run, to) in compared.items()}
    gradient = first_gradient(ONE_STEP["train_batch_size"])
    steps = {name: -runs[name].moved / runs[name].rates[0] for name in ("clipped", "not clipped")}
    result.tables = [
        Table("The same loop, trained by DeepSpeed", list(rows.values())),
        Table("The same JSON in 16 bits", [_format_row(name, runs[name], asked) for name in FORMATS]),
        Table("The traps of the lecture's JSON", _traps(gradient.norm().item(), rows, base, buffers)),
    ]
    for name, row in rows.items():
        result.key_figure(f"distance, {name}", row.distance, unit="% of the way")
    for row in result.rows(FormatOfJson):
        result.key_figure(f"distance, corrected, {row.name}", row.distance, unit="% of the way")

    stages = [rows[name] for name in CORRECTED_STAGES]
    result.claim(
        "Asked for the same, DeepSpeed trains the plain loop's weights, in each ZeRO stage from 0 to 3",
        max(row.distance for row in stages) < 0.1,
        f"at most {max(row.distance for row in stages):.1g} % of the way, {max(row.largest for row in stages):.1g} in a weight",
    )
    result.claim(
        "Two defaults that the JSON does not show: the gradient is scaled down to norm 1 (with gradient_clipping 0 it stays as "
        "it is), and stage 3 asks for one buffer of 2 GB, for a network of 2,410 parameters",
        buffers == [2_000_000_000]
        and len(gradient) == 2410
        and gradient.norm() > 1
        and abs(steps["clipped"].norm() - 1) < 1e-3
        and (steps["not clipped"] - gradient).norm() < 1e-4 * gradient.norm(),
        f"norm {gradient.norm():.3g} → {steps['clipped'].norm():.4g}",
    )
    result.claim(
        "“Adam” is AdamW: a weight decay of 3e-7 does not move a weight whose pixel is always 0. With adam_w_mode false it "
        "does, by up to the rate a step: Adam divides the decay by its own size",
        rows["corrected, but AdamW"].never_lit == 0 and 0.1 * sum(base.rates) < rows[PLAIN_STAGE].never_lit <= sum(base.rates),
        f"{rows[PLAIN_STAGE].never_lit:.2g} of {sum(base.rates):.2g}",
    )
    late = [0.0, 0.0, *(0.001 * log(step) / log(1000) for step in range(2, params.steps))]
    result.claim(
        "WarmupLR is logarithmic, and its first two steps have rate 0",
        all(abs(rate - right) < 1e-12 for rate, right in zip(base.rates, late, strict=True)),
        _shown(base.rates),
    )
    scaled, unscaled = runs["fp16"], runs["bf16"]
    result.claim(
        "In fp16 the loss scale begins at 65,536; a step whose gradients overflow is skipped, and from the second one on each "
        "halves the scale. In bf16 the scale is 1, and no step is skipped",
        any(scaled.skipped)
        and scaled.scales == _by_hysteresis(scaled.skipped)
        and set(unscaled.scales) == {1.0}
        and not any(unscaled.skipped),
        f"fp16 skips {sum(scaled.skipped)} of {params.steps} steps, down to {scaled.scales[-1]:,g}",
    )
    result.measured(
        "The lecture's JSON trains something else: it ends more than a tenth of the way from the plain loop",
        rows[GIVEN].distance > 10,
        f"{rows[GIVEN].distance:.3g} % of the way",
        depends_on="network and data",
    )
    return result


def _row(name: str, run: Trained, plain: Trained, distance: float) -> RunOfJson:
    dark = pixels_and_labels()[0].abs().sum(0) == 0
    first_layer = run.moved[: 64 * 32].view(32, 64)
    return RunOfJson(
        json=name,
        first_rates=_shown(plain.rates),
        largest=(run.weights[-1] - plain.weights[-1]).abs().max().item(),
        distance=100 * distance,
        never_lit=first_layer[:, dark].abs().max().item(),
    )


def _format_row(name: str, run: Trained, asked: Hyperparameters) -> FormatOfJson:
    """The plain loop skips the same steps; a skipped step does not advance the schedule either."""
    rates = [None if skipped else asked.rate(step - sum(run.skipped[:step])) for step, skipped in enumerate(run.skipped)]
    plain = plain_run(rates, asked)
    runs = [f"{scale:,g}" for i, scale in enumerate(run.scales) if i == 0 or scale != run.scales[i - 1]]
    lost = ", ".join(str(step) for step, skipped in enumerate(run.skipped) if skipped) or "–"
    return FormatOfJson(name, " → ".join(runs), lost, 100 * run.distances(plain, plain.moved.norm().item())[-1])


def _by_hysteresis(skipped: list[bool]) -> list[float]:
    """The loss scale in each step by DeepSpeed's rule, without the doubling after 1,000 steps in a row."""
    return [2.0 ** (16 - max(0, sum(skipped[:step]) - 1)) for step in range(len(skipped))]


def _shown(rates: list[float]) -> str:
    return ", ".join(f"{rate:.3g}" for rate in rates[:4])


def _traps(norm: float, rows: dict[str, RunOfJson], base: Trained, buffers: list[int]) -> list[Trap]:
    return [
        Trap("no gradient_clipping", f"the gradient, of norm {norm:.3g}", "scales it to norm 1", '"gradient_clipping": 0.0'),
        Trap('"type": "Adam"', "weight decay in the gradient (L2)", "decouples it (AdamW)", '"adam_w_mode": false'),
        Trap(
            '"WarmupLR"',
            "a linear warm-up",
            f"a logarithmic one, from {base.rates[0]:g} and {base.rates[1]:g}",
            '"warmup_type": "linear"; the second 0 stays',
        ),
        Trap(
            '"stage": 3',
            "buffers as large as the network",
            f"asks for {sum(buffers) / 1e9:g} GB",
            '"reduce_bucket_size": elements that fit',
        ),
    ]
