"""Watches somebody else's program from outside, and says what bounds it: nothing of this package is in the program.

/proc is read for what its threads use, want and wait for, py-spy is asked where they stand, NVML whether a GPU works. What was
seen is kept here as it comes, so that a program may end as it likes: by exec, os._exit, a signal.
"""

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from hpml_lab.core.system.errors import LabError
from hpml_lab.profilers.beside import Notes
from hpml_lab.profilers.command_verdict import CommandDiagnosis, CommandEvidence, decide_command
from hpml_lab.profilers.foreground import in_foreground, wait_with_usage
from hpml_lab.profilers.nvml import GpuReading, Gpus
from hpml_lab.profilers.process_tree import (
    CHILD,
    DISK,
    LOCK,
    OTHER,
    PROC,
    READ,
    RUNNING,
    SLEEP,
    ProcessTree,
    ThreadRecord,
    has_ended,
)
from hpml_lab.profilers.python_stacks import INPUT, NO_LINES, WAITS_FOR_OTHERS, WORKER, PythonStacks
from hpml_lab.profilers.thread_states import ThreadKey, shares_of_successors

PERIOD = 0.05  # seconds between two looks at least
COST, AT_FIRST = 0.01, 0.05  # of a core, and seconds, that looking may take: where there are many threads it looks less often
GPU_PERIOD = 0.5
GIL_TURNS = 50  # a second: a thread that waits for the interpreter asks for it every 5 ms, one at a lock sleeps
CONTENDS = 0.05  # of its time at least that a thread is at a lock, to count
LEADS = 0.2  # of the time at least that a leading thread exists
UNSEEN = 0.25  # of the processor time, from which it is said that processes were too short to be seen
MB = 1e6


def diagnose_command(
    command: Sequence[str], seconds: float | None = None, report: Callable[[CommandDiagnosis], None] = lambda diagnosis: None
) -> tuple[CommandDiagnosis | None, int]:
    """Run `command` in the foreground; return what bounds it, None if that failed, and its exit code.

    seconds  watch it for so long only, after which the command goes on to its end
    report   is called with the diagnosis; its failure, too, leaves the exit code alone
    """
    _need_proc()
    diagnosis = None
    with in_foreground(command) as process:
        watch = CommandWatch(process.pid)
        watch.run(seconds)
        seen_to_the_end = has_ended(process.pid)
        _, usage = wait_with_usage(process)
        diagnosis = watch.diagnosis(usage.ru_utime + usage.ru_stime - watch.tree.ran_seconds if seen_to_the_end else 0.0)
        report(diagnosis)
    return diagnosis, process.returncode


def diagnose_process(process_id: int, seconds: float | None = None) -> CommandDiagnosis:
    """What bounds a process that runs already: watched until it ends, for `seconds`, or until a signal asks to stop."""
    _need_proc()
    if has_ended(process_id):
        raise LabError(f"there is no process {process_id}.", "`ps -e` lists those that run.")
    if not os.access(PROC / str(process_id) / "io", os.R_OK):
        raise LabError(f"process {process_id} may not be watched.", "It belongs to another user: run the command as that user.")
    watch = CommandWatch(process_id, running=True)
    with _asked_to_stop() as asked:
        watch.run(seconds, lambda: bool(asked))
    return watch.diagnosis()


def _need_proc() -> None:
    if not (PROC / "self" / "schedstat").exists():
        raise LabError(
            "this system does not say what the threads of a program wait for.",
            "On Linux it does (/proc); elsewhere use hpml_lab.profiling.classify(loop) in the program.",
        )


