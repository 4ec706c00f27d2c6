"""Profilers of functions, lines and stacks, and the counters of the system: what they say of programs that are known."""

import json
import linecache
import os
import shutil
import subprocess
import sys
import threading
import time
import types
from dataclasses import replace

import matplotlib.pyplot as plt
import pytest
import torch

from hpml_lab.core.experiment import Result
from hpml_lab.core.system import c_code
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.workers import child_pids
from hpml_lab.data import DataSet, load
from hpml_lab.profilers import functions, py_spy, stacks
from hpml_lab.profilers.flames import flame_svg
from hpml_lab.profilers.functions import FunctionRow, LineRow
from hpml_lab.profiling import flame_graph, perf_counters, random_walk_profile, where_the_time_went
from hpml_lab.profiling.experiments.cprofile_line_profiler import MarkerRow
from hpml_lab.profiling.experiments.flame_graph import HOT, SHARE, WATCHED, measure_native, training_process
from hpml_lab.profiling.experiments.perf_counters import CYCLES, CountedRun, PerfRun, c_program
from hpml_lab.profiling.lessons import native_program, random_walk
from hpml_lab.profiling.lessons.training_program import noise_by_hand
from hpml_lab.profiling.tools import perf
from hpml_lab.profiling.views.icicle import draw_icicle

FOLDED = "main;fit;hot 6\nmain;fit 1\nmain;walk;walk 2\nmain;walk 1\n"


# ---- functions and lines ------------------------------------------------------------------------------------------------


def test_the_experiment_finds_the_expensive_function_and_line(sound, ran):
    result = ran("cprofile-line-profiler")
    sound(result)
    assert result.rows(FunctionRow) and result.rows(LineRow)
    assert [figure.lecture for figure in result.key_figures][:3] == [49.5, 3.7, 46.7]
    assert result.rows(MarkerRow)[1].started_as.startswith("kernprof")
    assert len(random_walk_profile(result).figure.axes) == 2
    [listing] = [table for table in result.tables if table.title.endswith("script.py.lprof")]
    assert [(row.source, row.hits) for row in listing.rows][2:] == [("total += number", 100), ("return total", 1)]
    assert sum(row.percent for row in listing.rows) == pytest.approx(100, abs=1)


def test_the_expensive_function_comes_first_whatever_other_threads_do():
    """Python 3.13's cProfile sees their calls too; with a thread's own clock the sleep of another came first."""
    ended = threading.Event()

    def elsewhere():
        while not ended.is_set():
            time.sleep(0.0005)

    other = threading.Thread(target=elsewhere)
    other.start()
    try:
        _, stats = functions.by_function(lambda: random_walk.known_program(200, 300_000), time.process_time)
    finally:
        ended.set()
        other.join()
    assert functions.function_rows(stats)[0].function == "expensive"


def test_every_walker_stands_somewhere():
    counts = random_walk.simulate(20, walkers=100)
    assert counts.shape == (20, 59)
    assert (counts.sum(axis=1) == 100).all()  # in 20 steps nobody leaves the bins
    assert counts[0].sum() == counts[0, 29] + counts[0, 31]  # after one step all are at −1 or 1


def test_a_line_that_is_never_reached_has_no_row():
    def either(flag):
        if flag:
            return "yes"
        return "no"

    value, profiler = functions.by_line(lambda: [either(True) for _ in range(5)], [either])
    rows = functions.line_rows(profiler, either)
    assert value == ["yes"] * 5
    assert [(row.source, row.hits) for row in rows] == [("if flag:", 5), ('return "yes"', 5)]


def test_lines_of_a_function_that_was_written_in_a_notebook_have_their_source():
    cell, names = "def doubled(n):\n    twice = 2 * n  # a comment\n    return twice\n", {}
    linecache.cache["<cell 1>"] = len(cell), None, cell.splitlines(keepends=True), "<cell 1>"  # as IPython does
    exec(compile(cell, "<cell 1>", "exec"), names)
    doubled = names["doubled"]
    _, profiler = functions.by_line(lambda: doubled(1), [doubled])
    assert [row.source for row in functions.line_rows(profiler, doubled)] == ["twice = 2 * n", "return twice"]
    del linecache.cache["<cell 1>"]


