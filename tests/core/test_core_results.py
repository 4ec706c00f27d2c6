"""Experiments are found, sized, seeded and recorded; results survive a save; claims that fail are shown."""

import json
import math
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hpml_lab.core.experiment import Result, Row, Table, column, experiment, registry
from hpml_lab.core.experiment.registry import find, load_result
from hpml_lab.core.experiment.render import table_html
from hpml_lab.core.show import style
from hpml_lab.core.show.numbers import number
from hpml_lab.core.system import machine
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.timing.noise import SpeedUp


@dataclass
class Draw(Row):
    """A row of the experiment below."""

    value: float = column("value", "m")
    kind: str = column("kind")
    remark: str | None = column("remark", default=None)
    hidden: int = 7


@dataclass
class Limit(Row):
    """A row of its second table."""

    limit: float = column("limit")


def draw_sample(result):
    """A line through the measured values, for the tests of the core."""
    figure = style.new_figure()
    axes = figure.subplots()
    axes.plot([row.value for row in result.rows(Draw)])
    axes.set(xlabel="run", ylabel="value, 1")
    return figure


@pytest.fixture
def sample(monkeypatch):
    """An experiment in a registry of its own."""
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))

    @experiment(
        "sample-row", lecture="L0", notebook="99_test", draw=draw_sample, quick={"n": 2}, full={"n": 12}, uses=("cuda",)
    )
    def sample_row(params):
        """A sample experiment for the tests."""
        assert torch.get_num_threads() == 1
        rows = [Draw(torch.rand(1).item(), params.size) for _ in range(params.n)]
        result = Result([Table("Values that were drawn", rows), Table("Limits", [Limit(math.inf)]), Table("Nothing", [])])
        result.key_figure("speed", 2.5, unit="m/s", lecture="3 (by the slide)")
        result.claim("Two and two make four", 2 + 2 == 4)
        result.measured("Water is dry", False, "it is wet", depends_on="the weather")
        result.check("The lamp is off again", True)
        result.notes.append("no wind here")
        result.arrays |= {"grid": np.eye(2), "odd": [math.nan, math.inf]}
        return result

    return sample_row


def test_a_size_brings_its_parameters(sample, monkeypatch):
    assert len(sample("quick").rows()) == 2 and len(sample("full").rows()) == 12
    monkeypatch.delenv("HPML_SIZE", raising=False)
    assert sample().size == "quick"
    monkeypatch.setenv("HPML_SIZE", "full")
    assert sample().size == "full", "a notebook runs at the size that the environment names"


@pytest.mark.parametrize("size", ["medium", "QUICK", 3])
def test_a_wrong_size_is_refused_before_anything_runs(sample, size):
    with pytest.raises(LabError, match="quick or full"):
        sample(size)


def test_a_wrong_device_is_refused_before_anything_runs(sample):
    with pytest.raises(LabError, match="not a valid device"):
        sample("quick", device="toaster")


def test_an_old_torch_is_refused_with_the_mend(sample, monkeypatch):
    monkeypatch.setattr(machine, "installed_version", lambda package: "2.4.1+cu121")
    with pytest.raises(LabError, match="2.4.1.*too old.*2.11"):
        sample("quick")
    monkeypatch.setattr(machine, "installed_version", lambda package: None)
    with pytest.raises(LabError, match="bootstrap.py lab"):
        sample("quick")


def test_without_proc_the_memory_is_not_known_and_an_experiment_runs(sample, tmp_path, monkeypatch):
    def no_proc(*_):
        raise FileNotFoundError(2, "No such file or directory", "/proc/meminfo")

    monkeypatch.setattr("psutil.virtual_memory", no_proc)
    monkeypatch.setattr("os.sysconf", no_proc)
    monkeypatch.setattr(machine, "memory_limit", lambda: None)
    machine.describe.cache_clear()
    monkeypatch.setattr(machine, "cores", lambda: 3)
    try:
        result = sample("quick")
    finally:
        machine.describe.cache_clear()
    assert result.machine["memory_gb"] is None and load_result(result.save(tmp_path)).machine["cores"] == 3


def test_runs_are_seeded_and_say_where_they_ran(sample):
    first, second = sample("quick"), sample("quick")
    assert first.rows() == second.rows()
    assert first.machine["torch"] == torch.__version__ and first.machine["cores"] >= 1
    assert first.slug == "sample-row" and first.device == "cpu" and first.seconds > 0
    assert "quick on cpu" in first.where and "seed 0" in first.where


