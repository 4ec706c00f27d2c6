"""Training on a patient, the lecture's 7' and 3': in sequence, and fast and overlapped; and a folder of patients on N ranks."""

import copy
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import Tensor, nn

from hpml_lab import loading
from hpml_lab.capstone.experiments.lung_nodule_pipeline.pipeline_changes import overlaps
from hpml_lab.capstone.lessons import stages
from hpml_lab.capstone.lessons.augmentation import augmented
from hpml_lab.capstone.lessons.detector import RATE, detection_loss, training_batch
from hpml_lab.capstone.tools import scans
from hpml_lab.capstone.tools.folder_run import run_on_ranks
from hpml_lab.capstone.tools.lung_pipeline import FAST, LungPipeline, PipelineSwitches
from hpml_lab.capstone.tools.prepared import PreparedScan
from hpml_lab.core.experiment import Params, Row, column
from hpml_lab.core.system.machine import cores
from hpml_lab.core.timing.ladder import gain_in_turns, in_turns
from hpml_lab.core.timing.noise import SpeedUp
from hpml_lab.core.timing.timeline import NoClock, SpanClock

TRAINING_PARTS = ("preprocessing", "augmentation", "forward", "backward")
IMAGE = "image"


@dataclass
class TrainingTime(Row):
    """What one training step on the patches of a patient takes. Overlapped parts add up to more than the whole."""

    version: str = column("version")
    preprocessing: float = column("preprocessing", "ms")
    augmentation: float = column("augmentation", "ms")
    forward: float = column("forward", "ms")
    backward: float = column("backward", "ms")
    image: float = column("an image", "ms")


@dataclass
class FolderRate(Row):
    """The same folder on so many ranks, each with the fast stages and every N-th patient."""

    ranks: int = column("ranks")
    patients: int = column("patients")
    seconds: float = column("slowest rank", "s")
    rate: float = column("patients/s")


class PatientTraining:
    """Trains a copy of the network, a step for each patient; with threads ahead where the switches overlap anything.

    params  `patches` of a patient make a step, with `edge` voxels along each edge
    """

    def __init__(self, network: nn.Module, switches: PipelineSwitches, params: Params) -> None:
        self.params, self.device, self.fast = params, params.device, overlaps(switches)
        self.pipeline = LungPipeline(network, switches, self.device.torch, self.device.dtype)
        layout = torch.channels_last_3d if self.fast else torch.contiguous_format
        self.network = copy.deepcopy(network).to(self.device.torch, memory_format=layout).train()
        self.optimizer = torch.optim.AdamW(self.network.parameters(), RATE)

    def batch(self, numbered: tuple[int, Path], clock: SpanClock) -> tuple[Tensor, Tensor]:
        number, path = numbered
        with clock.timed("preprocessing"):
            scan = scans.load(path)
            volume, mask = self.pipeline.masked(scan, NoClock())
            voxel = stages.voxel_size(scan.stored.shape, scan.spacing)
            ready = PreparedScan(scan.name, stages.normalize(volume, mask), mask, voxel, scan.nodules)
        with clock.timed("augmentation"):
            return training_batch([ready], np.random.default_rng(number), self.params.patches, self.params.edge, augmented)

    def step(self, patches: Tensor, targets: Tensor, clock: SpanClock) -> None:
        with clock.timed("forward"), torch.autocast(self.device.torch.type, torch.bfloat16, self.fast and self.device.is_cuda):
            outputs = self.network(patches.to(self.device.torch))
            loss = detection_loss(outputs.float(), targets.to(self.device.torch))
        with clock.timed("backward"):
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def sample(self, paths: Sequence[Path]) -> dict[str, float]:
        """Seconds a patient of each part, and of the whole."""
        clock = SpanClock(self.device.torch, awaited=("forward", "backward"))
        with clock.timed(IMAGE):
            batch, items = partial(self.batch, clock=clock), list(enumerate(paths))
            threads = max(1, cores() - 1)  # one core is left for the network
            for ready in loading.ThreadPrefetcher(items, batch, threads=threads) if self.fast else map(batch, items):
                self.step(*ready, clock)
        return {part: seconds / len(paths) for part, seconds in clock.seconds.items()}


def trained_in_turns(
    slow: PatientTraining, fast: PatientTraining, paths: Sequence[Path], turns: int
) -> tuple[list[TrainingTime], SpeedUp]:
    """Both in turns on the same patients, and how many times as fast the second is."""
    fast.sample(paths[:1])
    works = (partial(version.sample, paths) for version in (slow, fast))
    found = in_turns(*works, turns=turns, seconds=lambda sample: sample[IMAGE])
    rows = [
        TrainingTime(version, *(1e3 * median(sample[part] for sample in samples) for part in (*TRAINING_PARTS, IMAGE)))
        for version, samples in zip(("first script", "fast, overlapped" if fast.fast else "fast"), found, strict=True)
    ]
    return rows, gain_in_turns(*([sample[IMAGE] for sample in samples] for samples in found))


def folder_on_ranks(network: nn.Module, paths: Sequence[Path], folder: Path, params: Params) -> list[FolderRate]:
    """A folder with copies of the patients, on each number of ranks once, without their start; on GPUs if each has its own."""
    rows, count = [], params.folder
    device = params.device.torch.type if torch.cuda.device_count() >= max(params.ranks, default=0) else "cpu"
    (folder / "copies").mkdir()
    for number in range(count):
        shutil.copy(paths[number % len(paths)], folder / "copies" / f"copy-{number:03}.npz")
    for several in params.ranks:
        report = run_on_ranks(folder / "copies", folder / f"on-{several}", network, FAST.method, ranks=several, device=device)
        rows.append(FolderRate(several, count, report.seconds, count / report.seconds))
    return rows
