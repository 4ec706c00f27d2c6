"""The package with little more than torch: every experiment loads, and says what else it needs instead of failing to import."""

import importlib.metadata as metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hpml_lab.core.experiment.registry import all_experiments
from hpml_lab.core.system.paths import ROOT

pytestmark = pytest.mark.environment(
    "a Python with little more than torch",
    files=("hpml_lab/core", "hpml_lab/adaptive/experiments/optimizer_conformance", "hpml_lab/start"),
)
# What a GPU machine without Jupyter has.
LEAN = ("torch", "torchvision", "numpy", "pandas", "matplotlib", "scikit-learn", "psutil", "nvidia-ml-py", "jinja2")
NOT_THERE = ["IPython", "ipywidgets", "nbformat", "line_profiler", "torchview", "expecttest", "tqdm"]
NOT_THERE += [
    "deepspeed",
    "timm",
    "torchao",
    "torch_pruning",
    "pydicom",
    "h5py",
    "torchdata",
    "onnxruntime",
    "onnx",
    "onnxscript",
]
NOT_THERE += ["litserve", "torchdata"]
LOAD = """
import json, importlib.util
from hpml_lab.adaptive.experiments.optimizer_conformance.torch_inputs import suite
from hpml_lab.core.experiment.registry import all_experiments, topics_that_do_not_load
visible = [name for name in {names} if importlib.util.find_spec(name)]
print(json.dumps([[row.slug for row in all_experiments()], topics_that_do_not_load(), visible, len(suite("Adam")[0])]))
"""


def needed(names):
    """The distributions `names` and all that they require, as far as they are installed."""
    found, open_names = {}, list(names)
    while open_names:
        name = canonicalize_name(open_names.pop())
        if name in found:
            continue
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        wanted = map(Requirement, found[name].requires or [])
        open_names += [line.name for line in wanted if line.marker is None or line.marker.evaluate({"extra": ""})]
    return found


@pytest.fixture(scope="module")
def lean(tmp_path_factory):
    """(arguments) -> the finished child: a Python that sees the distributions of `LEAN` and no other."""
    folder = tmp_path_factory.mktemp("lean")
    for distribution in needed(LEAN).values():
        for top in {file.parts[0] for file in distribution.files} - {"..", "__pycache__"}:
            if not (folder / top).exists():
                (folder / top).symlink_to(Path(distribution.locate_file(top)))
    # -S leaves site-packages out, for the children of multiprocessing too
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]), "HPML_DEVICE": "cpu"}

    def run(*arguments):
        command = [sys.executable, "-S", *arguments]
        return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)

    return run


def test_every_experiment_loads_and_nothing_else_was_visible(lean):
    done = lean("-c", LOAD.format(names=NOT_THERE))
    slugs, failed, visible, inputs = json.loads(done.stdout or "[[], {}, [], 0]")
    assert failed == {} and visible == [], done.stderr
    assert slugs == [row.slug for row in all_experiments()]
    assert inputs > 3, "PyTorch's own inputs of its optimizers load without expecttest"


def test_an_experiment_names_what_is_missing(lean):
    slugs = ["gradcheck", "cprofile-line-profiler", "deepspeed-training", "torchview-graphs"]
    done = lean("-m", "hpml_lab", "run", *slugs, "--size", "quick")
    for shown_less in slugs[:3]:
        assert f"{shown_less}:" in done.stdout
    assert "line-profiler is not installed in this Python. pip install line-profiler" in done.stdout
    assert "DeepSpeed is not installed here, so nothing was run. pip install deepspeed" in done.stdout
    assert "torchview is not installed in this Python." in done.stderr
    assert done.returncode != 0 and "Traceback" not in done.stderr
