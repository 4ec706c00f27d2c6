"""Small training runs in several processes on one device, one after the other and at once.

`measure_sharing` runs this module in an interpreter of its own, which has no other threads: on a CPU its processes are forks.
"""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hpml_lab.core.system.children import Child, child_process
from hpml_lab.core.system.installed import find_tool
from hpml_lab.core.system.programs import call_python_module
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.processes.experiments.parallel import ONE_THREAD_EACH, PROCESSES
from hpml_lab.processes.lessons.small_training import train_small

IN_TURN, AT_ONCE, ONE_CORE, AGAIN = "in turn", "at once", "at once, one core", "in turn, again"
ALLOW_MPS = "HPML_MPS"
CONTROL = "nvidia-cuda-mps-control"


@dataclass(frozen=True)
class SharingRun:
    """So many processes that each train once a round: when, in seconds of CLOCK, and the different hashes of their weights."""

    how: str
    processes: int
    rounds: list[list[tuple[float, float]]]
    hashes: list[str]

    @property
    def samples(self) -> list[float]:
        """Seconds from the first start to the last end."""
        return [max(end for _, end in spans) - min(start for start, _ in spans) for spans in self.rounds]

    @property
    def each(self) -> list[float]:
        """Seconds that one process takes, on average over the processes of a round."""
        return [sum(end - start for start, end in spans) / len(spans) for spans in self.rounds]


def _work(connection: Any, device: str, steps: int) -> None:
    """A process: train whenever the cores to do it on come (none: those it has)."""
    with connection:
        train_small(device, 3)  # CUDA's context, the kernels, the allocator's first blocks
        connection.send("ready")
        while (cores := connection.recv()) is not None:
            if cores:
                os.sched_setaffinity(0, cores)
            start = CLOCK()
            weights = train_small(device, steps)
            connection.send((start, CLOCK(), hashlib.sha256(weights.numpy().tobytes()).hexdigest()))


def _one_round(children: Sequence[Child], in_turn: bool, cores: list[int]) -> list[tuple[float, float, str]]:
    if in_turn:
        return [answer for child in children for answer in _one_round([child], False, cores)]
    for child in children:
        child.connection.send(cores)
    return [child.connection.recv() for child in children]


def compare_sharing(
    device: str, processes: Sequence[int], steps: int, rounds: int, hows: Sequence[str]
) -> Iterator[SharingRun]:
    """Each number of processes in each way, in turns."""
    mine = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    found = {(how, count): [] for count in processes for how in hows}
    # A fork of a process that has asked CUDA anything may not use it, and some of torch's imports ask whether there is a GPU.
    method = "spawn" if device.startswith("cuda") else PROCESSES
    how_to_start = {"method": method, "duplex": True, "grace_seconds": 10.0}
    with contextlib.ExitStack() as started:
        children = [started.enter_context(child_process(_work, device, steps, **how_to_start)) for _ in range(max(processes))]
        for child in children:
            child.connection.recv()
        for _ in range(rounds):
            for (how, count), taken in found.items():
                cores = mine[:1] if how == ONE_CORE else mine
                taken.append(_one_round(children[:count], how in (IN_TURN, AGAIN), cores))
        for child in children:
            child.connection.send(None)
    for (how, count), taken in found.items():
        spans = [[(start, end) for start, end, _ in answers] for answers in taken]
        yield SharingRun(how, count, spans, sorted({name for answers in taken for *_, name in answers}))


def measure_sharing(variables: Mapping[str, str], **parameters: Any) -> list[SharingRun]:
    """The runs of `compare_sharing(**parameters)` in a new interpreter. Raises RuntimeError if it fails."""
    module, environment = "hpml_lab.processes.experiments.shared_gpu.on_one_device", {**ONE_THREAD_EACH, **variables}
    return [SharingRun(**run) for run in call_python_module(module, parameters, deadline_seconds=300, environment=environment)]


@contextlib.contextmanager
def mps_daemon() -> Iterator[dict[str, str]]:
    """Start CUDA's Multi-Process Service in a folder of its own and stop it at the end; yields what its clients' environment
    must have. Raises RuntimeError, with the reason, where that is not allowed or fails."""
    if os.environ.get(ALLOW_MPS) != "1":
        raise RuntimeError(
            f"its daemon is started only with your permission: {ALLOW_MPS}=1 hpml-lab run shared-gpu --size full"
        )
    if (control := find_tool(CONTROL)) is None:
        raise RuntimeError(f"there is no {CONTROL} here: it comes with NVIDIA's driver")
    with TemporaryDirectory() as folder:
        pipes, logs = Path(folder, "pipes"), Path(folder, "logs")
        pipes.mkdir(), logs.mkdir()
        variables = {"CUDA_MPS_PIPE_DIRECTORY": str(pipes), "CUDA_MPS_LOG_DIRECTORY": str(logs)}
        environment = {**os.environ, **variables}
        environment.pop("CUDA_VISIBLE_DEVICES", None)  # it would renumber the GPUs that the clients choose from
        quiet = {"env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "text": True}
        try:
            if code := subprocess.run([control, "-d"], timeout=60, **quiet).returncode:
                raise RuntimeError(f"{CONTROL} -d ended with exit code {code}")
            yield variables
        finally:
            subprocess.run([control], input="quit -t 30\n", timeout=60, **quiet)  # after 30 s by force


if __name__ == "__main__":
    print(json.dumps([asdict(run) for run in compare_sharing(**json.loads(sys.argv[1]))]))
