"""dali: the same photographs by PIL, by torchvision's decoder and by DALI; and boxes and videos that are read correctly."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from statistics import median

import numpy as np
import torch

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.timing.clock import SAMPLES
from hpml_lab.core.timing.noise import speed_up_of
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import horizontal_bars
from hpml_lab.core.show.picture import picture
from hpml_lab.core.show.png import encode_png, pixels_of, png_text
from hpml_lab.core.system.attempt import attempt
from hpml_lab.core.system.workers import allow_oversubscription, shutdown_workers
from hpml_lab.storage.lessons import dali_pipelines
from hpml_lab.storage.tools import boxes
from hpml_lab.storage.tools.boxes import HEIGHT, WIDTH, box_scene, bright_extent
from hpml_lab.storage.experiments.dali import video
from hpml_lab.storage.lessons.decoders import pil_image, resized, tensor_image
from hpml_lab.storage.experiments.dali.photographs import (
    AGAIN,
    DALI,
    MIXED,
    PIL,
    TENSOR,
    epoch_to_device,
    gpus_of,
    loading_ways,
)
from hpml_lab.storage.experiments.dali.photographs import make_photographs

NOTEBOOK = "09_storage"
PIXEL = 2.5  # DALI's canvas and window lie between pixels: each may round an edge by one, and half a pixel is not yet an edge
CLIP, STEP = 4, 7  # frames of a clip, and from the start of one to the next
LEVELS_DRAWN = 16  # a level or two of 255 is not to be seen in a picture, and not on this scale either
LEVELS_TENSOR, LEVELS_DALI = 2, 1  # of 255: the largest difference of any pixel; the mean difference of any picture
# At full an epoch takes seconds, and there are up to fifteen ways: fewer rounds than a shorter sample has.
QUICK = dict(images=32, batch=16, side=224, rounds=SAMPLES, workers=(0, 1, 2), threads=(1, 2), boxes=40, frames=60)
FULL = dict(
    images=1024, batch=64, side=224, rounds=5, workers=(0, 2, 4, 8, 16), threads=(1, 2, 4, 8, 16), boxes=400, frames=250
)


@dataclass
class LoadingRate(Row):
    """One way to load the photographs."""

    pipeline: str = column("pipeline")
    workers: str = column("workers or threads")
    rate: float = column("photographs/s")
    relative: float = column("speed-up over PIL without workers")
    interval: str = column("90 % interval")
    verdict: str = column("verdict")


@dataclass
class FormerOperator(Row):
    """An operator of the lecture that DALI no longer has."""

    operator: str = column("the lecture's operator")
    error: str = column("today")


def draw_dali(result: Result):
    """Photographs a second, the number at each bar, for each way to load them: decoder and transforms, with the number of
    workers or threads. The dashed line is PIL without workers; the table has the speed-ups over it, taken in turns."""
    rows = result.rows(LoadingRate)
    figure = style.new_figure(8.0, 1.2 + 0.45 * len(rows))
    axes = figure.subplots()
    looks = dict(zip((PIL, TENSOR, DALI, MIXED), zip(style.CYCLE, ("", "///", "...", "xxx"), strict=False), strict=True))
    names = [f"{row.pipeline}\n{row.workers}" for row in rows]
    colors, hatches = zip(*(looks[row.pipeline] for row in rows), strict=True)
    horizontal_bars(axes, names, [row.rate for row in rows], labels="{:.0f}", color=colors, hatch=hatches)
    axes.tick_params(axis="y", labelsize=8)
    axes.axvline(rows[0].rate, color=style.GREY, linestyle="--", linewidth=1)
    axes.set(xlabel="photographs a second", ylabel="how they are loaded", title="Decode, crop, flip, normalize")
    return figure


@picture
def decoded_pictures(result: Result):
    """One photograph, decoded and resized by each decoder with nothing random, and below it its distance from PIL's picture:
    the largest difference in each block of 4 × 4 pixels, on one scale from 0 to 16 of 255 levels."""
    pictures = {name: pixels_of(text) for name, text in result.arrays["pictures"].items()}
    base = pictures[PIL].astype(float)
    gaps = {name: block_maxima(np.abs(pixels - base)) for name, pixels in pictures.items()}
    largest = max(LEVELS_DRAWN, *(gap.max() for gap in gaps.values()))
    figure = style.new_figure(2.0 + 2.2 * len(pictures), 4.8)
    panels = figure.subplots(2, len(pictures), squeeze=False)
    for (above, below), (name, pixels) in zip(panels.T, pictures.items(), strict=True):
        above.imshow(pixels)
        above.set_title(name.split(",")[0], fontsize=9)
        drawn = below.imshow(gaps[name], vmin=0, vmax=largest)
        below.set_title(f"at most {gaps[name].max():.0f} from PIL" if name != PIL else "PIL itself: 0", fontsize=9)
        for axes in (above, below):
            axes.set_axis_off()
    figure.colorbar(drawn, ax=panels[1, :].tolist(), location="bottom", label="largest difference, levels of 255", aspect=30)
    return figure


@experiment("dali", lecture="L1", notebook=NOTEBOOK, draw=draw_dali, quick=QUICK, full=FULL, uses=("dali", "cuda"))
def dali(params: Params) -> Result:
    """JPEG pipelines: PIL, torchvision's decoder, and DALI, on the same photographs."""
    with tempfile.TemporaryDirectory(prefix="hpml-photographs-") as temporary:
        folder = make_photographs(Path(temporary) / "photographs", params.images)
        return _compare(params, folder)


