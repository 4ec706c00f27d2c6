"""What the notebooks store comes from a quiet machine: no band of noise is wide, and no run says that others had the cores."""

import nbformat
import pytest
from store_outputs import BUSY, MOST_NOISE, bands, this_runs, why_not

from hpml_lab.core.system.paths import NOTEBOOKS

# Bands that are wider on a quiet machine, too: of ranks and threads that share two cores, of a disk and memory that other
# guests of the same host use, and of works that wait for one another. {(notebook, cell): percent}
WIDER: dict[tuple[str, str], float] = {
    ("11_tuning", "conv-bias-bn-run"): 42,
    ("13_distributed", "sync-batch-norm-run"): 58,
    ("14_sharding", "zero-memory-run"): 77,
}
# Recorded runs that are older than today's code. On a CPU they take 10 to 14 minutes each, on a quiet machine.
OLDER = {"io-vs-compute"}


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("[0-9]*.ipynb")), ids=lambda path: path.stem)
def test_the_stored_bands_are_narrow_and_the_machine_was_quiet(path):
    wide = {}
    for cell in nbformat.read(path, 4).cells:
        if cell.cell_type == "code":
            assert BUSY not in this_runs(cell), f"{path.name}, cell {cell.id}: make outputs ARGS=notebooks/{path.name}"
            most = WIDER.get((path.stem, cell.id), MOST_NOISE)
            if over := [band for band in bands(cell) if band > most]:
                wide[cell.id] = over
    assert not wide, f"{path.name}: noise in % by cell {wide}; make outputs ARGS=notebooks/{path.name} on a quiet machine"


def test_what_would_mislead_is_found_in_this_run_and_not_in_the_recorded_one():
    page = (
        '<p>1.2× (within noise; noise ±21 %)</p><p data-reading="fails"><b>Does not hold here:</b> It gains</p>'
        '<details><summary style="x">Recorded run: 1 claim</summary><p>noise ±99 %</p><details>a</details></details>'
        f"<p>{BUSY}: 2 times.</p>"
    )
    cell = nbformat.v4.new_code_cell("", outputs=[nbformat.v4.new_output("display_data", {"text/html": page})])
    assert bands(cell) == [21.0]
    assert why_not(nbformat.v4.new_notebook(cells=[cell])) == ["Does not hold here: It gains", BUSY]


def stored_about():
    """{slug: what its recorded run lacks of today's code}, as the stored cards say it."""
    cells = (cell for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb")) for cell in nbformat.read(path, 4).cells)
    about = (out.get("metadata", {}).get("hpml", {}) for cell in cells for out in cell.get("outputs", []))
    return {found["slug"]: found["record_lacks"] for found in about if "record_lacks" in found}


def test_a_recorded_run_shows_what_todays_code_shows():
    """A claim, key figure or column that a record lacks is an empty row of its card, next to a twin of an older name."""
    lacks = {slug: missing for slug, missing in stored_about().items() if missing}
    new = {slug: missing for slug, missing in lacks.items() if slug not in OLDER}
    assert not new, f"record them again, by hpml-lab reference SLUG --again, and store their notebooks: {new}"
    assert not OLDER - lacks.keys(), f"recorded again since, take them out of OLDER: {OLDER - lacks.keys()}"
