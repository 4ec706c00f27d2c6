"""What bounds a command, by fixed evidence: the decisions, what is read of a thread's stack, and of its counters."""

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from hpml_lab.core.system import cgroups
from hpml_lab.core.system.cgroups import Throttling
from hpml_lab.profilers import process_tree
from hpml_lab.profilers.command_verdict import CANNOT_TELL, COMMAND_BOUNDS, OTHERS, QUOTA, CommandEvidence, decide_command
from hpml_lab.profilers.command_watch import CommandWatch, asks_again
from hpml_lab.profilers.process_tree import DISK, LOCK, READ, ProcessTree, Quotas, ThreadRecord, ThreadTimes
from hpml_lab.profilers.python_stacks import INPUT, WAITS_FOR_OTHERS, WORK, WORKER, PythonStacks, ThreadLooks, line_of, role_of

SEEN = CommandEvidence(seconds=5.0, cores=4)
BUSY = replace(SEEN, cores_used=1.0, cores_wanted=1.0, busiest=0.98, busiest_where="train.py:7 in step")
WAITS = replace(SEEN, input_wait=0.9, input_where="train.py:9 in load")

FIXED = [
    ("input", WAITS),
    ("input", replace(WAITS, cores_wanted=2.0, workers=0.6, busiest_worker=0.2)),
    ("CPU", replace(WAITS, cores_wanted=3.0, workers=2.8, busiest_worker=0.95, busiest=0.95)),
    ("CPU", replace(SEEN, cores_used=3.5, cores_wanted=3.5, busiest=1.0)),
    ("CPU", replace(SEEN, cores_used=0.5, cores_wanted=3.5, busiest=1.0)),
    ("single thread", BUSY),
    ("single thread", replace(WAITS, cores_wanted=1.3, workers=1.0, busiest=0.95, busiest_worker=0.95)),
    ("GIL", replace(BUSY, busiest=0.3, gil_wait=2.9, lock_wait=2.9, lock_threads=4)),
    ("lock", replace(SEEN, cores_used=0.1, cores_wanted=0.1, lock_wait=2.9, lock_threads=4, lock_where="a.py:3 in work")),
    ("disk", replace(SEEN, cores_used=0.4, cores_wanted=0.4, disk_wait=0.6, read_mb=30.0)),
    ("disk", replace(WAITS, disk_wait=0.8, workers=0.3, read_mb=30.0)),  # its workers wait for storage
    ("GPU", replace(BUSY, gpu=0.95)),
    (CANNOT_TELL, replace(SEEN, disk_wait=0.9, other_wait=0.9)),  # uninterruptible, but no byte was moved
    (CANNOT_TELL, replace(SEEN, cores_wanted=1.4, busiest=0.9)),
    (CANNOT_TELL, replace(SEEN, cores_wanted=1.2, busiest=0.8)),  # such as two threads that wait for memory in turns
    (CANNOT_TELL, replace(SEEN, input_wait=0.5, cores_wanted=0.5, busiest=0.5)),
    (CANNOT_TELL, replace(WAITS, workers=1.0, busiest_worker=0.5)),
    (CANNOT_TELL, replace(SEEN, sleep_wait=0.9)),
    (CANNOT_TELL, replace(BUSY, seconds=0.1)),
]


@pytest.mark.parametrize(("bound", "evidence"), FIXED)
def test_a_verdict_follows_from_the_evidence_alone(bound, evidence):
    diagnosis = decide_command(evidence)
    assert diagnosis.bound == bound, diagnosis.text()
    assert diagnosis.as_dict()["bound"] == bound and diagnosis.findings[0][1]


def test_every_bound_of_a_command_can_be_named():
    assert {decide_command(evidence).bound for _, evidence in FIXED} | {OTHERS, QUOTA} == {*COMMAND_BOUNDS, CANNOT_TELL}


