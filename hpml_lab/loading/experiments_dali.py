"""The experiment of notebook 08 on decoders: dali."""

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from hpml_lab.core import style
from hpml_lab.core.attempt import attempt
from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.result import Claim, Result
from hpml_lab.core.timeline import CLOCK
from hpml_lab.core.workers import allow_oversubscription, shutdown_workers
from hpml_lab.loading import boxes, video
from hpml_lab.loading import dali as graphs
from hpml_lab.loading.photographs import CLASSES, make_photographs
from hpml_lab.loading.png import from_png, to_png

NOTEBOOK = "08_loading"
PIL, TENSOR = "PIL, transforms on PIL", "decode_image, transforms on tensors"
DALI, MIXED = "DALI, CPU", "DALI, decoding on the GPU"
LEVELS_TENSOR, LEVELS_DALI = 2, 1  # of 255: the largest difference of any pixel; the mean difference of any picture


def pil_image(path: str) -> Any:
    """A file as PIL's RGB image."""
    from PIL import Image

    with Image.open(path) as file:
        return file.convert("RGB")


def tensor_image(path: str) -> torch.Tensor:
    """A file as uint8 (3, H, W), by torchvision's own decoder; deprecated since 0.29, whose users are sent to TorchCodec."""
    from torchvision.io import ImageReadMode, decode_image

    return decode_image(path, mode=ImageReadMode.RGB)


def training_set(folder: Path, decoder: Callable[[str], Any], side: int) -> Any:
    """The photographs with the transforms of a training: random crop resized to `side`, flip, normalise."""
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    steps = [
        v2.RandomResizedCrop(side, antialias=True),
        v2.RandomHorizontalFlip(),
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(graphs.MEAN, graphs.STD),
    ]
    return ImageFolder(str(folder), v2.Compose(steps), loader=decoder)


def epoch(batches: Iterable[tuple[torch.Tensor, torch.Tensor]], device: torch.device) -> tuple[float, list[int], tuple]:
    """Seconds until every batch of an epoch is on `device`, how many pictures of each class came, and a picture's shape."""
    counts = torch.zeros(len(CLASSES), dtype=torch.long)
    start = CLOCK()
    for images, labels in batches:
        images = images.to(device, non_blocking=True)
        counts += torch.bincount(labels.long().cpu(), minlength=len(CLASSES))
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return CLOCK() - start, counts.tolist(), tuple(images.shape[1:])


def resized(folder: Path, decoder: Callable[[str], Any], side: int) -> tuple[list[torch.Tensor], list[int]]:
    """Every photograph decoded and resized to `side` × `side`, uint8 (side, side, 3), with nothing random; and the labels."""
    from torchvision.datasets import ImageFolder
    from torchvision.transforms.v2 import functional

    pictures = ImageFolder(str(folder), loader=decoder)
    images = [functional.to_image(functional.resize(image, [side, side], antialias=True)) for image, _ in pictures]
    return [image.permute(1, 2, 0) for image in images], pictures.targets


def apart(a: list[torch.Tensor], b: list[torch.Tensor]) -> tuple[float, float]:
    """The largest difference of any pixel, and the largest mean difference of any picture, in levels of 255."""
    gaps = [(x.float() - y.float()).abs() for x, y in zip(a, b, strict=True)]
    return max(gap.max().item() for gap in gaps), max(gap.mean().item() for gap in gaps)


