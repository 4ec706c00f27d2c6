"""Code that a notebook's text shows to copy runs, in a new interpreter, beside what its reader has already.

What stands in code cells runs by nbval. This is about blocks in Markdown, fenced or indented: each one is listed here with
what it needs, or with the reason why nobody copies it.
"""

import importlib.util
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import nbformat
import pytest

from hpml_lab.core.system.paths import NOTEBOOKS, ROOT

FENCED = re.compile(r"^(?P<quote>(?:> ?)*)```(\w*)\n(.*?)^(?P=quote)```", flags=re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"(?:\A|\n\n)((?: {4}.*(?:\n|\Z))+)")

NET = """
import torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
model = net = nn.Linear(4, 2)
x, y, loss_function = torch.randn(8, 4), torch.zeros(8, dtype=torch.int64), nn.CrossEntropyLoss()
train_set = torch.utils.data.TensorDataset(x, y)
"""
PYTHON = {  # (notebook, how its block begins): what the reader has, and what shows that it worked
    ("02_autograd", "x = torch.tensor(3.0"): ("import torch", "assert x.item() == -9 and x.grad.item() == -6"),
    ("08_loading", "loader = DataLoader("): (
        "import torch\nfrom torch.utils.data import DataLoader\ndataset, batch_size = torch.arange(8.0), 4\n"
        "device, batch = torch.device('cpu'), torch.ones(4)",
        "assert len(list(loader)) == 2 and batch.device == device",
    ),
    ("10_profiling", "def timed(work, device):"): (
        "class device:\n    now = 0.0\n    clock = lambda: device.now\ndef work(): device.now += 1.0",
        "assert timed(work, device) == 1.0",
    ),
    ("11_tuning", "torch.backends.cudnn.benchmark"): ("import torch", "assert torch.backends.cudnn.benchmark"),
    ("14_sharding", "optimizer = torch.optim.Adam("): (
        NET + "before = model.weight.clone()\ndef batches_of(size): return [(x, y)]",
        "assert not torch.equal(before, model.weight)",
    ),
    ("14_sharding", "def load(self, state):"): ("class run: pass", "load(run, {'epoch': 1.0})\nassert run.epoch == 1"),
}
ON_A_GPU = {
    ("08_loading", "with torch.cuda.stream(self.stream):"): (
        "import torch\nclass self: stream = torch.cuda.Stream()\ndevice, batch = 'cuda', torch.ones(4).pin_memory()",
        "assert batch.is_cuda and batch.sum().item() == 4",
    ),
    ("11_tuning", "torch.cuda.memory._record_memory_history()"): (
        NET + "def train_one_step(): net.cuda()(x.cuda()).sum().backward()",
        "assert any(snapshot['device_traces'])",
    ),
    ("11_tuning", "with torch.autograd.graph.save_on_cpu("): (
        NET + "net, x, y = net.cuda(), x.cuda(), y.cuda()",
        "loss.backward()\nassert net.weight.grad.is_cuda",
    ),
}
BY_DEEPSPEED = {
    ("14_sharding", 'parser.add_argument("--local_rank"'): (
        NET + "import argparse\nimport deepspeed\nparser = argparse.ArgumentParser()",
        "assert engine.global_steps == 2",
    )
}
NOT_TO_COPY = {
    ("08_loading", "for batch in DataLoader("): "the loop in outline; test_loading_exact_resume.py runs it, with kills",
    ("10_profiling", "main;train;"): "a line of a file of stacks",
    ("10_profiling", "nsys profile "): "programs of NVIDIA's, on a GPU; test_profiling_nsys.py runs nsys where it is",
    ("10_profiling", "nvidia-smi "): "a program of NVIDIA's driver",
    ("16_quantization", "model = models.resnet18("): "the slide as it is printed, with its errors, which the text names",
    ("21_your_script", "epoch 1: load"): "a line that a script prints; test_your_script_templates.py reads it",
    ("21_your_script", "hpml-lab lab lab_training.py"): "minutes; docs/labs.md has the same, which test_written_code.py runs",
    ("14_sharding", "hpml-lab template ."): "docs/engineers.md has the same lines; test_written_code.py runs them",
}
SHELL = [
    ("06_race", "torchrun "),
    ("10_profiling", "hpml-lab profile train.py"),
    ("10_profiling", "perf record "),
    ("14_sharding", "torchrun --nnodes"),
]
OWN_SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
for epoch in range(parser.parse_args().epochs):
    print(f"epoch {epoch}", sum(range(2_000_000)))
