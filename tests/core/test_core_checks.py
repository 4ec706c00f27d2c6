"""A check says something of every answer: nothing escapes but the stop button, and the process is afterwards as it was."""

import asyncio
import builtins
import decimal
import functools
import gc
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from hpml_lab.core.judge import exercises, unchanged
from hpml_lab.core.judge.exercises import Exercise, all_exercises, check
from hpml_lab.core.judge.watch import is_students


@pytest.fixture
def judged(monkeypatch):
    """Judge an answer by calling it, if it can be called."""
    all_exercises()
    for name, judge in {"called": lambda answer: answer() if callable(answer) else None, "module": lambda net: net(1)}.items():
        monkeypatch.setitem(exercises._REGISTRY, name, Exercise(name, "01_tensors", judge))
    return lambda answer, name="called": check(name, answer)


class Rude:
    """Every question that Python asks of a value is answered by an error."""

    def raises(self, *_):
        raise BaseException("rude")

    __class__ = property(raises)
    __getattr__ = __iter__ = __len__ = __bool__ = __eq__ = __repr__ = __deepcopy__ = raises
    __hash__ = None


class RudeList(list):
    __iter__ = Rude.raises


class RudeDict(dict):
    values = Rude.raises


class RudeError(Exception):
    __str__ = Rude.raises


@pytest.mark.parametrize(
    "error",
    [
        BaseException,
        GeneratorExit,
        SystemExit,
        StopIteration,
        asyncio.CancelledError,
        lambda: BaseExceptionGroup("group", [GeneratorExit()]),
        RudeError,
    ],
    ids=lambda error: error.__name__,
)
def test_no_error_of_an_answer_escapes(judged, error):
    def answer():
        raise error()

    verdict = judged(answer)
    assert (verdict.state, verdict.mistake) == ("mistake", "raises")


@pytest.mark.parametrize("kind", [Rude, RudeList, RudeDict])  # not the values: pytest asks them, too
def test_no_error_of_a_value_escapes(judged, kind):
    verdict = judged(kind())
    assert (verdict.state, verdict.mistake) == ("mistake", "raises") and "rude" in verdict.message


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left"), MemoryError(), RuntimeError("can't start new thread")], ids=repr
)
@pytest.mark.parametrize("takes", [None, ()], ids=["a value", "a function"])
def test_a_check_whose_own_means_are_missing_blames_no_answer(judged, monkeypatch, error, takes):
    """Before a call and after one; raised by code of the package, as a judge's is."""
    names = {"error": error}
    code = "def judge(answer):\n    callable(answer) and answer()\n    raise error"
    exec(compile(code, exercises.__file__, "exec"), names)
    monkeypatch.setitem(exercises._REGISTRY, "short", Exercise("short", "01_tensors", names["judge"], takes))
    verdict = check("short", 3 if takes is None else lambda: 3)
    assert verdict.state == "not yet" and "cannot be checked here" in verdict.message


def test_a_file_that_an_answer_names_and_that_is_not_there_is_the_answers(judged, monkeypatch):
    names = {}
    exec(compile("def judge(answer):\n    open(answer())", exercises.__file__, "exec"), names)
    monkeypatch.setitem(exercises._REGISTRY, "file", Exercise("file", "01_tensors", names["judge"], ()))
    assert check("file", lambda: "/no/such/file").state == "mistake"


def test_a_generator_behind_a_wrapper_is_named(monkeypatch):
    def steps():
        yield 1

    all_exercises()
    monkeypatch.setitem(exercises._REGISTRY, "steps", Exercise("steps", "01_tensors", lambda answer: answer(), (), None))
    for answer in (steps, functools.partial(steps), lambda: steps()):
        assert check("steps", answer).mistake == "runs-nothing"


def test_a_network_that_cannot_be_copied_or_called_is_a_verdict(judged):
    class Uncopied(torch.nn.Module):
        __deepcopy__ = Rude.raises

    class Unwritten(torch.nn.Module):
        def forward(self, _):
            raise GeneratorExit

    assert judged(Uncopied(), "module").mistake == judged(Unwritten(), "module").mistake == "raises"


def test_the_stop_button_interrupts_a_check(judged):
    def answer():
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        judged(answer)
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_an_answer_that_waits_ends_by_the_clock_and_is_said_to_wait(judged, monkeypatch):
    monkeypatch.setattr(exercises, "WALL_SECONDS", 0.2)
    lock = threading.Lock()
    lock.acquire()
    for answer in (lambda: time.sleep(600), lock.acquire):
        verdict = judged(answer)
        assert verdict.mistake == "does-not-end"
        assert "after 0.2 s, of which it computed for" in verdict.message and "wait" in verdict.message
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_an_answer_that_ignores_all_signals_ends_and_the_stop_button_works_again(judged, monkeypatch):
    monkeypatch.setattr(exercises, "CPU_SECONDS", 0.1)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def ignores():
        signal.signal(signal.SIGVTALRM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGVTALRM})
        while True:
            try:
                while True:
                    pass
            except BaseException:
                continue

    verdict = judged(ignores)
    assert verdict.mistake == "does-not-end" and "(line: " in verdict.message
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler, "the stop button works again"
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked


def test_a_question_to_the_answer_that_does_not_end_has_a_limit_too(judged, monkeypatch):
    monkeypatch.setattr(exercises, "CPU_SECONDS", 0.1)

    class Endless(list):
        def __iter__(self):
            while True:
                yield 1

    assert judged(Endless()).mistake == "does-not-end"


def test_an_error_of_ten_megabytes_and_a_message_that_quotes_one_are_shortened(judged, monkeypatch):
    shortened = []
    monkeypatch.setattr(exercises.textwrap, "shorten", lambda text, *_, **__: shortened.append(len(text)) or text[:400])

    def long():
        raise ValueError("x" * 10_000_000)

    def quoted():
        raise exercises.Mistake("wrong-value", "x" * 10_000_000)

    assert judged(long).mistake == "raises" and max(shortened) <= exercises.MESSAGE_CHARACTERS
    assert len(judged(quoted).message) < 2 * exercises.MESSAGE_CHARACTERS


def test_a_child_that_an_answer_forks_ends_in_the_check(tmp_path):
    """In an interpreter of its own: without the exit two processes would go on from here."""
    script = tmp_path / "forks.py"
    script.write_text(
        "import os\nfrom hpml_lab.core.judge.unchanged import unchanged\n"
        "with unchanged():\n    os.fork() and os.wait()\nprint('went on')\n"
    )
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, timeout=300)
    assert run.stdout == "went on\n"


def test_a_judge_runs_on_one_thread(judged):
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        seen = []
        assert judged(lambda: seen.append(torch.get_num_threads()))
        assert seen == [1] and torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)


