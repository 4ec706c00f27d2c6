"""The classifier of bottlenecks: its decisions on fixed evidence, what the watch sees, and the row."""

import _thread
import os
import subprocess
import sys
import threading
import time
from dataclasses import fields, replace
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader

from hpml_lab.core.experiment import Result
from hpml_lab.core.timing.clock import ceiling
from hpml_lab.core.timing.timeline import Span
from hpml_lab.profilers.thread_states import Watch, shares_of_successors
from hpml_lab.profiling.experiments.bottleneck_classes import LOOPS, MeasuredLoop, WrittenLoop, judge_loops, known_loops
from hpml_lab.profiling.experiments.bottleneck_classes.known_gpu_loops import WRITTEN, on_gpu
from hpml_lab.profiling.experiments.bottleneck_classes.known_loops import ON_HOST, SlowSamples, hash_for, in_threads, spin
from hpml_lab.profiling.lessons.bottleneck import BOUNDS, CANNOT_TELL, SHORTEST, Evidence, classify, decide
from hpml_lab.profiling.tools import device_work
from hpml_lab.profiling.tools.device_work import device_evidence, device_spans, least_seconds

HOST = Evidence(seconds=1.0, cores=8)
GPU = replace(HOST, kernels=0.9, cores_used=1.0, cores_wanted=1.0, busiest=1.0)

FIXED = [
    ("input", replace(HOST, input_wait=0.9, cores_wanted=0.2, busiest=0.1, busiest_worker=0.1)),
    ("input", replace(HOST, input_wait=0.7, cores_wanted=3.2, workers=3.1, busiest_worker=0.2)),  # 16 workers that mostly wait
    ("CPU", replace(HOST, input_wait=0.7, cores_wanted=4.0, workers=3.8, busiest=0.95, busiest_worker=0.95)),
    ("CPU", replace(HOST, cores_used=3.0, cores_wanted=3.0, busiest=1.0)),
    ("CPU", replace(HOST, cores_used=0.5, cores_wanted=3.0, busiest=1.0)),  # others have the cores
    ("single thread", replace(HOST, cores_used=1.0, cores_wanted=1.0, busiest=0.98)),
    ("single thread", replace(HOST, cores_used=0.3, cores_wanted=1.0, busiest=0.98)),
    ("single thread", replace(HOST, cores_used=1.0, cores_wanted=1.0, busiest=0.97, handed_over=0.5, kernels=0.3)),  # launches
    ("single thread", replace(HOST, input_wait=0.8, cores_wanted=1.1, workers=0.95, busiest=0.95, busiest_worker=0.95)),
    ("lock", replace(HOST, cores_used=1.0, cores_wanted=1.0, busiest=0.3, lock_wait=2.9, lock_threads=4)),
    ("lock", replace(HOST, cores_used=0.0, cores_wanted=0.1, lock_wait=1.6, lock_threads=3)),
    ("transfer", replace(HOST, copies=0.8, kernels=0.1, unknown_wait=0.8)),
    ("GPU compute", replace(GPU, compute=0.8, memory=0.1)),
    ("GPU memory", replace(GPU, compute=0.1, memory=0.9)),
    (CANNOT_TELL, replace(GPU, compute=0.6, memory=0.5)),  # both ceilings near
    (CANNOT_TELL, replace(GPU, compute=0.1, memory=0.2)),  # neither
    (CANNOT_TELL, replace(HOST, kernels=0.4, copies=0.3)),
    (CANNOT_TELL, replace(HOST, kernels=0.5, cores_wanted=0.5, busiest=0.5)),
    (CANNOT_TELL, replace(HOST, input_wait=0.5, cores_wanted=0.5, busiest=0.5)),
    (CANNOT_TELL, replace(HOST, input_wait=0.7, cores_wanted=1.4, workers=1.3, busiest_worker=0.5)),
    (CANNOT_TELL, replace(HOST, input_wait=0.8, cores_wanted=1.5, workers=1.4, busiest=0.95, busiest_worker=0.95)),
    (CANNOT_TELL, replace(HOST, unknown_wait=0.9)),
    (CANNOT_TELL, replace(HOST, cores_wanted=1.4, busiest=0.9)),
    (CANNOT_TELL, replace(HOST, cores_wanted=2.5, busiest=0.9, lock_wait=0.3, lock_threads=3)),
    (CANNOT_TELL, replace(HOST, cores_wanted=2.5, busiest=0.9, interpreter=0.3)),  # threads of Python on a busy machine
    (CANNOT_TELL, replace(HOST, seconds=0.01, cores_wanted=1.0, busiest=1.0)),
]


