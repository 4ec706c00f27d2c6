"""What the tests of this room share."""

import pytest

from hpml_lab.core.timing import Timing


@pytest.fixture
def planted_times(monkeypatch):
    """(module, seconds) lets the module's `interleaved` find that each work takes `seconds(name, work)`, to the last bit: then
    every figure that is made of times is known."""

    def plant(module, seconds):
        def turns(works, **_):
            return {name: Timing((seconds(name, work),) * 3, 1) for name, work in works.items()}

        monkeypatch.setattr(module, "interleaved", turns)

    return plant
