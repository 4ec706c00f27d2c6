"""Names what bounds a training loop: `classify(loop)` runs it once, watches it from outside, and decides by the evidence.

It needs no hint. A thread samples 100 times a second which threads and workers run, wait for a core or are blocked, and where
the loop's own thread stands. On a GPU the profiler's time line and the counted FLOPs and bytes are added. An iterator or
generator is taken for the loop's input unless one of torch's optimizers steps in it: then it is the loop.
`decide` is a plain function of the evidence; between its limits it says that it cannot tell.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from hpml_lab.core.experiment import Row, Table, column
from hpml_lab.core.experiment.render import table_text
from hpml_lab.core.timing.counting import synchronize, trace_events
from hpml_lab.profilers.thread_states import Watch
from hpml_lab.profiling.tools.device_work import device_evidence, device_spans, least_seconds

BOUNDS = ("input", "CPU", "transfer", "GPU compute", "GPU memory", "lock", "single thread")
CANNOT_TELL = "cannot tell"
SHORTEST = 0.1  # seconds: fewer than about ten samples say nothing
HIGH, LOW = 0.6, 0.4  # a share above HIGH decides, below LOW it is no cause; between them nothing is certain
ONE_CORE, MORE_CORES = 1.25, 1.5  # cores asked for: one thread's worth, and clearly more than one thread's
FREE = 0.15  # threads at a lock, at most, where threads count as running freely
HELD = 0.1  # share of its samples that the watch waits for the interpreter, at most, where threads count as running freely
REACHED, TWICE = 0.3, 2.0  # a ceiling has to explain so much of the kernels' time, and so many times more than the other


@dataclass(frozen=True)
class EvidenceRow(Row):
    """One figure of the evidence, in words."""

    evidence: str = column("evidence")
    value: float | int | str = column("value")


@dataclass(frozen=True)
class Evidence(Row):
    """What was seen of a loop. A share is of the loop's time, 0 to 1; cores and threads are means over it.

    cores_wanted  cores used, and those waited for while others had them: on a busy machine what counts is what is asked for
    handed_over   share in which the loop's thread waited while another thread, which Python does not know, worked for it, as
                  autograd's does in the backward pass on a GPU; such time counts as the loop's own thread's, as `busiest`
    workers       the same of the worker processes and of all threads but the loop's own
    busiest_worker  the share of its life for which the busiest of these asked for a core; workers that replace one another, as
                  fresh ones do in every epoch, count as one
    input_wait    share in which the loop's thread was blocked inside its input: a DataLoader, a generator, a read
    lock_wait     threads that were blocked at a lock (the interpreter's own too), not counting those that wait for work
    interpreter   share of its samples, without its waits for a core, that the watch itself waited for the interpreter's lock
    unknown_wait  share in which the loop's thread was blocked elsewhere, such as a sleep
    kernels       share in which a GPU ran a kernel; `copies` a copy to or from the host and no kernel
    compute, memory   the least time for the kernels' FLOPs and bytes at the GPU's ceilings, over the kernels' time
    """

    seconds: float = column("time of the loop", "s")
    cores: int = column("cores of the machine", default=1)
    cores_used: float = column("cores used", default=0.0)
    cores_wanted: float = column("cores used or waited for", default=0.0)
    busiest: float = column("of these by the busiest thread", default=0.0)
    handed_over: float = column("share of time in which a thread without Python worked for the loop's", default=0.0)
    workers: float = column("of these by workers and other threads", default=0.0)
    busiest_worker: float = column("busiest worker, share of its life", default=0.0)
    input_wait: float = column("share of time blocked in the input", default=0.0)
    input_run: float = column("share of time running in the input", default=0.0)
    lock_wait: float = column("threads blocked at a lock", default=0.0)
    lock_threads: int = column("different threads seen at a lock", default=0)
    interpreter: float = column("share of the samples that waited for the interpreter", default=0.0)
    unknown_wait: float = column("share of time blocked elsewhere", default=0.0)
    kernels: float = column("share of time with a kernel on the GPU", default=0.0)
    copies: float = column("share of time with a copy and no kernel", default=0.0)
    compute: float = column("share of kernel time the FLOPs need at the ceiling", default=0.0)
    memory: float = column("share of kernel time the bytes need at the ceiling", default=0.0)
    where: str = column("line at which threads waited most", default="")

    def rows(self) -> list[EvidenceRow]:
        """The evidence as a table."""
        headings = Table("", [self]).columns
        return [EvidenceRow(heading, getattr(self, name)) for name, heading in headings.items()]


@dataclass(frozen=True)
class Diagnosis:
    """`bound` is one of BOUNDS or CANNOT_TELL; `reason` says by what evidence."""

    bound: str
    reason: str
    evidence: Evidence

    def __repr__(self) -> str:
        return f"Diagnosis: {self.bound}"

    def text(self) -> str:
        """The bound, the reason and the evidence that is not zero, for a terminal."""
        rows = [[row.evidence, row.value] for row in self.evidence.rows() if row.value]
        return f"{self.bound}: {self.reason}\n\n{table_text(['evidence', ''], rows)}"


def classify(loop: Callable[[], object], device: torch.device | str = "cpu") -> Diagnosis:
    """Run `loop()` under observation and name its bound.

    loop    any training loop as a function without arguments, some tenths of a second long or longer, that has been run before:
            a first call's imports and allocations would be judged too
    device  where it computes; for a CUDA device the loop runs a second time, for its FLOPs and bytes to be counted, so it has
            to do the same work on every call
    """
    device = torch.device(device)
    if device.type != "cuda":
        with Watch() as watch:
            loop()
        return decide(Evidence(**watch.evidence()))
    synchronize(device)
    # The GPU's side only: recording every operator on the host too would slow a loop that is bound by its launches.
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, acc_events=True) as profile, Watch() as watch:
        loop()
        synchronize(device)
    seen = watch.evidence()
    spans = device_spans(trace_events(profile))
    return decide(Evidence(**seen, **device_evidence(spans, seen["seconds"], *least_seconds(loop, device))))


def decide(seen: Evidence) -> Diagnosis:
    """The bound by the evidence alone: the GPU first, then waiting, then the cores; no figure outside `seen` counts."""

    def diagnosis(bound: str, reason: str) -> Diagnosis:
        return Diagnosis(bound, reason, seen)

    if seen.seconds < SHORTEST:
        return diagnosis(CANNOT_TELL, f"the loop took less than {SHORTEST} s")
    if seen.kernels >= HIGH:
        return diagnosis(*_of_kernels(seen))
    if seen.copies >= HIGH:
        return diagnosis("transfer", f"copies alone keep the GPU for {seen.copies:.0%} of the time")
    if seen.kernels + seen.copies >= HIGH:
        return diagnosis(CANNOT_TELL, "the GPU is busy, but neither kernels nor copies prevail")
    if seen.lock_threads >= 2 and seen.lock_wait >= HIGH * max(1.0, seen.cores_wanted) and seen.cores_used <= ONE_CORE:
        at = f", most at {seen.where}" if seen.where else ""
        return diagnosis("lock", f"{seen.lock_wait:.1f} threads wait for a lock, {seen.cores_used:.1f} cores are in use{at}")
    if seen.input_wait >= HIGH:
        return diagnosis(*_of_input(seen))
    if max(seen.input_wait, seen.lock_wait, seen.unknown_wait, seen.kernels + seen.copies) > LOW:
        return diagnosis(CANNOT_TELL, "the loop waits for a good part of its time, but no single cause stands out")
    if seen.cores_wanted >= MORE_CORES and (seen.lock_wait > FREE or seen.interpreter > HELD):
        return diagnosis(CANNOT_TELL, "several threads want a core, and may wait for a lock that one of them holds meanwhile")
    if seen.cores_wanted >= MORE_CORES:
        return diagnosis("CPU", f"its threads and workers ask for {seen.cores_wanted:.1f} of {seen.cores} cores")
    if seen.busiest >= HIGH and seen.cores_wanted <= ONE_CORE:
        where = ", in the input" if seen.input_run >= HIGH else ""
        if seen.handed_over > FREE:
            where = (
                f"; for {seen.handed_over:.0%} of the time it waits for a thread that works in its place, such as autograd's"
            )
        return diagnosis("single thread", f"one thread asks for {seen.busiest:.0%} of a core, all together for "
                       f"{seen.cores_wanted:.1f} of {seen.cores}{where}")  # fmt: skip
    return diagnosis(CANNOT_TELL, f"{seen.cores_wanted:.1f} cores are asked for: neither one thread's worth nor clearly more")


def _of_kernels(seen: Evidence) -> tuple[str, str]:
    busy_share = f"kernels run for {seen.kernels:.0%} of the time"
    if seen.compute == seen.memory == 0:
        return CANNOT_TELL, f"{busy_share}; their FLOPs and bytes were not counted: use classify(loop) on the loop itself"
    more, less = max(seen.compute, seen.memory), min(seen.compute, seen.memory)
    if more < REACHED:
        return CANNOT_TELL, f"{busy_share}, but far from both ceilings"
    if more < TWICE * less:
        return CANNOT_TELL, f"{busy_share}, and FLOPs and bytes need about as long"
    name, what = ("GPU compute", "FLOPs") if seen.compute > seen.memory else ("GPU memory", "bytes")
    return name, f"{busy_share}, and at the ceiling their {what} need {more:.0%} of it"


def _of_input(seen: Evidence) -> tuple[str, str]:
    waits = f"the loop waits for its input for {seen.input_wait:.0%} of the time"
    if seen.busiest_worker <= LOW:
        return "input", f"{waits}, and no worker is busy for more than {LOW:.0%}"
    if seen.workers >= MORE_CORES:
        return "CPU", f"{waits}, and its workers ask for {seen.workers:.1f} of {seen.cores} cores"
    if seen.busiest_worker >= HIGH and seen.workers <= ONE_CORE:
        return "single thread", f"{waits}, and a single worker asks for {seen.busiest_worker:.0%} of a core"
    return CANNOT_TELL, f"{waits}, and its workers are half busy"