class Mode(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def state():
    """What must be afterwards what it was before."""
    return {
        "directory": os.getcwd(),
        "environment": dict(os.environ),
        "new files": unchanged._new_files_mask(),
        "logging": (logging.root.level, logging.root.manager.disable, logging.root.handlers[:]),
        "decimal": (id(decimal.getcontext()), repr(decimal.getcontext())),
        "path": sys.path[:],
        "recursion": sys.getrecursionlimit(),
        "trace": sys.gettrace(),
        "profile": sys.getprofile(),
        "output": sys.stdout,
        "collector": gc.isenabled(),
        "random": random.getstate(),
        "numpy random": np.random.get_state()[2],
        "numpy errors": np.geterr(),
        "numpy printing": repr(np.float64(1 / 3) * np.ones(1)),
        "warnings": warnings.filters[:],
        "torch random": torch.get_rng_state().tolist(),
        "device": torch.get_default_device(),
        "tensor's device": torch.ones(1).device,
        "dtype": torch.get_default_dtype(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.get_deterministic_debug_mode(),
        "anomaly": torch.is_anomaly_enabled(),
        "gradients": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "denormal": torch.full((1,), sys.float_info.min, dtype=torch.float64).div(2).item() == 0,
        "cudnn": (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic),
        "switches": sys.getswitchinterval(),
        "repeated warnings": torch.is_warn_always_enabled(),
        "precision": torch.backends.cuda.matmul.fp32_precision,
        "modes": len(torch.overrides._get_current_function_mode_stack()),
        "hooks": [list(hooks) for hooks in unchanged._HOOKS],
        "dispatch modes": len(torch.utils._python_dispatch._get_current_dispatch_mode_stack()),
        "printing": repr(torch.ones(1) / 3),
        "names": (torch.add, torch.nn.functional.relu, torch.Tensor.add, torch.Tensor.__add__, np.add, builtins.sum),
    }


KEPT = []  # what was entered and never left
CHANGES = {
    "directory": lambda folder: os.chdir(folder),
    "environment": lambda _: os.environ.update(HPML_SIZE="huge", NEW="1"),
    "new files": lambda _: os.umask(0o777),
    "logging's level": lambda _: logging.root.setLevel(logging.CRITICAL),
    "logging is off": lambda _: logging.disable(),
    "logging's handlers": lambda folder: logging.basicConfig(filename=folder / "log", force=True),
    "decimal": lambda _: setattr(decimal.getcontext(), "prec", 3),
    "decimal's context": lambda _: decimal.setcontext(decimal.Context(prec=3)),
    "path": lambda folder: sys.path.insert(0, str(folder)),
    "recursion": lambda _: sys.setrecursionlimit(50_000),
    "trace": lambda _: sys.settrace(lambda *_: None),
    "profile": lambda _: sys.setprofile(lambda *_: None),
    "output": lambda _: setattr(sys, "stdout", None),
    "collector": lambda _: gc.disable(),
    "random": lambda _: random.seed(1),
    "numpy random": lambda _: np.random.rand(3),
    "numpy errors": lambda _: np.seterr(all="raise"),
    "numpy printing": lambda _: np.set_printoptions(precision=2),
    "warnings": lambda _: warnings.simplefilter("error"),
    "torch random": lambda _: torch.rand(3),
    "device": lambda _: torch.set_default_device("meta"),
    "device's block": lambda _: KEPT.append(torch.device("meta").__enter__()),
    "both devices": lambda _: [torch.set_default_device("meta"), torch.device("meta").__enter__()],
    "dtype": lambda _: torch.set_default_dtype(torch.float64),
    "threads": lambda _: torch.set_num_threads(5),
    "deterministic": lambda _: torch.use_deterministic_algorithms(True),
    "anomaly": lambda _: torch.autograd.set_detect_anomaly(True),
    "gradients": lambda _: torch.set_grad_enabled(False),
    "inference": lambda _: [KEPT.append(mode := torch.inference_mode()), mode.__enter__()],
    "autocast": lambda _: torch.set_autocast_enabled("cpu", True),
    "autocast's dtype": lambda _: torch.set_autocast_dtype("cpu", torch.float16),
    "switches": lambda _: sys.setswitchinterval(1.0),
    "repeated warnings": lambda _: torch.set_warn_always(True),
    "denormal": lambda _: torch.set_flush_denormal(True),
    "cudnn": lambda _: setattr(torch.backends.cudnn, "benchmark", True),
    "cudnn's algorithms": lambda _: setattr(torch.backends.cudnn, "deterministic", True),
    "precision": lambda _: setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32"),
    "a mode": lambda _: Mode().__enter__(),
    "hooks of modules": lambda _: torch.nn.modules.module.register_module_forward_hook(lambda *_: None),
    "hooks of optimizers": lambda _: register_optimizer_step_pre_hook(lambda *_: None),
    "a dispatch mode": lambda _: FlopCounterMode(display=False).__enter__(),
    "printing": lambda _: torch.set_printoptions(precision=1),
    "torch.add": lambda _: setattr(torch, "add", torch.mul),
    "relu": lambda _: setattr(torch.nn.functional, "relu", torch.nn.functional.selu),
    "Tensor.add": lambda _: setattr(torch.Tensor, "add", lambda *_: 0),
    "Tensor.__add__": lambda _: setattr(torch.Tensor, "__add__", lambda *_: 0),
    "np.add": lambda _: setattr(np, "add", np.multiply),
    "sum": lambda _: setattr(builtins, "sum", max),
    "sum is gone": lambda _: delattr(builtins, "sum"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_an_answer_changes_in_the_process_is_set_back(judged, tmp_path, change, monkeypatch):
    flags = torch.backends.flags_frozen.__globals__  # of the module behind torch.backends; torch.testing's imports freeze them
    monkeypatch.setitem(flags, "__allow_nonbracketed_mutation_flag", True)
    before = state()

    seen = []

    def answer():
        CHANGES[change](tmp_path)
        seen.append(change)

    verdict = judged(answer)
    assert seen and verdict.state == "right", verdict
    after = state()
    assert [key for key, value in before.items() if after[key] != value] == []


def test_a_name_is_set_back_also_where_its_new_value_says_that_it_is_the_old_one(judged):
    class EqualToAll:
        __hash__ = None

        def __eq__(self, other):
            return True

    before = np.add
    assert judged(lambda: setattr(np, "add", EqualToAll()))
    assert np.add is before


def test_a_deleted_working_directory_is_no_error(judged, tmp_path):
    here, gone = os.getcwd(), tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    try:
        gone.rmdir()
        assert judged(lambda: None)
    finally:
        os.chdir(here)


def test_what_a_library_replaces_by_a_wrapper_of_its_own_stays(judged, monkeypatch):
    """torch wraps manual_seed, and Module's __init__ once for all, when its compiler is loaded: an answer may load it."""
    monkeypatch.setattr(torch, "manual_seed", torch.manual_seed)  # put back after the test
    names = {}
    exec(compile("def wrapper(seed): ...", torch.__file__, "exec"), names)
    assert judged(lambda: setattr(torch, "manual_seed", names["wrapper"]))
    assert torch.manual_seed is names["wrapper"]


def test_compiled_modules_are_not_taken_for_the_students_code():
    """`input()` in an answer: the line that waited was pyzmq's `PyErr_CheckSignals()`."""
    assert not any(map(is_students, ("numpy/random/mtrand.pyx", "zmq/backend/cython/_zmq.py", "mtrand.pyx", torch.__file__)))
    assert all(map(is_students, ("answer.py", "/tmp/ipykernel_1/2.py", "<string>", __file__)))
