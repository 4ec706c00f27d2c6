"""Predict first: what a reader should answer first is stored collapsed, and the line that JupyterLab shows of it says nothing.

tests/browser/test_browser_lids.py asks JupyterLab itself, tests/browser/test_browser_site.py the web pages.
"""

import functools
import re

import nbformat
import pytest
from store_outputs import put_lid

from hpml_lab.core.judge.prediction import LID, NOTHING_YET
from hpml_lab.core.system.paths import NOTEBOOKS

ALL_NOTEBOOKS = sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))
ASKED = re.compile(r"^(\w+) = \.\.\.", flags=re.MULTILINE)
# What JupyterLab 4.4 to 4.7 look for in the first output, in this order.
SHOWN = ("text/html", "image/svg+xml", "application/pdf", "text/markdown", "text/plain")

# Further figures of a result that hold the number of the guess above them.
TELLING = {
    "race.sparse_step_costs(result)",
    "processes.gil_timelines(result)",
    "loading.prefetch_gain(result)",
    "loading.core_bound_workers(result)",
    "storage.disk_against_fio(result)",
    "profiling.operators_and_memory(result)",
    "profiling.where_the_time_went(result)",
    "distributed.bucket_sizes(result)",
    "pruning.accuracy_by_sparsity(result)",
    "capstone.stages_before_and_after(result)",
}


@functools.cache
def code_cells(path):
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


# A step of a lab shows what was expected beside what it found.
COMPARED = re.compile(r"\bpredicted\(|\blab\.step\(\S+, guess\)")


def is_collapsed(cell):
    return bool(cell.metadata.get("collapsed") or cell.metadata.get("jupyter", {}).get("outputs_hidden"))


def line_on_the_lid(output):
    """What JupyterLab shows of collapsed outputs that begin with this one."""
    text = output.get("text") or next((output.data[kind] for kind in SHOWN if kind in output.get("data", {})), "")
    return next((line for line in text.split("\n") if line), "")


@pytest.mark.parametrize("path", ALL_NOTEBOOKS, ids=lambda p: p.stem)
def test_what_tells_something_below_a_guess_is_collapsed(path):
    """Until the guess is compared; another question, such as that for a name, is answered by what comes next."""
    asked = None
    for cell in code_cells(path):
        tells = any(output.get("data", {}).get("text/plain") != NOTHING_YET for output in cell.outputs)
        assert not (asked and tells) or is_collapsed(cell), (
            f"{path.name}, cell {cell.id} tells what the guess {asked!r} above it asks for: give the cell the metadata "
            '{"jupyter": {"outputs_hidden": true}}, then `make outputs`'
        )
        if COMPARED.search(cell.source) or asked and tells and "guess" not in asked:
            asked = None
        if "exercise" not in cell.metadata.get("tags", []) and (found := ASKED.search(cell.source)):
            asked = found[1]
    assert asked is None, f"{path.name}: compare the guess {asked!r} with what was measured, in a cell `predicted(guess, …)`"


def test_a_later_figure_that_tells_the_number_of_a_guess_is_collapsed():
    """The guess is compared above it, but a reader sees both on one screen."""
    found = {cell.source for path in ALL_NOTEBOOKS for cell in code_cells(path) if is_collapsed(cell)}
    assert TELLING <= found, f"collapse the outputs of these cells, or take them off TELLING: {TELLING - found}"


@pytest.mark.parametrize("path", ALL_NOTEBOOKS, ids=lambda p: p.stem)
def test_the_line_on_a_lid_says_nothing(path):
    for cell in filter(is_collapsed, code_cells(path)):
        about = f"{path.name}, cell {cell.id}"
        lid = bool(cell.outputs) and line_on_the_lid(cell.outputs[0]) == LID
        assert lid, f"{about} is collapsed and stored without a lid: run `make outputs ARGS=notebooks/{path.name}`"
        assert len(cell.outputs) > 1, f"{about} has a lid on nothing: show a result in it, or do not collapse it"


def test_storing_puts_a_lid_on_what_is_collapsed_only():
    told = nbformat.v4.new_output("stream", text="3.94 times faster\n")
    guarded, plain = (nbformat.v4.new_code_cell("print(gain)", outputs=[told]) for _ in range(2))
    guarded.metadata["jupyter"] = {"outputs_hidden": True}
    assert line_on_the_lid(guarded.outputs[0]) == "3.94 times faster"
    for cell in (guarded, plain):
        put_lid(cell)
    assert [line_on_the_lid(output) for output in guarded.outputs] == [LID, "3.94 times faster"]
    assert plain.outputs == [told]