def test_other_programs_that_have_the_cores_are_said_first():
    held_up = replace(BUSY, cores_used=0.3, cores_waited=0.7, others=3.7)
    assert [bound for bound, _ in decide_command(held_up).findings] == [OTHERS, "single thread"]
    assert decide_command(held_up).text().startswith("other programs: they use 3.7 of 4 cores, and for 70% of the time that")
    own_threads = replace(BUSY, cores_used=4.0, cores_waited=4.0, cores_wanted=8.0)
    assert decide_command(own_threads).bound == "CPU", "its own threads have the cores"
    mostly_asleep = replace(SEEN, cores_used=0.01, cores_waited=0.09, others=3.9, sleep_wait=0.9)
    assert decide_command(mostly_asleep).bound == CANNOT_TELL, "a core would help a tenth of the time only"


STOPPED = replace(BUSY, cores=0.1, mask_cores=4, quota=0.1, cores_used=0.1, cores_waited=0.9, others=3.8)
STOPPED = replace(STOPPED, stopped=0.8, stopped_periods=48, periods=50)


def test_a_quota_that_was_used_up_is_not_charged_to_other_programs():
    diagnosis = decide_command(STOPPED)
    assert [bound for bound, _ in diagnosis.findings] == [QUOTA, "single thread"]
    assert diagnosis.findings[0][1].startswith(
        "its quota of 0.1 cores was used up in 48 of 50 periods: it is stopped for 80% of the time that it could run"
    )
    assert "1.0 of 0.1 cores" in diagnosis.findings[1][1]
    pool = replace(STOPPED, cores_wanted=8.0, cores_used=0.1, cores_waited=7.9, stopped=3.5)
    assert [bound for bound, _ in decide_command(pool).findings] == [QUOTA, "CPU"], "a stopped core counts for all its threads"


def test_other_programs_count_where_the_quota_was_not_used_up():
    seldom = replace(STOPPED, stopped=0.05, stopped_periods=3)
    assert [bound for bound, _ in decide_command(seldom).findings] == [OTHERS, "single thread"]
    both = replace(STOPPED, stopped=0.3, stopped_periods=15)
    assert [bound for bound, _ in decide_command(both).findings] == [QUOTA, OTHERS, "single thread"]
    wide = replace(seldom, cores=1, quota=1, mask_cores=64, others=3.0)
    assert decide_command(wide).bound == "single thread", "3 of the 64 cores that it may run on"
    short = replace(STOPPED, seconds=0.1)
    assert decide_command(short).bound == CANNOT_TELL


def test_what_cannot_be_classed_is_said_in_one_line_with_the_line_of_code():
    asleep = replace(SEEN, sleep_wait=0.9, cores_wanted=0.1, wait_where="batches.py:4 in get_batch")
    assert decide_command(asleep).findings[0][1] == (
        "it sleeps for 90% of the time, most at batches.py:4 in get_batch, and asks for 0.1 of 4 cores"
    )
    between = replace(SEEN, cores_wanted=1.4, busiest=0.9, busiest_where="train.py:7 in step")
    reason = decide_command(between).findings[0][1]
    assert "1.4 of 4 cores" in reason and reason.endswith("most at train.py:7 in step") and "lock" not in reason
    held = replace(between, cores=0.1, mask_cores=4, quota=0.1)
    assert decide_command(held).findings[0][1] == (
        "1.4 of 0.1 cores are asked for: more than its quota allows, most at train.py:7 in step"
    )


def frames(*places):
    return [{"filename": file, "name": name, "line": 7} for file, name in places]


LIB = "/usr/lib/python3.12"
TORCH = f"{LIB}/site-packages/torch"
PROCESS, THREAD = (f"{LIB}/multiprocessing/process.py", "run"), (f"{LIB}/threading.py", "run")