def test_a_result_survives_a_save(sample, tmp_path, same_picture):
    result = sample("quick", device="cpu")
    path = result.save(tmp_path)
    json.loads(path.read_text(), parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    loaded = load_result(path)
    assert loaded.tables == result.tables and loaded.key_figures == result.key_figures
    assert loaded.claims == result.claims and loaded.where == result.where
    assert loaded.arrays["grid"] == [[1, 0], [0, 1]]
    assert math.isnan(loaded.arrays["odd"][0]) and loaded.arrays["odd"][1] == math.inf
    assert same_picture(loaded.figure(), result.figure()), "drawn from the file as from the run"


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"format": 0}', '{"format": 1}', '{"format": 2, "slug": "sample-row"}']
)
def test_a_damaged_result_is_named(sample, tmp_path, content):
    path = tmp_path / "sample-row.json"
    path.write_text(content)
    with pytest.raises(LabError, match="sample-row.json is not a readable result"):
        load_result(path)


def test_a_saved_result_of_an_unknown_experiment_is_named(tmp_path):
    path = tmp_path / "no-such-row.json"
    path.write_text('{"format": 2, "slug": "no-such-row"}')
    with pytest.raises(LabError, match="no experiment is called 'no-such-row'"):
        load_result(path)


def test_a_result_of_an_older_row_type_is_named(sample, tmp_path):
    path = sample("quick").save(tmp_path)
    path.write_text(path.read_text().replace('"kind"', '"sort"'))
    with pytest.raises(LabError, match="not a readable result"):
        load_result(path)


def test_a_failed_exact_claim_or_check_makes_a_result_false_and_a_measured_one_does_not(sample):
    assert sample("quick")
    result = sample("quick")
    result.claim("Two and two make five", 2 + 2 == 5)
    assert not result and "FAILS: Two and two make five" in repr(result)
    result = sample("quick")
    result.check("The lamp is on", False)
    assert not result


def test_key_figures_are_found_by_their_label(sample):
    result = sample("quick")
    assert result.here("speed") == 2.5
    with pytest.raises(KeyError, match="no key figure is called 'sped'; there are speed"):
        result.here("sped")


def test_rows_are_found_by_their_type(sample):
    result = sample("full")
    assert [row.limit for row in result.rows(Limit)] == [math.inf]
    assert result.rows() == result.rows(Draw) and len(result.rows(Draw)) == 12


def test_stored_text_holds_exact_claims_only(sample):
    assert repr(sample("quick")) == "sample-row\n  holds: Two and two make four"


def in_this_order(text, *parts):
    positions = [text.index(part) for part in parts]
    return positions == sorted(positions)


def test_a_terminal_shows_all_in_the_order_of_a_notebook(sample):
    text = sample("full").text()
    assert in_this_order(
        text,
        "A sample experiment",
        "speed, m/s  3 (by the slide)   2.5",
        "1 of 2 claims hold",
        "does not hold here: Water is dry [it is wet] (depends on the weather)",
        "holds: Two and two make four",
        "Values that were drawn",
        "value, m",
        "… 4 more rows in the JSON file",
        "Limits",
        "1 of 1 self-check holds",
        "Note: no wind here",
        "full on cpu",
    )
    assert "Nothing" not in text and "hidden" not in text


def test_html_has_the_same_order_folds_what_is_long_and_says_failures_in_words(sample):
    page = sample("full").html()
    assert in_this_order(
        page,
        "A line through the measured values",
        "3 (by the slide)",
        "<b>Does not hold here:</b> Water is dry.",
        "1 of 2 claims hold",
        "Two and two make four",
        "Values that were drawn (12 rows)",
        "Limits (1 row)",
        "self-check",
        "no wind here",
        "full on cpu",
    )
    assert "<style" not in page, "GitHub and untrusted notebooks drop style sheets"
    assert page.count("<details open>") == 1, "the short table is open, the long one is folded"
    assert page.index("Water is dry") < page.index("<details"), "a failing claim is not folded away"


def test_html_escapes_what_it_is_given(sample):
    result = sample("quick")
    result.claim("<script>alert(1)</script>", True)
    result.notes.append("run `a < b` instead")
    page = result.html()
    assert "<script>" not in page and "&lt;script&gt;" in page
    assert "run <code>a &lt; b</code> instead" in page


