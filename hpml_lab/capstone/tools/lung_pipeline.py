"""The pipeline from a folder of scans to detections, with one switch for each change that makes it faster.

    pipeline = LungPipeline(network, PipelineSwitches(components=True))
    for outcome in pipeline.run(paths, scans.load): outcome.detections

Without switches it is a researcher's first script (`slow_stages`). A clock sees each part: `timed(part)` of notebook 10's
PartClock, of core's SpanClock for a Gantt chart, or of none.
"""

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from hpml_lab import loading
from hpml_lab.capstone.lessons import slow_stages, stages
from hpml_lab.capstone.tools import patient_classifier
from hpml_lab.capstone.tools.ct import Scan
from hpml_lab.core.timing.timeline import NoClock

PARTS = ("read", "resample", "components", "closing", "patches", "network", "boxes", "patient")
BEFORE = PARTS[:5]  # before the network
BATCH = 16  # patches; on a GPU, which has more to do at once, GPU_BATCH
GPU_BATCH = 64


@dataclass(frozen=True)
class PipelineSwitches:
    """What is done the fast way. All off: the slow script."""

    components: bool = False  # one table of sizes for all components, instead of a comparison of the volume with each label
    transforms: bool = False  # closing by two distance transforms, instead of one pass with a ball of 925 voxels
    bytes: bool = False  # closing by squared distances in bytes, up to the radius only
    matrices: bool = False  # cubic splines by one matrix product along each axis, instead of a sum of 64 for each voxel
    on_device: bool = False  # that on the device, as DALI moves work to it (CUDA)
    linear: bool = False  # linear interpolation instead of cubic splines: another method
    windows: bool = False  # patches from a view of all windows, instead of a list
    candidates: bool = False  # all patches together in decoding, and one comparison with all candidates in merging
    batches: bool = False  # patches in batches through the network, instead of one by one
    folded: bool = False  # batch norm folded into the convolutions
    bfloat16: bool = False  # the network in the device's 16-bit type (autocast)
    channels_last: bool = False  # the network's memory format
    compiled: bool = False  # the network by torch.compile
    pinned: bool = False  # patches in page-locked memory, copied without waiting (CUDA)
    streams: bool = False  # the next patient's patches copied on a stream of their own (CUDA)
    ahead: int = 0  # how many patients a thread prepares ahead of the network; 0: no thread
    workers: int = 1  # threads that prepare patients
    whole: bool = False  # these threads take whole patients through all stages

    @property
    def method(self) -> "PipelineSwitches":
        """The switches without those that only say who does what when."""
        return replace(self, pinned=False, streams=False, ahead=0, workers=1, whole=False)

    def __str__(self) -> str:
        """The switches that are on, for the record of a run."""
        chosen = {name: value for name, value in vars(self).items() if value != getattr(PipelineSwitches, name)}
        return ", ".join(name if value is True else f"{name}={value}" for name, value in chosen.items()) or "slow"


# What the ladder leads to on a processor: nothing here changes a detection by more than rounding.
FAST = PipelineSwitches(
    components=True, transforms=True, bytes=True, matrices=True, windows=True, candidates=True, batches=True, ahead=1
)


@dataclass
class ReadyPatches:
    """What the network needs of a patient: patches (n, size, size, size), their first voxels, and what turns cells into mm."""

    patches: Tensor
    corners: np.ndarray
    mask: np.ndarray
    voxel: tuple[float, ...]


@dataclass
class PatientOutcome:
    """One patient on the way through the pipeline, and at its end: detections (n, 5) in mm, or the error and its stage.

    sick  whether the patient is, where the pipeline has a classifier
    """

    source: Any
    detections: np.ndarray | None = None
    sick: bool | None = None
    error: Exception | None = None
    stage: str = ""
    prepared: ReadyPatches | None = None

    def checked(self) -> np.ndarray:
        """The detections; raises the error if there is one."""
        if self.error is not None:
            raise self.error
        return self.detections


