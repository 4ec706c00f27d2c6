"""The slice's pipeline: every mode gives the same answers, and what is measured becomes rows, claims and pictures."""

import copy
import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hpml_lab.core.system.device import choose_device
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.timing.threads import one_thread
from hpml_lab.serving.experiments import inference_pipeline as module
from hpml_lab.serving.experiments.inference_pipeline import inference_pipeline, modes_in_time
from hpml_lab.serving.experiments.inference_pipeline.pipelines import (
    BATCHED,
    BITWISE,
    GRAPH,
    ONE_STREAM,
    BatchService,
    LatencyAtLoad,
    PipelineMode,
    PipelineThroughput,
    SlicePipeline,
    SliceWorkload,
    modes,
    service_models_of,
)
from hpml_lab.serving.experiments.inference_pipeline.queue_theory import fit_service, theory_and_ticks
from hpml_lab.serving.experiments.inference_pipeline.runners import Graphed, without_tf32
from hpml_lab.serving.experiments.slice_stages import SIDE, postprocess, preprocess, slice_models

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def slices():
    return np.random.default_rng(0).integers(0, 1500, (6, 96, 80)).astype(np.int16)


@pytest.fixture(scope="module")
def models():
    return slice_models()


@pytest.fixture(scope="module")
def plain(slices, models):
    """One slice after the other, without a server."""
    with one_thread(), torch.inference_mode():
        outputs = [[model(preprocess(stored)[None])[0] for model in models] for stored in slices]
        return [postprocess(heat, mask) for heat, mask in outputs]


@pytest.mark.parametrize("mode", modes(choose_device("cpu"), 4), ids=lambda mode: mode.name)
def test_every_mode_gives_the_answers_of_plain_calls(mode, slices, models, plain):
    with one_thread(), SlicePipeline(mode, SliceWorkload(slices, models, CPU)) as pipeline:
        answers = pipeline.burst(slices)
    assert len(answers) == len(plain)
    for answer, expected in zip(answers, plain, strict=True):
        assert answer.equals(expected) if mode.limit == 1 else answer.distance(expected) < 1e-4
    assert sum(pipeline.batches) == len(slices) and max(pipeline.batches) <= mode.limit
    assert not plain[0].equals(plain[1]) and plain[0].distance(plain[1]) > 1e-4, "slices differ"


def test_a_bad_slice_gets_its_error_with_the_stage_and_the_others_are_answered(slices, models, plain):
    for mode in modes(choose_device("cpu"), 4):
        with one_thread(), SlicePipeline(mode, SliceWorkload(slices, models, CPU)) as pipeline:
            futures = [pipeline.submit(stored) for stored in (slices[0], slices[1, :20], slices[2])]
            with pytest.raises(LabError, match=r"stage '(all|preprocess)' failed.*\(20, 80\) cannot be preprocessed"):
                futures[1].result(timeout=60)
            for index in (0, 2):
                assert futures[index].result(timeout=60).distance(plain[index]) < 1e-4


def test_preprocessing_maps_the_window_to_0_and_1_and_refuses_what_is_no_slice():
    air, bone = preprocess(np.zeros((96, 96), np.int16)), preprocess(np.full((96, 96), 3000, np.int16))
    assert air.shape == (1, SIDE, SIDE) and (air == 0).all() and (bone == 1).all()
    half = preprocess(np.full((96, 96), 10.0), slope=70.0, intercept=-1000.0)
    torch.testing.assert_close(half, torch.full((1, SIDE, SIDE), 0.5))
    with pytest.raises(LabError, match="NaN"):
        preprocess(np.full((96, 96), np.nan))
    with pytest.raises(LabError, match="cannot be preprocessed"):
        preprocess(np.zeros((3, 96, 96), np.int16))


def test_models_are_those_of_the_seed_and_leave_torchs_random_state():
    before = torch.get_rng_state()
    first, second, other = slice_models(), slice_models(), slice_models(seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first[0].head.weight, second[0].head.weight) and not torch.equal(
        first[0].head.weight, other[0].head.weight
    )


def test_a_graph_is_refused_on_a_cpu(models):
    with pytest.raises(LabError, match="cannot be captured on cpu"):
        Graphed(models, CPU)
    assert [mode.name == GRAPH for mode in modes(SimpleNamespace(is_cuda=True), 4)].count(True) == 1


