"""What bounds a program, by what was seen of its threads from outside: `decide` is a plain function of the evidence.

Between its limits it says that it cannot tell, and in which line of code the time went. It names no bound of memory: a core
that waits for memory counts as running. Needs no torch.
"""

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

CANNOT_TELL, OTHERS, QUOTA = "cannot tell", "other programs", "quota"
COMMAND_BOUNDS = (QUOTA, OTHERS, "input", "CPU", "single thread", "GIL", "lock", "disk", "GPU")
SHORTEST = 0.2  # seconds: fewer looks say nothing
HIGH, LOW = 0.6, 0.4  # a share above HIGH decides; between them nothing is certain
DISK_SHARE = 0.5  # the rest of a disk's time is the system's own work for it
ONE_CORE, MORE_CORES = 1.25, 1.5  # cores asked for: one thread's worth, and clearly more than one thread's
BY_THE_WAY = 0.3  # cores that other threads ask for next to the one that bounds
# From which other programs count as the cause: the share of the time to run that a core is waited for, threads that wait on
# average, and the share of the cores that others use.
HELD_UP, WAITED, OTHERS_SHARE = 0.25, 0.2, 0.25
REST = "What follows is judged of the rest"
STOPPED = 0.1  # share of the time to run that a quota takes, from which it counts as a cause: it is counted, not inferred


def _figure(heading: str, default: Any = MISSING) -> Any:
    return field(default=default, metadata={"heading": heading})


@dataclass(frozen=True)
class CommandEvidence:
    """What was seen. Shares are of the time in which no thread waited for a core, 0 to 1; cores and threads are means.

    cores         that it may use: those of its mask, or its quota (of its container) if that is less
    stopped       threads that waited because the quota was used up, by the kernel's count for each core
    cores_wanted  cores that its threads would use if each had one whenever it wanted it
    busiest       how much of a core the busiest thread would use; threads that replace one another count as one
    *_wait        shares of the leading threads: those of the program's own work, not workers or threads that wait for others
    gil_wait      threads that wait for Python's interpreter, while another has it
    *_where       the line at which that was seen most
    """

    seconds: float = _figure("time that was judged, s")
    start_seconds: float = _figure("time in imports, left out, s", default=0.0)
    cores: int | float = _figure("cores", default=1)
    mask_cores: int = _figure("cores of its mask", default=0)  # 0 for all of the above
    quota: float = _figure("cores' worth of time that its quota allows", default=0.0)
    stopped: float = _figure("cores on which the quota stopped it", default=0.0)
    stopped_periods: int = _figure("periods in which the quota stopped it", default=0)
    periods: int = _figure("of so many", default=0)
    cores_used: float = _figure("cores used", default=0.0)
    cores_wanted: float = _figure("cores asked for", default=0.0)
    cores_waited: float = _figure("threads that waited for a core", default=0.0)
    others: float = _figure("cores used by other programs", default=0.0)
    busiest: float = _figure("of these by the busiest thread", default=0.0)
    busiest_where: str = _figure("its line", default="")
    workers: float = _figure("of these by workers", default=0.0)
    busiest_worker: float = _figure("busiest worker", default=0.0)
    input_wait: float = _figure("share of time blocked in the input", default=0.0)
    input_where: str = _figure("its line", default="")
    disk_wait: float = _figure("share of time blocked by storage", default=0.0)
    disk_where: str = _figure("its line", default="")
    read_mb: float = _figure("read from storage, MB/s", default=0.0)
    written_mb: float = _figure("written to storage, MB/s", default=0.0)
    gil_wait: float = _figure("threads that wait for Python's interpreter (GIL)", default=0.0)
    gil_where: str = _figure("line that has it most", default="")
    lock_wait: float = _figure("threads blocked at a lock", default=0.0)
    lock_threads: int = _figure("different threads seen at a lock", default=0)
    lock_where: str = _figure("its line", default="")
    sleep_wait: float = _figure("share of time asleep", default=0.0)
    other_wait: float = _figure("share of time blocked elsewhere", default=0.0)
    wait_where: str = _figure("line of the longest wait", default="")
    gpu: float = _figure("share of time with a kernel on a GPU", default=0.0)

    def rows(self) -> list[tuple[str, str]]:
        """Each figure that is not zero with its heading."""
        shown = []
        for figure in fields(self):
            value = getattr(self, figure.name)
            if value:
                shown.append((figure.metadata["heading"], f"{value:.2f}" if isinstance(value, float) else str(value)))
        return shown


