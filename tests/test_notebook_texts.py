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
WORDS_FIRST_AND_LAST = 160  # of the header and of the key points: lists, to which each new section adds a line
MINUTES_OFF = 5  # that the header may differ from what was counted
# Blank lines, so that Markdown and formulas inside are rendered in JupyterLab and on the site.
ANSWER = re.compile(r"^<details><summary>Answer</summary>\n\n(.+?)\n\n</details>$", flags=re.DOTALL | re.MULTILINE)
NOT_PROSE = re.compile(r"```.*?```|\$\$.*?\$\$|^\s*\|.*?$|<[^>]+>", flags=re.DOTALL | re.MULTILINE)
NOT_ASKED = re.compile(r"```.*?```|`[^`\n]*`|^#+ .*?$|^(?:    |\s*\|).*?$", flags=re.DOTALL | re.MULTILINE)
QUESTION = re.compile(r"[^.?!]*\?[*_)\"”]*(?=\s|$)")
TAKES_UP = re.compile(r"^\w+ = \.\.\.|^reading\(", flags=re.MULTILINE)
ALL_NOTEBOOKS_BYTES = 12_500_000  # 118 experiments, each with its picture


def words(markdown):
    """The words read one after the other: no tables, fenced code, formulas on lines of their own, or folded answers."""
    return len(NOT_PROSE.sub(" ", ANSWER.sub("", markdown)).split())


def questions(markdown):
    """The sentences of a cell's prose that end in a question mark; headings, code, tables and folded answers have none."""
    return [" ".join(found.split()) for found in QUESTION.findall(NOT_ASKED.sub("", ANSWER.sub("", markdown)))]


def is_exercise(cell):
    return cell.source.startswith("### Exercise") and "●" in cell.source


def unanswered(cells):
    """The questions that nothing takes up: no exercise, no guess or reading in the next cell, no folded answer in the same."""
    found = []
    for cell, following in zip(cells, [*cells[1:], None], strict=True):
        taken_up = following is not None and following.cell_type == "code" and TAKES_UP.search(following.source)
        if cell.cell_type == "markdown" and not (is_exercise(cell) or taken_up or ANSWER.search(cell.source)):
            found += questions(cell.source)
    return found


def pictures(notebook):
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return [output.data["image/png"] for output in outputs if "image/png" in output.get("data", {})]


@pytest.fixture(scope="module", params=PATHS, ids=[path.stem for path in PATHS])
def notebook(request):
    read = nbformat.read(request.param, as_version=4)
    read.name = request.param.name  # for what a failure says; these tests write nothing
    return read


def limit(cells, cell):
    """The most words that a cell may have."""
    return WORDS_FIRST_AND_LAST if cell is cells[0] or cell.source.startswith("## Key points") else WORDS_A_CELL


def test_no_cell_is_a_wall_of_text(notebook):
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            count, most = words(cell.source), limit(notebook.cells, cell)
            assert count <= most, (
                f"{notebook.name}, cell {cell.id} ({cell.source[:40]!r} …) has {count} words, at most {most} are read: "
                "split it where the thought changes, or shorten it"
            )


def test_a_notebook_is_not_longer_than_a_student_can_read(notebook):
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    count = sum(len(ANSWER.sub("", text).split()) for text in texts)
    assert count <= WORDS_A_NOTEBOOK, (
        f"{notebook.name} has {count} words, at most {WORDS_A_NOTEBOOK} are read: shorten it, or fold what answers a question"
    )


def test_what_is_a_question_and_what_takes_it_up():
    markdown, code = nbformat.v4.new_markdown_cell, nbformat.v4.new_code_cell
    text = "## A net?\n\nWhy `a?` **and how?** It is *Why?*, says `?`.\n\n| a? |\n|---|\n| b? |\n\n```\nc?\n```"
    assert questions(text) == ["Why **and how?**"]
    answer = f"{text}\n\n<details><summary>Answer</summary>\n\nBecause. Is it so?\n\n</details>"
    assert questions(answer) == questions(text) and words(answer) == words(text)
    assert unanswered([markdown(text)]) == unanswered([markdown(text), code("x = 1")]) == questions(text)
    assert not unanswered([markdown(answer)]) and not unanswered([markdown(text), code("guess = ...  # times")])
    assert not unanswered([markdown(text), code("reading(result, {})")])
    assert not unanswered([markdown(f"### Exercise: one\n\n**Difficulty** ●○○ · 5 minutes\n\n{text}")])


def test_a_question_is_an_exercise_a_prediction_or_has_its_answer_folded_below(notebook):
    assert unanswered(notebook.cells) == [], (
        f"{notebook.name}: fold an answer below each question (<details><summary>Answer</summary>), follow it by a cell "
        "`guess = ...`, or make it an exercise"
    )


