"""Serving engines: exported models, engines that leave nothing behind, a client with time limits, and the same traffic for all.

One test runs the real engines on loopback, for a moment; servers that are slow or die are small programs and objects.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import Future
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch
from torch import nn

from hpml_lab import serving
from hpml_lab.core.experiment import Result
from hpml_lab.core.system.errors import LabError
from hpml_lab.serving.experiments import serving_engines as experiment
from hpml_lab.serving.experiments.serving_engines import EngineTraffic, load_test
from hpml_lab.serving.experiments.serving_engines.load_test import Load, Served, serve_in_turns
from hpml_lab.serving.lessons.traffic import Request
from hpml_lab.serving.tools import array_message, onnx_models
from hpml_lab.serving.tools.engine_program import engine_program, is_gone
from hpml_lab.serving.tools.http_client import HttpClient
from hpml_lab.serving.tools.onnx_models import OnnxEquality
from hpml_lab.serving.tools.onnx_session import CPU, CUDA, OnnxSession, choose_provider

SMALL = dict(calm=(200, 4), busy=(400, 24), turns=1, limit=4, window_seconds=0.002, samples=5)
EXPECTED = np.arange(1.0, 5.0, dtype=np.float32)[:, None]  # of four inputs
posix = pytest.mark.skipif(os.name != "posix", reason="signals and process groups")


# ---- the engines themselves ------------------------------------------------------------------------------------------


engines = pytest.mark.environment("ONNX Runtime and LitServe, as in notebook 20", files=("hpml_lab/serving",))


@pytest.fixture(scope="module")
def result(ran):
    for package in ("onnxruntime", "onnxscript", "litserve"):
        pytest.importorskip(package)
    return ran("serving-engines")


@engines
def test_all_engines_answer_rightly_and_leave_nothing(result, sound):
    sound(result)
    rows = result.rows(EngineTraffic)
    assert [(row.engine, row.load) for row in rows] == [
        (name, load) for load in ("calm", "busy") for name in experiment.SERVERS
    ]
    assert {row.note for row in rows} == {""}
    size = serving.serving_engines.quick
    calm, busy = (size["turns"] * count for _, count in (size["calm"], size["busy"]))
    assert [row.requests for row in rows] == [calm] * 4 + [busy] * 4 and {row.failed for row in rows} == {0}
    batch = {row.engine: row.mean_batch for row in rows if row.load == "busy"}
    assert batch[experiment.LIT_ALONE] == 1 and all(1 <= mean <= size["limit"] for mean in batch.values())
    assert result.checks[0].holds and "left" in result.checks[0].text
    assert serving.busy_latency_over_time(result).figure.axes[0].get_xlabel()
    assert set(result.arrays["busy"]) == set(experiment.SERVERS)


@engines
def test_onnx_runtime_gives_torchs_outputs(result):
    rows = result.rows(OnnxEquality)
    assert [row.batch for row in rows] == [1, 3, 16]
    assert all(0 < row.difference < 1e-5 for row in rows), "equal, and not compared with itself"


def test_without_onnx_runtime_its_rows_say_so_and_torch_is_served(on_digits, sound, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    alone = on_digits("serving-engines", **SMALL)
    sound(alone)
    rows = alone.rows(EngineTraffic)
    assert [row.requests for row in rows if row.engine == experiment.TORCH] == [4, 24]
    missing = [row for row in rows if row.engine != experiment.TORCH]
    assert len(missing) == 6 and all("onnxruntime is not installed" in row.note and row.p50_ms is None for row in missing)
    assert sum("pip install onnxruntime" in note for note in alone.notes) == 1, "said once for all of them"
    assert not alone.rows(OnnxEquality) and not alone.checks


def test_without_litserve_only_its_rows_are_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "litserve", None)
    found, faults = experiment.programs(Path("model.onnx"), CPU, SimpleNamespace(limit=4, window_seconds=0.0))
    assert found == {} and list(faults) == [experiment.LIT_ALONE, experiment.LIT_BATCHED]
    rows = experiment.rows_of({}, faults, [Load("calm", 10, 5)])
    assert [row.note for row in rows[2:]] == ["litserve is not installed. pip install litserve"] * 2


def test_a_gpu_without_a_cuda_build_of_onnx_runtime_is_said(monkeypatch):
    runtime = SimpleNamespace(get_available_providers=lambda: ["AzureExecutionProvider", CPU])
    monkeypatch.setitem(sys.modules, "onnxruntime", runtime)
    served = {(experiment.TORCH, "busy"): Served([[Request(0, 0, 1)]])}
    gpu, cpu = SimpleNamespace(is_cuda=True), SimpleNamespace(is_cuda=False)
    assert choose_provider(True) == CPU == choose_provider(False)
    assert any(CUDA in note and "onnxruntime-gpu" in note for note in experiment.notes({}, gpu, served, Load("busy", 1, 1)))
    assert not any(CUDA in note for note in experiment.notes({}, cpu, served, Load("busy", 1, 1)))
    runtime.get_available_providers = lambda: [CUDA, CPU]
    assert choose_provider(True) == CUDA and choose_provider(False) == CPU


# ---- engines that fail -----------------------------------------------------------------------------------------------


@pytest.fixture
def program(tmp_path, monkeypatch):
    """(source) -> the name of a module that an engine can be; its settings are `settings`."""

    def write(source):
        head = "import json, os, pathlib, signal, subprocess, sys, time\nsettings = json.loads(sys.argv[1])\n"
        (tmp_path / "test_engine.py").write_text(head + textwrap.dedent(source))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        return "test_engine"

    return write


def test_an_engine_that_ends_at_its_start_is_named_with_its_last_line(program):
    module = program("print('loading')\nsys.exit('no such model: ' + settings['model'])")
    with engine_program(module, {"model": "a.onnx"}, name="some engine") as engine:
        with pytest.raises(LabError, match="some engine, start: the program ended with exit code 1. .*no such model: a.onnx"):
            engine.wait_until_ready()
    assert is_gone(engine)


def test_an_engine_that_never_gets_ready_is_given_up(program):
    module = program("print('still loading', flush=True)\ntime.sleep(1000)")
    with engine_program(module, {}, name="slow engine") as engine:
        with pytest.raises(LabError, match="slow engine, start: it was not ready within 0.2 s"):
            engine.wait_until_ready(0.2)
    assert is_gone(engine)


def test_of_several_engines_those_that_start_are_used(program):
    module = program(
        """
        if not settings["works"]:
            sys.exit("it does not work")
        time.sleep(1000)
        """
    )
    with load_test.engines({"good": (module, {"works": True}), "bad": (module, {"works": False})}) as running:
        running["good"].wait_until_ready = lambda: 1
        found, faults = load_test.ready(running)
        both = list(running.values())
    assert list(found) == ["good"] and list(faults) == ["bad"] and "it does not work" in faults["bad"]
    assert load_test.left_behind(both) == []


STUBBORN = """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    pathlib.Path(os.environ["TMPDIR"], "left.txt").write_text("x")
    pathlib.Path(settings["tell"]).write_text(f"{os.environ['TMPDIR']} {child.pid}")
    time.sleep(1000)