def test_a_line_through_service_times_has_no_negative_part():
    a, b = fit_service([1, 2, 4, 8], [0.009, 0.010, 0.012, 0.016])
    assert (a, b) == (pytest.approx(0.008), pytest.approx(0.001))
    for seconds in ([0.001, 0.003, 0.009, 0.03], [0.01, 0.009, 0.008, 0.007]):
        a, b = fit_service([1, 2, 4, 8], seconds)
        assert a >= 0 and b > 0
    services = [BatchService(n, 8.0 + n, 8.0 + n, 8.0 / n + 1) for n in (1, 2, 4, 8)]
    known = service_models_of(services, 8)
    assert known[ONE_STREAM].capacity == pytest.approx(1 / 0.009) and known[BATCHED].capacity == pytest.approx(500)


@pytest.fixture(scope="module")
def result(ran):
    return ran("inference-pipeline")


def test_the_run_holds_its_exact_claims_and_draws(result, tmp_path):
    assert result, [claim.text for claim in [*result.claims, *result.checks] if claim.exact and not claim.holds]
    assert {row.outputs for row in result.rows(PipelineThroughput) if row.limit == 1} == {BITWISE}
    requests = dict(inference_pipeline.quick["traffic"])
    traffic = result.rows(LatencyAtLoad)
    assert [len(row.latencies) for row in traffic] == [requests[row.load] for row in traffic] and traffic
    saved = inference_pipeline.load(result.save(tmp_path))
    for shown in (result, saved):
        assert [len(axes.lines) > 0 or len(axes.patches) > 0 for axes in shown.figure().axes] == [True] * 3
        assert len(modes_in_time(shown).figure.axes) == len(modes(choose_device("cpu"), inference_pipeline.quick["limit"]))
        assert len(theory_and_ticks(shown).figure.axes) == 3


def test_stages_are_seen_in_each_mode(result):
    for mode, rows in result.arrays["spans"].items():
        lanes = {row["lane"] for row in rows}
        assert lanes == {"preprocess", "detector", "segmenter", "postprocess"}, mode


def test_claims_fail_where_outputs_differ_or_requests_are_lost(result):
    wrong = copy.deepcopy(result)
    wrong.claims, wrong.checks = [], []
    throughput, traffic = wrong.tables[:2]
    wrong.tables[0] = dataclasses.replace(
        throughput, rows=[dataclasses.replace(row, outputs="1e-3 apart") for row in throughput.rows]
    )
    wrong.tables[1] = dataclasses.replace(traffic, rows=[dataclasses.replace(row, failed=1) for row in traffic.rows])
    module.judge(wrong, {}, 1.0, service_models_of(result.rows(BatchService), inference_pipeline.quick["limit"]))
    failing = [claim.text.split()[0] for claim in [*wrong.claims, *wrong.checks] if claim.exact and not claim.holds]
    assert failing == ["Without", "Every"]


def test_within_float32_without_tf32_cudnn_s_other_settings_can_be_read_and_set():
    cudnn = torch.backends.cudnn
    before = cudnn.allow_tf32, cudnn.deterministic
    with without_tf32():
        assert not cudnn.allow_tf32
        with cudnn.flags(enabled=True, deterministic=True, allow_tf32=True):
            assert cudnn.allow_tf32 and cudnn.deterministic
        assert not cudnn.allow_tf32
    assert (cudnn.allow_tf32, cudnn.deterministic) == before


@pytest.mark.cuda
def test_streams_and_graphs_give_the_answers_of_one_stream(slices):
    device = choose_device("cuda")
    workload = SliceWorkload(slices, slice_models(device.torch), device.torch)
    found = {}
    for mode in [*modes(device, 4), PipelineMode("graphs", Graphed, limit=4)]:
        with without_tf32(), SlicePipeline(mode, workload) as pipeline:
            found[mode] = pipeline.burst(slices)
    first = found.pop(next(iter(found)))
    for mode, answers in found.items():
        for expected, answer in zip(first, answers, strict=True):
            assert answer.equals(expected) if mode.limit == 1 else answer.distance(expected) < 1e-4
