"""launch-line: the torchrun line for each of two nodes with four GPUs, read by torchrun's own parser."""

import argparse
import contextlib
import io
import re
import shlex
from collections.abc import Callable
from pathlib import PurePosixPath

from torch.distributed.run import get_args_parser

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake

NOTEBOOK = "14_sharding"
NODES, GPUS, SCRIPT = 2, 4, "train.py"
HOSTS = ("node17", "gpu-a.cluster")
NODE_RANK_HINT = "Give it --node-rank, or let the nodes find out by --rdzv-backend c10d."


@exercise("launch-line", notebook=NOTEBOOK, takes="node, first_host", returns=str)
def judge_launch_line(answer: Callable) -> None:
    """Both nodes start 4 of 8 ranks, and meet at one port of the first host."""
    for host in HOSTS:
        typed = [answer(node, host) for node in range(NODES)]
        if typed[0] and not typed[1]:
            raise Mistake("only-node-0", "Node 1 gets no line from you. || A torchrun starts the ranks of its own node only.")
        lines = [_parsed(line) for line in typed]
        for line in lines:
            _judge_script(line)
            _judge_counts(line)
        (_judge_static if lines[0].rdzv_backend == "static" else _judge_c10d)(lines, host)


def _parsed(line: str) -> argparse.Namespace:
    """What torchrun would understand."""
    if found := re.search(r"\{\w+\}", line):
        raise Mistake("braces-left", f"{found[0]} stands in the line as it is: is an f missing before the quotes?")
    if len([part for part in line.replace("\\\n", " ").splitlines() if part.strip()]) > 1:
        raise Mistake("several-lines", "Return one line, that of this node; the other node types its own.")
    try:
        words = [word for word in shlex.split(line.replace("\\\n", " ")) if word.strip()]
    except ValueError as error:
        raise Mistake("shell-refuses", f"The shell does not take this line: {error}.") from None
    words = _after_launcher(words)
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):  # -h prints a hundred lines
            environment = line.lstrip().startswith("MASTER_ADDR=") or " MASTER_ADDR=" in line
            return get_args_parser().parse_args(words, argparse.Namespace(environment=environment))
    except SystemExit:
        said = errors.getvalue().strip().rpartition("error: ")[2]
        if "training_script" in said:
            raise Mistake("no-script", f"torchrun has nothing to run: the line should end with {SCRIPT}.") from None
        raise Mistake("torchrun-refuses", f"torchrun does not take this line: {said or 'it prints its help'}") from None


def _after_launcher(words: list[str]) -> list[str]:
    """The words after torchrun, or after `python -m torch.distributed.run`, which is the same."""
    for index, word in enumerate(words):
        if word == "torch.distributed.launch":
            raise Mistake("deprecated-launcher", "torch.distributed.launch is deprecated; torchrun has taken its place.")
        if PurePosixPath(word).name == "torchrun" or word in ("torch.distributed.run", "-mtorch.distributed.run"):
            if "ssh" in words[:index]:
                raise Mistake(
                    "runs-elsewhere", "There is a shell on both nodes: no line has to start torchrun on another machine."
                )
            if "srun" in words[:index]:
                raise Mistake(
                    "uses-srun",
                    "srun is Slurm's, which starts the line on all nodes itself. Without Slurm it is typed on each.",
                )
            return words[index + 1 :]
    commands = [word for word in words if not re.match(r"\w+=", word)]
    started = PurePosixPath(commands[0]).name if commands else "nothing"
    if started in ("deepspeed", "mpirun", "mpiexec", "srun", "accelerate"):
        raise Mistake("another-launcher", f"{started} is another launcher; the exercise asks for torchrun.")
    raise Mistake("no-launcher", f"This line starts {started}: one process, which knows of no other. What starts the ranks?")


def _judge_script(line: argparse.Namespace) -> None:
    if line.module or line.no_python:
        option, what = ("-m", "a module, whose name has no .py") if line.module else ("--no-python", "a program of its own")
        raise Mistake("other-script", f"Behind {option} torchrun expects {what}; {SCRIPT} is a script of Python's.")
    if PurePosixPath(line.training_script).name != SCRIPT:
        raise Mistake("other-script", f"The script is {line.training_script!r} here, and should be {SCRIPT}.")
    late = [word for word in line.training_script_args if word.startswith(("--n", "--rdzv", "--master", "--standalone"))]
    if late:
        raise Mistake(
            "options-after-script", f"What stands after {SCRIPT} goes to the script: torchrun does not see {late[0]}."
        )