def test_milliseconds_of_lines_and_functions_are_those_that_were_slept():
    def work():
        time.sleep(0.02)
        time.sleep(0.04)

    _, profiler = functions.by_line(work, [work])
    first, second = functions.line_rows(profiler, work)
    assert 19 < first.ms < 2000 and 39 < second.ms < 2000
    assert first.percent + second.percent == pytest.approx(100)
    assert first.percent / second.percent == pytest.approx(first.ms / second.ms)
    _, stats = functions.by_function(work)
    by = {row.function: row for row in functions.function_rows(stats)}
    assert by["work"].own_ms < by["work"].total_ms and 59 < by["work"].total_ms < 2000
    assert sum(row.percent for row in by.values()) == pytest.approx(100)


def test_calls_of_a_function_by_itself_count():
    def down(n):
        return down(n - 1) if n else 0

    _, stats = functions.by_function(lambda: down(4))
    assert [row.calls for row in functions.function_rows(stats) if row.function == "down"] == [5]


def test_lines_of_a_function_that_was_not_measured_are_refused():
    _, profiler = functions.by_line(lambda: random_walk.cheap(1), [random_walk.cheap])
    with pytest.raises(LabError, match="expensive was not measured"):
        functions.line_rows(profiler, random_walk.expensive)


def test_a_profiler_is_off_again_after_an_error():
    def fails():
        raise ZeroDivisionError

    for run in (functions.by_function, lambda work: functions.by_line(work, [fails]), functions.by_sample):
        with pytest.raises(ZeroDivisionError):
            run(fails)
    assert functions.by_function(lambda: 7)[0] == 7  # a second profiler would be refused


def test_a_sampler_sees_the_function_that_runs():
    def waits():
        time.sleep(0.3)
        return "done"

    value, seen = functions.by_sample(waits, rate=100)
    assert value == "done" and seen.total() > 0
    assert sum(samples for stack, samples in seen.items() if stack.endswith("waits")) > seen.total() / 2


# ---- stacks -------------------------------------------------------------------------------------------------------------


def test_the_tree_counts_self_and_total_and_recursion_once():
    root = stacks.read_stacks(FOLDED)
    assert root.total == 10 and root.children["main"].own == 0
    rows = {row.frame: row for row in stacks.frame_shares(root)}
    assert list(rows)[0] == "hot"
    assert (rows["walk"].own, rows["walk"].total) == (3, 3)
    assert (rows["fit"].own_percent, rows["fit"].total_percent) == (10, 70)


def test_an_icicle_s_boxes_are_as_wide_as_their_shares_and_lie_below_their_callers():
    figure, axes = plt.subplots()
    draw_icicle(axes, stacks.read_stacks(FOLDED))
    boxes = [(round(box.get_x()), round(box.get_width()), round(box.get_y() + 0.48)) for box in axes.patches]
    plt.close(figure)
    # all, main; fit with hot in it; walk, which calls itself: left edge, width in %, depth
    assert boxes == [(0, 100, 0), (0, 100, 1), (0, 70, 2), (0, 60, 3), (70, 30, 2), (70, 20, 3)]


def test_frames_with_spaces_are_read_and_other_text_is_refused():
    root = stacks.read_stacks("<module> (my file.py:1);hot (a b.py:3) 4\n\n")
    assert stacks.frame_shares(root)[0].frame == "hot (a b.py:3)" and stacks.function_name("hot (a b.py:3)") == "hot"
    for text in ("main;hot", "main;hot x", "12"):
        with pytest.raises(LabError, match="not a folded stack"):
            stacks.read_stacks(text)


