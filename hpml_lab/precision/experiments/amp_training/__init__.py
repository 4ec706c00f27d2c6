"""Automatic mixed precision: the fp32 loop and the AMP loop next to each other, their results, speed and memory."""

from dataclasses import dataclass
from statistics import mean, median

import torch

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.timing.clock import PLACEBO, SAMPLES, Timing
from hpml_lab.core.timing.noise import SpeedUp, speed_up, speed_up_of
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import band
from hpml_lab.data import load
from hpml_lab.data.dataset import DataSet
from hpml_lab.precision.lessons import loops
from hpml_lab.precision.tools.autocast import OperatorDtype, autocast_table
from hpml_lab.precision.views.code_columns import aligned
from hpml_lab.precision.experiments.amp_training.loop_measurements import (
    AMP_FP16,
    FP32,
    FP32_WITH_TF32,
    LOOPS,
    amp_switched_off_is_fp32,
    gradient_vector,
    memory_of_step,
    numbers_read,
    seeded_net,
    step_times,
    train_and_test,
)
from hpml_lab.precision.experiments.amp_training.old_spellings import OldSpelling, then_and_now
from hpml_lab.precision.experiments.underflow import LOSS_FACTOR, vanished_share

QUICK = dict(data="digits", seeds=3, epochs=3, batch=64, rate=0.1, channels=32, blocks=3, images=16, side=16, samples=SAMPLES)
FULL = dict(data="mnist", seeds=3, epochs=3, batch=128, rate=0.1, channels=128, blocks=6, images=128, side=32, samples=SAMPLES)
COLORS = (style.BLUE, style.ORANGE, style.GREEN)
POINTS = 60  # of a curve: single steps would hide the curves behind their noise


@dataclass
class LoopRow(Row):
    """One training loop: accuracy over the seeds, and speed and memory of one step."""

    loop: str = column("loop")
    accuracy: float = column("test accuracy, median", "%")
    lowest_accuracy: float = column("lowest", "%")
    highest_accuracy: float = column("highest", "%")
    last_loss: float = column("last loss, median")
    kept_mb: float = column("kept for backward", "MB")
    peak_mb: float = column("peak memory of a step", "MB")
    step_ms: float | None = column("step", "ms")
    gain: float | None = column("over fp32", "times", default=None)
    interval: str | None = column("90 % interval", default=None)
    verdict: str | None = column("verdict", default=None)


@dataclass
class GradientShares(Row):
    """Share of gradients that become zero with the loss times 2e-5."""

    fp16: float = column("fp16, no scaler")
    fp16_scaled: float = column("fp16, scale 65536")
    bf16: float = column("bf16, no scaler")


def gradient_shares(data: DataSet) -> GradientShares:
    """Which gradients vanish under autocast."""
    model, x, y = seeded_net(data), data.train_x[:128], data.train_y[:128]
    small = gradient_vector(model, x, y, None, LOSS_FACTOR)
    return GradientShares(
        fp16=vanished_share(small, gradient_vector(model, x, y, torch.float16, LOSS_FACTOR)),
        fp16_scaled=vanished_share(small, gradient_vector(model, x, y, torch.float16, LOSS_FACTOR * 2.0**16)),
        bf16=vanished_share(small, gradient_vector(model, x, y, torch.bfloat16, LOSS_FACTOR)),
    )


def over_default(times: dict[str, Timing], amp: str) -> SpeedUp:
    """The speed-up of an AMP loop over float32 by torch's default: with TF32 in convolutions where it was timed.

    Its placebo drifts from it as that of float32 does.
    """
    default = times[FP32_WITH_TF32 if FP32_WITH_TF32 in times else FP32].samples
    turns = zip(default, times[PLACEBO].samples, times[FP32].samples, strict=True)
    return speed_up_of(default, times[amp].samples, [seconds * again / first for seconds, again, first in turns])


