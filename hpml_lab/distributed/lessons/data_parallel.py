"""DataParallel step by step: one process, a thread for each replica. It came before DistributedDataParallel.

    scatter     the batch is cut into parts, one for each replica
    replicate   the parameters are copied from the first replica to all others, in every step
    forward     each replica in a thread of its own: Python code takes turns (the GIL), kernels can run at once
    gather      the outputs are copied to the first device, where the loss is computed
    backward    each replica's, in its own thread
    reduce      the gradients are copied to the first device and added there

With N replicas of P bytes, (N − 1) P bytes leave the first device and (N − 1) P come back, in every step. In a ring all-reduce
each rank sends 2 (N − 1) / N · P: N times less than what passes through the first device.

`ThreadedDataParallel` does this with threads of a CPU, which stand in for GPUs. `TimedDataParallel` is torch's own on GPUs.
Both have `step(x, y, loss)`, which adds to the gradients of the module, and note when each stage ran if `spans` is a list.
"""

import contextlib
import copy
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

from hpml_lab.core.timing.timeline import Span, span

STAGES = ("scatter", "replicate", "forward", "gather", "backward", "reduce")
MAIN = "main thread"
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class ThreadedDataParallel:
    """DataParallel on the CPU: each thread stands in for a GPU, and each copy for a transfer between GPUs.

    copied  {stage: bytes that the last step copied from or to the first replica}
    cpu     {"forward" and "backward": CPU seconds of all threads in the last step}; a thread that waits for the GIL uses none
    """

    def __init__(self, module: nn.Module, replicas: int) -> None:
        self.module = module
        self.replicas = [module, *(copy.deepcopy(module) for _ in range(replicas - 1))]
        self.threads = ThreadPoolExecutor(replicas)
        self.spans: list[Span] | None = None
        self.copied: dict[str, int] = {}
        self.cpu: dict[str, float] = {}

    def step(self, x: torch.Tensor, y: torch.Tensor, loss: Loss) -> torch.Tensor:
        with self._stage("scatter"):
            parts = x.chunk(len(self.replicas))
            parts = [parts[0], *(part.clone() for part in parts[1:])]
        replicas, others = self.replicas[: len(parts)], self.replicas[1 : len(parts)]
        with self._stage("replicate"), torch.no_grad():
            for replica in others:
                for own, source in zip(replica.modules(), self.module.modules(), strict=True):
                    own.training = source.training
                for own, source in zip(_tensors(replica), _tensors(self.module), strict=True):
                    own.copy_(source)
                    own.grad = None
                    own.requires_grad_(source.requires_grad)
        outputs = self._in_threads("forward", lambda replica, part: replica(part), replicas, parts)
        with self._stage("gather"):
            output = torch.cat([part.detach() for part in outputs]).requires_grad_()
        value = loss(output, y)
        value.backward()
        self._in_threads("backward", _backward, outputs, output.grad.split([len(part) for part in parts]))
        with self._stage("reduce"):
            for replica in others:
                for own, source in zip(self.module.parameters(), replica.parameters(), strict=True):
                    if source.grad is not None:  # neither frozen nor unused
                        own.grad = source.grad if own.grad is None else own.grad.add_(source.grad)
        moved = {"scatter": parts[1:], "gather": outputs[1:], "replicate": _tensors(self.module) * len(others)}
        self.copied = {stage: sum(part.nbytes for part in there) for stage, there in moved.items()}
        self.copied["reduce"] = sum(own.nbytes for own in self.module.parameters() if own.grad is not None) * len(others)
        return value.detach()

    def _in_threads(self, stage: str, work: Callable, *arguments: list) -> list:
        def timed(number: int, *given) -> tuple[object, float]:
            start = time.thread_time()
            with self._stage(stage, f"thread {number}"):
                found = work(*given)
            return found, time.thread_time() - start

        outputs, cpu = zip(*self.threads.map(timed, range(len(arguments[0])), *arguments), strict=True)
        self.cpu[stage] = sum(cpu)
        return list(outputs)

    def _stage(self, name: str, lane: str = MAIN) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext() if self.spans is None else span(self.spans, lane, name)


def _tensors(module: nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]


def _backward(output: torch.Tensor, gradient: torch.Tensor) -> None:
    """As output.backward(gradient), which imports a large part of torch at its first call, in each process anew."""
    (output * gradient).sum().backward()


class TimedDataParallel(nn.DataParallel):
    """torch's DataParallel on GPUs. With `spans`, each stage waits for the GPUs, so that its time is its own."""

    spans: list[Span] | None = None

    def step(self, x: torch.Tensor, y: torch.Tensor, loss: Loss) -> torch.Tensor:
        value = loss(self(x), y)
        with self._stage("backward"):  # the sum of the gradients is part of it
            value.backward()
        return value.detach()

    def scatter(self, *arguments):
        with self._stage("scatter"):
            return super().scatter(*arguments)

    def replicate(self, *arguments):
        with self._stage("replicate"):
            return super().replicate(*arguments)

    def parallel_apply(self, *arguments):
        with self._stage("forward"):
            return super().parallel_apply(*arguments)

    def gather(self, *arguments):
        with self._stage("gather"):
            return super().gather(*arguments)

    @contextlib.contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        if self.spans is None:
            yield
            return
        with span(self.spans, MAIN, name):
            yield
            for device in self.device_ids:
                torch.cuda.synchronize(device)