def test_stacks_of_a_recursive_program_have_a_flame_graph():
    root = stacks.read_stacks(";".join(["again (a.py:2)"] * 950) + " 4\nmain 1\n")
    assert flame_svg(root).count("<title>again") > 100 and stacks.frame_shares(root)[0].own == 4


def test_samples_without_a_frame_belong_to_no_function():
    root = stacks.read_stacks("main;hot 4\n 98\n")
    assert root.total == 4 and stacks.frame_shares(root)[0].own_percent == 100
    assert stacks.split_imports(IMPORTING + " 98\nmain;hot 4\n") == ("main;hot 4\n", IMPORTING)


@pytest.mark.environment("py-spy, as in notebook 10", files=("hpml_lab/profiling/experiments", "hpml_lab/profilers"))
def test_the_row_draws_what_py_spy_saw_and_leaves_nothing(sound):
    before = child_pids()
    result = flame_graph("quick", device="cpu")
    sound(result)
    assert child_pids() <= before
    if result.here(SHARE) is not None:  # py-spy may watch here
        assert result.arrays["source"] == WATCHED
        assert result.here(SHARE) > 20
    else:
        assert result.notes


def test_without_py_spy_the_row_says_how_to_get_it(monkeypatch, sound):
    monkeypatch.setattr("hpml_lab.profiling.experiments.flame_graph.find_tool", lambda name: None)
    monkeypatch.setattr(perf, "find_tool", lambda name: None)
    result = flame_graph("quick", device="cpu")
    sound(result)
    assert "pip install py-spy" in result.notes[0] and result.here(SHARE) is None
    assert result.rows()[0].frame == HOT


def test_where_py_spy_may_not_watch_the_row_says_how_to_allow_it(monkeypatch, tmp_path, sound):
    refused = tmp_path / "py-spy"
    refused.write_text("#!/bin/sh\necho 'Error: Permission Denied' >&2\nexit 1\n")
    refused.chmod(0o755)
    monkeypatch.setattr(py_spy, "find_tool", lambda name: str(refused))
    before = child_pids()
    result = flame_graph("quick", device="cpu")
    sound(result)
    assert "Permission Denied" in result.notes[0] and "ptrace_scope" in result.notes[0]
    assert child_pids() <= before


def test_a_training_program_that_does_not_start_in_time_is_ended():
    data, before = load("digits"), child_pids()
    with pytest.raises(LabError, match="did not start"), training_process(data, deadline_seconds=0.05):
        pass
    assert child_pids() <= before


def test_the_slow_function_adds_noise_up_to_a_tenth_and_stays_within_1():
    images = torch.linspace(0, 1, 1000).view(10, 10, 10)
    added = noise_by_hand(images) - images
    assert added.min() >= 0 and 0.05 < added.max() <= 0.1 and (images + added).max() <= 1


def test_a_training_program_that_fails_is_noticed_at_once():
    good = load("digits")
    wrong = DataSet("wrong", good.train_x[:, :, :3], good.train_y, good.test_x, good.test_y)  # 24 pixels for a net of 64
    start = time.monotonic()
    with pytest.raises(LabError, match="did not start"), training_process(wrong, deadline_seconds=120):
        pass
    assert time.monotonic() - start < 110


def test_a_file_of_an_unknown_kind_is_refused(tmp_path):
    with pytest.raises(LabError, match="no format"):
        py_spy.record_stacks(os.getpid(), tmp_path / "stacks.pdf")


@pytest.mark.parametrize(
    "script, message", [("echo 'Error: no such process' >&2; exit 1", "Error: no such process"), (': > "$7"', "run no Python")]
)
def test_a_watch_without_a_stack_is_reported_and_an_older_file_is_not_taken_for_its(monkeypatch, tmp_path, script, message):
    program, path = tmp_path / "py-spy", tmp_path / "stacks.txt"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    path.write_text("main;an older run 10\n")
    monkeypatch.setattr(py_spy, "find_tool", lambda name: str(program))
    with pytest.raises(LabError, match=message) as raised:
        py_spy.record_stacks(os.getpid(), path)
    assert ("ptrace_scope" in str(raised.value)) == ("Error" in message)
    assert path.read_text() == "main;an older run 10\n", "an older file is neither damaged nor read"