def draw(result: Result):
    """Left: training loss of the fp32 loop and of both AMP loops, each point a mean of some steps: the median over the seeds
    with a band from lowest to highest. Right: bytes kept for the backward pass, peak memory and time of one step, relative to
    the fp32 loop. A loop that was not timed has no bar for time."""
    figure = style.new_figure(9, 3.8)
    losses, shares = figure.subplots(1, 2)
    for (name, runs), color, dash in zip(result.arrays["losses"].items(), COLORS, ("-", "--", ":"), strict=True):
        window = max(1, len(runs[0]) // POINTS)
        numbers = range(0, len(runs[0]), window)
        steps = [[mean(losses[first : first + window]) for losses in runs] for first in numbers]
        band(losses, numbers, steps, linestyle=dash, color=color, label=name)
    losses.set(xlabel="step", ylabel="training loss", title="Loss")
    losses.legend(fontsize=8)
    rows = result.rows(LoopRow)
    fp32 = rows[0]
    for index, (row, color) in enumerate(zip(rows, COLORS, strict=True)):
        values = [row.kept_mb / fp32.kept_mb, row.peak_mb / fp32.peak_mb]
        values += [row.step_ms / fp32.step_ms] if row.step_ms is not None else []
        positions = [group + 0.27 * (index - 1) for group in range(len(values))]
        bars = shares.bar(positions, values, 0.25, color=color, hatch=("", "//", "..")[index], edgecolor="white")
        shares.bar_label(bars, fmt="%.2f", fontsize=8)
    shares.set_xticks(range(3), ["kept for\nbackward, bytes", "peak memory\nof a step, bytes", "time\nof a step"])
    shares.set(ylabel="relative to the fp32 loop", title="Memory and time")
    shares.margins(y=0.15)
    shares.grid(axis="x", visible=False)
    shares.set_axisbelow(True)
    return figure


@experiment("amp-training", lecture="L1 L2", notebook="12_precision", draw=draw, quick=QUICK, full=FULL, uses=("cuda", "mnist"))
def amp_training(params: Params) -> Result:
    """Automatic mixed precision: the fp32 loop and the AMP loop next to each other."""
    device = params.device.torch
    data = load(params.data, device)
    times = step_times(params)
    gains = {name: speed_up(times, FP32, name) for name in times if name not in (FP32, PLACEBO)}
    rows, curves = [], {}
    for name, dtype in LOOPS.items():
        runs = [train_and_test(data, dtype, seed, params.batch, params.epochs, params.rate) for seed in range(params.seeds)]
        curves[name] = [losses for losses, _, _ in runs]
        accuracies = [accuracy for _, accuracy, _ in runs]
        kept, peak = memory_of_step(params, dtype)
        rows.append(
            LoopRow(
                loop=name,
                accuracy=median(accuracies),
                lowest_accuracy=min(accuracies),
                highest_accuracy=max(accuracies),
                last_loss=median(losses[-1] for losses in curves[name]),
                kept_mb=kept / 1e6,
                peak_mb=peak / 1e6,
                step_ms=1e3 * times[name].seconds if name in times else None,
                **(gains[name].columns if name in gains else {}),
            )
        )
    fp32, fp16, bf16 = rows
    shares = gradient_shares(data)
    low = params.device.dtype if params.device.dtype != torch.float32 else torch.bfloat16
    operators: list[OperatorDtype] = autocast_table(device, low)
    spellings: list[OldSpelling] = then_and_now()
    lines = aligned(loops.train_fp32, loops.train_amp)
    changed = [amp for plain, amp in lines if plain.strip() != amp.strip()]
    amp_gains = {name: gain for name, gain in gains.items() if name != FP32_WITH_TF32}
    fastest = max(amp_gains, key=lambda name: amp_gains[name].low, default=None)
    spread = max(row.accuracy for row in rows) - min(row.accuracy for row in rows)

    result = Result(
        [
            Table("Training loops", rows),
            Table("Share of gradients that become zero, loss × 2e-5", [shares]),
            Table("Operators under autocast", operators),
            Table("The lectures' spellings today", spellings),
        ],
        arrays={"losses": curves},
    )
    lecture = "2.3 to 4.9, seven workloads, five with a larger batch"
    default = over_default(times, fastest) if fastest else None
    result.key_figure("AMP over fp32", gains[fastest].ratio if fastest else None, unit="times", lecture=lecture)
    result.key_figure("AMP over torch's default, fp32 with TF32 in convolutions", default and default.ratio, unit="times")
    scaled = gains[AMP_FP16].ratio if AMP_FP16 in gains else None
    result.key_figure("the lecture's loop, fp16 and scaler, over fp32", scaled, unit="times", lecture=lecture)
    result.key_figure("kept for backward, AMP over fp32", fp16.kept_mb / fp32.kept_mb)
    result.key_figure("peak memory of a step, AMP over fp32", fp16.peak_mb / fp32.peak_mb)
    if FP32_WITH_TF32 in gains:
        result.key_figure("fp32 with TF32 over fp32", gains[FP32_WITH_TF32].ratio, unit="times")

    result.claim(
        "The AMP loop differs from the fp32 loop only in four lines; with autocast and scaler switched off it gives bitwise"
        " identical losses and weights",
        len(changed) == 4 and amp_switched_off_is_fp32(data, params.rate),
    )
    result.claim(
        "With either 16-bit dtype, autograd keeps at most 0.6 times the bytes for the backward pass",
        max(fp16.kept_mb, bf16.kept_mb) <= 0.6 * fp32.kept_mb,
        f"{fp16.kept_mb / fp32.kept_mb:.3f}",
    )
    result.claim(
        "With the loss times 2e-5, more than half of the gradients become zero in fp16 without a scaler, but fewer than a "
        "tenth with a scale of 65536, or in bf16 without one",
        shares.fp16 > 0.5 and max(shares.fp16_scaled, shares.bf16) < 0.1,
        f"{shares.fp16:.0%}; {shares.fp16_scaled:.1%} and {shares.bf16:.1%}",
    )
    reads = {name: numbers_read(data, params.rate, dtype) for name, dtype in LOOPS.items()}
    result.claim(
        "Python waits for the device once in each step with a scaler, to read whether a gradient overflowed, and never without",
        list(reads.values()) == [0, 5, 0],
        ", ".join(f"{name}: {count}" for name, count in reads.items()) + " in five steps",
    )
    result.measured(
        "All loops reach the same test accuracy, within 1 point", spread <= 1.0, f"{spread:.2f} points", depends_on="the seeds"
    )
    if fastest:
        figures = ", ".join(f"{name}: {gain}" for name, gain in gains.items())
        text = "AMP is faster than fp32"
        if FP32_WITH_TF32 in gains:
            text += ", and than torch's default, which uses TF32 in convolutions"
            figures += f"; than the default: {default}"
        result.measured(text, amp_gains[fastest].faster and default.faster, figures)
    else:
        reason = params.device.dtype_reason
        result.notes.append(f"No AMP loop was timed: {reason}. Its results are still correct, only slow.")
    if FP32_WITH_TF32 in gains:
        result.notes.append(
            "fp32 was timed without TF32, as in the lecture. torch's default is TF32 in cuDNN's convolutions, and none "
            "in matrix products."
        )
    if not params.device.is_cuda:
        result.notes.append(
            "No CUDA GPU here: the fp16 loop is not timed, because most CPUs have no fp16 arithmetic; run `hpml-lab run "
            "amp-training --size full` on a machine with one."
        )
    return result
