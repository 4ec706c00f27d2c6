"""The same traffic for several servers, in turns: our own in this process, and an engine of the field over HTTP.

Engines are programs (`engine_program`); while one is measured, the others are paused.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from hpml_lab.core.system.errors import LabError
from hpml_lab.serving.lessons.stage_server import ServerStage, StageServer
from hpml_lab.serving.lessons.traffic import Request, TrafficSummary, due_times, open_loop, summary
from hpml_lab.serving.tools.array_message import decode, encode
from hpml_lab.serving.tools.engine_program import RunningEngine, engine_program, is_gone
from hpml_lab.serving.tools.http_client import HttpClient
from hpml_lab.serving.tools.onnx_models import relative_difference

WARM_UP = 16  # requests before each turn
TIMEOUT_SECONDS = 10.0


class Route(Protocol):
    """How requests reach a server, and what comes back."""

    def submit(self, index: int) -> Future:
        """Send input `index`."""

    def read(self, answer: Any) -> tuple[np.ndarray, int]:
        """The output in an answer, and the size of the batch in which it was computed."""

    def pause(self) -> None:
        """Let the server rest while others are measured."""

    def resume(self) -> None:
        """Let it run again."""

    def fault(self) -> str:
        """Why it can serve no more; empty while it can."""


class InProcess:
    """Our server of threads and queues, called as a function: no network, and one Python for client and server."""

    def __init__(self, server: StageServer, inputs: Sequence[np.ndarray]) -> None:
        self._server, self._inputs = server, inputs

    def submit(self, index: int) -> Future:
        return self._server.submit(self._inputs[index])

    def read(self, answer: tuple[np.ndarray, int]) -> tuple[np.ndarray, int]:
        return answer

    def pause(self) -> None:
        """A thread that waits for its queue takes no time."""

    def resume(self) -> None:
        """It never stopped."""

    def fault(self) -> str:
        return ""


def batched(session: Callable[[np.ndarray], np.ndarray]) -> Callable[[Sequence[np.ndarray]], list[tuple[np.ndarray, int]]]:
    """The model as work of a ServerStage: (inputs) -> for each its output, and the size of the batch."""

    def work(inputs: Sequence[np.ndarray]) -> list[tuple[np.ndarray, int]]:
        return [(output, len(inputs)) for output in session(np.stack(inputs))]

    return work


@contextlib.contextmanager
def in_process(model: Callable[[np.ndarray], np.ndarray], inputs: Sequence[np.ndarray], limit: int) -> Iterator[InProcess]:
    """Serve `model`, (n, ...) -> (n, ...), taking what waits, up to `limit` requests at once."""
    with StageServer([ServerStage("models", batched(model), limit=limit)]) as server:
        yield InProcess(server, inputs)


class OverHttp:
    """A running engine and a client for it."""

    def __init__(self, engine: RunningEngine, client: HttpClient, inputs: Sequence[np.ndarray]) -> None:
        self.engine, self._client, self._bodies = engine, client, [encode(x) for x in inputs]
        self.pause, self.resume, self.fault = engine.pause, engine.resume, engine.fault

    def submit(self, index: int) -> Future:
        return self._client.submit(self._bodies[index])

    def read(self, answer: bytes) -> tuple[np.ndarray, int]:
        return decode(answer)


@contextlib.contextmanager
def over_http(
    engine: RunningEngine, inputs: Sequence[np.ndarray], *, connections: int = 32, timeout_seconds: float = TIMEOUT_SECONDS
) -> Iterator[OverHttp]:
    """Wait until `engine` is ready, and connect to it."""
    port = engine.wait_until_ready()
    with HttpClient(port, connections=connections, timeout_seconds=timeout_seconds) as client:
        yield OverHttp(engine, client, inputs)


@dataclass(frozen=True)
class Load:
    """Traffic of one kind: `count` requests in each turn, `rate` of them a second, at random moments."""

    name: str
    rate: float
    count: int


@dataclass
class Served:
    """What one server made of one load, over all turns.

    turns        the requests of each turn
    differences  of each answered request's output from the expected one, relative to the largest output
    batches      of each answered request the size of the batch in which it was computed
    """

    turns: list[list[Request]] = field(default_factory=list)
    differences: list[float] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)

    @property
    def requests(self) -> list[Request]:
        return [request for turn in self.turns for request in turn]

    @property
    def mean_batch(self) -> float:
        """Requests per batch: a batch of n requests is seen n times, each time counted 1 / n."""
        return len(self.batches) / sum(1 / size for size in self.batches) if self.batches else 0.0

    @property
    def throughput(self) -> float:
        """Answers per second, over the seconds of all turns."""
        found = [turn for turn in self.summaries if turn.throughput]
        seconds = sum((turn.requests - turn.failed) / turn.throughput for turn in found)
        return len(self.batches) / seconds if seconds else 0.0

    @property
    def summaries(self) -> list[TrafficSummary]:
        return [summary(turn) for turn in self.turns]


def serve_in_turns(
    routes: Mapping[str, Route],
    loads: Sequence[Load],
    expected: np.ndarray,
    *,
    turns: int = 1,
    seed: int = 0,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> tuple[dict[tuple[str, str], Served], dict[str, str]]:
    """Send each load to each server, A B C A B C …, and return what came back: {(server, load): Served}, {server: its fault}.

    expected         (inputs, ...): the right outputs; request i sends input i mod inputs
    timeout_seconds  how long the client waits for answers after the last request of a turn was sent
    All servers get requests at the same moments. One that fails keeps what it answered, and is left out from then on.
    """
    served = {(name, load.name): Served() for name in routes for load in loads}
    faults: dict[str, str] = {}
    for route in routes.values():
        route.pause()
    for turn in range(turns):
        for name, route in routes.items():
            if name in faults:
                continue
            route.resume()
            try:
                fault = _warm_up(route, len(expected), timeout_seconds)
                if fault:
                    faults[name] = f"{name}, warm-up (turn {turn + 1}): {fault}"
                    continue
                for number, load in enumerate(loads):
                    due = due_times(load.rate, load.count, seed=seed + turn * len(loads) + number)
                    fault = _serve(route, due, expected, served[name, load.name], timeout_seconds)
                    if fault:
                        faults[name] = f"{name}, traffic ({load.name}, turn {turn + 1}): {fault}"
                        break
            finally:
                route.pause()
    return served, faults


def _warm_up(route: Route, inputs: int, timeout_seconds: float) -> str:
    """The first requests of a turn, which open connections; returns what went wrong, as _lost does."""
    warm = open_loop(lambda index: route.submit(index % inputs), [0.0] * WARM_UP, timeout_seconds=timeout_seconds)
    return _lost(warm, route)


def _lost(requests: Sequence[Request], route: Route) -> str:
    """How the server ended, or that it answered less than half of the requests; empty if neither."""
    if fault := route.fault():
        return fault
    errors = [request.error for request in requests if request.error]
    if 2 * len(errors) <= len(requests):
        return ""
    return f"{len(errors)} of {len(requests)} requests were not answered ({errors[0]})"


def _serve(route: Route, due: Sequence[float], expected: np.ndarray, served: Served, timeout_seconds: float) -> str:
    """One turn of one load; returns what went wrong, as _lost does."""
    sent: dict[int, Future] = {}

    def submit(index: int) -> Future:
        sent[index] = route.submit(index % len(expected))
        return sent[index]

    requests = open_loop(submit, due, timeout_seconds=timeout_seconds)
    served.turns.append(requests)
    for index, request in enumerate(requests):
        if not request.error:
            try:
                output, batch = route.read(sent[index].result())
            except LabError as error:  # not what was asked for: the others go on
                return str(error)
            served.differences.append(relative_difference(output, expected[index % len(expected)]))
            served.batches.append(batch)
    return _lost(requests, route)


# ---- all of them -----------------------------------------------------------------------------------------------------

LITSERVE = "hpml_lab.serving.lessons.litserve_api"


@contextlib.contextmanager
def engines(programs: Mapping[str, tuple[str, Mapping[str, Any]]]) -> Iterator[dict[str, RunningEngine]]:
    """Start all programs at once, {name: (module, settings)}; `ready` says which of them became ready.

    All have ended when the block is left, also by an error or Ctrl-C.
    """
    with contextlib.ExitStack() as stack:
        running = {
            name: stack.enter_context(engine_program(module, settings, name=name))
            for name, (module, settings) in programs.items()
        }
        try:
            yield running
        finally:
            for engine in running.values():  # so that they end side by side
                engine.ask_to_end()


def ready(running: Mapping[str, RunningEngine]) -> tuple[dict[str, RunningEngine], dict[str, str]]:
    """The engines that became ready, and {name: why it did not} for the others."""
    found, faults = {}, {}
    for name, engine in running.items():
        try:
            engine.wait_until_ready()
            found[name] = engine
        except LabError as error:
            faults[name] = error.problem
    return found, faults


def left_behind(engines_before: Sequence[RunningEngine]) -> list[str]:
    """The names of the engines of which a process, an open port or a file is left."""
    return [engine.name for engine in engines_before if not is_gone(engine)]
