"""The test plan: which tests a change can break, read from the imports of package, tests and notebooks.

No import runs upward and no topic imports another (`test_house.py` proves it on every run), so what uses a changed file,
directly or through others, is all that the change can break. A string that names a module or an experiment counts as an import.
What is known by the registry only (the command line runs any experiment) is not followed: those tests name their experiments.
"""

import ast
import functools
import json
import re
import subprocess
from collections import Counter, defaultdict
from pathlib import Path

from IPython.core.inputtransformer2 import TransformerManager

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "hpml_lab"
SECONDS = ROOT / "tests" / "seconds.json"  # {group: seconds} of the last run with --store-seconds
# These judge every file, or every notebook as it is stored, in seconds. The first proves that the choice is sound.
ALWAYS = tuple(
    f"tests/test_{name}.py"
    for name in ("house", "claims", "notebook_texts", "links", "readings", "lids", "seconds", "stored_runs", "contributing")
)
EXERCISES = "tests/test_exercises.py"
NEW_SECONDS = 60.0
# What decides how every test runs, or with which libraries.
EVERYTHING = (
    *("conftest.py", "tests/plan.py", "tests/hanging.py", "tests/sanitize.cfg", "pyproject.toml", "requirements.lock"),
    *("hpml_lab/__init__.py", "hpml_lab/__main__.py"),
)
# Long tests, each a group of its own: a worker that took one with the rest of its file would end the run alone.
APART = (
    "tests/test_processors.py::",
    "tests/test_written_code.py::test_all_commands_of_a_section_succeed",
    "tests/test_wheel.py::test_three_notebooks_run",
    "tests/adaptive/test_adaptive_conformance.py::test_two_hundred_draws_a_class_and_a_thousand_steps",
    "tests/adaptive/test_adaptive_conformance.py::test_any_input_agrees_at_length",
    "tests/course/test_course.py::test_six_students",
)
# A notebook shows checks of exercises that nobody has solved; `test_exercises.py` runs these cells in process.
NOT_OF_A_NOTEBOOK = re.compile(r"hpml_lab/(core/judge|\w+/exercises)/")


def topic_of(path: str) -> str:
    """The topic that a notebook, or a file of a topic's tests, belongs to; "" for other files."""
    parts = Path(path).parts
    if parts[0] == "notebooks":
        return Path(path).stem.partition("_")[2]
    return parts[1] if parts[0] == "tests" and len(parts) > 2 and any((ROOT / "notebooks").glob(f"*_{parts[1]}.ipynb")) else ""


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@functools.cache
def file_of(module: str) -> str | None:
    """The file of a module of the package, as a path relative to the project."""
    path = ROOT / module.replace(".", "/")
    found = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return relative(found) if found.is_file() else None


def of_tests(module: str) -> str | None:
    """The file of a module that only tests import."""
    path = ROOT / "tests" / f"{module}.py"
    return relative(path) if path.is_file() else None


@functools.cache
def parsed(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


@functools.cache
def offered(door: str) -> dict[str, str]:
    """{name: the file that defines it} of a front door, which lists its names for type checkers."""
    nodes = [node for node in ast.walk(parsed(door)) if isinstance(node, ast.ImportFrom) and node.module]
    return {alias.asname or alias.name: file for node in nodes for alias in node.names if (file := file_of(node.module))}


@functools.cache
def experiment_files() -> dict[str, str]:
    """{slug: file} of every experiment."""
    found = [path for path in PACKAGE.glob("*/experiments/*") if path.name != "__pycache__"]
    files = {path.stem.replace("_", "-"): path / "__init__.py" if path.is_dir() else path for path in found}
    return {slug: relative(path) for slug, path in files.items() if path.is_file() and path.name != path.parent.name}


def attributes(nodes: list[ast.AST]) -> dict[str, set[str]]:
    """{name: the attributes that a module takes of it} of the names of which it takes nothing but attributes."""
    found, plain = defaultdict(set), Counter()
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found[node.value.id].add(node.attr)
            plain[node.value.id] -= 1
        elif isinstance(node, ast.Name):
            plain[node.id] += 1
    return {name: names for name, names in found.items() if not plain[name]}


def used(tree: ast.Module, strings: bool = False) -> set[str]:
    """The files that a module imports, anywhere in it; with `strings`, also those that its strings name."""
    found, nodes = set(), list(ast.walk(tree))
    taken = attributes(nodes)
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {file_of(alias.name) or of_tests(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (door := file_of(node.module or "")):
            for alias in node.names:
                if inner := file_of(f"{node.module}.{alias.name}"):
                    names = taken.get(alias.asname or alias.name, {""})
                    known = offered(inner) if inner.endswith("__init__.py") else {}
                    found |= {known[name] for name in names} | {f"{inner}:names"} if names <= known.keys() else {inner}
                elif door.endswith("__init__.py") and alias.name in offered(door):
                    found |= {offered(door)[alias.name], f"{door}:names"}
                else:
                    found.add(door)
        elif isinstance(node, ast.ImportFrom):
            found.add(of_tests(node.module or ""))
        elif strings and isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(experiment_files().get(node.value))
            for name in re.findall(r"hpml_lab(?:\.\w+)+", node.value):
                while name and not file_of(name):
                    name = name.rpartition(".")[0]
                found.add(file_of(name))
    return found - {None, "hpml_lab/__init__.py"}


def python_files(folder: Path) -> list[str]:
    return [relative(path) for path in sorted(folder.rglob("*.py"))] if folder.is_dir() else []


def marked_files(path: str) -> set[str]:
    """What the marks `environment` of a test file name: files, and folders with all that is in them."""
    calls = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)]
    marks = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "environment"]
    named = {name for mark in marks for given in mark.keywords for name in ast.literal_eval(given.value)}
    inside = [relative(file) for name in named for file in (ROOT / name).rglob("*") if "__pycache__" not in file.parts]
    return {*named, *inside}


