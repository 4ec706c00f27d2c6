"""input-pipelines: what AlexNet's, ResNet-50's and SSD's steps cost a picture, and how many workers a GPU needs for them."""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import stacked_bars
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.timing.clock import SAMPLES
from hpml_lab.core.timing.laps import HAS_QUEUE
from hpml_lab.core.timing.noise import SpeedUp, speed_up_of
from hpml_lab.storage.tools.boxes import box_scene, bright_extent

# A step only computes, on one thread: the processor's clock, where it is fine enough, says what it takes of a core.
STEP_CLOCK = time.thread_time if HAS_QUEUE else CLOCK
QUICK = dict(pictures=12, rounds=SAMPLES, scenes=40)
FULL = dict(pictures=200, rounds=SAMPLES, scenes=400)
ALEXNET, RESNET, SSD = "AlexNet, 2012", "ResNet-50, 2015", "SSD, 2016"
AGAIN = " again"  # the placebo of each
BOXES = 7  # of a picture, about as many as in COCO
PIXEL = 1.5  # a resized edge lies between pixels
COLORS = {"decode": style.SKY, "crop": style.GREEN, "flip": style.PURPLE, "color": style.ORANGE, "paste": style.YELLOW}
# What training takes, pictures/s, and the cores of the server for each of its GPUs. Sources: Krizhevsky et al., 2012 (90 epochs
# of 1.2 million pictures in five to six days on two GPUs); NVIDIA DeepLearningExamples, ResNet50 v1.5 and SSD for PyTorch,
# one GPU, mixed precision; data sheets of DGX-1 (40 cores, 8 GPUs) and DGX A100 (128 cores, 8 GPUs).
V100, A100 = "V100, 2017", "A100, 2020"
WANTED = (
    (ALEXNET, "two GTX 580, 2010", 227.0, None),
    (RESNET, V100, 1200.0, 5),
    (RESNET, A100, 2470.0, 16),
    (SSD, V100, 323.0, 5),
    (SSD, A100, 724.0, 16),
)


@dataclass
class PictureStep(Row):
    """One step of a pipeline."""

    pipeline: str = column("pipeline")
    step: str = column("step")
    ms: float = column("a picture", "ms")
    share: float = column("share", "%")


@dataclass
class PipelineTime(Row):
    """A whole pipeline: time of a picture in one worker, against the pipeline before it."""

    pipeline: str = column("pipeline")
    steps: int = column("steps")
    ms: float = column("a picture", "ms")
    rate: float = column("one worker", "pictures/s")
    slower: float | None = column("times as long as the one before")
    interval: str | None = column("90 % interval")
    verdict: str | None = column("verdict")


@dataclass
class GpuDemand(Row):
    """What a GPU wants, and the workers of this machine that would give it that."""

    pipeline: str = column("pipeline")
    gpu: str = column("GPU")
    wanted: float = column("it trains", "pictures/s")
    workers: float = column("workers, as fast as this core")
    cores: int | None = column("cores for each GPU of its server")


def draw_input_pipelines(result: Result):
    """Left: milliseconds that one picture spends in each step of the three pipelines; the colors have one order in all bars,
    whatever the order of the steps. Right: how many workers as fast as this machine's core a GPU needs so that it never waits;
    the red mark is how many cores there are for each GPU of its server."""
    figure = style.new_figure(9.5, 3.6)
    left, right = figure.subplots(1, 2, width_ratios=(1.2, 1))
    names, steps = [row.pipeline for row in result.rows(PipelineTime)], result.rows(PictureStep)
    parts = {
        step: [sum(row.ms for row in steps if (row.pipeline, row.step) == (name, step)) for name in names] for step in COLORS
    }
    stacked_bars(left, [name.replace(", ", "\n") for name in names], parts, colors=list(COLORS.values()))
    left.set(xlabel="time of a picture in ms", title="One picture, one worker")
    left.legend(fontsize=8, loc="upper right")
    demands = result.rows(GpuDemand)
    names = [f"{row.pipeline.split(',')[0]}\n{row.gpu}" for row in demands]
    stacked_bars(right, names, {"workers needed": [row.workers for row in demands]}, colors=[style.BLUE])
    for index, row in enumerate(demands):
        if row.cores:
            label = "cores for a GPU" if index == 1 else None
            right.vlines(row.cores, index - 0.4, index + 0.4, color=style.RED, linewidth=3, label=label)
    right.tick_params(axis="y", labelsize=8)
    right.set(xlabel="workers", title="To keep one GPU busy")
    right.legend(fontsize=8)
    return figure


@experiment("input-pipelines", lecture="L1", notebook="09_storage", draw=draw_input_pipelines, quick=QUICK, full=FULL)
def input_pipelines(params: Params) -> Result:
    """Three input pipelines, step by step: what a picture costs, and how many workers keep a GPU busy."""
    with tempfile.TemporaryDirectory(prefix="hpml-pictures-") as folder:
        turns = _in_turns(_samples(Path(folder), params.pictures), params.rounds)
    seconds = {name: [sum(turn.values()) for turn in rounds] for name, rounds in turns.items()}
    growth = {
        later: speed_up_of(seconds[before], seconds[later], seconds[before + AGAIN])
        for before, later in ((ALEXNET, RESNET), (RESNET, SSD))
    }
    steps, times = [], []
    for name in (ALEXNET, RESNET, SSD):
        parts = {step: 1e3 * median(turn[step] for turn in turns[name]) for step in turns[name][0]}
        whole, grown = sum(parts.values()), growth.get(name)
        steps += [PictureStep(name, step, ms, 100 * ms / whole) for step, ms in parts.items()]
        compared = (grown.slowdown.ratio, grown.slowdown.interval, grown.verdict) if grown else (None, None, None)
        times.append(PipelineTime(name, len(parts), whole, 1e3 / whole, *compared))
    rates = {row.pipeline: row.rate for row in times}
    demands = [GpuDemand(name, gpu, wanted, wanted / rates[name], cores) for name, gpu, wanted, cores in WANTED]
    result = Result([Table("Pipelines", times), Table("Steps", steps), Table("What keeps a GPU busy", demands)])
    _claims(result, growth, steps, demands, box_gaps(params.scenes))
    result.notes.append("What the GPUs train comes from their vendor's tables and AlexNet's paper; only the pictures ran here.")
    return result