def blocks(gap: np.ndarray, size: int = 4) -> np.ndarray:
    """(H, W, 3) as (H / size, W / size): the largest value of each block; a lone pixel would be lost in a small figure."""
    height, width = (side // size for side in gap.shape[:2])
    return gap[: height * size, : width * size].reshape(height, size, width, size, -1).max(axis=(1, 3, 4))


def draw_dali(result: Result):
    """Left: photographs a second, one bar for each way to load them: decoder and transforms, with the number of workers or of
    threads; the dashed line is PIL without workers, and the number at each bar is how many times that rate it reaches. Right:
    one photograph, decoded and resized by each decoder with nothing random, and below it how far it is from PIL's picture:
    the largest difference in each block of 4 × 4 pixels."""
    bars = [row for row in result.rows if row["photographs/s"] != "–"]
    pictures = {name: from_png(text) for name, text in result.arrays["pictures"].items()}
    figure = style.new_figure(11.0, 4.8)
    left, right = figure.subfigures(1, 2, width_ratios=(1.25, 1.0))
    axes = left.subplots()
    looks = dict(zip((PIL, TENSOR, DALI, MIXED), zip(style.CYCLE, ("", "///", "...", "xxx"), strict=False), strict=True))
    names = [f"{row['pipeline']}\n{row['workers']}" for row in bars]
    for place, row in enumerate(bars):
        colour, hatch = looks[row["pipeline"]]
        axes.barh(place, row["photographs/s"], color=colour, hatch=hatch, edgecolor="white")
        axes.annotate(
            f"{row['of PIL, 0 workers']:.2f}×",
            (row["photographs/s"], place),
            (4, 0),
            va="center",
            fontsize=8,
            textcoords="offset points",
            bbox=dict(facecolor="white", edgecolor="none", pad=1),  # over the dashed line
        )
    axes.margins(x=0.12)
    axes.set_yticks(range(len(bars)), names, fontsize=8)
    axes.invert_yaxis()
    axes.axvline(bars[0]["photographs/s"], color=style.GREY, linestyle="--", linewidth=1)
    axes.set_xlabel("photographs a second")
    axes.set_ylabel("how they are loaded")
    axes.grid(axis="y", visible=False)
    axes.set_axisbelow(True)
    axes.set_title("Decode, crop, flip, normalise")
    panels = right.subplots(2, len(pictures), squeeze=False)
    base = next(iter(pictures.values())).astype(float)
    gaps = {name: blocks(np.abs(picture - base)) for name, picture in pictures.items()}
    most = max(gap.max() for gap in gaps.values()) or 1.0
    for column, (name, picture) in zip(panels.T, pictures.items(), strict=True):
        column[0].imshow(picture)
        column[0].set_title(name.split(",")[0], fontsize=9)
        drawn = column[1].imshow(gaps[name], vmin=0, vmax=most)
        column[1].set_title("difference to PIL", fontsize=9)
        for panel in column:
            panel.set_axis_off()
    right.colorbar(drawn, ax=panels[1, :].tolist(), location="bottom", label="largest difference, levels of 255", aspect=30)
    return figure


@experiment(
    "dali",
    lecture="L1",
    notebook=NOTEBOOK,
    draw=draw_dali,
    quick=dict(images=64, batch=16, side=224, rounds=2, workers=(0, 1, 2), threads=(1, 2), boxes=40, frames=60),
    full=dict(
        images=2048, batch=64, side=224, rounds=3, workers=(0, 2, 4, 8, 16), threads=(1, 2, 4, 8, 16), boxes=400, frames=250
    ),
    lecture_says={"best DALI over best native, times": "above 1 in each bar of its figure"},
    uses=("dali", "cuda"),
)
def dali(size: Size) -> Result:
    """JPEG pipelines: PIL, torchvision's decoder, and DALI, on the same photographs."""
    with tempfile.TemporaryDirectory(prefix="hpml-photographs-") as place:
        folder = make_photographs(Path(place) / "photographs", size.images)
        return _compare(size, folder)


def _compare(size: Size, folder: Path) -> Result:
    device = size.device.torch
    ways = _ways(size, folder)
    seconds: dict[tuple[str, str], list[float]] = {way: [] for way in ways}
    labels_seen, shapes = set(), set()
    try:
        with allow_oversubscription():
            for _ in range(size.rounds):
                for way, batches in ways.items():  # in turns
                    # The second of two epochs is timed: the first starts the workers, and takes what DALI, which never
                    # stops loading ahead, has laid ready meanwhile.
                    for _ in range(2):
                        took, counts, shape = epoch(batches, device)
                        labels_seen.add(tuple(counts))
                        shapes.add(shape)
                    seconds[way].append(took)
    finally:
        for batches in ways.values():
            shutdown_workers(getattr(batches, "_iterator", None))  # persistent workers hang on the loader
    rates = {way: size.images / median(times) for way, times in seconds.items()}
    base = rates[PIL, "0 workers"]
    rows = [
        {"pipeline": name, "workers": how, "photographs/s": rate, "of PIL, 0 workers": rate / base, "gives": "–"}
        for (name, how), rate in rates.items()
    ]

    from_pil, labels = resized(folder, pil_image, size.side)
    from_tensors, same_labels = resized(folder, tensor_image, size.side)
    pictures = {PIL: from_pil[0], TENSOR: from_tensors[0]}
    largest, _ = apart(from_pil, from_tensors)
    right_counts = tuple(labels.count(number) for number in range(len(CLASSES)))
    best = max(rate for (name, _), rate in rates.items() if name == TENSOR)
    best_pil = max(rate for (name, _), rate in rates.items() if name == PIL)
    claims = [
        Claim(
            "every way gives each photograph's label once an epoch, and pictures of one shape",
            labels_seen == {right_counts} and shapes == {(3, size.side, size.side)},
            f"{sorted(labels_seen)} of {len(labels)}",
        ),
        Claim(
            "decoding to a tensor and resizing there gives PIL's pictures and labels, no pixel more than 2 of 255 levels apart",
            largest <= LEVELS_TENSOR and labels == same_labels,
            f"{largest:.0f}",
        ),
        *boxes.claims(size.boxes),
        Claim("transforms on tensors load faster than on PIL images", best > best_pil, f"{best / best_pil:.2f}×", exact=False),
    ]
    quantities: dict[str, Any] = {"photographs/s, best of DataLoader": max(best, best_pil)}
    notes = [
        "The native way has PIL's or torchvision's decoder and transforms in a DataLoader.",
        "The lecture's ops.nvJPEGDecoder and ops.HostDecoder are today's fn.decoders.image.",
    ]
    if graphs.available():
        more, found = _dali_rows(size, folder, from_pil, labels)
        rows += more
        claims += found["claims"]
        pictures |= found["pictures"]
        best_dali = max(rate for (name, _), rate in rates.items() if name in (DALI, MIXED))
        quantities["best DALI over best native, times"] = best_dali / max(best, best_pil)
        quantities["photographs/s, best of DALI"] = best_dali
    else:
        notes.append(f"DALI is not installed here: its rows are left out. {graphs.MEND}")
    if video.available():
        claims.append(_video_claim(folder.parent / "numbered.mp4", size.frames))
    else:
        notes.append(f"PyAV is not installed here: the video reader is left out. {video.MEND}")
    if not size.device.is_cuda:
        notes.append("No CUDA GPU here: decoding there is left out; run `hpml-lab run dali --size full` on a machine with one.")
    return Result(rows, claims, quantities, notes, {"pictures": {name: to_png(picture) for name, picture in pictures.items()}})


def _video_claim(path: Path, frames: int) -> Claim:
    """That every clip read from a video begins at the frame that was asked for."""
    video.write_video(path, frames)
    starts = range(0, frames - 4, 7)
    found = [[video.number_in(frame) for frame in video.read_video(path, first, 4)] for first in starts]
    right = found == [list(range(first, first + 4)) for first in starts]
    return Claim("PyAV reads each clip from the very frame that was asked for", right, f"{len(found)} clips", exact=False)


def counted(word: str, number: int) -> str:
    """`number` with its word: 0 workers, 1 worker."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


@allow_oversubscription()  # a DataLoader warns when it is made
def _ways(size: Size, folder: Path) -> dict[tuple[str, str], Any]:
    """{(pipeline, workers): an iterable over an epoch's batches} for everything that this machine can run."""
    ways: dict[tuple[str, str], Any] = {}
    for name, decoder in ((PIL, pil_image), (TENSOR, tensor_image)):
        for workers in size.workers:
            ways[name, counted("worker", workers)] = DataLoader(
                training_set(folder, decoder, size.side),
                size.batch,
                shuffle=True,
                num_workers=workers,
                persistent_workers=workers > 0,
                pin_memory=size.device.is_cuda,
                timeout=60 if workers else 0,
            )
    if graphs.available():
        for gpu in _gpus(size):
            for threads in size.threads:
                pipeline = graphs.training_pipeline(folder, size.batch, size.side, threads, gpu=gpu)
                ways[DALI if gpu is None else MIXED, counted("thread", threads)] = graphs.Batches(pipeline)
    return ways


def _gpus(size: Size) -> tuple[int | None, ...]:
    """Where DALI's pipelines run: on the CPU (None), and on the GPU where the experiment does."""
    return (None, size.device.torch.index or 0) if size.device.is_cuda else (None,)


def _dali_rows(size: Size, folder: Path, from_pil: list[torch.Tensor], labels: list[int]) -> tuple[list[dict], dict[str, Any]]:
    """What DALI's plain pipeline gives beside PIL, its boxes, and the lecture's operators that are gone."""
    from nvidia.dali import ops

    shown, same = {}, []
    for gpu in _gpus(size):
        name, pictures, given = DALI if gpu is None else MIXED, [], []
        for images, numbers in graphs.Batches(graphs.plain_pipeline(folder, size.batch, size.side, threads=1, gpu=gpu)):
            pictures += list(images.cpu())
            given += numbers.tolist()
        largest, mean = apart(from_pil, pictures)
        shown[name] = pictures[0]
        same.append(
            Claim(
                f"{name}: PIL's labels in order, and pictures within 1 level of 255 on average",
                given == labels and mean <= LEVELS_DALI,
                f"mean {mean:.2f}, largest {largest:.0f}",
                exact=False,  # exact where DALI is; but the list of exact claims is the same on every machine
            )
        )
    blank = {"workers": "–", "photographs/s": "–", "of PIL, 0 workers": "–"}
    gone = {"nvJPEGDecoder": attempt(lambda: ops.nvJPEGDecoder), "HostDecoder": attempt(lambda: ops.HostDecoder)}
    rows = [{"pipeline": f"ops.{name}", **blank, "gives": told} for name, told in gone.items()]
    claims = [
        *same,
        Claim("the lecture's operators are gone from DALI", all("AttributeError" in row["gives"] for row in rows), exact=False),
        boxes.dali_claim(size.boxes),
    ]
    return rows, {"claims": claims, "pictures": shown}