def _timed(params: Params, folder: Path) -> dict[tuple[str, str], list[float]]:
    """Seconds of an epoch of each way, round by round."""
    ways = loading_ways(params, folder)
    seconds: dict[tuple[str, str], list[float]] = {way: [] for way in ways}
    try:
        with allow_oversubscription():
            for turn in range(1 + params.rounds):
                for way, batches in ways.items():
                    # The first turn starts the workers. DALI never stops loading ahead: of two epochs in a row, the first
                    # takes what was ready by then.
                    for _ in range(2 if way[0] in (DALI, MIXED) else 1):
                        took = epoch_to_device(batches, params.device.torch)
                    if turn:
                        seconds[way].append(took)
    finally:
        for batches in ways.values():
            shutdown_workers(getattr(batches, "_iterator", None))  # persistent workers belong to the loader
    return seconds


def _compare(params: Params, folder: Path) -> Result:
    seconds = _timed(params, folder)
    again = seconds.pop(AGAIN)
    gains = {way: speed_up_of(seconds[PIL, "0 workers"], times, again) for way, times in seconds.items()}
    rates = {way: params.images / median(times) for way, times in seconds.items()}
    rows = [LoadingRate(*way, rates[way], gain.ratio, gain.interval, gain.verdict) for way, gain in gains.items()]
    result = Result([Table("Photographs a second", rows)])
    by_pil, labels = resized(folder, pil_image, params.side)
    by_tensor, same_labels = resized(folder, tensor_image, params.side)
    pictures = {PIL: by_pil[0], TENSOR: by_tensor[0]}
    largest, _ = picture_difference(by_pil, by_tensor)
    fastest = {
        name: max(rate for (pipeline, _), rate in rates.items() if pipeline == name) for name in {way[0] for way in rates}
    }
    native = max(fastest[PIL], fastest[TENSOR])
    result.key_figure("best DataLoader", native, "photographs/s")
    result.claim(
        "Decoding to a tensor and resizing there gives PIL's pictures and labels, every pixel within 2 of 255 levels",
        largest <= LEVELS_TENSOR and labels == same_labels,
        f"{largest:.0f}",
    )
    gaps = flip_gaps(params.boxes)
    result.claim(
        "After a random crop and flip by torchvision, each rectangle fills its box to the pixel",
        max(gaps) == 0,
        f"{len(gaps)} scenes, largest gap {max(gaps):g} pixels",
    )
    tensors = gains[TENSOR, "0 workers"]
    result.measured("Without workers, transforms on tensors load faster than on PIL images", tensors.faster, str(tensors))
    result.notes += [
        "The native way has PIL's or torchvision's decoder and transforms in a DataLoader.",
        "The lecture's ops.nvJPEGDecoder and ops.HostDecoder are today's fn.decoders.image.",
    ]
    if dali_pipelines.available():
        best = max(fastest[name] for name in (DALI, MIXED) if name in fastest)
        _add_dali(result, params, folder, by_pil, labels, pictures)
        result.key_figure("best DALI", best, "photographs/s")
    else:
        best = None
        result.notes.append(f"DALI is not installed here: its rows are left out. {dali_pipelines.FIX}")
    ratio = None if best is None else best / native
    result.key_figure("best DALI over best DataLoader", ratio, "ratio", lecture="above 1 in each bar of its figure")
    _check_video(result, folder.parent / "numbered.mp4", params)
    if not params.device.is_cuda:
        result.notes.append(
            "No CUDA GPU here: the mixed pipeline and DALI's video reader, which decode on a GPU, are left out; "
            "run `hpml-lab run dali --size full` on a machine with one."
        )
    result.arrays["pictures"] = {name: png_text(pixels.numpy()) for name, pixels in pictures.items()}
    return result


