"""CONTRIBUTING.md tells the truth: its examples are there, its rules have the tests' numbers, and the tests say what to do."""

import ast
import re

import pytest
from test_house import FLOOR, FLOORS, TOPICS

from hpml_lab.cli import new
from hpml_lab.core.experiment.catalogue import catalogue
from hpml_lab.core.judge.exercises import all_exercises
from hpml_lab.core.system.paths import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
ARCHITECTURE = "docs/architecture.md"
RULE = re.compile(r"^\| ([^|]+) \| (\d+) \| `([\w-]+)` in `([\w/.]+)`", flags=re.MULTILINE)
# Tests of what the house looks with, on examples: they are about the test, and a contributor does not meet them.
OF_THE_HOUSE_ITSELF = {"test_texts_without_an_encoding_are_found", "test_what_is_a_question_and_what_takes_it_up"}


def section(heading):
    return re.split(r"^##+ ", TEXT.partition(f" {heading}\n")[2], flags=re.MULTILINE)[0]


def touched(heading):
    """{path: what goes there} of the table of a case."""
    return dict(re.findall(r"^\| `([\w/.]+)` \| (.+) \|$", section(heading), flags=re.MULTILINE))


@pytest.mark.parametrize(
    "kind, heading, number",
    [("experiment", "An experiment", "11"), ("exercise", "An exercise", "03")],
    ids=["experiment", "exercise"],
)
def test_an_addition_touches_the_files_that_the_command_writes(kind, heading, number):
    """The example was there before the command, and has the same files."""
    example = re.search(r"Such as `([\w-]+)` of notebook (\d+)", section(heading))
    assert example[2] == number
    planned, _ = new.planned(ROOT, kind, "worked-example", number)
    paths = [path.relative_to(ROOT).as_posix() for path in planned]
    assert [path.replace("worked_example", example[1].replace("-", "_")) for path in paths] == list(touched(heading))
    for path in touched(heading):
        text = (ROOT / path).read_text(encoding="utf-8")
        assert example[1] in text or example[1].replace("-", "_") in text, f"{path} has nothing of {example[1]}"
    [command] = re.findall(r"^hpml-lab new (\w+) ([\w-]+) --notebook (\d\d)$", section(heading), flags=re.MULTILINE)
    assert command[0] == kind and new.find_notebook(ROOT, command[2])


def test_a_fix_touches_a_module_and_the_test_that_imports_it():
    test, module = touched("A fix")
    imported = module.removesuffix(".py").replace("/", ".")
    [name] = re.findall(r"Such as one of `(\w+)`", section("A fix"))
    assert re.search(rf"^from {re.escape(imported)} import .*\b{name}\b", (ROOT / test).read_text(encoding="utf-8"), flags=re.M)
    assert f"def {name}(" in (ROOT / module).read_text(encoding="utf-8")


def value(name, path):
    """The number that a file gives a name."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".toml"):
        return int(re.search(rf"^{name} = (\d+)", text, flags=re.M)[1])
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign):
            pairs = [(node.targets[0], node.value)]
            if isinstance(node.targets[0], ast.Tuple):
                pairs = zip(node.targets[0].elts, node.value.elts, strict=True)
            for target, given in pairs:
                if ast.unparse(target) == name:
                    return ast.literal_eval(given)
    raise KeyError(f"{path} has no {name}")


@pytest.mark.parametrize("of, number, name, path", RULE.findall(TEXT), ids=[rule[2] for rule in RULE.findall(TEXT)])
def test_a_rule_has_the_number_of_its_test(of, number, name, path):
    assert value(name, path) == int(number), f"CONTRIBUTING.md says {number} of {of}: write the number of {path} there"


@pytest.mark.parametrize("name", ["test_house.py", "test_notebook_texts.py", "test_links.py"])
def test_each_assertion_of_the_house_says_what_to_do(name):
    silent = []
    for function in ast.parse((ROOT / "tests" / name).read_text(encoding="utf-8")).body:
        if isinstance(function, ast.FunctionDef) and function.name not in OF_THE_HOUSE_ITSELF:
            silent += [node.lineno for node in ast.walk(function) if isinstance(node, ast.Assert) and node.msg is None]
    assert not silent, f"tests/{name}: give the assertions in lines {silent} a text: file, count, limit and the way out"


def test_the_architecture_names_the_topics_that_use_front_doors_of_others():
    text = (ROOT / ARCHITECTURE).read_text(encoding="utf-8")
    above = set.union(*FLOORS[FLOOR["loading"] + 1 :]) & set(TOPICS)
    sentence = re.search(r"Topics do not import each other, except that(.+?)use the front doors of others", text, flags=re.S)
    assert set(re.findall(r"\w+", sentence[1])) & set(TOPICS) == above, f"{ARCHITECTURE}: name the topics of FLOORS there"


def lines(folder, room=""):
    """The lines of Python below a folder of the project, or in its rooms of one name."""
    paths = [path for path in (ROOT / folder).rglob("*.py") if not room or room in path.parts]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def test_the_text_on_architecture_counts_what_there_is():
    """To a tenth, so that adding one changes nothing there."""
    text = (ROOT / ARCHITECTURE).read_text(encoding="utf-8")
    found = re.search(
        r"^About (\d+) experiments and (\d+) exercises .*?: about (\d+),000 lines of Python, of which experiments "
        r"take (\d+),000,\s+exercises (\d+),000 and\s+lessons (\d+),000, and (\d+),000 of tests",
        text,
        flags=re.MULTILINE | re.DOTALL,
    )
    rooms = [lines("hpml_lab", room) for room in ("experiments", "exercises", "lessons")]
    there = [len(catalogue()), len(all_exercises()), *(count / 1000 for count in (lines("hpml_lab"), *rooms, lines("tests")))]
    for said, is_there in zip(map(int, found.groups()), there, strict=True):
        assert abs(said / is_there - 1) < 0.1, f"{ARCHITECTURE} says {said}: write {is_there:.0f} there"


def test_the_text_on_architecture_gives_the_seconds_of_the_checks():
    text = (ROOT / ARCHITECTURE).read_text(encoding="utf-8")
    seconds, minutes = re.search(
        r"about (\d+) seconds; for a\s+push .*? for all of it about (\d+)", text, flags=re.DOTALL
    ).groups()
    table = dict(re.findall(r"^\| [^|]+ \| `make (\w+).*?` \| [^|]+ \| (\d+) (?:s|minutes) \|$", TEXT, flags=re.MULTILINE))
    assert (seconds, minutes) == (table["topic"], table["test"]), (
        f"write the table's figures of CONTRIBUTING.md into {ARCHITECTURE}"
    )
