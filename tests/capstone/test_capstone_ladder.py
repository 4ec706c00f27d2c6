"""The ladder from the slow script to the fast pipeline: the arithmetic, the changes, the climb, and what it may import."""

import ast
import importlib.util
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import hpml_lab
from hpml_lab.capstone.experiments.lung_nodule_pipeline import LINEAR, TOTAL, lung_nodule_pipeline
from hpml_lab.capstone.experiments.lung_nodule_pipeline.figure import stages_before_and_after, use_before_and_after
from hpml_lab.capstone.experiments.lung_nodule_pipeline.patient_training import (
    IMAGE,
    TRAINING_PARTS,
    FolderRate,
    PatientTraining,
    TrainingTime,
    folder_on_ranks,
)
from hpml_lab.capstone.experiments.lung_nodule_pipeline.pipeline_changes import (
    AHEAD,
    CHANGES,
    CORES,
    EQUAL,
    LANES,
    METHOD,
    NETWORK,
    PREPARATION,
    ROUNDED,
    SAME_BITS,
    applicable,
    difference_of,
    next_change,
)
from hpml_lab.capstone.experiments.lung_nodule_pipeline.pipeline_ladder import (
    MachineUse,
    PipelineRung,
    Validated,
    Validation,
    good_enough,
    same_method,
)
from hpml_lab.capstone.experiments.lung_nodule_pipeline.rows import LungRung, LungSlowStart, NextToTheLecture, found_by
from hpml_lab.capstone.lessons import overlap_arithmetic as arithmetic
from hpml_lab.capstone.lessons import slow_stages
from hpml_lab.capstone.lessons.detector import Detector
from hpml_lab.capstone.tools import patient_classifier, scans
from hpml_lab.capstone.tools.ct import synthetic
from hpml_lab.capstone.tools.lung_pipeline import (
    BEFORE,
    FAST,
    PARTS,
    LungPipeline,
    PipelineSwitches,
    StageWatch,
    fold_batch_norm,
)
from hpml_lab.core.system.device import choose_device
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.timing.noise import SpeedUp
from hpml_lab.core.timing.threads import one_thread
from hpml_lab.core.timing.timeline import SpanClock

TOPICS = ("loading", "profiling", "tuning", "precision", "distributed")
SMALL = dict(shape=(28, 112, 112), spacing=(2.5, 1.6, 1.6))
BY_NAME = {change.switch: change for change in CHANGES}


# ---- what the capstone may use ---------------------------------------------------------------------------------------


