"""Tools take a device as text or as a torch.device, and a path as text or as a Path: both forms, called."""

from pathlib import Path

import numpy as np
import pytest
import torch

from hpml_lab import autograd, core, descent, precision, profiling, report, storage, tuning
from hpml_lab.core.system.errors import LabError
from hpml_lab.data import load
from hpml_lab.distributed import launch


def work():
    return torch.ones(4, 4) @ torch.ones(4, 4)


def one_step(device):
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 2)
    batches = [(torch.zeros(4, 3), torch.tensor([0, 1, 0, 1]))]
    scaler = precision.scaler_for(device, torch.float16)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    return precision.train_amp(net, optimizer, batches, device, torch.bfloat16, scaler, on=False)[0].item()


ON_A_DEVICE = {
    "choose_device": lambda device: core.choose_device(device).torch,
    "operators": lambda device: core.operators(work, device),
    "kernels": lambda device: {kernel.name: kernel.calls for kernel in core.kernels(work, device)},  # their order is of times
    "peak_bytes": lambda device: core.peak_bytes(work, device),
    "perceptron_by_torch": lambda device: autograd.perceptron_by_torch(np.ones(2), np.ones(2), 1.0, device).loss,
    "real_data": lambda device: descent.real_data("digits", device, most=8)[0].tolist(),
    "autocast_table": lambda device: precision.autocast_table(device, torch.bfloat16),
    "train_amp": one_step,
    "until_out_of_memory": lambda device: tuning.until_out_of_memory(lambda batch: None, lambda: None, device)(1),
    "within_budget": lambda device: tuning.within_budget(lambda batch: work(), 1e6, device)(1),
    "launch": lambda device: launch(int, "7", ranks=1, device=device),
}


@pytest.mark.parametrize("name", ON_A_DEVICE)
def test_a_device_is_text_or_a_torch_device(name):
    assert ON_A_DEVICE[name]("cpu") == ON_A_DEVICE[name](torch.device("cpu")) is not None


def test_the_ceiling_is_measured_once_whatever_form_the_device_has():
    assert core.ceiling("cpu").gb_per_s > 0 and core.ceiling("cpu") is core.ceiling(torch.device("cpu"))


def test_a_device_that_is_none_is_named():
    with pytest.raises(LabError, match="'tpu' is not a valid device"):
        core.choose_device("tpu")
    with pytest.raises(LabError, match="'tpu' is not a valid device"):
        core.kernels(work, "tpu")
    with pytest.raises(LabError, match="'cuda:1' is not a device for ranks"):
        launch(int, ranks=1, device="cuda:1")


@pytest.mark.parametrize("form", [str, Path])
def test_a_path_is_text_or_a_path(form, tmp_path):
    files = profiling.write_folder(form(tmp_path), load("digits"), train=2, test=1)
    picture = form(files.train[0])
    assert storage.pil_image(picture).size == (8, 8)
    assert storage.tensor_image(picture).shape == (3, 8, 8)
    with pytest.raises(LabError, match="no readable result"):
        report.write_report(form(tmp_path), form(tmp_path / "page.html"))
