"""Sentences that read a figure hold: in the stored run and in the recorded one. A cell that reads is hidden and answers."""

import nbformat
import pytest
from readings import cells_of, reading_cells

from hpml_lab.core.experiment.registry import Experiment
from hpml_lab.core.experiment.sentences import reading
from hpml_lab.core.system.paths import NOTEBOOKS

CELLS = reading_cells()
IDS = [f"{found.notebook}-{found.cell.id}" for found in CELLS]


def outputs(cell):
    return ["".join(output.get("data", {}).get("text/html", "")) for output in cell.outputs]


@pytest.mark.parametrize("found", CELLS, ids=IDS)
def test_a_reading_is_hidden_and_reads_an_experiments_result(found):
    metadata = found.cell.metadata
    about = f"{found.notebook}, cell {found.cell.id}"
    assert "reading" in metadata.get("tags", []) and metadata.get("jupyter", {}).get("source_hidden"), (
        f'{about}: give it the metadata {{"tags": ["reading"], "jupyter": {{"source_hidden": true}}}}, for it tells the answer'
    )
    assert found.made and isinstance(found.experiment, Experiment), (
        f"{about} reads {found.name}: assign it as `{found.name} = topic.experiment()` in a cell above"
    )


@pytest.mark.parametrize("found", CELLS, ids=IDS)
def test_the_stored_run_and_the_recorded_one_say_what_the_sentences_do(found):
    stored = outputs(found.cell)
    assert stored, (
        f"{found.notebook}, cell {found.cell.id} has no stored output: make outputs ARGS=notebooks/{found.notebook}.ipynb"
    )
    for page in stored:
        assert 'data-reading="fails"' not in page, (
            f"{found.notebook}, cell {found.cell.id}: correct the sentence, or store it again on a quiet machine: {page}"
        )


@pytest.mark.parametrize("found", CELLS, ids=IDS)
def test_the_sentences_hold_for_the_record_of_today(found):
    """The stored page may be of a time when another run was recorded."""
    record = found.experiment.reference()
    if record is None:
        pytest.skip("nothing is recorded")
    read = []
    namespace = {}
    exec(compile(found.imports, found.notebook, "exec"), namespace)
    namespace |= {found.name: record, "reading": lambda run, *rest, **options: read.append(reading(run, *rest, **options))}
    exec(compile(found.cell.source, found.notebook, "exec"), namespace)
    assert read and not [line for one in read for line in one.failing() if line.startswith("recorded")]


def test_cells_that_read_are_found_with_what_they_read():
    code = nbformat.v4.new_code_cell
    notebook = nbformat.v4.new_notebook(
        cells=[code("result = nets.xor()"), code("reading(result, {})"), code("other = 1\nreading(other, {})")]
    )
    found = [(cell.name, cell.made) for cell in cells_of("03_nets", notebook)]
    assert found == [("result", ("nets", "xor")), ("other", None)]


def test_no_stored_page_holds_a_sentence_that_fails():
    """Also where the cell is no longer found by its name."""
    for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb")):
        failing = 'data-reading=\\"fails' in path.read_text(encoding="utf-8")
        assert not failing, f"{path.name} stores a sentence that does not hold: make outputs ARGS=notebooks/{path.name}"
