"""A video-like data set behind a storage model with the lecture's figures, and cheap images to compare with.

The lecture reads clips of UCF101 over a network file system: 18 to 600 ms a read, 13 to 27 ms a transform, several seconds a
batch of 32. Here the frames are small files that are really read; then the sample waits until the model's time is over.
A wait takes as long on a busy machine as on an idle one, so that workers can be compared on both.
"""

import contextlib
import io
import math
import random
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset

from hpml_lab.core.measure.timeline import CLOCK
from hpml_lab.core.system.workers import sleep_until

READ = (0.018, 0.600)  # seconds: ReadSegmentFlow in the lecture
TRANSFORM = (0.013, 0.027)  # seconds: video_transform
MEDIAN = math.sqrt(READ[0] * READ[1])  # 104 ms: the middle of the range on a logarithmic axis
SIGMA = math.log(READ[1] / READ[0]) / 4  # the range is two standard deviations to either side of it
CLASSES = 10


@dataclass(frozen=True)
class StorageModel:
    """How long a sample takes to read and to transform, in seconds, by its index.

    scale  1 for the lecture's figures; 0.04 makes everything 25 times faster
    seed   another seed, another set of times
    The time depends on the index alone, so that every number of workers waits for the same reads.
    """

    scale: float = 1.0
    seed: int = 0

    def read(self, index: int) -> float:
        """Log-normal around 104 ms, cut to 18 … 600 ms, times `scale`."""
        normal = random.Random(f"read {self.seed} {index}").gauss(0.0, 1.0)
        return self.scale * min(max(MEDIAN * math.exp(SIGMA * normal), READ[0]), READ[1])

    def transform(self, index: int) -> float:
        """Uniform in 13 … 27 ms, times `scale`."""
        return self.scale * random.Random(f"transform {self.seed} {index}").uniform(*TRANSFORM)

    def load(self, indices: Iterable[int]) -> float:
        """Seconds to read and transform these samples one after the other."""
        return sum(self.read(index) + self.transform(index) for index in indices)


def batch_loads(storage: StorageModel, batches: int, batch_size: int) -> list[float]:
    """Seconds that each batch of a sequential epoch takes to load, by the model."""
    return [storage.load(range(batch * batch_size, (batch + 1) * batch_size)) for batch in range(batches)]


INSTANT = StorageModel(scale=0.0)


def make_clips(folder: Path | str, clips: int, *, frames: int = 4, side: int = 16, seed: int = 0) -> Path:
    """Write `clips` folders of `frames` color images each (PPM, side × side): a bright square that moves. Returns `folder`."""
    folder = Path(folder)
    generator = np.random.default_rng(seed)
    for clip in range(clips):
        clip_folder = folder / f"clip_{clip:05}"
        clip_folder.mkdir(parents=True)
        ground = generator.integers(0, 100, (side, side, 3), dtype=np.uint8)
        for frame in range(frames):
            image = ground.copy()
            row, column = (clip + frame) % (side - 3), (3 * clip + 2 * frame) % (side - 3)
            image[row : row + 3, column : column + 3] = 255
            (clip_folder / f"frame_{frame:02}.ppm").write_bytes(b"P6 %d %d 255\n" % (side, side) + image.tobytes())
    return folder


@contextlib.contextmanager
def clips_on_disk(clips: int, storage: StorageModel) -> Iterator["Clips"]:
    """The clips in a temporary folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="hpml-clips-") as folder:
        yield Clips(make_clips(folder, clips), storage)


class Clips(Dataset):
    """The clips of a folder that `make_clips` wrote: item i is (float32 of shape (3, frames, side, side), label).

    storage  how long a sample takes at least; INSTANT adds no wait
    """

    def __init__(self, folder: Path | str, storage: StorageModel = INSTANT) -> None:
        self.storage = storage
        self.clips = sorted(str(clip) for clip in Path(folder).iterdir())

    def __len__(self) -> int:
        return len(self.clips)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        start = CLOCK()
        files = [frame.read_bytes() for frame in sorted(Path(self.clips[index]).iterdir())]
        read = start + self.storage.read(index)
        sleep_until(read)  # what the network would have taken; the real read counts towards it
        read = CLOCK()
        clip = torch.stack([_image(content) for content in files], dim=1)
        clip = (clip - 0.5) / 0.25
        sleep_until(read + self.storage.transform(index))
        return clip, index % CLASSES


def _image(content: bytes) -> torch.Tensor:
    """A PPM file as float32 of shape (3, height, width), 0 to 1."""
    header, _, pixels = content.partition(b"\n")
    width, height = (int(word) for word in header.split()[1:3])
    image = np.frombuffer(pixels, np.uint8).reshape(height, width, 3)
    return torch.tensor(image, dtype=torch.float32).permute(2, 0, 1) / 255


class CheapImages(Dataset):
    """Images like MNIST's, in memory: item i is (float32 of shape (1, 28, 28), label), normalized one by one."""

    def __init__(self, images: int, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.images = torch.randint(0, 256, (images, 1, 28, 28), dtype=torch.uint8, generator=generator)
        self.labels = torch.randint(0, 10, (images,), generator=generator)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return (self.images[index].float() / 255 - 0.1307) / 0.3081, self.labels[index]


class BatchedImages(CheapImages):
    """The same images, a whole batch in one call: DataLoader calls `__getitems__` if a data set has it.

    It returns the batch ready made, so the DataLoader needs `collate_fn=ready_made`.
    """

    def __getitems__(self, indices: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        return (self.images[indices].float() / 255 - 0.1307) / 0.3081, self.labels[indices]


def ready_made(batch: object) -> object:
    """A collate function for batches that need no collating."""
    return batch


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

    times  four moments of core.timeline's CLOCK, float64: begun, read, decoded, transformed
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
