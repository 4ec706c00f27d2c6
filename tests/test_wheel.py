"""The wheel away from the checkout: notebooks and recorded runs are in it, and nothing is written into the package's folder."""

import functools
import http.server
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
import zipfile
from pathlib import Path

import pytest

from hpml_lab.core.system import machine
from hpml_lab.core.system.paths import NOTEBOOKS, REFERENCE, ROOT
from hpml_lab.profiling.tools.nsys import SHIPPED_REPORT


def build(source, folder, *what):
    """What hatchling makes of a source folder, in `folder`."""
    command = [sys.executable, "-m", "hatchling", "build", *what, "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=300)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """(words) -> the finished `hpml-lab` of a new environment with the wheel in it, run in a folder of its own."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("elsewhere")
    build(ROOT, folder, "-t", "wheel")
    [wheel] = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True, timeout=300)
    python = folder / "venv" / "bin" / "python"
    packages = Path(
        subprocess.check_output([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True).strip()
    )
    # What the wheel needs is that of these tests, without the checkout: a path file is read, and the one in it is not.
    (packages / "tests.pth").write_text(sysconfig.get_path("purelib"))
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel], check=True, timeout=300)
    work = folder / "work"
    work.mkdir()

    def run(*words, **variables):
        dropped = ("PYTHONPATH", "HPML_RESULTS", "HPML_DATA")
        environment = {name: value for name, value in os.environ.items() if name not in dropped} | variables
        environment |= {"XDG_DATA_HOME": str(folder / "data")}
        return subprocess.run([python, *words], cwd=work, env=environment, capture_output=True, text=True, timeout=900)

    run.work, run.package = work, packages / "hpml_lab"
    before = {path for path in packages.rglob("*") if "__pycache__" not in path.parts}
    yield run
    after = {path for path in packages.rglob("*") if "__pycache__" not in path.parts}
    assert after == before, "nothing is ever written into the package's folder"


def test_it_ships_notebooks_and_recorded_runs(installed):
    shipped = installed.package / "shipped"
    assert sorted(path.name for path in (shipped / "notebooks").glob("*.ipynb")) == sorted(
        p.name for p in NOTEBOOKS.glob("*.ipynb")
    )
    assert (shipped / SHIPPED_REPORT.name).read_bytes() == SHIPPED_REPORT.read_bytes()
    assert len(list((shipped / "reference").glob("*.json"))) == len(list(REFERENCE.glob("*.json")))
    listed = installed("-m", "hpml_lab", "list").stdout
    assert listed.count(" yes ") == len(list(REFERENCE.glob("*.json")))


@pytest.mark.environment(
    "a source archive, and a wheel built from it", files=("hatch_build.py", "hpml_lab/core/system/machine.py")
)
def test_its_version_names_the_commit_that_it_was_built_from(installed, tmp_path):
    said = subprocess.run([sys.executable, "-m", "hpml_lab", "--version"], cwd=ROOT, capture_output=True, text=True).stdout
    assert installed("-m", "hpml_lab", "--version").stdout == said
    if machine.commit() is None:
        pytest.skip("this copy has no .git, so nobody knows its commit")
    assert machine.commit().removesuffix("+") in said
    build(ROOT, tmp_path, "-t", "sdist")
    [archive] = tmp_path.glob("*.tar.gz")
    shutil.unpack_archive(archive, tmp_path, filter="data")
    build(archive.with_name(archive.name.removesuffix(".tar.gz")), tmp_path, "-t", "wheel")
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        assert files.read("hpml_lab/shipped/commit").decode() == machine.commit(), "the source archive keeps it, too"


def test_notebooks_are_written_out_and_what_is_there_is_kept(installed):
    (installed.work / "mine").mkdir()
    (installed.work / "mine" / "00_start.ipynb").write_text("my own")
    done = installed("-m", "hpml_lab", "notebooks", "mine")
    assert done.returncode == 0 and "00_start.ipynb" in done.stderr
    assert (installed.work / "mine" / "00_start.ipynb").read_text() == "my own"
    assert len(list((installed.work / "mine").glob("*.ipynb"))) == len(list(NOTEBOOKS.glob("*.ipynb")))


