"""The layout of the project: floors, topics with their front doors, notebooks that contain every experiment.

Each assertion says what to do. CONTRIBUTING.md has the rules with their numbers.
"""

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
    "your_script",
    "decoding",
    "model_parallel",
)
WITHOUT_EXPERIMENTS = {"your_script"}  # what it runs is the reader's
# Which floor a part of the package is on: it may import what is below it, and itself.
SECOND_HALVES = {"storage": "loading", "sharding": "distributed", "pruning": "quantization", "serving": "capstone"}
SECOND_HALVES |= {"model_parallel": "distributed"}
FLOORS = [
    {"core"},
    {"data", "optim", "profilers"},
    {"landscape", "referee"},
    set(TOPICS) - SECOND_HALVES.keys() - {"capstone", "your_script"},
    {"storage", "sharding", "model_parallel", "pruning", "capstone"},  # by front doors only
    {"serving", "your_script"},
    {"report", "references", "course"},
    {"cli"},
    {"__main__"},
]
# Of core's rooms each may import those before it: what a machine is, then showing, timing, results, and judging them on top.
CORE_FLOORS = ["system", "show", "timing", "experiment", "judge"]
FLOOR = {part: number for number, floor in enumerate(FLOORS) for part in floor}
LINES = 350  # of a module
README_LINES = 150
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
# Module names that several folders have: a command (cli/) is called as what it calls; the others here.
OF_AN_EXPERIMENT = {"rows", "figure", "on_ranks", "in_process"}  # the same task in each experiment's folder
MEASURED = {
    "adadelta",
    "adagrad",
    "adam",
    "rmsprop",
    "muon",
    "optimizer_lab",
    "pruning",
    "slow_causes",
}  # and what an experiment measures
CLAIMS = 6  # of a card
ALL_NOTEBOOKS = sorted(NOTEBOOKS.glob("*.ipynb"))
EXPERIMENTS = all_experiments()


