"""Ranks that return, raise, die, hang or part ways: one clear error each, and nothing that stays."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from queue import Empty

import numpy as np
import psutil
import pytest
import torch
from torch import distributed as dist

from hpml_lab.core.system import launcher as launching
from hpml_lab.core.system import machine
from hpml_lab.core.system.children import ChildOutcome, run_in_child
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.files import atomic_write
from hpml_lab.core.system.launcher import launch
from hpml_lab.core.system.programs import python_environment, run_python, started
from hpml_lab.core.system.rank_errors import RankError, _place, _said, note_thread, raise_first_failure

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ranks are forked on Linux only")
HANG_SECONDS = 4.0


def rank():
    return dist.get_rank()


@pytest.fixture(scope="module")
def warm():
    """The first launch imports what creates temporary folders for the life of this process."""
    launch(rank)


@pytest.fixture
def own_folder(warm, tmp_path, monkeypatch):
    """Temporary files of this test go here, and not to where other programs have theirs."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


# ---- what a rank is ------------------------------------------------------------------------------------------------------


def facts(tensor):
    tensor += rank()
    total = torch.tensor(float(rank()))
    dist.all_reduce(total)
    variables = [os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")]
    return {"sum": total.item(), "mine": tensor, "variables": variables, "threads": torch.get_num_threads()}


def test_each_rank_has_its_own_arguments_its_number_and_one_thread(nothing_left):
    given = torch.zeros(3)
    found = launch(facts, given, ranks=3)
    assert [row["sum"] for row in found] == [3.0] * 3 and [row["threads"] for row in found] == [1] * 3
    assert [row["variables"] for row in found] == [[str(r), str(r), "3", "3"] for r in range(3)]
    assert [row["mine"].tolist() for row in found] == [[float(r)] * 3 for r in range(3)]
    assert given.tolist() == [0.0] * 3 and "RANK" not in os.environ


class Point:
    """A class of this module stays the same class."""

    def __init__(self, x):
        self.x = x


def test_results_of_any_kind_and_size_come_back():
    large = launch(lambda: [torch.full((2_000_000,), float(rank())), Point(rank()), None, "text"], ranks=2)
    assert [(r[0].sum().item(), r[1].x, r[2:]) for r in large] == [(0.0, 0, [None, "text"]), (2e6, 1, [None, "text"])]
    assert isinstance(large[0][1], Point)


def test_numbers_of_numpy_and_deadlines_of_any_size_are_numbers():
    assert launch(rank, ranks=np.int64(2), deadline_seconds=1e9) == [0, 1]


def gradients_after_parallel_work():
    a = torch.ones(300, 300, requires_grad=True)
    (a @ a).sum().backward()
    dist.all_reduce(a.grad)
    return a.grad.sum().item()


def test_ranks_compute_after_parallel_work_in_this_process():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        alone = 2 * 300 * 2 * 300 * 300.0
        a = torch.ones(300, 300, requires_grad=True)
        (a @ a).sum().backward()
        assert launch(gradients_after_parallel_work, ranks=2, deadline_seconds=60) == [alone, alone]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def fork_hang(threads: int, deadline_seconds: float = 3.0) -> str:
    """How a forked child ends that multiplies two matrices on `threads` threads: "returned", or "hung" at the deadline.

    This process multiplies on two threads before. OpenMP then keeps the second thread for the next parallel operation. A fork
    copies the memory, in which that thread exists, but only the thread that forks. The child hands half of its product to a
    thread that is not there, and waits. On one thread it needs nobody.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        _multiply()
    finally:
        torch.set_num_threads(before)
    return run_in_child(_multiply_on, threads, method="fork", deadline_seconds=deadline_seconds).how


def _multiply_on(threads: int) -> None:
    torch.set_num_threads(threads)
    _multiply()


def _multiply() -> None:
    a = torch.ones(600, 600)
    torch.exp(a @ a)


@pytest.mark.parametrize(("threads", "deadline", "how"), [(1, 60.0, "returned"), (2, 2.0, "hung")])
def test_a_fork_hangs_on_two_threads_and_not_on_one(threads, deadline, how, nothing_left):
    before = torch.get_num_threads()
    assert fork_hang(threads, deadline) == how
    assert torch.get_num_threads() == before


# ---- one error for each fault --------------------------------------------------------------------------------------------


def raise_on(guilty):
    if rank() == guilty:
        raise ValueError("a bad value")
    dist.barrier()


def raise_advice():
    dist.barrier()
    if rank() == 1:
        raise LabError("The file is gone.", "Make it again.")
    dist.barrier()


def be_killed(number=signal.SIGKILL):
    if rank() == 1:
        os.kill(os.getpid(), number)
    dist.barrier()


def leave_with_0():
    if rank() == 1:
        os._exit(0)
    dist.barrier()


def sys_exit_with_0():
    if rank() == 1:
        sys.exit(0)
    dist.barrier()


def sleep_alone():
    if rank() == 1:
        time.sleep(600)
    dist.barrier()


def part_ways():
    value = torch.zeros(3)
    if rank() == 0:
        dist.all_reduce(value)
    else:
        dist.broadcast(value, src=0)
        dist.barrier()


def not_all_call():
    if rank() == 0:
        dist.all_reduce(torch.zeros(3))


def other_dtypes():
    dist.all_reduce(torch.zeros(3, dtype=torch.float64 if rank() else torch.float32))


def not_all_call_in_a_group():
    group = dist.new_group([0, 1])
    if rank() == 0:
        dist.all_reduce(torch.zeros(3), group=group)


def other_sizes(times=1):
    for _ in range(times):
        dist.all_reduce(torch.zeros(2 + rank()))


def other_layouts():
    dist.all_reduce(torch.zeros(4) if rank() else torch.zeros(4).to_sparse())


def aborts():
    if rank() == 1:
        os.abort()
    dist.barrier()


def waits_for_a_sum():
    if rank() == 0:
        dist.all_reduce(torch.zeros(3), async_op=True).wait()


def sets_up():
    dist.init_process_group("gloo")


def leaves_and_sets_up():
    dist.destroy_process_group()
    dist.init_process_group("gloo")


def leaves_too_early():
    dist.destroy_process_group()
    dist.barrier()


def writes_to_nowhere():
    atomic_write("/dev/null/file", b"")


def return_a_function():
    return lambda: None


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def raise_without_a_text():
    if rank() == 1:
        raise Mute("what was wrong")
    dist.barrier()


class Unreadable:
    def __reduce__(self):
        return int, ("not a number",)


FAULTS = {
    "raises": (raise_on, (1,), 1, "raised", r"Rank 1 of 2 raised ValueError: a bad value \(line \d+ of .*launcher\.py\)"),
    "raises without a text": (raise_without_a_text, (), 1, "raised", r"Rank 1 of 2 raised Mute: what was wrong \(line \d+ of"),
    "first raises": (raise_on, (0,), 0, "raised", "Rank 0 of 2 raised ValueError: a bad value"),
    "raises advice": (
        raise_advice,
        (),
        1,
        "raised",
        r"Rank 1 of 2 raised LabError at line \d+ of .*: The file is gone\. Make it again\.$",
    ),
    "killed": (be_killed, (), 1, "died", "Rank 1 of 2 was killed by SIGKILL. The other ranks were stopped."),
    "real time": (be_killed, (getattr(signal, "SIGRTMIN", 33) + 1,), 1, "died", "Rank 1 of 2 was killed by signal "),
    "exit 0": (leave_with_0, (), 1, "died", "Rank 1 of 2 ended with exit code 0 and returned nothing."),
    "sys.exit(0)": (sys_exit_with_0, (), 1, "raised", "Rank 1 of 2 raised SystemExit: 0"),
    "hangs": (
        sleep_alone,
        (),
        1,
        "hung",
        r"within 4 s\. Rank 0 waited in barrier at line \d+ .* Rank 1 was at line \d+ .*Find out why",
    ),
    "other collectives": (part_ways, (), 0, "hung", r"Rank 0 waited in all_reduce .* Rank 1 waited in broadcast .* same order"),
    "not all call": (not_all_call, (), 0, "hung", r"Rank 0 waited in all_reduce .* Rank 1 had returned .* same order"),
    "other dtypes": (
        other_dtypes,
        (),
        None,
        "died",
        r"killed by SIGABRT at line \d+ of .*launcher\.py\. All ranks have to hand over tensors of the same size",
    ),
    "other sizes": (
        other_sizes,
        (),
        0,
        "hung",
        r"Rank 0 had returned .* Rank 1 waited in all_reduce of float32 \(3,\) at line \d+ .* tensors of the same size",
    ),
    "not all call in a group": (not_all_call_in_a_group, (), 0, "hung", r"Rank 0 waited in all_reduce .* same order"),
    "other sizes, and more": (
        other_sizes,
        (2,),
        0,
        "hung",
        r"Rank 0 waited in all_reduce of float32 \(2,\) .* Rank 1 waited in all_reduce of float32 \(3,\) .* of the same size",
    ),
    "other layouts": (
        other_layouts,
        (),
        0,
        "hung",
        r"Rank 0 waited in all_reduce of float32 \(4,\) sparse_coo at .* Rank 1 waited .* of the same size, dtype and layout",
    ),
    "aborts": (
        aborts,
        (),
        1,
        "died",
        r"Rank 1 of 2 was killed by SIGABRT at line \d+ of .*launcher\.py\. The other ranks were",
    ),
    "waits for a sum": (waits_for_a_sum, (), 0, "hung", r"Rank 0 was at line \d+ .* Rank 1 had returned .* same order"),
    "sets up": (
        sets_up,
        (),
        None,
        "raised",
        r"group twice! \(line \d+ of .*launcher\.py\)\. launch joins the group .* leave out init_process_group",
    ),
    "leaves and sets up": (leaves_and_sets_up, (), None, "raised", r"env:// .* launch joins the group before"),
    "leaves too early": (leaves_too_early, (), None, "raised", "not been initialized.* Is destroy_process_group called before"),
    "a LabError of this package": (
        writes_to_nowhere,
        (),
        None,
        "raised",
        r"raised LabError at line \d+ of .*test_core_launcher\.py: /dev/null/file could not be written",
    ),
    "result": (return_a_function, (), None, "raised", "Its result, a function, cannot be sent .* Return numbers"),
    "unreadable": (Unreadable, (), 0, "raised", "Rank 0 returned what this process cannot read .* Return numbers"),
    "a launch in a rank": (launch, (print,), None, "raised", "This process is itself a rank .* Launch ranks from"),
}


CRASH = """Fatal Python error: Aborted

{}Thread 0x00007f9840bef6c0 [pymain] (most recent call first):
  File "/home/me/train.py", line 7 in step

Current thread's C stack trace (most recent call first):
  Binary file "/usr/lib/libgloo.so", at abort+0x24 [0x7f9840e85507]
  Binary file "/home/me/\u00fcbung/libtorch.so" [0x53d72e]
"""
CURRENT = 'Current thread 0x00007f9840def6c0 [worker] (most recent call first):\n  File "/home/me/train.py", line 9 in stop\n\n'


@pytest.mark.parametrize(("current", "line", "fix"), [("", 7, "All ranks have to hand over"), (CURRENT, 9, "The other ranks")])
def test_the_frames_of_c_of_python_3_14_are_no_frames_of_python(current, line, fix, tmp_path):
    """With them, gloo's abort was taken for one of the reader's own; a library's name need not be ASCII there."""
    (tmp_path / "rank1.crash").write_text(CRASH.format(current), encoding="utf-8")
    outcomes = [ChildOutcome("stopped"), ChildOutcome("died", exitcode=-signal.SIGABRT)]
    with pytest.raises(RankError, match=rf"killed by SIGABRT at line {line} of /home/me/train.py\. {fix}"):
        raise_first_failure(outcomes, tmp_path, HANG_SECONDS)


def children_and_ports():
    """Zombies are children too."""
    me = psutil.Process()
    return {child.pid for child in me.children()}, me.net_connections()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_gives_one_clear_error_within_its_deadline(fault, nothing_left, own_folder):
    function, arguments, guilty, how, text = FAULTS[fault]
    before = children_and_ports()
    with pytest.raises(RankError, match=text) as caught:
        launch(function, *arguments, ranks=2, deadline_seconds=HANG_SECONDS)
    assert caught.value.how == how and caught.value.rank in ((0, 1) if guilty is None else (guilty,))
    assert list(own_folder.iterdir()) == [] and children_and_ports() == before


def test_a_collective_for_a_rank_that_has_left_ends_before_the_deadline(monkeypatch):
    monkeypatch.setattr(launching, "LEAVE_SECONDS", 0.2)
    with pytest.raises(RankError, match=r"Rank 0 of 2 waited at line \d+ .* for rank 1, which had returned\. Every rank"):
        launch(not_all_call, deadline_seconds=600)


def leaves(guilty):
    value = torch.ones(300_000)
    dist.all_reduce(value)
    dist.broadcast(value, src=0)
    if rank() in guilty:
        dist.destroy_process_group()
    return value[-1].item()


@pytest.mark.parametrize("guilty", [(0, 1), (0,), (1,)])
def test_a_function_that_leaves_the_group_as_tutorials_do_keeps_its_results(guilty, nothing_left):
    assert launch(leaves, guilty) == [2.0, 2.0]


def sums_of_two_groups():
    """As a function that makes a group of its own after it has left launch's."""
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return dist.get_world_size()


def test_a_function_that_makes_a_group_of_its_own_after_it_has_left_keeps_its_results(nothing_left):
    assert launch(sums_of_two_groups) == [1, 1]


ELSEWHERE = """
import time
from torch import distributed as dist
from hpml_lab.core.system.launcher import launch

def hangs():
    if dist.get_rank() == 1:
        time.sleep(600)
    dist.barrier()

try:
    launch(hangs, deadline_seconds=3)
except Exception as error:
    print(ascii(str(error)))
"""


def test_the_line_is_named_in_a_folder_whose_name_is_not_utf_8(tmp_path, nothing_left):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    (folder / "script.py").write_text(ELSEWHERE)
    environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "TMPDIR": str(folder)}
    finished = run_python([str(folder / "script.py")], environment=environment, deadline_seconds=300)
    assert "Rank 1 was at line 8 of" in finished.stdout and r"caf\udce9/script.py. Find out why" in finished.stdout, finished


