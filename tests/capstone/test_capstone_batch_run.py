"""A folder of patients: errors name file and stage, the others continue, results are kept, and a run resumes."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hpml_lab.capstone.tools import folder_run, lung_pipeline, scans
from hpml_lab.capstone.tools.ct import synthetic
from hpml_lab.capstone.tools.folder_run import run_folder, run_on_ranks
from hpml_lab.capstone.tools.lung_pipeline import LungPipeline
from hpml_lab.core.system.errors import LabError

FAST = lung_pipeline.FAST.method
AHEAD, WORKERS, WHOLE = (replace(FAST, **on) for on in (dict(ahead=1), dict(ahead=2, workers=2), dict(workers=2, whole=True)))
SMALL = dict(shape=(28, 112, 112), spacing=(2.5, 1.6, 1.6))
GOOD = ["patient-0000", "patient-0001", "patient-0002"]


class BrightCells(nn.Module):
    """A network without training: logit 40 · (mean of the cell − threshold), the center in the middle, a radius of 4 mm."""

    def __init__(self, threshold=0.3):
        super().__init__()
        self.threshold = nn.Parameter(torch.tensor(threshold))

    def forward(self, patches):
        mean = F.avg_pool3d(patches, 4)
        middle = torch.full_like(mean, 0.5)
        return torch.cat([40 * (mean - self.threshold), middle, middle, middle, torch.full_like(mean, 0.693)], 1)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A folder with three patients."""
    folder = tmp_path_factory.mktemp("good")
    for seed in range(3):
        scans.save(synthetic(seed, **SMALL, sick=True), folder)
    return folder