def test_the_reference_is_labeled_with_its_machine(sample, tmp_path, monkeypatch):
    monkeypatch.setattr("hpml_lab.core.experiment.registry.REFERENCE", tmp_path)
    recorded = sample("full")
    recorded.machine |= {"gpu": "Some GPU"}
    recorded.device = "cuda:0"
    recorded.key_figures[0] = replace(recorded.key_figures[0], here=99.0)
    recorded.save(tmp_path)
    result = sample("quick")
    headings, rows = result.comparison()
    assert headings == ["", "lecture", "here (quick)", f"reference (full): Some GPU (torch {torch.__version__})"]
    assert rows == [["speed, m/s", "3 (by the slide)", 2.5, 99.0]]
    assert "The reference is a recorded run: full on cuda:0, Some GPU" in result.text()
    assert [caption.partition(",")[0] for _, caption in result.pictures()] == ["This run", "Recorded run"]


def test_the_notes_of_the_recorded_run_are_shown_with_it(sample, tmp_path, monkeypatch):
    """Half of them were shown nowhere, such as "8 ranks share 2 cores, so no time here says what 8 processors would do"."""
    monkeypatch.setattr("hpml_lab.core.experiment.registry.REFERENCE", tmp_path)
    recorded = sample("full")
    recorded.notes = ["8 ranks share 2 cores"]
    recorded.save(tmp_path)
    page = sample("quick").html()
    assert page.index("Recorded run") < page.index("8 ranks share 2 cores") < page.index("no wind here")


def test_rows_without_a_column_are_saved_and_not_shown_as_a_table(sample):
    @dataclass
    class Step(Row):
        """One of hundreds: drawn, and read by the figure."""

        number: int

    result = sample("quick")
    result.tables.append(Table("Steps", [Step(1), Step(2)]))
    assert len(result.rows(Step)) == 2
    assert "Steps" not in result.html() and "Steps" not in result.text()


def test_what_only_the_recorded_run_has_is_shown_next_to_this_run_s_figures(sample, tmp_path, monkeypatch):
    """On a CPU a reader saw no bandwidth of pinned memory at all, and 1.14 of what a GPU gains."""
    monkeypatch.setattr("hpml_lab.core.experiment.registry.REFERENCE", tmp_path)
    recorded = sample("full")
    recorded.key_figure("on the GPU", 4.27, "times", lecture=4)
    recorded.measured("It is faster", False, "1.01 times")
    recorded.save(tmp_path)
    result = sample("quick")
    result.key_figure("only here", 5)
    assert result.comparison()[1] == [
        ["speed, m/s", "3 (by the slide)", 2.5, 2.5],
        ["only here", None, 5, None],
        ["on the GPU, times", 4, None, 4.27],
    ]
    page = result.html()
    assert "Recorded run: 1 of 3 claims hold" in page and "It is faster. <code>1.01 times</code>" in page


def test_a_recorded_table_that_reads_as_this_run_s_is_named_and_not_shown_again(sample, tmp_path, monkeypatch):
    """Five experiments with exact results showed 67 rows twice."""
    monkeypatch.setattr("hpml_lab.core.experiment.registry.REFERENCE", tmp_path)
    sample("full").save(tmp_path)
    page = sample("quick").html()
    assert page.count("Values that were drawn (") == 2, "twelve rows, and two of them"
    assert page.count("Limits (") == 1 and "<p>Row by row as above: Limits.</p>" in page


def test_runs_of_one_size_have_plain_columns_and_others_name_size_and_data(sample):
    one, other = sample("quick"), sample("full")
    assert one._column("here", sample("quick")) == "here"
    one.experiment = replace(one.experiment, quick={"data": "digits"}, full={"data": "mnist"})
    assert one._column("here", other) == "here (quick, digits)"
    one.size = "function"
    assert one._column("here", other) == "here (function)", "a file may say anything"


def test_a_picture_that_is_the_same_everywhere_is_shown_once(sample, tmp_path, monkeypatch):
    monkeypatch.setattr("hpml_lab.core.experiment.registry.REFERENCE", tmp_path)
    sample("full").save(tmp_path)
    result = sample("quick")
    assert len(result.pictures()) == 2
    result.experiment = replace(result.experiment, same_picture=True)
    assert len(result.pictures()) == 1


def test_a_notebook_gets_the_picture_first(sample, monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, **options: shown.append((data, options)))
    sample("quick")._ipython_display_()
    (picture, options), (card, _) = shown
    assert picture["image/png"] and "A line through the measured values" in picture["text/plain"]
    assert options["metadata"]["image/png"]["alt"] in card["text/html"]
    assert card["text/plain"].startswith("sample-row") and "<table" in card["text/html"]