def test_an_error_keeps_the_traceback_and_survives_a_pickle():
    import pickle

    with pytest.raises(RankError) as caught:
        launch(raise_on, 1)
    again = pickle.loads(pickle.dumps(caught.value))
    assert "in raise_on" in again.trace and (again.rank, again.how, str(again)) == (1, "raised", str(caught.value))


def test_a_rank_that_is_stopped_gives_no_sign(nothing_left):
    with pytest.raises(RankError, match="Rank 0 gave no sign of where it was"):
        launch(lambda: os.kill(os.getpid(), signal.SIGSTOP), ranks=1, deadline_seconds=HANG_SECONDS)


def test_of_several_threads_the_main_ones_line_is_named(tmp_path):
    other = threading.Thread(target=note_thread, args=(tmp_path, 0, threading.get_ident()))
    other.start()
    other.join()
    assert re.fullmatch(rf"was at line \d+ of {re.escape(__file__)}", _said(_place(tmp_path, 0)))


def test_a_rank_that_is_killed_while_it_notes_its_place_leaves_the_one_before(tmp_path, monkeypatch):
    assert _place(tmp_path, 0) is None
    note_thread(tmp_path, 0, threading.get_ident())
    before = _place(tmp_path, 0)

    def killed(path, content):
        with path.open("wb") as file:
            file.write(content[:5])
        raise SystemExit

    monkeypatch.setattr("pathlib.Path.write_bytes", killed)
    with pytest.raises(SystemExit):
        note_thread(tmp_path, 0, threading.get_ident())
    assert _place(tmp_path, 0) == before


