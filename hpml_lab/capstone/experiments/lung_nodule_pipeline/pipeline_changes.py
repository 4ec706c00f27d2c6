"""The changes of the ladder: the part that each attacks, and what the detections may differ by after it."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hpml_lab.capstone.lessons.stages import CERTAIN
from hpml_lab.capstone.tools.lung_pipeline import BEFORE, PARTS, PipelineSwitches
from hpml_lab.core.system.device import Device
from hpml_lab.core.system.machine import cores
from hpml_lab.core.timing.ladder import Change

# What the detections of two rungs may differ by: mm in position and radius, and score.
# EQUAL: every operation on every voxel stays, or is exact. ROUNDED: float32 for float64, or sums in another order.
# METHOD: another method, declared as such; it has no bound, and is validated instead.
EQUAL, ROUNDED, METHOD = (0.0, 0.0), (1e-3, 1e-3), (float("inf"), float("inf"))
KINDS = {EQUAL: "bitwise", ROUNDED: "rounding", METHOD: "another method"}
PREPARATION, NETWORK, CORES = "preparation lane", "network lane", "idle cores"  # what is attacked once stages overlap
LANES = {PREPARATION: BEFORE, NETWORK: tuple(part for part in PARTS if part not in BEFORE)}


@dataclass(frozen=True)
class PipelineChange(Change):
    """A change of the pipeline; `bound` is what detections may differ by after it.

    needs    "cuda", "half" (16 bits in hardware), "compile" or "cores"
    values   the switches that it sets, where these are not its own alone
    overlap  it is for a pipeline whose stages overlap already
    """

    values: dict[str, Any] = field(default_factory=dict)
    overlap: bool = False

    @property
    def declared(self) -> bool:
        """Whether it is another method: tried once no other change is left."""
        return self.bound == METHOD

    def suits(self, switches: PipelineSwitches) -> bool:
        """Whether it adds to these switches: threads that prepare patients add nothing to threads with whole ones."""
        return not (switches.whole and self.switch in ("ahead", "workers", "streams"))

    def applied(self, switches: PipelineSwitches) -> PipelineSwitches:
        return replace(switches, **(self.values or {self.switch: True}))


AHEAD = PipelineChange(
    "ahead", CORES, "a thread prepares the next patient during this one's network", EQUAL, values={"ahead": 1}, overlap=True
)
CHANGES = (
    PipelineChange("transforms", "closing", "two distance transforms, not one pass with a ball", EQUAL),
    PipelineChange("bytes", "closing", "squared distances in bytes, up to the radius only", EQUAL, on="transforms"),
    PipelineChange("matrices", "resample", "cubic splines as one matrix along each axis", ROUNDED),
    PipelineChange("on_device", "resample", "on the GPU", ROUNDED, needs="cuda", on="matrices"),
    PipelineChange("components", "components", "one table of sizes, not a search for each component", EQUAL),
    PipelineChange("windows", "patches", "a view of all windows, not a list of copies", EQUAL),
    PipelineChange("candidates", "boxes", "all candidates together, not one by one", ROUNDED),
    PipelineChange("batches", "network", "patches in batches, not one by one", ROUNDED),
    PipelineChange("folded", "network", "batch norm folded into the convolutions", ROUNDED),
    PipelineChange("channels_last", "network", "channels_last_3d", ROUNDED, needs="cuda", on="batches"),
    PipelineChange("pinned", "network", "page-locked patches, copied without waiting", EQUAL, needs="cuda", on="batches"),
    AHEAD,
    PipelineChange("compiled", NETWORK, "torch.compile", ROUNDED, needs="compile", overlap=True),
    PipelineChange("streams", NETWORK, "the next patches on another stream", EQUAL, needs="cuda", on="pinned", overlap=True),
    PipelineChange("workers", PREPARATION, "several threads prepare patients", EQUAL, needs="cores", overlap=True),
    PipelineChange("whole", CORES, "a thread a core, each with whole patients", EQUAL, needs="cores", overlap=True),
    PipelineChange("linear", PREPARATION, "linear interpolation, not cubic splines", METHOD, overlap=True),
    PipelineChange("bfloat16", NETWORK, "the network in 16 bits (AMP)", METHOD, needs="half", overlap=True),
)


# The first script with all changes that keep every voxel: its detections, bitwise, in a third of its time.
SAME_BITS = PipelineSwitches(
    **{change.switch: True for change in CHANGES if change.bound == EQUAL and not (change.needs or change.overlap)}
)


def applicable(device: Device, compile: bool) -> list[PipelineChange]:
    """The changes that mean something on this machine, with the numbers of threads for its cores."""
    found = []
    for change in CHANGES:
        if change.switch == "workers":  # one core is left for the network
            change = replace(change, values={"ahead": 1, "workers": min(cores() - 1, 8)})
            fits = cores() >= 3
        elif change.switch == "whole":
            change = replace(change, values={"ahead": 0, "workers": cores(), "whole": True})
            fits = cores() >= 2 and not device.is_cuda
        else:
            fits = {"": True, "cuda": device.is_cuda, "half": device.dtype.itemsize == 2, "compile": compile}[change.needs]
        if fits:
            found.append(change)
    return found


def next_change(profile: dict[str, float], left: Iterable[PipelineChange], switches: PipelineSwitches) -> PipelineChange | None:
    """The first change of the largest part that has one left; None where none is left.

    In sequence the parts add up, and the largest part of the sum comes first. Once a thread works ahead, the longer of two
    lanes decides: what is done before the network, or the network; then what keeps idle cores busy.
    """
    left = [change for change in left if not change.on or getattr(switches, change.on)]
    if not overlaps(switches):
        for part in sorted(PARTS, key=lambda part: -profile[part]):
            for change in left:
                if change.part == part and not change.overlap:
                    return change
        if AHEAD in left:
            return AHEAD
    lanes = sorted(LANES, key=lambda lane: -lane_seconds(profile, lane))
    for declared in (False, True):
        for part in (*lanes, CORES):
            for change in left:
                if change.part == part and change.overlap and change.declared == declared and change.suits(switches):
                    return change
    return None


def overlaps(switches: PipelineSwitches) -> bool:
    """Whether stages of several patients go on at the same time."""
    return bool(switches.ahead) or switches.workers > 1


def lane_seconds(profile: dict[str, float], lane: str) -> float:
    """What a lane takes of a profile: all parts before the network, or the network and the boxes."""
    return sum(profile.get(part, 0.0) for part in LANES[lane])


def difference_of(before: Iterable[np.ndarray], after: Iterable[np.ndarray]) -> tuple[float, float]:
    """The largest difference of two runs' detections: mm in position and radius, and score. (0, 0) only where all are equal.

    Each detection is compared with the nearest one of the other run; inf where there is none. One whose score is at the least
    score that counts may be in one run only, and then differs by what its score is above that.
    """
    position = score = 0.0
    for a, b in zip(before, after, strict=True):
        if np.array_equal(a, b):
            continue
        for these, those in ((a, b), (b, a)):
            for row in these:
                distances = np.linalg.norm(those[:, :3] - row[:3], axis=1) if len(those) else np.array([np.inf])
                nearest = int(distances.argmin())
                if distances[nearest] > 1.0 and row[4] - CERTAIN < ROUNDED[1]:
                    score = max(score, float(row[4] - CERTAIN))
                    continue
                if not np.isfinite(distances[nearest]):
                    return float("inf"), float("inf")
                apart = np.abs(those[nearest] - row)
                position, score = max(position, float(apart[:4].max())), max(score, float(apart[4]))
        if position == score == 0.0:
            return float("inf"), float("inf")  # equal values in another order or number
    return position, score