def others_had_the_cores(seen: Evidence) -> bool:
    """Whether a measured loop waited for a core, which other programs had, longer than it used one."""
    return seen.cores_wanted > 2 * seen.cores_used


@pytest.mark.parametrize(("bound", "evidence"), FIXED)
def test_a_decision_follows_from_the_evidence_alone(bound, evidence):
    diagnosis = decide(evidence)
    assert diagnosis.bound == bound, diagnosis.reason
    assert diagnosis.evidence is evidence and diagnosis.reason


def test_a_reason_tells_the_figures_that_it_goes_by():
    seen = replace(HOST, cores_used=1.0, cores_wanted=1.0, busiest=0.98, input_wait=0.1)
    assert decide(seen).reason == "one thread asks for 98% of a core, all together for 1.0 of 8"
    assert decide(replace(seen, input_run=0.9)).reason.endswith(", in the input")
    assert decide(replace(HOST, cores_used=3.0, cores_wanted=4.0, busiest=1.0)).reason.endswith("ask for 4.0 of 8 cores")
    lock = replace(HOST, cores_used=1.0, cores_wanted=1.2, lock_wait=2.9, lock_threads=4, where="a.py:7")
    assert decide(lock).reason == "2.9 threads wait for a lock, 1.0 cores are in use, most at a.py:7"
    waits = replace(HOST, input_wait=0.7, cores_wanted=4.0, workers=3.8, busiest_worker=0.95)
    assert decide(waits).reason == "the loop waits for its input for 70% of the time, and its workers ask for 3.8 of 8 cores"
    assert decide(replace(GPU, compute=0.8, memory=0.1)).reason.endswith(
        "90% of the time, and at the ceiling their FLOPs need 80% of it"
    )
    assert decide(replace(GPU, compute=0.1, memory=0.7)).reason.endswith("at the ceiling their bytes need 70% of it")


def written_ceiling(device, dtype=torch.float32, tf32=False):
    gflop_per_s = {(torch.float32, False): 2.0, (torch.float32, True): 16.0, (torch.bfloat16, False): 8.0}
    return SimpleNamespace(gflop_per_s=gflop_per_s[dtype, tf32], gb_per_s=4.0)


def test_tensors_of_the_host_are_no_work_of_the_device(monkeypatch):
    monkeypatch.setattr(device_work, "ceiling", written_ceiling)
    host, there = torch.ones(10, 10), torch.ones(10, 10, device="meta")

    def loop():
        (host @ host).sum()  # what a loader does
        there.copy_(host)  # a copy is no kernel
        host.to("meta")
        there @ there

    compute, memory = least_seconds(loop, torch.device("meta"))
    assert compute == pytest.approx(2000 / 2e9) and memory == pytest.approx(3 * 400 / 4e9)
    assert least_seconds(lambda: host @ host, torch.device("meta")) == (0, 0.0)


@pytest.mark.parametrize("allowed", [True, False])
def test_convolutions_in_tf32_are_set_against_the_ceiling_of_tf32(monkeypatch, allowed):
    monkeypatch.setattr(device_work, "ceiling", written_ceiling)
    net = torch.nn.Conv2d(3, 4, 3, bias=False, device="meta")
    x = torch.ones(1, 3, 10, 10, device="meta")
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=allowed):
        compute, _ = least_seconds(lambda: net(x).sum().backward(), torch.device("meta"))
    forward = 2 * 4 * 8 * 8 * 3 * 3 * 3
    assert compute == pytest.approx(2 * forward / (16e9 if allowed else 2e9)), "the output, and the weight's gradient"


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_a_large_product_of_the_ceiling_leaves_torchs_setting_as_it_was():
    before = torch.backends.cuda.matmul.fp32_precision
    with pytest.raises(RuntimeError):  # nothing multiplies on this device: it fails within
        ceiling("cpu", torch.complex32, tf32=True)
    assert torch.backends.cuda.matmul.fp32_precision == before