def _check_video(result: Result, path: Path, params: Params) -> None:
    """That every clip read from a video begins at the frame that was asked for, by PyAV and, on a GPU, by DALI."""
    by_dali = dali_pipelines.available() and params.device.is_cuda
    if not video.available():
        left = (
            "the video readers are left out, DALI's too: PyAV writes their file" if by_dali else "the video reader is left out"
        )
        result.notes.append(f"PyAV is not installed here: {left}. {video.FIX}")
        return
    video.write_video(path, [video.numbered(number) for number in range(params.frames)])
    starts = range(0, params.frames - CLIP + 1, STEP)
    expected = [list(range(first, first + CLIP)) for first in starts]
    found = {"PyAV": [_numbers(video.read_video(path, first, CLIP)) for first in starts]}
    if by_dali:
        clips = dali_pipelines.clips_by_dali(path, CLIP, params.device.torch.index or 0, step=STEP)
        found["DALI on the GPU"] = [_numbers(clip) for clip in clips]
    result.measured(
        "Each clip of a video begins at exactly the frame that was asked for",
        all(numbers == expected for numbers in found.values()),
        f"{len(expected)} clips by {' and by '.join(found)}",
    )


def _numbers(clip: torch.Tensor) -> list[int]:
    return [video.number_in(frame) for frame in clip]


# DALI's claims are exact where it is installed; but the list of exact claims has to be the same on every machine.
def _add_dali(
    result: Result,
    params: Params,
    folder: Path,
    by_pil: list[torch.Tensor],
    labels: list[int],
    pictures: dict[str, torch.Tensor],
) -> None:
    """Compare DALI's plain pipeline with PIL, add its boxes, and the lecture's operators that no longer exist."""
    from nvidia.dali import ops

    means, sound = {}, True
    for gpu in gpus_of(params):
        name, images, given = DALI if gpu is None else MIXED, [], []
        pipeline = dali_pipelines.plain_pipeline(folder, params.batch, params.side, threads=1, gpu=gpu)
        for batch, numbers in dali_pipelines.DaliBatches(pipeline):
            images += list(batch.cpu())
            given += numbers.tolist()
        _, means[name] = picture_difference(by_pil, images)
        sound &= given == labels
        pictures[name] = images[0]
    result.measured(
        "DALI gives PIL's labels in order, and pictures within 1 level of 255 on average",
        sound and max(means.values()) <= LEVELS_DALI,
        ", ".join(f"{name}: mean {mean:.2f}" for name, mean in means.items()),
    )
    rows = [
        FormerOperator("ops.nvJPEGDecoder", attempt(lambda: ops.nvJPEGDecoder)),
        FormerOperator("ops.HostDecoder", attempt(lambda: ops.HostDecoder)),
    ]
    result.tables.append(Table("The lecture's operators", rows))
    gaps = dali_gaps(params.boxes)
    result.measured(
        "After DALI's paste, crop and flip, each rectangle fills its box",
        max(gaps) <= PIXEL,
        f"{len(gaps)} crops, largest gap {max(gaps):.2f} pixels",
    )


def picture_difference(a: list[torch.Tensor], b: list[torch.Tensor]) -> tuple[float, float]:
    """The largest difference of any pixel, and the largest mean difference of any picture, in levels of 255."""
    gaps = [(x.float() - y.float()).abs() for x, y in zip(a, b, strict=True)]
    return max(gap.max().item() for gap in gaps), max(gap.mean().item() for gap in gaps)


def block_maxima(gap: np.ndarray, size: int = 4) -> np.ndarray:
    """(H, W, 3) as (H / size, W / size): the largest value of each block; a single pixel would be lost in a small figure."""
    height, width = (side // size for side in gap.shape[:2])
    return gap[: height * size, : width * size].reshape(height, size, width, size, -1).max(axis=(1, 3, 4))


def flip_gaps(scenes: int) -> list[float]:
    """Largest distance in pixels of a rectangle from its box, of each scene, moved together."""
    gaps = []
    for seed in range(scenes):
        image, box = box_scene(seed)
        torch.manual_seed(seed)
        moved, box = boxes.move_together(image, box)
        gaps.append((bright_extent(moved) - box).abs().max().item())
    return gaps


def dali_gaps(crops: int) -> list[float]:
    """The same distances after DALI's paste, random_bbox_crop and flip."""
    image, box = box_scene(0)
    png = encode_png(image.permute(1, 2, 0).numpy())
    parts = box / torch.tensor([WIDTH, HEIGHT, WIDTH, HEIGHT])
    pipeline: Any = dali_pipelines.boxed_pipeline(png, parts, torch.tensor([1]), crops)
    pipeline.build()
    images, moved, _ = pipeline.run()
    gaps = []
    for number in range(crops):
        picture = torch.from_numpy(images.at(number)).permute(2, 0, 1)
        height, width = picture.shape[-2:]
        given = torch.from_numpy(moved.at(number)) * torch.tensor([width, height, width, height])
        gaps.append((bright_extent(picture) - given).abs().max().item())
    return gaps