IMPORTING = "<module> (a.py:1);_find_and_load (<frozen importlib._bootstrap>:9);<module> (torch/__init__.py:1) 30\n"


def fake_py_spy(monkeypatch, tmp_path, content):
    """A py-spy that has seen `content`, whatever it is asked to watch."""
    (tmp_path / "content").write_text(content)
    program = tmp_path / "py-spy"
    program.write_text(f'#!/bin/sh\ncp "{tmp_path / "content"}" "$7"\n')
    program.chmod(0o755)
    monkeypatch.setattr(py_spy, "find_tool", lambda name: str(program))


def test_a_record_has_the_script_s_own_work_and_its_imports_only_if_asked(monkeypatch, tmp_path):
    fake_py_spy(monkeypatch, tmp_path, IMPORTING + "<module> (a.py:1);work (a.py:3) 5\n")
    path = tmp_path / "stacks.txt"
    assert py_spy.record_stacks(os.getpid(), path).read_text() == "<module> (a.py:1);work (a.py:3) 5\n"
    assert py_spy.record_stacks(os.getpid(), path, imports=True).read_text().startswith(IMPORTING)
    graph = py_spy.record_stacks(os.getpid(), tmp_path / "stacks.svg").read_text()
    assert graph.startswith("<svg") and "work" in graph and "importlib" not in graph
    fake_py_spy(monkeypatch, tmp_path, IMPORTING)
    with pytest.raises(LabError, match="nothing but import"):
        py_spy.record_stacks(os.getpid(), path)
    fake_py_spy(monkeypatch, tmp_path, " 5\n")
    with pytest.raises(LabError, match="run no Python"):
        py_spy.record_stacks(os.getpid(), path, imports=True)


def test_a_speedscope_record_leaves_imports_out_too(monkeypatch, tmp_path):
    frames = [{"name": "work", "file": "a.py"}, {"name": "_find_and_load", "file": "<frozen importlib._bootstrap>"}]
    profile = {"unit": "seconds", "startValue": 0.0, "endValue": 0.3, "samples": [[0], [0, 1], [0]], "weights": [0.1] * 3}
    fake_py_spy(monkeypatch, tmp_path, json.dumps({"shared": {"frames": frames}, "profiles": [profile]}))
    seen = py_spy.read_speedscope(py_spy.record_stacks(os.getpid(), tmp_path / "scope.json"))
    assert seen["samples"] == 2 and seen["weights"] == seen["end"] == pytest.approx(0.2)


def test_a_speedscope_file_with_nulls_is_read(tmp_path):
    path = tmp_path / "scope.json"
    frames = [{"name": "main", "file": "a.py", "line": 1, "col": None}, {"name": "hot", "file": None}]
    profile = {"type": "sampled", "unit": "seconds", "startValue": 0.0, "endValue": 0.3, "samples": [[0], [0, 1], [0, 1]]}
    profile["weights"] = [0.1, 0.1, 0.1]
    for threads in (1, 2):
        path.write_text(json.dumps({"activeProfileIndex": None, "shared": {"frames": frames}, "profiles": [profile] * threads}))
        seen = py_spy.read_speedscope(path)
        assert seen["frames"] == ["main", "hot"] and seen["samples"] == 3 * threads and seen["end"] == 0.3 * threads
        assert seen["weights"] == pytest.approx(0.3 * threads)


