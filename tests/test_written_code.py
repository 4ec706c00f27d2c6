"""What is written is run: each Python block and each command of README, docs, data and the command line's own help.

Each Python block runs in a new interpreter, with what its reader has already (given.py). The commands of a section run in their
order in one shell and one empty folder, as they would be typed. For what cannot run here NOT_HERE and INSTEAD have the reason.
"""

import argparse
import ast
import os
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

from hpml_lab import cli
from hpml_lab.core.system.paths import ROOT

DOCUMENTS = sorted(path.relative_to(ROOT).as_posix() for part in (".", "docs", "data") for path in (ROOT / part).glob("*.md"))
BLOCK = r"^( *)```(\w*)\n(.*?)^ *```$"
SECONDS = 1800  # for a section: a command that hangs
PROGRAMS = "hpml-lab make python python3.12 pip uv conda docker torchrun deepspeed sbatch nsys nbgrader git jupyter .".split()
# What the reader of a Python block has, besides its own imports.
BEFORE = {
    "In Python": "from torch.utils.data import DataLoader\nfrom given import *\n",
    "An experiment": "from hpml_lab.core.experiment.registry import Params, experiment\n"
    "from hpml_lab.core.experiment.result import Result\ndraw, QUICK, FULL = None, {}, {}\n",
}
# Commands that load torch or train, so they run nightly.
SLOW = r"hpml-lab (doctor|run|report|profile|monitor|bottleneck|tune|tuneup|referee|reference)\b|python|torchrun|deepspeed"
LONG = {"hpml-lab reference"}  # by itself it records everything
# What is not run, and why.
NOT_HERE = {
    r"(git stash && git pull && )?python(3\.12)? bootstrap\.py( lab| test)?": "fetches gigabytes; test_bootstrap.py does not",
    r"git (clone|pull|stash pop)": "needs a clone and what it is a clone of",
    r'pip install "hpml-lab\[lab\] @ git\+ADDRESS"': "fetches gigabytes; below it is run with the packages that are here",
    r"uv pip install .*": "fetches gigabytes",
    r"\.venv/bin/(python -m )?uv pip install .*": "fetches packages into the clone's environment",
    r"conda env create -f environment\.yml": "conda is not here; test_environment.py compares the file with pyproject.toml",
    r"docker .*": "docker is not here",
    r"\. \.venv/bin/activate": "the environment of the tests is used",
    r"\.venv\\Scripts\\activate": "it is for Windows",
    r"(OMP_NUM_THREADS=1 )?nbgrader .*": "it is not among the tests' packages; where it is, test_course.py runs this",
    r"nsys export .*": "it needs NVIDIA's profiler",
}
# What is run instead, and why.
INSTEAD = {
    r"make( .+)?": (f"make --dry-run -C {shlex.quote(str(ROOT))}\\1", "it works on the clone and makes its environment"),
    r"sbatch (train\.slurm)": (r"bash -n \1", "Slurm is not here; test_sharding_launchers.py runs its line"),
    r"hpml-lab new .*": ("hpml-lab new --help", "it writes into the clone; test_cli_new.py lets it write into a copy"),
    r"hpml-lab class-page .*": ("hpml-lab class-page --help", "there is no graded course; test_course.py makes one"),
    r"hpml-lab data fetch mnist": ("hpml-lab data fetch --help", "test_wheel.py fetches, from a server of its own"),
    r"hpml-lab run --size full (.*)": (r"hpml-lab run \1", "takes a GPU and minutes"),
    r"(torchrun .* -m hpml_lab run .*) --size full": (r"\1 --size quick", "takes hours"),
    r"hpml-lab reference --budget 25m": ("hpml-lab reference xor --budget 5s --out . --log .", "in 5 s nothing is begun"),
    r"nsys profile .*? (python -m .*)": (r"\1", "it needs NVIDIA's profiler, unlike the program that it watches"),
}


def parts(document):
    """(heading, text) of the sections of a document."""
    inside, found = False, [("", [])]
    for line in (ROOT / document).read_text(encoding="utf-8").splitlines(keepends=True):
        inside ^= line.lstrip().startswith("```")  # a comment in a block is no heading
        if line.startswith("#") and not inside:
            found.append((line.lstrip("# ").strip(), []))
        found[-1][1].append(line)
    return [(section, "".join(lines)) for section, lines in found]


