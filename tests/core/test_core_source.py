"""`source`: a lesson's code as it stands in its file."""

import inspect
import re

import pytest

from hpml_lab.core.judge import same
from hpml_lab.core.show.source import source
from hpml_lab.core.system.paths import ROOT


def test_a_functions_code_has_its_file_and_line():
    shown = source(same.same)
    assert shown.file == "hpml_lab/core/judge/same.py" and shown.code == inspect.getsource(same.same).rstrip()
    line = (ROOT / shown.file).read_text(encoding="utf-8").splitlines()[shown.line - 1]
    assert line == shown.code.splitlines()[0] and f"line {shown.line}" in repr(shown)
    assert shown._repr_markdown_().endswith(f"```python\n{shown.code}\n```")


def test_a_module_begins_at_line_1_and_a_method_without_indentation():
    assert (source(same).line, source(same).code.splitlines()[0]) == (1, inspect.getsource(same).splitlines()[0])
    assert not re.match(r"\s", source(type(source(same)).__repr__).code)


def test_a_text_file_is_shown_in_its_language(tmp_path):
    path = tmp_path / "settings.json"
    path.write_text('{"fp16": true}\n', encoding="utf-8")
    assert source(path)._repr_markdown_().endswith('```json\n{"fp16": true}\n```')


def test_what_has_no_source_is_refused():
    with pytest.raises(TypeError):
        source(3)
