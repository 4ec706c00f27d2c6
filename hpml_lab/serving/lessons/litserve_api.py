"""LitServe with a model in ONNX Runtime, as a program: a server is a class with a method for each step of a request.

It has five processes: this one, one that serves HTTP (uvicorn), one that runs the model, one that holds the queues between
them, and multiprocessing's resource tracker. The model's process starts anew (spawn); the other two are forked.
"""

import json
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from hpml_lab.core.system.children import end_with_parent
from hpml_lab.core.system.files import atomic_write
from hpml_lab.serving.tools.array_message import pack, unpack
from hpml_lab.serving.tools.onnx_session import OnnxSession

try:
    import litserve
except ModuleNotFoundError:  # it can be read all the same, but not run
    litserve = SimpleNamespace(LitAPI=object)

TRIES = 5  # ports
KEEP_ALIVE_SECONDS = 3600  # a connection may rest while other engines are measured


class OnnxApi(litserve.LitAPI):
    """What LitServe asks for: load the model, read a request, compute, write an answer."""

    def __init__(self, model: str, provider: str, **options: Any) -> None:
        super().__init__(**options)
        self._model, self._provider, self._parent = model, provider, os.getpid()

    def setup(self, device: str) -> None:
        """Called once, in the model's process."""
        end_with_parent(self._parent)
        self._session = OnnxSession(self._model, self._provider)

    def decode_request(self, request: dict[str, Any]) -> np.ndarray:
        return unpack(request)

    def predict(self, x: np.ndarray) -> tuple[np.ndarray, int]:
        return self._session(x[None])[0], 1

    def encode_response(self, output: tuple[np.ndarray, int]) -> dict[str, Any]:
        values, batch = output
        return {**pack(values), "batch": batch}


class BatchedOnnxApi(OnnxApi):
    """The same for several requests at once: collate before, and take apart after."""

    def batch(self, inputs: Sequence[np.ndarray]) -> np.ndarray:
        return np.stack(inputs)

    def predict(self, x: np.ndarray) -> list[tuple[np.ndarray, int]]:
        return [(output, len(x)) for output in self._session(x)]

    def unbatch(self, outputs: list[tuple[np.ndarray, int]]) -> list[tuple[np.ndarray, int]]:
        return outputs


def main(settings: dict[str, Any]) -> None:
    end_with_parent(settings["parent"])
    os.register_at_fork(after_in_child=end_with_parent)  # uvicorn's process and the one with the queues
    for _ in range(TRIES):
        limit, options = settings["limit"], {"model": settings["model"], "provider": settings["provider"]}
        if limit > 1:
            api = BatchedOnnxApi(**options, max_batch_size=limit, batch_timeout=settings["window_seconds"])
        else:
            api = OnnxApi(**options)
        server = litserve.LitServer(
            api, accelerator="cpu", devices=1, timeout=settings["timeout_seconds"], healthcheck_path=settings["health"]
        )
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        atomic_write(Path(settings["port_file"]), str(port))
        try:
            server.run(
                host="127.0.0.1",
                port=port,
                num_api_servers=1,
                generate_client_file=False,
                log_level="error",
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
            )
            return
        except SystemExit:  # before anything was started: someone took the port meanwhile
            continue
    raise SystemExit(f"no free port in {TRIES} tries")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
