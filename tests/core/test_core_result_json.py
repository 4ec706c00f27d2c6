"""A saved result is data: no file runs code, every value has the type that is declared, and what is damaged is refused."""

import copy
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpml_lab.core.experiment import Row, column, registry
from hpml_lab.core.experiment.registry import all_experiments, find, load_result
from hpml_lab.core.experiment.result_json import typed
from hpml_lab.core.system.errors import LabError
from hpml_lab.report.machines import machine_cards
from hpml_lab.report.reasons import reasons

MACHINE = {"cpu": "A CPU", "cores": 2, "memory_gb": 8.2, "gpu": None, "torch": "2.15.0"}
RECORD = {
    "format": 2,
    "tables": [
        {"title": "Steps", "row_type": "StepWithWords", "rows": [{"step": 1, "loss": 0.5, "words": None, "pairs": [[1, 2.0]]}]}
    ],
    "key_figures": [{"label": "speed", "here": 2.5, "unit": "GB/s", "lecture": "77 (P100)"}],
    "claims": [
        {"text": "It is so", "holds": False, "measured": "1 of 2", "exact": True, "depends_on": "the machine"},
        {"text": "It is fast", "holds": False, "measured": "within noise", "exact": False, "depends_on": "the machine"},
    ],
    "checks": [{"text": "It is off", "holds": True, "measured": "", "exact": True, "depends_on": "the machine"}],
    "notes": ["Nothing to note."],
    "arrays": {"values": [1, {"number": "nan"}]},
    "slug": "sample-steps",
    "size": "quick",
    "device": "cpu",
    "seed": 0,
    "seconds": 1.5,
    "when": "2026-11-24 10:00 UTC",
    "machine": MACHINE,
}


