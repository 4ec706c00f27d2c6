"""What a notebook may ask of its reader: short cells, honest minutes, code without the project's own tests, small pictures."""

import base64
import io
import re

import nbformat
import pytest
from PIL import Image

from hpml_lab.core.system.paths import NOTEBOOKS

PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))
WORDS_A_CELL, WORDS_A_MINUTE = 120, 200
NOT_PROSE = re.compile(r"```.*?```|\$\$.*?\$\$|^\s*\|.*?$|<[^>]+>", flags=re.DOTALL | re.MULTILINE)
ALL_NOTEBOOKS_BYTES = 10 * 1000 * 1000


def words(markdown):
    """The words of a cell that are read one after the other: no tables, no fenced code, no formulas on lines of their own."""
    return len(NOT_PROSE.sub(" ", markdown).split())


def pictures(notebook):
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return [output.data["image/png"] for output in outputs if "image/png" in output.get("data", {})]


@pytest.fixture(scope="module", params=PATHS, ids=[path.stem for path in PATHS])
def notebook(request):
    return nbformat.read(request.param, as_version=4)


def test_no_cell_is_a_wall_of_text(notebook):
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    assert not [text for text in texts if words(text) > WORDS_A_CELL]


def test_each_label_of_the_header_begins_a_paragraph(notebook):
    assert not re.search(r"[^\n]\n\*\*[A-Z]", notebook.cells[0].source), "else they are drawn as one line"


def test_a_cell_teaches_and_does_not_test_the_workbook(notebook):
    codes = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert not [code for code in codes if re.search(r"^\s*assert\b|raise AssertionError", code, flags=re.MULTILINE)]


def test_the_minutes_are_those_of_the_text_the_pictures_and_the_exercises(notebook):
    """200 words a minute, a minute a picture; the minutes of each exercise stand in its heading."""
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    reading = sum(len(text.split()) for text in texts) / WORDS_A_MINUTE + len(pictures(notebook))
    exercises = sum(int(minutes) for text in texts for minutes in re.findall(r"●.*?(\d+) minutes", text))
    stated = re.search(r"\*\*Time:\*\* reading (\d+) minutes(?:, exercises (\d+) minutes)?;", texts[0])
    assert stated, "**Time:** reading A minutes, exercises B minutes; …"
    assert abs(int(stated[1]) - reading) <= 5 and int(stated[2] or 0) == exercises


def test_a_stored_picture_follows_the_theme_and_is_small(notebook):
    for data in pictures(notebook):
        picture = Image.open(io.BytesIO(base64.b64decode(data)))
        assert picture.mode == "P", "make outputs stores pictures with a palette of 256 colors"
        assert picture.convert("RGBA").getpixel((0, 0))[3] == 0, "a picture has no ground of its own"


def test_all_notebooks_together_are_small():
    assert sum(path.stat().st_size for path in PATHS) < ALL_NOTEBOOKS_BYTES
