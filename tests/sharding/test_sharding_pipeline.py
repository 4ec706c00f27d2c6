"""pipeline.py and pipeline-parallel: schedules, a virtual clock, and pipelines on ranks that equal one process."""

from fractions import Fraction

import pytest
import torch
from torch import distributed as dist
from torch import nn
from torch.nn import functional as F

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.launcher import launch
from hpml_lab.core.system.rank_errors import RankError
from hpml_lab.sharding import pipeline_parallel
from hpml_lab.sharding.experiments.pipeline_parallel import PipelineWay, merged, seconds
from hpml_lab.sharding.experiments.pipeline_parallel.on_ranks import time_schedules
from hpml_lab.sharding.lessons.pipeline import (
    SCHEDULES,
    bubble,
    gpipe,
    most_kept,
    one_forward_one_backward,
    pipeline_groups,
    pipeline_step,
    split_layers,
    timetable,
    too_few,
)
from hpml_lab.sharding.views.pipeline_slider import pipeline_slider


def test_a_schedule_reads_as_the_papers_draw_it():
    assert gpipe(0, 2, 2) == [("F", 0), ("F", 1), ("B", 0), ("B", 1)]
    written = ["".join(f"{kind}{i}" for kind, i in one_forward_one_backward(stage, 3, 4)) for stage in range(3)]
    assert written == ["F0F1F2B0F3B1B2B3", "F0F1B0F2B1F3B2B3", "F0B0F1B1F2B2F3B3"]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("stages, micro_batches", [(1, 1), (1, 4), (3, 1), (4, 2), (4, 4), (4, 9)])
def test_every_micro_batch_passes_each_stage_once_and_the_bubble_is_the_formulas(schedule, stages, micro_batches):
    slots = timetable(SCHEDULES[schedule], stages, micro_batches, 2, 5)
    whole = {(stage, kind, i) for stage in range(stages) for kind in "FB" for i in range(micro_batches)}
    assert len(slots) == len(whole) and {slot[:3] for slot in slots} == whole
    ends = {slot[:3]: slot.end for slot in slots}
    for slot in slots:  # no input before it is made
        if slot.kind == "F" and slot.stage > 0:
            assert slot.start >= ends[slot.stage - 1, "F", slot.micro_batch]
        if slot.kind == "B":
            before = (slot.stage + 1, "B") if slot.stage < stages - 1 else (slot.stage, "F")
            assert slot.start >= ends[*before, slot.micro_batch]
    assert bubble(slots) == Fraction(stages - 1, micro_batches + stages - 1)
    for stage in range(stages):
        kept = most_kept(SCHEDULES[schedule](stage, stages, micro_batches))
        assert kept == (micro_batches if schedule == "GPipe" else min(stages - stage, micro_batches))


def test_a_schedule_that_never_ends_is_an_error_that_says_who_waits_for_what():
    backward_first = lambda stage, stages, m: [("B", 0), ("F", 0)]  # noqa: E731
    with pytest.raises(LabError, match="never ends: stage 0 for the input of B0, stage 1 for the input of B0"):
        timetable(backward_first, 2, 1)


def test_layers_that_do_not_divide_are_refused_and_few_micro_batches_get_a_note():
    layers = nn.Sequential(*(nn.Linear(1, 1) for _ in range(6)))
    assert [len(part) for part in split_layers(layers, 3)] == [2, 2, 2]
    for stages in (4, 0):
        with pytest.raises(LabError, match=f"6 layers do not divide among {stages} stages. Use 1, 2, 3, 6 stages"):
            split_layers(layers, stages)
    assert too_few(4, 4) == "" and too_few(4, 1).startswith("1 micro-batch for 4 stages: at most 1 of them")


def refused():
    pipeline_groups(2)


def test_ranks_that_make_no_pipelines_are_refused():
    with pytest.raises(RankError, match="3 ranks make no pipelines of 2 stages. Use a multiple of 2 ranks"):
        launch(refused, ranks=3)


def step_with_short_tasks():
    """One step of a net of two stages, one of them without parameters, and what `during` was told."""
    torch.manual_seed(0)
    x, seen = [torch.randn(2, 3) for _ in range(3)], []
    layers, groups = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), pipeline_groups(2)
    stage = split_layers(layers, 2)[dist.get_rank()]

    class Noted:
        def __init__(self, task):
            seen.append(task)

        __enter__ = lambda self: None  # noqa: E731
        __exit__ = lambda self, *error: None  # noqa: E731

    tasks = one_forward_one_backward(dist.get_rank(), 2, 3)
    losses = pipeline_step(stage, tasks, x, x, F.mse_loss, groups, Noted)
    return seen == tasks, losses, [parameter.grad for parameter in stage.parameters()]


def test_a_stage_without_parameters_passes_gradients_on():
    (told, none, gradients), (also, losses, no_gradients) = launch(step_with_short_tasks)
    assert told and also and none == no_gradients == []
    torch.manual_seed(0)
    x = torch.stack([torch.randn(2, 3) for _ in range(3)])
    layers = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    loss = F.mse_loss(layers(x), x)
    loss.backward()
    assert torch.allclose(torch.stack(losses).mean(), loss)
    assert all(torch.allclose(a, p.grad, atol=1e-6) for a, p in zip(gradients, layers.parameters(), strict=True))


def test_the_experiment_is_sound(sound, ran):
    result = ran("pipeline-parallel")
    sound(result)
    ways = result.rows(PipelineWay)
    assert len(ways) == 5 and [row.same for row in ways if "this package" in row.way] == [True, True]
    assert result.notes[0].startswith("2 micro-batches for 4 stages: at most 2")
    assert [row[0] for row in result.arrays["slots"]["GPipe"]].count(3) == 16


@pytest.mark.cuda
def test_pipelines_on_gpus():
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    by_rank = launch(time_schedules, "cuda", [4], 4, 2, 0.002, ranks=2, device="cuda")
    assert all(0 < float(bubble(slots)) < 1 and seconds(slots) > 0 for slots in merged(by_rank, ("1F1B", 4)))
    assert pipeline_parallel("quick")


def test_the_slider_draws_other_pipelines_and_names_the_bubble():
    figure = pipeline_slider(3, 6)
    first = figure.image.value
    stages, micro_batches, schedule, _ = figure.children
    pictures = {first}
    for control, value in ((schedule, "1F1B"), (stages, 8), (micro_batches, 1), (micro_batches, 16), (stages, 1)):
        control.value = value
        pictures.add(figure.image.value)
    assert len(pictures) == 6 and "timetable of a pipeline" in repr(figure)