@dataclass
class StepWithWords(Row):
    step: int = column("step")
    loss: float = column("loss")
    words: str | None = column("words")
    pairs: list[tuple[int, float]]
    later: float | None = column("later", "s", default=None)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """(record) -> the path of a file that holds it; the experiment that it names is in the registry."""

    def sample_steps(params):
        """An experiment that is only loaded."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
        registry.experiment("sample-steps", lecture="L0", notebook="99_test")(sample_steps)
        path = tmp_path_factory.mktemp("records") / "sample-steps.json"

        def write(record):
            path.write_text(json.dumps(record), encoding="utf-8")
            return path

        yield write


def changed(**fields):
    return copy.deepcopy(RECORD) | fields


def test_a_row_type_that_is_a_function_of_the_experiments_module_is_not_called(tmp_path):
    """`run_python` stands in the module of the experiment, and would start a process with the arguments of the file."""
    assert callable(vars(sys.modules[find("elastic").function.__module__])["run_python"])
    mark = tmp_path / "code of a received file ran"
    table = {"title": "Runs", "row_type": "run_python", "rows": [{"arguments": ["-c", f"open({str(mark)!r}, 'w')"]}]}
    path = tmp_path / "elastic.json"
    path.write_text(json.dumps(changed(slug="elastic", tables=[table])), encoding="utf-8")
    with pytest.raises(LabError, match="no rows are called 'run_python'"):
        load_result(path)
    assert not mark.exists()


def test_a_field_that_no_row_of_a_file_has_is_named(file):
    """It is how a recorded run of another kind of device shows that it is older than the code."""
    [table] = load_result(file(RECORD)).tables
    assert table.absent == {"later"}
    [row] = RECORD["tables"][0]["rows"]
    newer = changed(tables=[{**RECORD["tables"][0], "rows": [row, row | {"later": None}]}])
    assert load_result(file(newer)).tables[0].absent == frozenset()


@pytest.mark.parametrize("experiment", all_experiments(), ids=lambda row: row.slug)
def test_no_name_of_an_experiments_module_is_a_row_type_but_those_of_rows(experiment):
    module = experiment.function.__module__
    refused = []
    for name, value in [*vars(sys.modules[module]).items(), ("print", print), ("Row", Row)]:
        try:
            assert Row.kind(name, module).__name__ == name and issubclass(Row.kind(name, module), Row)
        except ValueError:
            refused.append(name)
            assert value is Row or not (isinstance(value, type) and issubclass(value, Row))
    assert {"print", "Row", experiment.function.__name__} <= set(refused)


def test_a_sound_record_is_a_result_with_typed_rows(file):
    result = load_result(file(RECORD))
    assert result.rows() == [StepWithWords(1, 0.5, None, [(1, 2.0)])] and result.machine["numpy"] is None
    assert result.where == "quick on cpu, A CPU, 2 cores (torch 2.15.0), seed 0, 1.5 s, 2026-11-24 10:00 UTC"


DAMAGED = {
    "when a number": changed(when=5),
    "when null": changed(when=None),
    "seconds a text": changed(seconds="abc"),
    "seconds 10^400": changed(seconds=10**400),
    "no machine": changed(machine={}),
    "a list for a machine": changed(machine=[]),
    "cores a text": changed(machine=MACHINE | {"cores": "two"}),
    "memory a text": changed(machine=MACHINE | {"memory_gb": "many"}),
    "a GPU's memory a text": changed(machine=MACHINE | {"gpu": "X", "gpu_memory_gb": "many"}),
    "torch null": changed(machine=MACHINE | {"torch": None}),
    "a claim without a measurement": changed(claims=[RECORD["claims"][1] | {"measured": None}]),
    "a claim that holds by a text": changed(claims=[RECORD["claims"][1] | {"holds": "no"}]),
    "a claim that is a text": changed(claims=["It is so"]),
    "a key figure that is a list": changed(key_figures=[RECORD["key_figures"][0] | {"here": [1, 2]}]),
    "a note for notes": changed(notes="abc"),
    "an unknown field": changed(color="red"),
    "no claims": {name: value for name, value in RECORD.items() if name != "claims"},
    "a row of another type": changed(tables=[{"title": "", "row_type": "StepWithWords", "rows": [{"step": "1"}]}]),
    "a row with a text for a number": changed(
        tables=[{"title": "", "row_type": "StepWithWords", "rows": [RECORD["tables"][0]["rows"][0] | {"loss": "0.5"}]}]
    ),
    "a row of another package": changed(tables=[{"title": "", "row_type": "Trial", "rows": [{}]}]),
    "a row type that is a list": changed(tables=[{"title": "", "row_type": [], "rows": [{}]}]),
    "a number that is none": changed(arrays={"values": {"number": []}}),
}


@pytest.mark.parametrize("record", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_value_of_another_type_is_refused(file, record):
    with pytest.raises(LabError, match="sample-steps.json is not a readable result"):
        load_result(file(record))


def test_a_result_of_another_experiment_is_refused(file):
    with pytest.raises(LabError, match="it is one of 'xor', not of 'sample-steps'"):
        find("sample-steps").load(file(changed(slug="xor")))


def test_a_file_nested_deep_and_a_device_are_refused(file, tmp_path):
    path = file(RECORD)
    path.write_text('{"format": 2, "slug": ' + "[" * 200_000, encoding="utf-8")
    with pytest.raises(LabError, match="not a readable result"):
        load_result(path)
    path.unlink()
    path.symlink_to(os.devnull)  # as well /dev/zero, which would be read until the memory is full
    with pytest.raises(LabError, match="is a pipe, a socket or a device"):
        load_result(path)
    path.unlink()


@pytest.mark.parametrize(
    "hint, value, made",
    [
        (float, 3, 3),
        (float | None, None, None),
        (int | str, "a", "a"),
        (tuple[float, ...], [1, 2.5], (1, 2.5)),
        (list[tuple[float, float]], [[1.0, 2.0]], [(1.0, 2.0)]),
        (Sequence[float], [1.0], [1.0]),
        (dict[str, list[float]], {"a": [1.0]}, {"a": [1.0]}),
        (Any, {"a": object}, {"a": object}),
    ],
)
def test_a_value_is_made_as_it_is_declared(hint, value, made):
    assert typed(hint, value) == made and type(typed(hint, value)) is type(made)


@pytest.mark.parametrize(
    "hint, value, why",
    [
        (float, True, "x has the type bool, not float"),
        (int, 1.0, "x has the type float, not int"),
        (str | None, 1, "x has the type int, not str | None"),
        (tuple[float, float], [1.0], "x has the type list, not tuple"),
        (list[int], [1, "2"], "x has the type str, not int"),
        (dict[str, float], {"a": None}, "x.a has the type NoneType, not float"),
    ],
)
def test_a_wrong_value_is_named(hint, value, why):
    with pytest.raises(ValueError) as caught:
        typed(hint, value, "x")
    assert str(caught.value).startswith(why)


PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.just(10**400),
    st.floats(),
    st.text(st.characters(exclude_categories=()), max_size=8),  # halves of surrogate pairs, too
)
JSON = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=5
)


def places(value, path=()):
    """The paths of all values in a record, its containers included."""
    yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from places(inner, (*path, key))


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(path=st.sampled_from([path for path in places(RECORD) if path]), value=JSON)
def test_whatever_a_file_holds_it_is_refused_or_can_be_shown(file, path, value):
    record = copy.deepcopy(RECORD)
    parent = record
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    try:
        result = load_result(file(record))
    except LabError:
        return
    assert result.text() and result.html().encode("utf-8", "replace")
    assert machine_cards([result])[0].facts
    assert all(reasons(result, claim) for claim in result.claims)