@contextlib.contextmanager
def _asked_to_stop() -> Iterator[list[int]]:
    """A list that gets the number of each SIGINT and SIGTERM, instead of this process's end."""
    asked: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: asked.append(number)) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class CommandWatch:
    """Looks at a process and all that it has started, again and again while `run` lasts; `diagnosis` then sums up."""

    def __init__(self, process_id: int, running: bool = False) -> None:
        self._root = process_id
        self.tree = ProcessTree(process_id, time.monotonic())
        self.stacks = PythonStacks(self.tree, running)
        self._gpu = Counter[str]()
        self._gpu_looks = 0
        self._notes = Notes()

    def run(self, seconds: float | None = None, stopped: Callable[[], bool] = lambda: False) -> None:
        """Look until the process has ended, `seconds` are over, or `stopped()`."""
        end = time.monotonic() + (seconds or float("inf"))
        gpu_due, period, first, own = 0.0, PERIOD, time.monotonic(), time.thread_time()
        with Gpus() as gpus:
            while not (has_ended(self._root) or stopped()) and time.monotonic() < end:
                time.sleep(min(period, max(0.0, end - time.monotonic())))
                began = time.thread_time()
                now = time.monotonic()
                judged = self.tree.seconds
                with self._notes.step("A look at the program is missing"):
                    self.tree.look(now)
                looked = time.thread_time()
                too_much = looked - own > AT_FIRST + COST * (now - first)
                period = max(PERIOD, (looked - began) / COST) if too_much else PERIOD
                with self._notes.step(f"{NO_LINES} of a look"):
                    self.stacks.dump(now)
                if now >= gpu_due and self.tree.seconds > judged:  # in imports a GPU has nothing to do yet
                    gpu_due = now + GPU_PERIOD
                    self._gpu_looks += 1
                    for gpu in gpus.read():
                        self._note_gpu(gpu, gpus.processes(gpu.bus_id))

    def _note_gpu(self, gpu: GpuReading, processes: set[int]) -> None:
        """Count a GPU's use, but where only others compute on it."""
        if processes and processes.isdisjoint(self.tree.living) and all((PROC / str(number)).exists() for number in processes):
            return
        if gpu.utilization is None:
            self._notes.add(f"The use of GPU {gpu.bus_id} is not given: whether it is what bounds the program is not known.")
        if gpu.utilization and not processes:
            self._notes.add(f"NVML does not name who computes on GPU {gpu.bus_id}: the use by another program counts, too.")
        self._gpu[gpu.bus_id] += gpu.utilization or 0

    def diagnosis(self, unseen: float = 0.0) -> CommandDiagnosis:
        """What bounds the program.

        unseen  seconds of processor time that it took and that were not seen
        """
        notes = [note for note in (self.stacks.note, str(self._notes)) if note]
        if unseen > UNSEEN * (unseen + self.tree.ran_seconds):
            notes.append(f"{unseen:.1f} s of processor time were taken by processes too short to be seen.")
        return decide_command(self.evidence(), notes)

    def evidence(self) -> CommandEvidence:
        """What was seen, summed up."""
        tree, seconds = self.tree, self.tree.seconds or 1e-9
        threads = tree.threads
        ran, waited = (sum(getattr(record, name) for record in threads.values()) for name in ("ran", "waited"))
        demand = {who: record.demand for who, record in threads.items()}
        lives = {who: [record.begin, record.end] for who, record in threads.items()}
        workers = {who: value for who, value in demand.items() if self._is_worker(who)}
        busiest = max(demand, key=demand.__getitem__, default=None)
        evidence = CommandEvidence(
            seconds=tree.seconds,
            start_seconds=tree.start_seconds,
            **self._limits(),
            cores_used=ran / seconds,
            cores_wanted=sum(demand.values()) / seconds,
            others=max(0.0, tree.busy_seconds - ran) / seconds,
            cores_waited=waited / seconds,
            busiest=max(shares_of_successors(demand, lives, seconds), default=0.0),
            busiest_where=self._line([busiest], RUNNING) if busiest else "",
            workers=sum(workers.values()) / seconds,
            busiest_worker=max(shares_of_successors(workers, lives, seconds), default=0.0),
            read_mb=tree.read / MB / seconds,
            written_mb=tree.written / MB / seconds,
            gpu=max(self._gpu.values(), default=0) / 100 / max(self._gpu_looks, 1),
        )
        return self._with_waits(self._with_locks(evidence))

    def _limits(self) -> dict[str, Any]:
        """The cores that the program may use, and what its quota did."""
        mask, (quota, stopped) = len(self.tree.cores), self.tree.quotas.most()
        found = {"cores": mask, "quota": quota}
        if 0 < quota < mask:
            found |= {"cores": int(quota) if quota == int(quota) else quota, "mask_cores": mask}
        if stopped.seconds:
            found |= {"stopped": stopped.seconds / (self.tree.seconds or 1e-9)}
            found |= {"stopped_periods": stopped.throttled, "periods": stopped.periods}
        return found

    # ---- threads by what they do --------------------------------------------------------------------------------------

    def _is_worker(self, who: ThreadKey) -> bool:
        """Whether the thread's process works for another one of the tree."""
        return self._role((who[0], who[0])) == WORKER

    def _role(self, who: ThreadKey) -> str | None:
        looks = self.stacks.threads.get(who)
        return looks.role if looks else None

    def _leading(self) -> list[ThreadKey]:
        """The threads of the program's own work: no workers, none that wait for others, none that runs no Python beside one.

        A program that leaves all its work to workers is led by their main threads; one that only waits, by all its threads.
        """
        found, workers = [], []
        for who, record in self.tree.threads.items():
            if record.alive < LEADS * self.tree.seconds or record.share(CHILD) >= 0.5:
                continue
            knows_stacks = self.stacks.dumps[who[0]] > 0
            if self._is_worker(who):
                workers += [who] if who[0] == who[1] else []
            elif self._role(who) not in (None, WAITS_FOR_OTHERS, WORKER) if knows_stacks else who[0] == who[1]:
                found.append(who)
        return found or workers or [*self.tree.threads]

    def _with_waits(self, evidence: CommandEvidence) -> CommandEvidence:
        """The evidence with what the leading threads wait for, as shares of their time."""
        threads, leading = self.tree.threads, self._leading()
        alive = sum(threads[who].alive for who in leading) or 1e-9
        workers = [who for who in threads if self._is_worker(who)]
        mains = [threads[who] for who in workers if who[0] == who[1]]

        def mean(share: Callable[[ThreadKey], float]) -> float:
            return sum(share(who) * threads[who].alive for who in leading) / alive

        in_input = {who: self._input_share(who) for who in leading}  # of the time that each is blocked
        in_workers = sum(record.share(DISK) for record in mains) / max(len(mains), 1)
        input_wait = mean(lambda who: in_input[who] * threads[who].blocked)
        disk_wait = mean(lambda who: threads[who].share(DISK))
        sleep_wait = mean(lambda who: (1 - in_input[who]) * threads[who].share(SLEEP))
        all_waits = mean(lambda who: threads[who].blocked)
        return replace(
            evidence,
            input_wait=input_wait,
            disk_wait=disk_wait + input_wait * in_workers,
            sleep_wait=sleep_wait,
            other_wait=max(0.0, all_waits - input_wait - disk_wait - sleep_wait),
            disk_where=self._line([*leading, *workers], DISK),
            wait_where=self._line(leading, SLEEP, OTHER, READ, LOCK),
            input_where=self._line([who for who in leading if in_input[who] > 0.5], SLEEP, OTHER, READ, LOCK),
        )

    def _input_share(self, who: ThreadKey) -> float:
        """The share of a thread's waits that fall into its input; without stacks, waits at a pipe or socket."""
        looks = self.stacks.threads.get(who)
        kinds = looks.blocked if looks else self.tree.threads[who].kinds
        return kinds[INPUT if looks else READ] / max(kinds.total(), 1)

    def _with_locks(self, evidence: CommandEvidence) -> CommandEvidence:
        """The evidence with the process whose threads wait most for Python's interpreter, and the one with most at locks."""
        gil, lock = (0.0, ""), (0.0, 0, "")
        for process, dumps in self.stacks.dumps.items():
            mine = {who: looks for who, looks in self.stacks.threads.items() if who[0] == process and who in self.tree.threads}
            at_gil = sum(looks.at_gil for who, looks in mine.items() if asks_again(self.tree.threads[who]))
            gil = max(gil, (at_gil / dumps, most_common(self.stacks.owners[process])))
            at_lock = {who: looks.contends * self.tree.threads[who].share(LOCK) for who, looks in mine.items()}
            at_lock = {who: share for who, share in at_lock.items() if share > CONTENDS}
            lock = max(lock, (sum(at_lock.values()), len(at_lock), self._line([*at_lock], LOCK)))
        return replace(evidence, gil_wait=gil[0], gil_where=gil[1], lock_wait=lock[0], lock_threads=lock[1], lock_where=lock[2])

    def _line(self, threads: Sequence[ThreadKey], *states: str) -> str:
        """The line at which these threads were found most in one of these states."""
        lines = Counter[str]()
        for looks in (self.stacks.threads[who] for who in threads if who in self.stacks.threads):
            for state in states:
                lines.update(looks.lines[state])
        return most_common(lines)


def asks_again(record: ThreadRecord) -> bool:
    """Whether a thread wakes as often while it is blocked as one that waits for Python's interpreter."""
    return record.turns > GIL_TURNS * record.blocked * record.free


def most_common(lines: Counter[str]) -> str:
    return lines.most_common(1)[0][0] if lines else ""