def modules_imported(path):
    """What a module imports, with the names taken from it (`hpml_lab.core.show.style`), anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}, line {node.lineno}: imports are absolute, write `from hpml_lab.… import …`"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from names


def imports(path):
    """The parts of the package that a module imports, anywhere in it."""
    return [name.split(".")[1] for name in modules_imported(path) if name.startswith("hpml_lab.")]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_import_runs_upward_and_topics_do_not_import_each_other(path):
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if part == "__init__":
        return
    assert part in FLOOR, f"say in FLOORS of tests/test_house.py which floor {part} is on"
    for other in imports(path):
        if other != "__version__":
            assert other == part or FLOOR[other] < FLOOR[part], (
                f"{path} imports hpml_lab.{other}, which is not below {part}: move what both need to a lower floor "
                "(core, data, optim), or hand it in as an argument"
            )


@pytest.mark.parametrize("path", sorted((PACKAGE / "core").glob("*/**/*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_import_runs_upward_in_core(path):
    room = path.relative_to(PACKAGE / "core").parts[0]
    assert room in CORE_FLOORS, f"say in CORE_FLOORS of this test on which floor core/{room} is"
    allowed = CORE_FLOORS[: CORE_FLOORS.index(room) + 1]
    for module in modules_imported(path):
        if module.startswith("hpml_lab.core"):
            other = f"{module}.".split(".")[2]
            assert other in allowed, (
                f"{path.name} imports {module}, which is above core/{room}: move what both need to a module of core/{room} or"
                " below it, or hand it over as an argument"
            )


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_module_is_long(path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= LINES, (
        f"{path} has {lines} lines, at most {LINES} are allowed: move what belongs together into a module of its own; "
        "an experiment becomes a folder, experiments/<slug>/__init__.py with what only it uses next to it"
    )


def test_a_class_name_has_one_meaning_in_the_package():
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}, (
        "one name, several classes: rename all but one after what it holds, or import that one"
    )


def test_a_module_name_has_one_meaning_in_the_package():
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        inner = path.relative_to(PACKAGE)
        part_of_a_topic = inner.parts[0] in TOPICS and inner.parts[2:] == ("__init__.py",) and inner.parts[1] in PARTS
        name = path.parent.name if path.name == "__init__.py" else path.stem
        if not part_of_a_topic and inner.parts[0] != "cli" and name not in {*OF_AN_EXPERIMENT, *MEASURED}:
            found.setdefault(name, []).append(str(inner))
    twice = {name: paths for name, paths in found.items() if len(paths) > 1}
    assert twice == {}, "call one of them after what it holds alone"


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_has_its_parts_and_nothing_else(topic):
    found = {path.name for path in (PACKAGE / topic).iterdir() if path.name != "__pycache__"}
    assert found - PARTS == {"__init__.py"} and ("experiments" in found) == (topic not in WITHOUT_EXPERIMENTS), (
        f"hpml_lab/{topic} has {sorted(found)}: what is not its front door goes into one of {', '.join(sorted(PARTS))}"
    )


@pytest.mark.parametrize("topic", TOPICS)
def test_lessons_and_tools_know_nothing_of_experiments(topic):
    for path in (PACKAGE / topic).rglob("*.py"):
        part = path.relative_to(PACKAGE / topic).parts[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            module = node.module if isinstance(node, ast.ImportFrom) else ""
            if part != "__init__.py" and module and module.startswith(f"hpml_lab.{topic}."):
                other = module.split(".")[2]
                assert other == part or other in MAY_IMPORT[part], (
                    f"{path}, line {node.lineno}, imports {module}: {part} may import {' and '.join(MAY_IMPORT[part])}; "
                    "move what both need there, or hand it in as an argument"
                )


# What experiments may load as they are imported: a GPU machine without Jupyter has it. All else is imported where it is used.
LEAN = {
    "hpml_lab",
    "torch",
    "networkx",
    "torchvision",
    "numpy",
    "pandas",
    "matplotlib",
    "sklearn",
    "scipy",
    "PIL",
    "mpl_toolkits",
    "psutil",
    "jinja2",
}


WITHOUT_PROCESSES = ("tensors", "autograd", "nets", "descent", "adaptive")  # they load in a browser, too, without psutil


def loaded_at_once(tree):
    """The imports of a module that run as it is imported: not those of functions, for types alone, or that may fail."""
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from loaded_at_once(node)


def foreign(module):
    """{package that is not ours: the way from this module of ours to the one that loads it}, of all that it loads at once."""
    waiting, seen, found = [(module,)], set(), {}
    while waiting:
        way = waiting.pop()
        path = PACKAGE.parent / way[-1].replace(".", "/")
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if path in seen or not path.exists():
            continue
        seen.add(path)
        for node in loaded_at_once(ast.parse(path.read_text(encoding="utf-8"))):
            names = [f"{getattr(node, 'module', '')}.{alias.name}".lstrip(".") for alias in node.names]
            for name in names:
                if name.startswith("hpml_lab."):
                    waiting += [(*way, ours) for ours in (name, name.rpartition(".")[0])]
                else:
                    found.setdefault(name.split(".")[0], way)
    return found


@pytest.mark.parametrize("topic", TOPICS)
def test_experiments_load_with_little_more_than_torch(topic):
    allowed = LEAN - ({"psutil"} if topic in WITHOUT_PROCESSES else set()) | sys.stdlib_module_names
    for path in sorted((PACKAGE / topic / "experiments").rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        for name, way in foreign(module).items():
            assert name in allowed, f"{' → '.join(way)} imports {name}: do it where it is used"


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
    """But for lessons: each is read alone, however short, and the notebook shows it (a test below)."""
    front_door = (PACKAGE / topic / "__init__.py").read_text(encoding="utf-8")
    imported = importers()
    for path in (PACKAGE / topic).rglob("*.py"):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if path.name != "__init__.py" and "lessons" not in path.parts and lines < FEW_LINES:
            assert module in front_door or len(imported.get(module, ())) != 1, (
                f"{path} has {lines} lines, fewer than {FEW_LINES}, and is imported by {', '.join(imported[module])} alone: "
                f"move its code there; or, if notebook, README or docs use it, name it in hpml_lab/{topic}/__init__.py"
            )


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
    assert {path: lines for path, lines in found.items() if lines} == {}, (
        "these lines read or write a text in the system's encoding: add encoding='utf-8'"
    )


def test_only_classes_derived_from_row_have_columns():
    """Others would be saved with a result, and not be brought back."""
    bases = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and "column" in [
                getattr(item.value.func, "id", "") for item in node.body if isinstance(getattr(item, "value", None), ast.Call)
            ]:
                bases[node.name] = [base.id for base in node.bases]
    assert len(bases) > 200, (
        f"only {len(bases)} classes with columns were found: does this test still look for what is written?"
    )
    assert [name for name, of in bases.items() if not any(base == "Row" or base in bases for base in of)] == [], (
        "derive these classes from Row, or leave out `column`"
    )


def test_every_topic_loads_here():
    assert topics_that_do_not_load() == {}, "import hpml_lab.<topic>.experiments in a Python prompt: its error says where"
    assert dict(import_topics("exercises")) == {}, "import hpml_lab.<topic>.exercises in a Python prompt: its error says where"


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topics_front_door_lists_what_it_offers_and_says_what_each_name_is(topic):
    package, front_door = importlib.import_module(f"hpml_lab.{topic}"), f"hpml_lab/{topic}/__init__.py"
    twice = [name for name in package.__all__ if package.__all__.count(name) > 1]
    assert package.__all__ and not twice, f"{front_door} names {twice or 'nothing'}: each name once, as `import name as name`"
    for name in package.__all__:
        assert getattr(package, name) is not None, f"{front_door} names {name}, which is None: import what there is"
        described = re.search(rf"\b{name}\b", package.__doc__)
        assert described, f"say in a line of the docstring of {front_door} what {name} is"
        assert not hasattr(getattr(package, name), "__path__"), f"{front_door}: {name} is also a module; rename one of the two"
    offered = [name for name in package.__all__ if isinstance(getattr(package, name), Experiment)]
    own = [row.function.__name__ for row in EXPERIMENTS if row.topic == topic]
    for name in own:
        assert name in offered, (
            f"{front_door} does not name the experiment {name}: add, in the order of the notebook, "
            f"`from hpml_lab.{topic}.experiments.{name} import {name} as {name}`"
        )
    assert offered == own, (
        f"{front_door} imports the experiments {offered}: import {own}, in the order of the notebook's headings"
    )


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topics_front_door_opens_without_loading_torch(topic):
    code = f"import sys, hpml_lab.{topic}; print([name for name in ('torch', 'matplotlib') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]", (
        f"hpml_lab/{topic}/__init__.py imports {done.stdout.strip()} when it opens: import under `if TYPE_CHECKING:` only, and "
        f"let `attach` do the rest. {done.stderr}"
    )


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda row: row.slug)
def test_an_experiment_is_one_file_with_its_name(experiment):
    name = experiment.slug.replace("-", "_")
    function, wanted = experiment.function, f"hpml_lab.{experiment.topic}.experiments.{name}"
    valid = re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", experiment.slug)
    assert valid, f"{experiment.slug}: a slug has small letters, digits and single hyphens; rename it"
    assert function.__name__ == name, f"the function of {experiment.slug} is called {function.__name__}: call it {name}"
    assert function.__module__ == wanted, f"{experiment.slug} is in {function.__module__}: move it to {wanted}"


@pytest.mark.parametrize("topic", [topic for topic in TOPICS if topic not in WITHOUT_EXPERIMENTS])
def test_what_stands_next_to_the_experiments_is_listed_and_used_by_several(topic):
    folder, slugs = PACKAGE / topic / "experiments", {row.function.__name__ for row in EXPERIMENTS if row.topic == topic}
    found = {path.stem for path in folder.iterdir() if path.name not in ("__init__.py", "__pycache__")}
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))
    listed = dict(re.findall(r"^    (\w+) +(.+)$", text, flags=re.MULTILINE))
    assert found - slugs == listed.keys(), (
        f"{topic}/experiments/: {sorted((found - slugs) ^ listed.keys())} is no experiment. List it in __init__.py with what "
        "it holds, or take it off the list, or move it"
    )
    package = f"hpml_lab.{topic}.experiments."
    for name, what in listed.items():
        importing = {module.removeprefix(package).split(".")[0] for module in importers().get(package + name, ())}
        users = importing & slugs
        assert len(users) > 1 or users and "child process" in what, (
            f"{name}.py has one user: move it to {folder}/{' or '.join(sorted(users))}/, "
            f"or remove it from {folder}/__init__.py if nothing uses it"
        )


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda row: row.slug)
def test_an_experiment_is_described_and_taught(experiment):
    path, function = experiment.function.__module__, experiment.function
    first, *rest = function.__doc__.strip().splitlines()
    alone = first.endswith(".") and not (rest and rest[0].strip())
    assert alone, f"{path}: the docstring of {function.__name__} begins with its title: a sentence on the first line, alone"
    assert experiment.draw is None or len(experiment.caption) > 40, (
        f"{path}: the docstring of the drawing is its caption and alternative text; say in it what the figure shows"
    )
    assert set(experiment.quick) == set(experiment.full), f"{path}: give quick and full the same parameters"
    notebook = nbformat.read(NOTEBOOKS / f"{experiment.notebook}.ipynb", as_version=4)
    call = f"{experiment.topic}.{function.__name__}()"
    called = any(call in cell.source for cell in notebook.cells if cell.cell_type == "code")
    assert called, f"no cell of {experiment.notebook}.ipynb calls {call}: add its section, with a cell `result = {call}`"


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
    assert named == [row.slug for row in EXPERIMENTS if row.notebook == path.stem], (
        f"each experiment of {path.name} has one heading `## … · `slug``, and the front door names them in the same order: "
        "add the heading, or move the line in the front door"
    )


@pytest.mark.parametrize("path", ALL_NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_imports_from_front_doors_and_lessons_only_in_at_most_six_lines(path):
    lines = [
        line
        for cell in nbformat.read(path, as_version=4).cells
        if cell.cell_type == "code"
        for line in cell.source.splitlines()
        if re.match(r"\s*(from|import) hpml_lab", line)
    ]
    assert 0 < len(lines) <= 6, (
        f"{path.name} imports from hpml_lab in {len(lines)} lines: join them to 1 to 6, in the first code cell"
    )
    for line in lines:
        topic = re.match(r"\s*from hpml_lab(\.\w+(\.lessons)?)? import ", line)
        assert topic, (
            f"{path.name}: `{line.strip()}` imports from inside a topic. Name what it needs in the topic's front door "
            "(hpml_lab/<topic>/__init__.py) and import it from there; a lesson: `from hpml_lab.<topic>.lessons import …`"
        )


def test_slugs_are_unique():
    slugs = [row.slug for row in EXPERIMENTS]
    assert len(slugs) == len(set(slugs)) >= 80, f"rename one of {[slug for slug in slugs if slugs.count(slug) > 1]}"


@pytest.mark.parametrize("path", ALL_NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_00_and_the_readme_list_it(path):
    first = "".join(cell.source for cell in nbformat.read(NOTEBOOKS / "00_start.ipynb", as_version=4).cells)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    linked, listed = path.stem == "00_start" or f"({path.name})" in first, f"(notebooks/{path.name})" in readme
    assert linked, f"link {path.name} from the list in notebooks/00_start.ipynb"
    assert listed, f"add a row for notebooks/{path.name} to the table of README.md"


def test_the_readme_is_short():
    lines = len((ROOT / "README.md").read_text(encoding="utf-8").splitlines())
    assert lines <= README_LINES, (
        f"README.md has {lines} lines, at most {README_LINES} are allowed: move the details to a page of docs/, and link it"
    )


@pytest.mark.parametrize("path", ALL_NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_has_its_topic_and_its_tests(path):
    topic = path.stem.split("_", 1)[1]
    assert topic in TOPICS, f"add {topic} to TOPICS of tests/test_house.py, or name {path.name} after its topic"
    rows = [] if topic in WITHOUT_EXPERIMENTS else [PACKAGE / topic / "experiments"]
    for folder in [*rows, PACKAGE / topic, ROOT / "tests" / topic]:
        assert folder.is_dir(), f"{path.name} needs the folder {folder}: make it"


@pytest.mark.parametrize("path", ALL_NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_is_clean(path):
    raw = path.read_text()
    notebook = nbformat.reads(raw, as_version=4)
    nbformat.validate(notebook)
    store = f"run `make outputs ARGS=notebooks/{path.name}`"
    assert "widgets" not in notebook.metadata, f"{path.name} holds the state of widgets: {store}"
    private = [text for text in (str(ROOT), "/home/", "site-packages") if text in raw]
    assert not private, f"{path.name} shows paths of one machine ({private}): print names instead, then {store}"
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in code:
        about = f"{path.name}, cell {cell.id}"
        installs = re.search(r"^\s*[!%]\s*(pip|conda)\b", cell.source, flags=re.M)
        assert not installs, f"{about} installs: add the package to pyproject.toml instead"
        assert cell.execution_count is not None, f"{about} is stored as it was never run, so nbval compares nothing: {store}"
        for output in cell.outputs:
            assert output.output_type != "error", f"{about} ended in {output.get('ename')}: repair it, then {store}"
            assert output.get("name") != "stderr", f"{about} is stored with stderr: {store}, which leaves it out"
            kinds = set(output.get("data", {}))
            scripts = kinds & {"application/javascript", "image/svg+xml", "application/vnd.jupyter.widget-view+json"}
            assert not scripts, f"{about} stores {scripts}: show a picture or HTML instead, then {store}"
            assert "image/png" not in kinds or len(output.data["text/plain"]) > 20, (
                f"{about}: a picture has a text for those who do not see it; write the docstring of its drawing"
            )
    counts = [cell.execution_count for cell in code]
    assert counts == list(range(1, len(code) + 1)), f"the cells of {path.name} were not run from top to bottom: {store}"


@pytest.mark.parametrize("path", ALL_NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_says_what_it_teaches_and_ends_with_key_points(path):
    text = [c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "markdown"]
    assert text[0].startswith(f"# {path.stem[:2]} "), f"{path.name} begins with a heading: `# {path.stem[:2]} …`"
    for part in ("you can", "lecture", "minutes"):
        assert part in text[0].lower(), (
            f"the first cell of {path.name} says what you can do, from which lecture, in how many minutes"
        )
    assert any(part.startswith("## Key points") for part in text[-3:]), f"end {path.name} with a cell `## Key points`"


@pytest.mark.parametrize("path", ALL_NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_shows_each_lesson(path):
    """By `source(name)`, `source(module.name)` or a method, `source(Class.name)`: what is not shown is not a lesson."""
    code = "\n".join(c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code")
    shown = {part for name in re.findall(r"\bsource\(([\w.]+)\)", code) for part in name.split(".")}
    for lesson in (PACKAGE / path.stem.split("_", 1)[1] / "lessons").glob("[a-z]*.py"):
        names = {getattr(node, "name", "") for node in ast.parse(lesson.read_text(encoding="utf-8")).body}
        assert shown & {lesson.stem, *names}, (
            f"{path.name} does not show {lesson.name}: add a cell `source({lesson.stem})`, or move it to tools/ or views/"
        )


@pytest.mark.parametrize("path", ALL_NOTEBOOKS, ids=lambda p: p.stem)
def test_a_card_has_at_most_six_claims(path):
    for cell in nbformat.read(path, as_version=4).cells:
        for output in cell.get("outputs", []):
            if found := re.search(r"\d+ of (\d+) claims? holds?", output.get("data", {}).get("text/html", "")):
                assert int(found[1]) <= CLAIMS, (
                    f"{path.name}, cell {cell.id} shows {found[1]} claims, at most {CLAIMS} are read: join some, "
                    "or move checks of the apparatus to a test or to `result.check`"
                )


@pytest.mark.parametrize("path", ALL_NOTEBOOKS, ids=lambda p: p.stem)
def test_an_exercise_stands_behind_the_section_it_belongs_to(path):
    headings = [line for cell in nbformat.read(path, as_version=4).cells for line in cell.source.splitlines()]
    assert "## Exercises" not in headings, f"{path.name}: move each exercise behind the section that it belongs to"


@pytest.mark.parametrize("path", sorted(REFERENCE.glob("*.json")), ids=lambda p: p.stem)
def test_a_reference_is_a_result_of_its_experiment(path):
    result, again = find(path.stem).load(path), f"record it again: `hpml-lab reference {path.stem}` on a GPU machine"
    assert result.slug == path.stem and result.size == "full", f"{path.name} is {result.slug} at {result.size}: {again}"
    assert result, f"an exact claim of {path.name} does not hold: repair the experiment, then {again}"
    size = path.stat().st_size
    assert size <= LARGEST_FILE, f"{path.name} has {size} bytes, at most {LARGEST_FILE}: thin its curves in `result.arrays`"
    drawn = result.figure() is not None or result.experiment.draw is None
    assert drawn, f"the drawing of {path.stem} returns nothing for {path.name}: return its figure"


TO_FILL_IN = re.compile(r"^.*\bTODO\b.*$", flags=re.MULTILINE)  # what `hpml-lab new` leaves to its author


@pytest.mark.parametrize("topic", TOPICS)
def test_nothing_is_left_to_fill_in(topic):
    left = []
    for path in sorted([*(PACKAGE / topic).rglob("*.py"), *(ROOT / "tests" / topic).rglob("*.py")]):
        left += [f"{path.relative_to(ROOT)}: {line.strip()}" for line in TO_FILL_IN.findall(path.read_text(encoding="utf-8"))]
    [notebook] = NOTEBOOKS.glob(f"[0-9]*_{topic}.ipynb")
    for cell in nbformat.read(notebook, as_version=4).cells:
        left += [f"{notebook.name}, cell {cell.id}: {line}" for line in TO_FILL_IN.findall(cell.source)]
    assert not left, "\n".join([f"fill in {len(left)} lines:", *left])
