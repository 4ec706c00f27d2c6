"""Training the detector, and how good it is: FROC over seeds with an interval, nodules by size, and patients.

There are three groups of synthetic patients, and nobody is in two: the network is trained on the first, the classifier of
patients is fitted on the second, and all figures are from the third.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import ndimage

from hpml_lab.capstone.tools import ct, patient_classifier, prepared
from hpml_lab.capstone.lessons import detector, froc, stages
from hpml_lab.capstone.experiments.nodule_detector.figure import draw_froc, shown_patient
from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.timing.noise import wilson
from hpml_lab.core.timing.threads import on_threads

QUICK = dict(training=60, fitting=16, test=30, steps=100, seeds=2)
FULL = dict(training=60, fitting=100, test=300, steps=300, seeds=5)

FITTING_FROM, TEST_FROM = 10_000, 20_000  # the first seed of each group; training begins at 0
ACCEPTED = 1.0  # false positives per scan
MOST_FALSE = 8.0  # where the curve that is kept ends
ENOUGH = 0.8  # recall
SECONDS = 60.0
RADII = (3.0, 4.0, 5.0, 6.0, 7.0)  # mm
SEEDS = "the seeds of network and patients"


@dataclass
class TrainedSeed(Row):
    """One training: how many nodules of the test patients it finds, and how many patients are classified rightly."""

    seed: int = column("seed")
    few: float = column("recall at 1/8 false positives per scan")
    half: float = column("at 1/2")
    one: float = column("at 1")
    four: float = column("at 4")
    score: float = column("score at 1")
    accuracy: float = column("patients, accuracy")
    loss: float = column("loss, last 20 steps")
    false: list[float] = field(default_factory=list)  # the FROC curve: false positives per scan, and recall
    recall: list[float] = field(default_factory=list)


@dataclass
class NodulesOfSize(Row):
    """Nodules of the test patients with radii in a range, and how many the first seed's network finds at one false positive."""

    radius: str = column("radius", "mm")
    nodules: int = column("nodules")
    found: int = column("found")
    recall: float = column("recall")
    interval: str = column("95 % interval")
    low: float = 0.0
    high: float = 0.0


@dataclass
class FalsePositives(Row):
    """Detections that hit no nodule, of seed 0 in the test patients, at one false positive per scan."""

    where: str = column("where")
    count: int = column("false positives")


@dataclass
class TimeOfPart(Row):
    """Seconds of a part of the experiment, all seeds together."""

    part: str = column("part")
    seconds: float = column("time", "s")


# ---- measuring -------------------------------------------------------------------------------------------------------


def by_size(scans: Sequence[prepared.PreparedScan], found: Sequence[np.ndarray], score: float) -> list[NodulesOfSize]:
    """Nodules by radius, and those that detections of at least this score hit."""
    radii = np.concatenate([scan.nodules[:, 3] for scan in scans])
    certain = [ours[ours[:, 4] >= score] for ours in found]
    by_scan = zip([scan.nodules for scan in scans], certain, strict=True)
    hit = np.concatenate([np.isin(np.arange(len(nodules)), froc.hits(ours, nodules)) for nodules, ours in by_scan])
    rows = []
    for low, high in zip(RADII, RADII[1:], strict=False):
        here = (radii >= low) & (radii < high)
        if here.any():
            n, k = int(here.sum()), int(hit[here].sum())
            interval = wilson(k, n)
            words = f"{interval[0]:.2f} to {interval[1]:.2f}"
            rows.append(NodulesOfSize(f"{low:g} to {high:g}", n, k, k / n, words, *interval))
    return rows


def added_between(scan: ct.Scan) -> np.ndarray:
    """The tissue that closing adds between the lungs: what is in the closed mask of both, and of neither closed alone."""
    lungs = stages.lungs(stages.resample(stages.hounsfield(scan), scan.spacing) < stages.AIR_BELOW)
    labels, count = ndimage.label(lungs)
    alone = [stages.closing(labels == k) for k in range(1, count + 1)]
    return stages.closing(lungs) & ~np.any(alone, axis=0)


def false_between(
    scans: Sequence[prepared.PreparedScan], found: Sequence[np.ndarray], score: float, first_seed: int
) -> tuple[int, int]:
    """Of the false positives of at least this score: how many lie in tissue that closing adds between the lungs, and all."""
    wrong = {}
    for i, (scan, ours) in enumerate(zip(scans, found, strict=True)):
        certain = ours[ours[:, 4] >= score]
        if len(missed := certain[froc.hits(certain, scan.nodules) == froc.MISS, :3]):
            wrong[i] = np.rint(missed / scan.voxel).astype(int)
    masks = on_threads(lambda i: added_between(ct.synthetic(first_seed + i)), wrong)
    inside = [mask[tuple(np.minimum(at, np.array(mask.shape) - 1).T)] for mask, at in zip(masks, wrong.values(), strict=True)]
    return int(sum(part.sum() for part in inside)), sum(map(len, inside))


