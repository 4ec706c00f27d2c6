"""A video-like data set behind a storage model with the lecture's figures.

The lecture reads clips of UCF101 over a network file system: 18 to 600 ms a read, 13 to 27 ms a transform, several seconds a
batch of 32. Here the frames are small files that are really read; then the sample waits until the model's time is over.
A wait takes as long on a busy machine as on an idle one, so that workers can be compared on both.
"""

import contextlib
import math
import random
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset

from hpml_lab.core.system.shared_clock import CLOCK
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