class LungPipeline:
    """From scans to detections, as the switches say. The network is copied, and the copy prepared for the device.

    classifier  says of detections whether the patient is sick (`patient_classifier.fit_patients`); without one nobody asks
    """

    def __init__(
        self,
        network: nn.Module,
        switches: PipelineSwitches | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.bfloat16,
        classifier: Any = None,
    ) -> None:
        self.switches, self.classifier = switches or PipelineSwitches(), classifier
        self.device, self.dtype = torch.device(device), dtype
        network = copy.deepcopy(network).eval()
        self.weights = {name: value.detach().cpu().numpy() for name, value in network.state_dict().items()}
        network = network.to(self.device)
        if self.switches.folded:
            fold_batch_norm(network)
        if self.switches.channels_last:
            network = network.to(memory_format=torch.channels_last_3d)
        self.network = torch.compile(network) if self.switches.compiled else network
        self._batch = GPU_BATCH if self.device.type == "cuda" else BATCH

    # ---- one patient -------------------------------------------------------------------------------------------------------

    def prepare(self, scan: Scan, clock: Any = None) -> ReadyPatches:
        """Everything before the network."""
        on, clock = self.switches, clock or NoClock()
        volume, mask = self.masked(scan, clock)
        with clock.timed("patches"):
            normalized = stages.normalize(volume, mask)
            patches, corners = (stages if on.windows else slow_stages).cut_patches(normalized)
            patches = torch.from_numpy(patches)
            if on.pinned:
                patches = patches.pin_memory()
        return ReadyPatches(patches, corners, mask, stages.voxel_size(scan.stored.shape, scan.spacing))

    def masked(self, scan: Scan, clock: Any) -> tuple[np.ndarray, np.ndarray]:
        """The volume in HU at 2 mm, and the closed mask of its lungs."""
        on = self.switches
        with clock.timed("resample"):
            volume = self._resampled(stages.hounsfield(scan), scan.spacing)
        with clock.timed("components"):
            mask = (stages if on.components else slow_stages).lungs(stages.checked(volume, "lung_mask") < stages.AIR_BELOW)
        with clock.timed("closing"):
            return volume, self._closing()(mask, stages.CLOSING)

    def _resampled(self, volume: np.ndarray, spacing: Sequence[float]) -> np.ndarray:
        on = self.switches
        if not (on.matrices or on.linear):
            return slow_stages.resample(volume, spacing)
        if not on.on_device:
            return stages.resample(volume, spacing, order=1 if on.linear else 3)
        by = stages.linear if on.linear else stages.cubic
        return by(torch.from_numpy(volume).to(self.device), stages.resampled_shape(volume.shape, spacing)).cpu().numpy()

    def _closing(self) -> Callable[[np.ndarray, int], np.ndarray]:
        if self.switches.bytes:
            return stages.closing
        return stages.closing_by_transforms if self.switches.transforms else slow_stages.closing

    def detect(self, prepared: ReadyPatches, clock: Any = None) -> np.ndarray:
        """The network, and what makes detections (n, 5) of its outputs: z, y, x, radius in mm, score."""
        on, clock = self.switches, clock or NoClock()
        with clock.timed("network"):
            outputs = self._outputs(prepared.patches)
        boxes = stages if on.candidates else slow_stages
        with clock.timed("boxes"):
            return boxes.merge(boxes.decode(outputs, prepared.corners, prepared.mask, prepared.voxel))

    def _outputs(self, patches: Tensor) -> np.ndarray:
        patches = patches.to(self.device, non_blocking=self.switches.pinned)[:, None].float()
        if self.switches.channels_last:
            patches = patches.contiguous(memory_format=torch.channels_last_3d)
        parts = patches.split(self._batch if self.switches.batches else 1)
        with torch.inference_mode(), torch.autocast(self.device.type, self.dtype, enabled=self.switches.bfloat16):
            outputs = [self.network(part).float() for part in parts]
        return torch.cat(outputs).cpu().numpy()

    # ---- many patients -----------------------------------------------------------------------------------------------------

    def run(self, sources: Iterable[Any], load: Callable[[Any], Scan], clock: Any = None) -> Iterator[PatientOutcome]:
        """One outcome a source, in order. An error ends its patient only; interruptions pass.

        load  (source) -> Scan; timed as "read"
        """
        on = self.switches

        def first(source: Any) -> PatientOutcome:
            return self._first_half(PatientOutcome(source), load, clock)

        def whole(source: Any) -> PatientOutcome:
            return self._second_half(first(source), clock)

        if on.whole and on.workers > 1:
            yield from loading.ThreadPrefetcher(sources, whole, threads=on.workers)
            return
        if on.ahead or on.workers > 1:
            halves = loading.ThreadPrefetcher(sources, first, threads=on.workers, depth=max(on.ahead, on.workers))
        else:
            halves = map(first, sources)
        if on.streams:
            halves = loading.DevicePrefetcher(halves, self.device)
        for outcome in halves:
            yield self._second_half(outcome, clock)

    def _first_half(self, outcome: PatientOutcome, load: Callable[[Any], Scan], clock: Any) -> PatientOutcome:
        watch = StageWatch(clock)
        try:
            with watch.timed("read"):
                scan = load(outcome.source)
            outcome.prepared = self.prepare(scan, watch)
        except Exception as error:  # one patient's: the others go on
            outcome.error, outcome.stage = error, watch.stage
        return outcome

    def _second_half(self, outcome: PatientOutcome, clock: Any) -> PatientOutcome:
        watch = StageWatch(clock)
        if outcome.error is None:
            try:
                outcome.detections = self.detect(outcome.prepared, watch)
                if self.classifier is not None:
                    with watch.timed("patient"):
                        [outcome.sick] = patient_classifier.classify_patients(self.classifier, [outcome.detections])
            except Exception as error:
                outcome.error, outcome.stage = error, watch.stage
        outcome.prepared = None  # its memory is free for the next patient
        return outcome


class StageWatch:
    """Passes each part on to a clock, and knows which one was entered last: where an error came from."""

    def __init__(self, clock: Any = None) -> None:
        self.stage, self._clock = "", clock or NoClock()

    def timed(self, part: str) -> contextlib.AbstractContextManager:
        self.stage = part
        return self._clock.timed(part)


def fold_batch_norm(network: nn.Module) -> None:
    """Fold each batch norm that follows a convolution into its weights, in place, for inference:
    W' = W · γ / √(σ² + ε), b' = β + (b − μ) · γ / √(σ² + ε)."""
    for module in list(network.modules()):
        children = list(module.named_children())
        for (name, layer), (next_name, following) in zip(children, children[1:], strict=False):
            if isinstance(layer, nn.Conv3d) and isinstance(following, nn.BatchNorm3d):
                setattr(module, name, fuse_conv_bn_eval(layer, following))
                setattr(module, next_name, nn.Identity())
