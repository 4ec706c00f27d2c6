"""face-landmarks: a Dataset over a CSV and an image folder, with transforms that move image and landmarks together."""

import csv
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.png import pixels_of, png_text
from hpml_lab.loading.experiments.face_landmarks import faces
from hpml_lab.core.system.attempt import attempt

NOTEBOOK = "08_loading"
FACES = 4  # drawn
QUICK = dict(count=24, batch=8, side=96)
FULL = dict(count=800, batch=32, side=224)
EDGE = 6  # pixels: a blob that the edge cuts has its center elsewhere


@dataclass
class MovedPoints(Row):
    """How far the image's dots are from the key points after one transform."""

    transform: str = column("transform")
    sizes: str = column("image before → after", "px")
    together: float = column("dot to key point, moved together", "px")
    image_alone: float = column("image moved alone", "px")


@dataclass
class DamagedRow(Row):
    """A row or file that was damaged on purpose, and what the reader says about it."""

    damage: str = column("damage")
    line: int = column("line")
    message: str = column("message")


@dataclass
class FormerCall(Row):
    """A call of the lecture's code that no longer exists."""

    call: str = column("the lecture's call")
    error: str = column("today")
    now: str = column("instead")


@dataclass(frozen=True)
class Distances:
    """The distance between dots and key points after a transform, in pixels, and the image's size afterwards.

    together     image and key points were given to the transform together
    image_alone  only the image was
    inside       points that are well inside the image afterwards: only those are compared
    """

    together: float
    image_alone: float
    height: int
    width: int
    inside: int


def draw_face_landmarks(result: Result):
    """Four drawn faces with their 17 landmarks as dots: from the top as stored, rescaled, cropped and flipped, each step on
    the result of the one before. In each row every dot is still on its feature: the corner of an eye, the tip of the nose."""
    steps = result.arrays["steps"]
    figure = style.new_figure(7.0, 7.6)
    for axes, step in zip(figure.subplots(len(steps), 1), steps, strict=True):
        pictures = [pixels_of(text) for text in step["images"]]
        height, start = max(pixels.shape[0] for pixels in pictures), 0
        for pixels, points in zip(pictures, step["points"], strict=True):
            rows, columns = pixels.shape[:2]
            axes.imshow(pixels, extent=(start - 0.5, start + columns - 0.5, rows - 0.5, -0.5))
            x, y = np.array(points).T
            axes.scatter(x + start, y, s=10, color=style.SKY, edgecolors="black", linewidths=0.5)
            axes.text(start + columns / 2, rows + height * 0.04, f"{columns} × {rows} px", ha="center", va="top", fontsize=8)
            start += columns + 12
        axes.set(xlim=(-1, start - 12), ylim=(height * 1.15, -1), xticks=[], yticks=[])
        axes.set_ylabel(step["name"], fontsize=9)
        axes.spines[:].set_visible(False)
    return figure