def used_by_a_test(path: str) -> set[str]:
    """What a test file imports or names, the modules of the topic or floor whose folder it is in, and its folder's helpers."""
    part = Path(path).parts[1] if len(Path(path).parts) > 2 else ""
    own = set() if part == "core" else {file for file in python_files(PACKAGE / part) if part and "/exercises/" not in file}
    helpers = {relative(helper) for helper in (ROOT / path).parent.glob("*.py") if part and not helper.name.startswith("test_")}
    by_topic = path == EXERCISES  # asked by `exercises:nets`
    named = not by_topic and re.search(r"\bNOTEBOOKS\b|\.ipynb\b", (ROOT / path).read_text(encoding="utf-8"))
    notebooks = {relative(notebook) for notebook in (ROOT / "notebooks").glob("*.ipynb") if named}  # read as files
    return used(parsed(path), strings=True) | marked_files(path) | own | notebooks | helpers - {path}


def used_by_a_notebook(path: str) -> set[str]:
    """What the cells of a notebook use, and its topic's modules but for the exercises."""
    cells = json.loads((ROOT / path).read_text(encoding="utf-8"))["cells"]
    code = [TransformerManager().transform_cell("".join(cell["source"])) for cell in cells if cell["cell_type"] == "code"]
    found = used(ast.parse("\n".join(code)))  # magics are calls now
    own = {file for file in python_files(PACKAGE / topic_of(path)) if not file.endswith(f"{topic_of(path)}/__init__.py")}
    return {file for file in found | own if not NOT_OF_A_NOTEBOOK.match(file)}


@functools.cache
def graph() -> dict[str, set[str]]:
    """{file: the files that use it}. `exercises:nets` stands for the tests of the exercises of a topic."""
    users = defaultdict(set)

    def add(user, files):
        for file in files:
            users[file].add(user)

    for path in python_files(PACKAGE):
        add(path, used(parsed(path)))
    for path in python_files(ROOT / "tests"):
        if "/answers/" not in path and path not in EVERYTHING:
            add(path, used_by_a_test(path))
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        path, topic = relative(notebook), topic_of(relative(notebook))
        add(path, used_by_a_notebook(path))
        answers = python_files(ROOT / "tests" / topic / "answers")
        helpers = {file for answer in answers for file in used(parsed(answer)) if file.startswith("tests/")}
        judges = python_files(PACKAGE / topic / "exercises")
        add(f"exercises:{topic}", [path, EXERCISES, *judges, *answers, *helpers])
    return users


def named_by(path: str) -> set[str]:
    """The tests whose text names a file that is neither code nor notebook, or its folder."""
    name, folder = Path(path).name, Path(path).parts[0]
    words = [
        name,
        *([f"*{Path(name).suffix}"] if "." in name else []),
        *([] if folder == name else [f'"{folder}"', f"{folder}/"]),
    ]
    tests = [file for file in python_files(ROOT / "tests") if "/answers/" not in file]
    return {file for file in tests if any(word in (ROOT / file).read_text(encoding="utf-8") for word in words)}


def affected(changed: set[str]) -> set[str] | None:
    """The files, and exercises of topics, that a change of these files can break; None means all."""
    if changed & set(EVERYTHING):
        return None
    reached, waiting = set(), set()
    for path in changed:
        waiting.add(path)
        if path.endswith("__init__.py"):
            waiting.add(f"{path}:names")
        elif path.startswith("data/reference/"):
            waiting.add(experiment_files().get(Path(path).stem, path))
        elif path.startswith("hpml_lab/") and not path.endswith(".py"):  # a page, a style, a script
            waiting |= set(python_files((ROOT / path).parent))
        elif not path.startswith(("hpml_lab/", "tests/", "notebooks/")):
            waiting |= named_by(path)
    while waiting:
        path = waiting.pop()
        reached.add(path)
        waiting |= graph()[path] - reached
    return reached


