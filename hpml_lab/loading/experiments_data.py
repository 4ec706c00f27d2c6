"""The experiments of notebook 08 on what is loaded, and in which order: face-landmarks and samplers."""

import csv
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler

from hpml_lab.core import style
from hpml_lab.core.errors import LabError
from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.result import Claim, Result
from hpml_lab.loading import faces
from hpml_lab.loading import samplers as own
from hpml_lab.loading.png import from_png, to_png

NOTEBOOK = "08_loading"


# ---- face-landmarks ----------------------------------------------------------------------------------------


def dots(points: torch.Tensor, height: int, width: int, sigma: float = 1.5) -> torch.Tensor:
    """One bright blob at each of `points` (K, 2), each in a channel of its own: an image (K, height, width)."""
    y, x = torch.arange(height, dtype=torch.float32)[:, None], torch.arange(width, dtype=torch.float32)
    return torch.stack([torch.exp(-((x - px) ** 2 + (y - py) ** 2) / (2 * sigma**2)) for px, py in points.tolist()])


def centres(image: torch.Tensor) -> torch.Tensor:
    """Where the blob of each channel lies, as the mean place of its light: (K, 2) as x, y; NaN for a dark channel."""
    light = image.sum(dim=(1, 2))
    x = (image.sum(dim=1) * torch.arange(image.shape[2])).sum(dim=1) / light
    y = (image.sum(dim=2) * torch.arange(image.shape[1])).sum(dim=1) / light
    return torch.stack([x, y], dim=1)


def _apart(transform: Any, points: torch.Tensor, height: int, width: int) -> tuple[float, float, tuple[int, int], int]:
    """How far dots and key points are apart after `transform`: together, and where it is given the image alone; pixels.

    Also the size afterwards, and how many points are left well inside the image: only those are compared.
    """
    from torchvision import tv_tensors

    sample = {
        "image": tv_tensors.Image(dots(points, height, width)),
        "landmarks": tv_tensors.KeyPoints(points.clone(), canvas_size=(height, width)),
    }
    torch.manual_seed(0)
    moved = transform(sample)
    torch.manual_seed(0)
    alone = transform(sample["image"])
    h, w = moved["image"].shape[-2:]
    at = moved["landmarks"]
    inside = ((at > 6) & (at < torch.tensor([w, h]) - 7)).all(dim=1)  # a blob that the edge cuts has its centre elsewhere
    gap = torch.linalg.norm(centres(moved["image"]) - at, dim=1)[inside].max().item()
    left = torch.linalg.norm(centres(alone) - points, dim=1)[inside].max().item()
    return gap, left, (h, w), int(inside.sum())


def damage(folder: Path, table: Path) -> dict[str, int]:
    """Spoil rows and files of a set of at least ten faces, each in a way of its own: {kind of damage: line of the table}."""
    with open(table, newline="") as file:
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
    with open(table, "w", newline="") as file:
        csv.writer(file).writerows(rows)
    kinds = (
        "missing value",
        "no number",
        "too few values",
        "too many values",
        "missing image",
        "truncated JPEG",
        "point outside the image",
        "no image file",
    )
    return {kind: line for line, kind in enumerate(kinds, start=2)}


def _said(folder: Path, header: list[str], row: list[str]) -> str:
    """What the reader says to a table that has only this row."""
    from hpml_lab.loading.landmarks import FaceLandmarksDataset

    table = folder / "one_row.csv"
    with open(table, "w", newline="") as file:
        csv.writer(file).writerows([header, row])
    try:
        FaceLandmarksDataset(table, folder)[0]
    except LabError as error:
        return error.problem
    finally:
        table.unlink()
    return "works"