def _judge_counts(line: argparse.Namespace) -> None:
    if line.standalone:
        raise Mistake("standalone", "--standalone is for a single node: each of the two would train alone.")
    least, _, most = line.nnodes.partition(":")
    if (most or least) == "1":
        raise Mistake("one-node", "With one node each of the two would train alone, on 4 GPUs. --nnodes counts the nodes.")
    if most and least != most:
        raise Mistake("may-start-without", f"With --nnodes {line.nnodes} the first node may start without the other.")
    if least == str(NODES * GPUS):
        raise Mistake("nodes-not-ranks", f"torchrun would wait for {least} nodes. --nnodes counts machines, not GPUs.")
    if least != str(NODES):
        raise Mistake("other-nodes", f"There are {NODES} nodes, and the line says {line.nnodes}.")
    each = line.nproc_per_node
    if each == str(NODES * GPUS):
        raise Mistake(
            "ranks-in-all", f"Each node would start {each} ranks, on {GPUS} GPUs. The option counts those of one node."
        )
    if each == "1":
        raise Mistake("one-rank-a-node", f"Each node would start one rank: three of its {GPUS} GPUs would be idle.")
    if each not in (str(GPUS), "gpu", "auto"):
        raise Mistake("other-ranks", f"A node has {GPUS} GPUs and needs a rank for each; the line says {each}.")


def _judge_place(lines: list[argparse.Namespace], places: list[tuple[str, str]], host: str) -> None:
    """All nodes meet at one host and port."""
    for (name, port), line in zip(places, lines, strict=True):
        if "/" in name:
            raise Mistake(
                "not-an-address", f"{name} is the address of a page. The nodes meet at a host and a port: host:29500."
            )
        if port and not port.isdecimal():
            raise Mistake("not-a-port", f"{port!r} is no port: give a number, such as 29500.")
        if port and not 0 < int(port) < 2**16:
            why = "lets the system choose one, which the other node cannot know" if int(port) == 0 else "is above 65535"
            raise Mistake("not-a-port", f"Port {port} {why}: give a port, such as 29500.")
        if name == "127.0.0.1" and line.environment:
            hint = "torchrun does not read MASTER_ADDR; it sets it for its ranks. Its own option is --master-addr."
            raise Mistake("address-in-the-environment", hint)
        if name in ("", "localhost", "127.0.0.1", "0.0.0.0", "::1"):
            hint = f"{name or 'No address'}: each node would look for the other on itself. Where do both find the first?"
            raise Mistake("meets-on-itself", hint)
    if len({name for name, _ in places}) > 1:
        raise Mistake("each-its-own", f"Node 0 waits at {places[0][0]} and node 1 at {places[1][0]}: they never meet.")
    if places[0][0] != host:
        raise Mistake("other-host", f"The first node is {host} here, and the line names {places[0][0]}. Use the argument.")
    if places[0][1] != places[1][1]:
        raise Mistake("ports-differ", f"Node 0 waits at port {places[0][1]}, and node 1 calls port {places[1][1]}.")


def _judge_c10d(lines: list[argparse.Namespace], host: str) -> None:
    backends = {line.rdzv_backend for line in lines}
    if backends != {"c10d"}:
        needs = "both nodes the same" if len(backends) > 1 else "a server that is not here; c10d needs none"
        raise Mistake("other-backend", f"The rendezvous by {' and '.join(sorted(backends))} needs {needs}.")
    if not all(line.rdzv_endpoint for line in lines) and lines[0].master_addr == host:
        raise Mistake("address-not-read", "The c10d rendezvous does not read --master-addr: its place is --rdzv-endpoint.")
    _judge_place(lines, [_host_and_port(line.rdzv_endpoint) for line in lines], host)
    if lines[0].rdzv_id != lines[1].rdzv_id:
        raise Mistake("ids-differ", "With different --rdzv-id the nodes take part in two different jobs, and both wait.")


def _judge_static(lines: list[argparse.Namespace], host: str) -> None:
    """Without --rdzv-backend: the address of the first node, and each node's own number."""
    if any(":" in line.master_addr for line in lines):
        raise Mistake("port-in-the-address", "--master-addr takes the host alone; the port has an option of its own.")
    places = [_host_and_port(line.rdzv_endpoint or f"{line.master_addr}:{line.master_port or 29500}") for line in lines]
    _judge_place(lines, places, host)
    if not all(port for _, port in places):
        raise Mistake("no-port", "Without --rdzv-backend, --rdzv-endpoint is host:port: torchrun needs the port, too.")
    ranks = [line.node_rank for line in lines]
    if ranks == [0, 0]:
        raise Mistake("same-node-rank", f"Both nodes say that they are node 0. {NODE_RANK_HINT}")
    if ranks == [1, 2]:
        raise Mistake("counted-from-one", "The nodes are counted from 0: if nobody is node 0, both wait for it.")
    if ranks == [0, GPUS]:
        raise Mistake("counts-ranks", f"--node-rank counts nodes, not ranks: node 1 is number 1, not {GPUS}.")
    if ranks != [0, 1]:
        raise Mistake(
            "other-node-rank", f"The nodes have the ranks {ranks[0]} and {ranks[1]}; node 0 is the one at the address."
        )


def _host_and_port(endpoint: str) -> tuple[str, str]:
    name, _, port = endpoint.rpartition(":") if ":" in endpoint else (endpoint, "", "")
    return name.strip("[]"), port