def imported(path):
    """Names that a module imports from the package, in full."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):  # importlib, lazy front doors
            if node.value.startswith("hpml_lab.") and " " not in node.value:
                yield node.value


def beyond_a_front_door(names):
    """Those that reach into a topic, past its front door, and those of topics that the capstone has no use for."""
    topics = {path.name for path in Path(hpml_lab.__file__).parent.iterdir() if (path / "experiments").is_dir()} - {"capstone"}
    found = []
    for name in names:
        root, _, rest = name.partition(".")
        topic, _, inner = rest.partition(".")
        if root == "hpml_lab" and topic in topics:
            offered = importlib.import_module(f"hpml_lab.{topic}").__all__ if topic in TOPICS else ()
            if topic not in TOPICS or (inner and inner not in offered):
                found.append(name)
    return found


def test_the_capstone_uses_notebooks_08_to_12_by_their_front_doors_only():
    paths = sorted((Path(hpml_lab.__file__).parent / "capstone").rglob("*.py"))
    assert len(paths) > 10
    for path in paths:
        assert beyond_a_front_door(imported(path)) == [], path.name
    used = {name.split(".")[1] for path in paths for name in imported(path) if name.startswith("hpml_lab.")}
    assert {"loading", "profiling", "distributed"} <= used


def test_a_way_past_a_front_door_is_seen(tmp_path):
    module = tmp_path / "module.py"
    module.write_text(
        "from hpml_lab import loading\nfrom hpml_lab.profiling import PartClock\n"
        "from hpml_lab.core.timing.noise import speed_up\n"
        "import hpml_lab.loading.lessons\nfrom hpml_lab.profiling.monitor import Monitor\nfrom hpml_lab.descent import x\n"
        "from hpml_lab.tuning import turns\nlazy = 'hpml_lab.distributed.lessons.ring'\n"
    )
    assert beyond_a_front_door(imported(module)) == [
        "hpml_lab.loading.lessons",
        "hpml_lab.profiling.monitor.Monitor",
        "hpml_lab.descent.x",
        "hpml_lab.tuning.turns",
        "hpml_lab.distributed.lessons.ring",
    ]


# ---- arithmetic ------------------------------------------------------------------------------------------------------


def test_the_lectures_minutes():
    """3' + 1' = 4' in sequence; overlapped 3', a faster network or twice the GPUs gain nothing; three workers balance it."""
    minutes = {"preprocessing": 3, "network": 1}
    assert arithmetic.sequential_time([3, 1]) == 4 and arithmetic.sequential_time([3, 1, 3]) == 7
    assert [arithmetic.time_per_item(minutes, {"preprocessing": k}) for k in (1, 2, 3, 4)] == [3, Fraction(3, 2), 1, 1]
    assert arithmetic.time_per_item(minutes, {"network": 2}) == arithmetic.time_per_item(minutes | {"network": 0}) == 3
    assert arithmetic.time_per_item(minutes, {"preprocessing": 6, "network": 2}) == Fraction(1, 2)
    times = [Fraction(18, 100), Fraction(5, 100), Fraction(1, 100)]
    assert (arithmetic.sequential_time(times, 50), arithmetic.overlapped_time(times, 50)) == (12, Fraction(906, 100))


@pytest.mark.parametrize("times, items", [((3, 1), 5), ((1, 3), 7), ((2, 5, 2, 5), 4), ((4,), 3), ((0, 7, 1), 6), ((3, 1), 1)])
def test_an_overlapped_chain_ends_when_its_schedule_does(times, items):
    free, arrived = [0] * len(times), [0] * items
    for stage, seconds in enumerate(times):
        for item in range(items):
            free[stage] = arrived[item] = max(arrived[item], free[stage]) + seconds
    assert arithmetic.overlapped_time(times, items) == arrived[-1]


def test_arithmetic_refuses_what_is_no_time():
    for bad in ([], [-1], [float("nan")], [float("inf")]):
        with pytest.raises(LabError):
            arithmetic.sequential_time(bad)
    for workers in ({"gpu": 2}, {"network": 0}, {"network": 1.5}, {"network": True}):
        with pytest.raises(LabError):
            arithmetic.time_per_item({"network": 1}, workers)


# ---- the pipeline and its switches -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def network():
    """Untrained, and so that some cells of a chest are candidates."""
    torch.manual_seed(3)
    made = Detector().eval()
    with torch.no_grad():
        made.head.bias[0] = -3.15
        for norm in (module for module in made.modules() if isinstance(module, nn.BatchNorm3d)):
            norm.running_mean.normal_(0, 0.05)
            norm.running_var.uniform_(0.05, 0.2)
    return made


@pytest.fixture(scope="module")
def chest():
    return synthetic(1000, **SMALL, sick=True)


@pytest.fixture(scope="module")
def detected(network, chest):
    """(switches) -> detections, each pipeline run once."""
    found = {}

    @one_thread()
    def detect(**on):
        switches = PipelineSwitches(**on)
        if switches not in found:
            made = LungPipeline(network, switches)
            found[switches] = made.detect(made.prepare(chest))
        return found[switches]

    return detect


# The network in batches and the fast masks: what is compared does not have to wait for the slowest parts.
QUICKER = dict(transforms=True, bytes=True, batches=True)

ON_A_CPU = [change.switch for change in CHANGES if not change.overlap and not change.needs and change.switch != "bytes"]


@pytest.mark.parametrize("switch", [*ON_A_CPU, "linear"])
def test_a_change_alters_detections_by_no_more_than_it_promises(switch, detected):
    before = {name: True for name in QUICKER if name != switch}
    if switch == "transforms":
        before = {name: True for name in QUICKER if name not in ("transforms", "bytes")}
    slow, fast = detected(**before), detected(**before | {switch: True})
    off = difference_of([slow], [fast])
    assert len(slow) > 5
    bound = BY_NAME[switch].bound
    assert off[0] <= bound[0] and off[1] <= bound[1]
    assert (bound != METHOD) or off > ROUNDED, "another method, and seen as one"


def test_without_switches_the_pipeline_is_the_first_script(network, chest, detected):
    with one_thread():
        assert np.array_equal(slow_stages.find_nodules(chest, network), detected())


def test_what_the_first_script_finds_is_found_sooner_with_all_changes_that_keep_every_bit(detected):
    assert str(SAME_BITS) == "components, transforms, bytes, windows"
    assert np.array_equal(detected(), detected(**{name: on for name, on in vars(SAME_BITS).items() if on is True}))


def test_a_classifier_answers_for_the_patient_last(network, chest):
    found = [np.array([[0.0, 0, 0, 4, 0.9]]), np.zeros((0, 5))]
    classifier = patient_classifier.fit_patients(found * 3, [True, False] * 3)
    clock = SpanClock()
    [outcome] = LungPipeline(network, FAST.method, classifier=classifier).run([chest], lambda scan: scan, clock)
    assert outcome.sick in (True, False) and clock.spans[-1].what == "patient"
    [outcome] = LungPipeline(network, FAST.method).run([chest], lambda scan: scan)
    assert outcome.sick is None


def test_closing_in_bytes_is_bitwise_the_ball(detected):
    before = {name: True for name in QUICKER if name not in ("transforms", "bytes")}
    assert np.array_equal(detected(**before), detected(**QUICKER))


def test_compiling_and_16_bits_only_change_the_network(network, chest):
    made = LungPipeline(network, PipelineSwitches(**QUICKER, matrices=True, bfloat16=True))
    prepared = made.prepare(chest)
    half = made._outputs(prepared.patches)
    whole = LungPipeline(network, PipelineSwitches(**QUICKER))._outputs(prepared.patches)
    assert half.dtype == whole.dtype == np.float32
    assert 0 < np.abs(half - whole).max() < 0.5


def test_folding_leaves_no_batch_norm_and_the_same_outputs(network):
    import copy

    folded = copy.deepcopy(network)
    fold_batch_norm(folded)
    assert not any(isinstance(module, nn.BatchNorm3d) for module in folded.modules())
    patches = torch.rand(2, 1, 32, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(folded(patches), network(patches), atol=1e-5, rtol=1e-5)
    before = copy.deepcopy(network.state_dict())
    LungPipeline(network, PipelineSwitches(folded=True, channels_last=True))
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items()), "the pipeline has a copy"


def test_switches_name_what_is_on_and_what_is_method():
    switches = PipelineSwitches(linear=True, ahead=2, workers=3, whole=True, streams=True)
    assert str(switches) == "linear, streams, ahead=2, workers=3, whole" and str(PipelineSwitches()) == "slow"
    assert switches.method == PipelineSwitches(linear=True)
    assert {change.switch for change in CHANGES} == {field.name for field in fields(PipelineSwitches)}, "a change for each"


def test_clocks_see_every_part_and_a_watch_knows_the_last(network, chest, tmp_path):
    path = scans.save(chest, tmp_path)
    fast = PipelineSwitches(**QUICKER, matrices=True, candidates=True, ahead=1)
    clock = SpanClock()
    [outcome] = LungPipeline(network, fast).run([path], scans.load, clock)
    assert tuple(span.what for span in clock.spans) == PARTS[:-1], "nobody asks for the patient"
    lanes = {span.what: span.lane for span in clock.spans}
    assert {lanes[part] for part in BEFORE} == {"thread 0"} and lanes["network"] == lanes["boxes"] == "main"
    assert len(outcome.checked())
    watch = StageWatch(clock)
    with pytest.raises(ValueError), watch.timed("read"), watch.timed("closing"):
        raise ValueError
    assert watch.stage == "closing" and len(clock.spans) == len(PARTS) + 1


# ---- the ladder ------------------------------------------------------------------------------------------------------

PROFILE = dict.fromkeys(PARTS, 0.001)


def test_the_largest_part_with_a_change_left_is_next():
    profile = PROFILE | {"closing": 0.5, "network": 0.3, "resample": 0.2}
    left, switches = list(CHANGES), PipelineSwitches()
    order = []
    for _ in range(4):
        change = next_change(profile, left, switches)
        order.append(change.switch)
        left.remove(change)
        switches = change.applied(switches)
    assert order == ["transforms", "bytes", "batches", "folded"]
    assert next_change(PROFILE | {"boxes": 1.0}, left, switches).switch == "candidates"
    assert next_change(profile, [BY_NAME["bytes"]], PipelineSwitches()) is None, "what it builds on is off"


def test_once_stages_overlap_the_longer_lane_decides_and_other_methods_come_last():
    left = [change for change in CHANGES if change.overlap]
    switches = PipelineSwitches(batches=True, pinned=True)
    assert next_change(PROFILE, left, switches) is AHEAD
    left.remove(AHEAD)
    ahead = AHEAD.applied(switches)
    assert ahead.ahead == 1
    assert next_change(PROFILE | {"closing": 0.1, "network": 0.06}, left, ahead).switch == "workers"
    assert next_change(PROFILE | {"closing": 0.04, "network": 0.06}, left, ahead).switch == "compiled"
    few = [BY_NAME["bfloat16"], BY_NAME["whole"], BY_NAME["workers"]]
    assert next_change(PROFILE | {"network": 0.06}, few, ahead).switch == "workers"
    whole = replace(ahead, ahead=0, workers=2, whole=True)
    assert next_change(PROFILE, few[:1] + few[2:], whole).switch == "bfloat16", "whole patients need no thread that prepares"
    assert next_change(PROFILE, few[2:], whole) is None


def test_a_rejected_thread_ahead_does_not_end_the_climb():
    left = [BY_NAME["whole"], BY_NAME["bfloat16"]]
    switches = PipelineSwitches(batches=True)
    assert [next_change(PROFILE, left[i:], switches).switch for i in (0, 1)] == ["whole", "bfloat16"]


def test_changes_for_a_gpu_and_a_compiler_are_left_out_where_there_is_none(monkeypatch):
    cpu = choose_device("cpu")
    names = {change.switch for change in applicable(cpu, compile=False)}
    assert not names & {"pinned", "streams", "on_device", "channels_last", "compiled"}
    assert "compiled" in {change.switch for change in applicable(cpu, compile=True)}
    assert ("bfloat16" in names) == (cpu.dtype.itemsize == 2)
    monkeypatch.setattr("hpml_lab.capstone.experiments.lung_nodule_pipeline.pipeline_changes.cores", lambda: 1)
    assert not {change.switch for change in applicable(cpu, False)} & {"whole", "workers"}
    monkeypatch.setattr("hpml_lab.capstone.experiments.lung_nodule_pipeline.pipeline_changes.cores", lambda: 12)
    found = {change.switch: change for change in applicable(cpu, False)}
    assert found["workers"].applied(PipelineSwitches()).workers == 8
    assert found["whole"].applied(PipelineSwitches(ahead=1)) == PipelineSwitches(workers=12, whole=True)


def rung(switch, gain=None, difference=(0.0, 0.0), detections=(), validated=None, **profile):
    change = BY_NAME[switch] if switch else None
    return PipelineRung(change, PipelineSwitches(), PROFILE | profile, 1.0, gain, None, list(detections), difference, validated)


def looked_at(found, false, passed=True):
    return Validated("linear", 10, 20, found, found / 20, false, false / 10, 8, passed)


def test_a_change_is_kept_if_the_whole_is_faster_beyond_noise_and_detections_are_as_promised():
    faster, noise = SpeedUp(1.5, 1.4, 1.6, 0.02), SpeedUp(1.1, 0.95, 1.2, 0.1)
    assert rung(None).kept and rung("windows", faster).kept and rung("batches", faster, (9e-4, 9e-4)).kept
    assert not rung("windows", noise).kept
    assert not rung("windows", faster, (1e-12, 0.0)).kept, "bitwise is bitwise"
    assert not rung("batches", faster, (2e-3, 0.0)).kept and not rung("batches", faster, (0.0, 2e-3)).kept
    assert not rung("windows", SpeedUp(0.8, 0.7, 0.9, 0.02)).kept


@pytest.mark.parametrize("switch", ["linear", "bfloat16"])
def test_another_method_is_kept_if_it_is_faster_and_passes_the_same_validation(switch):
    faster, noise = SpeedUp(1.5, 1.4, 1.6, 0.02), SpeedUp(1.1, 0.95, 1.2, 0.1)
    assert rung(switch, faster, (30.0, 0.5), validated=looked_at(19, 10)).kept
    assert not rung(switch, faster, (1e-9, 0.0), validated=looked_at(10, 10, passed=False)).kept
    assert not rung(switch, noise, validated=looked_at(19, 10)).kept
    assert not rung(switch, faster).kept, "nobody has looked"


def test_good_enough_is_95_percent_of_the_nodules_and_10_percent_more_false_positives():
    before = looked_at(20, 20)
    assert good_enough(before, 19, 22) and good_enough(before, 20, 0)
    assert not good_enough(before, 18, 0) and not good_enough(before, 20, 23)


def test_the_threshold_and_the_classifier_come_from_other_patients_than_the_count(network):
    chests = [synthetic(seed, **SMALL, sick=seed % 2 == 0) for seed in range(2000, 2006)]
    validate = Validation(lambda: LungPipeline(network, FAST.method), chests[:4], chests[4:])
    assert validate.before.scans == 2 and validate.before.nodules == sum(len(scan.nodules) for scan in chests[4:])
    again = validate("again", LungPipeline(network, FAST.method))
    assert again == replace(validate.before, version="again") and again.passed


DETECTIONS = np.array([[10.0, 20.0, 30.0, 4.0, 0.9], [50.0, 20.0, 30.0, 3.0, 0.4]])


def test_differences_compare_each_detection_with_the_nearest():
    moved = DETECTIONS + np.array([1e-4, 0, 0, -3e-4, 2e-5])
    assert difference_of([DETECTIONS], [DETECTIONS.copy()]) == (0.0, 0.0)
    assert difference_of([DETECTIONS], [moved]) == pytest.approx((3e-4, 2e-5))
    assert difference_of([DETECTIONS], [moved[::-1]]) == pytest.approx((3e-4, 2e-5)), "order is no difference in mm"
    assert difference_of([DETECTIONS], [DETECTIONS[::-1]]) > EQUAL, "but not bitwise the same"
    assert difference_of([DETECTIONS], [DETECTIONS[:1]])[0] == pytest.approx(40.0)
    assert difference_of([DETECTIONS], [np.zeros((0, 5))]) == (float("inf"),) * 2
    border = np.vstack([DETECTIONS, [90.0, 20.0, 30.0, 3.0, 0.0504]])
    assert difference_of([DETECTIONS], [border]) == pytest.approx((0.0, 4e-4)), "at the least score that counts"
    assert difference_of([DETECTIONS, DETECTIONS], [DETECTIONS, moved]) == pytest.approx((3e-4, 2e-5))


def test_the_same_method_ends_where_a_declared_change_was_kept():
    gain = SpeedUp(2.0, 1.9, 2.1, 0.01)
    rungs = [rung(None), rung("batches", gain), rung("windows", SpeedUp(1.0, 0.9, 1.1, 0.2)), rung("linear", gain, METHOD,
             validated=looked_at(20, 20))]  # fmt: skip
    assert rungs[-1].kept and same_method(rungs) is rungs[1]


def test_a_rung_says_how_it_was_found():
    below = rung(None, closing=0.5, network=0.3)
    assert found_by(below, "closing").endswith("largest") and found_by(below, "network").endswith("number 2")
    assert "preparation" in found_by(below, NETWORK) and "idle" in found_by(below, CORES)
    assert set(LANES) == {NETWORK, PREPARATION} and BY_NAME["bfloat16"].declared and BY_NAME["linear"].declared


# ---- the experiment --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def climbed(ran):
    return ran("lung-nodule-pipeline")


def test_the_ladder_is_sound_and_ends_with_unchanged_detections(climbed, sound):
    sound(climbed)
    rows = climbed.rows(LungRung)
    slow = climbed.rows(LungSlowStart)[0]
    assert rows[0].found_by.startswith(slow.largest) and rows[0].found_by.endswith("largest"), "found in the profile"
    needing_nothing = {change.switch for change in CHANGES if not (change.on or change.needs)}
    assert {row.name for row in rows} >= needing_nothing, "each change is tried, whatever was kept before"
    assert all(row.same for row in rows if row.promised in ("bitwise", "rounding"))
    assert climbed.here(TOTAL) > 0 and climbed.here(LINEAR) > 0
    assert [row.version for row in climbed.rows(Validated)][:3] == ["first script", "same method", "linear"]
    assert climbed.rows(NextToTheLecture)[2].lecture_before == "10 ms" and climbed.here("the patient, scikit-learn") > 0
    assert len(climbed.claims) <= 6
    slow, fast = climbed.rows(TrainingTime)
    assert slow.image > max(getattr(slow, part) for part in TRAINING_PARTS) and fast.image > 0, "medians of turns"
    assert climbed.rows(NextToTheLecture)[4].before != "–" and climbed.here("training an image, first script / fast") > 0
    assert {figure.lecture for figure in climbed.key_figures} >= {2.33, 4, 10, 40}


def test_in_sequence_the_parts_of_a_training_step_add_up(network, chest, tmp_path):
    params = SimpleNamespace(edge=24, patches=2, device=choose_device("cpu"))
    seconds = PatientTraining(network, PipelineSwitches(), params).sample([scans.save(chest, tmp_path)])
    assert seconds.keys() == {*TRAINING_PARTS, IMAGE} and min(seconds.values()) > 0
    assert sum(seconds[part] for part in TRAINING_PARTS) <= seconds[IMAGE]


def test_a_folder_is_timed_on_each_number_of_ranks_without_their_start(network, chest, tmp_path, monkeypatch):
    path, asked = scans.save(chest, tmp_path / "scans"), []

    def on_ranks(folder, results, network, switches, *, ranks, device):
        asked.append((len(scans.find_scans(folder)), ranks, results, device))
        return SimpleNamespace(seconds=6.0 / ranks)

    monkeypatch.setattr("hpml_lab.capstone.experiments.lung_nodule_pipeline.patient_training.run_on_ranks", on_ranks)
    params = SimpleNamespace(ranks=(1, 2), folder=3, device=choose_device("cpu"))
    assert folder_on_ranks(network, [path], tmp_path, params) == [FolderRate(1, 3, 6.0, 0.5), FolderRate(2, 3, 3.0, 1.0)]
    assert [(count, ranks) for count, ranks, *_ in asked] == [(3, 1), (3, 2)] and asked[0][2] != asked[1][2]
    params.device = SimpleNamespace(torch=torch.device("cuda"))
    for gpus, device in ((1, "cpu"), (2, "cuda")):
        monkeypatch.setattr(torch.cuda, "device_count", lambda gpus=gpus: gpus)
        asked.clear()
        (folder := tmp_path / f"{gpus} GPUs").mkdir()
        folder_on_ranks(network, [path], folder, params)
        assert {row[3] for row in asked} == {device}, "NCCL refuses two ranks on one GPU"


def test_the_further_figures_draw_both_versions(climbed):
    slow, fast = climbed.rows(MachineUse)
    assert {row["what"] for row in slow.spans} == set(PARTS) == {row["what"] for row in fast.spans}
    assert slow.points and fast.points and slow.gpu_percent is None
    charts = stages_before_and_after(climbed).figure
    assert len(charts.axes) == 2 and all(axes.patches for axes in charts.axes)
    assert len(use_before_and_after(climbed).figure.axes[1].patches) == 8


def test_notes_say_what_was_not_tried(climbed):
    notes = " ".join(climbed.notes)
    assert "pinned, streams" in notes and "compiled was not tried" in notes


def test_sizes_have_the_same_parameters():
    assert set(lung_nodule_pipeline.quick) == set(lung_nodule_pipeline.full)
