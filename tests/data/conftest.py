"""A tiny MNIST (6 and 4 images) whose sha256 stand in for the real ones, and a server on loopback that can misbehave."""

import gzip
import hashlib
import http.server
import re
import struct
import threading

import numpy as np
import pytest

from hpml_lab.data import mnist


def idx_images(count: int, seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (count, 28, 28), dtype=np.uint8)
    return struct.pack(">iiii", 2051, count, 28, 28) + pixels.tobytes()


def idx_labels(count: int) -> bytes:
    return struct.pack(">ii", 2049, count) + bytes(index % 10 for index in range(count))


@pytest.fixture
def files(monkeypatch):
    """{name: unpacked content} of the tiny data set, which the package now accepts as MNIST."""
    made = {
        "train-images-idx3-ubyte": idx_images(6, seed=1),
        "train-labels-idx1-ubyte": idx_labels(6),
        "t10k-images-idx3-ubyte": idx_images(4, seed=2),
        "t10k-labels-idx1-ubyte": idx_labels(4),
    }
    assert list(made) == list(mnist.SHA256)
    monkeypatch.setattr(mnist, "SHA256", {name: hashlib.sha256(data).hexdigest() for name, data in made.items()})
    return made


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty data folder that `HPML_DATA` names; the project's own `data/` is hidden."""
    monkeypatch.setattr("hpml_lab.core.system.paths.DATA", tmp_path / "no-such-folder")
    monkeypatch.setenv("HPML_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


class Server(http.server.ThreadingHTTPServer):
    """Serves `content` ({path: bytes}) and records each request as (path, Range header).

    ranges       whether a Range request gets 206
    cut_after    the connection breaks after that many bytes of a body, `cuts` times
    length       what Content-Length says instead of the length
    endless      a body is followed by zeros until the client goes away
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.requests, self.ranges, self.cut_after, self.cuts = {}, [], True, None, 0
        self.length, self.endless = None, False

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    def asked(self, name: str) -> list[str | None]:
        """The Range headers of all requests for `name`."""
        return [span for path, span in self.requests if path == f"/{name}"]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server, span = self.server, self.headers.get("Range")
        server.requests.append((self.path, span))
        if self.path not in server.content:
            self.send_error(404)
            return
        body, start = server.content[self.path], 0
        if span and server.ranges:
            start = int(re.fullmatch(r"bytes=(\d+)-", span)[1])
            if start >= len(body):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        if not server.endless:
            self.send_header("Content-Length", server.length or str(len(body) - start))
        self.end_headers()
        while server.endless:
            try:
                self.wfile.write(bytes(1 << 16))
            except OSError:
                return
        if server.cuts:
            server.cuts -= 1
            self.wfile.write(body[start : start + server.cut_after])
        else:
            self.wfile.write(body[start:])

    def log_message(self, *_):
        pass


@pytest.fixture
def server(files, monkeypatch):
    """The server with the four archives; torchvision's list of mirrors names it alone."""
    from torchvision.datasets import MNIST

    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    running = Server()
    running.content = {f"/{name}.gz": gzip.compress(data) for name, data in files.items()}
    monkeypatch.setattr(MNIST, "mirrors", [running.address])
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield running
    running.shutdown()
    running.server_close()
    thread.join(timeout=5)
