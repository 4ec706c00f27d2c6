"""In a real JupyterLab: what the lid of each collapsed output shows, in all notebooks, and that a run takes it away."""

import shutil

import nbformat
import pytest

from hpml_lab.core.judge.prediction import LID
from hpml_lab.core.system.paths import NOTEBOOKS

pytest.importorskip("playwright", reason="the Python package playwright is not installed")
from lab import CHROMIUM, browser, lab_server, run_all_cells  # noqa: E402

pytestmark = [
    pytest.mark.browser,
    pytest.mark.environment("JupyterLab in Chromium", files=("hpml_lab/core/judge/prediction.py", "tests/store_outputs.py")),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here; on Debian: apt-get install chromium"),
]

# JupyterLab draws a cell when it comes into view, or if it is told that it is no placeholder any more. No kernel is started.
READ_LIDS = """async path => {
  const open = { path, factory: "Notebook", kernelPreference: { shouldStart: false } };
  const panel = await window.jupyterapp.commands.execute("docmanager:open", open);
  await panel.context.ready;
  const cells = panel.content.widgets.filter(cell => cell.model.type === "code" && cell.outputHidden);
  const lids = cells.map(cell => {
    cell.placeholder = false;
    return cell.node.querySelector(".jp-OutputPlaceholder").textContent;
  });
  panel.dispose();
  return lids;
}"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """JupyterLab's page, without a notebook; `root` is the folder that it shows."""
    folder = tmp_path_factory.mktemp("lids")
    shutil.copytree(NOTEBOOKS, folder / "work" / "notebooks")
    with lab_server(folder / "work", folder / "state") as (address, token), browser(folder / "profile") as context:
        page = context.new_page()
        page.root = folder / "work"
        page.goto(f"{address}/lab?token={token}&reset")
        page.wait_for_function("() => window.jupyterapp?.shell")
        page.evaluate("() => window.jupyterapp.restored")
        yield page


def test_no_lid_shows_anything_of_what_is_below(page):
    shown = {path.stem: page.evaluate(READ_LIDS, f"notebooks/{path.name}") for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))}
    assert {stem: lids for stem, lids in shown.items() if set(lids) - {LID}} == {}
    assert sum(map(len, shown.values())) > 80, "the lids were found"


def test_a_run_opens_the_output_and_takes_the_lid_away(page):
    cell = nbformat.v4.new_code_cell("print(6 * 7)", metadata={"jupyter": {"outputs_hidden": True}})
    cell.outputs = [nbformat.v4.new_output("display_data", {"text/html": LID}), nbformat.v4.new_output("stream", text="42\n")]
    notebook = nbformat.v4.new_notebook(cells=[cell])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, page.root / "answer.ipynb")
    open_it = "window.jupyterapp.commands.execute('docmanager:open', { path: 'answer.ipynb', factory: 'Notebook' })"
    page.evaluate(f"() => {open_it}.then(() => null)")
    output = page.locator(".jp-NotebookPanel .jp-Cell-outputWrapper").first
    output.get_by_text(LID).wait_for()
    assert "42" not in output.inner_text()
    run_all_cells(page)
    output.get_by_text("42").wait_for()
    assert LID not in output.inner_text()