def test_a_wait_for_a_thread_that_python_does_not_know_is_no_wait_for_a_lock():
    """As in a backward pass on a GPU: autograd's own thread launches the kernels, and the caller waits for it."""
    go, done, over = _thread.allocate_lock(), _thread.allocate_lock(), threading.Event()
    go.acquire(), done.acquire()

    def work_in_its_place():
        while go.acquire() and not over.is_set():
            hash_for(0.004)
            done.release()
        done.release()

    def loop():
        for _ in range(60):
            hash_for(0.004)
            go.release()
            done.acquire()

    _thread.start_new_thread(work_in_its_place, ())
    try:
        diagnosis = classify(loop)
    finally:
        over.set()
        go.release()
        done.acquire()
    seen = diagnosis.evidence
    assert seen.handed_over > 0.1, seen
    # On a busy machine both also wait for the interpreter, whose holder waits for a core.
    assert seen.handed_over > seen.lock_wait or others_had_the_cores(seen), seen
    assert seen.busiest > seen.handed_over + 0.1, "both halves are one thread's worth"
    assert diagnosis.bound in ("single thread", CANNOT_TELL), seen  # other programs may hold both up


def test_flops_of_each_type_are_summed_and_set_against_the_ceilings(monkeypatch):
    monkeypatch.setattr(device_work, "ceiling", written_ceiling)
    a, half = torch.ones(10, 10), torch.ones(10, 10, dtype=torch.bfloat16)
    compute, memory = least_seconds(lambda: (a @ a, a @ a, half @ half), torch.device("cpu"))
    assert compute == pytest.approx(2 * 2000 / 2e9 + 2000 / 8e9)
    assert memory == pytest.approx((2 * 3 * 400 + 3 * 200) / 4e9), "two operands and a result each"


def test_every_bound_can_be_named_and_none_other():
    assert {decide(evidence).bound for _, evidence in FIXED} == {*BOUNDS, CANNOT_TELL}


def test_known_loops_cover_every_bound():
    assert {loop.truth for loop in (*ON_HOST, *WRITTEN)} == {*BOUNDS, CANNOT_TELL}
    assert len(ON_HOST) >= 14 and sum(loop.truth == CANNOT_TELL for loop in ON_HOST) >= 2
    assert all(loop.name.startswith("written: ") for loop in WRITTEN), "what was not measured says so"


@pytest.mark.parametrize("known", WRITTEN, ids=lambda known: known.name)
def test_a_written_time_line_has_its_bound_and_a_loop_too_short_to_be_watched_has_none(known):
    assert decide(known.evidence).bound == known.truth
    assert decide(replace(known.evidence, seconds=SHORTEST / 2)).bound == CANNOT_TELL


def test_the_row_bottleneck_classes_is_sound(sound, ran):
    result = ran("bottleneck-classes")
    sound(result)
    assert len(result.rows(MeasuredLoop)) == result.here(LOOPS) == len(ON_HOST)
    assert len(result.rows(WrittenLoop)) == len(WRITTEN)


def judged(*pairs):
    """Whether each of the two claims holds for loops with a (known, named) bound."""
    result = Result()
    rows = [MeasuredLoop("a loop", known, named, "", 0.0, 0.0, 0.0, 0.0, 0.0) for known, named in pairs]
    judge_loops(result, rows)
    assert result.here(LOOPS) == len(pairs)
    return [claim.holds for claim in result.claims]


def test_a_classifier_is_judged_by_the_kinds_of_bound_that_it_knows_and_never_may_be_wrong():
    slow_host = ("CPU", "CPU"), ("CPU", CANNOT_TELL), ("CPU", CANNOT_TELL), ("lock", "lock"), (CANNOT_TELL, CANNOT_TELL)
    assert judged(*slow_host) == [True, True], "what it cannot tell on a slow host is no wrong answer"
    many = [("input", "input")] * 12
    assert judged(*many, ("GPU compute", CANNOT_TELL)) == [False, True], "a kind that it never names is missed"
    assert judged(*slow_host, ("lock", "CPU")) == [True, False]


