"""Every reader of a file gives a value or a LabError that names the file, whatever it is: no other error, no endless wait.

A reader is what has the decorator `reader`. A new one fails here until VALID says how a file for it is written.
"""

import ast
import contextlib
import gzip
import importlib
import json
import math
import os
import random
import re
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
import pytest
from PIL import Image

import hpml_lab
from hpml_lab.capstone.tools import scans
from hpml_lab.capstone.tools.ct import synthetic
from hpml_lab.core.experiment import Table
from hpml_lab.core.experiment.registry import find
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.paths import REFERENCE
from hpml_lab.core.system.readers import READERS, bytes_of
from hpml_lab.core.system.sealed import DIGEST, digest_of_file, sealed_record, whole_records, write_digests, write_state
from hpml_lab.loading.lessons.landmarks import FaceLandmarksDataset
from hpml_lab.profiling.lessons import slow_causes
from hpml_lab.profiling.tools.nsys import SHIPPED_REPORT
from hpml_lab.your_script.tools.lab_report import LabReport
from hpml_lab.your_script.tools.script_runs import EpochRow

PACKAGE = Path(hpml_lab.__file__).parent
HANG_SECONDS = 120  # for one file; none takes a second, on a machine with any load
pytestmark = pytest.mark.filterwarnings("ignore")  # of a damaged file a library may warn
SCAN = synthetic(3, shape=(8, 32, 32), spacing=(20.0, 6.0, 5.0), radius=(6.0, 8.0), sick=True)
[RECORD] = whole_records([json.loads((REFERENCE / "jacobian-vector.json").read_text(encoding="utf-8"))])


