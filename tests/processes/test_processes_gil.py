"""Threads and processes: waiting is distinguished from working, work is shared without loss, and nothing is left behind."""

import sys
import threading
import time
from dataclasses import replace

import pytest

from hpml_lab import processes
from hpml_lab.core.experiment import Params
from hpml_lab.core.system.programs import run_python
from hpml_lab.processes.experiments import gil as gil_module
from hpml_lab.processes.experiments import parallel
from hpml_lab.processes.experiments.gil import SharedWork
from hpml_lab.processes.experiments.parallel import WorkersRun
from hpml_lab.processes.lessons import thread_exit

SMALL = Params(size="quick", device=None, kinds=("loop", "sleep", "numpy"), workers=(1, 2), pieces=2, seconds=0.01, rounds=2)


@pytest.fixture(scope="module")
def result(ran):
    return ran("gil")


def test_the_experiment_is_sound(result, sound):
    sound(result)


def test_every_kind_is_measured_on_threads_and_on_processes(result):
    kinds = list(parallel.KINDS.values())
    combinations = [(kind, on, count) for kind in kinds for on in ("threads", "processes") for count in (1, 2, 4)]
    assert [(row.work, row.on, row.workers) for row in result.rows(SharedWork)][:30] == combinations


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


def programs(folder, monkeypatch, **scripts):
    """Programs that answer as the shell scripts say are all that can be found here."""
    for name, script in scripts.items():
        path = folder / name.replace("_", ".")
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    known = {path.name: str(path) for path in folder.iterdir()}
    monkeypatch.setattr(parallel, "has_gil", lambda: True)
    monkeypatch.setattr(parallel, "find_tool", known.get)


def test_a_machine_without_a_free_threaded_python_has_none(tmp_path, monkeypatch):
    programs(tmp_path, monkeypatch)
    assert parallel.free_threaded_python() is None
    programs(tmp_path, monkeypatch, uv="echo No interpreter found >&2; exit 2")
    assert parallel.free_threaded_python() is None


def test_a_free_threaded_python_is_found_by_its_answer_and_a_false_one_is_skipped(tmp_path, monkeypatch):
    programs(tmp_path, monkeypatch, python3_15t="echo True", python3_14t="exit 1", python3_13t="echo False")
    assert parallel.free_threaded_python() == str(tmp_path / "python3.13t")


def test_a_free_threaded_python_that_uv_has_installed_is_found_though_it_is_not_on_path(tmp_path, monkeypatch):
    managed = tmp_path / "managed-python"
    uv = f'test "$1 $2 $3 $4" = "python find --no-python-downloads 3.14t" && echo {managed}'
    programs(tmp_path, monkeypatch, uv=uv, **{"managed-python": "echo False"})
    assert parallel.free_threaded_python() == str(managed)


def test_where_there_is_a_free_threaded_python_the_loop_runs_in_it_too(monkeypatch):
    """This Python stands for it: the rows and the claim are there, and the note is gone."""
    monkeypatch.setattr(gil_module, "free_threaded_python", lambda: sys.executable)
    result = processes.gil.function(SMALL)
    *_, one, two = result.rows(SharedWork)
    assert "free-threaded" in one.work and one.work == two.work and (one.workers, two.workers) == (1, 2)
    assert one.gain == 1 and two.gain > 0
    assert result.here("Python loop on 2 threads without the lock") == two.gain
    assert any(claim.text.startswith("Without the lock") and not claim.exact for claim in result.claims)
    assert not any("free-threaded" in note for note in result.notes)


def test_a_free_threaded_python_that_cannot_run_the_loop_costs_no_other_figure(tmp_path, monkeypatch):
    broken = tmp_path / "python3.14t"
    broken.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named '_ctypes'\" >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(gil_module, "free_threaded_python", lambda: str(broken))
    result = processes.gil.function(SMALL)
    assert len(result.rows(SharedWork)) == 12 and "No module named '_ctypes'" in result.notes[-1]


def test_a_run_takes_from_its_first_start_to_its_last_end_and_one_thread_runs_again_in_every_round(monkeypatch):
    seconds, asked = iter([4.0, 9.0, 1.5, 8.0, 3.0, 7.0]), []

    def took(kind, shares, *_):
        asked.append(shares)
        return [[[(parallel.RUNS, 10.0, 11.0)]], [[(parallel.RUNS, 10.5, 10.0 + next(seconds))]]]

    monkeypatch.setattr(parallel, "on_threads", took)
    run, again = parallel.compare_workers(["loop"], [2], 3, 0.001, 3, ["threads"])
    assert asked == [[2, 1], [3]] * 3, "three pieces on two workers, then on one"
    assert (run.kind, run.on, run.workers, run.samples) == ("loop", "threads", 2, [4.0, 1.5, 3.0])
    assert run.traces[1][0][0][2] == 11.5, "the fastest round is drawn"
    assert (again.on, again.workers, again.samples) == (parallel.AGAIN, 1, [9.0, 8.0, 7.0])


