"""What runs on each host of `many-machines`: torchrun's agent, and under it a rank that measures the link and trains.

One host loses its power in the middle of training. The agent of the other one starts its rank again, and the function runs a
second time, in a world of one rank: it takes the snapshot and trains to the end.
"""

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from hpml_lab.core.system.children import end_with_parent
from hpml_lab.core.system.files import atomic_write
from hpml_lab.core.system.programs import python_environment, started
from hpml_lab.core.system.sealed import read_state, write_state
from hpml_lab.sharding.tools.hosts import TwoHosts, pull_the_cable, shape

BATCH, FEATURES, HIDDEN, RATE = 64, 64, 512, 0.01
SAMPLES = 3
BEATS = 3  # an agent that has been silent for so many is taken for dead
PATIENCE = timedelta(seconds=120)  # for all but the loss of a host: a busy machine is slow


@dataclass(frozen=True)
class Plan:
    """What the ranks do.

    folder        is shared by the hosts
    sizes         {rate of the link, "" for as it is: sizes of the messages in bytes}
    shaped        whether the link has a rate and can be pulled; else both agents are on one host
    endpoint      where the ranks meet: a host that stays, and a port
    steps         of training; the last `steps_alone` come after the host was lost
    wait_seconds  how long a rank waits for one that does not answer
    beat_seconds  how often an agent says that it lives
    """

    folder: str
    sizes: dict[str, Sequence[int]]
    shaped: bool
    endpoint: str
    steps: int
    steps_alone: int
    wait_seconds: float
    beat_seconds: int

    def path(self, name: str) -> Path:
        return Path(self.folder) / name

    def log(self, host: int) -> Path:
        return self.path(f"host{host}.log")

    def write(self, name: str, **record: object) -> None:
        atomic_write(self.path(f"{name}.json"), json.dumps(record))

    def read(self, name: str) -> dict:
        return json.loads(self.path(f"{name}.json").read_text(encoding="utf-8"))


