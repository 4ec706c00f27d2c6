"""Inference on one CT slice: preprocess, then a detector and a segmenter that do not need each other, then postprocess.

    stored values (192, 192) -> preprocess -> (1, 64, 64) -> detector  -> heat (12, 2, 2)  -> postprocess -> boxes
                                                          -> segmenter -> mask (1, 64, 64) ->

The weights are random: this is about time and about equality, not about nodules. Most of the weights are in the deepest
layers, where a picture has few pixels left: so a model reads megabytes of weights for one picture, and batching pays.
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor, nn
from torch.nn import functional as F

from hpml_lab.core.system.errors import LabError

SIDE = 64  # pixels of a model's input
INPUT_SHAPE = (1, SIDE, SIDE)
WINDOW = (-1000.0, 400.0)  # HU: from air to bone
CHANNELS = (16, 48, 128, 384, 512)  # each layer halves the side: 64, 32, 16, 8, 4, 2
BOXES = 4  # per cell of the detector
SHARE = 0.2  # of the pixels: the mask is where the segmenter's outputs are largest


def preprocess(stored: np.ndarray, slope: float = 1.0, intercept: float = -1024.0) -> Tensor:
    """HU = slope · stored + intercept, clipped to WINDOW and mapped to 0..1, smoothed and resized: (1, SIDE, SIDE) float32."""
    if stored.ndim != 2 or min(stored.shape) < SIDE:
        raise LabError(
            f"a slice of shape {stored.shape} cannot be preprocessed.",
            f"Hand over one slice, rows and columns, of at least {SIDE} × {SIDE} values.",
        )
    low, high = WINDOW
    picture = (np.clip(stored * np.float32(slope) + np.float32(intercept), low, high) - low) / (high - low)
    if not np.isfinite(picture).all():
        raise LabError("a slice has values that are NaN.", "Repair or leave out the slice; a network would answer NaN.")
    smooth = ndimage.gaussian_filter(
        picture.astype(np.float32), sigma=min(stored.shape) / SIDE / 2
    )  # before samples are left out
    return F.interpolate(torch.from_numpy(smooth)[None, None], size=(SIDE, SIDE), mode="bilinear", align_corners=False)[0]


def _halving(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.ReLU())


class SliceDetector(nn.Module):
    """(n, 1, SIDE, SIDE) -> (n, 12, SIDE / 32, SIDE / 32): for each cell four times a score and a center, row and column."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(*map(_halving, (1, *CHANNELS), CHANNELS))
        self.head = nn.Conv2d(CHANNELS[-1], 3 * BOXES, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class SliceSegmenter(nn.Module):
    """(n, 1, SIDE, SIDE) -> (n, 1, SIDE, SIDE): a logit for each pixel, by a U-Net of five levels."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(map(_halving, (1, *CHANNELS), CHANNELS))
        self.up = nn.ModuleList(nn.Conv2d(deep, flat, 1) for deep, flat in zip(CHANNELS[:0:-1], CHANNELS[-2::-1], strict=True))
        self.head = nn.Conv2d(CHANNELS[0], 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for halve in self.down:
            x = halve(x)
            skips.append(x)
        skips.pop()
        for project in self.up:
            x = F.relu(F.interpolate(project(x), scale_factor=2.0, mode="nearest") + skips.pop())
        return F.interpolate(self.head(x), scale_factor=2.0, mode="bilinear", align_corners=False)


def slice_models(device: torch.device | str = "cpu", seed: int = 0) -> tuple[SliceDetector, SliceSegmenter]:
    """A detector and a segmenter with random weights from `seed`, for inference; torch's own random state stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        models = SliceDetector(), SliceSegmenter()
    return tuple(model.eval().to(device) for model in models)


class SlicePair(nn.Module):
    """Both models of a slice as one: (n, 1, SIDE, SIDE) -> (n, heat and mask, flattened)."""

    def __init__(self, detector: nn.Module, segmenter: nn.Module) -> None:
        super().__init__()
        self.detector, self.segmenter = detector, segmenter

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.detector(x).flatten(1), self.segmenter(x).flatten(1)], dim=1)


def slice_pair(seed: int = 0) -> SlicePair:
    """Detector and segmenter with random weights from `seed`."""
    return SlicePair(*slice_models(seed=seed)).eval()


@dataclass(frozen=True)
class SliceAnswer:
    """What the pipeline finds in one slice.

    heat   the detector's outputs (12, SIDE / 32, SIDE / 32)
    mask   the segmenter's outputs (1, SIDE, SIDE)
    boxes  (n, 4): row and column of a center in pixels of the input, the score, and 1 where the center lies in the largest
           component of the mask, else 0; the largest score first
    """

    heat: np.ndarray
    mask: np.ndarray
    boxes: np.ndarray

    def equals(self, other: "SliceAnswer") -> bool:
        """Whether both are bitwise equal."""
        return all(
            a.shape == b.shape and a.tobytes() == b.tobytes()
            for a, b in ((self.heat, other.heat), (self.mask, other.mask), (self.boxes, other.boxes))
        )

    def distance(self, other: "SliceAnswer") -> float:
        """The largest difference between the models' outputs, relative to the largest output."""
        pairs = (self.heat, other.heat), (self.mask, other.mask)
        return max(float(np.abs(a - b).max() / np.abs(a).max()) for a, b in pairs)


def postprocess(heat: Tensor, mask: Tensor) -> SliceAnswer:
    """The outputs for one slice, on the CPU, as boxes: centers from the cells, compared with the largest part of the mask."""
    outputs, logits = heat.numpy(), mask.numpy()
    labels, count = ndimage.label(logits[0] > np.quantile(logits[0], 1 - SHARE))
    inside = labels == 1 + np.bincount(labels.ravel(), minlength=2)[1:].argmax() if count else np.zeros(labels.shape, bool)
    rows, columns = outputs.shape[1:]
    cells = np.stack(np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij"))  # (2, rows, columns)
    score, *offset = outputs.reshape(BOXES, 3, rows, columns).swapaxes(0, 1)
    centers = (cells[:, None] + 1 / (1 + np.exp(-np.stack(offset)))) * (SIDE / rows)  # (2, BOXES, rows, columns)
    row, column = centers.astype(int).clip(0, SIDE - 1)
    boxes = np.stack([*centers, score, inside[row, column]], axis=-1).reshape(-1, 4)
    return SliceAnswer(outputs, logits, boxes[np.argsort(-boxes[:, 2], kind="stable")])
