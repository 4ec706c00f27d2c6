"""Processes that share a device: the same results however they share, honest ratios, and a daemon that is never left behind."""

from dataclasses import replace

import pytest
import torch

from hpml_lab import processes
from hpml_lab.core.experiment import Params
from hpml_lab.core.system.device import Device
from hpml_lab.core.system.errors import LabError
from hpml_lab.processes import train_small
from hpml_lab.processes.experiments import shared_gpu as module
from hpml_lab.processes.experiments.shared_gpu import MPS, SharedDevice, compared, on_one_device
from hpml_lab.processes.experiments.shared_gpu.on_one_device import AGAIN, AT_ONCE, IN_TURN, ONE_CORE, SharingRun, mps_daemon


def test_the_experiment_is_sound_and_leaves_no_process(sound, nothing_left):
    result = replace(processes.shared_gpu, quick=dict(processes=(1, 2), steps=5, rounds=2))("quick", device="cpu")
    sound(result)
    assert [(row.how, row.processes) for row in result.rows(SharedDevice)] == [
        (how, count) for count in (1, 2) for how in (IN_TURN, AT_ONCE, ONE_CORE)
    ]
    assert {how: len({row["lane"] for row in rows}) for how, rows in result.arrays["timelines"].items()} == dict.fromkeys(
        (IN_TURN, AT_ONCE, ONE_CORE), 2
    )
    first, second = result.arrays["timelines"][IN_TURN]
    assert first["end"] <= second["start"], "in turn, the second begins when the first is done"


def test_a_training_run_learns_and_repeats_itself():
    assert torch.equal(train_small("cpu", 3), train_small("cpu", 3))
    assert train_small("cpu", 20).norm() < train_small("cpu", 1).norm(), "the outputs, and so the weights, shrink"


def run_of(how, count, seconds, name="a"):
    """Processes that take so many seconds, one after the other or at once."""
    starts = [index * seconds if how.startswith(IN_TURN) else 0.0 for index in range(count)]
    return SharingRun(how, count, [[(start, start + seconds) for start in starts]] * 3, [name])


def runs_of(mps="", **seconds):
    return [run_of(how + mps, count, seconds[how.split(",")[0].replace(" ", "_")]) for how in WAYS for count in (1, 4)]


WAYS = (IN_TURN, AT_ONCE, AGAIN)


def test_each_way_is_compared_with_in_turn_of_its_own_interpreter():
    rows, gains = compared([*runs_of(in_turn=1.0, at_once=3.0), *runs_of(mps=MPS, in_turn=2.0, at_once=2.0)], steps=10)
    assert {key: gain.ratio for key, gain in gains.items() if key[1] == 4} == {
        (IN_TURN, 4): 1,
        (AT_ONCE, 4): pytest.approx(4 / 3),
        (IN_TURN + MPS, 4): 1,
        (AT_ONCE + MPS, 4): 4,
    }
    [row] = [row for row in rows if (row.how, row.processes) == (AT_ONCE, 4)]
    assert (row.milliseconds, row.rate, row.step_ms) == (3000, pytest.approx(40 / 3), 300)


@pytest.mark.parametrize("device, method", [("cpu", on_one_device.PROCESSES), ("cuda:0", "spawn")])
def test_no_process_that_uses_a_gpu_is_a_fork(monkeypatch, device, method):
    """No GPU is needed: a process that does not start shows how it would have been started."""

    def started(*_, method, **__):
        raise KeyError(method)

    monkeypatch.setattr(on_one_device, "child_process", started)
    with pytest.raises(KeyError, match=method):
        next(on_one_device.compare_sharing(device, (1,), 1, 1, [IN_TURN]))


@pytest.fixture
def gpu(monkeypatch):
    """Parameters of a GPU that there is not, and the environments in which it is measured."""
    asked = []

    def measured(variables, hows, **_):
        asked.append(variables)
        return runs_of(in_turn=1.0, at_once=2.0)

    monkeypatch.setattr(module, "measure_sharing", measured)
    device = Device(torch.device("cuda", 0), "", torch.float32, "")
    return Params(size="quick", device=device, processes=(1, 4), steps=10, rounds=3), asked


@pytest.fixture
def control(tmp_path, monkeypatch):
    """A control program that notes what it is asked, and fails if FAIL is set."""
    log = tmp_path / "asked"
    program = tmp_path / "nvidia-cuda-mps-control"
    said = 'echo "$@ $CUDA_MPS_PIPE_DIRECTORY [$CUDA_VISIBLE_DEVICES]" >>'
    program.write_text(f'#!/bin/sh\n{said} {log}\n[ "$1" = -d ] || cat >> {log}\nexit ${{FAIL:-0}}\n')
    program.chmod(0o755)
    monkeypatch.setattr(on_one_device, "find_tool", {program.name: str(program)}.get)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.delenv("HPML_MPS", raising=False)
    return log


def test_without_permission_no_daemon_is_started(control, gpu):
    params, asked = gpu
    result = module.shared_gpu.function(params)
    assert not control.exists() and len(asked) == 1 and "HPML_MPS=1" in result.notes[0]
    assert all(MPS not in row.how for row in result.rows(SharedDevice)) and len(result.claims) == 2
    assert result.here("a step next to 3 others, times as long as alone") > 0, "a figure, and no claim: on a GPU it is open"


def test_with_permission_the_daemon_serves_the_second_interpreter_and_ends(control, gpu, monkeypatch):
    monkeypatch.setenv("HPML_MPS", "1")
    params, asked = gpu
    result = module.shared_gpu.function(params)
    apart, served = (variables["CUDA_MPS_PIPE_DIRECTORY"] for variables in asked)
    assert (
        result.device == "cuda:0"
        and apart != served
        and control.read_text().split("\n")[:3] == [f"-d {served} []", f" {served} []", "quit -t 30"]
    )
    assert list(result.arrays["timelines"]) == [IN_TURN, AT_ONCE, AT_ONCE + MPS] and not result.notes
    assert result.here("4 processes at once, MPS, speed-up over in turn") == 2
    assert any(claim.text.startswith("Under MPS") and claim.holds for claim in result.claims)


@pytest.mark.parametrize("missing", [True, False])
def test_a_daemon_that_is_missing_or_does_not_start_is_noted(control, gpu, monkeypatch, missing):
    monkeypatch.setenv("HPML_MPS", "1")
    monkeypatch.setenv("FAIL", "3")
    if missing:
        monkeypatch.setattr(on_one_device, "find_tool", lambda _: None)
    [note] = module.shared_gpu.function(gpu[0]).notes
    assert ("comes with NVIDIA's driver" if missing else "exit code 3") in note


def test_the_daemon_ends_also_if_what_it_serves_fails(control, monkeypatch):
    monkeypatch.setenv("HPML_MPS", "1")
    with pytest.raises(KeyError), mps_daemon():
        raise KeyError
    assert control.read_text().endswith("quit -t 30\n")


def test_a_gpu_that_admits_one_process_is_an_error_with_its_fix(gpu, monkeypatch):
    def refused(*_, **__):
        raise RuntimeError("CUDA-capable device(s) is/are busy or unavailable")

    monkeypatch.setattr(module, "measure_sharing", refused)
    with pytest.raises(LabError, match="busy or unavailable"):
        module.shared_gpu.function(gpu[0])


@pytest.mark.cuda
def test_on_a_gpu_processes_share_it():
    result = replace(processes.shared_gpu, quick=dict(processes=(1, 2), steps=20, rounds=2))("quick", device="cuda")
    assert result and [row.how for row in result.rows(SharedDevice)][:2] == [IN_TURN, AT_ONCE]