# ---- the agent --------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def agent(hosts: TwoHosts | None, host: int, plan: Plan) -> Iterator[subprocess.Popen]:
    """An agent as a program on a host (None: on this one), for a block; what it and its rank report goes to a file.

    A new interpreter, because a process that has threads, such as a notebook's kernel, cannot move to another host.
    """
    command = [sys.executable, "-P", "-m", __name__, str(os.getpid()), str(host), json.dumps(asdict(plan))]
    # By default all lives share one store, and a new rank may find the address of a dead one there (pytorch issue 135712).
    environment = python_environment({"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})
    environment.pop("GLOO_SOCKET_IFNAME", None)  # gloo takes the interface that has the address of the host's name
    if hosts is None:
        environment["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    if hosts is not None:
        command = hosts.command(host, command)
    with (
        open(plan.log(host), "w", encoding="utf-8") as log,
        started(command, env=environment, stdout=log, stderr=log) as program,
    ):
        yield program


def main() -> None:
    """Do on this host what this command does, with a function in the place of the script.

    torchrun --nnodes 1:2 --nproc-per-node 1 --max-restarts 3 --rdzv-backend c10d --rdzv-id job --rdzv-endpoint host0:29500
    """
    parent, host, plan = int(sys.argv[1]), int(sys.argv[2]), Plan(**json.loads(sys.argv[3]))
    end_with_parent(parent)
    logging.disable()  # to format its first record torch would import its compiler, for seconds; tracebacks are still printed
    torch.set_num_threads(1)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=2,
        nproc_per_node=1,
        max_restarts=3,
        run_id="job",
        rdzv_backend="c10d",
        rdzv_endpoint=plan.endpoint,
        rdzv_configs={
            "is_host": host == 0,
            "last_call_timeout": plan.beat_seconds,  # how long to wait for more hosts when there are enough
            "keep_alive_interval": plan.beat_seconds,
            "keep_alive_max_attempt": BEATS,
        },
        start_method="fork",  # the ranks have torch already; torchrun starts new interpreters
        local_addr=None if plan.shaped else "localhost",
        logs_specs=DefaultLogsSpecs(log_dir=str(plan.path(f"logs{host}"))),
    )
    elastic_launch(config, live)(host, plan)


# ---- the rank ---------------------------------------------------------------------------------------------------------------


def live(host: int, plan: Plan) -> None:
    """One life of a rank: the first on two hosts, the second on the one that is left."""
    end_with_parent()
    start = time.monotonic()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=PATIENCE)
    rank, world = dist.get_rank(), dist.get_world_size()
    if not plan.path("lost.json").exists():
        if world == 2:
            _train_together(host, plan, rank)
        time.sleep(PATIENCE.total_seconds())  # the other host is late: when it comes, the agent starts this rank anew
    first, weights = read_state(plan.path("snapshot.pt"))
    weights, _ = train(range(first, plan.steps), weights, rank, world)
    restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    span = {"began": start, "ended": time.monotonic()}
    plan.write("alone", host=host, world=world, restarts=restarts, first=first, weights=weights.tolist(), **span)
    dist.destroy_process_group()


def _train_together(host: int, plan: Plan, rank: int) -> None:
    links, middle = {}, plan.steps - plan.steps_alone
    for rate, sizes in plan.sizes.items():
        if plan.shaped:
            shape(rate or None)
        times = [min(_all_reduce_seconds(size) for _ in range(SAMPLES)) for size in sizes]
        weights, seconds = train(range(middle), None, rank, 2)
        links[rate] = {"times": times, "steps": seconds[1:], "weights": weights.tolist()}
    _, compute = train(range(middle), None, rank, 2, alone=True)
    plan.write(f"together{host}", hostname=socket.gethostname(), rank=rank, links=links, compute=compute[1:])
    if rank == 0:
        write_state(plan.path("snapshot.pt"), (middle, weights))
    dist.barrier()
    if host == 1:
        _lose_power(plan)
    # As if the group had been made with this time-out; a busy machine could need longer to make it.
    set_timeout = getattr(dist, "set_timeout", None) or dist.distributed_c10d._set_pg_timeout  # before torch 2.15
    set_timeout(timedelta(seconds=plan.wait_seconds))
    start = time.monotonic()
    try:
        train(range(middle, plan.steps), weights, rank, 2)
    except RuntimeError as error:
        now = time.monotonic()
        plan.write("loss", error=str(error).splitlines()[0], seconds=now - start, at=now)
        raise


def _lose_power(plan: Plan) -> None:
    """End this rank and its agent at once; with the cable pulled first, the other host hears nothing of it."""
    plan.write("lost")
    if plan.shaped:
        pull_the_cable()
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _all_reduce_seconds(size: int) -> float:
    message = torch.zeros(size // 4)
    dist.barrier()
    start = time.perf_counter()
    dist.all_reduce(message)
    return time.perf_counter() - start


# ---- the training -----------------------------------------------------------------------------------------------------------


def network() -> nn.Module:
    """A small network in float64, so that sums in another order differ by 1e-16 only; its weights are always the same."""
    net = nn.Sequential(
        nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1)
    ).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in net.parameters():
            weights.copy_(torch.randn(weights.shape, generator=generator, dtype=torch.float64) / weights.shape[-1] ** 0.5)
    return net


def gradient_bytes() -> int:
    return sum(weights.nbytes for weights in network().parameters())


def train(
    steps: range, weights: torch.Tensor | None, rank: int = 0, world: int = 1, alone: bool = False
) -> tuple[torch.Tensor, list[float]]:
    """SGD on each rank's part of the batches: the weights as one vector, and the seconds of each step.

    alone  without the others: the gradients stay as they are
    The gradients leave as one message when the backward pass is over. The batch of a step depends on its number alone, so a
    run that goes on with fewer ranks sees the same data.
    """
    net, seconds = network(), []
    vector = nn.utils.parameters_to_vector(net.parameters()).detach() if weights is None else weights.clone()
    nn.utils.vector_to_parameters(vector, net.parameters())  # which become views of the vector
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(BATCH, FEATURES, generator=generator, dtype=torch.float64)
        y = x.sum(1, keepdim=True).sin()
        start = time.perf_counter()
        loss = nn.functional.mse_loss(net(x[rank::world]), y[rank::world])
        gradient = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(net.parameters()))])
        if world > 1 and not alone:
            dist.all_reduce(gradient)
        vector.sub_(gradient, alpha=RATE / world)
        seconds.append(time.perf_counter() - start)
    return vector, seconds


if __name__ == "__main__":
    main()