def _samples(folder: Path, count: int) -> dict[str, list[Any]]:
    """{pipeline: its samples}: the same photographs, 640 × 427 pixels (about 480p), and 256 × 256, as AlexNet's were stored."""
    from PIL import Image, ImageOps
    from sklearn.datasets import load_sample_image

    photographs = [load_sample_image(f"{name}.jpg") for name in ("china", "flower")]
    draw, whole, small, boxed = np.random.default_rng(0), [], [], []
    for number in range(count):
        picture = Image.fromarray(np.roll(photographs[number % 2], draw.integers(640), axis=1))
        whole.append(str(folder / f"{number:05}.jpg"))
        small.append(str(folder / f"{number:05}_256.jpg"))
        picture.save(whole[-1], quality=90)
        ImageOps.fit(picture, (256, 256)).save(small[-1], quality=90)
        corners = draw.uniform((0, 0), (440, 227), (BOXES, 2))
        boxes = np.hstack([corners, corners + draw.uniform(20, 200, (BOXES, 2))])
        boxed.append((whole[-1], torch.from_numpy(boxes).float()))
    return {ALEXNET: small, RESNET: whole, SSD: boxed}


def _in_turns(samples: dict[str, list[Any]], rounds: int) -> dict[str, list[dict[str, float]]]:
    """{pipeline: of each round the mean seconds of a picture by step}; in turns, the first two pipelines twice."""
    from hpml_lab.storage.lessons import three_pipelines  # with torchvision

    pipelines = {ALEXNET: three_pipelines.alexnet(), RESNET: three_pipelines.resnet(), SSD: three_pipelines.ssd()}
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in (*pipelines, ALEXNET + AGAIN, RESNET + AGAIN)}
    for number in range(rounds + 1):  # the first warms up
        for name, found in turns.items():
            steps = pipelines[name.removesuffix(AGAIN)]
            seconds = dict.fromkeys(steps, 0.0)
            for sample in samples[name.removesuffix(AGAIN)]:
                for step, change in steps.items():
                    start = STEP_CLOCK()
                    sample = change(sample)
                    seconds[step] += STEP_CLOCK() - start
            if number:
                found.append({step: total / len(samples[ALEXNET]) for step, total in seconds.items()})
    return turns


def box_gaps(scenes: int) -> list[float]:
    """Of each scene the largest distance in pixels of its rectangle from its box, after SSD's steps that move pixels."""
    from torchvision import tv_tensors
    from torchvision.transforms.v2 import functional

    from hpml_lab.storage.lessons import three_pipelines

    gaps = []
    for seed in range(scenes):
        image, box = box_scene(seed)
        sample = image, tv_tensors.BoundingBoxes(box, format="XYXY", canvas_size=tuple(image.shape[-2:]))
        sample = functional.to_pil_image(sample[0]), sample[1]
        torch.manual_seed(seed)
        for step, change in three_pipelines.ssd().items():
            sample = sample if step in ("decode", "color") else change(sample)
        gaps.append((bright_extent(functional.pil_to_tensor(sample[0])) - sample[1]).abs().max().item())
    return gaps


def _claims(
    result: Result, growth: dict[str, SpeedUp], steps: list[PictureStep], demands: list[GpuDemand], gaps: list[float]
) -> None:
    result.claim(
        "After SSD's paste, crop, resize and flip each rectangle fills its box, within 1.5 pixels",
        max(gaps) <= PIXEL,
        f"{len(gaps)} scenes",
    )
    result.measured(
        "The complexity of the I/O pipeline is increasing: each later pipeline takes longer for a picture than the one before",
        all(grown.slower for grown in growth.values()),
        "; ".join(f"{name}: {grown.slowdown_text}" for name, grown in growth.items()),
    )
    before, ms = ({row.step: row.ms for row in steps if row.pipeline == name} for name in (ALEXNET, RESNET))
    larger, more = ms["decode"] - before["decode"], ms["crop"] + ms["color"] - before["crop"]
    result.measured(
        "Resizing and color make ResNet-50's pipeline longer than AlexNet's by more than larger files do",
        more > larger,
        f"{more:.3g} ms and {larger:.3g} ms",
    )
    first, v100, a100, detection, _ = demands
    result.measured(
        "One worker keeps AlexNet's two GPUs of its time busy",
        first.workers <= 1,
        f"{first.workers:.2g} workers for {first.wanted:g} pictures/s",
    )
    result.measured(
        "A V100 needs more workers for SSD than for ResNet-50, though it trains fewer pictures a second",
        detection.workers > v100.workers,
        f"{detection.workers:.3g} and {v100.workers:.3g} workers",
    )
    result.key_figure("ResNet-50's picture over AlexNet's", growth[RESNET].slowdown.ratio, "×", lecture="“increasing”")
    result.key_figure("SSD's picture over ResNet-50's", growth[SSD].slowdown.ratio, "×", lecture="“increasing”")
    result.key_figure("workers for ResNet-50 on a V100", v100.workers)
    result.key_figure("workers for ResNet-50 on an A100", a100.workers)