"""


def read_when_there(path, seconds=60.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if path.exists() and len(words := path.read_text().split()) == 2:
            return words
        time.sleep(0.01)
    raise AssertionError(f"{path.name} was not written")


@posix
@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_whatever_happens_no_process_and_no_file_is_left(program, tmp_path, nothing_left, error, paused):
    module, tell = program(STUBBORN), tmp_path / "tell"
    with pytest.raises(error), engine_program(module, {"tell": str(tell)}, name="stubborn", stop_seconds=0.05) as engine:
        folder, child = read_when_there(tell)
        if paused:
            engine.pause()
        raise error
    assert is_gone(engine) and not Path(folder).exists()
    assert not psutil.pid_exists(int(child)) or psutil.Process(int(child)).status() == psutil.STATUS_ZOMBIE


OUTLIVING = """
    from http.server import BaseHTTPRequestHandler, HTTPServer
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == settings["health"] else 404)
            self.end_headers()
    if os.fork() == 0:  # a process that leaves the engine's group, and serves on
        os.setsid()
        with HTTPServer(("127.0.0.1", 0), Handler) as server:
            pathlib.Path(settings["tell"]).write_text(f"serving {os.getpid()}")
            pathlib.Path(settings["port_file"]).write_text(str(server.server_port))
            server.serve_forever()
    time.sleep(1000)