def changed_since(revision: str) -> set[str]:
    """The files that differ from a revision, new ones included."""

    def lines(*command):
        done = subprocess.run(["git", *command], capture_output=True, text=True, encoding="utf-8", cwd=ROOT)
        if done.returncode:
            raise ValueError(f"--changed {revision}: {done.stderr.strip()}; name a revision that git knows, such as HEAD~1")
        return set(done.stdout.splitlines())

    return lines("diff", "--name-only", revision) | lines("ls-files", "--others", "--exclude-standard")


def of_topics(names: set[str]) -> set[str]:
    """The tests, the notebooks and the exercises of topics."""
    notebooks = [relative(path) for path in (ROOT / "notebooks").glob("*.ipynb")]
    known = {topic_of(path) for path in notebooks}
    if unknown := names - known:
        raise ValueError(f"--topics: there is no topic {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}")
    files = [*python_files(ROOT / "tests"), *notebooks]
    return {file for file in files if topic_of(file) in names} | {f"exercises:{name}" for name in names}


class Plan:
    """What a run of the tests is to run."""

    def __init__(self, chosen: set[str] | None = None, changed: set[str] = frozenset()):
        self.chosen, self.changed = chosen, changed  # files, and "exercises:nets"; None for all of them

    @classmethod
    def read(cls, path: Path) -> "Plan":
        chosen, changed = json.loads(path.read_text(encoding="utf-8"))
        return cls(None if chosen is None else set(chosen), set(changed))

    def write(self, path: Path) -> None:
        chosen = None if self.chosen is None else sorted(self.chosen)
        path.write_text(json.dumps([chosen, sorted(self.changed)]), encoding="utf-8")

    def runs(self, path: Path) -> bool:
        """Whether the tests of a file run, or some of them."""
        name = relative(path)
        if self.chosen is None or name in ALWAYS or name in self.chosen:
            return True
        return name == EXERCISES and any(chosen.startswith("exercises:") for chosen in self.chosen)

    def runs_exercises(self, notebook: str) -> bool:
        """Whether the exercises of a notebook, named without its ending, are tested."""
        return self.chosen is None or f"exercises:{notebook.partition('_')[2]}" in self.chosen

    def touches(self, paths: tuple[str, ...]) -> bool:
        """Whether `--changed` found one of these files, or a file in one of these folders, changed."""
        return any(file == path or file.startswith(f"{path}/") for file in self.changed for path in (*EVERYTHING, *paths))


def planned(topics: str, revision: str) -> Plan:
    """The plan of a run with `--topics` or `--changed`; of everything without them."""
    if topics:
        return Plan(of_topics(set(topics.split(","))))
    changed = changed_since(revision) if revision else set()
    return Plan(affected(changed), changed) if revision else Plan()


CHOSEN = Plan()  # conftest.py sets it


@functools.cache
def exercise_topics() -> dict[str, str]:
    """{exercise: topic}, the longest names first."""
    found = [path for path in PACKAGE.glob("*/exercises/*.py") if path.stem != "__init__"]
    return {path.stem.replace("_", "-"): path.parts[-3] for path in sorted(found, key=lambda path: -len(path.stem))}


@functools.cache
def group_of(nodeid: str) -> str:
    """The tests that one worker runs one after the other: a topic's, a topic's exercises, or else a file's; or a long test."""
    if nodeid.startswith(APART):
        return nodeid
    path, _, test = nodeid.partition("::")
    if path == "tests/test_exercises.py":
        parameter = test.partition("[")[2]
        for name, topic in exercise_topics().items():
            if parameter.startswith((f"{name}-", f"{name}]")):
                return f"exercises of {topic}"
    return topic_of(path) or path


@functools.cache
def known_seconds() -> dict[str, float]:
    """{group: seconds} of an earlier run."""
    return json.loads(SECONDS.read_text(encoding="utf-8")) if SECONDS.is_file() else {}


def last_seconds(group: str) -> float:
    """The seconds of a group in an earlier run; one that is new is taken for a long one."""
    return known_seconds().get(group, NEW_SECONDS)


def store_seconds(found: dict[str, float]) -> None:
    """Write the seconds of a run; the groups that it left out keep theirs."""
    SECONDS.write_text(json.dumps({**known_seconds(), **found}, indent=0, sort_keys=True) + "\n", encoding="utf-8")