@pytest.fixture
def mixed(good, tmp_path):
    """The same, with patients that cannot be processed among them: {name: (stage, words of the problem)}."""
    folder = tmp_path / "mixed"
    shutil.copytree(good, folder)
    whole = (folder / "patient-0001.npz").read_bytes()
    (folder / "a-truncated.npz").write_bytes(whole[: len(whole) // 2])
    (folder / "p-text.npz").write_text("no scan")
    chest = synthetic(5, **SMALL)
    scans.save(replace(chest, name="b-solid", stored=np.full_like(chest.stored, 1000)), folder)
    scans.save(replace(chest, name="z-flat", stored=chest.stored[:20], nodules=np.zeros((0, 4))), folder)
    return folder, {
        "a-truncated": ("read", "damaged"),
        "p-text": ("read", "damaged"),
        "b-solid": ("components", "no lung"),
        "z-flat": ("patches", "smaller than a patch"),
    }


@pytest.fixture
def pipeline():
    return LungPipeline(BrightCells(), FAST)


def loads(counted):
    """A loader that notes what it reads."""

    def load(path):
        counted.append(path.stem)
        return scans.load(path, annotated=False)

    return load


@pytest.mark.parametrize("switches", [FAST, AHEAD, WORKERS, WHOLE], ids=["in sequence", "ahead", "workers", "whole"])
def test_an_error_names_file_and_stage_and_the_other_patients_go_on(mixed, tmp_path, switches):
    folder, bad = mixed
    report = run_folder(folder, tmp_path / "results", LungPipeline(BrightCells(), switches))
    assert sorted(report.detections) == GOOD == sorted(report.computed)
    assert {name: failure.stage for name, failure in report.failures.items()} == {
        name: stage for name, (stage, _) in bad.items()
    }
    for name, failure in report.failures.items():
        assert failure.file.startswith(f"mixed/{name}.np") and failure.file in str(failure)
        assert bad[name][1] in failure.problem and len(failure.fix) > 10
        kept = json.loads((tmp_path / "results" / f"{name}.failed.json").read_text())
        assert kept == vars(failure)


def test_results_are_those_of_the_pipeline_and_come_back_from_their_files(good, tmp_path, pipeline):
    results = tmp_path / "new" / "results"
    report = run_folder(good, results, pipeline)
    for path in scans.find_scans(good):
        wanted = pipeline.detect(pipeline.prepare(scans.load(path)))
        assert len(wanted) > 3 and np.array_equal(report.detections[path.stem], wanted)
        again = folder_run.read_result(results, path.stem, folder_run.fingerprint_of(pipeline), path)
        assert np.array_equal(again, wanted)
    assert sorted(path.name for path in results.iterdir()) == [f"{name}.json" for name in GOOD]


def test_a_run_resumes_and_tries_again_what_failed(mixed, tmp_path, pipeline):
    folder, bad = mixed
    results, read = tmp_path / "results", []
    first = run_folder(folder, results, pipeline)
    shutil.copy(folder / "patient-0001.npz", folder / "a-truncated.npz")
    second = run_folder(folder, results, pipeline, load=loads(read))
    assert sorted(read) == sorted(bad), "patients with a result are not even read"
    assert second.computed == ["a-truncated"] and not (results / "a-truncated.failed.json").exists()
    assert np.array_equal(second.detections["a-truncated"], first.detections["patient-0001"])
    assert all(np.array_equal(second.detections[name], first.detections[name]) for name in GOOD)


def test_an_interrupted_run_keeps_its_results_and_goes_on_from_there(good, tmp_path, pipeline):
    def interrupted(path):
        if path.stem == GOOD[2]:
            raise KeyboardInterrupt
        return scans.load(path)

    with pytest.raises(KeyboardInterrupt):
        run_folder(good, tmp_path, pipeline, load=interrupted)
    assert sorted(path.stem for path in tmp_path.iterdir()) == GOOD[:2]
    assert run_folder(good, tmp_path, pipeline).computed == GOOD[2:]


def test_threads_do_not_make_a_result_another_one_but_network_method_and_scan_do(good, tmp_path, pipeline):
    folder, results = tmp_path / "scans", tmp_path / "results"
    shutil.copytree(good, folder)
    assert run_folder(folder, results, pipeline).computed == GOOD
    assert run_folder(folder, results, LungPipeline(BrightCells(), WHOLE)).computed == []
    assert run_folder(folder, results, LungPipeline(BrightCells(0.32), FAST)).computed == GOOD
    assert run_folder(folder, results, LungPipeline(BrightCells(0.32), replace(FAST, windows=False))).computed == GOOD
    other = LungPipeline(BrightCells(0.32), replace(FAST, windows=False))
    scans.save(replace(synthetic(9, **SMALL), name=GOOD[1]), folder)
    (results / f"{GOOD[2]}.json").write_text('{"format": 1, "detec')
    assert run_folder(folder, results, other).computed == GOOD[1:], "another scan, and a damaged result"


def test_another_version_of_a_scan_is_noticed_whatever_its_name_and_wherever_results_are(good, tmp_path, pipeline):
    folder = tmp_path / "scans"
    folder.mkdir()
    path = folder / "chest [1].npz"  # as browsers name a second download; [1] is a pattern to glob
    shutil.copy(good / f"{GOOD[0]}.npz", path)
    for results in (folder, tmp_path / "results"):
        assert run_folder(folder, results, pipeline).computed == [path.stem]
        assert run_folder(folder, results, pipeline).computed == []
    shutil.copy(good / f"{GOOD[1]}.npz", path)
    assert run_folder(folder, tmp_path / "results", pipeline).computed == [path.stem]
    path.write_text("no scan")
    assert list(run_folder(folder, tmp_path / "results", pipeline).failures) == [path.stem]
    assert [found.name for found in (tmp_path / "results").iterdir()] == [f"{path.stem}.failed.json"], "no result of before"


def test_a_scan_that_changes_while_it_is_computed_is_computed_again(good, tmp_path, pipeline):
    path = tmp_path / "chest.npz"
    shutil.copy(good / f"{GOOD[0]}.npz", path)

    def overtaken(path):
        scan = scans.load(path, annotated=False)
        shutil.copy(good / f"{GOOD[1]}.npz", path)  # a series whose last slices arrive now, say
        return scan

    assert run_folder([path], tmp_path / "results", pipeline, load=overtaken).computed == ["chest"]
    assert run_folder([path], tmp_path / "results", pipeline).computed == ["chest"]
    assert run_folder([path], tmp_path / "results", pipeline).computed == []


def test_an_unexpected_error_is_one_patients_too(good, tmp_path):
    class Fragile(BrightCells):
        def forward(self, patches):
            raise RuntimeError("out of memory, say")

    report = run_folder(good, tmp_path, LungPipeline(Fragile(), AHEAD))
    assert list(report.failures) == GOOD and not report.detections
    assert {(failure.stage, failure.problem) for failure in report.failures.values()} == {
        ("network", "RuntimeError: out of memory, say")
    }


def test_two_ranks_share_a_folder_and_leave_the_same_files(good, tmp_path, pipeline):
    alone = run_folder(good, tmp_path / "one", pipeline)
    together = run_on_ranks(good, tmp_path / "two", BrightCells(), FAST, ranks=2)
    assert sorted(together.computed) == GOOD and not together.failures
    assert all(np.array_equal(together.detections[name], alone.detections[name]) for name in GOOD)
    for name in GOOD:
        one, two = (json.loads((tmp_path / run / f"{name}.json").read_text()) for run in ("one", "two"))
        assert one == two
    assert alone.seconds > 0 and together.seconds > 0
    assert run_folder(good, tmp_path / "two", pipeline).computed == [], "and one process may go on where ranks stopped"


def test_ranks_take_each_patient_once(good, tmp_path, pipeline):
    shares = [run_folder(good, tmp_path / str(rank), pipeline, share=(rank, 2)).computed for rank in range(2)]
    assert shares == [GOOD[::2], GOOD[1::2]]
    with pytest.raises(LabError, match="rank 2 among 2"):
        run_folder(good, tmp_path, pipeline, share=(2, 2))


def test_a_folder_that_cannot_be_run_is_refused_before_anything_is_done(good, tmp_path, pipeline):
    empty, results = tmp_path / "empty", tmp_path / "results"
    empty.mkdir()
    with pytest.raises(LabError, match="no scan"):
        run_folder(empty, results, pipeline)
    with pytest.raises(LabError, match="no such folder"):
        run_on_ranks(tmp_path / "absent", results, BrightCells(), FAST)
    with pytest.raises(LabError, match="no scans to run"):
        run_folder([], results, pipeline)
    other = shutil.copytree(good, tmp_path / "other")
    with pytest.raises(LabError, match="both called patient-0000"):
        run_folder([*scans.find_scans(good), *scans.find_scans(other)], results, pipeline)
    assert not results.exists()


def test_results_that_cannot_be_written_stop_the_run_with_the_file(good, tmp_path, pipeline):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(LabError, match=f"{GOOD[0]}.json could not be written"):
        run_folder(good, tmp_path / "taken", pipeline)


def test_outcomes_keep_the_order_of_the_sources(good):
    paths = scans.find_scans(good)
    sources = [paths[i % 3] for i in range(7)]
    for switches in (FAST, AHEAD, WORKERS, WHOLE):
        outcomes = list(LungPipeline(BrightCells(), switches).run(sources, scans.load))
        assert [outcome.source for outcome in outcomes] == sources
        assert all(outcome.prepared is None for outcome in outcomes), "patches are not kept"
