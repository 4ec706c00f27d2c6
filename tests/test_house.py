"""The layout of the project: floors, topics with their front doors, notebooks that contain every experiment."""

import ast
import functools
import importlib
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

import hpml_lab
from hpml_lab.core.experiment.registry import Experiment, all_experiments, find, import_topics, topics_that_do_not_load
from hpml_lab.core.system.paths import NOTEBOOKS, REFERENCE, ROOT
from hpml_lab.references import LARGEST_FILE

PACKAGE = Path(hpml_lab.__file__).parent
TOPICS = (
    "start",
    "tensors",
    "autograd",
    "nets",
    "descent",
    "adaptive",
    "race",
    "processes",
    "loading",
    "storage",
    "profiling",
    "tuning",
    "precision",
    "distributed",
    "sharding",
    "large_batch",
    "quantization",
    "pruning",
    "targets",
    "capstone",
    "serving",
)
# Which floor a part of the package is on: it may import what is below it, and itself.
SECOND_HALVES = {"storage": "loading", "sharding": "distributed", "pruning": "quantization", "serving": "capstone"}
FLOORS = [
    {"core"},
    {"data", "optim", "profilers"},
    {"landscape"},
    set(TOPICS) - SECOND_HALVES.keys() - {"capstone"},
    {"storage", "sharding", "pruning", "capstone"},  # by front doors only
    {"serving"},
    {"report", "references", "course"},
    {"cli"},
    {"__main__"},
]
FLOOR = {part: number for number, floor in enumerate(FLOORS) for part in floor}
LINES = 350  # of a module
FEW_LINES = 60  # of a module that a single other one imports: it joins that one
PARTS = {"lessons", "tools", "views", "experiments", "exercises"}
# What a part of a topic may import of the same topic, besides itself.
MAY_IMPORT = {
    "lessons": {"tools"},
    "tools": {"lessons"},
    "views": {"lessons", "tools"},
    "experiments": {"lessons", "tools", "views"},
    "exercises": {"lessons", "tools"},
}
CLAIMS = 6  # of a card
ALL_NOTEBOOKS = sorted(NOTEBOOKS.glob("*.ipynb"))
EXPERIMENTS = all_experiments()


def imports(path):
    """The parts of the package that a module imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            if name.startswith("hpml_lab."):
                yield name.split(".")[1]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_import_runs_upward_and_topics_do_not_import_each_other(path):
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if part == "__init__":
        return
    assert part in FLOOR, f"say in this test which floor {part} is on"
    for other in imports(path):
        if other != "__version__":
            assert other == part or FLOOR[other] < FLOOR[part], f"{part} imports {other}"


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_module_is_long(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LINES


def test_a_class_name_has_one_meaning_in_the_package():
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_has_its_parts_and_nothing_else(topic):
    found = {path.name for path in (PACKAGE / topic).iterdir() if path.name != "__pycache__"}
    assert found - PARTS == {"__init__.py"} and {"experiments"} <= found


@pytest.mark.parametrize("topic", TOPICS)
def test_lessons_and_tools_know_nothing_of_experiments(topic):
    for path in (PACKAGE / topic).rglob("*.py"):
        part = path.relative_to(PACKAGE / topic).parts[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            module = node.module if isinstance(node, ast.ImportFrom) else ""
            if part != "__init__.py" and module and module.startswith(f"hpml_lab.{topic}."):
                other = module.split(".")[2]
                assert other == part or other in MAY_IMPORT[part], f"{path} imports {module}"


@functools.cache
def importers():
    """{module: the modules of the package, front doors not counted, that import it}."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        importer = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        if importer.removeprefix("hpml_lab.") in TOPICS:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                for name in {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}:
                    found.setdefault(name, set()).add(importer)
    return found


@pytest.mark.parametrize("topic", TOPICS)
def test_a_short_module_with_one_importer_is_part_of_it(topic):
    front_door = (PACKAGE / topic / "__init__.py").read_text(encoding="utf-8")
    imported = importers()
    for path in (PACKAGE / topic).rglob("*.py"):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        if path.name != "__init__.py" and len(path.read_text(encoding="utf-8").splitlines()) < FEW_LINES:
            assert module in front_door or len(imported.get(module, ())) != 1, f"{path} belongs to {imported[module]}"


