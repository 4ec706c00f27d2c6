"""How much faster batches are as index slices of one tensor than through a loader that decodes image by image: `make bench`.

Both make one epoch of shuffled batches of 128 from the same images, in turns in one run; the ratio is what counts.
"""

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.functional import pil_to_tensor

from hpml_lab.core.timing.noise import compare
from hpml_lab.data import batches

IMAGES, BATCH = 10_000, 128


class PerSample(Dataset):
    """What torchvision's MNIST does for each sample: an array becomes a PIL image becomes a tensor."""

    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return pil_to_tensor(Image.fromarray(self.images[index])).float() / 255, self.labels[index]


def main():
    pixels = np.random.default_rng(0).integers(0, 256, (IMAGES, 28, 28), dtype=np.uint8)
    labels = torch.arange(IMAGES) % 10
    x = torch.from_numpy(pixels).unsqueeze(1).float() / 255
    loader = DataLoader(PerSample(pixels, labels), batch_size=BATCH, shuffle=True)

    def drain(source):
        return sum(len(y) for _, y in source)

    result = compare(lambda: drain(loader), lambda: drain(batches(x, labels, BATCH)), samples=5)
    print(f"per-sample loader  {result.a.seconds * 1e3:8.1f} ms an epoch (spread {result.a.spread * 1e3:.1f})")
    print(f"index slices       {result.b.seconds * 1e3:8.1f} ms an epoch (spread {result.b.spread * 1e3:.1f})")
    print(f"ratio              {result.ratio:8.1f} times")


if __name__ == "__main__":
    main()
