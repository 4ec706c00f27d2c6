"""A program: the standard library's HTTP server in front of our server of threads and queues, with a model in ONNX Runtime."""

import json
import sys
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from hpml_lab.core.system.children import end_with_parent
from hpml_lab.core.system.files import atomic_write
from hpml_lab.serving.lessons.stage_server import ServerStage, StageServer
from hpml_lab.serving.tools.array_message import pack, unpack
from hpml_lab.serving.tools.onnx_session import OnnxSession

ANSWER_SECONDS = 30.0
LARGEST_BODY = 1 << 26  # bytes; a slice has 64 K


def batched(session: Any) -> Any:
    """The model as work of a ServerStage: (inputs) -> for each its output, and the size of the batch."""

    def work(inputs: Sequence[np.ndarray]) -> list[tuple[np.ndarray, int]]:
        return [(output, len(inputs)) for output in session(np.stack(inputs))]

    return work


class _Handler(BaseHTTPRequestHandler):
    """Each connection has a thread, which waits for the answer of the one thread that runs the model."""

    protocol_version = "HTTP/1.1"  # connections stay open
    disable_nagle_algorithm = True
    wbufsize = -1  # header and body leave together
    timeout = 300.0  # seconds without a byte; a client may rest for minutes, while other servers are measured
    server: "_Server"

    def do_GET(self) -> None:
        self._answer(200 if self.path == self.server.health else 404, {})

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length")
        if length is None:
            return self._refuse(411, "the request does not say how long its body is")
        if not (length.isascii() and length.isdecimal()):
            return self._refuse(400, f"Content-Length {length[:20]!r} is not a number of bytes")
        if len(length) > 18 or int(length) > LARGEST_BODY:
            return self._refuse(413, f"a body of more than {LARGEST_BODY:,} bytes")
        try:
            body = self.rfile.read(int(length))
        except TimeoutError:
            return self._refuse(408, f"nothing came for {self.timeout:g} s")
        try:
            output, batch = self.server.stages.submit(unpack(json.loads(body))).result(ANSWER_SECONDS)
            self._answer(200, {**pack(output), "batch": batch})
        except Exception as error:  # this request fails, the server stays
            self._answer(500, {"detail": f"{type(error).__name__}: {error}"})

    def _refuse(self, status: int, why: str) -> None:
        """Answer without a body that was read to its end: nothing tells it from what follows, so the connection closes."""
        self.close_connection = True
        self._answer(status, {"detail": why})

    def _answer(self, status: int, message: dict[str, Any]) -> None:
        body = json.dumps(message).encode()
        self.send_response(status)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """No line for each request."""


class _Server(ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 128

    def __init__(self, stages: StageServer, health: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.stages, self.health = stages, health


def main(settings: dict[str, Any]) -> None:
    end_with_parent(settings["parent"])
    session = OnnxSession(settings["model"], settings["provider"])
    stages = StageServer([ServerStage("models", batched(session), limit=settings["limit"])])
    with _Server(stages, settings["health"]) as server:
        atomic_write(Path(settings["port_file"]), str(server.server_port))
        try:
            server.serve_forever(poll_interval=0.1)
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