def test_a_traces_spans_tell_copies_from_kernels():
    events = [
        {"name": "aten::mm", "cat": "cpu_op", "ts": 0.0, "dur": 9e5},
        {"name": "Memcpy HtoD (Pinned -> Device)", "cat": "gpu_memcpy", "ts": 0.0, "dur": 2e5},
        {"name": "gemm", "cat": "kernel", "ts": 1e5, "dur": 3e5},
        {"name": "Memcpy DtoD (Device -> Device)", "cat": "gpu_memcpy", "ts": 6e5, "dur": 1e5},
        {"name": "Memset (Device)", "cat": "gpu_memset", "ts": 7e5, "dur": 1e5},
    ]
    spans = device_spans(events)
    assert [span.what for span in spans] == ["copy", "kernel", "kernel", "kernel"]
    seen = device_evidence(spans, seconds=1.0, compute_seconds=0.25, memory_seconds=0.1)
    assert seen["kernels"] == pytest.approx(0.5) and seen["copies"] == pytest.approx(0.1)  # half of the copy is hidden
    assert seen["compute"] == pytest.approx(0.5) and seen["memory"] == pytest.approx(0.2)
    assert device_evidence([Span("GPU", "copy", 0.0, 0.5)], 1.0, 0.0, 0.0)["compute"] == 0.0


def test_workers_that_follow_one_another_count_as_one():
    workers = [(100 + epoch, 100 + epoch) for epoch in range(4)]  # a fresh process in every epoch
    wanted = dict.fromkeys(workers, 0.9)
    lives = {who: [float(epoch), epoch + 0.95] for epoch, who in enumerate(workers)}
    assert shares_of_successors(wanted, lives, seconds=4.0) == pytest.approx([3.6 / 3.8])
    lasting = shares_of_successors({(7, 7): 3.6}, {(7, 7): [0.0, 3.8]}, seconds=4.0)
    assert lasting == pytest.approx([3.6 / 3.8]), "the same as one worker that lasts"
    both = {**lives, (9, 9): [0.0, 4.0]}
    assert sorted(shares_of_successors({**wanted, (9, 9): 0.4}, both, seconds=4.0)) == pytest.approx([0.1, 3.6 / 3.8])
    assert shares_of_successors({(7, 7): 0.1}, {(7, 7): [0.0, 0.1]}, seconds=4.0) == pytest.approx([0.05]), "a brief burst"
    assert shares_of_successors({}, {}, 1.0) == []


def test_fresh_workers_in_every_epoch_get_the_name_that_lasting_ones_get():
    def epochs(lasting):
        loader = DataLoader(SlowSamples(24, 0.005, spin), batch_size=4, num_workers=1, persistent_workers=lasting)

        def loop():
            for _ in range(4):
                for _ in loader:
                    pass

        return loop

    loops = {lasting: epochs(lasting) for lasting in (True, False)}
    loops[True]()  # starts the lasting worker
    found = {lasting: classify(loop) for lasting, loop in loops.items()}
    for diagnosis in found.values():
        seen = diagnosis.evidence
        if others_had_the_cores(seen):  # then the worker's start takes its time, and is waited for as for any input
            assert diagnosis.bound in ("single thread", "input", CANNOT_TELL), seen
        else:
            assert diagnosis.bound in ("single thread", CANNOT_TELL), seen
            assert diagnosis.bound == CANNOT_TELL or seen.busiest_worker > 0.5, seen


def test_the_watch_leaves_nothing_behind_when_the_loop_raises():
    interval = sys.getswitchinterval()
    with pytest.raises(ZeroDivisionError):
        classify(lambda: 1 / 0)
    assert not [thread for thread in threading.enumerate() if thread.name == "hpml-watch"]
    assert sys.getswitchinterval() == interval


def test_the_watch_tells_waiting_in_a_generator_from_waiting_elsewhere():
    def batches():
        for _ in range(10):
            time.sleep(0.03)
            yield 0

    with Watch() as watch:
        for _ in batches():
            pass
    inside = watch.evidence()
    with Watch() as watch:
        for _ in range(10):
            time.sleep(0.03)
    outside = watch.evidence()
    assert inside["input_wait"] > inside["unknown_wait"] and outside["unknown_wait"] > outside["input_wait"]


