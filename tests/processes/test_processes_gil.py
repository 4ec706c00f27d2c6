"""Threads and processes: waiting is distinguished from working, work is shared without loss, and nothing is left behind."""

import sys
import threading
import time

import pytest

from hpml_lab import processes
from hpml_lab.core.experiment import Params
from hpml_lab.core.programs import run_python
from hpml_lab.processes import parallel
from hpml_lab.processes.experiments import gil as gil_module
from hpml_lab.processes.experiments.gil import SharedWork
from hpml_lab.processes.parallel import WorkersRun

SMALL = Params(size="quick", device=None, kinds=("loop", "sleep", "numpy"), workers=(1, 2), pieces=2, seconds=0.01, repeats=1)


@pytest.fixture(scope="module")
def result():
    return processes.gil("quick")


def test_the_experiment_is_sound(result, sound):
    sound(result)


def test_every_kind_is_measured_on_threads_and_on_processes(result):
    kinds = [parallel.KINDS[kind] for kind in ("loop", "sleep", "sha256", "numpy")]
    combinations = [(kind, on, count) for kind in kinds for on in ("threads", "processes") for count in (1, 2, 4)]
    assert [(row.work, row.on, row.workers) for row in result.rows(SharedWork)][:24] == combinations


def test_the_timelines_show_two_workers_each(result):
    timelines = result.arrays["timelines"]
    assert list(timelines) == [
        "Python loop on 2 threads",
        "Python loop on 2 processes",
        "sleep (waiting for I/O) on 2 threads",
        "NumPy matmul on 2 threads",
    ]
    assert all(len({row["lane"] for row in rows}) == 2 for rows in timelines.values())
    assert len(processes.gil_timelines(result).figure.axes) == 4