PERF_SCRIPT = """python3.13
\t            709b deflate
\t            84a2 zlib_compress
\t           8f5c6 _PyEval_EvalFrameDefault
\t              85 py::packed:/a folder/native_program.py
\t          2bc5f0 py_trampoline_evaluator
\t           f01be PyObject_Vectorcall
\t              85 py::<module>:/a folder/native_program.py
\t          23299d PyEval_EvalCode

python3.13
\t            e29e _dl_relocate_object
\t           1de38 dl_main

python3.13
\t           8f5c6 _PyEval_EvalFrameDefault
\t              85 py::brightened:/a folder/native_program.py
\t               0 [unknown]
"""


def test_perfs_samples_become_stacks_of_python_and_c():
    assert perf.folded_samples(PERF_SCRIPT).splitlines() == [
        "<module> (native_program.py);packed (native_program.py);zlib_compress;deflate 1",
        "brightened (native_program.py) 1",
        "outside Python's functions;dl_main;_dl_relocate_object 1",
    ]
    assert perf.folded_samples("\n") == "", "no sample, no stack"
    result = Result()
    assert measure_native(result, perf.folded_samples(PERF_SCRIPT)) == pytest.approx(100 / 3) and result.claims[0].holds
    assert measure_native(result, "<module> (a.py);packed (a.py) 3\n") == 0 and not result.claims[1].holds


def test_a_python_that_perf_does_not_see_is_named_and_nothing_is_left(tmp_path, monkeypatch):
    for said, why in (("0 11 0", "older than 3.12"), ("1 12 0", "without frame pointers"), ("", "older than 3.12")):
        monkeypatch.setattr(perf, "run_python", lambda *_, said=said, **options: types.SimpleNamespace(stdout=said))
        with pytest.raises(LabError, match=why):
            perf.perf_stacks([native_program.__file__, "0.1"], tmp_path)


def test_perf_sees_python_and_c_of_this_python_or_says_why_not(tmp_path):
    before = set(os.listdir("/tmp"))
    try:
        folded = perf.perf_stacks([native_program.__file__, "0.3"], tmp_path)
    except LabError as error:
        pytest.skip(str(error))
    assert "packed (native_program.py);" in folded
    assert not [name for name in set(os.listdir("/tmp")) - before if name.startswith(("perf-", "jit"))]


# ---- counters -----------------------------------------------------------------------------------------------------------


FEW = perf_counters.quick | dict(naps=5, indices=2**16, in_python=2**12, turns=2)


def test_the_row_counts_faults_and_switches(sound, ran):
    result = ran("perf-counters")
    sound(result)
    assert [row.program for row in result.rows(CountedRun)] == ["touch", "sleep", "ordered", "shuffled"]
    assert len(where_the_time_went(result).figure.axes) == 1
    if shutil.which("perf") is None:
        assert any("perf is" in note for note in result.notes)


def test_without_compiler_and_perf_the_row_still_counts(monkeypatch, sound):
    monkeypatch.setattr(perf, "find_tool", lambda name: None)
    monkeypatch.setattr(c_code, "find_tool", lambda name: None)
    result = replace(perf_counters, quick=FEW)("quick", device="cpu")
    sound(result)
    assert result.arrays["language"] == "Python"
    assert not result.rows(PerfRun)
    assert any("apt install" in note and "perf" in note for note in result.notes) or sys.platform != "linux"


def test_perfs_lines_are_read_with_their_reasons():
    text = (
        "# started on Mon\n\n2.5,msec,task-clock:u,100,100.00,0.4,CPUs utilized\n"
        "<not supported>,,cycles:u,0,100.00,,\n<not counted>,,instructions,0,0.00,,\n"
    )
    rows = perf.perf_rows(text)
    assert [(row.event, row.value, row.note) for row in rows] == [
        ("task-clock", 2.5, ""),
        ("cycles", None, "not supported"),
        ("instructions", None, "not counted"),
    ]


def test_tracepoints_keep_their_names():
    rows = perf.perf_rows("12,,sched:sched_switch,9,100.00,,\n3,,sched:sched_wakeup,9,100.00,,\n5,,instructions:ukH,9,9,,\n")
    assert [(row.event, row.value) for row in rows] == [
        ("sched:sched_switch", 12),
        ("sched:sched_wakeup", 3),
        ("instructions", 5),
    ]


