"""Front doors hand out names on demand, and a topic that does not load does not break the others."""

import subprocess
import sys

import pytest

import hpml_lab.core
from hpml_lab.core.experiment import topics
from hpml_lab.core.system.lazy import attach


def test_every_name_of_core_exists():
    for name in hpml_lab.core.__all__:
        assert getattr(hpml_lab.core, name) is not None
        assert name in hpml_lab.core.__doc__


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
