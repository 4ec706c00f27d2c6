"""The plan of the house: floors, rooms and their furniture, notebooks that hold every experiment."""

import ast
import re
from pathlib import Path

import nbformat
import pytest

import hpml_lab
from hpml_lab.core.experiment import SIZES, all_experiments
from hpml_lab.core.paths import NOTEBOOKS, REFERENCE, ROOT
from hpml_lab.core.result import Result

PACKAGE = Path(hpml_lab.__file__).parent
# Which floor a part of the package stands on: it may import what stands below, and itself.
FLOORS = [
    {"core"},
    {"data", "optim"},
    {"nets", "landscape"},
    {"start", "tensors", "autograd", "descent", "adaptive", "race", "processes", "loading", "profiling", "tuning", "precision"},
    {"report"},
    {"cli"},
    {"__main__"},
]
FLOOR = {part: number for number, floor in enumerate(FLOORS) for part in floor}
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
    assert part in FLOOR, f"say in this test which floor {part} stands on"
    for other in imports(path):
        if other != "__version__":
            assert other == part or FLOOR[other] < FLOOR[part], f"{part} imports {other}"


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda one: one.slug)
def test_an_experiment_is_named_described_and_taught(experiment):
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", experiment.slug)
    assert experiment.function.__name__ == experiment.slug.replace("-", "_")
    first, *rest = experiment.function.__doc__.strip().splitlines()
    assert first.endswith(".") and not (rest and rest[0].strip()), "the title is a sentence on the first line, alone"
    assert experiment.draw is None or len(experiment.caption) > 40, "the drawing's docstring is its alternative text"
    assert set(experiment.quick) == set(experiment.full), "both sizes have the same parameters"
    notebook = nbformat.read(NOTEBOOKS / f"{experiment.notebook}.ipynb", as_version=4)
    headings = [c.source for c in notebook.cells if c.cell_type == "markdown"]
    assert any(re.search(rf"^## .*`{experiment.slug}`", text, flags=re.M) for text in headings)
    code = "\n".join(c.source for c in notebook.cells if c.cell_type == "code")
    assert f"{experiment.function.__name__}(size" in code


def test_experiments_keep_the_catalogue_order_and_unique_slugs():
    slugs = [one.slug for one in EXPERIMENTS]
    assert len(slugs) == len(set(slugs)) >= 15


@pytest.mark.parametrize("path", ALL_NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_00_and_the_readme_list_it(path):
    first = "".join(cell.source for cell in nbformat.read(NOTEBOOKS / "00_start.ipynb", as_version=4).cells)
    assert path.stem == "00_start" or f"({path.name})" in first
    assert f"(notebooks/{path.name})" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", ALL_NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_has_its_room_and_its_tests(path):
    topic = path.stem.split("_", 1)[1]
    assert (PACKAGE / topic / "experiments.py").is_file()
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


@pytest.mark.parametrize("path", sorted(REFERENCE.glob("*.json")), ids=lambda p: p.stem)
def test_a_reference_was_measured_on_a_gpu_by_a_known_experiment(path):
    result = Result.load(path)
    assert result.slug == path.stem and result.slug in {one.slug for one in EXPERIMENTS}
    assert result.machine["gpu"] and result.size in SIZES
    assert result, "its exact claims hold"
