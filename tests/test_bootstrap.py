"""`bootstrap.py lab` and `bootstrap.py test` build the environment once, or say what to do, and can be interrupted."""

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections import namedtuple

import pytest

from hpml_lab.core.system.paths import ROOT


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
    module.asked, module.made = [], 0
    monkeypatch.setattr(module, "packages", lambda: {"torch", "jupyterlab"})

    def fake_venv():
        (venv / "bin").mkdir(parents=True, exist_ok=True)
        if not (venv / "bin" / "python").exists():
            (venv / "bin" / "python").symlink_to(sys.executable)
        module.made += 1

    module.make_real_venv = module.make_venv
    monkeypatch.setattr(module, "make_venv", fake_venv)
    monkeypatch.setattr(module, "run_with_progress", lambda label, command: module.asked.append(command))
    return module


def test_everything_is_installed_from_the_lock_with_hashes_and_only_once(bootstrap):
    bootstrap.main()
    installer, lock, own = bootstrap.asked
    assert "--require-hashes" in installer and {"--require-hashes", "--compile-bytecode"} <= set(lock)
    assert lock[lock.index("--build-constraint") + 1] == "requirements.lock", "what builds a package has a hash as well"
    assert own[-5:] == ["--offline", "--no-deps", "--no-build-isolation", "-e", "."]
    first = len(bootstrap.asked)
    bootstrap.main()
    assert len(bootstrap.asked) == first, "the second time there is nothing to do"


def test_jupyterlab_does_not_ask_about_news_over_the_first_page(bootstrap):
    bootstrap.main()
    defaults = json.loads((bootstrap.VENV / "share/jupyter/lab/settings/overrides.json").read_text())
    assert defaults["@jupyterlab/apputils-extension:notification"] == {"fetchNews": "false"}


def test_a_changed_lock_installs_again(bootstrap):
    bootstrap.main()
    first = len(bootstrap.asked)
    with (bootstrap.ROOT / "requirements.lock").open("a") as lock:
        lock.write("# another\n")
    bootstrap.main()
    assert len(bootstrap.asked) == 2 * first and bootstrap.made == 1, "over what is there"


def test_the_installer_is_fetched_by_its_hashes(bootstrap):
    bootstrap.main()
    pins = (bootstrap.VENV / "uv.txt").read_text()
    assert re.match(r"uv==[\d.]+ \\\n", pins) and pins.count("==") == 1
    assert pins.count("--hash=sha256:") == len(pins.splitlines()) - 1 > 5, "one for each platform's wheel"


def test_a_package_that_was_deleted_is_noticed_and_the_environment_made_anew(bootstrap, monkeypatch):
    bootstrap.main()
    monkeypatch.setattr(bootstrap, "packages", lambda: {"jupyterlab"})
    bootstrap.main()
    assert bootstrap.made == 2 and len(bootstrap.asked) == 6