def draw_face_landmarks(result: Result):
    """Four drawn faces, one a column, with their 17 landmarks as dots: as they lie in the folder, rescaled, cropped and
    flipped. In each row every dot still sits on its feature: the corner of an eye, the tip of the nose, the chin."""
    figure = style.new_figure(7.0, 7.2)
    steps = result.arrays["steps"]
    grid = figure.subplots(len(steps), len(steps[0]["images"]), squeeze=False)
    for axes_row, step in zip(grid, steps, strict=True):
        for axes, image, points in zip(axes_row, step["images"], step["points"], strict=True):
            picture = from_png(image)
            axes.imshow(picture)
            x, y = np.array(points).T
            axes.scatter(x, y, s=12, color=style.SKY, edgecolors="black", linewidths=0.5)
            axes.set(xlim=(-0.5, picture.shape[1] - 0.5), ylim=(picture.shape[0] - 0.5, -0.5), xticks=[], yticks=[])
            axes.set_xlabel(f"{picture.shape[1]} × {picture.shape[0]} px", fontsize=8)
        axes_row[0].set_ylabel(step["name"], fontsize=9)
    return figure


@experiment(
    "face-landmarks",
    lecture="L0",
    notebook=NOTEBOOK,
    draw=draw_face_landmarks,
    quick=dict(count=24, batch=8, side=96),
    full=dict(count=800, batch=32, side=224),
)
def face_landmarks(size: Size) -> Result:
    """A Dataset over a CSV and an image folder, with transforms that move image and landmarks together."""
    from torchvision.transforms import v2

    from hpml_lab.loading.landmarks import FaceLandmarksDataset  # with pandas

    side, crop = size.side, size.side * 7 // 8
    steps = {
        "as stored": v2.Identity(),
        "Resize": v2.Resize((side, side), antialias=True),
        "RandomCrop": v2.RandomCrop((crop, crop)),
        "RandomHorizontalFlip": v2.RandomHorizontalFlip(p=1.0),
    }
    # Dots at whole pixels show where each transform takes a point of the image itself.
    height, width = 2 * side, side * 5 // 2
    generator = torch.Generator().manual_seed(0)
    points = torch.rand(12, 2, generator=generator) * torch.tensor([width - 40, height - 40]) + 20
    points = points.round()
    tried = {
        "Resize, half as large": v2.Resize((height // 2, width // 2), antialias=True),
        "Resize, twice as large": v2.Resize((height * 2, width * 2), antialias=True),
        "RandomCrop": v2.RandomCrop((height * 3 // 4, width * 3 // 4)),
        "RandomHorizontalFlip": v2.RandomHorizontalFlip(p=1.0),
    }
    rows, apart = [], {}
    for name, transform in tried.items():
        gap, alone, after, inside = _apart(transform, points, height, width)
        apart[name] = (gap, alone, inside)
        rows.append(
            {
                "step": name,
                "image before → after, px": f"{width} × {height} → {after[1]} × {after[0]}",
                "dot to key point, px": gap,
                "image moved alone, px": alone,
            }
        )

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "faces"
        table = faces.write_faces(folder, size.count, seed=size.count)
        plain = FaceLandmarksDataset(table, folder)
        torch.manual_seed(0)
        shown = [{"name": "as stored", "samples": [plain[i] for i in range(4)]}]
        for name, transform in list(steps.items())[1:]:  # each step goes on from the one before
            shown.append({"name": name, "samples": [transform(sample) for sample in shown[-1]["samples"]]})
        whole = v2.Compose([*steps.values(), v2.ToDtype(torch.float32, scale=True)])
        whole_sizes = {tuple(plain[i]["image"].shape) for i in range(8)}
        loader = DataLoader(FaceLandmarksDataset(table, folder, whole), batch_size=size.batch)
        batches = [(tuple(b["image"].shape), tuple(b["landmarks"].shape)) for b in loader]
        unlike = own.error_of(lambda: next(iter(DataLoader(plain, batch_size=8))))
        dead = own.error_of(lambda: plain.landmarks_frame.iloc[0, 1:].as_matrix())
        values = plain.landmarks_frame.iloc[0, 1:].to_numpy(dtype=float).reshape(-1, 2)

        kinds = damage(folder, table)
        with open(table, newline="") as file:
            header, *lines = csv.reader(file)
        said = {kind: _said(folder, header, lines[line - 2]) for kind, line in kinds.items()}
        skipping = FaceLandmarksDataset(table, folder, on_damage="skip")
        rest = [skipping[i] for i in range(len(skipping))]
        skipped = list(skipping.skipped)

    rows += [{"step": f"damage: {kind}", "what is said": text} for kind, text in zip(kinds, skipped, strict=False)]
    rows.append({"step": "lecture's .as_matrix()", "what is said": dead})
    right = [f", line {line}, {lines[line - 2][0]}: " in text for line, text in zip(kinds.values(), skipped, strict=False)]
    half, twice = apart["Resize, half as large"], apart["Resize, twice as large"]
    exact = [apart["RandomCrop"], apart["RandomHorizontalFlip"]]
    full_batches, last = divmod(size.count, size.batch)
    expected = [(n, 3, crop, crop) for n in [size.batch] * full_batches + [last] * bool(last)]
    claims = [
        Claim(
            "after a crop and after a flip each dot lies under its key point",
            max(gap for gap, *_ in exact) < 0.01 and min(inside for *_, inside in exact) >= 4,
            f"at most {max(gap for gap, *_ in exact):.1g} px apart",
        ),
        Claim(
            "after a rescale by the factor s each dot lies within |s − 1| / √2 pixels of its key point",
            half[0] < 0.5 / math.sqrt(2) + 0.02 and twice[0] < 1 / math.sqrt(2) + 0.02 and min(half[2], twice[2]) >= 4,
            f"{half[0]:.3f} px at s = 1/2, {twice[0]:.3f} px at s = 2",
        ),
        Claim(
            "where the image alone is moved, landmarks are left behind by ten pixels and more",
            min(alone for _, alone, _ in apart.values()) > 10,
            f"the farthest point is left {min(alone for _, alone, _ in apart.values()):.0f} px or more behind",
        ),
        Claim("pandas has no as_matrix any more", dead.startswith("AttributeError"), dead),
        Claim(
            "to_numpy(dtype=float).reshape(-1, 2) gives the table's row as x, y",
            values.shape == (len(faces.NAMES), 2) and values.dtype == np.float64,
            f"{values.shape}, {values.dtype}",
        ),
        Claim(
            "images of several sizes make no batch, and after the transforms they do",
            len(whole_sizes) > 1
            and unlike != "works"
            and batches == [(shape, (shape[0], len(faces.NAMES), 2)) for shape in expected],
            f"{len(whole_sizes)} sizes among 8 images; {len(batches)} batches, the first {batches[0][0]} and {batches[0][1]}",
        ),
        Claim(
            "each damaged row or file gives one error that names the file and the line",
            all(f"line 2, {lines[line - 2][0]}: " in said[kind] for kind, line in kinds.items()),
            f"{len(said)} kinds of damage",
        ),
        Claim(
            "the policy skip leaves out exactly the damaged rows and tells which",
            all(right) and len(skipped) == len(kinds) and len(rest) == size.count - len(kinds),
            f"{len(skipped)} skipped, {len(rest)} left of {size.count}",
        ),
    ]
    return Result(
        rows,
        claims,
        {"images": size.count, "landmarks an image": len(faces.NAMES), "skipped after damage, images": len(skipped)},
        arrays={
            "steps": [
                {
                    "name": one["name"],
                    "images": [to_png(sample["image"].permute(1, 2, 0)) for sample in one["samples"]],
                    "points": [sample["landmarks"].tolist() for sample in one["samples"]],
                }
                for one in shown
            ]
        },
    )


# ---- samplers ----------------------------------------------------------------------------------------------

SAMPLERS = ("sequential", "random", "subset", "weighted", "length buckets")
RARE = 0.1  # share of the rare class


def make_sampler(name: str, labels: torch.Tensor, lengths: list[int], batch: int, seed: int = 0):
    """One of SAMPLERS over samples with these classes and lengths, with a generator of its own."""
    generator = torch.Generator().manual_seed(seed)
    if name == "sequential":
        return SequentialSampler(labels)
    if name == "random":
        return RandomSampler(labels, generator=generator)
    if name == "subset":  # as one takes a training set out of a whole
        return SubsetRandomSampler(range(len(labels) // 2, len(labels)), generator=generator)
    if name == "weighted":  # one over the size of the sample's class
        weights = 1 / torch.bincount(labels)[labels].double()
        return WeightedRandomSampler(weights, num_samples=len(labels), replacement=True, generator=generator)
    return own.LengthBuckets(lengths, batch, generator=generator)


def imbalanced(count: int, seed: int = 0) -> tuple[torch.Tensor, list[int]]:
    """Classes (count,), of which every tenth is the rare 1, and lengths from 10 to some hundreds, many short and few long."""
    labels = (torch.arange(count) % round(1 / RARE) == 0).long()
    lengths = np.random.default_rng(seed).lognormal(4.0, 0.6, count).clip(10, 600).astype(int)
    return labels, lengths.tolist()


def _epochs(sampler: Any, count: int, batch: int, epochs: int) -> list[list[int]]:
    """The indices that a DataLoader hands out in each epoch."""
    loader = DataLoader(own.Indices(count), batch_size=batch, sampler=sampler)
    return [[index for indices in loader for index in indices.tolist()] for _ in range(epochs)]


def draw_samplers(result: Result):
    """Five rasters, one a sampler: the index drawn over the position, for three epochs one after another. Samples of the rare
    class are orange triangles, the others blue dots. Sequential is a straight line three times, random a cloud, subset a cloud
    in the upper half, weighted a cloud with many triangles, and length buckets a cloud too. The last panel has the rare
    class's share of all draws for each sampler; only weighted comes near one half."""
    figure = style.new_figure(9.0, 5.6)
    panels = figure.subplots(2, 3).ravel()
    rare = set(result.arrays["rare"])
    for axes, name in zip(panels, SAMPLERS, strict=False):
        at = 0
        for epoch in result.arrays["epochs"][name]:
            places = np.arange(at, at + len(epoch))
            is_rare = np.array([index in rare for index in epoch])
            order = np.array(epoch)
            axes.plot(
                places[~is_rare], order[~is_rare], "o", markersize=2.5, color=style.BLUE, label="common" if not at else None
            )
            axes.plot(
                places[is_rare], order[is_rare], "^", markersize=4.5, color=style.ORANGE, label="rare" if not at else None
            )
            at += len(epoch)
            axes.axvline(at - 0.5, color=style.GREY, linewidth=1)
        axes.set(title=name, xlabel="position, three epochs", ylabel="index", ylim=(-2, result.arrays["count"] + 1))
        axes.set_xlim(-1, at)
    panels[2].legend(loc="lower left", fontsize=8, title="class", title_fontsize=8)
    bars = panels[-1]
    shares = {row["sampler"]: row["rare class, % of draws"] for row in result.rows if "sampler" in row}
    bars.barh(list(shares), list(shares.values()), color=[style.ORANGE if n == "weighted" else style.GREY for n in shares])
    bars.axvline(50, color=style.INK, linestyle="--", linewidth=1)
    bars.invert_yaxis()
    bars.set(title="who sees the rare class", xlabel="rare class, % of draws", xlim=(0, 60))
    bars.grid(axis="y", visible=False)
    return figure


@experiment(
    "samplers",
    lecture="L0",
    notebook=NOTEBOOK,
    draw=draw_samplers,
    quick=dict(count=120, batch=8, many=4000, draws=8),
    full=dict(count=240, batch=16, many=100_000, draws=64),
)
def samplers(size: Size) -> Result:
    """What each sampler draws, and what the workers' seeds do to random numbers."""
    labels, lengths = imbalanced(size.count)
    many, _ = imbalanced(size.many)
    epochs, shares, rows = {}, {}, []
    for name in SAMPLERS:
        epochs[name] = _epochs(make_sampler(name, labels, lengths, size.batch), size.count, size.batch, 3)
        # The share is taken over many draws, so that chance plays little part.
        order = list(make_sampler(name, many, [1] * size.many, size.batch))
        shares[name] = many[order].double().mean().item()
        first, second, _ = epochs[name]
        rows.append(
            {
                "sampler": name,
                "draws an epoch": len(first),
                "different indices": len(set(first)),
                "second epoch in the same order": first == second,
                "rare class, % of draws": 100 * shares[name],
                "padding, %": 100 * own.padding(lengths, first, size.batch),
            }
        )
    once = {name: [sorted(epoch) == list(range(size.count)) for epoch in epochs[name]] for name in SAMPLERS}
    pad = {row["sampler"]: row["padding, %"] for row in rows}
    bound = 4 * math.sqrt(0.25 / size.many)  # four standard deviations of a share of `many` draws at one half
    again = _epochs(make_sampler("random", labels, lengths, size.batch), size.count, size.batch, 3)
    both = own.error_of(
        lambda: DataLoader(own.Indices(4), sampler=SequentialSampler(own.Indices(4)), shuffle=True)  # one of the two decides
    )

    cases = {
        "NumPy's global generator": own.drawn("numpy", size.draws, 2),
        "torch's generator": own.drawn("torch", size.draws, 2),
        "Generator kept in the Dataset": own.drawn("own", size.draws, 2),
        "the same, seeded in worker_init_fn": own.drawn("own", size.draws, 2, own.seed_own),
        "np.random.seed(worker_id)": own.drawn("numpy", size.draws, 2, own.seed_numpy_by_number),
        "loader's generator made anew each epoch": own.drawn("torch", size.draws, 2, remake=True),
    }
    found = {name: own.repeats(draws) for name, draws in cases.items()}
    rows += [
        {
            "random numbers in workers": name,
            "repeat across workers": one["across workers"],
            "repeat across epochs": one["across epochs"],
        }
        for name, one in found.items()
    ]
    never = {"across workers": False, "across epochs": False}
    claims = [
        Claim(
            "sequential, random and length buckets draw each index once an epoch",
            all(all(once[name]) for name in ("sequential", "random", "length buckets")),
            f"3 epochs of {size.count}",
        ),
        Claim(
            "sequential repeats its order in each epoch, the others do not",
            [row["second epoch in the same order"] for row in rows[: len(SAMPLERS)]]
            == [name == "sequential" for name in SAMPLERS],
        ),
        Claim("a generator with the same seed gives the same three epochs again", again == epochs["random"]),
        Claim(
            "subset draws each of its indices once and no other",
            all(sorted(epoch) == list(range(size.count // 2, size.count)) for epoch in epochs["subset"]),
        ),
        Claim(
            "weighted draws both classes equally often, within four standard deviations",
            abs(shares["weighted"] - 0.5) < bound and not any(once["weighted"]),
            f"{100 * shares['weighted']:.2f} % of {size.many} draws, bound ± {100 * bound:.2f} %",
        ),
        Claim(
            "the other samplers leave the rare class rare",
            all(abs(shares[name] - RARE) < bound for name in SAMPLERS if name != "weighted"),
            f"{100 * RARE:.0f} % of the samples",
        ),
        Claim(
            "length buckets need less than half the padding of a random order",
            pad["length buckets"] < pad["random"] / 2,
            f"{pad['length buckets']:.1f} % against {pad['random']:.1f} %",
        ),
        Claim("a DataLoader takes a sampler or shuffle=True, not both", both.startswith("ValueError"), both),
        Claim(
            "today's torch seeds NumPy's global generator in each worker: no numbers repeat",
            found["NumPy's global generator"] == never and found["torch's generator"] == never,
        ),
        Claim(
            "a Generator kept in the Dataset repeats across workers and across epochs",
            found["Generator kept in the Dataset"] == {"across workers": True, "across epochs": True},
        ),
        Claim(
            "seeded with base_seed + worker_id it repeats in neither way", found["the same, seeded in worker_init_fn"] == never
        ),
        Claim(
            "a seed that knows only the worker's number repeats across epochs",
            found["np.random.seed(worker_id)"] == {"across workers": False, "across epochs": True},
        ),
        Claim(
            "a loader's generator that is made anew in each epoch repeats the epoch",
            found["loader's generator made anew each epoch"] == {"across workers": False, "across epochs": True},
        ),
    ]
    return Result(
        rows,
        claims,
        {
            "rare class with weights, % of draws": 100 * shares["weighted"],
            "rare class in random order, % of draws": 100 * shares["random"],
        },
        arrays={"epochs": epochs, "rare": labels.nonzero().ravel().tolist(), "count": size.count},
    )
