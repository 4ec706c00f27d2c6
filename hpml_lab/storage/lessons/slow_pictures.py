"""A Dataset that gives the right samples slowly. Where do the seconds go?"""

import csv
import io

import numpy as np
import torch
from torch.utils.data import Dataset

from hpml_lab.core.show.png import decode_png, encode_png


class PictureStore:
    """A table of labels and pictures as PNG bytes, as they would lie on a disk; counts what it is asked for.

    tables  how often the table was parsed
    reads   the numbers of the pictures that were read, in order
    """

    def __init__(self, count: int, side: int = 48, seed: int = 0) -> None:
        self.count, self.tables, self.reads = count, 0, []
        rng = np.random.default_rng(seed)
        self._labels = rng.integers(0, 10, count).tolist()
        self._text = "name,label\n" + "".join(f"picture_{i}.png,{label}\n" for i, label in enumerate(self._labels))
        self._pictures = []
        for pixels in rng.integers(0, 256, (min(count, 64), side, side), dtype=np.uint8):  # 64 pictures serve all numbers
            self._pictures.append(encode_png(np.repeat(pixels[..., None], 3, axis=2)))

    def table(self) -> list[int]:
        """Parse the whole table: the label of each picture."""
        self.tables += 1
        return [int(row["label"]) for row in csv.DictReader(io.StringIO(self._text))]

    def read(self, index: int) -> bytes:
        """The bytes of one picture. Raises IndexError for a number that does not exist."""
        if not 0 <= index < self.count:
            raise IndexError(index)
        self.reads.append(int(index))
        return self._pictures[index % len(self._pictures)]


def decode(data: bytes) -> torch.Tensor:
    """PNG bytes to a gray picture (1, H, W) in [0, 1]."""
    return torch.from_numpy(decode_png(data)[..., 0].astype(np.float32) / 255)[None]


def augment(image: torch.Tensor) -> torch.Tensor:
    """The picture, or by chance its mirror image."""
    return image.flip(-1) if torch.rand(()) < 0.5 else image


class SlowPictures(Dataset):
    """Samples (image, label) of a PictureStore: correct and slow."""

    def __init__(self, store: PictureStore) -> None:
        self.store = store

    def __len__(self) -> int:
        return self.store.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        label = self.store.table()[index]
        data = self.store.read(index)
        image = decode(data)
        image = augment(image)
        return image, label
