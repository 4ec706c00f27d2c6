"""FROC, its intervals, and the classifier of patients."""

import numpy as np
import pytest

from hpml_lab.capstone.exercises import froc_from_scores, non_maximum_suppression
from hpml_lab.capstone.lessons import froc, stages
from hpml_lab.capstone.tools import patient_classifier
from hpml_lab.core.system.errors import LabError


def at(x, score, radius=4.0):
    """A detection at x mm."""
    return [0.0, 0.0, x, radius, score]


def detections(*rows):
    return np.array(rows, float).reshape(-1, 5)


def nodules(*rows):
    return np.array([[0.0, 0.0, x, radius] for x, radius in rows]).reshape(-1, 4)


def test_a_detection_hits_within_the_radius_or_5_mm():
    truth = nodules((0, 3.0), (100, 8.0))
    found = detections(at(5.0, 0.9), at(-5.1, 0.8), at(108.0, 0.7), at(91.9, 0.6))
    assert froc.hits(found, truth).tolist() == [0, froc.MISS, 1, froc.MISS]
    assert froc.hits(found, nodules()).tolist() == [froc.MISS] * 4
    assert froc.hits(detections(), truth).tolist() == []


def test_a_second_hit_of_a_nodule_is_neither_found_nor_false():
    truth = nodules((0, 4.0), (6, 4.0))
    assert froc.hits(detections(at(0, 0.9), at(1, 0.8), at(1, 0.7)), truth).tolist() == [0, 1, froc.REPEAT]
    assert froc.hits(detections(at(6, 0.9), at(10.9, 0.8)), truth).tolist() == [1, froc.REPEAT]


@pytest.fixture
def run():
    """Three scans with four nodules; scores .9 (found), .8 (false), .7 (found, false, found: equal), .6 (repeat)."""
    return froc.scored(
        [detections(at(0, 0.9), at(50, 0.7), at(0.5, 0.6)), detections(at(30, 0.8), at(9, 0.7)), detections(at(0, 0.7))],
        [nodules((0, 4.0), (100, 4.0)), nodules(), nodules((0, 4.0), (70, 4.0))],
    )


def test_the_curve_counts_equal_scores_together(run):
    false, recall = run.curve()
    assert false.tolist() == pytest.approx([0, 0, 1 / 3, 1, 1]) and recall.tolist() == pytest.approx([0, 0.25, 0.25, 0.5, 0.5])
    assert [run.recall_at(rate) for rate in (0, 1 / 3, 0.99, 1.0, 9.0)] == [0.25, 0.25, 0.25, 0.5, 0.5]
    assert run.score_at(1 / 3) == 0.8 and run.score_at(1.0) == 0.6 and run.score_at(0.0) == 0.9


def test_a_single_nodule_that_is_found_is_all_of_them():
    one = froc.scored([detections(at(0, 0.9))], [nodules((0, 4.0))])
    assert one.recall_at(0.0) == 1.0


def test_scans_that_count_twice_are_as_if_given_twice(run):
    found = [detections(at(0, 0.9), at(50, 0.7), at(0.5, 0.6)), detections(at(30, 0.8), at(9, 0.7)), detections(at(0, 0.7))]
    truth = [nodules((0, 4.0), (100, 4.0)), nodules(), nodules((0, 4.0), (70, 4.0))]
    twice = froc.scored([*found, found[0], found[0]], [*truth, truth[0], truth[0]])
    for ours, theirs in zip(run.curve(np.array([3, 1, 1])), twice.curve(), strict=True):
        np.testing.assert_allclose(ours, theirs)


def test_no_detection_at_all_is_a_recall_of_0():
    run = froc.scored([detections(), detections()], [nodules((0, 4.0)), nodules()])
    assert run.recall_at(1.0) == 0 and run.score_at(1.0) == np.inf


def test_scans_without_nodules_or_without_detections_are_an_error():
    with pytest.raises(LabError, match="no scan has a nodule"):
        froc.scored([detections()], [nodules()])
    with pytest.raises(LabError, match="2 scans with detections and 1 with nodules"):
        froc.scored([detections(), detections()], [nodules((0, 4.0))])
    with pytest.raises(LabError, match="0 scans"):
        froc.scored([], [])


def many(scans, chance, seed):
    """Scans with one nodule each, found with this chance, and no false positives."""
    draw = np.random.default_rng(seed)
    found = [detections(at(0, 0.9)) if draw.random() < chance else detections() for _ in range(scans)]
    return froc.scored(found, [nodules((0, 4.0))] * scans)


def test_the_interval_of_a_recall_is_that_of_a_binomial_share():
    run = many(400, 0.8, 0)
    recall, low, high = froc.recall_interval([run])
    assert recall == run.recall_at(1.0)
    half = 1.96 * np.sqrt(recall * (1 - recall) / 400)
    assert high - recall == pytest.approx(half, rel=0.15) and recall - low == pytest.approx(half, rel=0.15)


def test_two_detectors_that_miss_other_patients_have_a_narrower_interval():
    first, second = many(400, 0.8, 0), many(400, 0.8, 1)
    wide, narrow = (high - low for _, low, high in (froc.recall_interval([first]), froc.recall_interval([first, second])))
    assert narrow < 0.85 * wide
    right = np.random.default_rng(0).random((3, 200)) < 0.9
    mean, low, high = froc.mean_interval(right)
    assert low < mean == right.mean() < high and high - low < 0.1


def test_features_of_a_patient_are_the_best_scores_their_sum_and_size():
    found = detections(at(0, 0.5, 10.0), at(30, 0.9, 4.0))
    assert patient_classifier.patient_features(found).tolist() == pytest.approx([0.9, 0.5, 0, 1.4, 5.0])
    assert patient_classifier.patient_features(detections()).tolist() == [0] * 5


def test_the_classifier_separates_patients_and_needs_both_kinds():
    draw = np.random.default_rng(0)
    sick = draw.random(40) < 0.5
    found = [detections(at(0, draw.uniform(0.7, 1) if ill else draw.uniform(0, 0.3))) for ill in sick]
    classifier = patient_classifier.fit_patients(found[:20], sick[:20])
    assert (patient_classifier.classify_patients(classifier, found[20:]) == sick[20:]).all()
    with pytest.raises(LabError, match="patients: all are sick"):
        patient_classifier.fit_patients(found, np.ones(40))


# ---- The exercises ---------------------------------------------------------------------------------------------------


def test_the_exercises_are_what_the_package_does():
    draw = np.random.default_rng(0)
    centers, scores = draw.uniform(0, 60, (80, 3)), draw.permutation(80) / 80
    kept = non_maximum_suppression.right(centers, scores, 12.0)
    merged = stages.merge(np.column_stack([centers, np.ones(80), scores]))
    assert np.array_equal(merged[:, :3], centers[kept]) and 5 < len(kept) < 60

    run = froc.scored([detections(at(0, 0.9), at(50, 0.7), at(0.5, 0.6)), detections(at(30, 0.7))], [nodules((0, 4.0))] * 2)
    points = froc_from_scores.right(np.array([0.9, 0.7, 0.6, 0.7]), np.array([0, -1, 0, -1]), 2, 2)
    np.testing.assert_allclose(np.array(run.curve()).T[1:], points)