def evaluate(
    networks: Sequence[tuple[detector.Detector, list[float]]],
    fitting: Sequence[prepared.PreparedScan],
    test: Sequence[prepared.PreparedScan],
) -> tuple[list[TrainedSeed], list[froc.ScoredDetections], list[list[np.ndarray]], np.ndarray]:
    """Rows, scored detections, detections, and (seeds, patients) whether each patient is classified rightly."""
    rows, runs, found, right = [], [], [], []
    for seed, (network, losses) in enumerate(networks):
        ours = prepared.detect_all(network, test)
        run = froc.scored(ours, [scan.nodules for scan in test])
        classifier = patient_classifier.fit_patients(prepared.detect_all(network, fitting), [scan.sick for scan in fitting])
        says = patient_classifier.classify_patients(classifier, ours)
        right.append(says == np.array([scan.sick for scan in test]))
        recalls = [run.recall_at(rate) for rate in (1 / 8, 1 / 2, 1.0, 4.0)]
        false, recall = run.curve()
        kept = (np.diff(recall, prepend=-1) > 0) & (false <= MOST_FALSE)  # the corners of the curve
        rows.append(
            TrainedSeed(seed, *recalls, run.score_at(ACCEPTED), float(right[-1].mean()), float(np.mean(losses[-20:])),
                        false[kept].tolist(), recall[kept].tolist())
        )  # fmt: skip
        runs.append(run)
        found.append(ours)
    return rows, runs, found, np.array(right)


def judge(result: Result, params: Params, parts: dict[str, float], right: np.ndarray, base: float) -> None:
    """Add what the trainings show."""
    recall, low, high = result.arrays["recall"]
    accuracy, lowest, highest = result.arrays["accuracy"]
    rows = result.rows(TrainedSeed)
    result.measured(
        f"The detector finds at least {ENOUGH:.0%} of the nodules at one false positive per scan, in every seed",
        min(row.one for row in rows) >= ENOUGH,
        f"{', '.join(f'{row.one:.2f}' for row in rows)}; mean {recall:.2f}, {low:.2f} to {high:.2f}",
        depends_on=SEEDS,
    )
    prepare = parts["make and prepare the training patients"]
    result.measured(
        f"Making and preparing {params.training} patients and training a detector on them takes at most {SECONDS:g} s",
        prepare + parts["train"] / params.seeds <= SECONDS,
        f"{prepare + parts['train'] / params.seeds:.0f} s; {params.seeds} detectors {prepare + parts['train']:.0f} s",
    )
    sizes = result.rows(NodulesOfSize)
    result.measured(
        "Small nodules are missed more often than large ones",
        sizes[0].recall < sizes[-1].recall,
        ", ".join(f"{row.radius} mm: {row.found} of {row.nodules}" for row in sizes),
        depends_on=SEEDS,
    )
    result.measured(
        "Whether a patient is sick is answered better than by the more frequent answer",
        lowest > base,
        f"{accuracy:.2f}, {lowest:.2f} to {highest:.2f}; base rate {base:.2f}",
        depends_on=SEEDS,
    )


@experiment("nodule-detector", lecture="L1", notebook="19_capstone", draw=draw_froc, quick=QUICK, full=FULL)
def nodule_detector(params: Params) -> Result:
    """A 3-D network learns to find nodules in 60 patients: recall by false positives per scan, and patients by detections."""
    parts, start = {}, time.perf_counter()

    def took(part: str) -> None:
        nonlocal start
        now = time.perf_counter()
        parts[part], start = now - start, now

    training = prepared.patients(range(params.training))
    took("make and prepare the training patients")
    others = [*range(FITTING_FROM, FITTING_FROM + params.fitting), *range(TEST_FROM, TEST_FROM + params.test)]
    others = prepared.patients(others)
    fitting, test = others[: params.fitting], others[params.fitting :]
    took("make and prepare the other patients")
    networks = detector.train_all(training, range(params.seeds), params.steps, params.device.torch)
    took("train")
    if params.training == detector.TRAINING and params.device.torch.type == "cpu":
        detector.keep(networks[0][0], detector.kept_at(0, params.steps))  # others find it there: trained_detector()
    rows, runs, found, right = evaluate(networks, fitting, test)
    known = training[:20]
    seen = froc.scored(prepared.detect_all(networks[0][0], known), [scan.nodules for scan in known])
    took("detect")

    sick = float(np.mean([scan.sick for scan in test]))
    base = max(sick, 1 - sick)  # of always giving the more frequent answer
    nodules = sum(len(scan.nodules) for scan in test)
    title = f"{params.test} patients with {nodules} nodules, after {params.steps} steps on {params.training} other patients"
    between, false = false_between(test, found[0], rows[0].score, TEST_FROM)
    where = [FalsePositives("between the lungs", between), FalsePositives("in the lungs", false - between)]
    result = Result([
        Table(title, rows),
        Table("Seed 0, at one false positive per scan", by_size(test, found[0], rows[0].score)),
        Table("Where the time goes", [TimeOfPart(part, seconds) for part, seconds in parts.items()]),
        Table("False positives of seed 0", where),
    ])  # fmt: skip
    result.arrays |= {
        "recall": froc.recall_interval(runs, ACCEPTED),
        "band": [froc.recall_interval(runs, rate, 300)[1:] for rate in froc.RATES],
        "accuracy": froc.mean_interval(right),
        "shown": shown_patient(test, found[0], rows[0].score, TEST_FROM),
    }
    recall, low, high = result.arrays["recall"]
    result.key_figure("recall at one false positive per scan", round(recall, 3))
    result.key_figure("its 95 % interval over patients", f"{low:.3f} to {high:.3f}")
    accuracy, low, high = result.arrays["accuracy"]
    result.key_figure("accuracy of patients", round(accuracy, 3))
    result.key_figure("95 % interval of the accuracy", f"{low:.3f} to {high:.3f}")
    result.key_figure(f"recall on {len(known)} of its own training patients, seed 0", round(seen.recall_at(ACCEPTED), 3))
    result.key_figure("base rate of patients", round(base, 3))
    result.key_figure("time of one training", round(parts["train"] / params.seeds, 1), "s")
    result.key_figure("false positives between the lungs, seed 0", f"{between} of {false}")
    judge(result, params, parts, right, base)
    return result