def test_waiting_in_a_generator_that_trains_is_no_waiting_for_input():
    weight = torch.zeros(4, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def batches():
        for _ in range(20):
            time.sleep(0.05)
            yield torch.ones(4)

    def train(data, seconds):
        for batch in data:
            (weight * batch).sum().backward()
            optimizer.step()
            time.sleep(seconds)
            yield weight

    training = classify(lambda: list(train(torch.ones(20, 4), 0.02)))
    assert training.bound == CANNOT_TELL and training.evidence.unknown_wait > training.evidence.input_wait
    loading = classify(lambda: list(train(batches(), 0.0)))
    assert loading.bound in ("input", CANNOT_TELL), "on a busy machine the waits are not all of the time"
    assert loading.evidence.input_wait > loading.evidence.unknown_wait


def test_an_interrupted_loop_leaves_no_thread_that_waits_to_put(monkeypatch):
    seen = []

    def interrupted(batch):
        seen.append(batch)
        if len(seen) == 2:
            time.sleep(0.1)  # the thread is ahead by now, and waits for room
            raise KeyboardInterrupt

    monkeypatch.setattr(known_loops, "training_step", lambda: interrupted)
    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        known_loops.thread_ahead(0.4)()
    ends = time.monotonic() + 5
    while time.monotonic() < ends and set(threading.enumerate()) - before:
        time.sleep(0.02)
    assert set(threading.enumerate()) - before == set()


SHIELDED = """
import multiprocessing, signal, sys
from hpml_lab.profiling.experiments.bottleneck_classes import known_loops

def masked(_):
    if signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, []):
        raise RuntimeError("the worker would hear it")

if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[1])
    heard = []
    known_loops.training_step = lambda: lambda batch: heard.append(batch[:, 0].tolist())
    known_loops._loader(2, masked, 0.005)(0.1)()
    assert heard and signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the start methods are Linux's")
@pytest.mark.parametrize("method", ["fork", "forkserver"])  # up to Python 3.13, and from 3.14 on
def test_workers_do_not_hear_the_interrupt_that_is_meant_for_the_loop(method, tmp_path):
    """In an interpreter of its own: a fork server that was there before was not started in the block that shields it."""
    script = tmp_path / "shielded.py"
    script.write_text(SHIELDED, encoding="utf-8")
    done = subprocess.run([sys.executable, script, method], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_a_loop_that_waits_for_the_reader_of_its_output_does_not_wait_for_its_input():
    reader, writer = os.pipe()

    def read_slowly():
        while os.read(reader, 1 << 14):
            time.sleep(0.02)

    def loop():
        for _ in range(5):
            os.write(writer, bytes(1 << 16))

    thread = threading.Thread(target=read_slowly)
    thread.start()
    diagnosis = classify(loop)
    os.close(writer)
    thread.join()
    os.close(reader)
    assert diagnosis.bound == CANNOT_TELL, (diagnosis.reason, diagnosis.evidence)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's word on a blocked thread is Linux's")
def test_the_watch_sees_threads_at_a_lock_and_where():
    lock = threading.Lock()

    def use():
        for _ in range(5):
            with lock:
                time.sleep(0.02)

    with Watch() as watch:
        in_threads(use, use, use)
    seen = watch.evidence()
    if seen["lock_threads"] == 0:
        pytest.skip("this kernel does not say what a thread is blocked at")
    assert seen["lock_threads"] >= 2 and seen["lock_wait"] > seen["cores_used"]
    assert seen["where"].startswith("test_profiling_bottleneck.py:")


def test_the_watch_counts_threads_that_the_loop_starts():
    with Watch() as watch:
        in_threads(lambda: hash_for(0.3), lambda: hash_for(0.3))
    seen = watch.evidence()
    assert seen["cores_wanted"] >= seen["workers"] > 0
    assert seen["cores_wanted"] >= seen["cores_used"] > 0
    diagnosis = decide(Evidence(**seen))
    assert len(diagnosis.evidence.rows()) == len(fields(Evidence))
    assert diagnosis.text().startswith(f"{diagnosis.bound}: {diagnosis.reason}") and "cores used" in diagnosis.text()


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["GPU compute", "GPU memory", "transfer", "single thread"])
def test_a_loop_bound_by_the_gpu_is_named(name):
    device = torch.device("cuda")
    (known,) = [loop for loop in on_gpu(device) if loop.truth == name]
    diagnosis = classify(known.loop(0.5), device)
    assert diagnosis.bound == name, (diagnosis.reason, diagnosis.evidence)
