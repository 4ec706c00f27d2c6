"""What the notebooks store comes from a quiet machine: no band of noise is wide, and no run says that others had the cores."""

import ast
import json
import re
import runpy
from pathlib import Path

import nbformat
import pytest
from store_outputs import BUSY, MOST_NOISE, bands, this_runs, why_not

import hpml_lab
from hpml_lab.core.experiment.older import REWORDED
from hpml_lab.core.experiment.registry import all_experiments
from hpml_lab.core.system.paths import NOTEBOOKS, REFERENCE, ROOT

# Bands that are wider on a quiet machine, too: of ranks and threads that share two cores, of a disk and memory that other
# guests of the same host use, and of works that wait for one another. {(notebook, cell): percent}
WIDER: dict[tuple[str, str], float] = {
    ("11_tuning", "conv-bias-bn-run"): 42,
    ("13_distributed", "sync-batch-norm-run"): 58,
    ("14_sharding", "zero-memory-run"): 77,
}
# Recorded runs that are older than today's code.
OLDER: set[str] = set()
# Recorded runs with a claim that no code makes any more: it was corrected or worded anew since.
CLAIMS_CHANGED = {"cpu": {"mnist-three-nets"}, "cuda": REWORDED}
LEAST = 18  # characters of a text that are in the code: below it anything could be a claim's


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


def texts(tree):
    """Patterns of the texts that a module writes, each with anything where a value is filled in."""
    for node in ast.walk(tree):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        words = [part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else None for part in parts]
        if sum(len(word or "") for word in words) >= LEAST:
            yield "".join(".*" if word is None else re.escape(word) for word in words)


def test_the_texts_of_a_module_are_found_with_their_gaps():
    patterns = set(texts(ast.parse('result.claim(f"All {n} batches are bitwise equal", ok, f"{n} of {m}", "short")')))
    assert any(re.fullmatch(pattern, "All 12 batches are bitwise equal") for pattern in patterns)
    assert not any(re.fullmatch(pattern, "All batches are equal") for pattern in patterns) and len(patterns) < 3


def test_a_recorded_run_claims_what_todays_code_claims():
    """The other way round: a claim that the record has and the code has not is read beside a run that no longer says it."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in Path(hpml_lab.__file__).parent.rglob("*.py"))
    made = [re.compile(pattern, re.DOTALL) for pattern in {pattern for tree in trees for pattern in texts(tree)}]
    found: dict[str, dict[str, list[str]]] = {"cpu": {}, "cuda": {}}
    paths = {each.slug: REFERENCE / f"{each.slug}.json" for each in all_experiments()}
    for slug, path in ((slug, path) for slug, path in paths.items() if path.exists()):
        record = json.loads(path.read_text(encoding="utf-8"))
        gone = [claim["text"] for claim in record["claims"] if not any(one.fullmatch(claim["text"]) for one in made)]
        if gone:
            found[record["device"].partition(":")[0]][slug] = gone
    for kind, claims in found.items():
        new = {slug: gone for slug, gone in claims.items() if slug not in CLAIMS_CHANGED[kind]}
        assert not new, f"record them again, by hpml-lab reference SLUG --again, and store their notebooks: {new}"
        again = CLAIMS_CHANGED[kind] - claims.keys()
        assert not again, f"recorded again since, take them out of CLAIMS_CHANGED, or out of older.REWORDED: {again}"


def test_each_habit_finds_the_exact_claim_that_it_names():
    page = runpy.run_path(str(ROOT / "docs" / "habits.py"))
    assert {page["same_results"](habit) for habit in page["HABITS"]} <= {"bitwise", "nearly", "yes", "no", "–"}
