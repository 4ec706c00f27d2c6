"""An attempt tells what was raised in one sentence, and lets other errors through."""

import pytest

from hpml_lab.core.system.attempt import attempt


def raising(error):
    def work():
        raise error

    return work


@pytest.mark.parametrize(
    "error, message",
    [
        (RuntimeError("it is gone. Use another\nsecond line"), "RuntimeError: it is gone"),
        (NotImplementedError("not for 'Long'"), "NotImplementedError: not for 'Long'"),
        (AttributeError("no attribute"), "AttributeError: no attribute"),
        (NotImplementedError(), "NotImplementedError"),
        (NotImplementedError("\n    Not supported.\n"), "NotImplementedError: Not supported."),
    ],
)
def test_the_first_sentence_is_returned(error, message):
    assert attempt(raising(error)) == message


def test_what_works_is_told_and_a_mistake_of_our_own_passes():
    assert attempt(lambda: 1) == "works"
    with pytest.raises(TypeError):
        attempt(raising(TypeError("a bug")))
    assert attempt(raising(TypeError("refused")), expected=(TypeError,)) == "TypeError: refused"
