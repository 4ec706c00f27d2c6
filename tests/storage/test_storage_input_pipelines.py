"""input-pipelines: the steps and what they return, boxes that move along, turns with a placebo, workers from sources."""

from dataclasses import replace

import pytest
import torch
from PIL import Image

from hpml_lab.storage import input_pipelines
from hpml_lab.storage.experiments import input_pipelines as experiment
from hpml_lab.storage.experiments.input_pipelines import (
    AGAIN,
    ALEXNET,
    BOXES,
    PIXEL,
    RESNET,
    SSD,
    WANTED,
    GpuDemand,
    PictureStep,
    PipelineTime,
    box_gaps,
)
from hpml_lab.storage.lessons import three_pipelines

SMALL = dict(pictures=2, rounds=1, scenes=4)


def test_the_experiment_is_sound_and_workers_follow_from_the_time_of_a_picture(sound):
    result = replace(input_pipelines, quick=SMALL)("quick", device="cpu")
    sound(result)
    times = {row.pipeline: row for row in result.rows(PipelineTime)}
    assert [row.steps for row in times.values()] == [3, 4, 5] and times[ALEXNET].slower is None
    for row in result.rows(GpuDemand):
        assert row.workers == pytest.approx(row.wanted * times[row.pipeline].ms / 1e3)
    for name, row in times.items():
        steps = [step for step in result.rows(PictureStep) if step.pipeline == name]
        assert sum(step.ms for step in steps) == pytest.approx(row.ms) and sum(step.share for step in steps) == pytest.approx(
            100
        )
    assert len(result.rows(GpuDemand)) == len(WANTED) and not any(AGAIN in row.pipeline for row in times.values())


def test_each_pipeline_has_its_files_and_gives_the_pictures_of_its_paper(tmp_path):
    samples = experiment._samples(tmp_path, 3)
    assert [Image.open(path).size for path in samples[ALEXNET]] == [(256, 256)] * 3
    assert [Image.open(path).size for path in samples[RESNET]] == [(640, 427)] * 3
    torch.manual_seed(0)
    for pipeline, name, side in (
        (three_pipelines.alexnet, ALEXNET, 224),
        (three_pipelines.resnet, RESNET, 224),
        (three_pipelines.ssd, SSD, 300),
    ):
        for sample in samples[name]:
            for change in pipeline().values():
                sample = change(sample)
            image, boxes = sample if name == SSD else (sample, None)
            assert image.size == (side, side)
            if boxes is not None:
                assert 0 < len(boxes) <= BOXES and boxes.min() >= 0 and boxes.max() <= side


def test_boxes_that_are_left_behind_are_found(monkeypatch):
    assert max(box_gaps(10)) <= PIXEL
    whole = three_pipelines.ssd
    monkeypatch.setattr(
        three_pipelines,
        "ssd",
        lambda: whole() | {"flip": lambda sample: (sample[0].transpose(Image.Transpose.FLIP_LEFT_RIGHT), sample[1])},
    )
    assert max(box_gaps(10)) > PIXEL
