"""What the network sees of a patient, and the way from there to detections."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from torch import nn

from hpml_lab.capstone.lessons import stages
from hpml_lab.capstone.tools import ct
from hpml_lab.core.timing.threads import on_threads


@dataclass(frozen=True)
class PreparedScan:
    """A scan after preprocessing.

    volume   float32 (z, y, x), 0 to 1, and 0 outside the lungs; mask: bool, True inside
    voxel    mm between voxel centers
    nodules  (n, 4) center z, y, x and radius in mm, as in the scan
    """

    name: str
    volume: np.ndarray
    mask: np.ndarray
    voxel: tuple[float, ...]
    nodules: np.ndarray

    @property
    def sick(self) -> bool:
        """Whether the patient has a nodule."""
        return len(self.nodules) > 0

    @property
    def centers(self) -> np.ndarray:
        """The nodules' centers (n, 3) in voxels."""
        return self.nodules[:, :3] / np.array(self.voxel)

    @cached_property
    def inside(self) -> np.ndarray:
        """Voxels (n, 3) of the mask, every fourth along each axis: where a patch may be placed."""
        return np.argwhere(self.mask[::4, ::4, ::4]) * 4


def prepare(scan: ct.Scan, order: int = 1) -> PreparedScan:
    """Hounsfield units, resampling (1: linear, 3: by cubic splines), lung mask and normalization, by the fast stages."""
    volume = stages.resample(stages.hounsfield(scan), scan.spacing, order=order)
    mask = stages.lung_mask(volume)
    voxel = stages.voxel_size(scan.stored.shape, scan.spacing)
    return PreparedScan(scan.name, stages.normalize(volume, mask), mask, voxel, scan.nodules)


def patients(seeds: Iterable[int], order: int = 1, **options) -> list[PreparedScan]:
    """Synthetic patients, one for each seed, prepared; `options` are those of `synthetic`."""
    return on_threads(lambda seed: prepare(ct.synthetic(seed, **options), order), seeds)


def detect(network: nn.Module, patient: PreparedScan) -> np.ndarray:
    """Detections (n, 5), the most certain first: center z, y, x and radius in mm, and score 0 to 1."""
    patches, corners = stages.cut_patches(patient.volume)
    outputs = stages.apply_network(network, patches)
    return stages.merge(stages.decode(outputs, corners, patient.mask, patient.voxel))


def detect_all(network: nn.Module, scans: Sequence[PreparedScan]) -> list[np.ndarray]:
    """`detect` of each patient, in order."""
    return on_threads(partial(detect, network), scans)
