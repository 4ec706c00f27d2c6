"""Front doors hand out names on demand, and a topic that does not load does not break the others."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hpml_lab.core
from hpml_lab.core.experiment import topics
from hpml_lab.core.system.lazy import attach, modules_of
from hpml_lab.core.system.paths import ROOT

PACKAGE = Path(hpml_lab.__path__[0])
DOORS = {
    ".".join(path.parent.relative_to(PACKAGE.parent).parts): path
    for path in sorted(PACKAGE.rglob("__init__.py"))
    if "attach(__name__" in path.read_text(encoding="utf-8")
}
# Arguments: a front door, a seed. What each name is, is said by the imports that type checkers read.
IN_ANY_ORDER = """
import importlib, pkgutil, random, sys
from pathlib import Path
from hpml_lab.core.system.lazy import modules_of

door = importlib.import_module(sys.argv[1])
module_of = modules_of(Path(door.__file__))
names = sorted(module_of)
random.Random(int(sys.argv[2])).shuffle(names)
first = {name: getattr(door, name) for name in names}
for module in pkgutil.walk_packages(door.__path__, door.__name__ + "."):
    importlib.import_module(module.name)
for name in names:
    own = getattr(sys.modules[module_of[name]], name)
    exec(f"from {door.__name__} import {name} as last")
    assert first[name] is own and last is own, name
print(len(names))
"""


def test_the_front_doors_are_found():
    assert {"hpml_lab.core", "hpml_lab.data", "hpml_lab.optim", "hpml_lab.landscape", "hpml_lab.start"} <= DOORS.keys()


@pytest.mark.parametrize("door", DOORS)
def test_no_front_door_hands_out_a_name_that_is_also_a_folder_or_module_of_its_package(door):
    """Importing the module would put it where the name was: `from hpml_lab.core import measure` once gave a folder."""
    inside = {path.stem for path in DOORS[door].parent.iterdir() if path.is_dir() or path.suffix == ".py"}
    assert not inside & set(modules_of(DOORS[door])), "rename the module or folder"


@pytest.mark.parametrize("door", DOORS)
def test_what_a_front_door_s_text_lists_is_what_it_hands_out(door):
    names, text = modules_of(DOORS[door]), ast.get_docstring(ast.parse(DOORS[door].read_text(encoding="utf-8")))
    columns = re.findall(r"^ *(\w+(?:, \w+)*)(?: {2,}\S.*)?$", text, flags=re.MULTILINE)  # names, and what they are for
    assert {name for column in columns for name in column.split(", ")} <= names.keys(), "and nothing that it does not"
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == [], "the text says what each name is"


IN_NEW_INTERPRETERS = pytest.mark.environment("new interpreters", files=("hpml_lab/core/system/lazy.py",))


@pytest.mark.parametrize(
    "door", [pytest.param(door, marks=IN_NEW_INTERPRETERS if door != "hpml_lab.core" else ()) for door in DOORS]
)
def test_a_name_is_what_type_checkers_see_whichever_is_imported_first_and_last(door):
    for seed in "01":
        done = subprocess.run([sys.executable, "-c", IN_ANY_ORDER, door, seed], cwd=ROOT, capture_output=True, text=True)
        assert done.stdout.strip() == str(len(modules_of(DOORS[door]))), done.stderr


def public_functions():
    """(name, its syntax) of each function that a front door hands out, and of each public method and `__init__` of a class."""
    for door in DOORS.values():
        for name, module in modules_of(door).items():
            base = PACKAGE.parent.joinpath(*module.split("."))
            path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.FunctionDef) and node.name == name:
                    yield name, node
                elif isinstance(node, ast.ClassDef) and node.name == name:
                    inner = (method for method in node.body if isinstance(method, ast.FunctionDef))
                    shown = (method for method in inner if method.name == "__init__" or not method.name.startswith("_"))
                    yield from ((f"{name}.{method.name}", method) for method in shown)


def test_what_takes_a_device_or_a_path_takes_it_as_the_field_passes_it_and_says_so():
    """As torch's own functions: a device also as "cuda:0", a path also as text."""
    asked = [
        (f"{name}({argument.arg}: {ast.unparse(argument.annotation)})", ast.unparse(argument.annotation))
        for name, node in public_functions()
        for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        if argument.annotation is not None
    ]
    takes = [(words, kind) for words, kind in asked if re.search(r"\bPath\b|torch\.device", kind) and "Callable" not in kind]
    assert len(takes) > 50
    assert [words for words, kind in takes if "str" not in kind] == []
    assert [words for words, kind in asked if "device: str" in words] == [], "a torch.device, too"


def test_core_loads_neither_torch_nor_matplotlib_until_a_name_is_used():
    code = (
        "import sys, hpml_lab.core; before = [m for m in ('torch', 'matplotlib') if m in sys.modules];"
        "hpml_lab.core.measure; print(before, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[] True", done.stderr


def test_an_unknown_name_is_an_attribute_error_that_names_the_package(tmp_path):
    (tmp_path / "door.py").write_text("from os import path\nfrom hpml_lab.core.system.errors import LabError as LabError\n")
    get, names, offered = attach("hpml_lab.core", str(tmp_path / "door.py"))
    assert get("LabError") is hpml_lab.core.LabError and names() == offered == ["LabError"]
    with pytest.raises(AttributeError, match="module 'hpml_lab.core' has no attribute 'LabErorr'"):
        get("LabErorr")


def test_a_topic_that_does_not_load_is_reported_and_the_others_load(tmp_path, monkeypatch):
    sound, broken = tmp_path / "sound_topic", tmp_path / "broken_topic"
    for folder in (sound, broken):
        (folder / "experiments").mkdir(parents=True)
        (folder / "__init__.py").touch()
        (folder / "experiments" / "__init__.py").touch()
    (sound / "experiments" / "first.py").write_text("loaded = True")
    (broken / "experiments" / "first.py").write_text("import no_such_module_at_all")
    monkeypatch.setattr(topics.hpml_lab, "__path__", [str(tmp_path)])
    try:
        failed = topics.import_topics.__wrapped__("experiments")
        assert sys.modules["hpml_lab.sound_topic.experiments.first"].loaded
    finally:
        for name in [name for name in sys.modules if "_topic" in name]:
            del sys.modules[name]
    assert failed == {"broken_topic": "ModuleNotFoundError: No module named 'no_such_module_at_all'"}
