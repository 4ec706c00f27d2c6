"""What the tests of this topic share."""

import pytest

from hpml_lab.core.timing.clock import PLACEBO, Timing


@pytest.fixture
def known_times(monkeypatch):
    """(module, seconds) makes the module's `interleaved` report that each work takes exactly `seconds(name, work)`, so that
    every number computed from times is known."""

    def set_times(module, seconds):
        def timed(works, placebo=None, **_):
            times = {name: Timing((seconds(name, work),) * 5, 1) for name, work in works.items()}
            return times if placebo is None else times | {PLACEBO: times[placebo]}

        monkeypatch.setattr(module, "interleaved", timed)

    return set_times


@pytest.fixture
def known_bandwidth(monkeypatch):
    """(module, GB/s) makes the module's `copy_bandwidth` report that bandwidth."""

    def set_bandwidth(module, gb_per_s):
        monkeypatch.setattr(module, "copy_bandwidth", lambda _: Timing((1.0,), 1, bytes=gb_per_s * 1e9))

    return set_bandwidth