@pytest.mark.parametrize(
    ("role", "stack"),
    [
        (WORK, frames(("/home/me/train.py", "step"))),
        (WORK, frames(("/home/me/queue.py", "get"))),  # not Python's
        (WORK, frames((f"{TORCH}/_tensor.py", "backward"), ("/home/me/train.py", "step"))),
        (INPUT, frames((f"{LIB}/selectors.py", "select"), (f"{TORCH}/utils/data/dataloader.py", "_get_data"))),
        (INPUT, frames(("/home/me/data.py", "Images.__getitem__"), ("/home/me/train.py", "step"))),
        (WORKER, frames((f"{LIB}/selectors.py", "select"), (f"{TORCH}/utils/data/_utils/worker.py", "_worker_loop"), PROCESS)),
        (WORKER, frames(("/home/me/train.py", "step"), (f"{LIB}/multiprocessing/pool.py", "worker"), PROCESS)),
        (WAITS_FOR_OTHERS, frames((f"{LIB}/threading.py", "wait"), (f"{LIB}/multiprocessing/pool.py", "get"))),
        (WAITS_FOR_OTHERS, frames((f"{LIB}/threading.py", "wait"), (f"{LIB}/concurrent/futures/process.py", "map"))),
        (WORK, frames(("/home/me/train.py", "step"), (f"{LIB}/multiprocessing/pool.py", "worker"), THREAD)),
        (WAITS_FOR_OTHERS, frames((f"{LIB}/subprocess.py", "_try_wait"), ("/home/me/launch.py", "main"))),
        (WAITS_FOR_OTHERS, frames((f"{LIB}/threading.py", "wait"), (f"{LIB}/queue.py", "get"))),
        (WAITS_FOR_OTHERS, frames((f"{TORCH}/distributed/elastic/agent/server/api.py", "_invoke_run"))),
    ],
)
def test_a_stack_says_what_its_thread_is_at(role, stack):
    assert role_of(stack) == role


def test_the_line_is_the_program_s_own():
    stack = frames((f"{TORCH}/_tensor.py", "backward"), ("/home/me/train.py", "step"), ("/home/me/train.py", "<module>"))
    assert line_of(stack) == "train.py:7 in step"
    assert line_of(stack[:1]) == "_tensor.py:7 in backward", "a program of a library has no other"


def test_time_spent_waiting_for_a_core_is_no_time_spent_blocked():
    record = ThreadRecord(alive=10.0, ran=1.0, waited=8.0)
    record.kinds[DISK] += 3
    assert record.blocked == pytest.approx(0.5) == record.share(DISK)
    assert record.demand == pytest.approx(5.0), "on an idle machine it would run half of the time"
    late = ThreadRecord(alive=1.0, ran=0.4, waited=0.7)  # a wait that began before the first look
    assert late.blocked == 0.0 and late.demand == pytest.approx(1.0)


def test_a_wait_longer_than_a_look_counts_whole(monkeypatch):
    me = os.getpid()
    readings = iter([(0.0, 0.0), (0.0, 0.0), (0.0, 0.0), (0.1, 2.9)])  # the kernel counts a wait when it is over
    monkeypatch.setattr(process_tree, "_times_of", lambda who: [(me, ThreadTimes(*next(readings), 0))] if who == me else [])
    tree = ProcessTree(me, at=0.0)
    for at in (1.0, 2.0, 3.0):
        tree.look(at)
    assert tree.threads[me, me].blocked == pytest.approx(0.0), "it waited for a core, and was never blocked"


def test_bytes_count_once_though_the_kernel_adds_a_child_s_to_its_parent_s_and_not_while_modules_are_imported(monkeypatch):
    me, child, moved = os.getpid(), 2**22 + 1, {}
    monkeypatch.setattr(process_tree, "_times_of", lambda who: [(who, ThreadTimes(0.0, 0.0, 0))] if who in moved else [])
    monkeypatch.setattr(process_tree, "_bytes_of", lambda who: moved.get(who, (0, 0)))
    moved |= {me: (5, 0)}
    tree = ProcessTree(me, at=0.0)
    tree._find_children = lambda: None
    tree.living.append(child)
    moved |= {me: (6, 0), child: (10, 2)}
    tree.look(1.0)
    moved.pop(child)
    moved |= {me: (16, 2)}
    tree.look(2.0)
    assert (tree.read, tree.written) == (11, 2)
    tree.importing.add(me)
    moved |= {me: (1016, 1002)}
    monkeypatch.setattr(process_tree, "_times_of", lambda who: [(who, ThreadTimes(1.0, 0.0, 0))] if who in moved else [])
    tree.look(3.0)
    assert (tree.read, tree.written, tree.start_seconds) == (11, 2, 1.0)


