"""The judges: known mistakes, and two of them together, are refused; each by itself is named."""

from importlib import import_module

import pytest

from hpml_lab.core.judge.exercises import check

PAIRS = 40  # of hundreds of pairs, one in so many is tried
JUDGES = ("capacity-with-batching", "latency-from-due-time")


@pytest.mark.parametrize("name", JUDGES)
def test_every_known_mistake_is_refused_and_by_itself_named(name):
    judge = import_module(f"hpml_lab.serving.exercises.{name.replace('-', '_')}")
    assert check(name, judge.right)
    pairs = [mistake for mistake in judge.MISTAKES if ", and " in mistake]
    for mistake in (set(judge.MISTAKES) - set(pairs)) | set(pairs[::PAIRS]):
        answer, hint = judge.MISTAKES[mistake]
        verdict = check(name, answer)
        assert verdict.state == "mistake" and len(hint) > 20, mistake
        # Of two mistakes together one may hide the other.
        assert mistake in pairs or verdict.mistake == mistake.split(",")[0], (mistake, verdict)
