"""Ranges of a step, and Nsight Systems: a report with its tables and columns is read, and what fails is one error."""

import contextlib
import hashlib
import sqlite3
from collections import Counter

import pytest

from hpml_lab.core.experiment import Params, Result
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.timing.threads import one_thread
from hpml_lab.data import load
from hpml_lab.profiling.experiments import kernel_table as row
from hpml_lab.profiling.lessons import annotated_step
from hpml_lab.profiling.tools import nsys
from hpml_lab.profiling.tools.nvprof import htod_rows, kernel_rows

THREAD, AUTOGRAD = 281_500_746_514_433, 281_500_746_514_470  # as nsys writes process and thread in one number
SCHEMA = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT NOT NULL, end INT NOT NULL, deviceId INT NOT NULL, streamId INT NOT NULL,
    correlationId INT, globalPid INT, demangledName INT NOT NULL, shortName INT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT NOT NULL, end INT NOT NULL, deviceId INT NOT NULL, streamId INT NOT NULL,
    correlationId INT, globalPid INT, bytes INT NOT NULL, copyKind INT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT NOT NULL, end INT NOT NULL, eventClass INT NOT NULL, globalTid INT,
    correlationId INT, nameId INT NOT NULL, returnValue INT NOT NULL);
CREATE TABLE NVTX_EVENTS (start INT NOT NULL, end INT, eventType INT NOT NULL, text TEXT, globalTid INT, textId INT,
    domainId INT);
"""
NAMES = {1: "void gemm<float>(float*)", 2: "cudaLaunchKernel", 3: "cudaMemcpyAsync", 4: "backward"}


@pytest.fixture
def report(tmp_path):
    """A report written by this test: in each of 2 steps a copy, a kernel by the main thread and one by autograd's."""
    path = tmp_path / "run.sqlite"
    with sqlite3.connect(path) as file:
        file.executescript(SCHEMA)
        file.executemany("INSERT INTO StringIds VALUES (?, ?)", NAMES.items())
        for step in range(2):
            at, first = 100_000 * step, 10 * step
            ranges = [(at, 10_000, "copy", None), (at + 10_000, 20_000, "forward", None), (at + 30_000, 20_000, None, 4)]
            for start, lasted, text, number in ranges:
                file.execute(
                    "INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, ?, ?, ?, 0)", (start, start + lasted, text, THREAD, number)
                )
            calls = [
                (at + 1000, THREAD, first + 1, 3),
                (at + 12_000, THREAD, first + 2, 2),
                (at + 35_000, AUTOGRAD, first + 3, 2),
            ]
            for start, thread, number, name in calls:
                file.execute(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, ?, 0)",
                    (start, start + 500, thread, number, name),
                )
            file.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, 0, 7, ?, 0, 4096, 1)", (at + 2000, at + 5000, first + 1)
            )
            for number, lasted in ((first + 2, 40_000), (first + 3, 8000)):
                values = (at + 50_000, at + 50_000 + lasted, number)
                file.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 7, ?, 0, 1, 1)", values)
        file.execute("INSERT INTO NVTX_EVENTS VALUES (5, NULL, 34, 'a mark', ?, NULL, 0)", (THREAD,))
    return path


def test_a_report_gives_the_kernel_table(report):
    table = kernel_rows(nsys.read_nsys(report), gpu=True)
    assert [(found.name, found.calls, found.time_us) for found in table] == [
        ("void gemm<float>(float*)", 4, 96.0),
        ("[CUDA memcpy HtoD]", 2, 6.0),
    ]
    assert htod_rows(table)[0].percent == pytest.approx(100 * 6 / 102)


def test_a_kernel_belongs_to_the_range_in_which_any_thread_launched_it(report):
    found = row.range_rows(nsys.read_nsys(report), "nsys", on_gpu=True)
    assert [(part.part, part.ranges, part.launched, part.gpu_ms) for part in found] == [
        ("copy", 2, 2, 0.006),
        ("forward", 2, 2, 0.08),
        ("backward", 2, 2, 0.016),
        ("update", 0, 0, 0),
    ]
    assert found[1].host_ms == pytest.approx(0.04)