BAD = [
    (dict(ranks=0), "ranks=0 is not a number of ranks"),
    (dict(ranks=True), "ranks=True is not"),
    (dict(ranks=2.0), "ranks=2.0 is not"),
    (dict(device="tpu"), "'tpu' is not a device"),
    (dict(method="thread"), "'thread' is not a start method"),
    (dict(deadline_seconds=0), "deadline_seconds=0 is not a time"),
    (dict(deadline_seconds=float("nan")), "deadline_seconds=nan is not a time"),
    (dict(deadline_seconds=float("inf")), "deadline_seconds=inf is not a time"),
    (dict(device="cuda", ranks=1000), r"NCCL needs a GPU for each of 1000 ranks; torch sees \d+ here"),
]


@pytest.mark.parametrize(("options", "text"), BAD)
def test_bad_input_is_refused_before_anything_starts(options, text):
    with pytest.raises(LabError, match=text):
        launch(facts, **options)


def test_what_cannot_be_called_or_sent_is_refused():
    with pytest.raises(LabError, match="3 cannot be called"):
        launch(3)
    with pytest.raises(LabError, match="facts or its arguments cannot be sent to another process .*lock"):
        launch(facts, threading.Lock(), method="forkserver")


def demo(rank, world_size):
    return rank + world_size


