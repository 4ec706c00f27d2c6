"""Finding a program: PATH comes first, then the folder of this Python; finding a package."""

import sys

import pytest

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.installed import find_tool, need


def program(folder, name="hpml-tool"):
    folder.mkdir()
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_path_comes_before_the_folder_of_this_python(tmp_path, monkeypatch):
    on_path, next_to_python = program(tmp_path / "path"), program(tmp_path / "environment")
    monkeypatch.setenv("PATH", str(on_path.parent))
    monkeypatch.setattr(sys, "executable", str(next_to_python.parent / "python"))
    assert find_tool("hpml-tool") == str(on_path)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert find_tool("hpml-tool") == str(next_to_python)
    assert find_tool("hpml-other-tool") is None


def test_a_file_that_cannot_be_executed_is_not_a_tool(tmp_path, monkeypatch):
    path = program(tmp_path / "path")
    path.chmod(0o644)
    monkeypatch.setenv("PATH", str(path.parent))
    assert find_tool("hpml-tool") is None


def test_a_package_that_is_not_installed_is_named_as_pip_knows_it(tmp_path, monkeypatch):
    assert need("json").loads("1") == 1
    with pytest.raises(LabError, match="pip install hpml-nothing"):
        need("hpml_nothing", "hpml-nothing")
    (tmp_path / "hpml_half.py").write_text("import hpml_other.part")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(LabError, match="hpml_other is not installed .*pip install hpml_other"):
        need("hpml_half", "hpml-half")
