"""A progress line in a notebook is an output of its own, empty in the end; nothing goes to stderr, which is drawn red."""

import IPython.display
import pytest

from hpml_lab.core.show import progress as module


@pytest.fixture
def shown(monkeypatch):
    """What a notebook shows, one after the other."""
    shown = []

    class Handle:
        def update(self, data, raw):
            shown.append(data["text/html"])

    def display(data, raw, display_id):
        shown.append(data["text/html"])
        return Handle()

    monkeypatch.setattr(IPython.display, "display", display)
    monkeypatch.setattr(module, "in_notebook", lambda: True)
    monkeypatch.setattr(module, "NOTEBOOK_DELAY_SECONDS", 0.0)
    return shown


def test_a_line_in_a_notebook_leaves_no_strip(shown, capsys):
    assert list(module.progress(range(3), "epochs < 4")) == [0, 1, 2]
    assert shown[0].startswith("<pre>epochs &lt; 4:   0%") and shown[-1] == ""
    assert capsys.readouterr() == ("", "")


def test_a_loop_in_a_loop_has_a_line_of_its_own(shown):
    for _ in module.progress(range(2), "outer"):
        list(module.progress(range(2), "inner"))
    assert {line[5:10] for line in shown if line} == {"outer", "inner"}


def test_quick_work_shows_nothing(shown, monkeypatch):
    monkeypatch.setattr(module, "NOTEBOOK_DELAY_SECONDS", 3600.0)
    list(module.progress(range(3), "epochs"))
    assert shown == []