def test_the_shipped_report_is_whole_and_says_what_its_origin_says():
    readme = (nsys.SHIPPED_REPORT.parent / "README.md").read_text(encoding="utf-8")
    assert hashlib.sha256(nsys.SHIPPED_REPORT.read_bytes()).hexdigest() in readme
    events = nsys.read_nsys(nsys.SHIPPED_REPORT)
    batches = -(-len(load("digits").train_x) // 128)
    found = {part.part: (part.ranges, part.launched) for part in row.by_shipped_report()}
    assert found == {
        "copy": (batches, 2 * batches),
        "forward": (batches, 206),
        "backward": (batches, 328),
        "update": (batches, 39),
    }
    fills = [event for event in events if event["cat"] == "gpu_memset"]
    assert fills and htod_rows(kernel_rows(events, gpu=True))[0].calls > 2 * batches, "the weights were copied before"


def test_a_report_without_a_table_is_read_and_a_damaged_or_empty_one_is_refused(report, tmp_path):
    with sqlite3.connect(report) as file:
        file.execute("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
    assert {event["cat"] for event in nsys.read_nsys(report)} == {"gpu_memcpy", "cuda_runtime", "user_annotation"}
    damaged, empty = tmp_path / "damaged.sqlite", tmp_path / "empty.sqlite"
    damaged.write_bytes(b"SQLite format 3, or not" * 100)
    sqlite3.connect(empty).close()
    for path, why in ((damaged, "is not a report"), (tmp_path / "absent", "absent is not there"), (empty, "holds no kernel")):
        with pytest.raises(LabError, match=why):
            nsys.read_nsys(path)
    assert not (tmp_path / "absent").exists()


def fake_nsys(monkeypatch, tmp_path, script):
    program = tmp_path / "nsys"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(nsys, "find_tool", lambda name: str(program))


def test_the_row_sets_nsys_next_to_torchs_profiler(monkeypatch, tmp_path, report):
    fake_nsys(
        monkeypatch,
        tmp_path,
        f'for word; do case "$word" in --output=*) cp "{report}" "${{word#--output=}}.sqlite"; esac; done',
    )
    params, result = Params(**row.QUICK), Result()
    parts = row.range_rows(nsys.read_nsys(report), "torch.profiler", on_gpu=True)
    row.compare_with_nsys(result, params, parts)
    assert len(parts) == 8 and result.claims[0].holds and not result.notes
    parts[0].launched = 5
    row.compare_with_nsys(result, params, parts[:4])
    assert not result.claims[1].holds and "copy 5 and 2" in result.claims[1].measured


@pytest.mark.parametrize("script", ["echo 'Error: permission denied to trace' >&2; exit 1", "echo 'permission denied'"])
def test_where_nsys_may_not_record_or_is_absent_one_note_says_so(monkeypatch, tmp_path, script):
    result = Result()
    monkeypatch.setattr(nsys, "find_tool", lambda name: None)
    parts = []
    row.compare_with_nsys(result, Params(**row.QUICK), parts)
    assert parts == row.by_shipped_report()
    fake_nsys(monkeypatch, tmp_path, script)
    row.compare_with_nsys(result, Params(**row.QUICK), [])
    assert not result.claims and len(result.notes) == 2
    assert "not installed" in result.notes[0] and "permission denied" in result.notes[1]


def test_the_program_that_nsys_watches_opens_each_range_once_a_batch(monkeypatch):
    seen = Counter()

    def named_range(name, device):
        seen[name] += 1
        return contextlib.nullcontext()

    monkeypatch.setattr(annotated_step, "named_range", named_range)
    with one_thread():
        annotated_step.main("digits", 512, (2, 2), 8)
    assert list(seen) == list(annotated_step.STEP_RANGES) and set(seen.values()) == {-(-len(load("digits").train_x) // 512)}


@pytest.mark.cuda
def test_nsys_sees_the_ranges_that_torch_marks(tmp_path):
    if nsys.find_tool("nsys") is None:
        pytest.skip("nsys is not installed here")
    work = "import torch\nwith torch.cuda.nvtx.range('forward'):\n    torch.ones(9, device='cuda').sum().item()\n"
    events = nsys.read_nsys(nsys.nsys_profile(["-c", work], tmp_path))
    assert row.range_rows(events, "nsys", on_gpu=True)[1].launched >= 2


LOOSE = [  # (table, column, a value that nsys never writes there); the columns lose their types first, as in a damaged file
    ("CUPTI_ACTIVITY_KIND_KERNEL", "start", None),
    ("CUPTI_ACTIVITY_KIND_KERNEL", "end", None),
    ("CUPTI_ACTIVITY_KIND_KERNEL", "start", "soon"),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", "copyKind", "HtoD"),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", "copyKind", None),
    ("CUPTI_ACTIVITY_KIND_RUNTIME", "end", 1.5),
    ("NVTX_EVENTS", "text", b"bytes"),
]


@pytest.mark.parametrize("table, column, value", LOOSE)
def test_a_value_that_nsys_never_writes_is_an_error_that_names_the_file(report, table, column, value):
    with sqlite3.connect(report) as file:
        file.executescript(f"CREATE TABLE z AS SELECT * FROM {table}; DROP TABLE {table}; ALTER TABLE z RENAME TO {table};")
        file.execute(f"UPDATE {table} SET {column} = ?", (value,))
    with pytest.raises(LabError, match=f"{report.name} is not a report of nsys"):
        nsys.read_nsys(report)


def test_a_view_that_never_ends_is_not_read(report):
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
    with sqlite3.connect(report) as file:
        file.executescript(f"DROP TABLE StringIds; CREATE VIEW StringIds AS {endless} SELECT i AS id, 'x' AS value FROM n;")
    assert {event["cat"] for event in nsys.read_nsys(report)} == {"gpu_memcpy", "user_annotation"}, "those without a number"


def test_more_work_than_a_report_of_this_size_can_make_is_interrupted(report, monkeypatch):
    monkeypatch.setattr(nsys, "STEPS", 1)
    monkeypatch.setattr(nsys, "STEPS_A_BYTE", 0)
    with pytest.raises(LabError, match=r"run\.sqlite is not a report of nsys \(.*interrupted"):
        nsys.read_nsys(report)


def test_a_value_that_is_computed_without_measure_is_refused(report):
    text = "text TEXT GENERATED ALWAYS AS (printf('%.*c', 900000000, 'x'))"
    with sqlite3.connect(report) as file:
        file.executescript(
            f"DROP TABLE NVTX_EVENTS; CREATE TABLE NVTX_EVENTS (start INT, end INT, textId INT, globalTid INT, {text});"
            "INSERT INTO NVTX_EVENTS (start, end) VALUES (1, 2);"
        )
    with pytest.raises(LabError, match=r"run\.sqlite is not a report of nsys"):
        nsys.read_nsys(report)