def test_the_rows_compare_every_time_with_one_thread_in_its_round(monkeypatch):
    samples = {
        ("threads", 1): [8.0, 4.0, 8.0],
        ("threads", 2): [10.0, 4.0, 10.0],
        ("processes", 1): [9.0, 5.0, 9.0],
        ("processes", 2): [4.0, 2.0, 4.0],
        (parallel.AGAIN, 1): [8.0, 4.0, 7.5],
    }

    def measured(kinds, hows, pieces, **_):
        traces = [[[(parallel.RUNS, 0.0, 1.0)]] * pieces]
        turns = [(turn, taken) for turn, taken in samples.items() if turn[0] in (*hows, parallel.AGAIN)]
        return "3", [WorkersRun(kind, on, n, taken, traces) for kind in kinds for (on, n), taken in turns]

    monkeypatch.setattr(gil_module, "measure_workers", measured)
    monkeypatch.setattr(gil_module, "free_threaded_python", lambda: None)
    result = processes.gil.function(SMALL)
    rows = {(row.work, row.on, row.workers): row for row in result.rows(SharedWork)}
    loop = parallel.KINDS["loop"]
    assert {on for _, on, _ in rows} == {"threads", "processes"}, "the placebo is no row"
    assert [rows[loop, "threads", count].milliseconds for count in (1, 2)] == [8000, 10_000]
    assert [rows[loop, "threads", count].gain for count in (1, 2)] == [1, 0.8]
    assert [rows[loop, "processes", count].gain for count in (1, 2)] == [8 / 9, 2], "compared with one thread"
    assert [rows[loop, "processes", count].verdict for count in (1, 2)] == ["slower", "faster"]
    assert rows[loop, "processes", 2].interval == "1.88 to 2"
    assert result.here("Python loop on 2 threads") == 0.8
    assert result.here("Python loop on 2 processes") == 2
    holds = {claim.text: claim.holds for claim in result.claims if not claim.exact}
    assert holds["Two processes speed up a Python loop"] and holds["Two threads do not speed up a Python loop"]
    assert not holds["Two threads speed up sleeping"], "these times say the opposite"


def test_a_python_without_other_packages_can_measure_the_loop(nothing_left):
    """-S leaves site-packages out, as in a fresh free-threaded Python."""
    code = (
        "from hpml_lab.processes.experiments import parallel;"
        "print(len(parallel.compare_workers(['loop', 'sleep'], [1, 2], 2, 0.01, 1, ['threads', 'processes'])))"
    )
    finished = run_python(["-S", "-c", code])
    assert finished.stdout.strip() == "10", finished.stderr


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


def test_a_sleeper_is_asleep_and_not_at_work():
    assert [what for what, _, _ in parallel.trace_units(lambda: time.sleep(0.01), 3, False)] == [parallel.SLEEPS]


def test_each_thread_does_its_share():
    traces = parallel.on_threads("sleep", [2, 1, 1], 0.01, 1)
    assert [len(worker) for worker in traces] == [2, 1, 1]


def test_a_thread_that_gets_the_lock_late_waits_from_the_common_start():
    traces = parallel.on_threads("loop", [1, 1], 0.01, 20)
    starts = {worker[0][0][1] for worker in traces}
    assert len(starts) == 1, "all lanes of the picture begin together"
    assert all(worker[0][0][0] == parallel.WAITS for worker in traces)


def test_the_figure_has_a_line_for_the_loop_without_the_lock(result):
    work = "Python loop, free-threaded Python 3.14"
    rows = [SharedWork(work, "threads", count, 1.0, float(count), "", "faster") for count in (1, 2, 4)]
    table = replace(result.tables[0], rows=[*result.rows(SharedWork), *rows])
    threads, _ = replace(result, tables=[table]).figure().axes
    assert [1, 2, 4] in [list(line.get_ydata()) for line in threads.get_lines() if line.get_linestyle() == "-"]
    assert work in threads.get_legend_handles_labels()[1]


def test_each_process_does_its_share_again_and_again(nothing_left):
    with parallel.worker_processes("sleep", 3, 0.01) as (connections, units):
        assert units == 1
        for shares in ([2, 1, 1], [4], [2, 2]):
            assert [len(worker) for worker in parallel.on_processes(connections, shares, units)] == shares


def test_a_measurement_that_fails_shows_the_end_of_its_errors():
    with pytest.raises(RuntimeError, match=r"exit code 1: (?s:.*)'tea' is not a kind of work: loop, sleep"):
        parallel.measure_workers(kinds=["tea"], workers=[1], pieces=1, seconds=0.01, rounds=1, hows=["threads"])


def test_a_measurement_that_hangs_is_ended_with_all_that_it_started(nothing_left):
    with pytest.raises(RuntimeError, match="did not finish in time"):
        parallel.measure_workers(
            kinds=["sleep"], workers=[2], pieces=2, seconds=600, rounds=1, hows=["processes"], deadline_seconds=1.5
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


@pytest.mark.parametrize(("kind", "first"), [("plain", "main done"), ("joined", "thread done")])
def test_a_thread_whose_work_takes_no_time_prints_in_the_same_order(kind, first, monkeypatch, capsys):
    class AtOnce(threading.Thread):  # as on a machine so busy that the thread has finished before the program goes on
        def start(self):
            super().start()
            super().join()

    monkeypatch.setattr(thread_exit, "SHORT_SECONDS", 0.0)
    monkeypatch.setattr(threading, "Thread", AtOnce)
    thread_exit.main(kind)
    assert capsys.readouterr().out.splitlines()[0] == first