def test_five_questions_and_their_answers_stand_before_the_key_points(notebook):
    [at] = [at for at, cell in enumerate(notebook.cells) if cell.source.startswith("## Key points")]
    last = notebook.cells[at - 1].source
    assert last.startswith("## Five questions\n") and len(questions(last)) >= 5 and len(ANSWER.findall(last)) == 5, (
        f"{notebook.name}: put a cell `## Five questions` there, each with its folded answer, from the notebook's own text"
    )
    numbers = re.findall(r"^\*\*(\d)\.\*\* ", last, flags=re.MULTILINE)
    assert numbers == list("12345"), f"{notebook.name}: number the five questions **1.** to **5.**, not {numbers}"


def test_a_folded_answer_is_short_and_in_no_exercise(notebook):
    folds = [cell for cell in notebook.cells if cell.cell_type == "markdown" and "<details" in cell.source]
    for cell in folds:
        about = f"{notebook.name}, cell {cell.id}"
        assert not is_exercise(cell), f"{about}: an exercise has no folded answer; move it to tests/<topic>/answers/"
        others = "<details" in ANSWER.sub("", cell.source)
        assert not others, f"{about}: a fold reads {ANSWER.pattern}, with its blank lines"
        for answer in ANSWER.findall(cell.source):
            count = len(answer.split())
            assert count <= WORDS_AN_ANSWER, (
                f"{about}: a folded answer has {count} words, at most {WORDS_AN_ANSWER}: shorten it"
            )


def test_the_task_of_an_exercise_stands_before_its_gotchas(notebook):
    for cell in notebook.cells:
        if is_exercise(cell) and "*Gotcha" in cell.source:
            before = cell.source.split("*Gotcha")[0].split("●", 1)[1]
            task = re.sub(r"[●○·*]|\d+ minutes", "", before).strip()
            assert task, f"{notebook.name}, cell {cell.id}: write the task in front of its gotchas"


def test_each_label_of_the_header_begins_a_paragraph(notebook):
    joined = re.search(r"[^\n]\n\*\*[A-Z]", notebook.cells[0].source)
    assert not joined, f"{notebook.name}, first cell: put a blank line before each **Label:**, else they are drawn as one line"


def test_a_cell_teaches_and_does_not_test_the_workbook(notebook):
    for cell in notebook.cells:
        tests = cell.cell_type == "code" and re.search(r"^\s*assert\b|raise AssertionError", cell.source, flags=re.MULTILINE)
        assert not tests, f"{notebook.name}, cell {cell.id}: print what is compared, and move the assertion to a test"


def test_the_minutes_are_those_of_the_text_the_pictures_and_the_exercises(notebook):
    """200 words a minute, a minute a picture; the minutes of each exercise stand in its heading."""
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    reading = sum(len(text.split()) for text in texts) / WORDS_A_MINUTE + len(pictures(notebook))
    exercises = sum(int(minutes) for text in texts for minutes in re.findall(r"●.*?(\d+) minutes", text))
    stated = re.search(r"\*\*Time:\*\* reading (\d+) minutes(?:, exercises (\d+) minutes)?;", texts[0])
    assert stated, f"say in the first cell of {notebook.name}: **Time:** reading A minutes, exercises B minutes; …"
    assert abs(int(stated[1]) - reading) <= MINUTES_OFF and int(stated[2] or 0) == exercises, (
        f"{notebook.name} states {stated[0]!r}: write reading {reading:.0f} minutes, exercises {exercises} minutes"
    )


def test_a_stored_picture_follows_the_theme_and_is_small(notebook):
    for data in pictures(notebook):
        picture = Image.open(io.BytesIO(base64.b64decode(data)))
        outputs = f"`make outputs ARGS=notebooks/{notebook.name}`"
        assert picture.mode == "P", f"{notebook.name} has a picture without a palette of 256 colors: run {outputs}"
        clear = picture.convert("RGBA").getpixel((0, 0))[3] == 0
        assert clear, f"{notebook.name} has a picture with a ground of its own: draw on style.new_figure(), then run {outputs}"


def test_all_notebooks_together_are_small():
    sizes = {path.name: path.stat().st_size for path in PATHS}
    assert sum(sizes.values()) < ALL_NOTEBOOKS_BYTES, (
        f"the notebooks have {sum(sizes.values())} bytes: make pictures smaller, {sizes}"
    )


def test_what_is_stored_shows_no_thousands_as_powers_of_ten():
    """Such as "1e+03 iterations", or a share: "2e+01 %". Other numbers below 1000, and columns of an order of magnitude, are
    written so on purpose."""
    power = re.compile(r"(?<![\w.])\d(?:\.\d+)?e\+0(?:[3-9](?!\d)|\d\s%)")
    tables = {
        f"{path.stem}, {cell.source}": re.sub(r"data:image[^\"]*|<svg.*?</svg>", "", output.data["text/html"], flags=re.DOTALL)
        for path in PATHS
        for cell in nbformat.read(path, as_version=4).cells
        for output in cell.get("outputs", [])
        if "text/html" in output.get("data", {})
    }
    assert {name: found for name, text in tables.items() if (found := power.findall(text))} == {}, (
        "give these columns a unit in which they stay below 1000, or write them in full"
    )