def modules_with_readers():
    """The modules of the package in which a function has the decorator."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if "@reader(" in path.read_text(encoding="utf-8"):
            yield ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


for module in modules_with_readers():
    importlib.import_module(module)


# ---- a valid file for each ------------------------------------------------------------------------------------------------


def written(name, content):
    def make(folder):
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return folder / name

    return make


def png(folder):
    Image.new("RGB", (40, 30), (200, 10, 10)).save(folder / "photo.png")
    return folder / "photo.png"


def jpeg(folder):
    Image.effect_noise((40, 30), 50).convert("RGB").save(folder / "photo.jpg")
    return folder / "photo.jpg"


def landmarks(folder):
    png(folder)
    return written("faces.csv", "image_name,part_0_x,part_0_y\nphoto.png,1,1\nphoto.png,3,4\n")(folder)


def state(folder):
    import torch

    return write_state(folder / "state.pt", {"w": torch.arange(100.0), "step": 3})


def digests(folder):
    return write_digests(folder / "SHA256SUMS", {"state.pt": digest_of_file(state(folder))})


def weights(folder):
    import torch

    torch.save({"1.weight": torch.arange(100.0), "1.running_mean": torch.zeros(100), "step": 3}, folder / "weights.pt")
    return folder / "weights.pt"


def hdf5(folder):
    pytest.importorskip("h5py")
    slow_causes.write_hdf5(folder / "x.h5", chunks=3, values=500)
    return folder / "x.h5"


def read_hdf5(open_hdf5, path):
    with open_hdf5(path) as file, ThreadPoolExecutor(2) as pool:
        return [form(file["x"], pool) for form in (slow_causes.read_slow, slow_causes.read_fast)]


def npz(folder):
    return scans.save(SCAN, folder)


def mhd(folder):
    folder = folder / "luna"
    folder.mkdir(exist_ok=True)
    header = {
        "DimSize": "32 32 8",
        "ElementSpacing": "5 6 20",
        "Offset": "0 0 0",
        "TransformMatrix": "1 0 0 0 1 0 0 0 1",
        "ElementType": "MET_SHORT",
        "CompressedData": "False",
        "ElementDataFile": "p.raw",
    }
    written("p.raw", (SCAN.stored * SCAN.slope + SCAN.intercept).astype("<i2").tobytes())(folder)
    written("annotations.csv", "seriesuid,coordX,coordY,coordZ,diameter_mm\np,30,30,60,9\n")(folder)
    return written("p.mhd", "".join(f"{key} = {value}\n" for key, value in header.items()))(folder)


def dicom(folder):
    """A slice of a series, of which the whole folder is read."""
    pytest.importorskip("pydicom")
    with contextlib.suppress(LabError):  # it is there already
        scans.save(SCAN, folder, "dicom")
    return sorted((folder / SCAN.name).glob("*.dcm"))[2]


def notebook(folder):
    cells = [nbformat.v4.new_markdown_cell("**Predict**: how many?"), nbformat.v4.new_code_cell("1 + 1")]
    return written("01_x.ipynb", nbformat.writes(nbformat.v4.new_notebook(cells=cells)))(folder)


def lab_report(folder):
    epochs = [EpochRow(1, 0.5, 1.5, 2.0, 0.7, None)]
    report = LabReport("train.py", "a machine", 2)
    report.keep("parts", "done", ["fine"], [Table("Epochs", epochs)], 3.0)
    return report.write(folder)


def trace(folder):
    call = {"cat": "cpu_op", "name": "aten::mm", "ts": 1.0, "dur": 5.0, "tid": 1, "args": {"External id": 7}}
    kernel = {"cat": "kernel", "name": "gemm", "ts": 2.0, "dur": 2.0, "tid": 7, "args": {"External id": 7}}
    events = [call, kernel, {"cat": "Trace", "name": "all", "ts": 0.0, "dur": 9.0, "tid": 1}]
    return written("trace.json", json.dumps({"traceEvents": events}))(folder)


SPEEDSCOPE = {"samples": [[0]], "weights": [1.0], "startValue": 0, "endValue": 1, "unit": "seconds"}
LINES = [{"name": "train", "file": "train.py", "line": 3}]
OPERATOR = {"operator": "aten::mm", "calls": 3, "self_ms": 1.0, "percent": 50.0, "total_ms": 2.0}
OUTCOME = {"slug": "xor", "state": "passed", "seconds": 1.0, "detail": ""}
MONITOR = "timestamp, pci.bus_id, power.draw [W], elapsed [s]\nnoon, 0000:01, 12.5 W, 0.5 s\nnoon, 0000:02, [N/A], 1.5 s\n"
DETECTIONS = {"format": 2, "pipeline": {}, "source": ["a", 1, 2, 3], "detections": [[1.0, 2.0, 3.0, 4.0, 0.5]]}

# {reader: [(how a valid file is written, how the reader is called)]}
PLAIN = lambda read, path: read(path)  # noqa: E731
LABEL_FILE = gzip.compress(bytes(10_008))
VALID = {
    "capstone.tools.folder_run._record": [(written("p.json", json.dumps(sealed_record(DETECTIONS))), PLAIN)],
    "capstone.tools.reading.read_annotations": [
        (written("annotations.csv", "seriesuid,coordX,coordY,coordZ,diameter_mm\np,30,30,60,9\n"), PLAIN)
    ],
    "capstone.tools.scans.load": [(npz, PLAIN), (mhd, PLAIN), (dicom, lambda read, path: read(path.parent))],
    "core.experiment.registry.load_result": [(written("r.json", json.dumps(sealed_record(RECORD))), PLAIN)],
    "core.experiment.result.load_record": [
        (written("r.json", json.dumps(sealed_record(RECORD))), lambda read, path: read(path, find("jacobian-vector")))
    ],
    "core.experiment.result_json.read_record": [(written("r.json", json.dumps(sealed_record(RECORD))), PLAIN)],
    "core.experiment.results_folder._content": [(written("predictions.json", json.dumps([{"cell": "x", "guess": 1}])), PLAIN)],
    "core.system.sealed.check_digests": [(digests, PLAIN)],
    "core.system.sealed.read_state": [(state, PLAIN)],
    "data.mnist.read_file": [
        (written("t10k-labels-idx1-ubyte.gz", LABEL_FILE), PLAIN),
        (written("t10k-labels-idx1-ubyte", bytes(10_008)), PLAIN),
    ],
    "profilers.monitor_table.read_csv": [(written("m.csv", MONITOR), PLAIN)],
    "profilers.operator_table.read_operators": [(written("o.json", json.dumps([OPERATOR])), PLAIN)],
    "profilers.operator_table.read_trace": [(trace, PLAIN)],
    "profilers.py_spy.read_speedscope": [
        (written("s.json", json.dumps({"shared": {"frames": [{"name": "f"}]}, "profiles": [SPEEDSCOPE]})), PLAIN)
    ],
    "profiling.lessons.slow_causes.open_hdf5": [(hdf5, read_hdf5)],
    "profiling.tools.nsys.read_nsys": [(written("n.sqlite", SHIPPED_REPORT.read_bytes()), PLAIN)],
    "references._outcomes": [(written("o.json", json.dumps([sealed_record(OUTCOME)])), PLAIN)],
    "report.notebook_texts._read_cells": [(notebook, PLAIN)],
    "storage.lessons.decoders.pil_image": [(png, PLAIN), (jpeg, PLAIN)],
    "storage.lessons.decoders.tensor_image": [(png, PLAIN), (jpeg, PLAIN)],
    "loading.tools.landmark_table.table_rows": [(landmarks, PLAIN)],
    "your_script.tools.lab_report.read_report": [(lab_report, PLAIN)],
    "your_script.tools.own_net.read_weights": [(weights, PLAIN)],
    "your_script.tools.from_outside.read_lines": [
        (written("s.json", json.dumps({"shared": {"frames": LINES}, "profiles": [SPEEDSCOPE | {"name": "main"}]})), PLAIN)
    ],
}
DAMAGED_ANYWAY = ("data.mnist.read_file",)  # whose valid content is MNIST itself, which is not here


def read_landmarks(read, path):
    return list(map(read(path, path.parent).__getitem__, range(len(read(path, path.parent)))))


def read_landmark_image(read, path):
    (path.parent / "faces.csv").write_text("image_name,part_0_x,part_0_y\nphoto.png,1,1\n", encoding="utf-8")
    return [read(path.parent / "faces.csv", path.parent)[0]]


FURTHER = [(FaceLandmarksDataset, landmarks, read_landmarks), (FaceLandmarksDataset, png, read_landmark_image)]


def test_each_reader_has_a_valid_file_here():
    assert {name.removeprefix("hpml_lab.") for name in READERS} == VALID.keys(), "add to VALID how a file for it is written"


CASES = [
    pytest.param(read, make, call, name in DAMAGED_ANYWAY, id=f"{name}-{number}")
    for name, read in sorted((name.removeprefix("hpml_lab."), read) for name, read in READERS.items())
    for number, (make, call) in enumerate(VALID.get(name, []))
] + [pytest.param(*case, False, id=f"landmarks-{number}") for number, case in enumerate(FURTHER)]


# ---- what may become of it ------------------------------------------------------------------------------------------------

STRANGE = [None, True, -1, 0, 10**400, 1e308, math.nan, math.inf, "", "x", "\0", [], {}, [[]], [None], {"a": {}}, [1] * 50]
CELLS = ["", "nan", "inf", "-1", "1e999", "9" * 5000, "x" * 200_000, '"', "\0", "é", ",,,,", "\n\n"]


def damaged_bytes(content, chance):
    """The content cut off, with flipped bits, doubled, and with other things in its place."""
    for _ in range(60):
        flipped = bytearray(content)
        for _ in range(chance.choice([1, 1, 8])):
            flipped[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        yield bytes(flipped)
    for _ in range(12):
        yield content[: chance.randrange(len(content))]
    for _ in range(6):  # a run of bytes that all say "as many as possible", or none
        at = chance.randrange(len(content))
        yield content[:at] + chance.choice([b"\xff", b"\x00"]) * 8 + content[at + 8 :]
    yield from (b"", b"\0", b"\xff\xfe", content + content, content + b"\0" * 100, chance.randbytes(3000), b"[" * 100_000)


def leaves(value, path=()):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from leaves(item, (*path, key))


def changed_json(content, chance):
    """A JSON text with one value replaced or removed, and the right digest, so that what reads it sees the change."""
    places = list(leaves(json.loads(content)))
    for _ in range(120):
        record = json.loads(content)
        *above, last = chance.choice(places)
        inner = record
        for key in above:
            inner = inner[key]
        if chance.random() < 0.2:
            del inner[last]
        else:
            inner[last] = chance.choice(STRANGE)
        if isinstance(record, list):
            record = [sealed_record(row) if isinstance(row, dict) and row.pop(DIGEST, None) else row for row in record]
        elif record.pop(DIGEST, None):
            record = sealed_record(record)
        yield json.dumps(record).encode()
    for value in STRANGE:
        yield json.dumps(value).encode()


def changed_table(content, chance, separator):
    """A text with one of its cells replaced, or one of its lines removed."""
    lines = [line.split(separator) for line in content.decode().splitlines()]
    for _ in range(80):
        table = [list(line) for line in lines]
        line = chance.choice(table)
        line[chance.randrange(len(line))] = chance.choice(CELLS)
        if chance.random() < 0.2:
            table.remove(chance.choice(table))
        yield "\n".join(separator.join(line) for line in table).encode()


def changed(path, content, chance):
    if path.suffix in (".json", ".ipynb"):
        yield from changed_json(content, chance)
    elif path.suffix in (".csv", ".mhd"):
        yield from changed_table(content, chance, "," if path.suffix == ".csv" else " = ")


@contextlib.contextmanager
def not_for_ever():
    """Fail where a reader waits for something that never comes."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def late(*_):
        pytest.fail("the reader does not end")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(HANG_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome(read, call, path):
    """The value, or the LabError; any other error fails the test that calls this."""
    with not_for_ever():
        try:
            return call(read, path)
        except LabError as error:
            named = (path.name, path.parent.name, *(each.name for each in path.parent.iterdir()))
            assert any(name in error.problem for name in named), f"{error.problem!r} does not name {path.name}"
            assert len(error.problem) < 1500 and error.fix
            return error


@pytest.mark.parametrize("read, make, call, refused", CASES)
def test_a_damaged_file_is_read_or_refused_by_name(read, make, call, refused, tmp_path):
    path = make(tmp_path)
    content = path.read_bytes()
    assert isinstance(outcome(read, call, path), LabError) == refused
    chance = random.Random(int(os.environ.get("HPML_SEED", "7")))
    found = [0, 0]
    for damage in (*damaged_bytes(content, chance), *changed(path, content, chance)):
        path.write_bytes(damage)
        try:
            found[isinstance(outcome(read, call, path), LabError)] += 1
        except Exception:
            (Path(os.environ.get("HPML_KEEP", tmp_path)) / f"failed-{path.name}").write_bytes(damage)
            raise
    assert found[1] >= 3, "an empty file, a piece of one and random bytes are none of any kind"


def put(path, what):
    """Something that is no regular file in the place of one."""
    path.unlink(missing_ok=True)
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "socket":
        with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(path.parent):  # a socket's path is short
            server.bind(path.name)
    elif what == "circle":
        path.with_name("there").symlink_to(path)
        path.symlink_to(path.with_name("there"))
    elif what != "absent":
        path.symlink_to(what)


SPECIAL = [
    "pipe",
    "/dev/zero",
    "/dev/urandom",
    "/dev/null",
    "folder",
    "socket",
    "circle",
    "nowhere",
    "absent",
    "/proc/self/mem",
]


@pytest.mark.skipif(os.name != "posix", reason="pipes, sockets, devices and links")
@pytest.mark.parametrize("what", SPECIAL)
@pytest.mark.parametrize("read, make, call, refused", CASES)
def test_what_is_no_file_is_refused_by_name(read, make, call, refused, what, tmp_path):
    path = make(tmp_path)
    put(path, what)
    found = outcome(read, call, path)
    assert isinstance(found, LabError) or path.suffix == ".dcm", "a series without what is no slice may be one"


@pytest.mark.parametrize("read, make, call, refused", CASES)
def test_a_file_that_is_too_large_is_not_read(read, make, call, refused, tmp_path, monkeypatch):
    path = make(tmp_path)
    if os.name == "posix":
        os.truncate(path, 1 << 43)  # it says that it has 8 TB, of which the disk holds none
        assert isinstance(outcome(read, call, path), LabError) or path.suffix == ".h5", "which is read in parts"


# ---- what is written and read again ---------------------------------------------------------------------------------------

STATES = {
    "core.system.sealed.read_state": lambda found: [found["step"], *found["w"].tolist()],
    "core.experiment.result.load_record": lambda result: result.tables,
    "capstone.tools.folder_run._record": dict,
    "references._outcomes": dict,
}


@pytest.mark.parametrize("name", STATES)
def test_no_flipped_bit_of_a_state_changes_what_is_loaded(name, tmp_path):
    make, call = VALID[name][0]
    path, read = make(tmp_path), READERS[f"hpml_lab.{name}"]
    content, expected, chance = path.read_bytes(), STATES[name](call(read, path)), random.Random(5)
    refused = 0
    for _ in range(300):
        flipped = bytearray(content)
        flipped[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        found = outcome(read, call, path)
        refused += isinstance(found, LabError)
        assert isinstance(found, LabError) or STATES[name](found) == expected
    assert refused > 200, "other bits are such that do not count, as a space in JSON"


# ---- the helpers ----------------------------------------------------------------------------------------------------------


def test_a_file_that_grows_beyond_the_limit_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = written("log", b"x" * 100)(tmp_path)
    monkeypatch.setattr(os, "fstat", lambda fd, real=os.fstat: os.stat_result((*real(fd)[:6], 10, *real(fd)[7:])))
    with pytest.raises(LabError, match="log has more than 50 bytes"):
        monkeypatch.setattr(os, "stat", lambda path, real=os.stat: os.stat_result((*real(path)[:6], 10, *real(path)[7:])))
        bytes_of(path, 50)
    assert bytes_of(path, 100) == b"x" * 100


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="files of the system's own")
def test_a_file_that_says_it_is_empty_is_read_whole():
    assert b"VmRSS" in bytes_of("/proc/self/status", 1 << 20)


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="no /proc here")
def test_a_file_of_the_system_that_never_ends_is_not_read_to_a_states_limit(monkeypatch):
    monkeypatch.setattr("hpml_lab.core.system.readers.RECORD", 100)
    assert os.stat("/proc/self/maps").st_size == 0
    with pytest.raises(LabError, match="more than 100 bytes"):
        bytes_of("/proc/self/maps", 1 << 36)


