"""In a real JupyterLab: a folded answer is there, closed, and opens on a click with its formulas rendered."""

import shutil

import pytest

from hpml_lab.core.system.paths import ROOT

pytest.importorskip("playwright", reason="the Python package playwright is not installed")
from lab import CHROMIUM, browser, lab_server, open_notebook  # noqa: E402

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here; on Debian: apt-get install chromium"),
]
SHOW = """async id => { const notebook = window.jupyterapp.shell.currentWidget.content;
                        await notebook.scrollToItem([...notebook.model.cells].findIndex(cell => cell.id === id)) }"""


def test_an_answer_opens_on_a_click(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    shutil.copy(ROOT / "notebooks" / "05_adaptive.ipynb", work)
    with lab_server(work, tmp_path / "state") as (address, token), browser(tmp_path / "profile") as context:
        page = open_notebook(context, address, token, "05_adaptive.ipynb")
        page.evaluate(SHOW, "lab-adam-text")
        answer = page.locator("details", has_text="step 69")
        answer.wait_for()
        formula = answer.locator("mjx-container").first
        assert not formula.is_visible(), "folded until it is asked for"
        answer.get_by_text("Answer", exact=True).click()
        formula.wait_for()
