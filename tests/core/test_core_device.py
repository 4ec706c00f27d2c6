"""The device is chosen with a reason, and a wrong name is refused with the fix."""

import pytest
import torch

from hpml_lab.core.system import device as device_module
from hpml_lab.core.system.device import Device, choose_device
from hpml_lab.core.system.errors import LabError


def hide_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def pretend_gpus(monkeypatch, count, capability, kernels=("sm_61", "sm_75", "sm_80", "sm_86", "sm_90", "sm_120")):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some GPU")
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: kernels)


def test_without_a_gpu_the_cpu_is_chosen_and_the_reason_names_the_build(monkeypatch):
    hide_gpus(monkeypatch)
    monkeypatch.delenv("HPML_DEVICE", raising=False)
    device = choose_device()
    assert str(device) == "cpu" and not device.is_cuda
    assert "no CUDA GPU is usable" in device.reason and device.dtype_reason


def test_an_apple_gpu_is_named_and_not_used_and_amds_build_has_its_name(monkeypatch):
    hide_gpus(monkeypatch)
    monkeypatch.delenv("HPML_DEVICE", raising=False)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", "7.2.1")
    assert "torch is a ROCm 7.2.1 build, for AMD's GPUs" in choose_device().reason
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert str(choose_device()) == "cpu" and "an Apple GPU is here and not used: it has no float64" in choose_device().reason


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


def test_a_gpu_that_this_torch_has_no_kernels_for_is_not_chosen_and_the_reason_says_so(monkeypatch):
    """torch reports a P100 as available; each kernel then fails."""
    pretend_gpus(monkeypatch, 1, (6, 0), ["sm_75", "sm_80", "sm_90"])
    monkeypatch.delenv("HPML_DEVICE", raising=False)
    device = choose_device()
    assert str(device) == "cpu" and "Some GPU has compute capability 6.0" in device.reason and "7.5, 8.0, 9.0" in device.reason
    with pytest.raises(LabError, match=r"compute capability 6\.0, and torch .* has kernels for 7\.5, 8\.0, 9\.0"):
        choose_device("cuda")


@pytest.mark.parametrize(
    "capability, kernels, runs",
    [
        ((8, 6), ["sm_75", "sm_80"], True),  # a kernel for 8.0 runs on every 8.x
        ((8, 0), ["sm_75", "sm_86"], False),
        ((9, 0), ["sm_80", "sm_86"], False),
        ((12, 1), ["sm_80", "sm_90a", "compute_90"], True),  # compiled from PTX when it is loaded
        ((7, 0), ["sm_75", "sm_80", "compute_80"], False),
        ((10, 0), ["sm_90", "sm_100", "sm_120"], True),
    ],
)
def test_a_kernel_runs_on_its_own_generation_of_gpus(monkeypatch, capability, kernels, runs):
    pretend_gpus(monkeypatch, 1, capability, kernels)
    assert (device_module.without_kernels(0) == "") is runs


def test_the_first_gpu_that_has_kernels_is_chosen(monkeypatch):
    pretend_gpus(monkeypatch, 2, (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, 0) if str(index)[-1] == "1" else (5, 0))
    monkeypatch.delenv("HPML_DEVICE", raising=False)
    assert str(choose_device()) == "cuda:1"


def test_a_gpu_that_another_process_holds_alone_is_one_clear_error(monkeypatch):
    def busy(index):
        raise RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable\nCUDA kernel errors might be …")

    pretend_gpus(monkeypatch, 1, (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_capability", busy)
    with pytest.raises(LabError, match=r"GPU 0 does not answer: CUDA error: .* busy or unavailable\."):
        choose_device("cuda")


def test_a_driver_that_is_too_old_is_named(monkeypatch):
    def init():
        raise RuntimeError(
            "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver by …"
        )

    hide_gpus(monkeypatch)
    monkeypatch.setattr(torch.cuda, "init", init)
    with pytest.raises(LabError, match=r"sees 0 CUDA GPUs here: The NVIDIA driver .* is too old \(found version 11040\)\."):
        choose_device("cuda")


def test_an_index_beyond_the_last_gpu_is_refused_and_mig_is_named(monkeypatch):
    pretend_gpus(monkeypatch, 1, (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "NVIDIA A100 MIG 1g.5gb")
    with pytest.raises(LabError, match="sees 1 CUDA GPUs here. A process sees one slice") as caught:
        choose_device("cuda:1")
    assert "cuda:0" in caught.value.fix


@pytest.mark.parametrize(
    "capability, has",
    [
        ((7, 5), {"triton"}),
        ((8, 0), {"triton", "bf16", "tf32", "2:4"}),
        ((8, 9), {"triton", "bf16", "tf32", "2:4", "fp8"}),
        ((12, 0), {"triton", "bf16", "tf32", "2:4", "fp8"}),
    ],
)
def test_what_a_gpu_can_follows_its_compute_capability(monkeypatch, capability, has):
    pretend_gpus(monkeypatch, 1, capability)
    monkeypatch.setattr(device_module.importlib.util, "find_spec", lambda name: object())
    assert {what for what in ("bf16", "tf32", "fp8", "2:4", "triton") if choose_device("cuda").can(what)} == has
    monkeypatch.setattr(device_module.importlib.util, "find_spec", lambda name: None)
    assert not choose_device("cuda").can("triton")


def test_a_cpu_has_bfloat16_at_most():
    here = [Device(torch.device("cpu"), "", dtype, "") for dtype in (torch.bfloat16, torch.float32)]
    assert [device.can("bf16") for device in here] == [True, False]
    assert not any(here[0].can(what) for what in ("tf32", "fp8", "2:4", "triton"))
