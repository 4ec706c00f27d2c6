"""A training script as one finds them: `python careless_training.py DIGITS.npz`, with habits that the tuning guide warns about.

It stands alone, so that it can be copied, and given to any tool that takes a script.
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Digits(Dataset):
    """Images of 8 × 8 pixels in 17 shades, with their labels, from a file of NumPy's."""

    def __init__(self, path):
        given = np.load(path)
        self.images, self.labels = given["images"], given["labels"]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        rows = self.images[index].tolist()
        shades = [[shade / 16 for shade in row] for row in rows]  # pixel by pixel, while the training waits
        return torch.tensor(shades)[None], int(self.labels[index])


def convolutional_net():
    """(B, 1, 8, 8) -> (B, 10); each bias is subtracted again by the batch norm behind it."""
    layers = [nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
    layers += [nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 4 * 4, 10))


def main(path):
    torch.manual_seed(0)
    torch.autograd.set_detect_anomaly(True)  # left on after the last search for a nan
    loader = DataLoader(Digits(path), batch_size=64, shuffle=True, drop_last=True)
    net = convolutional_net()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(1000):
        losses = []
        for images, labels in loader:
            optimizer.zero_grad(set_to_none=False)
            loss = nn.functional.cross_entropy(net(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(epoch, sum(losses) / len(losses))


if __name__ == "__main__":
    main(sys.argv[1])