@pytest.mark.parametrize("arguments", [(), (1,), (1, 2, 3)])
def test_arguments_that_the_function_does_not_take_are_refused_before_anything_starts(arguments):
    with pytest.raises(LabError, match=r"demo\(rank, world_size\) cannot be called with the arguments given .*dist.get_rank"):
        launch(demo, *arguments)


def test_more_ranks_than_cores_give_right_results():
    ranks = 2 * machine.cores() + 1
    assert [row["sum"] for row in launch(facts, torch.zeros(1), ranks=ranks)] == [sum(range(ranks))] * ranks


@pytest.mark.parametrize(
    ("linux", "cuda", "method"), [(True, False, "fork"), (True, True, "forkserver"), (False, False, "spawn")]
)
def test_ranks_are_forks_of_this_process_only_where_that_is_safe(linux, cuda, method, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux" if linux else "darwin")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    assert launching._method() == method


# ---- nothing stays -------------------------------------------------------------------------------------------------------


def test_fifty_launches_leave_nothing(nothing_left, own_folder):
    me = psutil.Process()

    def held():
        return me.num_fds(), me.num_threads(), me.net_connections(), [c.pid for c in me.children()], list(own_folder.iterdir())

    before = held()
    for _ in range(50):
        assert launch(rank) == [0, 1]
    assert held() == before


OTHER_METHODS = """
import os, tempfile
import torch
from torch import distributed as dist
from hpml_lab.core.system.launcher import launch

class Pair:
    def __init__(self, a, b): self.a, self.b = a, b

def shared(tensor):
    tensor += dist.get_rank()
    dist.all_reduce(tensor)
    import of_this_folder
    return Pair(tensor, [torch.get_num_threads(), os.environ["MINE"], of_this_folder.NUMBER])

def fail():
    raise ValueError("a bad value")

os.chdir(tempfile.mkdtemp())  # as `%cd` does in a notebook
with open("of_this_folder.py", "w") as file:
    file.write("NUMBER = 7")
given = torch.zeros(2)
for method in ("forkserver", "forkserver", "spawn"):
    os.environ["MINE"] = os.environ.get("MINE", "") + method[0]
    pairs = launch(shared, given, ranks=1 if method == "spawn" else 2, method=method)
    print(method, [(pair.a.tolist(), pair.b) for pair in pairs])
print(given.tolist())
try:
    launch(fail, method="forkserver")
except Exception as error:
    print(error)
"""


def test_functions_without_a_module_run_in_other_processes_too(nothing_left):
    finished = run_python(["-c", OTHER_METHODS], deadline_seconds=500)
    assert finished.stdout.splitlines() == [
        "forkserver [([1.0, 1.0], [1, 'f', 7]), ([1.0, 1.0], [1, 'f', 7])]",
        "forkserver [([1.0, 1.0], [1, 'ff', 7]), ([1.0, 1.0], [1, 'ff', 7])]",
        "spawn [([0.0, 0.0], [1, 'ffs', 7])]",
        "[0.0, 0.0]",
        finished.stdout.splitlines()[-1],
    ], finished.stderr
    assert "raised ValueError: a bad value (line 17 of <string>)" in finished.stdout


TERMINAL = """
import os, time
from hpml_lab.core.system.launcher import launch

def work():
    os.write(1, b"works\\n")  # in one piece
    time.sleep(600)

try:
    launch(work, ranks=3, deadline_seconds=600)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def still_running(pids):
    """A zombie does not run: in a container whose first process reaps no orphans it stays."""
    running = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            running += [pid] * (psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return running


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "killed"])
def test_no_rank_outlives_a_program_that_is_interrupted_or_killed(number, nothing_left, tmp_path):
    environment = python_environment({"TMPDIR": str(tmp_path)})
    command = [sys.executable, "-c", TERMINAL]
    with started(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert [program.stdout.readline() for _ in range(3)] == ["works\n"] * 3
        ranks = [child.pid for child in psutil.Process(program.pid).children() if child.pid != program.pid]
        if number == signal.SIGINT:
            os.killpg(program.pid, number)  # as a terminal does it
        else:
            os.kill(program.pid, number)
        stdout, stderr = program.communicate(timeout=300)
    assert len(ranks) >= 3
    if number == signal.SIGINT:
        assert (stdout, stderr) == ("interrupted\n", "")
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith("hpml-ranks-")] == []
    ends = time.monotonic() + 60
    while (left := still_running(ranks)) and time.monotonic() < ends:
        time.sleep(0.05)
    assert left == []


IMPORT = """
import os, signal, sys, torch
from torch.distributed import get_rank
from hpml_lab.core.system.launcher import launch

assert "torch._dynamo" not in sys.modules

class InterruptsTheImport:
    def find_spec(self, name, path=None, target=None):
        if name in ("torch._dynamo.convert_frame", "sympy.core.basic"):
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, InterruptsTheImport())
try:
    launch(get_rank)
