"""pyproject.toml, requirements.lock, environment.yml and the Dockerfile describe one environment."""

import re
import subprocess
import sys
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from hpml_lab import __version__
from hpml_lab.core.system import machine
from hpml_lab.core.system.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "requirements.lock").read_text()
CONDA_NAMES = {
    "torch": "pytorch",
    "matplotlib": "matplotlib-base",
    "line-profiler": "line_profiler",
}  # conda-forge's names, where they differ


def wanted(*extras):
    """{package: requirement} of the project with `extras`, and with those that they name in turn."""
    listed = [*PROJECT["dependencies"], *(line for extra in extras for line in PROJECT["optional-dependencies"][extra])]
    found = {}
    for requirement in map(Requirement, listed):
        own = requirement.name == PROJECT["name"]
        found |= wanted(*requirement.extras) if own else {canonicalize_name(requirement.name): requirement}
    return found


def locked():
    """{package: set of locked versions}: a universal lock may hold one version for each Python."""
    pins = {}
    for name, version in re.findall(r"^([a-z0-9._-]+)==([^\s;\\]+)", LOCK, flags=re.M):
        pins.setdefault(canonicalize_name(name), set()).add(version)
    return pins


@pytest.mark.parametrize("name, requirement", wanted("test").items())
def test_the_lock_holds_a_version_that_pyproject_allows(name, requirement):
    versions = locked()[name]
    assert versions and all(Version(v) in requirement.specifier for v in versions)


def test_every_locked_package_has_hashes_and_no_address():
    assert "://" not in LOCK and "index-url" not in LOCK
    entries = re.split(r"^(?=[a-z0-9])", LOCK, flags=re.M)[1:]
    assert len(entries) > 100
    assert all("--hash=sha256:" in entry for entry in entries)


def test_the_tests_install_deepspeed_so_that_its_rows_run_in_ci():
    assert wanted("test").items() > wanted("deepspeed").items() and "deepspeed" in wanted("deepspeed")
    entry = re.search(r"^deepspeed==\S+ ; (.*) \\$", LOCK, flags=re.M)
    assert entry[1] == "sys_platform == 'linux'", "elsewhere it is not installed"
    for extra in ("compression", "dicom", "hdf5", "serve"):
        assert wanted("test").items() > wanted(extra).items() > wanted().items(), "so do those of notebooks 10, 16 and 19"


def test_the_installer_and_what_builds_this_package_are_pinned():
    """The package itself is built offline by the locked hatchling."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (build,) = map(Requirement, document["build-system"]["requires"])
    (version,) = locked()["uv"]
    (builder,) = locked()[build.name]
    assert build.name == "hatchling" and Version(builder) in build.specifier and version
    assert locked()["setuptools"], "DeepSpeed is built with it: --build-constraint requirements.lock"
    command = re.search(r"uv (pip compile .*?) --quiet(.*)", (ROOT / "Makefile").read_text())
    assert f"uv {command[1]}{command[2]}\n" in LOCK


def test_conda_environment_asks_for_what_pyproject_asks_for():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    *conda, pip = environment["dependencies"]
    by_name = {Requirement(line).name: Requirement(line).specifier for line in conda}
    assert by_name.pop("python") == Requirement(f"python{PROJECT['requires-python']}").specifier
    for tool in ("pip", "graphviz"):
        by_name.pop(tool)
    assert by_name == {CONDA_NAMES.get(name, name): r.specifier for name, r in wanted("lab").items()}
    assert pip == {"pip": ["-e .[test]"]}, "the package itself and the test tools come from pyproject"


def test_lower_bounds_are_those_that_the_code_checks():
    oldest = ".".join(map(str, machine.OLDEST_TORCH))
    assert str(wanted()["torch"].specifier) == f">={oldest}"
    assert PROJECT["requires-python"].startswith(">=3.11")


def test_this_environment_is_the_locked_one():
    if not (ROOT / ".venv" / "installed.sha256").is_file():
        pytest.skip("not run in the environment that make builds")
    pins = locked()
    for name, requirement in wanted("test").items():
        if requirement.marker and not requirement.marker.evaluate():
            continue
        assert machine.installed_version(name).split("+")[0] in pins[name], name


def test_dockerfile_uses_known_instructions_and_runs_as_a_user():
    lines = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    names = [name for name, _ in steps]
    assert names[0] == "FROM" and names[-1] == "CMD"
    assert set(names) <= {"FROM", "RUN", "USER", "WORKDIR", "COPY", "EXPOSE", "CMD", "ENV"}
    assert dict(steps)["USER"] != "root"
    assert dict(steps)["CMD"].startswith('["make", "lab"')


def assert_valid(path, schema):
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.name)
def test_a_form_for_issues_is_valid(path):
    assert_valid(path, "github-issue-config" if path.name == "config.yml" else "github-issue-forms")


def test_the_citation_is_valid_and_of_this_version():
    assert_valid(ROOT / "CITATION.cff", "citation-file-format")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    urls = PROJECT["urls"]
    assert (cited["version"], cited["license"]) == (__version__, PROJECT["license"]) and __version__ == PROJECT["version"]
    assert (cited["url"], cited["repository-code"]) == (urls["Homepage"], urls["Repository"])


def test_the_tests_run_on_every_system_python_and_both_ends_of_torch():
    path = ROOT / ".github" / "workflows" / "tests.yml"
    matrix = yaml.safe_load(path.read_text())["jobs"]["systems"]["strategy"]["matrix"]
    assert {name.split("-")[0] for name in matrix["system"]} == {"ubuntu", "windows", "macos"}
    assert matrix["torch"] == ["lowest", "newest"] and matrix["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert f"torch=={'.'.join(map(str, machine.OLDEST_TORCH))}.*" in path.read_text()