@pytest.fixture
def results(tmp_path, monkeypatch):
    """The folder in which notebooks keep what they run, here with their `display`."""
    monkeypatch.setenv("HPML_RESULTS", str(tmp_path / "results"))
    monkeypatch.setattr("IPython.display.display", lambda data, **options: None)
    return tmp_path / "results"


def test_a_cell_that_runs_an_experiment_keeps_it_once_and_showing_it_writes_nothing(sample, results, monkeypatch):
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(user_ns={"In": ["", "result = sample_row()"]}))
    result = sample("quick")
    kept = results / "sample-row.json"
    assert sample.load(kept).rows() == result.rows()
    kept.unlink()
    for show in (result._ipython_display_, result._ipython_display_, result.text, result.html, result.__repr__):
        show()
    assert list(results.iterdir()) == []


def test_showing_the_recorded_run_does_not_make_it_the_readers_own(sample, results, tmp_path, monkeypatch):
    monkeypatch.setattr("hpml_lab.core.experiment.registry.REFERENCE", tmp_path)
    sample("full").save(tmp_path)
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(user_ns={"In": ["", "sample_row.reference()"]}))
    sample.reference()._ipython_display_()
    assert not results.exists()


def test_a_script_that_runs_an_experiment_keeps_nothing(sample, results):
    sample("quick")._ipython_display_()
    assert not results.exists()


def test_above_each_of_two_pictures_a_notebook_says_whose_it_is(sample, tmp_path, monkeypatch):
    monkeypatch.setattr("hpml_lab.core.experiment.registry.REFERENCE", tmp_path)
    recorded = sample("full")
    recorded.machine |= {"gpu": "Some GPU"}
    recorded.device = "cuda:0"
    recorded.save(tmp_path)
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, **options: shown.append(data))
    sample("quick")._ipython_display_()
    assert ["image/png" in data for data in shown] == [False, True, False, True, False]
    assert shown[0]["text/plain"] == "This run, quick:"
    label = f"Recorded run, {recorded.where}:"
    assert shown[2] == {"text/html": f"<p><em>{label}</em></p>", "text/plain": label} and "Some GPU" in label


def test_an_unknown_slug_suggests_the_nearest(sample):
    with pytest.raises(LabError, match="Did you mean sample-row"):
        find("sample-rwo")
    with pytest.raises(LabError, match="hpml-lab list"):
        find("zzzzzz")


def test_two_experiments_cannot_have_one_slug(sample):
    with pytest.raises(ValueError, match="sample-row"):
        experiment("sample-row", lecture="L0", notebook="99_test")(lambda size: None)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (9999.4, "9999"),
        (9999.5, "10\u2009000"),
        (48_023.4, "48\u2009020"),
        (65_504.0, "65\u2009504"),
        (131_072.0, "131\u2009072"),
        (-70_144.0, "-70\u2009144"),
        (12_345.0, "12\u2009345"),
        (1000.0, "1000"),
        (-0.0, "0"),
        (0.000_123_456, "0.0001235"),
        (3.4e38, "3.4e+38"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
    ],
)
def test_a_whole_number_is_shown_whole_and_another_float_by_four_digits(value, shown):
    assert number(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(999.4, "999"), (999.6, "1000"), (2583.2, "2580"), (14_560.7, "14\u2009600"), (0.0123, "0.0123")]
)
def test_an_interval_s_ends_have_three_digits_and_no_power_of_ten(value, shown):
    assert number(value, 3) == shown
    assert SpeedUp(1.5, 1.0, value, 0.0).interval == f"1 to {shown}"


def test_code_in_a_table_is_set_as_code():
    assert '<td style="text-align:left">set <code>a &lt; b</code></td>' in table_html(["what"], [["set `a < b`"]])


def test_a_column_without_any_value_is_left_out_of_the_table():
    """As on a machine without a GPU; a column with one value stays, and so do zeros."""

    @dataclass
    class Timed(Row):
        cpu: float = column("CPU", "ms")
        gpu: float | None = column("GPU", "ms", None)
        gain: float | None = column("gain", "", None)

    assert list(Table("", [Timed(1.0), Timed(2.0)]).columns) == ["cpu"]
    table = Table("", [Timed(0.0), Timed(2.0, gain=3.0)])
    assert table.columns == {"cpu": "CPU, ms", "gain": "gain"} and table.cells() == [[0.0, None], [2.0, 3.0]]