except KeyboardInterrupt:
    print("interrupted")
print(launch(get_rank), torch.optim.Adam([torch.ones(1, requires_grad=True)]).defaults["lr"])
"""


def test_an_interrupt_while_the_first_launch_imports_comes_after_the_import(nothing_left):
    finished = run_python(["-c", IMPORT], deadline_seconds=500)
    assert finished.stdout == "interrupted\n[0, 1] 0.001\n", finished.stderr


NO_GUARD = """
from torch.distributed import get_rank
from hpml_lab.core.system.launcher import launch
launch(get_rank, ranks=1, method="spawn", deadline_seconds=400)
"""


def test_a_script_that_spawns_ranks_without_a_main_guard_is_told_at_once(tmp_path, nothing_left):
    (tmp_path / "own.py").write_text(NO_GUARD)
    finished = run_python([str(tmp_path / "own.py")], deadline_seconds=300)
    assert finished.exitcode == 1 and finished.stderr.count('under `if __name__ == "__main__":`') == 1, finished.stderr
    assert "Rank 0 of 1 ended with exit code 1" in finished.stderr


def test_a_network_interface_that_is_not_there_is_named(monkeypatch, nothing_left):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nosuch0")
    with pytest.raises(RankError, match=r"gloo cannot connect over nosuch0 .*address for: nosuch0"):
        launch(dist.get_rank, deadline_seconds=300)


CELLS = [
    "import os, time, torch, torch.distributed as dist; from hpml_lab.core.system.launcher import launch",
    "torch.set_num_threads(2); (torch.ones(600, 600, requires_grad=True) @ torch.ones(600, 600)).sum().backward()",
    "class Pair:\n    def __init__(self, a): self.a = a",
    "def work(a):\n    b = torch.tensor(float(dist.get_rank())); dist.all_reduce(b); return Pair(a + b.item())",
    "print([isinstance(pair, Pair) and pair.a for pair in launch(work, 1)])",
    "def fail():\n    x = 1\n    raise ValueError('a bad value')",
    "try:\n    launch(fail)\nexcept Exception as error:\n    print(error)",
    "def say():\n    print('said by', dist.get_rank())\nprint(launch(say))",
]


@pytest.mark.environment("a Jupyter kernel", files=("hpml_lab/core/system",))
def test_in_a_kernel_functions_of_a_cell_run_and_an_interrupt_ends_all_ranks(nothing_left):
    from jupyter_client import KernelManager

    manager = KernelManager()
    manager.start_kernel(env=python_environment())
    client = manager.client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=300)

        def run(code, interrupt_when=None):
            message, texts = client.execute(code), []
            while True:
                reply = client.get_iopub_msg(timeout=300)
                if reply["parent_header"].get("msg_id") != message:
                    continue
                content = reply["content"]
                texts += [content[key] for key in ("text", "ename") if key in content]
                if interrupt_when and interrupt_when in "".join(texts):
                    interrupt_when = None
                    manager.interrupt_kernel()
                if content.get("execution_state") == "idle":
                    return "".join(texts)

        shown = "".join(run(cell) for cell in CELLS)
        assert "[2.0, 2.0]" in shown and "raised ValueError: a bad value (line 3 of the cell)" in shown
        assert shown.count("said by") == 2 and "[None, None]" in shown, "what ranks print is shown"
        assert "KeyboardInterrupt" in run(
            "def sleep():\n    print('asleep', flush=True)\n    time.sleep(600)\nlaunch(sleep, deadline_seconds=600)",
            interrupt_when="asleep",
        )
        left = "import psutil; print([c.name() for c in psutil.Process().children() if 'tracker' not in ' '.join(c.cmdline())])"
        assert run(left) == "[]\n"
        assert run(CELLS[4]) == "[2.0, 2.0]\n", "it goes on"
    except Empty:
        pytest.fail("the kernel did not answer")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


AFTER_AN_EXPORT = """
import torch
from torch import nn

