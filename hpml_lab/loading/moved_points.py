"""Measures whether a transform moves image and key points together: by one bright dot at each key point."""

from dataclasses import dataclass
from typing import Any

import torch

MARGIN = 6  # pixels: a blob that the edge cuts has its center elsewhere


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
    inside = ((landmarks > MARGIN) & (landmarks < torch.tensor([new_width, new_height]) - MARGIN - 1)).all(dim=1)
    together = torch.linalg.norm(centers(moved["image"]) - landmarks, dim=1)[inside].max().item()
    image_alone = torch.linalg.norm(centers(alone) - points, dim=1)[inside].max().item()
    return Distances(together, image_alone, new_height, new_width, int(inside.sum()))
