"""The device is chosen with a reason, and a wrong name is refused with the fix."""

import pytest
import torch

from hpml_lab.core.device import choose_device
from hpml_lab.core.errors import LabError


def hide_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def pretend_gpus(monkeypatch, count, capability):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)


def test_without_a_gpu_the_cpu_is_chosen_and_the_reason_names_the_build(monkeypatch):
    hide_gpus(monkeypatch)
    monkeypatch.delenv("HPML_DEVICE", raising=False)
    device = choose_device()
    assert str(device) == "cpu" and not device.is_cuda
    assert "no CUDA GPU is usable" in device.reason and device.dtype_reason


@pytest.mark.parametrize(
    "capability, dtype", [((9, 0), torch.bfloat16), ((8, 0), torch.bfloat16), ((7, 5), torch.float16), ((6, 1), torch.float32)]
)
def test_the_dtype_follows_the_compute_capability(monkeypatch, capability, dtype):
    pretend_gpus(monkeypatch, 1, capability)
    device = choose_device("cuda")
    assert str(device) == "cuda:0" and device.is_cuda
    assert device.dtype == dtype and "{}.{}".format(*capability) in device.dtype_reason


def test_the_environment_variable_is_asked_after_the_argument(monkeypatch):
    pretend_gpus(monkeypatch, 2, (8, 0))
    monkeypatch.setenv("HPML_DEVICE", "cuda:1")
    assert str(choose_device()) == "cuda:1"
    assert str(choose_device("cpu")) == "cpu"


def test_an_empty_environment_variable_asks_for_nothing(monkeypatch):
    hide_gpus(monkeypatch)
    monkeypatch.setenv("HPML_DEVICE", "")
    assert "no CUDA GPU is usable" in choose_device().reason


@pytest.mark.parametrize("name", ["gpu", "mps", "meta", "cpu:x", "cuda:-1", "42"])
def test_a_name_that_is_no_device_is_refused(monkeypatch, name):
    hide_gpus(monkeypatch)
    with pytest.raises(LabError, match="cpu"):
        choose_device(name)


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:7"])
def test_a_gpu_that_is_not_there_is_refused_with_the_number_that_is(monkeypatch, name):
    hide_gpus(monkeypatch)
    with pytest.raises(LabError, match="torch sees 0 CUDA GPUs") as caught:
        choose_device(name)
    assert "doctor" in caught.value.fix