def blocks(document):
    """(section, language, text) of each block of a document."""
    for section, part in parts(document):
        for _, language, text in re.findall(BLOCK, part, flags=re.M | re.S):
            yield section, language, textwrap.dedent(text)


def typed(text):
    """The commands of a shell block, without comments; a line that ends in \\ goes on in the next."""
    lines = (" ".join(shlex.split(line, comments=True, posix=False)) for line in text.replace("\\\n", " ").splitlines())
    return [line for line in lines if line]


def in_prose(document):
    """(section, command) of the commands that stand in the sentences of a document."""
    for section, part in parts(document):
        for span in re.findall(r"`([^`]+)`", re.sub(BLOCK, "", part, flags=re.M | re.S)):
            program, *words = span.split()
            if program in PROGRAMS and words or program.startswith(".venv"):
                yield section, " ".join([program, *words])


def examples_of_the_command_line():
    """Commands in the strings of `hpml_lab/cli`, its helps and errors. Forms such as `hpml-lab run SLUG` are left out."""
    found = ["hpml-lab template ."]
    for path in sorted((ROOT / "hpml_lab" / "cli").glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        documentation = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.FunctionDef) and isinstance(node.body[0], ast.Expr)
        }
        parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation | parts:
                found += re.findall(r"`([^`]*hpml-lab [^`]+)`", node.value) or re.findall(r"^hpml-lab [a-z].*$", node.value)
    return [command for command in dict.fromkeys(found) if not re.search(r"\b[A-Z]{2,}\b|\[", command)]


def sections():
    """{(document, section): its commands in their order}; of the Dockerfile its first lines."""
    found = {}
    for document in DOCUMENTS:
        for section, language, text in blocks(document):
            if not language and not text.startswith("hpml_lab/"):
                found.setdefault((document, section), []).extend(typed(text))
        for section, command in in_prose(document):
            if command not in found.setdefault((document, section), []):
                found[document, section].append(command)
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    found["Dockerfile", "first lines"] = [line[2:] for line in lines if line.startswith("# docker")]
    found["hpml_lab/cli", "helps and errors"] = examples_of_the_command_line()
    return {key: commands for key, commands in found.items() if commands}


SECTIONS = sections()


def rule(command):
    """The pattern of NOT_HERE or INSTEAD that a command matches, or None: then it is run as it stands."""
    return next((pattern for pattern in [*NOT_HERE, *INSTEAD] if re.fullmatch(pattern, command)), None)


def to_run(commands):
    """What is run for commands: themselves, what stands in INSTEAD, or for a name such as `hpml-lab run` its help."""
    for command in commands:
        if (pattern := rule(command)) in INSTEAD:
            yield re.sub(pattern, INSTEAD[pattern][0], command)
        elif pattern is None:
            yield f"{command} --help" if needs_more(command) or command in LONG else command


def is_slow(command):
    return bool(re.match(SLOW, command)) and not command.endswith("--help")


def needs_more(command):
    """Whether this is the name of a command of ours that asks for more words, so that it cannot be typed as it stands."""
    _, *words = command.split()
    names = argparse.ArgumentParser().add_subparsers()
    for module in cli.COMMANDS:
        module.add_parser(names)
    if not command.startswith("hpml-lab ") or len(words) > 1 or words[0] not in names.choices:
        return False
    return any(action.required or action.nargs == argparse.REMAINDER for action in names.choices[words[0]]._actions)


def environment(folder):
    """A stranger's: the environment is activated, and what is kept and fetched stays in the folder."""
    dropped = ("HPML_RESULTS", "HPML_DATA", "PYTHONPATH", "PYTEST_CURRENT_TEST")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return kept | {"PATH": path, "HOME": str(folder), "HPML_RESULTS": str(folder / "results")}


