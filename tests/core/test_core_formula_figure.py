"""Sliders over a formula: the page computes and writes what Python does, for every choice; no kernel is asked."""

import itertools
import json
import shutil
import subprocess

import pytest

from hpml_lab.core.show.formula_figure import Bars, Choice, FormulaFigure, amount
from hpml_lab.core.system.errors import LabError
from hpml_lab.decoding import cache_sliders, speculation_sliders
from hpml_lab.distributed import scaling_sliders, waiting_sliders
from hpml_lab.model_parallel import mesh_sliders
from hpml_lab.sharding import zero_sliders

NODE = shutil.which("node")
EVERY = [zero_sliders, scaling_sliders, waiting_sliders, cache_sliders, speculation_sliders, mesh_sliders]
ASK = """
const { ABOUT, values, amount } = await import(process.argv[2]);
const lists = ABOUT.choices.map(({ values }) => Object.values(values));
const all = lists.reduce((found, list) => found.flatMap(given => list.map(value => [...given, value])), [[]]);
const numbers = JSON.parse(process.argv[3]);
process.stdout.write(JSON.stringify({
  values: all.map(given => ABOUT.panels.map((_, i) => values(i, given))),
  words: numbers.map(([value, unit]) => amount(value, unit)),
}));
"""
AMOUNTS = [
    (0.0183, "GB"),
    (1.875, "GB"),
    (16.640625, "GB"),
    (120, "GB"),
    (4860, "GB"),
    (16000, "GB"),
    (0.0342, "s"),
    (0.9, "s"),
]
AMOUNTS += [(1.5, "s"), (1234.4, "s"), (61.4, "%"), (0.2, "%"), (100, "%")]


@pytest.mark.skipif(NODE is None, reason="no node here; on Debian: apt-get install nodejs")
@pytest.mark.parametrize("make", EVERY)
def test_every_choice_gives_on_the_page_what_it_gives_in_python(make, tmp_path):
    figure, module = make(), tmp_path / "module.mjs"
    module.write_text(figure.module() + "export { ABOUT };\n", encoding="utf-8")
    (tmp_path / "ask.mjs").write_text(ASK, encoding="utf-8")
    command = [NODE, str(tmp_path / "ask.mjs"), str(module), json.dumps(AMOUNTS)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    names = [choice.name for choice in figure.choices]
    every = list(itertools.product(*(choice.values for choice in figure.choices)))
    chosen = [dict(zip(names, words, strict=True)) for words in every]
    assert found["values"] == [[figure.values(panel, **given) for panel in figure.panels] for given in chosen]
    assert len(every) > 100 and found["words"] == [amount(*given) for given in AMOUNTS]


@pytest.mark.parametrize("make", EVERY)
def test_a_saved_notebook_keeps_a_picture_its_text_and_by_what_name_a_page_moves_it(make):
    figure = make()
    data, metadata = figure._repr_mimebundle_()
    assert "image/png" in data and data["text/plain"].endswith(figure.alt)
    assert metadata["image/png"] == {"alt": figure.alt, "formula": f"{make.__module__.split('.')[1]}.{make.__name__}"}


def test_what_a_page_would_read_in_another_way_is_refused():
    def cost(index: int, new: float) -> float:
        return new

    panel = Bars(("all",), cost, "cost", "s", ends=(0, 1))
    with pytest.raises(LabError, match="new: a name in Python, and a word of JavaScript's own"):
        FormulaFigure("core.nothing", "a figure of nothing at all", [Choice("new", {"1": 1.0}, "1")], [panel])
    with pytest.raises(LabError, match="A page would offer share in another order"):
        FormulaFigure("core.nothing", "a figure of nothing at all", [Choice("share", {"0.5": 0.5, "1": 1.0}, "1")], [panel])


@pytest.mark.parametrize("count", [1, 5, 6, 12])
def test_the_words_of_bars_do_not_overlap(count):
    def length(index: int, x: float) -> float:
        return x

    bars = Bars([f"bar {number}" for number in range(count)], length, "length", "GB", ends=(0, 2))
    figure = FormulaFigure("core.words", "", [Choice("x", {"one": 1}, "one")], [bars]).figure()
    figure.canvas.draw()
    boxes = [label.get_window_extent() for label in figure.axes[0].get_yticklabels()]
    assert len(boxes) == count and not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
