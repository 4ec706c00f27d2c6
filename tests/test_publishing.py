"""What publishes the pages, the copies for Colab and a release: valid workflows, whose shell lines do what they say."""

import importlib.util
import json
import os
import re
import runpy
import subprocess
import sys

import pytest
import yaml
from test_environment import assert_valid

from hpml_lab import __version__
from hpml_lab.core.system.paths import NOTEBOOKS, ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
NAMES = sorted(path.name for path in NOTEBOOKS.glob("[0-9]*.ipynb"))
posix = pytest.mark.skipif(os.name == "nt", reason="the workflows' lines are bash")


def jobs(name):
    return yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8"))["jobs"]


def lines_of(job, name):
    """The shell lines of a step, by its name."""
    [step] = [step for step in job["steps"] if step.get("name") == name]
    return step["run"]


def bash(lines, folder, **variables):
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", lines], cwd=folder, env=os.environ | variables, capture_output=True, text=True
    )


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_is_valid_and_may_no_more_than_it_needs(path):
    assert_valid(path, "github-workflows")
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}, "a job that needs more says so itself"
    for name, job in workflow["jobs"].items():
        assert "timeout-minutes" in job, f"{path.name}, {name}: a job that hangs runs for six hours"
        writes = {what for what, right in job.get("permissions", {}).items() if right == "write"}
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout") and "contents" not in writes:
                assert step["with"]["persist-credentials"] is False, f"{path.name}, {name}"


@posix
def test_the_copies_are_pushed_to_the_branch_that_the_links_name(tmp_path):
    """Twice, as after two pushes: the branch has one commit, with a copy of each notebook at its root."""
    build = runpy.run_path(str(ROOT / "docs" / "build.py"))
    spec = importlib.util.spec_from_file_location("colab", ROOT / "docs" / "colab.py")
    colab = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(colab)
    assert build["COLAB"].endswith(f"/blob/{colab.BRANCH}")
    lines = lines_of(jobs("publish.yml")["colab"], "one commit without a past, so that old copies take no room")
    subprocess.run(["git", "init", "--quiet", "--bare", tmp_path / "origin"], check=True)
    for number in (1, 2):
        work = tmp_path / f"work-{number}"
        made = (
            f"git clone --quiet {tmp_path / 'origin'} {work} && cd {work} && "
            "git -c user.name=a -c user.email=a@b commit --quiet --allow-empty --message first"
        )
        assert bash(made, tmp_path).returncode == 0
        colab.write_copies(work / "build" / "colab")
        done = bash(lines, work)
        assert done.returncode == 0, done.stderr
        git = ["git", "-C", str(tmp_path / "origin")]
        listed = subprocess.check_output([*git, "ls-tree", "--name-only", colab.BRANCH], text=True).split()
        assert listed == NAMES
        assert subprocess.check_output([*git, "rev-list", "--count", colab.BRANCH], text=True).strip() == "1"


@posix
@pytest.mark.parametrize("tag, matches", [(f"v{__version__}", True), ("v99", False), (__version__, False)])
def test_a_release_whose_tag_is_not_its_version_stops(tag, matches):
    line = lines_of(jobs("release.yml")["wheel"], "the tag is the version").replace("python ", f"{sys.executable} ")
    assert (bash(line, ROOT, TAG=tag).returncode == 0) == matches


def test_a_release_runs_the_wheel_before_it_is_uploaded_without_a_token():
    wheel, upload = jobs("release.yml").values()
    commands = lines_of(wheel, "it runs in an environment that has nothing else")
    assert "dist/*.whl" in commands and "bin/hpml-lab list" in commands  # test_wheel.py runs these commands of a wheel
    assert upload["needs"] == "wheel" and upload["permissions"] == {"id-token": "write"}
    assert "secrets" not in (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")


def test_the_devcontainer_is_the_dockerfile():
    folder = ROOT / ".devcontainer"
    container = json.loads((folder / "devcontainer.json").read_text(encoding="utf-8"))
    dockerfile = folder / container["build"]["dockerfile"]
    assert dockerfile.resolve() == ROOT / "Dockerfile" and (folder / container["build"]["context"]).resolve() == ROOT
    text = dockerfile.read_text(encoding="utf-8")
    assert re.search(r"^USER (\w+)$", text, flags=re.M)[1] == container["remoteUser"]
    assert [int(port) for port in re.findall(r"^EXPOSE (\d+)$", text, flags=re.M)] == container["forwardPorts"]
    assert re.findall(r"--shm-size=\w+", text) == container["runArgs"]