def test_the_template_is_written_out_and_what_is_there_is_kept(installed):
    (installed.work / "job").mkdir()
    (installed.work / "job" / "train.py").write_text("my own")
    done = installed("-m", "hpml_lab", "template", "job")
    assert done.returncode == 0 and "kept as it is: train.py" in done.stderr
    assert done.stdout == "train.slurm, deepspeed.json written to job/\n"
    assert (installed.work / "job" / "train.py").read_text() == "my own"
    lessons = ROOT / "hpml_lab" / "sharding" / "lessons"
    for name in ("train.slurm", "deepspeed.json"):
        assert (installed.work / "job" / name).read_bytes() == (lessons / name).read_bytes()


@pytest.mark.environment(
    "run and report of an installed wheel", files=("hatch_build.py", "hpml_lab/core/system/paths.py", "hpml_lab/cli/report.py")
)
def test_results_go_to_the_current_folder_and_the_report_reads_them(installed):
    done = installed("-m", "hpml_lab", "run", "zero-grad", "--size", "quick")
    assert done.returncode == 0 and (installed.work / "results" / "zero-grad.json").is_file(), done.stderr
    assert installed("-m", "hpml_lab", "report").returncode == 0
    assert list((installed.work / "results").glob("*.html"))


@pytest.mark.environment(
    "a command of an installed wheel", files=("hatch_build.py", "hpml_lab/core/system/paths.py", "hpml_lab/cli/reference.py")
)
def test_recorded_runs_of_the_package_are_not_replaced(installed):
    done = installed("-m", "hpml_lab", "reference", "zero-grad")
    assert done.returncode == 2 and "--out DIR" in done.stderr


@pytest.mark.environment(
    "the doctor of an installed wheel", files=("hatch_build.py", "hpml_lab/start/tools", "hpml_lab/core/system/paths.py")
)
def test_the_doctor_tells_of_this_installation(installed):
    done = installed("-m", "hpml_lab", "doctor")
    assert "00_start" in done.stdout and "make " not in done.stdout and "Traceback" not in done.stderr


def test_data_is_fetched_into_the_users_folder(installed, tmp_path):
    """From a server of our own, which has the first file and no other: it is kept, and the error names the next."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    source = next((p for p in (Path(os.environ.get("HPML_DATA", ".")) / "MNIST" / "raw").glob("t10k-labels*")), None)
    if source is None:
        pytest.skip("HPML_DATA names no MNIST")
    code = (
        "import torchvision, sys; M = torchvision.datasets.MNIST;"
        f"M.mirrors = ['http://127.0.0.1:{server.server_port}/'];"
        "M.resources = [row for row in M.resources if 't10k-labels' in row[0]];"
        "from hpml_lab.cli import main; sys.exit(main(['data', 'fetch', 'mnist']))"
    )
    if source.suffix == ".gz":
        shutil.copy(source, tmp_path)
    else:
        import gzip

        (tmp_path / f"{source.name}.gz").write_bytes(gzip.compress(source.read_bytes()))
    done = installed("-c", code)
    server.shutdown()
    assert done.returncode == 0, done.stderr
    assert "hpml-lab" in done.stdout and "site-packages" not in done.stdout


@pytest.mark.environment("kernels of an installed wheel", files=("hatch_build.py", "hpml_lab/core/system/paths.py"))
def test_three_notebooks_run(installed):
    assert installed("-m", "hpml_lab", "notebooks", "all").returncode == 0
    for name in ("00_start", "01_tensors", "05_adaptive"):
        code = (
            "import nbformat; from nbclient import NotebookClient;"
            f"NotebookClient(nbformat.read('all/{name}.ipynb', 4), timeout=900, kernel_name='python3').execute()"
        )
        done = installed("-c", code, HPML_SIZE="quick")
        assert done.returncode == 0, f"{name}: {done.stderr[-3000:]}"
