"""An epoch of JPEG photographs, decoded and trained on, with the time of each part of a batch."""

import functools
import io
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from hpml_lab import loading
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.timing.counting import synchronize

CLASSES = 10
LOAD_PARTS = ("read", "decode", "transform", "collate")
STEP_PARTS = ("copy", "forward", "backward", "step")
MOST_PASSES = 500  # a GPU that is faster still leaves a step shorter than the loading


def make_photos(folder: Path | str, photos: int, *, side: int = 256, seed: int = 0) -> Path:
    """Write `photos` JPEG files of side × side pixels, coarse colored clouds under fine noise. Returns `folder`."""
    from PIL import Image

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    for photo in range(photos):
        coarse = Image.fromarray(generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)).resize((side, side))
        noise = generator.normal(0, 12, (side, side, 3))
        pixels = np.clip(np.asarray(coarse) + noise, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"photo_{photo:05}.jpg", quality=90)
    return folder


class Photos(Dataset):
    """The JPEG files of a folder: item i is (float32 of shape (3, crop, crop), label, times).

    times  four moments of core.system.shared_clock's CLOCK, float64: begun, read, decoded, transformed
    """

    def __init__(self, folder: Path | str, crop: int = 128) -> None:
        self.files = sorted(str(file) for file in Path(folder).glob("*.jpg"))
        self.crop = crop

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int, torch.Tensor]:
        from PIL import Image

        begun = CLOCK()
        content = Path(self.files[index]).read_bytes()
        read = CLOCK()
        image = Image.open(io.BytesIO(content)).convert("RGB")  # opening reads the header only; convert decodes
        decoded = CLOCK()
        image = np.array(image.resize((self.crop, self.crop)))
        photo = (torch.from_numpy(image).permute(2, 0, 1).float() / 255 - 0.5) / 0.25
        times = torch.tensor([begun, read, decoded, CLOCK()], dtype=torch.float64)
        return photo, index % CLASSES, times


class PhotoTrainer:
    """A small convolutional net that trains on photos; a step is as many passes over a batch as it is asked for."""

    def __init__(self, device: torch.device, width: int) -> None:
        torch.manual_seed(0)
        conv = functools.partial(torch.nn.Conv2d, kernel_size=3, stride=2, padding=1)
        self.net = torch.nn.Sequential(
            conv(3, width),
            torch.nn.ReLU(),
            conv(width, 2 * width),
            torch.nn.ReLU(),
            conv(2 * width, 4 * width),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Linear(4 * width, 10),
        ).to(device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9)
        self.device = device

    def finished(self) -> float:
        """The moment at which the device has finished all work that was queued on it."""
        synchronize(self.device)
        return CLOCK()

    def __call__(self, photos: torch.Tensor, labels: torch.Tensor, passes: int = 1) -> dict[str, float]:
        """Train on one batch `passes` times. Returns the seconds of each of STEP_PARTS, those of all passes together."""
        moments = [CLOCK()]
        photos, labels = photos.to(self.device), labels.to(self.device)
        moments.append(self.finished())
        for _ in range(passes):
            self.optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(self.net(photos), labels)
            moments.append(self.finished())
            loss.backward()
            moments.append(self.finished())
            self.optimizer.step()
            moments.append(self.finished())
        copy, *taken = (b - a for a, b in pairwise(moments))
        return dict(zip(STEP_PARTS, (copy, *(sum(taken[part::3]) for part in range(3))), strict=True))


@dataclass
class TimedEpoch:
    """One epoch: its seconds, and the parts of each batch in seconds."""

    seconds: float
    batches: list[dict[str, float]]

    def mean(self, parts: Iterable[str]) -> float:
        """Seconds of a batch that go to these parts."""
        return sum(batch[part] for batch in self.batches for part in parts) / len(self.batches)


def timed_epoch(loader: DataLoader, trainer: PhotoTrainer, passes: int = 1) -> TimedEpoch:
    """Train for one epoch."""
    batches = []

    def step(batch: list[torch.Tensor]) -> None:
        images, labels, times = batch
        loading = dict(zip(LOAD_PARTS, times.diff(dim=1).sum(0).tolist(), strict=False))  # collate is known by its span
        batches.append(loading | trainer(images, labels, passes))

    epoch = loading.run_epoch(loader, step)
    collated = [span for span in epoch.spans if span.what == "collate"]
    for parts, span in zip(batches, collated, strict=True):
        parts["collate"] = span.seconds
    return TimedEpoch(epoch.seconds, batches)


def enough_passes(epoch: TimedEpoch) -> int:
    """How many passes take about as long as loading, 1 to MOST_PASSES, by the batches of an epoch with one pass.

    By the medians: the first batch of all also chooses kernels.
    """
    load, step = (median(sum(batch[part] for part in parts) for batch in epoch.batches) for parts in (LOAD_PARTS, STEP_PARTS))
    return min(max(1, round(load / step)), MOST_PASSES)
