"""The 3-D network that says where nodules are, and its training.

Each cell of 4 x 4 x 4 voxels has a logit (is a nodule's center here?), the place of the center in the cell, and the log of the
radius. The loss of a batch with cells c, targets t and the set P of cells that hold a center is

    L = mean over c of w · BCE(logit_c, t_c) + 0.1 · mean over P of smooth-L1(place and log radius)

with w = 20 in P, 0 in the cells next to a center, where either answer will do, and 1 elsewhere.
"""

import contextlib
import hashlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hpml_lab.capstone.lessons import stages
from hpml_lab.capstone.lessons.stages import CELL, SPACING
from hpml_lab.capstone.tools import ct, prepared
from hpml_lab.capstone.tools.prepared import PreparedScan, patients
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.paths import RESULTS
from hpml_lab.core.system.sealed import read_state, write_state
from hpml_lab.core.timing.threads import on_threads

FOLDER = RESULTS / "detectors"
WIDTH = 8
RARE = -4.0  # the first logit: before training nearly every cell is empty, as in the data
TRAINING = 60  # patients, the seeds from 0
STEPS, BATCH, RATE = 150, 32, 6e-3  # AdamW; the rate of the one-cycle schedule at its highest
TRAINING_PATCH = 24  # voxels: a cell sees 19, and of smaller patches more fit into a second
NEAR_A_NODULE = 0.6  # of the patches
CENTER_WEIGHT, PLACE_WEIGHT = 20.0, 0.1
NEXT_TO_A_CENTER = 5.0  # voxels from the center of the cell
SEEDING = threading.Lock()
Labeled = tuple[np.ndarray, np.ndarray]  # a patch, and the centers (n, 3) in its voxels


class Detector(nn.Module):
    """A patch (n, 1, 32, 32, 32), 0 to 1, to 8 x 8 x 8 cells: logit, place of the center in the cell (3), log(radius / 2 mm).

    Four convolutions, each with batch normalization, then 1 x 1 x 1: 45,485 parameters at width 8. A cell sees 19 voxels along
    each axis. With both strides of 2 at the start the network would be twice as fast, and find fewer of the small nodules.
    """

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        widths = [(1, width, 2), (width, 2 * width, 1), (2 * width, 4 * width, 2), (4 * width, 4 * width, 1)]
        self.body = nn.Sequential(*(convolution_block(*sizes) for sizes in widths))
        self.head = nn.Conv3d(4 * width, 5, 1)
        with torch.no_grad():
            self.head.bias.zero_()
            self.head.bias[0] = RARE

    def forward(self, patches: Tensor) -> Tensor:
        return self.head(self.body(patches))


def convolution_block(before: int, after: int, stride: int) -> nn.Sequential:
    """3 x 3 x 3 convolution, batch normalization, ReLU."""
    return nn.Sequential(nn.Conv3d(before, after, 3, stride, 1, bias=False), nn.BatchNorm3d(after), nn.ReLU(inplace=True))


# ---- training --------------------------------------------------------------------------------------------------------


def mirrored(volume: np.ndarray, centers: np.ndarray, corner: np.ndarray, edge: int, draw: np.random.Generator) -> Labeled:
    """A patch of `edge` voxels at the corner, turned and mirrored at random, and where the centers are in it."""
    patch, centers = volume[tuple(slice(start, start + edge) for start in corner)], centers - corner
    for axis in range(3):
        if draw.random() < 0.5:
            patch = np.flip(patch, axis)
            centers[:, axis] = edge - 1 - centers[:, axis]
    turned = draw.permutation(3)
    return patch.transpose(turned), centers[:, turned]


def training_batch(
    scans: Sequence[PreparedScan],
    draw: np.random.Generator,
    size: int = BATCH,
    edge: int = TRAINING_PATCH,
    cut: Callable[..., Labeled] = mirrored,
) -> tuple[Tensor, Tensor]:
    """Patches (size, 1, 24, 24, 24) of random patients, and targets (size, 5, 6, 6, 6).

    Of a sick patient most patches are placed so that they hold a nodule, the others somewhere in the lungs: of all cells of a
    scan only one in 40,000 holds a center.

    cut  makes a patch and its centers of a volume: `mirrored`, or `augmentation.augmented`
    """
    cells = edge // CELL
    patches = np.empty((size, 1, edge, edge, edge), np.float32)
    targets = np.zeros((size, 5, cells, cells, cells), np.float32)
    for i in range(size):
        scan = scans[draw.integers(len(scans))]
        near = scan.centers if scan.sick and draw.random() < NEAR_A_NODULE else scan.inside
        at = near[draw.integers(len(near))] - draw.uniform(CELL, edge - CELL, 3)
        corner = np.clip(np.rint(at).astype(int), 0, np.array(scan.volume.shape) - edge)
        patches[i, 0], centers = cut(scan.volume, scan.centers, corner, edge, draw)
        fill_cells(targets[i], centers, scan.nodules[:, 3])
    return torch.from_numpy(patches), torch.from_numpy(targets)