"""


@posix
def test_an_engine_whose_port_still_answers_is_not_gone(program, tmp_path):
    module, tell = program(OUTLIVING), tmp_path / "tell"
    with engine_program(module, {"tell": str(tell)}, name="outliving", stop_seconds=0.05) as engine:
        engine.wait_until_ready()
    try:
        assert not is_gone(engine)
    finally:
        os.kill(int(read_when_there(tell)[1]), signal.SIGKILL)


@posix
def test_a_paused_engine_is_asked_to_end_and_cleans_up_itself(program, tmp_path):
    module, tell, ended = (
        program(
            """
        import threading
        threading.Thread(target=time.sleep, args=[1000], daemon=True).start()  # it could take the interrupt
        reader, writer = os.pipe()
        try:
            pathlib.Path(settings["tell"]).write_text(f"running {os.getpid()}")
            os.read(reader, 1)  # for ever
        except KeyboardInterrupt:
            pathlib.Path(settings["ended"]).write_text("cleaned up")
        """
        ),
        tmp_path / "tell",
        tmp_path / "ended",
    )
    settings = {"tell": str(tell), "ended": str(ended)}
    with engine_program(module, settings, name="engine", stop_seconds=60) as engine:
        read_when_there(tell)
        # Between the telling and the waiting an interrupt would be noted, and the thread would wait nevertheless.
        while psutil.Process(engine.process.pid).status() != psutil.STATUS_SLEEPING:
            time.sleep(0.01)
        engine.pause()
    assert ended.read_text() == "cleaned up" and engine.process.returncode == 0 and is_gone(engine)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends children with their parent on Linux")
def test_an_engine_ends_when_this_process_is_killed(program, tmp_path):
    module = program(
        """
        from hpml_lab.core.system.children import end_with_parent
        end_with_parent(settings["parent"])
        pathlib.Path(settings["tell"]).write_text(f"running {os.getpid()}")
        time.sleep(1000)
        """
    )
    tell = tmp_path / "tell"
    code = f"""
        import sys, time
        from hpml_lab.serving.tools.engine_program import engine_program
        with engine_program({module!r}, {{"tell": sys.argv[1]}}, name="orphan"):
            time.sleep(1000)
    """
    environment = {**os.environ, "TMPDIR": str(tmp_path)}  # a killed process cannot delete its files: pytest does
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), str(tell)], env=environment)
    try:
        _, engine = read_when_there(tell)
        running = psutil.Process(int(engine))
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    end = time.monotonic() + 60
    while running.is_running() and running.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end, "the engine outlived its parent"
        time.sleep(0.01)


# ---- traffic, with servers of our own making -------------------------------------------------------------------------


class FakeRoute:
    """A server in this process: `answer(index)` gives the output, or raises."""

    def __init__(self, answer, fault=lambda: ""):
        self.answer, self.fault, self.log = answer, fault, []

    def submit(self, index):
        future = Future()
        try:
            future.set_result(self.answer(index))
        except LabError as error:
            future.set_exception(error)
        return future

    def read(self, answer):
        return answer, 2

    def pause(self):
        self.log.append("pause")

    def resume(self):
        self.log.append("resume")


def right(index):
    return EXPECTED[index]


def broken(index):
    raise LabError("the model is gone.", "Restart it.")


LOADS = [Load("calm", 2000, 3), Load("busy", 5000, 10)]


def test_each_server_gets_the_same_moments_in_turns_while_the_others_rest():
    routes = {name: FakeRoute(right) for name in "ab"}
    served, faults = serve_in_turns(routes, LOADS, EXPECTED, turns=2)
    assert faults == {} and set(served) == {(name, load) for name in "ab" for load in ("calm", "busy")}
    for load, count in (("calm", 3), ("busy", 10)):
        a, b = served["a", load], served["b", load]
        assert [len(turn) for turn in a.turns] == [count, count]
        assert [request.due for request in a.requests] == [request.due for request in b.requests]
        assert [request.due for request in a.turns[0]] != [request.due for request in a.turns[1]]
        assert a.differences == [0.0] * 2 * count and a.mean_batch == 2
    assert routes["a"].log == ["pause", "resume", "pause", "resume", "pause"]


def test_a_server_that_dies_is_named_and_the_others_go_on():
    answers = iter(range(load_test.WARM_UP + 5))  # the last five are of the first calm turn and two of the busy one

    def dying(index):
        if next(answers, None) is None:
            raise LabError("connection refused.", "")
        return right(index)

    def fault():
        return "the program was ended by signal 9." if answers.__length_hint__() == 0 else ""

    routes = {"dying": FakeRoute(dying, fault), "good": FakeRoute(right)}
    served, faults = serve_in_turns(routes, LOADS, EXPECTED, turns=3)
    assert faults == {"dying": "dying, traffic (busy, turn 1): the program was ended by signal 9."}
    assert [len(served["dying", load].batches) for load in ("calm", "busy")] == [3, 2], "what it answered is kept"
    assert sum(bool(request.error) for request in served["dying", "busy"].requests) == 8
    assert [len(served["good", load].batches) for load in ("calm", "busy")] == [9, 30]


def test_a_server_that_answers_nothing_is_left_out_after_the_warm_up():
    routes = {"broken": FakeRoute(broken), "good": FakeRoute(right)}
    served, faults = serve_in_turns(routes, LOADS, EXPECTED, turns=2)
    assert list(faults) == ["broken"] and faults["broken"].startswith(
        "broken, warm-up (turn 1): 16 of 16 requests were not answered"
    )
    assert "the model is gone" in faults["broken"]
    assert served["broken", "calm"].requests == [] and len(served["good", "calm"].requests) == 6


def test_a_server_whose_answers_cannot_be_read_is_left_out():
    other = FakeRoute(right)
    other.read = lambda answer: array_message.decode(b"<html>")
    served, faults = serve_in_turns({"other": other, "good": FakeRoute(right)}, LOADS, EXPECTED, turns=2)
    assert list(faults) == ["other"] and "other, traffic (calm, turn 1): an answer cannot be read" in faults["other"]
    assert len(served["good", "busy"].batches) == 20 and not served["other", "calm"].batches


def test_answers_that_were_exchanged_are_seen():
    served, _ = serve_in_turns({"mixed": FakeRoute(lambda index: EXPECTED[(index + 1) % 4])}, LOADS, EXPECTED)
    result = Result()
    experiment.judge_traffic(result, served, "calm", "busy")
    assert [claim.holds for claim in result.claims if "for the same request" in claim.text] == [False]


def test_an_output_of_another_shape_or_with_nan_is_infinitely_far():
    assert onnx_models.relative_difference(EXPECTED[:2], EXPECTED) == float("inf")
    assert onnx_models.relative_difference(EXPECTED * float("nan"), EXPECTED) == float("inf")
    assert onnx_models.relative_difference(EXPECTED + 0.4, EXPECTED) == pytest.approx(0.1)


def test_a_batch_counts_once_and_throughput_is_over_the_seconds_of_all_turns():
    turn = [Request(0.0, 0.0, 1.0), Request(1.0, 1.0, 2.0), Request(1.5, 1.5, 9.0, "no answer")]
    served = Served([turn, turn], [0.0] * 4, [4, 4, 4, 4])
    assert served.mean_batch == 4 and served.throughput == pytest.approx(4 / 4.0)
    assert Served(batches=[1, 3, 3, 3]).mean_batch == pytest.approx(2)
    assert Served().mean_batch == 0 == Served().throughput


def test_a_row_tells_what_failed():
    turn = [Request(0.0, 0.0, 0.004), Request(0.0, 0.0, 5.0, "LabError: no answer within 5 s.")]
    served = {(name, "calm"): Served([turn], [0.0], [1]) for name in experiment.SERVERS[:2]}
    served[experiment.LIT_ALONE, "calm"] = Served([[turn[1]]])
    rows = experiment.rows_of(served, {experiment.LIT_ALONE: "gone"}, [Load("calm", 10, 2)])
    assert [(row.requests, row.failed, row.p99_ms) for row in rows[:2]] == [(2, 1, 4.0)] * 2
    assert rows[0].note == "the first error: LabError: no answer within 5 s."
    assert (rows[2].requests, rows[2].failed, rows[2].p50_ms, rows[2].note) == (1, 1, None, "gone")
    assert (rows[3].requests, rows[3].note) == (None, "it did not run")


# ---- the client ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body, said", [(b'{"detail": "NaN in a slice"}', "NaN in a slice"), (b"<h1>out of\norder</h1>", "out of order")]
)
def test_an_error_of_the_server_is_one_of_the_request(body, said):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            asked = self.rfile.read(int(self.headers["Content-Length"]))
            answer, status = (body, 500) if asked == b"bad" else (asked, 200)
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        with HttpClient(server.server_port, connections=1) as client:
            assert client.submit(b"good").result() == b"good"
            with pytest.raises(LabError, match=f"the server answered 500: .*{said}"):
                client.submit(b"bad").result()
            assert client.submit(b"good").result() == b"good", "the connection serves the next request"
        server.shutdown()
        thread.join()


def test_a_server_that_does_not_answer_is_given_up_in_time():
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        port = silent.getsockname()[1]
        with HttpClient(port, connections=1, timeout_seconds=0.05) as client:
            with pytest.raises(LabError, match="no answer within 0.05 s"):
                client.submit(b"{}").result()
    with HttpClient(port, connections=1) as client, pytest.raises(ConnectionRefusedError):
        client.submit(b"{}").result()


@pytest.mark.parametrize("connected", [True, False], ids=["waits", "about to connect"])
def test_closing_the_client_ends_what_is_under_way(connected):
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        client = HttpClient(silent.getsockname()[1], connections=1, timeout_seconds=1000)
        future, waits = client.submit(b"{}"), client.submit(b"{}")
        if connected:
            connection, _ = silent.accept()
            assert connection.recv(10)
        client.close()
        assert future.cancelled() or future.exception() is not None
        assert waits.cancelled() or waits.exception() is not None
        if connected:
            connection.close()


def test_arrays_cross_as_they_are_and_damaged_ones_are_refused():
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    message = array_message.pack(x[:, ::2])
    assert array_message.unpack(message).tobytes() == np.ascontiguousarray(x[:, ::2]).tobytes()
    for damaged in (
        {},
        {**message, "shape": [5]},
        {**message, "data": "*"},
        {**message, "shape": None},
        {**message, "data": 1},
    ):
        with pytest.raises(LabError, match="a message holds no array"):
            array_message.unpack(damaged)
    for answer in (b"<html>", b"{}", json.dumps({**message, "batch": "many"}).encode()):
        with pytest.raises(LabError):
            array_message.decode(answer)


# ---- exported models -------------------------------------------------------------------------------------------------


class Deciding(nn.Module):
    """Its way depends on values, which no export can follow."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(x) if x.sum() > 0 else x