def test_a_command_may_print_what_is_no_text():
    command = [sys.executable, "-S", "-c", r"import sys; sys.stdout.buffer.write(b'\xff 7')"]
    assert perf.process_usage(command)[0] == "\ufffd 7"


def test_the_counters_of_two_kinds_of_cores_are_one_row():
    rows = perf.perf_rows(
        "<not counted>,,cpu_atom/cycles/u,0,0.00,,\n300,,cpu_core/cycles/u,100,100.00,,\n"
        "40,,cpu_atom/instructions/,50,50.00,,\n2,,cpu_core/instructions/,50,50.00,,\n"
        "7,,cpu_core/cache-misses/,50,50.00,,\n<not counted>,,cpu_atom/cache-misses/,0,0.00,,\n"
    )
    assert [(row.event, row.value) for row in rows] == [("cycles", 300), ("instructions", 42), ("cache-misses", 7)]


def test_the_row_is_sound_on_a_processor_with_two_kinds_of_cores(monkeypatch, sound):
    text = "4000,,page-faults:u,9,100.00,,\n<not counted>,,cpu_atom/{0}/u,0,0.00,,\n99,,cpu_core/{0}/u,9,100.00,,\n"
    found = perf.perf_rows(text.format("cycles") + text.format("instructions"))
    monkeypatch.setattr(perf, "perf_stat", lambda *_: found)
    monkeypatch.setattr(perf, "perf_functions", lambda *_: [])
    result = replace(perf_counters, quick=FEW)("quick", device="cpu")
    sound(result)
    assert result.here(CYCLES) == 1


def test_the_row_is_sound_where_perf_counts_no_cycles_in_one_of_its_runs(monkeypatch, sound):
    def stat(command, folder):
        cycles = "<not counted>" if "shuffled" in command else "50"
        return perf.perf_rows(f"4000,,page-faults,9,100.00,,\n{cycles},,cycles,9,100.00,,\n99,,instructions,9,100.00,,\n")

    monkeypatch.setattr(perf, "perf_stat", stat)
    monkeypatch.setattr(perf, "perf_functions", lambda *_: [])
    result = replace(perf_counters, quick=FEW)("quick", device="cpu")
    sound(result)
    assert result.here(CYCLES) is not None
    assert f"{CYCLES}, shuffled" not in [figure.label for figure in result.key_figures], "no row without a figure"


def test_perf_that_may_not_count_says_how_to_allow_it(monkeypatch, tmp_path):
    refused = tmp_path / "perf"
    refused.write_text("#!/bin/sh\necho 'Error: No permission to enable task-clock event.' >&2\nexit 255\n")
    refused.chmod(0o755)
    monkeypatch.setattr(perf, "find_tool", lambda name: str(refused))
    with pytest.raises(LabError, match="No permission.*perf_event_paranoid"):
        perf.perf_stat(["true"], tmp_path)


def test_a_command_that_hangs_or_fails_is_ended_and_named():
    before = child_pids()
    with pytest.raises(LabError, match="must end with 0"):
        perf.process_usage([sys.executable, "-S", "-c", "import time; time.sleep(60)"], deadline_seconds=0.3)
    with pytest.raises(LabError, match="ended with 3"):
        perf.process_usage([sys.executable, "-S", "-c", "raise SystemExit(3)"])
    assert child_pids() <= before


def test_both_languages_of_the_program_print_the_same_sum(tmp_path):
    if c_code.compiler() is None:
        pytest.skip("no C compiler here")
    native, _ = c_program.counted_program(tmp_path)
    for command in (native, [sys.executable, "-S", "-c", c_program.PYTHON_PROGRAM]):
        for what in ("ordered", "shuffled"):
            done = subprocess.run([*command, what, "1000"], capture_output=True, text=True, check=True)
            assert int(done.stdout) == 3 * 999 * 1000 // 2