@pytest.fixture
def groups(monkeypatch, tmp_path):
    """(process, group, quota in % of a core, throttled seconds): it is in that group, whose counter stands there."""
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    monkeypatch.setattr(process_tree, "has_ended", lambda process: False)

    def put(process, group, percent, seconds):
        files = {f"proc/{process}/cgroup": f"0::/{group}\n"}
        files |= {f"sys/fs/cgroup/{group}/cpu.max": f"{percent}000 100000\n" if percent else "max 100000\n"}
        counted = f"nr_periods {10 * seconds}\nnr_throttled {9 * seconds}\nthrottled_usec {seconds}000000\n"
        files |= {f"sys/fs/cgroup/{group}/cpu.stat": counted}
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)

    return put


def test_what_a_quota_did_counts_from_the_first_look_on_and_not_in_imports(groups):
    quotas = Quotas()
    groups(7, "a", 50, 100)
    quotas.look([7], counts=False)
    groups(7, "a", 50, 102)
    quotas.look([7], counts=True)
    groups(7, "a", 50, 107)
    quotas.look([7], counts=False)
    groups(7, "a", 50, 108)
    quotas.look([7], counts=True)
    assert quotas.most() == (0.5, Throttling(30, 27, 3.0))


def test_the_quota_is_that_of_the_group_into_which_the_work_was_moved(groups):
    quotas = Quotas()
    groups(7, "shell", 0, 0)
    quotas.look([7], counts=True)
    assert quotas.most() == (0.0, Throttling(0, 0, 0.0))
    groups(8, "job", 25, 40)
    quotas.look([7, 8], counts=True)
    groups(8, "job", 25, 44)
    quotas.look([7, 8, 9], counts=True)  # 9 has just ended
    assert quotas.most() == (0.25, Throttling(40, 36, 4.0))


def test_a_quota_that_is_set_later_counts_from_then_on(groups):
    quotas = Quotas()
    for percent, seconds in ((0, 0), (0, 3), (40, 3), (20, 5), (20, 9)):
        groups(7, "box", percent, seconds)
        quotas.look([7], counts=True)
    assert quotas.most() == (0.2, Throttling(60, 54, 6.0)) and quotas.root == 0.2


def test_the_quota_of_a_program_that_has_ended_is_the_last_that_it_had(groups, monkeypatch):
    quotas = Quotas()
    for ended in (False, True):
        monkeypatch.setattr(process_tree, "has_ended", lambda process, ended=ended: ended)
        groups(7, "/" if ended else "box", 0 if ended else 50, 0)  # version 1 takes what has ended out of its group
        quotas.look([7], counts=True)
    assert quotas.most() == (0.5, Throttling(0, 0, 0.0))


def test_without_throttling_the_quota_is_the_programs_own(groups):
    quotas = Quotas()
    groups(7, "pod", 200, 5)
    groups(7, "pod/box", 150, 5)
    groups(8, "pod/helper", 10, 5)
    quotas.look([7, 8], counts=True)
    assert quotas.most() == (1.5, Throttling(0, 0, 0.0))


def test_the_cores_of_the_evidence_are_those_that_the_quota_leaves(watch, groups):
    watch.tree.cores = {0, 1}
    for percent, limits in ((0, (2, 0, 0)), (50, (0.5, 2, 0.5)), (100, (1, 2, 1)), (800, (2, 0, 8))):
        watch.tree.quotas = Quotas()
        groups(7, "box", percent, 0)
        watch.tree.quotas.look([7], counts=True)
        seen = watch.evidence()
        assert (seen.cores, seen.mask_cores, seen.quota) == limits and seen.stopped == seen.periods == 0
    groups(7, "box", 800, 20)
    watch.tree.quotas.look([7], counts=True)
    assert (watch.evidence().stopped, watch.evidence().stopped_periods, watch.evidence().periods) == (2.0, 180, 200)