def fill_cells(target: np.ndarray, centers: np.ndarray, radii: np.ndarray) -> None:
    """Write nodules into a patch's target (5, n, n, n), whose cells are 0 so far: 1, place and log(radius / 2 mm).

    centers, radii  voxels from the patch's first voxel, and mm
    Cells next to a center, within the patch or outside, get −1: they do not count.
    """
    n = target.shape[1]
    middle = (np.indices((n, n, n)) + 0.5) * CELL - 0.5
    for center in centers:
        squared = ((middle - center[:, None, None, None]) ** 2).sum(0)
        target[0][squared < NEXT_TO_A_CENTER**2] = -1
    for center, radius in zip(centers / CELL, radii, strict=True):
        cell = np.floor(center).astype(int)
        if (cell >= 0).all() and (cell < n).all():
            target[(slice(None), *cell)] = [1, *(center - cell), np.log(radius / SPACING)]


def detection_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss above, of outputs and targets (n, 5, cells, cells, cells)."""
    logits, kinds = outputs[:, 0], targets[:, 0]
    held = kinds > 0
    weight = torch.where(held, CENTER_WEIGHT, torch.where(kinds < 0, 0.0, 1.0))
    loss = F.binary_cross_entropy_with_logits(logits, held.to(logits.dtype), weight)
    if held.any():
        found, wanted = (part.movedim(1, -1)[held][:, 1:] for part in (outputs, targets))
        loss = loss + PLACE_WEIGHT * F.smooth_l1_loss(found, wanted)
    return loss


def train(
    scans: Sequence[PreparedScan], seed: int = 0, steps: int = STEPS, device: torch.device | str = "cpu"
) -> tuple[Detector, list[float]]:
    """A detector trained on the patients, in evaluation mode, and its loss at each step; on a CPU a seed decides both."""
    if not any(scan.sick for scan in scans):
        raise LabError("training: none of the patients has a nodule.", "Give patients with annotated nodules too.")
    small = next((scan for scan in scans if min(scan.volume.shape) < TRAINING_PATCH), None)
    if small is not None:
        raise LabError(f"training: {small.name} is smaller than a patch of {TRAINING_PATCH} voxels.", "Leave this scan out.")
    network = initialized(seed).to(device, memory_format=torch.channels_last_3d).train()  # a quarter less time on a CPU
    optimizer = torch.optim.AdamW(network.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    draw, losses = np.random.default_rng(seed), []
    for _ in range(steps):
        patches, targets = (part.to(device) for part in training_batch(scans, draw))
        optimizer.zero_grad()
        loss = detection_loss(network(patches), targets)
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
    return network.to(memory_format=torch.contiguous_format).eval(), torch.stack(losses).tolist()


def initialized(seed: int) -> Detector:
    """A detector before training; the random state of torch stays as it is.

    All threads share that state: without the lock one would draw from another's seed.
    """
    with SEEDING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Detector()


def train_all(
    scans: Sequence[PreparedScan], seeds: Sequence[int], steps: int = STEPS, device: torch.device | str = "cpu"
) -> list[tuple[Detector, list[float]]]:
    """`train` with each seed: on a CPU side by side, a thread for each."""
    if torch.device(device).type != "cpu":
        return [train(scans, seed, steps, device) for seed in seeds]
    return on_threads(lambda seed: train(scans, seed, steps), seeds, threads=len(seeds))


# ---- kept for other experiments --------------------------------------------------------------------------------------


def trained_detector(seed: int = 0, steps: int = STEPS, folder: Path | str | None = FOLDER) -> Detector:
    """A detector trained on 60 synthetic patients on the CPU, in evaluation mode: seconds at first, then from results/.

    `folder=None` keeps nothing. A damaged file is made again.
    """
    path = None if folder is None else kept_at(seed, steps, folder)
    network = read_detector(path) if path is not None and path.is_file() else None
    if network is None:
        [(network, _)] = train_all(patients(range(TRAINING)), [seed], steps)
        if path is not None:
            keep(network, path)
    return network


def kept_at(seed: int, steps: int, folder: Path | str = FOLDER) -> Path:
    """The file of a detector: its name holds the parameters and a hash of the code, so that an old file is never used."""
    return Path(folder) / f"seed-{seed}-steps-{steps}-{code_hash()}.pt"


def keep(network: Detector, path: Path) -> None:
    """Write the weights, whole or not at all. Where nothing can be written, the next one who needs them trains again."""
    with contextlib.suppress(LabError):
        write_state(path, network.state_dict())


def read_detector(path: Path) -> Detector | None:
    """The detector in a file, or None if the file holds none."""
    network = Detector()
    try:
        network.load_state_dict(read_state(path))
    except (LabError, RuntimeError, TypeError, AttributeError):  # damaged, or the state of something else
        return None
    return network.eval()


def code_hash() -> str:
    """Eight digits that change with the code that makes, prepares and trains."""
    sources = [Path(module).read_bytes() for module in (ct.__file__, stages.__file__, prepared.__file__, __file__)]
    return hashlib.sha256(b"".join(sources)).hexdigest()[:8]