@dataclass(frozen=True)
class CommandDiagnosis:
    """`findings` are (bound, reason) in order: what comes first has to be fixed first. Each bound is of COMMAND_BOUNDS."""

    findings: tuple[tuple[str, str], ...]
    evidence: CommandEvidence
    notes: Sequence[str] = ()

    @property
    def bound(self) -> str:
        return self.findings[0][0]

    def text(self) -> str:
        """The findings, the evidence and the notes, for a terminal."""
        rows = self.evidence.rows()
        width = max(len(label) for label, _ in rows)
        lines = [f"{bound}: {reason}" for bound, reason in self.findings]
        return "\n".join([*lines, "", *(f"  {label:{width}}  {value}" for label, value in rows), *self.notes])

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data, for JSON."""
        findings = [{"bound": bound, "reason": reason} for bound, reason in self.findings]
        evidence = {figure.name: getattr(self.evidence, figure.name) for figure in fields(self.evidence)}
        return {"bound": self.bound, "findings": findings, "evidence": evidence, "notes": list(self.notes)}


def decide_command(seen: CommandEvidence, notes: Sequence[str] = ()) -> CommandDiagnosis:
    """The bound by the evidence alone: first whether it is kept from running, by a quota or by others, then its own."""
    findings = []
    could_run, judged = max(seen.cores_used + seen.cores_waited, 1e-9), seen.seconds >= SHORTEST
    stopped = min(seen.stopped, seen.cores_waited) / could_run
    if judged and stopped >= STOPPED:
        used_up = f"its quota of {seen.quota:g} cores was used up in {seen.stopped_periods} of {seen.periods} periods"
        findings.append((QUOTA, f"{used_up}: it is stopped for {stopped:.0%} of the time that it could run. {REST}"))
    # In a period in which it had its whole quota, others kept nothing from it.
    waited = seen.cores_waited * (1 - seen.stopped_periods / max(seen.periods, 1))
    mask = seen.mask_cores or seen.cores
    if judged and waited >= max(HELD_UP * could_run, WAITED) and seen.others >= OTHERS_SHARE * mask:
        reason = f"they use {seen.others:.1f} of {mask} cores, and for {waited / could_run:.0%} of the time that it could run"
        findings.append((OTHERS, f"{reason} this one waits for a core. {REST}"))
    return CommandDiagnosis((*findings, _own_bound(seen)), seen, tuple(notes))


def _own_bound(seen: CommandEvidence) -> tuple[str, str]:
    if seen.seconds < SHORTEST:
        start = f", after {seen.start_seconds:.1f} s in imports" if seen.start_seconds else ""
        return CANNOT_TELL, f"the program worked for less than {SHORTEST} s{start}"
    if seen.gpu >= HIGH:
        return "GPU", f"a GPU runs kernels for {seen.gpu:.0%} of the time"
    if seen.gil_wait >= HIGH and seen.cores_wanted >= ONE_CORE - seen.gil_wait:
        return "GIL", (
            f"{seen.gil_wait:.1f} threads of Python wait for the interpreter, which one of them has"
            f"{_at(seen.gil_where)}: processes, or code that releases it, would use more cores"
        )
    if seen.disk_wait >= DISK_SHARE and seen.read_mb + seen.written_mb > 0:
        return "disk", (
            f"it is blocked by storage for {seen.disk_wait:.0%} of the time{_at(seen.disk_where)}; "
            f"{seen.read_mb:.1f} MB/s read, {seen.written_mb:.1f} MB/s written"
        )
    if seen.lock_threads >= 2 and seen.lock_wait >= HIGH and seen.cores_used <= ONE_CORE:
        return (
            "lock",
            f"{seen.lock_wait:.1f} threads wait for a lock{_at(seen.lock_where)}, {seen.cores_used:.1f} cores are in use",
        )
    if seen.input_wait >= HIGH:
        return _of_input(seen)
    if seen.cores_wanted >= MORE_CORES:
        return "CPU", f"its threads and processes ask for {_cores(seen)}{_at(seen.busiest_where)}"
    if seen.busiest >= HIGH and seen.cores_wanted <= min(ONE_CORE, seen.busiest + BY_THE_WAY):
        one = f"one thread asks for {seen.busiest:.0%} of a core{_at(seen.busiest_where)}"
        return "single thread", f"{one}; all together ask for {_cores(seen)}"
    return CANNOT_TELL, _where_the_time_went(seen)


def _of_input(seen: CommandEvidence) -> tuple[str, str]:
    waits = f"the input is waited for {seen.input_wait:.0%} of the time"
    if seen.workers >= MORE_CORES:
        return "CPU", f"{waits}, and its workers ask for {seen.workers:.1f} of {seen.cores:g} cores{_at(seen.busiest_where)}"
    if seen.busiest_worker >= HIGH and seen.workers <= ONE_CORE:
        one = f"a single worker asks for {seen.busiest_worker:.0%} of a core"
        return "single thread", f"{waits}, and {one}{_at(seen.busiest_where)}"
    if seen.busiest_worker <= LOW:
        workers = f", and no worker is busy for more than {LOW:.0%}" if seen.workers else ""
        return "input", f"{waits}{workers}{_at(seen.input_where)}"
    return CANNOT_TELL, f"{waits}, and its workers are half busy{_at(seen.input_where)}"


def _cores(seen: CommandEvidence) -> str:
    return f"{seen.cores_wanted:.1f} of {seen.cores:g} cores"


def _at(line: str) -> str:
    return f", most at {line}" if line else ""


def _where_the_time_went(seen: CommandEvidence) -> str:
    waits = {
        "waits for its input": (seen.input_wait, seen.input_where),
        "waits for storage": (seen.disk_wait, seen.disk_where),
        "sleeps": (seen.sleep_wait, seen.wait_where),
        "is blocked": (seen.other_wait, seen.wait_where),
    }
    what, (share, line) = max(waits.items(), key=lambda item: item[1][0])
    if share > LOW or share > seen.cores_wanted:
        return f"it {what} for {share:.0%} of the time{_at(line)}, and asks for {_cores(seen)}"
    within = not seen.quota or seen.cores_wanted <= seen.quota
    what = "neither one thread's worth nor clearly more" if within else "more than its quota allows"
    return f"{_cores(seen)} are asked for: {what}{_at(seen.busiest_where)}"
