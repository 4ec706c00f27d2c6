"""A sentence that reads a figure is checked on this run and on the recorded one."""

import pytest

from hpml_lab.core.experiment.result import Result
from hpml_lab.core.experiment.sentences import FAILS, HOLDS, UNMEASURED, reading
from hpml_lab.core.system import machine
from hpml_lab.core.system.errors import LabError


class Recorded:
    """What a result asks of the experiment that made it."""

    def __init__(self, gain):
        self.record = run_with(gain)

    def reference(self):
        return self.record


def run_with(gain, recorded=None):
    run = Result(machine=dict(machine.describe(0)), device="cpu")
    run.key_figure("gain", gain)
    run.experiment = Recorded(recorded) if recorded is not None else None
    return run


GAINS = {"It gains {:.1f} times": lambda run: (run.here("gain") > 1, run.here("gain"))}


def test_a_sentence_that_holds_shows_the_figure_of_this_run_and_folds():
    found = reading(run_with(2.0), GAINS)
    assert found.failing() == [] and found.here[0].state == HOLDS
    page = found._repr_html_()
    assert page.startswith("<details>") and "It gains 2.0 times" in page and "data-reading" not in page
    assert repr(found) == "Answer:\n  It gains … times", "the same on every machine"


def test_a_sentence_that_fails_says_so_and_where():
    here, there = reading(run_with(0.5, recorded=2.0), GAINS), reading(run_with(2.0, recorded=0.5), GAINS)
    assert here.failing() == ["this run: It gains 0.5 times (does not hold)"]
    assert there.failing() == ["recorded run: It gains 0.5 times"]
    assert 'data-reading="fails"' in here._repr_html_() and "Does not hold here:" in here._repr_html_()
    assert "Does not hold in the recorded run, " in there._repr_html_() and "It gains 2.0 times" in there._repr_html_()


def test_the_recorded_run_is_quoted_where_its_figures_differ():
    assert "recorded" not in reading(run_with(2.0, recorded=2.0), GAINS)._repr_html_()
    assert "It gains 3.0 times" in reading(run_with(2.0, recorded=3.0), GAINS)._repr_html_()


def test_what_this_machine_cannot_measure_is_read_from_the_record():
    found = reading(run_with(None, recorded=3.0), {"On a GPU {:.0f} times": _gpu})
    assert [said.state for said in (*found.here, *found.recorded)] == [UNMEASURED, HOLDS]
    assert "Not measured" not in found._repr_html_() and "On a GPU 3 times" in found._repr_html_()
    assert "Not measured here: On a GPU … times" in reading(run_with(None), {"On a GPU {:.0f} times": _gpu})._repr_html_()


def _gpu(run):
    gain = run.here("gain")
    return (None,) if gain is None else (gain > 2, gain)


def test_a_record_from_before_the_sentence_is_not_wrong_but_this_run_is():
    asks = {"It has more": lambda run: run.here("more") > 0}
    run = run_with(2.0, recorded=2.0)
    found = reading(run, asks)
    assert found.recorded[0].state == UNMEASURED and found.here[0].state == FAILS
    assert "no key figure is called 'more'" in found.failing()[0]
    run.key_figure("more", 1)
    assert reading(run, asks).failing() == []


def test_values_that_do_not_fill_the_sentence_are_named():
    with pytest.raises(LabError, match="do not fill the sentence 'It gains"):
        reading(run_with(2.0), {"It gains {} and {}": lambda run: (True, 1)})
