"""`make lab` and `make test` build the environment once, say what to do when they cannot, and go on after an interruption."""

import importlib.util
import shutil
import subprocess
import sys
from collections import namedtuple

import pytest

from hpml_lab.core.paths import ROOT


@pytest.fixture
def bootstrap(tmp_path, monkeypatch):
    """bootstrap.py over an empty project, with installers that only write down what they were asked for."""
    spec = importlib.util.spec_from_file_location("bootstrap", ROOT / "bootstrap.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    venv = tmp_path / ".venv"
    for name, path in {"ROOT": tmp_path, "VENV": venv, "BIN": venv / "bin", "STAMP": venv / "installed.sha256"}.items():
        monkeypatch.setattr(module, name, path)
    module.asked = []

    def fake_venv():
        (venv / "bin").mkdir(parents=True, exist_ok=True)
        if not (venv / "bin" / "python").exists():
            (venv / "bin" / "python").symlink_to(sys.executable)

    monkeypatch.setattr(module, "make_venv", fake_venv)
    monkeypatch.setattr(module, "run_with_progress", lambda label, command: module.asked.append(command))
    return module


def test_everything_is_installed_from_the_lock_with_hashes_and_only_once(bootstrap):
    bootstrap.main()
    lock = next(command for command in bootstrap.asked if "requirements.lock" in command)
    assert {"--require-hashes", "--compile-bytecode"} <= set(lock)
    assert bootstrap.asked[-1][-3:] == ["--no-deps", "-e", "."]
    first = len(bootstrap.asked)
    bootstrap.main()
    assert len(bootstrap.asked) == first, "the second time there is nothing to do"


def test_a_changed_lock_installs_again(bootstrap):
    bootstrap.main()
    first = len(bootstrap.asked)
    with (bootstrap.ROOT / "requirements.lock").open("a") as lock:
        lock.write("# another\n")
    bootstrap.main()
    assert len(bootstrap.asked) == 2 * first


def test_an_interrupted_installation_is_taken_up_again(bootstrap, monkeypatch):
    def interrupt(label, command):
        raise KeyboardInterrupt

    working = bootstrap.run_with_progress
    monkeypatch.setattr(bootstrap, "run_with_progress", interrupt)
    with pytest.raises(KeyboardInterrupt):
        bootstrap.main()
    assert not bootstrap.STAMP.exists()
    monkeypatch.setattr(bootstrap, "run_with_progress", working)
    bootstrap.main()
    assert bootstrap.asked and bootstrap.STAMP.exists()


def test_a_disk_too_full_is_told_before_anything_is_fetched(bootstrap, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10e9, 9e9, 1e9))
    with pytest.raises(SystemExit, match="only 1.0 GB of disk are free"):
        bootstrap.main()
    assert bootstrap.asked == []


def test_an_unsupported_python_is_told_with_the_mend(bootstrap, monkeypatch):
    monkeypatch.setattr(bootstrap, "version_of", lambda python: "3.9")
    with pytest.raises(SystemExit, match="not supported.*\n.*make lab PYTHON="):
        bootstrap.find_python()


def test_another_supported_python_on_the_path_is_taken(bootstrap, monkeypatch):
    monkeypatch.setattr(bootstrap, "version_of", lambda python: "3.12" if python == "python3.12" else "3.9")
    assert bootstrap.find_python() == "python3.12"


def test_a_failing_installer_shows_its_words_and_what_to_do(tmp_path, capsys):
    code = (
        "import bootstrap, sys, pathlib;"
        "bootstrap.VENV = pathlib.Path(sys.argv[1]); bootstrap.ROOT = bootstrap.VENV.parent;"
        "bootstrap.run_with_progress('Installing packages',"
        "[sys.executable, '-c', 'import sys; sys.exit(\"no route to host\")'])"
    )
    (tmp_path / "venv").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "venv")], capture_output=True, text=True, cwd=ROOT, timeout=300
    )
    assert done.returncode != 0
    assert "no route to host" in done.stdout
    assert "Installing packages failed" in done.stderr and "check the network" in done.stderr