def test_a_machine_without_a_free_threaded_python_has_none(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(parallel, "has_gil", lambda: True)
    assert parallel.free_threaded_python() is None


def test_a_free_threaded_python_is_found_by_its_answer_and_a_false_one_is_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr(parallel, "has_gil", lambda: True)
    for name, answer in (("python3.15t", "echo True"), ("python3.14t", "exit 1"), ("python3.13t", "echo False")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{answer}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert parallel.free_threaded_python() == str(tmp_path / "python3.13t")


def test_where_there_is_a_free_threaded_python_the_loop_runs_in_it_too(monkeypatch):
    """This Python stands for it: the rows and the claim are there, and the note is gone."""
    monkeypatch.setattr(gil_module, "free_threaded_python", lambda: sys.executable)
    result = processes.gil.function(SMALL)
    *_, one, two = result.rows(SharedWork)
    assert "free-threaded" in one.work and one.work == two.work and (one.workers, two.workers) == (1, 2)
    assert one.speedup == 1 and two.speedup == one.milliseconds / two.milliseconds
    assert result.here("Python loop on 2 threads without the lock") == two.speedup
    assert any(claim.text.startswith("Without the lock") and not claim.exact for claim in result.claims)
    assert not any("free-threaded" in note for note in result.notes)


def test_of_several_runs_the_fastest_counts_from_its_first_start_to_its_last_end(monkeypatch):
    seconds = iter([4.0, 1.5, 3.0])

    def took(kind, workers, shares, *_):
        assert shares == [2, 1], "three pieces on two workers"
        return [[[(parallel.RUNS, 10.0, 11.0)]], [[(parallel.RUNS, 10.5, 10.0 + next(seconds))]]]

    monkeypatch.setattr(parallel, "units_for", lambda *_: 1)
    monkeypatch.setattr(parallel, "on_threads", took)
    [run] = parallel.compare_workers(["loop"], [2], 3, 0.01, 3, ["threads"])
    assert (run.kind, run.on, run.workers, run.seconds) == ("loop", "threads", 2, 1.5)


def test_the_rows_compare_every_time_with_one_thread(monkeypatch):
    seconds = {("threads", 1): 8.0, ("threads", 2): 10.0, ("processes", 1): 9.0, ("processes", 2): 4.0}

    def measured(kinds, hows, pieces, **_):
        traces = [[[(parallel.RUNS, 0.0, 1.0)]] * pieces]
        return "3", [WorkersRun(kind, on, n, s, traces) for kind in kinds for (on, n), s in seconds.items() if on in hows]

    monkeypatch.setattr(gil_module, "measure_workers", measured)
    monkeypatch.setattr(gil_module, "free_threaded_python", lambda: None)
    result = processes.gil.function(SMALL)
    rows = {(row.work, row.on, row.workers): row for row in result.rows(SharedWork)}
    loop = parallel.KINDS["loop"]
    assert [rows[loop, "threads", count].milliseconds for count in (1, 2)] == [8000, 10_000]
    assert [rows[loop, "threads", count].speedup for count in (1, 2)] == [1, 0.8]
    assert [rows[loop, "processes", count].speedup for count in (1, 2)] == [8 / 9, 2], "compared with one thread"
    assert rows[loop, "processes", 2].milliseconds == 4000
    assert result.here("Python loop on 2 threads") == 0.8
    assert result.here("Python loop on 2 processes") == 2


def test_a_python_without_other_packages_can_measure_the_loop(nothing_left):
    """-S leaves site-packages out, as in a fresh free-threaded Python."""
    code = (
        "from hpml_lab.processes import parallel;"
        "print(len(parallel.compare_workers(['loop', 'sleep'], [1, 2], 2, 0.01, 1, ['threads', 'processes'])))"
    )
    finished = run_python(["-S", "-c", code])
    assert finished.stdout.strip() == "8", finished.stderr


def test_a_thread_that_waits_for_the_lock_differs_from_one_that_works():
    unit = parallel.unit_of("loop", 0.0)
    alone = parallel.trace_units(unit, 50, True)
    done = []
    threads = [threading.Thread(target=lambda: done.append(parallel.trace_units(unit, 200, True))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert alone[0][1] < alone[-1][2] and all(a[2] == b[1] for a, b in zip(alone, alone[1:], strict=False)), "no gaps"
    assert all(any(what == parallel.WAITS for what, _, _ in trace) for trace in done)


def test_a_sleeper_waits_for_nobody():
    assert [what for what, _, _ in parallel.trace_units(lambda: time.sleep(0.01), 3, False)] == [parallel.RUNS]


@pytest.mark.parametrize("on", [parallel.on_threads, parallel.on_processes])
def test_each_worker_does_its_share(on, nothing_left):
    traces = on("sleep", 3, [2, 1, 1], 0.01, 1)
    assert [len(worker) for worker in traces] == [2, 1, 1]


def test_a_measurement_that_fails_shows_the_end_of_its_errors():
    with pytest.raises(RuntimeError, match=r"exit code 1: (?s:.*)'tea' is not a kind of work: loop, sleep"):
        parallel.measure_workers(kinds=["tea"], workers=[1], pieces=1, seconds=0.01, repeats=1, hows=["threads"])


def test_a_measurement_that_hangs_is_ended_with_all_that_it_started(nothing_left):
    with pytest.raises(RuntimeError, match="did not finish in time"):
        parallel.measure_workers(
            kinds=["sleep"], workers=[2], pieces=2, seconds=600, repeats=1, hows=["processes"], deadline_seconds=1.5
        )


@pytest.mark.parametrize(
    ("kind", "printed"),
    [
        ("plain", ["main done", "thread done", "thread cleaned up"]),
        ("daemon", ["main done"]),
        ("joined", ["thread done", "thread cleaned up", "main done"]),
    ],
)
def test_what_a_thread_still_does_at_exit(kind, printed, nothing_left):
    finished = processes.thread_at_exit(kind)
    assert (finished.stdout.splitlines(), finished.exitcode) == (printed, 0)
