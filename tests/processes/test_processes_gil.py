"""Threads against processes: who waits for whom is told rightly, work is shared without loss, and nothing is left behind."""

import sys
import threading
import time

import psutil
import pytest

from hpml_lab.core import programs
from hpml_lab.core.experiment import Size
from hpml_lab.processes import daemon, parallel
from hpml_lab.processes.experiments import gil


@pytest.fixture
def nothing_left(monkeypatch):
    """After the test no process lives that it started, directly or through others, children of init included."""
    monkeypatch.setenv("HPML_TEST_MARK", mark := f"{time.time_ns()}")
    yield
    left = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HPML_TEST_MARK") == mark:
                left.append(process.cmdline())
        except psutil.Error:
            continue
    assert left == []


@pytest.fixture(scope="module")
def result():
    return gil("quick")


def test_the_experiment_is_sound(result, sound):
    sound(result)


def test_every_kind_is_measured_on_threads_and_on_processes(result):
    kinds = [parallel.KINDS[kind] for kind in ("loop", "sleep", "sha256", "numpy")]
    assert [(row["work"], row["on"]) for row in result.rows[:8]] == [(k, on) for k in kinds for on in ("threads", "processes")]


def test_a_machine_without_a_free_threaded_python_is_told_how_to_get_one(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(parallel, "has_gil", lambda: True)
    assert parallel.free_threaded_python() is None


def test_a_free_threaded_python_is_found_by_what_it_answers_and_a_false_one_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr(parallel, "has_gil", lambda: True)
    for name, answer in (("python3.15t", "echo True"), ("python3.14t", "exit 1"), ("python3.13t", "echo False")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{answer}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert parallel.free_threaded_python() == str(tmp_path / "python3.13t")


def test_where_there_is_a_free_threaded_python_the_loop_runs_in_it_too(monkeypatch):
    """The present Python plays it: the row and the claim are there, and the note is gone."""
    monkeypatch.setattr(parallel, "free_threaded_python", lambda: sys.executable)
    size = Size(name="quick", device=None, kinds=("loop", "sleep", "numpy"), workers=(1, 2), pieces=2, seconds=0.01, repeats=1)
    result = gil.function(size)
    assert "free-threaded" in result.rows[-1]["work"] and result.rows[-1]["2 workers, ms"] > 0
    assert any(claim.text.startswith("without the lock") and not claim.exact for claim in result.claims)
    assert not any("free-threaded" in note for note in result.notes)


def test_of_several_runs_the_fastest_counts_from_its_first_start_to_its_last_end(monkeypatch):
    seconds = iter([4.0, 1.5, 3.0])

    def took(kind, workers, shares, *_):
        assert shares == [2, 1], "three pieces on two workers"
        return [[[(parallel.RUNS, 10.0, 11.0)]], [[(parallel.RUNS, 10.5, 10.0 + next(seconds))]]]

    monkeypatch.setattr(parallel, "units_for", lambda *_: 1)
    monkeypatch.setattr(parallel, "on_threads", took)
    [run] = parallel.compare(["loop"], [2], 3, 0.01, 3, ["threads"])["runs"]
    assert (run["kind"], run["on"], run["workers"], run["seconds"]) == ("loop", "threads", 2, 1.5)


def test_with_planted_times_the_row_tells_who_is_how_many_times_faster(monkeypatch):
    took = {("threads", 1): 8.0, ("threads", 2): 10.0, ("processes", 1): 9.0, ("processes", 2): 4.0}

    def measured(kinds, hows, pieces, **_):
        trace = [[[(parallel.RUNS, 0.0, 1.0)]] * pieces]
        runs = [{"on": on, "workers": n, "seconds": s, "traces": trace} for (on, n), s in took.items() if on in hows]
        return {"python": "3", "runs": [{"kind": kind, **run} for kind in kinds for run in runs]}

    monkeypatch.setattr(parallel, "measure", measured)
    monkeypatch.setattr(parallel, "free_threaded_python", lambda: None)
    size = Size(name="quick", device=None, kinds=("loop", "sleep", "numpy"), workers=(1, 2), pieces=2, seconds=0.01, repeats=1)
    result = gil.function(size)
    told = {(row["work"], row["on"]): row for row in result.rows}
    threads, processes = (told[parallel.KINDS["loop"], on] for on in ("threads", "processes"))
    assert (threads["1 worker, ms"], threads["2 workers, ms"], threads["2, times faster"]) == (8000, 10_000, 0.8)
    assert (processes["2 workers, ms"], processes["2, times faster"]) == (4000, 2), "against one thread"
    assert result.quantities["Python loop on 2 threads, times faster"] == 0.8
    assert result.quantities["Python loop on 2 processes, times faster"] == 2
    drawn = {on: next(one["times"] for one in kinds) for on, kinds in result.arrays["speed-up"].items()}
    assert drawn == {"threads": [1, 0.8], "processes": [8 / 9, 2]}


def test_a_python_without_other_packages_can_measure_the_loop(nothing_left):
    """-S leaves site-packages out, as in a fresh free-threaded Python."""
    code = (
        "from hpml_lab.processes import parallel;"
        "print(len(parallel.compare(['loop', 'sleep'], [1, 2], 2, 0.01, 1, ['threads', 'processes'])['runs']))"
    )
    done = programs.run_python(["-S", "-c", code])
    assert done.stdout.strip() == "8", done.stderr


def test_a_thread_that_waits_for_the_lock_is_told_from_one_that_works():
    unit = parallel.unit_of("loop", 0.0)
    alone = parallel.trace(unit, 50, True)
    done = []
    threads = [threading.Thread(target=lambda: done.append(parallel.trace(unit, 200, True))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert alone[0][1] < alone[-1][2] and all(a[2] == b[1] for a, b in zip(alone, alone[1:], strict=False)), "no gaps"
    assert all(any(what == parallel.WAITS for what, _, _ in trace) for trace in done)


def test_a_sleeper_waits_for_nobody():
    assert [what for what, _, _ in parallel.trace(lambda: time.sleep(0.01), 3, False)] == [parallel.RUNS]


@pytest.mark.parametrize("on", [parallel.on_threads, parallel.on_processes])
def test_each_worker_does_its_share(on, nothing_left):
    traces = on("sleep", 3, [2, 1, 1], 0.01, 1)
    assert [len(worker) for worker in traces] == [2, 1, 1]


def test_a_measurement_that_fails_says_its_last_words():
    with pytest.raises(RuntimeError, match=r"exit code 1: (?s:.*)'tea' is no kind of work: loop, sleep"):
        parallel.measure(kinds=["tea"], workers=[1], pieces=1, seconds=0.01, repeats=1, hows=["threads"])


def test_a_measurement_that_hangs_is_ended_with_all_that_it_started(nothing_left):
    with pytest.raises(RuntimeError, match="did not finish in time"):
        parallel.measure(
            kinds=["sleep"], workers=[2], pieces=2, seconds=600, repeats=1, hows=["processes"], deadline_seconds=1.5
        )


@pytest.mark.parametrize(
    ("kind", "printed"),
    [
        ("plain", ["main done", "thread done", "thread tidied up"]),
        ("daemon", ["main done"]),
        ("joined", ["thread done", "thread tidied up", "main done"]),
    ],
)
def test_what_a_thread_still_does_at_exit(kind, printed, nothing_left):
    done = daemon.at_exit(kind)
    assert (done.stdout.splitlines(), done.exitcode) == (printed, 0)
