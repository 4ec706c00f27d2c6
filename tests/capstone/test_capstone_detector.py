"""The detector's training batches, loss and training; the file it is kept in; and the experiment on few patients."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from hpml_lab.capstone.experiments import nodule_detector
from hpml_lab.capstone.experiments.nodule_detector import figure
from hpml_lab.capstone.lessons import detector, stages
from hpml_lab.capstone.tools import ct, prepared
from hpml_lab.core.experiment import Table
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.timing.threads import on_threads


@pytest.fixture(scope="module")
def scans():
    options = {"shape": (32, 80, 80), "spacing": (5.0, 2.4, 2.4)}
    return [prepared.prepare(ct.synthetic(seed, sick=sick, **options)) for seed, sick in enumerate((True, False, True, True))]


def test_a_targets_cells_are_decoded_to_the_nodules_that_made_it(scans):
    scan = scans[0]
    corner = np.clip(np.rint(scan.centers[0]).astype(int) - 10, 0, np.array(scan.volume.shape) - 32)
    target = np.zeros((5, 8, 8, 8), np.float32)
    detector.fill_cells(target, scan.centers - corner, scan.nodules[:, 3])
    outputs = target.copy()
    outputs[0] = np.where(target[0] > 0, 20, -20)
    found = stages.decode(outputs[None], corner[None], scan.mask, scan.voxel)
    assert len(found) == (target[0] > 0).sum() >= 1
    distance = np.linalg.norm(found[:, None, :3] - scan.nodules[:, :3], axis=2)
    nearest = distance.argmin(1)
    assert distance.min(1).max() < 1e-4
    np.testing.assert_allclose(found[:, 3], scan.nodules[nearest, 3], rtol=1e-5)


def test_before_training_the_network_takes_nearly_every_cell_for_empty():
    bias = detector.Detector().head.bias.tolist()
    assert bias == [detector.RARE, 0, 0, 0, 0] and 1 / (1 + np.exp(-bias[0])) < 0.02


def test_cells_next_to_a_center_do_not_count():
    target = np.zeros((5, 6, 6, 6), np.float32)
    detector.fill_cells(target, np.array([[11.9, 10.0, 10.0], [-1.0, 2.0, 2.0]]), np.array([5.0, 5.0]))
    assert target[0, 2, 2, 2] == 1 and target[0, 3, 2, 2] == -1, "the center is near the border of the next cell"
    assert target[0, 0, 0, 0] == -1, "a center outside the patch makes the cells next to it uncertain"
    assert (target[0] == 1).sum() == 1 and target[0, 5, 5, 5] == 0


def test_in_turned_and_mirrored_patches_targets_are_still_at_the_nodules(scans):
    patches, targets = detector.training_batch(scans, np.random.default_rng(0), size=64)
    assert patches.shape == (64, 1, 24, 24, 24) and targets.shape == (64, 5, 6, 6, 6)
    brightness = []
    for n, *cell in (targets[:, 0] > 0).nonzero().tolist():
        center = 4 * (torch.tensor(cell) + targets[(n, slice(1, 4), *cell)])
        brightness.append(patches[(n, 0, *center.round().long().clamp(max=23).tolist())].item())
    assert len(brightness) > 20
    lung = (ct.LUNG - stages.LOW) / (stages.HIGH - stages.LOW)
    assert min(brightness) > 3 * lung, "solid, not lung"


def test_batches_are_decided_by_the_generator_and_leave_the_scans_as_they_are(scans):
    before = scans[0].volume.copy(), scans[0].nodules.copy()
    first, second = (detector.training_batch(scans, np.random.default_rng(5), size=8) for _ in range(2))
    assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])
    assert np.array_equal(before[0], scans[0].volume) and np.array_equal(before[1], scans[0].nodules)


def test_the_loss_weighs_centers_and_leaves_their_neighbors_out():
    outputs = torch.zeros(1, 5, 6, 6, 6, requires_grad=True)
    targets = torch.zeros(1, 5, 6, 6, 6)
    targets[0, :, 1, 1, 1] = torch.tensor([1.0, 0.5, 0.5, 0.5, 1.0])
    targets[0, 0, 1, 1, 2] = -1
    loss = detector.detection_loss(outputs, targets)
    place = detector.PLACE_WEIGHT * (3 * 0.5 * 0.25 + 0.5) / 4  # smooth-L1 of 0.5, 0.5, 0.5 and 1
    assert loss.item() == pytest.approx(np.log(2) * (20 + 214) / 216 + place, rel=1e-5)
    loss.backward()
    assert outputs.grad[0, :, 1, 1, 2].abs().max() == 0
    assert outputs.grad[0, 0, 1, 1, 1].item() == pytest.approx(-20 / 2 / 216)
    assert outputs.grad[0, 0, 3, 3, 3].item() == pytest.approx(0.5 / 216)
    assert detector.detection_loss(outputs, torch.zeros_like(targets)).item() == pytest.approx(np.log(2))


def test_a_seed_decides_a_training_and_torchs_random_state_stays(scans):
    state = torch.get_rng_state()
    (first, losses), (second, same) = (detector.train(scans, seed=3, steps=2) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert losses == same and not first.training
    assert all(torch.equal(a, b) for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True))
    assert detector.train(scans, seed=4, steps=2)[1] != losses


def test_networks_that_are_made_side_by_side_are_those_made_one_after_the_other():
    seeds = [*range(8)] * 6
    alone = [detector.initialized(seed).head.weight for seed in seeds]
    together = on_threads(lambda seed: detector.initialized(seed).head.weight, seeds, threads=8)
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))
    assert not torch.equal(alone[0], alone[1])


def test_trainings_side_by_side_are_those_one_after_the_other(scans):
    alone = [detector.train(scans, seed, steps=1)[1] for seed in (3, 4)]
    assert [losses for _, losses in detector.train_all(scans, [3, 4], steps=1)] == alone


def test_training_lowers_the_loss(scans):
    _, losses = detector.train(scans, steps=30)
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) / 2


def test_training_says_which_scans_it_cannot_use(scans):
    with pytest.raises(LabError, match="training: none of the patients has a nodule"):
        detector.train([scans[1]])
    small = prepared.PreparedScan("little", scans[0].volume[:20], scans[0].mask[:20], scans[0].voxel, scans[0].nodules)
    with pytest.raises(LabError, match="training: little is smaller than a patch"):
        detector.train([scans[0], small])


def test_a_detector_has_the_parameters_that_its_docstring_says():
    assert sum(p.numel() for p in detector.Detector().parameters()) == 45_485
    probe, network = torch.ones(1, 1, 32, 32, 32, requires_grad=True), detector.initialized(0).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.abs_()  # no voxel is without effect
    network(probe)[0, 0, 4, 4, 4].backward()
    assert [(probe.grad[0, 0].abs().sum(axes) > 0).sum().item() for axes in ((1, 2), (0, 2), (0, 1))] == [19] * 3


def test_a_trained_detector_is_kept_and_a_damaged_file_is_made_again(tmp_path, monkeypatch, scans):
    trained = []

    def few(seeds):
        trained.append(len(list(seeds)))
        return scans

    monkeypatch.setattr(detector, "patients", few)
    first = detector.trained_detector(steps=2, folder=tmp_path)
    [path] = tmp_path.iterdir()
    assert torch.equal(detector.trained_detector(steps=2, folder=tmp_path).head.weight, first.head.weight)
    assert trained == [60], "the second comes from the file"
    for damage in (b"", b"not a file of torch", path.read_bytes()[:5000]):
        path.write_bytes(damage)
        assert torch.equal(detector.trained_detector(steps=2, folder=tmp_path).head.weight, first.head.weight)
    assert len(trained) == 4 and list(tmp_path.iterdir()) == [path]
    detector.trained_detector(steps=1, folder=None)
    assert list(tmp_path.iterdir()) == [path]


def test_where_nothing_can_be_written_the_detector_is_returned_all_the_same(tmp_path, monkeypatch, scans):
    monkeypatch.setattr(detector, "patients", lambda seeds: scans)
    (tmp_path / "file").write_text("no folder")
    assert not detector.trained_detector(steps=1, folder=tmp_path / "file").training


def test_a_file_of_another_network_is_none(tmp_path):
    path = tmp_path / "other.pt"
    torch.save({"weight": torch.zeros(3)}, path)
    assert detector.read_detector(path) is None
    detector.keep(detector.initialized(1), path)
    assert torch.equal(detector.read_detector(path).head.weight, detector.initialized(1).head.weight)


def test_work_side_by_side_keeps_the_order_and_passes_errors_on():
    assert on_threads(lambda n: n * n, range(20), threads=3) == [n * n for n in range(20)]
    with pytest.raises(LabError, match="too small for a chest"):
        prepared.patients([0], shape=(4, 4, 4))


# ---- The experiment --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result(ran):
    return ran("nodule-detector")


def test_the_experiments_rows_hold_the_curves_of_both_seeds(result):
    assert [row.seed for row in result.rows(nodule_detector.TrainedSeed)] == [0, 1]
    for row in result.rows(nodule_detector.TrainedSeed):
        assert 0 <= row.few <= row.half <= row.one <= row.four <= 1
        assert row.recall == sorted(set(row.recall)) and row.false == sorted(row.false) and max(row.false) <= 8
    recall, low, high = result.arrays["recall"]
    assert low <= recall <= high


def test_the_experiment_is_saved_read_and_drawn(result, tmp_path):
    loaded = result.experiment.load(result.save(tmp_path))
    assert loaded.rows() == result.rows()
    left, right = loaded.figure().axes
    assert [line.get_label() for line in left.lines] == ["seed 0", "seed 1", "goal"]
    assert right.get_xlabel() == "radius (mm)"
    slices = figure.found_nodules(loaded)
    assert len(slices.figure.axes) == 3 and all(len(axes.images) == 1 for axes in slices.figure.axes)


def test_false_positives_between_the_lungs_are_in_what_closing_both_adds():
    chest = ct.synthetic(20_000, shape=(64, 96, 96), spacing=(2.5, 2.0, 2.0))
    between = nodule_detector.added_between(chest)
    patient = prepared.prepare(chest)
    assert between.any() and (between <= patient.mask).all()
    bridge, lung = (np.argwhere(inside)[0] for inside in (between, patient.mask & ~between))
    middle = np.array(patient.voxel) * np.array([bridge, lung])
    found = np.column_stack([middle, np.full(2, 4.0), [0.9, 0.8]])
    patient = replace(patient, nodules=np.zeros((0, 4)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ct, "synthetic", lambda seed: chest)
        assert nodule_detector.false_between([patient], [found], 0.85, 0) == (1, 1)
        assert nodule_detector.false_between([patient], [found], 0.5, 0) == (1, 2)


def test_curves_of_many_seeds_have_looks_of_their_own(result):
    rows = result.rows(nodule_detector.TrainedSeed) * 3
    many = copy.copy(result)
    many.tables = [Table("six seeds", rows), *result.tables[1:]]
    lines = figure.draw_froc(many).axes[0].lines[:6]
    assert len({(line.get_linestyle(), line.get_color()) for line in lines}) == 6


def test_weights_in_which_a_bit_flipped_are_made_again(tmp_path):
    path, network = tmp_path / "weights.pt", detector.Detector()
    detector.keep(network, path)
    content = bytearray(path.read_bytes())
    assert torch.equal(
        detector.read_detector(path).state_dict()[next(iter(network.state_dict()))], next(iter(network.parameters()))
    )
    for at in range(200, len(content), len(content) // 50):
        content[at] ^= 4
        path.write_bytes(content)
        assert detector.read_detector(path) is None
        content[at] ^= 4