def test_what_a_quota_does_while_modules_are_imported_is_the_programs_start(monkeypatch):
    me, ran, counted = os.getpid(), iter((0.0, 1.0, 2.0)), []
    monkeypatch.setattr(process_tree, "_times_of", lambda who: [(who, ThreadTimes(next(ran), 0.0, 0))] if who == me else [])
    tree = ProcessTree(me, at=0.0)
    tree.quotas = SimpleNamespace(look=lambda processes, counts: counted.append((list(processes), counts)))
    tree.look(1.0)
    tree.importing.add(me)
    tree.look(2.0)
    assert [counts for _, counts in counted] == [True, False] and all(processes[0] == me for processes, _ in counted)


def test_a_thread_that_ran_and_now_waits_is_asked_what_for():
    """Of a long look in which it ran for a part: it was not at work the whole time."""
    tree, ends, spun = ProcessTree(os.getpid(), at=0.0), threading.Event(), threading.Event()

    def run_and_wait():
        while time.thread_time() < 0.15:
            pass
        spun.set()
        ends.wait()

    thread = threading.Thread(target=run_and_wait)
    thread.start()
    try:
        assert spun.wait(60)
        time.sleep(0.05)
        tree.look(at=10.0)
        assert tree.states[os.getpid(), thread.native_id] != process_tree.RUNNING
    finally:
        ends.set()
        thread.join()


@pytest.fixture
def watch():
    """A watch of 10 seconds, whose threads and what is known of their stacks a test fills in."""
    made = CommandWatch(os.getpid())
    made.tree.seconds, made.tree.threads = 10.0, {}
    return made


def blocked_by(*kinds):
    return ThreadRecord(alive=10.0, kinds=Counter(kinds))


def test_a_thread_at_a_lock_asks_again_less_often_than_one_that_waits_for_the_interpreter():
    assert not asks_again(ThreadRecord(alive=10.0, turns=100)) and asks_again(ThreadRecord(alive=10.0, turns=600))


def test_cores_that_the_program_may_not_use_are_no_matter_how_busy(monkeypatch):
    readings = iter([{0: 1.0, 1: 1.0}, {0: 1.5, 1: 2.0}, {0: 2.0, 1: 3.0}])
    monkeypatch.setattr(process_tree, "_busy_seconds", lambda: next(readings))
    monkeypatch.setattr(os, "sched_getaffinity", lambda who: {0})
    tree = ProcessTree(os.getpid(), at=0.0)
    tree.look(1.0)
    assert tree.busy_seconds == 0.5 and tree.cores == {0}
    monkeypatch.setattr(os, "sched_getaffinity", lambda who: {6, 7})  # the listed ones are its own, by other numbers
    tree.look(2.0)
    assert tree.busy_seconds == 2.0


def test_a_thread_of_a_pool_that_waits_for_work_contends_for_no_lock(watch):
    own, idle = ThreadLooks(locked=Counter({WORK: 3})), ThreadLooks(locked=Counter({WORK: 1, WAITS_FOR_OTHERS: 29}))
    own.lines[LOCK]["a.py:3 in work"] = 3
    watch.tree.threads = {(7, number): blocked_by(LOCK) for number in range(7, 12)}
    watch.stacks.threads = {who: own if who[1] < 9 else idle for who in watch.tree.threads}
    watch.stacks.dumps[7] = 30
    seen = watch._with_locks(SEEN)
    assert (seen.lock_wait, seen.lock_threads, seen.lock_where) == (2.0, 2, "a.py:3 in work")


def test_without_stacks_waits_at_a_pipe_are_for_input(watch):
    watch.tree.threads = {(7, 7): blocked_by(READ, READ, READ, LOCK), (8, 8): ThreadRecord(alive=10.0)}
    assert watch._input_share((7, 7)) == 0.75 and watch._input_share((8, 8)) == 0


def test_the_leading_threads_do_the_programs_own_work(watch):
    """Of 7 the stacks are known: its main thread waits for the other. Of 9 they are not: there the main thread leads."""
    watch.tree.threads = {who: blocked_by(READ) for who in ((7, 7), (7, 8), (9, 9), (9, 10))}
    watch.stacks.dumps[7] = 1
    watch.stacks.threads = {(7, 7): SimpleNamespace(role=WAITS_FOR_OTHERS), (7, 8): SimpleNamespace(role=WORK)}
    assert watch._leading() == [(7, 8), (9, 9)]