from hpml_lab.core.system.children import run_in_child
from hpml_lab.core.system.launcher import launch
from hpml_lab.serving import export_onnx

def gradient():
    weight = torch.ones(3, requires_grad=True)
    weight.sum().backward()
    return weight.grad.tolist()

if __name__ == "__main__":
    export_onnx(nn.Linear(3, 4), (3,))
    print([gradient(), *launch(gradient), run_in_child(gradient, deadline_seconds=100).value])
"""


@pytest.mark.environment("a new interpreter", files=("hpml_lab/core/system/launcher.py", "hpml_lab/core/system/children.py"))
def test_ranks_compute_gradients_where_an_export_came_before_the_first_gradient(tmp_path):
    """It makes autograd start threads, in which torch refuses gradients after a fork."""
    pytest.importorskip("onnxscript")
    (tmp_path / "script.py").write_text(AFTER_AN_EXPORT, encoding="utf-8")
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, env=os.environ)
    assert done.stdout.splitlines()[-1:] == [str([[1.0] * 3] * 4)], done.stderr


def test_with_threads_of_autograd_here_ranks_come_from_a_server(monkeypatch):
    monkeypatch.setattr(launching, "has_autograd_threads", lambda: True)
    monkeypatch.setattr(sys, "platform", "linux")
    assert launching._method() == "forkserver"
