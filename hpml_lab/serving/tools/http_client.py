"""A client for load tests: many requests under way at once, connections that stay open, and a time limit for each answer."""

import contextlib
import http.client
import json
import socket
import threading
from concurrent.futures import Future, ThreadPoolExecutor

from hpml_lab.core.system.errors import LabError


class HttpClient:
    """POST bodies to one address of this machine, each in a thread that has a connection of its own; a context manager.

    port, path       where the requests go
    connections      how many requests may be under way; further ones wait in the client
    timeout_seconds  for each step on the connection: to connect, to send, and to receive
    """

    def __init__(self, port: int, path: str = "/predict", *, connections: int = 32, timeout_seconds: float = 10.0) -> None:
        self._port, self._path, self._timeout = port, path, timeout_seconds
        self._pool = ThreadPoolExecutor(connections, thread_name_prefix="http client")
        self._mine = threading.local()
        self._open: list[http.client.HTTPConnection] = []
        self._closed, self._lock = False, threading.Lock()

    def submit(self, body: bytes) -> Future:
        """Send `body` as soon as a connection is free; the future gets the answer's body, or the error.

        A status other than 200 is a LabError with what the server said about it.
        """
        return self._pool.submit(self._post, body)

    def close(self) -> None:
        """Give up what waits, and close the connections; what is under way ends with an error."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._closed = True  # from here on no thread connects
            for connection in self._open:
                with contextlib.suppress(OSError, AttributeError):  # it ended meanwhile
                    connection.sock.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for it; close() would not
        self._pool.shutdown(wait=True)
        for connection in self._open:
            connection.close()

    def __enter__(self) -> "HttpClient":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _post(self, body: bytes) -> bytes:
        connection = getattr(self._mine, "connection", None)
        if connection is None:
            connection = self._mine.connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=self._timeout)
            connection.auto_open = 0  # only _connect connects
        try:
            if connection.sock is None:
                self._connect(connection)
            connection.request("POST", self._path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.read()
        except TimeoutError:
            connection.close()  # it opens again with the next request
            raise LabError(f"no answer within {self._timeout:g} s.", "The server is slow or hangs.") from None
        except Exception:
            connection.close()
            raise
        if response.status != 200:
            raise LabError(f"the server answered {response.status}: {_detail(answer)}", "See what the server printed.")
        return answer

    def _connect(self, connection: http.client.HTTPConnection) -> None:
        """Connect so that close() knows of it, or do not connect any more."""
        connection.connect()
        with self._lock:
            if self._closed:
                raise LabError("the client is closed.", "Make a new one.")
            if connection not in self._open:
                self._open.append(connection)


def _detail(answer: bytes) -> str:
    """What a server says about an error, in at most 200 characters."""
    try:
        return str(json.loads(answer)["detail"])[:200]
    except (ValueError, KeyError, TypeError):
        return " ".join(answer.decode(errors="replace").split())[:200]
