"""A machine on which others compute is named before anything is stored or recorded on it."""

import multiprocessing
import os

import pytest
from core.test_core_laps import needs_queue, spin

from hpml_lab.core.timing import quiet
from hpml_lab.core.timing.laps import Lap


@needs_queue
@pytest.mark.parametrize("most", [1, 2, 4])
def test_another_program_on_one_of_the_cores_is_seen(monkeypatch, most):
    monkeypatch.setattr(quiet, "SECONDS", 0.3)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(cores)[:most])
    other = multiprocessing.get_context("fork").Process(target=spin, daemon=True)
    try:
        other.start()
        assert "other programs have the cores" in quiet.disturbance()
    finally:
        other.kill()
        other.join()
        os.sched_setaffinity(0, cores)


@pytest.mark.parametrize(
    "wall, noise, said", [(1.05, 0.03, ""), (1.3, 0.03, "takes 1.30 seconds"), (1.05, 0.2, "differs by 20 %")]
)
def test_what_is_too_much(monkeypatch, wall, noise, said):
    monkeypatch.setattr(quiet, "lap", lambda work: Lap(wall, 1.0, wall - 1.0))
    monkeypatch.setattr(quiet, "compare", lambda a, b: _Compared(noise))
    assert (said in quiet.disturbance()) if said else quiet.disturbance() == ""


class _Compared:
    def __init__(self, noise):
        self.speed_up, self.noise = self, noise