def test_a_model_is_exported_in_evaluation_mode_for_any_batch():
    pytest.importorskip("onnxruntime"), pytest.importorskip("onnxscript")
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).train()
    file = onnx_models.export_onnx(model, (3,))
    assert model.training and model[1].num_batches_tracked == 0
    session, x = OnnxSession(file), torch.randn(5, 3)
    expected = model.eval()(x).detach().numpy()
    assert np.allclose(session(x.numpy()), expected, atol=1e-6) and session.provider == CPU
    assert np.allclose(session(x[:1].double().numpy()), expected[:1], atol=1e-6), "another type is converted"
    with pytest.raises(LabError, match="torch cannot export this Deciding"):
        onnx_models.export_onnx(Deciding(), (3,))


def test_a_damaged_file_is_refused(tmp_path):
    pytest.importorskip("onnxruntime")
    (tmp_path / "half.onnx").write_bytes(b"\x08\x0a\x12")
    for model in (b"not a model", tmp_path / "half.onnx", tmp_path / "absent.onnx"):
        with pytest.raises(LabError, match="ONNX Runtime does not read"):
            OnnxSession(model)


@pytest.mark.skipif(os.name != "posix", reason="a named pipe")
def test_an_engine_does_not_wait_for_who_writes_into_a_pipe(tmp_path):
    pytest.importorskip("onnxruntime")
    os.mkfifo(tmp_path / "model.onnx")
    with pytest.raises(LabError, match="ONNX Runtime does not read model.onnx .* is a pipe"):
        OnnxSession(tmp_path / "model.onnx")


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_what_the_export_needs_is_named(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(LabError, match=f"{package} is not installed in this Python. pip install {package}"):
        onnx_models.export_onnx(nn.Linear(2, 2), (2,))