def type_in(commands, folder):
    """Run commands in one shell, one after the other; returns those that failed, and all that was printed."""
    lines = [f"{command}\necho $? >> {shlex.quote(str(folder / 'codes'))}" for command in commands]
    shell = ["bash", "-c", "\n".join(lines)]
    work = folder / "work"
    work.mkdir()
    done = subprocess.run(
        shell, cwd=work, env=environment(folder), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS
    )
    codes = (folder / "codes").read_text().split()
    assert len(codes) == len(commands), done.stdout + done.stderr
    return [command for command, code in zip(commands, codes, strict=True) if code != "0"], done.stdout + done.stderr


PYTHON = [(document, *block) for document in DOCUMENTS for block in blocks(document) if block[1] == "python"]
NAMES = [f"{document}: {section}" for document, section in SECTIONS]


@pytest.mark.parametrize("document, section, language, text", PYTHON, ids=[f"{row[0]}: {row[1]}" for row in PYTHON])
def test_a_python_block_runs(document, section, language, text, tmp_path):
    (tmp_path / "program.py").write_text(BEFORE.get(section, "") + text, encoding="utf-8")
    variables = environment(tmp_path) | {"PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "program.py"]
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr


def of_a_document(key):
    """A section whose commands are typed at night; those that the command line itself shows are typed on every run."""
    mark = pytest.mark.environment(
        "the commands of a document, in a shell",
        files=("README.md", "CONTRIBUTING.md", "docs", "data/README.md", "hpml_lab/cli"),
    )
    return pytest.param(key, marks=() if key[0] == "hpml_lab/cli" else mark)


@pytest.mark.skipif(sys.platform == "win32", reason="needs bash")
@pytest.mark.parametrize("key", map(of_a_document, SECTIONS), ids=NAMES)
def test_the_quick_commands_of_a_section_succeed(key, tmp_path):
    commands = [command for command in to_run(SECTIONS[key]) if not is_slow(command)]
    if commands:
        failed, said = type_in(commands, tmp_path)
        assert not failed, said


@pytest.mark.environment(
    "the commands of a document, in a shell", files=("README.md", "CONTRIBUTING.md", "docs", "hpml_lab/cli")
)
@pytest.mark.skipif(sys.platform == "win32", reason="needs bash")
@pytest.mark.parametrize("key", SECTIONS, ids=NAMES)
def test_all_commands_of_a_section_succeed(key, tmp_path):
    commands = list(to_run(SECTIONS[key]))
    if any(map(is_slow, commands)):
        failed, said = type_in(commands, tmp_path)
        assert not failed, said


def test_what_is_not_run_is_still_written():
    """An explanation without its command would hide the next command that looks like it."""
    written = [command for commands in SECTIONS.values() for command in commands]
    assert {*NOT_HERE, *INSTEAD} == {rule(command) for command in written} - {None}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_layout_names_what_is_there_and_an_extra_is_one(document):
    for _, language, text in blocks(document):
        if not language and text.startswith("hpml_lab/"):
            above = ""
            for indent, name in re.findall(r"^( {0,4})(\S+)", text, flags=re.M):
                above = above if indent else name
                pattern = re.sub("<[^>]+>", "*", above + name if indent else name)
                assert list(ROOT.glob(pattern)), f"{document}: there is no {pattern}"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = re.findall(r"(?:hpml-lab|'\.)\[(\w+)\]", (ROOT / document).read_text(encoding="utf-8"))
    assert set(named) <= set(extras)


@pytest.mark.environment("pip, from the address of a clone", files=("README.md", "hatch_build.py"))
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs a clone to install from")
def test_pip_installs_from_the_address_of_a_clone(tmp_path):
    """As README says, but with the packages of this environment. (An older pip takes an address without a host for a path.)"""
    import sysconfig

    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    bin = tmp_path / "venv" / "bin"
    [packages] = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (packages / "tests.pth").write_text(sysconfig.get_path("purelib"))
    install = f'{bin}/pip install --no-deps --no-build-isolation "hpml-lab[lab] @ git+file://localhost{ROOT}"'
    failed, said = type_in([install, f"{bin}/hpml-lab notebooks workbook", f"{bin}/hpml-lab --version"], tmp_path)
    head = subprocess.check_output(["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"], text=True).strip()
    assert not failed and f"(commit {head})" in said, said
    assert len(list((tmp_path / "work" / "workbook").glob("*.ipynb"))) == len(list((ROOT / "notebooks").glob("*.ipynb")))
