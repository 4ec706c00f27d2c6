"""What a recorded run lacks of today's code is named on its card."""

from dataclasses import dataclass

import pytest

from hpml_lab.core.experiment import Result, Row, Table, column
from hpml_lab.core.experiment.older import lacking, older_note


@dataclass
class Measured(Row):
    """A row that has gained a column."""

    name: str = column("name")
    more: float | None = column("more", "ms", default=None)


def run(*figures, claims=(), device="cpu", more=None):
    made = Result([Table("Measured", [Measured("a", more)])], device=device)
    for label in figures:
        made.key_figure(label, 1.0)
    for text in claims:
        made.claim(text, True)
    return made


@pytest.mark.parametrize(
    "record, today, found",
    [
        (run("old"), run("old"), []),
        (run("old"), run("old", "new"), ["key figure “new”"]),
        (run("time of 1,024 rows"), run("time of 64 rows"), []),
        (run(claims=["All 4 ranks agree"]), run(claims=["All 2 ranks agree", "It gains"]), ["claim “It gains”"]),
        (run(claims=["It gains: by one, and compiled"]), run(claims=["It gains: by one"]), []),
        (run(claims=["It gains"]), run(claims=["It gains: by one"]), ["claim “It gains: by one”"]),
        (run(device="cuda:0"), run("of a CPU", claims=["A CPU gains"], more=1.0), []),
        (run(device="cuda:0"), run(claims=["It gains"], device="cuda:1"), ["claim “It gains”"]),
        (run(), run(more=1.0), ["column “more, ms”"]),
        (run("of a GPU", more=2.0), run(), []),
    ],
)
def test_what_a_record_lacks(record, today, found):
    assert lacking(record, today) == found


def test_a_figure_that_this_machine_cannot_measure_counts_where_the_lecture_has_it():
    today = run()
    today.key_figure("on a GPU", None)
    assert lacking(run(), today) == []
    today.key_figure("on the lecture's GPU", None, lecture=6.7)
    assert lacking(run(), today) == ["key figure “on the lecture's GPU”"]


def test_a_column_that_is_empty_in_one_of_two_tables_of_a_kind_is_there():
    record, today = run(more=1.0), run(more=2.0)
    record.tables += run().tables
    assert lacking(record, today) == []


def test_the_note_is_short():
    assert older_note([]) == []
    [note] = older_note(["a", "b", "c", "d", "e"])
    assert note == "The recorded run is older than today's code. It lacks: a; b; c and 2 more."
    [note, again] = older_note(["a"], reworded=True)
    assert note.endswith("It lacks: a.") and "claims that today's code words otherwise" in again


def test_a_field_that_a_file_of_another_device_lacks_is_named():
    record, today = run(device="cuda:0"), run(more=1.0)
    record.tables = [Table("Measured", record.tables[0].rows, frozenset({"more"}))]
    assert lacking(record, today) == ["column “more, ms”"]