def test_other_errors_of_the_program_pass(tmp_path):
    from hpml_lab.core.system.readers import reading

    for error in (KeyboardInterrupt, SystemExit, GeneratorExit):
        with pytest.raises(error), reading(tmp_path / "x", "a table", "Write it again."):
            raise error
    with pytest.raises(LabError, match="x is not a table, or needs more memory"), reading(tmp_path / "x", "a table", "Go."):
        raise MemoryError


def test_an_error_of_the_block_is_not_taken_for_one_of_the_hdf5_file(tmp_path):
    with pytest.raises(ZeroDivisionError), slow_causes.open_hdf5(hdf5(tmp_path)):
        raise ZeroDivisionError
    with pytest.raises(LabError, match="x.h5 is not"), slow_causes.open_hdf5(tmp_path / "x.h5") as file:
        assert file["nothing of this name"]


# ---- no other way to a file -----------------------------------------------------------------------------------------------

OPENS = re.compile(
    r"open|.*\.(open|read_text|read_bytes|read_csv|memmap|fromfile)|(np|torch|nbformat)\.(load|read)|pickle\.load"
    r"|sqlite3\.connect|.*InferenceSession|(h5py\.|zipfile\.Zip|gzip\.Gzip)File|.*\.dcmread|.*decode_image"
)
OF_THE_SYSTEM = "the system's own files, and a terminal"
OF_THE_PACKAGE = "files of the package: sources, pages, skeletons, notebooks"
MADE_BY_US = "what this process, or one that it started, has just written into a folder of its own"
IN_MEMORY = "bytes that are in memory already"
OTHERWISE = {  # modules that open files without `readers`, and which
    "autograd/tools/torch_graphs.py": IN_MEMORY,
    "capstone/lessons/detector.py": OF_THE_PACKAGE,
    "cli/new.py": OF_THE_PACKAGE,
    "cli/notebooks.py": OF_THE_PACKAGE,
    "core/experiment/catalogue.py": OF_THE_PACKAGE,
    "core/judge/help.py": OF_THE_PACKAGE,
    "core/show/formula_figure.py": OF_THE_PACKAGE,
    "core/show/png.py": IN_MEMORY,
    "core/show/source.py": OF_THE_PACKAGE,
    "core/system/children.py": OF_THE_SYSTEM,
    "core/system/launcher.py": OF_THE_SYSTEM,
    "core/system/lazy.py": OF_THE_PACKAGE,
    "core/system/machine.py": OF_THE_SYSTEM,
    "core/system/rank_errors.py": MADE_BY_US,
    "core/timing/counting.py": MADE_BY_US,
    "core/timing/laps.py": OF_THE_SYSTEM,
    "course/assignment.py": OF_THE_PACKAGE,
    "course/lab_assignment.py": OF_THE_PACKAGE,
    "landscape/optimizer_lab/module.py": OF_THE_PACKAGE,
    "loading/experiments/face_landmarks/__init__.py": MADE_BY_US,
    "loading/experiments/slow_clips.py": MADE_BY_US,
    "processes/tools/segments.py": OF_THE_SYSTEM,
    "loading/experiments/exact_resume/killed_runs.py": MADE_BY_US,
    "profilers/foreground.py": OF_THE_SYSTEM,
    "profilers/operator_recorder.py": MADE_BY_US,
    "profilers/process_tree.py": OF_THE_SYSTEM,
    "profilers/energy.py": OF_THE_SYSTEM,
    "profilers/python_stacks.py": OF_THE_SYSTEM,
    "profilers/script_profile.py": MADE_BY_US,
    "profilers/thread_states.py": OF_THE_SYSTEM,
    "profiling/experiments/flame_graph/__init__.py": MADE_BY_US,
    "profiling/lessons/careless_training.py": MADE_BY_US,
    "profiling/lessons/slow_and_fast.py": MADE_BY_US,
    "profiling/lessons/slow_trainer.py": MADE_BY_US,
    "profiling/lessons/training_program.py": IN_MEMORY,
    "profiling/tools/perf.py": MADE_BY_US,
    "referee/changes.py": "the script that the reader names, whose lines are to be changed",
    "referee/copies.py": MADE_BY_US,
    "referee/in_the_script.py": OF_THE_SYSTEM,
    "serving/tools/engine_program.py": MADE_BY_US,
    "sharding/exercises/complete_snapshot.py": IN_MEMORY,
    "sharding/experiments/many_machines/__init__.py": MADE_BY_US,
    "sharding/experiments/many_machines/on_ranks.py": MADE_BY_US,
    "sharding/lessons/recovery.py": "snapshots, whose digest is in their names",
    "sharding/lessons/train.py": "a script to copy, which needs torch alone",
    "start/tools/doctor.py": OF_THE_PACKAGE,
    "start/tools/platform_settings.py": OF_THE_SYSTEM,
    "storage/experiments/dali/video.py": MADE_BY_US,
    "storage/experiments/disk_iops/page_cache.py": OF_THE_SYSTEM,
    "storage/experiments/io_vs_compute/timed_epochs.py": MADE_BY_US,
    "tensors/experiments/cpu_vs_gpu/memories.py": OF_THE_SYSTEM,
    "your_script/lessons/lab_training.py": "a script to copy, which needs torch alone",
    "your_script/lessons/text_training.py": "a script to copy, which needs torch alone",
    "your_script/tools/lab.py": "the reader's own script, of which it keeps the sha256",
    "your_script/views/lab_notebook.py": OF_THE_PACKAGE,
}


