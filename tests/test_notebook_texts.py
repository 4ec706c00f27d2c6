"""What a notebook may ask of its reader: short cells, honest minutes, code without the project's own tests, small pictures."""

import base64
import io
import re

import nbformat
import pytest
from PIL import Image

from hpml_lab.core.system.paths import NOTEBOOKS

PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))
WORDS_A_CELL, WORDS_A_NOTEBOOK, WORDS_AN_ANSWER, WORDS_A_MINUTE = 120, 4500, 100, 200
# Blank lines, so that Markdown and formulas inside are rendered in JupyterLab and on the site.
ANSWER = re.compile(r"^<details><summary>Answer</summary>\n\n(.+?)\n\n</details>$", flags=re.DOTALL | re.MULTILINE)
NOT_PROSE = re.compile(r"```.*?```|\$\$.*?\$\$|^\s*\|.*?$|<[^>]+>", flags=re.DOTALL | re.MULTILINE)
NOT_ASKED = re.compile(r"```.*?```|`[^`\n]*`|^#+ .*?$|^(?:    |\s*\|).*?$", flags=re.DOTALL | re.MULTILINE)
QUESTION = re.compile(r"[^.?!]*\?[*_)\"”]*(?=\s|$)")
GUESS = re.compile(r"^\w+ = \.\.\.", flags=re.MULTILINE)
ALL_NOTEBOOKS_BYTES = 10 * 1000 * 1000


def words(markdown):
    """The words read one after the other: no tables, fenced code, formulas on lines of their own, or folded answers."""
    return len(NOT_PROSE.sub(" ", ANSWER.sub("", markdown)).split())


def questions(markdown):
    """The sentences of a cell's prose that end in a question mark; headings, code, tables and folded answers have none."""
    return [" ".join(found.split()) for found in QUESTION.findall(NOT_ASKED.sub("", ANSWER.sub("", markdown)))]


def is_exercise(cell):
    return cell.source.startswith("### Exercise") and "●" in cell.source


def unanswered(cells):
    """The questions that nothing takes up: no exercise, no guess in the next cell, no folded answer in the same one."""
    found = []
    for cell, following in zip(cells, [*cells[1:], None], strict=True):
        guessed = following is not None and following.cell_type == "code" and GUESS.search(following.source)
        if cell.cell_type == "markdown" and not (is_exercise(cell) or guessed or ANSWER.search(cell.source)):
            found += questions(cell.source)
    return found


def pictures(notebook):
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return [output.data["image/png"] for output in outputs if "image/png" in output.get("data", {})]


@pytest.fixture(scope="module", params=PATHS, ids=[path.stem for path in PATHS])
def notebook(request):
    return nbformat.read(request.param, as_version=4)


def test_no_cell_is_a_wall_of_text(notebook):
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    assert not [text for text in texts if words(text) > WORDS_A_CELL]


def test_a_notebook_is_not_longer_than_a_student_can_read(notebook):
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    assert sum(len(ANSWER.sub("", text).split()) for text in texts) <= WORDS_A_NOTEBOOK


def test_what_is_a_question_and_what_takes_it_up():
    markdown, code = nbformat.v4.new_markdown_cell, nbformat.v4.new_code_cell
    text = "## A net?\n\nWhy `a?` **and how?** It is *Why?*, says `?`.\n\n| a? |\n|---|\n| b? |\n\n```\nc?\n```"
    assert questions(text) == ["Why **and how?**"]
    answer = f"{text}\n\n<details><summary>Answer</summary>\n\nBecause. Is it so?\n\n</details>"
    assert questions(answer) == questions(text) and words(answer) == words(text)
    assert unanswered([markdown(text)]) == unanswered([markdown(text), code("x = 1")]) == questions(text)
    assert not unanswered([markdown(answer)]) and not unanswered([markdown(text), code("guess = ...  # times")])
    assert not unanswered([markdown(f"### Exercise: one\n\n**Difficulty** ●○○ · 5 minutes\n\n{text}")])


def test_a_question_is_an_exercise_a_prediction_or_has_its_answer_folded_below(notebook):
    assert unanswered(notebook.cells) == []


def test_a_folded_answer_is_short_and_in_no_exercise(notebook):
    folds = [cell for cell in notebook.cells if cell.cell_type == "markdown" and "<details" in cell.source]
    assert not [cell.source for cell in folds if is_exercise(cell)]
    assert not [cell.source for cell in folds if "<details" in ANSWER.sub("", cell.source)], ANSWER.pattern
    answers = [answer for cell in folds for answer in ANSWER.findall(cell.source)]
    assert not [answer for answer in answers if len(answer.split()) > WORDS_AN_ANSWER]


def test_the_task_of_an_exercise_stands_before_its_gotchas(notebook):
    for cell in notebook.cells:
        if is_exercise(cell) and "*Gotcha" in cell.source:
            before = cell.source.split("*Gotcha")[0].split("●", 1)[1]
            assert re.sub(r"[●○·*]|\d+ minutes", "", before).strip(), cell.source


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


def test_what_is_stored_shows_no_thousands_as_powers_of_ten():
    """Such as "1e+03 iterations". Numbers below 1000, and columns of an order of magnitude, are written so on purpose."""
    power = re.compile(r"(?<![\w.])\d(?:\.\d+)?e\+0[3-9](?!\d)")
    tables = {
        f"{path.stem}, {cell.source}": re.sub(r"data:image[^\"]*|<svg.*?</svg>", "", output.data["text/html"], flags=re.DOTALL)
        for path in PATHS
        for cell in nbformat.read(path, as_version=4).cells
        for output in cell.get("outputs", [])
        if "text/html" in output.get("data", {})
    }
    assert {name: found for name, text in tables.items() if (found := power.findall(text))} == {}