def _transforms(side: int, crop: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The steps that are drawn, and the transforms that are measured on an image of (2 · side) × (2.5 · side)."""
    from torchvision.transforms import v2

    height, width = 2 * side, side * 5 // 2
    drawn = {
        "as stored": v2.Identity(),
        "Resize": v2.Resize((side, side), antialias=True),
        "RandomCrop": v2.RandomCrop((crop, crop)),
        "RandomHorizontalFlip": v2.RandomHorizontalFlip(p=1.0),
    }
    measured = {
        "Resize, half as large": v2.Resize((height // 2, width // 2), antialias=True),
        "Resize, twice as large": v2.Resize((height * 2, width * 2), antialias=True),
        "RandomCrop": v2.RandomCrop((height * 3 // 4, width * 3 // 4)),
        "RandomHorizontalFlip": v2.RandomHorizontalFlip(p=1.0),
    }
    return drawn, measured


@experiment(
    "face-landmarks", lecture="L0", notebook=NOTEBOOK, draw=draw_face_landmarks, quick=QUICK, full=FULL, same_picture=True
)
def face_landmarks(params: Params) -> Result:
    """A Dataset over a CSV and an image folder, with transforms that move image and landmarks together."""
    from torchvision.transforms import v2

    from hpml_lab.loading.lessons.landmarks import FaceLandmarksDataset  # with pandas

    crop = params.side * 7 // 8
    drawn, measured = _transforms(params.side, crop)
    # Dots at whole pixels show where each transform takes a point of the image itself.
    height, width = 2 * params.side, params.side * 5 // 2
    generator = torch.Generator().manual_seed(0)
    points = (torch.rand(12, 2, generator=generator) * torch.tensor([width - 40, height - 40]) + 20).round()
    moved = {name: point_distances(transform, points, height, width) for name, transform in measured.items()}
    rows = [
        MovedPoints(name, f"{width} × {height} → {gap.width} × {gap.height}", gap.together, gap.image_alone)
        for name, gap in moved.items()
    ]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "faces"
        table = faces.write_faces(folder, params.count, seed=params.count)
        plain = FaceLandmarksDataset(table, folder)
        torch.manual_seed(0)
        steps = _steps(plain, drawn)
        whole = v2.Compose([*drawn.values(), v2.ToDtype(torch.float32, scale=True)])
        loader = DataLoader(FaceLandmarksDataset(table, folder, whole), batch_size=params.batch)
        result = Result(arrays={"steps": steps})
        _claim_moves(result, moved)
        _claim_batches(result, params, crop, plain, loader)
        former = _former_call(plain)
        damaged = _claim_damage(result, params, folder, table)
    result.tables += [
        Table("Image and key points after a transform", rows),
        Table("Damaged rows and files", damaged),
        Table("The lecture's code today", [former]),
    ]
    result.key_figure("images", params.count)
    result.key_figure("landmarks of an image", len(faces.NAMES))
    result.key_figure("skipped after damage", len(damaged), "images")
    return result


def _steps(data: Any, transforms: dict[str, Any]) -> list[dict[str, Any]]:
    """Some samples after each transform, which goes on from the one before: pictures and points, for the figure."""
    steps, samples = [], [data[index] for index in range(FACES)]
    for name, transform in transforms.items():
        samples = [transform(sample) for sample in samples]
        pictures = [png_text(sample["image"].permute(1, 2, 0).numpy()) for sample in samples]
        steps.append({"name": name, "images": pictures, "points": [sample["landmarks"].tolist() for sample in samples]})
    return steps


def _claim_moves(result: Result, moved: dict[str, Distances]) -> None:
    half, twice = moved["Resize, half as large"], moved["Resize, twice as large"]
    exact = [moved["RandomCrop"], moved["RandomHorizontalFlip"]]
    largest = max(gap.together for gap in exact)
    result.claim(
        "After a crop and after a flip, each dot lies under its key point",
        largest < 0.01 and min(gap.inside for gap in exact) >= 4,
        f"at most {largest:.1g} px apart",
    )
    result.claim(
        "After a rescale by the factor s, each dot lies within |s − 1| / √2 pixels of its key point",
        half.together < 0.5 / math.sqrt(2) + 0.02
        and twice.together < 1 / math.sqrt(2) + 0.02
        and min(half.inside, twice.inside) >= 4,
        f"{half.together:.3f} px at s = 1/2, {twice.together:.3f} px at s = 2",
    )
    left = min(gap.image_alone for gap in moved.values())
    result.claim(
        "If only the image is moved, landmarks are left behind by ten pixels and more",
        left > 10,
        f"the farthest point is left {left:.0f} px or more behind",
    )


def _claim_batches(result: Result, params: Params, crop: int, plain: Any, loader: DataLoader) -> None:
    sizes = {tuple(plain[index]["image"].shape) for index in range(8)}
    unlike = attempt(lambda: next(iter(DataLoader(plain, batch_size=8))))
    batches = [(tuple(batch["image"].shape), tuple(batch["landmarks"].shape)) for batch in loader]
    full_batches, last = divmod(params.count, params.batch)
    counts = [params.batch] * full_batches + [last] * bool(last)
    result.claim(
        "Images of several sizes make no batch, and after the transforms they do",
        len(sizes) > 1
        and unlike != "works"
        and batches == [((count, 3, crop, crop), (count, len(faces.NAMES), 2)) for count in counts],
        f"{len(sizes)} sizes among 8 images; {len(batches)} batches, the first {batches[0][0]} and {batches[0][1]}",
    )


def _former_call(plain: Any) -> FormerCall:
    return FormerCall(".as_matrix()", attempt(lambda: plain.landmarks_frame.as_matrix()), ".to_numpy(dtype=float)")


def _claim_damage(result: Result, params: Params, folder: Path, table: Path) -> list[DamagedRow]:
    """Damage eight rows and files, and see what the reader says of each."""
    from hpml_lab.loading.lessons.landmarks import FaceLandmarksDataset

    kinds = damage(folder, table)
    skipping = FaceLandmarksDataset(table, folder, on_damage="skip")
    rest, skipped = [skipping[index] for index in range(len(skipping))], skipping.skipped
    named = [f", line {line}, " in text for line, text in zip(kinds.values(), skipped, strict=False)]
    result.claim(
        "Each damaged row or file is named with its line and left out, and the others are read",
        all(named) and len(skipped) == len(kinds) and len(rest) == params.count - len(kinds),
        f"{len(skipped)} skipped, {len(rest)} left of {params.count}",
    )
    return [DamagedRow(kind, line, text) for (kind, line), text in zip(kinds.items(), skipped, strict=False)]


def dots(points: torch.Tensor, height: int, width: int, sigma: float = 1.5) -> torch.Tensor:
    """One bright blob at each of `points` (K, 2), each in a channel of its own: an image (K, height, width)."""
    y, x = torch.arange(height, dtype=torch.float32)[:, None], torch.arange(width, dtype=torch.float32)
    return torch.stack([torch.exp(-((x - px) ** 2 + (y - py) ** 2) / (2 * sigma**2)) for px, py in points.tolist()])


def centers(image: torch.Tensor) -> torch.Tensor:
    """The center of light of each channel: (K, 2) as x, y; NaN for a dark channel."""
    light = image.sum(dim=(1, 2))
    x = (image.sum(dim=1) * torch.arange(image.shape[2])).sum(dim=1) / light
    y = (image.sum(dim=2) * torch.arange(image.shape[1])).sum(dim=1) / light
    return torch.stack([x, y], dim=1)


def point_distances(transform: Any, points: torch.Tensor, height: int, width: int) -> Distances:
    """Apply `transform` to dots and key points together, and to the image of the dots alone, with the same random numbers."""
    from torchvision import tv_tensors

    sample = {
        "image": tv_tensors.Image(dots(points, height, width)),
        "landmarks": tv_tensors.KeyPoints(points.clone(), canvas_size=(height, width)),
    }
    torch.manual_seed(0)
    moved = transform(sample)
    torch.manual_seed(0)
    alone = transform(sample["image"])
    new_height, new_width = moved["image"].shape[-2:]
    landmarks = moved["landmarks"]
    inside = ((landmarks > EDGE) & (landmarks < torch.tensor([new_width, new_height]) - EDGE - 1)).all(dim=1)
    together = torch.linalg.norm(centers(moved["image"]) - landmarks, dim=1)[inside].max().item()
    image_alone = torch.linalg.norm(centers(alone) - points, dim=1)[inside].max().item()
    return Distances(together, image_alone, new_height, new_width, int(inside.sum()))


def damage(folder: Path, table: Path) -> dict[str, int]:
    """Damage eight rows and files of a set of at least ten faces, each in another way: {kind of damage: line of the table}."""
    with open(table, newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    rows[1][3] = ""
    rows[2][4] = "twelve"
    rows[3] = rows[3][:-1]
    rows[4].append("1.0")
    (folder / rows[5][0]).unlink()
    photo = folder / rows[6][0]
    photo.write_bytes(photo.read_bytes()[: photo.stat().st_size // 2])
    rows[7][1] = "5000"
    (folder / rows[8][0]).write_bytes(b"this is no image")
    with open(table, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    kinds = (
        "missing value",
        "not a number",
        "too few values",
        "too many values",
        "missing image",
        "truncated JPEG",
        "point outside the image",
        "not an image file",
    )
    return {kind: line for line, kind in enumerate(kinds, start=2)}
