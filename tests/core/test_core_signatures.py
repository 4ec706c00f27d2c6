"""Signatures of functions whose annotations name what is not there."""

import inspect
import sys

import pytest

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.launcher import launch
from hpml_lab.core.system.signatures import annotations_of, signature_of
from hpml_lab.optim.machinery import base

lazy = pytest.mark.skipif(sys.version_info < (3, 14), reason="annotations are evaluated at the def before Python 3.14")
NOT_IMPORTED = "def train(x: Tensor, steps: int, block: 'tl.constexpr' = 3) -> Losses: ..."


def plain(x: float, steps: "int" = 3) -> float: ...


def written_without_imports():
    names = {}
    exec(NOT_IMPORTED, names)
    return names["train"]


def test_where_all_is_imported_it_is_what_inspect_says():
    assert signature_of(plain) == inspect.signature(plain) and annotations_of(plain) == plain.__annotations__
    assert signature_of(len) == inspect.signature(len)
    with pytest.raises(TypeError, match="not a callable"):
        signature_of(3)


@lazy
def test_an_annotation_that_names_what_is_not_there_is_no_error():
    function = written_without_imports()
    with pytest.raises(NameError):
        inspect.signature(function)
    assert str(signature_of(function)) == "(x: Tensor, steps: int, block: 'tl.constexpr' = 3) -> Losses"
    assert annotations_of(function) == {"x": "Tensor", "steps": int, "block": "tl.constexpr", "return": "Losses"}


@lazy
def test_launch_and_an_update_rule_take_such_a_function():
    function = written_without_imports()
    with pytest.raises(LabError, match=r"train\(x: Tensor, steps: int, .* cannot be called with the arguments given"):
        launch(function, 1)
    assert base._names(function) == ("x", "steps", "block")
