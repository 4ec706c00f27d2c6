"""The copies for Colab and Kaggle: one cell apart from the notebooks, and installed without replacing what runs there."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys

import nbformat
import pytest

from hpml_lab.core.system.paths import NOTEBOOKS, ROOT

PINS = ROOT / "tests" / "colab" / "pins.txt"
RUN = "import sys, nbformat; from nbclient import NotebookClient; path = sys.argv[1]; nb = nbformat.read(path, 4)\n"
RUN += "nb.cells = [cell for cell in nb.cells if 'colab' not in cell.metadata.get('tags', [])]\n"
RUN += "NotebookClient(nb, timeout=900, kernel_name='python3').execute()"


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    spec = importlib.util.spec_from_file_location("colab", ROOT / "docs" / "colab.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.write_copies(tmp_path_factory.mktemp("copies"))


def test_a_copy_differs_from_its_notebook_by_one_tagged_cell(copies):
    assert [path.name for path in copies] == [path.name for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))]
    for path in copies:
        own, copy = (nbformat.read(folder / path.name, as_version=4).cells for folder in (NOTEBOOKS, path.parent))
        added = [cell for cell in copy if "colab" in cell.metadata.get("tags", [])]
        assert len(added) == 1 and len(copy) == len(own) + 1
        rest = [cell for cell in copy if cell is not added[0]]
        assert [cell.source for cell in rest if cell.cell_type == "code"] == [c.source for c in own if c.cell_type == "code"]
        assert copy.index(added[0]) == min(number for number, cell in enumerate(copy) if cell.cell_type == "code")
        assert not re.search(r"\]\(\.\./", "".join(cell.source for cell in copy)), "links lead out of the copies' folder"


def uv():
    found = ROOT / ".venv" / "bin" / "uv"
    return str(found) if found.is_file() else shutil.which("uv") or pytest.skip("uv is not installed")


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, **options)
    if re.search(r"dns error|error sending request|Failed to fetch|Network", done.stderr):
        pytest.skip("no package index can be reached")
    return done


@pytest.mark.environment("uv and a package index", files=("tests/colab",))
@pytest.mark.parametrize("python", ["3.12", "3.13"])
def test_nothing_that_the_platform_has_is_replaced(python):
    """Solved with the platform's versions as constraints, the workbook needs no other version of any of them."""
    done = run(
        *(
            uv(),
            "pip",
            "compile",
            "--quiet",
            "--no-build",
            "--no-header",
            "--python-version",
            python,
            "--python-platform",
            "linux",
        ),
        *("--constraint", PINS, "--extra", "notebooks", ROOT / "pyproject.toml"),
    )
    assert done.returncode == 0, done.stderr
    name_of = lambda line: re.split(r"[=\[; ]", line)[0].lower().replace("_", "-")  # noqa: E731
    pins = {name_of(line): line.split("==")[1] for line in PINS.read_text().splitlines() if "==" in line}
    chosen = {name_of(line): line.split("==")[1].split()[0] for line in done.stdout.splitlines() if re.match(r"\w.*==", line)}
    assert {"torch", "ipywidgets", "psutil", "ipykernel"} <= chosen.keys() & pins.keys()
    assert {name: chosen[name] for name in pins if name in chosen} == {name: pins[name] for name in pins if name in chosen}


@pytest.mark.environment("pip, and notebooks in an environment of Colab's versions", files=("docs/colab.py", "tests/colab"))
def test_four_copies_run_in_an_environment_of_the_platforms_versions(copies, tmp_path):
    python = tmp_path / "venv" / "bin" / "python"
    assert run(uv(), "venv", "--python", sys.executable, tmp_path / "venv").returncode == 0
    installed = run(
        uv(), "pip", "install", "--python", python, "-r", PINS, f"hpml-lab[notebooks] @ {ROOT.as_uri()}", "nbclient"
    )
    assert installed.returncode == 0, installed.stderr
    for name in ("00_start", "02_autograd", "05_adaptive", "13_distributed"):
        [path] = [path for path in copies if path.stem == name]
        environment = os.environ | {"HPML_SIZE": "quick", "PYTHONPATH": ""}
        done = run(python, "-c", RUN, path, cwd=tmp_path, env=environment)
        assert done.returncode == 0, f"{name}: {done.stderr[-3000:]}"