"""
WITH_WORK = {**PYTHON, **ON_A_GPU, **BY_DEEPSPEED}


def blocks():
    """{(notebook, the block's first line): the block} of all Markdown cells."""
    found = {}
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "markdown":
                fenced = [
                    re.sub(rf"^{re.escape(quote)}", "", code, flags=re.M) for quote, _, code in FENCED.findall(cell.source)
                ]
                indented = [textwrap.dedent(code) for code in INDENTED.findall(FENCED.sub("", cell.source))]
                found |= {(path.stem, code.splitlines()[0]): code for code in [*fenced, *indented]}
    return found


BLOCKS = blocks()


def block(name):
    notebook, begin = name
    return next(code for (stem, line), code in BLOCKS.items() if stem == notebook and line.startswith(begin))


def run(name, folder, *arguments, **environment):
    given, shown = WITH_WORK[name]
    (folder / "program.py").write_text("\n".join([given, block(name), shown]), encoding="utf-8")
    command = [sys.executable, "program.py", *arguments]
    done = subprocess.run(command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr


def test_every_block_is_run_or_there_is_a_reason_why_not():
    known = [*WITH_WORK, *NOT_TO_COPY, *SHELL]
    for notebook, line in BLOCKS:
        assert [name for name in known if name[0] == notebook and line.startswith(name[1])], f"{notebook}: who runs {line!r}?"
    for name in known:
        assert block(name)


@pytest.mark.parametrize("name", PYTHON, ids=" ".join)
def test_a_block_runs(name, tmp_path):
    run(name, tmp_path)


@pytest.mark.cuda
@pytest.mark.parametrize("name", ON_A_GPU, ids=" ".join)
def test_a_block_for_a_gpu_runs_there(name, tmp_path):
    run(name, tmp_path)


@pytest.mark.environment("DeepSpeed", files=("hpml_lab/sharding/lessons", "hpml_lab/sharding/experiments/quiet_deepspeed.py"))
@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed")
@pytest.mark.parametrize("name", BY_DEEPSPEED, ids=" ".join)
def test_a_block_for_deepspeed_runs_as_its_only_rank(name, tmp_path):
    settings = {"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "Adam", "params": {"torch_adam": True}}}
    (tmp_path / "deepspeed.json").write_text(json.dumps(settings))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    run(name, tmp_path, "--deepspeed", "--deepspeed_config", "deepspeed.json", DS_ACCELERATOR="cpu", **ranks)


@pytest.mark.parametrize("name", [name for name in SHELL if name[1].startswith("torchrun")], ids=" ".join)
def test_torchrun_takes_the_line(name):
    from torch.distributed.run import get_args_parser

    arguments = get_args_parser().parse_args(shlex.split(block(name))[1:])
    assert arguments.training_script in ("hpml_lab", "train.py")


@pytest.mark.environment("the installed command and py-spy", files=("hpml_lab/profilers", "hpml_lab/cli/profile.py"))
def test_a_script_of_one_s_own_is_profiled(tmp_path):
    (tmp_path / "train.py").write_text(OWN_SCRIPT)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = ["bash", "-ec", block(("10_profiling", "hpml-lab profile train.py"))]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert done.returncode == 0 and "epoch 2" in done.stdout, done.stderr
    assert list(tmp_path.rglob("*.html"))


def test_perf_records_and_reports(tmp_path):
    if shutil.which("perf") is None:
        pytest.skip("perf is not installed")
    shutil.copy(shutil.which("true"), tmp_path / "program")
    lines = block(("10_profiling", "perf record "))
    with open(tmp_path / "shown", "w") as screen:  # into a pipe perf would write its recording
        done = subprocess.run(["bash", "-ec", lines], cwd=tmp_path, stdout=screen, stderr=subprocess.PIPE, text=True)
    if "perf_event_paranoid" in done.stderr or "not supported" in done.stderr:
        pytest.skip("this machine lets nobody record")
    assert done.returncode == 0, done.stderr


def test_the_engineers_lines_are_those_of_the_notebook():
    text = (ROOT / "docs" / "engineers.md").read_text(encoding="utf-8")
    for line in block(("14_sharding", "hpml-lab template .")).splitlines():
        assert line in text