def texts_without_encoding(tree):
    """The calls that open, read or write a text in the system's encoding, which is not UTF-8 everywhere."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or any(keyword.arg in ("encoding", None) for keyword in node.keywords):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        words = [argument.value if isinstance(argument, ast.Constant) else None for argument in node.args]
        modes = (words if isinstance(node.func, ast.Attribute) else words[1:]) or ["r"]  # path.open("r"), open(path, "r")
        if name in ("read_text", "write_text") or name == "open" and re.fullmatch(r"[rwxat+]+", str(modes[0])):
            yield node.lineno


def test_texts_without_an_encoding_are_found():
    found = 'open(p)\nopen(p, "w")\np.open()\np.open("a+")\np.read_text()\np.write_text("a")\n'
    passed = 'open(p, "rb")\np.open("wb")\nImage.open(p)\nos.open(p, flags)\nopen(p, encoding="utf-8")\nopen(p, mode)\n'
    assert list(texts_without_encoding(ast.parse(found + passed))) == [1, 2, 3, 4, 5, 6]


def test_every_text_has_an_encoding():
    found = {}
    for path in PACKAGE.rglob("*.py"):
        found[str(path)] = list(texts_without_encoding(ast.parse(path.read_text(encoding="utf-8"))))
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_only_classes_derived_from_row_have_columns():
    """Others would be saved with a result, and not be brought back."""
    bases = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and "column" in [
                getattr(item.value.func, "id", "") for item in node.body if isinstance(getattr(item, "value", None), ast.Call)
            ]:
                bases[node.name] = [base.id for base in node.bases]
    assert len(bases) > 200
    assert [name for name, of in bases.items() if not any(base == "Row" or base in bases for base in of)] == []


def test_every_topic_loads_here():
    assert topics_that_do_not_load() == {}
    assert dict(import_topics("exercises")) == {}, "its exercises, too"


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topics_front_door_lists_what_it_offers_and_says_what_each_name_is(topic):
    package = importlib.import_module(f"hpml_lab.{topic}")
    assert package.__all__ and len(set(package.__all__)) == len(package.__all__)
    for name in package.__all__:
        assert getattr(package, name) is not None, "every name exists"
        assert re.search(rf"\b{name}\b", package.__doc__), f"the docstring says what {name} is"
        assert not hasattr(getattr(package, name), "__path__"), "no name is both a module and what it offers"
    offered = [name for name in package.__all__ if isinstance(getattr(package, name), Experiment)]
    assert offered == [row.function.__name__ for row in EXPERIMENTS if row.topic == topic]


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topics_front_door_opens_without_loading_torch(topic):
    code = f"import sys, hpml_lab.{topic}; print([name for name in ('torch', 'matplotlib') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda row: row.slug)
def test_an_experiment_is_one_file_with_its_name(experiment):
    name = experiment.slug.replace("-", "_")
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", experiment.slug)
    assert experiment.function.__name__ == name
    assert experiment.function.__module__ == f"hpml_lab.{experiment.topic}.experiments.{name}"


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda row: row.slug)
def test_an_experiment_is_described_and_taught(experiment):
    first, *rest = experiment.function.__doc__.strip().splitlines()
    assert first.endswith(".") and not (rest and rest[0].strip()), "the title is a sentence on the first line, alone"
    assert experiment.draw is None or len(experiment.caption) > 40, "the drawing's docstring is its alternative text"
    assert set(experiment.quick) == set(experiment.full), "both sizes have the same parameters"
    notebook = nbformat.read(NOTEBOOKS / f"{experiment.notebook}.ipynb", as_version=4)
    code = "\n".join(c.source for c in notebook.cells if c.cell_type == "code")
    assert f"{experiment.topic}.{experiment.function.__name__}()" in code


@pytest.mark.parametrize("path", ALL_NOTEBOOKS, ids=lambda p: p.stem)
def test_experiments_keep_the_order_of_the_notebooks_headings(path):
    headings = [
        line
        for cell in nbformat.read(path, as_version=4).cells
        if cell.cell_type == "markdown"
        for line in cell.source.splitlines()
        if line.startswith("## ")
    ]
    slugs = {row.slug for row in EXPERIMENTS if row.notebook == path.stem}
    named = [slug for line in headings for slug in re.findall(r"`([a-z0-9-]+)`", line) if slug in slugs]
    assert named == [row.slug for row in EXPERIMENTS if row.notebook == path.stem]


@pytest.mark.parametrize("path", ALL_NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_imports_from_front_doors_and_lessons_only_in_at_most_six_lines(path):
    lines = [
        line
        for cell in nbformat.read(path, as_version=4).cells
        if cell.cell_type == "code"
        for line in cell.source.splitlines()
        if re.match(r"\s*(from|import) hpml_lab", line)
    ]
    assert 0 < len(lines) <= 6
    for line in lines:
        assert re.match(r"\s*from hpml_lab(\.\w+(\.lessons)?)? import ", line), (
            f"one of the front doors, or of the lessons: {line}"
        )


def test_slugs_are_unique():
    slugs = [row.slug for row in EXPERIMENTS]
    assert len(slugs) == len(set(slugs)) >= 80


@pytest.mark.parametrize("path", ALL_NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_00_and_the_readme_list_it(path):
    first = "".join(cell.source for cell in nbformat.read(NOTEBOOKS / "00_start.ipynb", as_version=4).cells)
    assert path.stem == "00_start" or f"({path.name})" in first
    assert f"(notebooks/{path.name})" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", ALL_NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_has_its_topic_and_its_tests(path):
    topic = path.stem.split("_", 1)[1]
    assert topic in TOPICS and (PACKAGE / topic / "experiments").is_dir()
    assert (ROOT / "tests" / topic).is_dir()


@pytest.mark.parametrize("path", ALL_NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_is_clean(path):
    raw = path.read_text()
    notebook = nbformat.reads(raw, as_version=4)
    nbformat.validate(notebook)
    assert "widgets" not in notebook.metadata
    assert str(ROOT) not in raw and "/home/" not in raw and "site-packages" not in raw
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in code:
        assert not re.search(r"^\s*[!%]\s*(pip|conda)\b", cell.source, flags=re.M), "no installs in a cell"
        assert cell.execution_count is not None, "stored as it was run: nbval compares nothing otherwise"
        for output in cell.outputs:
            assert output.output_type != "error", cell.source
            assert output.get("name") != "stderr"
            kinds = set(output.get("data", {}))
            assert not kinds & {"application/javascript", "image/svg+xml", "application/vnd.jupyter.widget-view+json"}
            if "image/png" in kinds:
                assert len(output.data["text/plain"]) > 20, "a picture has a text for those who do not see it"
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), "run from top to bottom"


@pytest.mark.parametrize("path", ALL_NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_says_what_it_teaches_and_ends_with_key_points(path):
    text = [c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "markdown"]
    assert text[0].startswith(f"# {path.stem[:2]} ")
    assert "you can" in text[0] and "lecture" in text[0].lower() and "minutes" in text[0]
    assert any(part.startswith("## Key points") for part in text[-3:])


@pytest.mark.parametrize("path", ALL_NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_shows_each_lesson(path):
    """By `source(name)`, or `source(module.name)`: what is not shown is not a lesson."""
    code = "\n".join(c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code")
    shown = {name.split(".")[-1] for name in re.findall(r"\bsource\(([\w.]+)\)", code)}
    for lesson in (PACKAGE / path.stem.split("_", 1)[1] / "lessons").glob("[a-z]*.py"):
        names = {getattr(node, "name", "") for node in ast.parse(lesson.read_text(encoding="utf-8")).body}
        assert shown & {lesson.stem, *names}, f"the notebook does not show {lesson.name}"


@pytest.mark.parametrize("path", ALL_NOTEBOOKS, ids=lambda p: p.stem)
def test_a_card_has_at_most_six_claims(path):
    for cell in nbformat.read(path, as_version=4).cells:
        for output in cell.get("outputs", []):
            if found := re.search(r"\d+ of (\d+) claims? holds?", output.get("data", {}).get("text/html", "")):
                assert int(found[1]) <= CLAIMS, cell.source


@pytest.mark.parametrize("path", ALL_NOTEBOOKS, ids=lambda p: p.stem)
def test_an_exercise_stands_behind_the_section_it_belongs_to(path):
    headings = [line for cell in nbformat.read(path, as_version=4).cells for line in cell.source.splitlines()]
    assert "## Exercises" not in headings, "a section of its own at the end"


@pytest.mark.parametrize("path", sorted(REFERENCE.glob("*.json")), ids=lambda p: p.stem)
def test_a_reference_is_a_result_of_its_experiment(path):
    result = find(path.stem).load(path)
    assert result.slug == path.stem and result.size == "full"
    assert result, "its exact claims hold"
    assert path.stat().st_size <= LARGEST_FILE, "its curves are thinned"
    assert result.figure() is not None or result.experiment.draw is None