def test_an_environment_knows_its_folder_its_python_and_its_packages(bootstrap, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(bootstrap, "BIN", ROOT / "absent")
    assert bootstrap.packages() == set(), "a Python that does not start has none"
    monkeypatch.setattr(
        bootstrap, "answer", lambda python, code: subprocess.check_output([sys.executable, "-c", code]).decode().split()
    )
    assert {sys.prefix, "torch", "numpy"} <= bootstrap.packages()


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
    monkeypatch.setattr(bootstrap, "make_venv", bootstrap.make_real_venv)
    with pytest.raises(SystemExit, match="only 1.0 GB of disk are free"):
        bootstrap.main()
    assert bootstrap.asked == []


def test_an_unsupported_python_is_told_with_the_mend(bootstrap, monkeypatch):
    monkeypatch.setattr(bootstrap, "version_of", lambda python: "3.9")
    with pytest.raises(SystemExit, match="not supported.*\n.*python3.12 bootstrap.py lab"):
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


SETUP = """
import bootstrap
bootstrap.DISK_NEEDED_GB = 0
def installs(label, command):
    print(label, flush=True)
    for folder in bootstrap.VENV.rglob("site-packages"):
        (folder / "jupyterlab").mkdir(exist_ok=True)
bootstrap.run_with_progress = installs
try:
    bootstrap.main()
except KeyboardInterrupt:
    pass
"""


@pytest.fixture
def project(tmp_path):
    """A project whose set-up makes a real virtual environment, and only prints what it would install."""
    for name in ("bootstrap.py", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def start_setup(project):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([sys.executable, "-c", SETUP], cwd=project, start_new_session=True, **pipes)


@pytest.mark.environment("four virtual environments, three of them interrupted", files=("bootstrap.py",))
@pytest.mark.skipif(os.name == "nt", reason="signals to a group are POSIX's")
def test_a_set_up_that_was_interrupted_while_the_environment_was_made_is_made_whole_by_the_next(project):
    """Without the stamp as the only witness, a `.venv` with Python and without pip was taken for whole, for ever."""
    moments = [
        (".venv/bin/python3", signal.SIGINT),
        (".venv/lib/*/site-packages/*", signal.SIGKILL),
        (".venv/bin/python3", signal.SIGTERM),
    ]
    for reached, number in moments:
        shutil.rmtree(project / ".venv", ignore_errors=True)
        setup, end = start_setup(project), time.monotonic() + 300
        while not list(project.glob(reached)) and setup.poll() is None and time.monotonic() < end:
            time.sleep(0.005)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(setup.pid, number)
        assert "Installing packages" not in setup.communicate(timeout=300)[0], "it was interrupted before"
    said, _ = start_setup(project).communicate(timeout=600)
    assert "Installing packages" in said and (project / ".venv" / "installed.sha256").is_file(), said
    pip = subprocess.run([project / ".venv" / "bin" / "python", "-m", "pip", "--version"], capture_output=True, text=True)
    assert pip.stdout.startswith("pip "), pip


def test_a_second_set_up_waits_for_the_first(project):
    fcntl = pytest.importorskip("fcntl")
    with (project / "pyproject.toml").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        (project / ".venv").write_text("a file, so that it ends soon")
        setup = start_setup(project)
        assert "waiting for its end" in setup.stdout.readline() and setup.poll() is None
    assert "not a folder" in setup.communicate(timeout=300)[0]


@pytest.mark.parametrize("target", [None, "absent"], ids=["a file", "a link to nothing"])
def test_a_venv_that_is_no_folder_is_named(project, target):
    (project / ".venv").symlink_to(target) if target else (project / ".venv").write_text("mine")
    setup = start_setup(project)
    said = setup.communicate(timeout=300)[0]
    assert setup.returncode == 1 and ".venv is there, but it is not a folder.\nWhat to do: rename or remove it." in said


def test_a_venv_that_is_a_link_to_something_is_not_emptied(project, tmp_path):
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (elsewhere / "pyvenv.cfg").write_text("another project's")
    (project / ".venv").symlink_to(elsewhere)
    setup = start_setup(project)
    assert ".venv is a link to" in setup.communicate(timeout=300)[0] and setup.returncode == 1
    assert (elsewhere / "pyvenv.cfg").read_text() == "another project's"


def test_a_folder_that_cannot_be_written_is_named(bootstrap, monkeypatch):
    monkeypatch.setattr(bootstrap.os, "access", lambda path, mode: False)
    with pytest.raises(SystemExit, match="read-only for you.\nWhat to do: copy the folder"):
        bootstrap.make_real_venv()


def test_lab_and_test_run_in_the_environment_with_further_words(bootstrap, monkeypatch):
    called, environments = [], []

    def become(program, command, environment):
        called.append(command)
        environments.append(environment)
        raise SystemExit(3)

    monkeypatch.chdir(".")  # back to where this was, after the test
    monkeypatch.setattr(os, "execve", become)
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONHOME", "PYTHONPATH"):
        monkeypatch.setenv(name, "1")
    for arguments in (("test", "-k", "xor"), ("lab", "--no-browser")):
        with pytest.raises(SystemExit, match="3"):
            bootstrap.main(*arguments)
    assert called[0][1:] == ["-m", "pytest", "-n", "auto", "-k", "xor"]
    assert called[1][1:3] == ["-m", "jupyterlab"] and called[1][-1] == "--no-browser"
    assert os.getcwd() == str(bootstrap.ROOT) and len(bootstrap.asked) == 3, "the environment is made once"
    assert environments[0].keys() & {"PYTHONDONTWRITEBYTECODE", "PYTHONHOME", "PYTHONPATH"} == set()
    assert environments[0]["VIRTUAL_ENV"] == str(bootstrap.VENV)
    with pytest.raises(SystemExit, match="'tests' is not one of its commands"):
        bootstrap.main("tests")


def test_help_names_both_commands_and_makes_nothing(bootstrap, capsys):
    assert bootstrap.main("--help") == 0 and bootstrap.asked == []
    assert {"python bootstrap.py lab", "python bootstrap.py test"} <= set(
        re.findall(r"python bootstrap.py \w+", capsys.readouterr().out)
    )


LAB = """
import bootstrap, sys
bootstrap.make_environment = lambda: None
bootstrap.BIN = bootstrap.ROOT
sys.exit(bootstrap.main("lab"))
"""
ASKS = "#!/bin/sh\ntrap 'sleep 1; echo asked; exit 7' INT\necho ready\nwhile :; do sleep 0.1; done\n"


@pytest.mark.skipif(os.name == "nt", reason="signals to a group are POSIX's")
def test_a_ctrl_c_is_left_to_the_command(project):
    """JupyterLab asks whether it is meant, and puts its things away; killed meanwhile, it does neither."""
    (project / "python").write_text(ASKS)
    (project / "python").chmod(0o755)
    command = [sys.executable, "-c", LAB]
    lab = subprocess.Popen(command, cwd=project, start_new_session=True, stdout=subprocess.PIPE, text=True)
    assert lab.stdout.readline() == "ready\n"
    os.killpg(lab.pid, signal.SIGINT)
    assert (lab.communicate(timeout=300)[0], lab.returncode) == ("asked\n", 7)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda number: number.name)
def test_a_signal_that_ends_the_lab_leaves_nothing_behind(project, nothing_left, number):
    """It ended bootstrap.py alone: JupyterLab ran on, and its token was good for whoever had it."""
    (project / "python").write_text("#!/bin/sh\necho ready\nexec sleep 600\n")
    (project / "python").chmod(0o755)
    lab = subprocess.Popen([sys.executable, "-c", LAB], cwd=project, stdout=subprocess.PIPE, text=True)
    assert lab.stdout.readline() == "ready\n"
    lab.send_signal(number)
    assert lab.communicate(timeout=300)[0] == "" and lab.returncode == -number


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux's kernel ends a child with its parent")
def test_an_installer_ends_with_the_set_up_that_started_it(project, nothing_left):
    (project / ".venv").mkdir()
    code = (
        "import bootstrap; bootstrap.installers_environment = dict; bootstrap.run_with_progress('sleeping', ['sleep', '600'])"
    )
    setup = subprocess.Popen([sys.executable, "-c", code], cwd=project, stdout=subprocess.PIPE, text=True)
    assert setup.stdout.readline().startswith("sleeping")
    setup.kill()
    setup.communicate(timeout=300)


ELSEWHERE = {
    "PIP_USER": "1",
    "PIP_TARGET": "/elsewhere",
    "PIP_PREFIX": "/elsewhere",
    "PIP_ROOT": "/elsewhere",
    "PIP_PYTHON": "/usr/bin/python3",
    "PIP_REQUIRE_VIRTUALENV": "1",
    "PIP_DRY_RUN": "1",
    "PIP_NO_DEPS": "1",
    "UV_SYSTEM_PYTHON": "1",
    "UV_LINK_MODE": "symlink",
    "UV_PYTHON": "3.9",
    "UV_CONSTRAINT": "/elsewhere.txt",
    "UV_EXCLUDE_NEWER": "2000-01-01",
    "PYTHONHOME": "/elsewhere",
    "PYTHONPATH": "/elsewhere",
    "PYTHONUSERBASE": "/elsewhere",
    "PYTHONWARNINGS": "error",
    "PYTHONINSPECT": "1",
}
REACHED = {
    "PIP_INDEX_URL": "https://pip.test/simple",
    "PIP_NO_INDEX": "1",
    "PIP_CERT": "/cert.pem",
    "PIP_DEFAULT_TIMEOUT": "99",
    "UV_CONCURRENT_DOWNLOADS": "1",
    "HTTPS_PROXY": "http://proxy.test",
}
PIP_CONF = """
[global]
user = true
target = /elsewhere
index-url = https://global.test/simple
trusted-host =
    one.test
    two.test
[install]
prefix = /elsewhere
index-url = https://install.test/simple
"""


@pytest.fixture
def installers_environment(bootstrap, monkeypatch, tmp_path):
    """The variables that pip and uv get, where nothing is set but what a test sets; its pip is that of the tests."""
    for name in os.environ:
        if name.startswith(("PIP_", "UV_", "SSL_", "ALL_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(bootstrap, "BIN", ROOT / ".venv" / "bin")
    if not (bootstrap.BIN / "python").exists():
        monkeypatch.setattr(bootstrap, "BIN", type(ROOT)(sys.executable).parent)
    return bootstrap.installers_environment


def test_no_setting_leads_an_installation_out_of_the_environment(installers_environment, monkeypatch):
    """`PIP_USER=1`, as clusters set it, and no set-up ever came to its end."""
    for name, value in {**ELSEWHERE, **REACHED}.items():
        monkeypatch.setenv(name, value)
    made = installers_environment()
    assert made.keys() & ELSEWHERE.keys() == set() and made.items() >= REACHED.items()
    assert made["UV_DEFAULT_INDEX"] == REACHED["PIP_INDEX_URL"] and made["SSL_CERT_FILE"] == "/cert.pem", "uv is told, too"


def test_of_pips_files_counts_how_packages_are_reached(installers_environment, monkeypatch, tmp_path):
    (tmp_path / "pip.conf").write_text(PIP_CONF)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    made = installers_environment()
    assert made["PIP_INDEX_URL"] == made["UV_DEFAULT_INDEX"] == "https://install.test/simple"
    assert made["PIP_TRUSTED_HOST"] == made["UV_INSECURE_HOST"] == "one.test two.test"
    assert made["PIP_CONFIG_FILE"] == os.devnull and made.keys() & ELSEWHERE.keys() == set()
    monkeypatch.setenv("PIP_INDEX_URL", "https://variable.test/simple")
    monkeypatch.setenv("UV_INDEX_URL", "https://uv.test/simple")
    made = installers_environment()
    assert made["PIP_INDEX_URL"] == "https://variable.test/simple", "a variable goes before a file"
    assert "UV_DEFAULT_INDEX" not in made, "who has set up uv has said what it uses"
    (tmp_path / "pip.conf").write_text("no section\n")
    with pytest.raises(SystemExit, match="pip cannot read its settings(.|\n)*correct that file"):
        installers_environment()


def test_temporary_files_and_a_cache_that_cannot_be_written_go_into_the_environment(
    installers_environment, bootstrap, monkeypatch, tmp_path
):
    monkeypatch.setenv("TMPDIR", "/proc/full")
    (bootstrap.VENV / "tmp").mkdir(parents=True)
    made = installers_environment()
    assert {made[name] for name in ("TMPDIR", "TEMP", "TMP")} == {str(bootstrap.VENV / "tmp")} and "UV_CACHE_DIR" not in made
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    made = installers_environment()
    assert made["UV_CACHE_DIR"] == str(bootstrap.VENV / "tmp" / "cache")
    assert made["UV_LINK_MODE"] == "hardlink", "as uv.toml may have it, links would lead into this cache, which is removed"


def test_folders_of_packages_instead_of_an_index_are_ones_for_uv_too(installers_environment, monkeypatch):
    """As clusters without a network have it in pip.conf."""
    assert "UV_FIND_LINKS" not in installers_environment()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels /more")
    assert installers_environment().items() >= {"UV_NO_INDEX": "1", "UV_FIND_LINKS": "/wheels,/more"}.items()


@pytest.mark.parametrize(
    ("found", "said"),
    [({"/x/.venv", "pip"}, "another folder than .venv(.|\n)*uv.toml"), (set(), "does not start(.|\n)*LC_ALL=C.UTF-8")],
    ids=["elsewhere", "LC_ALL=C in a folder with a name that is not ASCII"],
)
def test_an_installation_that_is_of_no_use_is_noticed(bootstrap, monkeypatch, found, said):
    monkeypatch.setattr(bootstrap, "packages", lambda: found)
    with pytest.raises(SystemExit, match=said):
        bootstrap.main()
    assert not bootstrap.STAMP.exists()


@pytest.mark.environment("a virtual environment, and pip", files=("bootstrap.py",))
@pytest.mark.parametrize("settings", [{"PIP_USER": "1"}, {"PYTHONPATH": os.path.dirname(pytest.__file__)}], ids=str)
def test_pip_installs_into_the_environment_whatever_is_set(project, settings):
    """A package of this test's own."""
    about = {
        "METADATA": "Metadata-Version: 2.1\nName: reached\nVersion: 1\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(project / "reached-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("reached.py", "")
        for name, text in about.items():
            wheel.writestr(f"reached-1.dist-info/{name}", text)
    code = (
        "import bootstrap, pathlib; bootstrap.DISK_NEEDED_GB = 0; bootstrap.make_venv();"
        "command = [str(bootstrap.BIN / 'python'), '-m', 'pip', 'install', 'reached-1-py3-none-any.whl'];"
        "bootstrap.run_with_progress('installing', command); print('reached.py' in bootstrap.packages())"
    )
    pipes = {"capture_output": True, "text": True, "timeout": 600}
    done = subprocess.run([sys.executable, "-c", code], cwd=project, env=os.environ | settings, **pipes)
    assert done.stdout.splitlines()[-1:] == ["True"], done


def test_the_makefile_calls_the_same_two_commands():
    text = (ROOT / "Makefile").read_text()
    assert "bootstrap.py lab $(ARGS)" in text and "bootstrap.py test $(ARGS)" in text