def opens(tree):
    """The calls of a module that open a file to read it, or parse one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and OPENS.fullmatch(name := ast.unparse(node.func)) and name != "os.open":
            modes = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
            if not any(isinstance(mode, str) and re.fullmatch("[wxa]b?", mode) for mode in modes):
                yield f"line {node.lineno}: {name}"


def test_calls_that_open_files_are_found():
    found = 'open(p)\np.open("rb")\np.read_text()\nnp.load(p)\ntorch.load(p)\nsqlite3.connect(p)\nh5py.File(p)\nImage.open(p)\n'
    passed = 'open(p, "w")\np.open("ab")\nos.open(p, flags)\nopen_file(p, 1)\njson.loads(text)\n'
    assert len(list(opens(ast.parse(found + passed)))) == 8


def test_a_module_opens_files_as_readers_do_or_says_which():
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "from hpml_lab.core.system.readers import" not in text and path.name != "readers.py":
            found[path.relative_to(PACKAGE).as_posix()] = list(opens(ast.parse(text)))
    found = {module: calls for module, calls in found.items() if calls}
    assert found.keys() == OTHERWISE.keys(), (
        "a file that someone hands over is opened by core/system/readers.py, in a function with @reader; name a module that"
        f" opens others in OTHERWISE: {[(module, found.get(module)) for module in found.keys() ^ OTHERWISE.keys()]}"
    )