def test_a_program_that_leaves_its_work_to_a_pool_is_led_by_the_workers(watch):
    roles = {(7, 7): WAITS_FOR_OTHERS, (8, 8): WORKER, (8, 9): WAITS_FOR_OTHERS}
    watch.tree.threads = {who: blocked_by(READ) for who in roles}
    watch.stacks.threads = {who: SimpleNamespace(role=role) for who, role in roles.items()}
    watch.stacks.dumps.update((7, 8))
    assert watch._leading() == [(8, 8)]
    del watch.tree.threads[8, 8]
    watch.stacks.threads[8, 8].role = WAITS_FOR_OTHERS
    assert watch._leading() == [(7, 7), (8, 9)], "all wait: then what they wait for is all that there is to say"


def test_a_fork_of_a_process_that_is_done_with_its_imports_has_none_of_its_own():
    forks = "import os, sys; sys.stdin.read(1); child = os.fork(); child and print(child, flush=True); sys.stdin.read(1)"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", forks], bufsize=0, **pipes) as process:
        tree = ProcessTree(process.pid, at=0.0)
        stacks = PythonStacks(tree)
        stacks._program = "py-spy"
        stacks._due[process.pid] = stacks._next = 1e9  # it was asked, and imports nothing; nobody is asked again
        process.stdin.write(b"x")
        child = int(process.stdout.readline())
        tree.look(at=1.0)
        stacks.dump(now=2.0)
        assert child in tree.living and tree.importing == set()
        process.stdin.close()


def test_what_has_run_for_a_while_is_not_taken_to_be_in_imports():
    tree = ProcessTree(os.getpid(), at=0.0)
    for running in (True, False):
        stacks = PythonStacks(tree, running)
        stacks._program, stacks._next = "py-spy", 1e9  # nobody is asked
        stacks.dump(now=0.0)
        assert (os.getpid() in tree.importing) != running


def test_a_workers_wait_for_the_disk_is_that_of_its_main_thread(watch):
    looks = dict(blocked=Counter({INPUT: 1}), lines=Counter())
    watch.tree.threads = {(7, 7): blocked_by(READ), (8, 8): blocked_by(DISK), (8, 9): blocked_by(LOCK)}
    watch.stacks.threads = {(7, 7): SimpleNamespace(role=WORK, **looks), (8, 8): SimpleNamespace(role=WORKER, **looks)}
    watch._line = lambda *_: ""
    assert watch._with_waits(SEEN).disk_wait == pytest.approx(1.0), "the worker's helper waits for nothing that is read"


def test_in_imports_no_look_at_a_gpu_counts(watch):
    watch.tree.look = lambda at: setattr(watch.tree, "start_seconds", at)
    watch.stacks.dump = lambda now: None
    watch.run(seconds=0.2)
    assert watch._gpu_looks == 0


@pytest.mark.parametrize(
    ("letter", "wchan", "state"),
    [("R", "0", "running"), ("D", "__iomap_dio_rw", "disk"), ("D", "jbd2_log_wait_commit", "disk"),
     ("S", "futex_do_wait", "lock"), ("S", "hrtimer_nanosleep", "sleep"), ("S", "do_wait", "child"),
     ("S", "poll_schedule_timeout.constprop.0", "read"), ("S", "pipe_write", "other")],
)  # fmt: skip
def test_what_a_thread_is_blocked_by_is_read_from_the_kernel(monkeypatch, tmp_path, letter, wchan, state):
    monkeypatch.setattr(process_tree, "_stat", lambda *_: (letter, 1))
    monkeypatch.setattr(process_tree, "PROC", tmp_path)
    task = tmp_path / "7" / "task" / "8"
    task.mkdir(parents=True)
    (task / "wchan").write_text(wchan)
    assert process_tree.state_of(7, 8) == state
