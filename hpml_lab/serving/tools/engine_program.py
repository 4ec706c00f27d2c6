"""Serving engines as programs of their own: started on a free port of this machine, paused, and ended with all they started.

    with engine_program("hpml_lab.serving.lessons.litserve_api", settings, name="LitServe") as engine:
        engine.wait_until_ready()
        ...                                # requests to engine.port

An engine may start processes itself, and files for them. All of its processes are in one process group, which is asked to end
and then killed, whatever happened in the block; its temporary files are in a folder that is deleted. If this process is killed,
the kernel ends the engine (Linux).
"""

import contextlib
import ctypes
import http.client
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.programs import killed_by, python_environment, started

START_SECONDS, STOP_SECONDS, ANSWER_SECONDS = 120.0, 5.0, 2.0
POLL_SECONDS = 0.02


class RunningEngine:
    """An engine's program: its name, its process and, once it is ready, its port."""

    def __init__(self, name: str, program: subprocess.Popen, folder: Path, health: str) -> None:
        self.name, self.process, self.port = name, program, 0
        self._folder, self._health, self._asked = folder, health, False

    def wait_until_ready(self, seconds: float = START_SECONDS) -> int:
        """Wait for its first sign of health and return its port; LabError if it ends before, or takes too long."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if ended := self.fault():
                raise LabError(f"{self.name}, start: {ended}", "The other engines are not affected.")
            if self._is_healthy():
                return self.port
            time.sleep(POLL_SECONDS)
        raise LabError(f"{self.name}, start: it was not ready within {seconds:g} s. {self._last_words()}", "Try again later.")

    def fault(self) -> str:
        """How the program ended; empty while it runs."""
        code = self.process.poll()
        if code is None:
            return ""
        how = f"was {killed_by(code)}" if code < 0 else f"ended with exit code {code}"
        return f"the program {how}. {self._last_words()}".strip()

    def pause(self) -> None:
        """Stop its processes until `resume`: an engine that polls takes a core's time also when it has nothing to do.

        multiprocessing's resource tracker, which only waits, goes on: if this process is killed meanwhile, it ends by itself.
        """
        import psutil

        self._signal("SIGSTOP")
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(self.process.pid).children(recursive=True):
                if any("resource_tracker" in word for word in process.cmdline()):
                    process.resume()

    def resume(self) -> None:
        """Let it run again."""
        self._signal("SIGCONT")

    def _is_healthy(self) -> bool:
        with contextlib.suppress(OSError, ValueError):  # not written yet, or deleted: its port may be open all the same
            self.port = int((self._folder / "port").read_text(encoding="utf-8"))
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS)
            with contextlib.closing(connection):
                connection.request("GET", self._health)  # a path that no other server has
                return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):  # not there yet
            return False

    def _last_words(self) -> str:
        """The last line that it printed."""
        try:
            lines = (self._folder / "log").read_text(errors="replace", encoding="utf-8").split("\n")
        except OSError:
            return ""
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"Its last line: {last[:300]}" if last else ""

    def _signal(self, name: str) -> None:
        """Send a signal to the whole group, where the system has this signal and the program still runs."""
        if hasattr(signal, name) and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, getattr(signal, name))

    def ask_to_end(self) -> None:
        """Interrupt the program, as Ctrl-C does, so that it ends what it started; it need not wait for that here."""
        self.resume()
        if not self._asked and self.process.poll() is None and os.name == "posix":
            self._asked = True  # a second interrupt would disturb the end
            interrupt_main_thread(self.process)


def interrupt_main_thread(process: subprocess.Popen) -> None:
    """Send SIGINT to the main thread, which has to act on it, where the C library can (glibc from 2.30 on).

    An interrupt to the process goes to any thread that runs, and while another one takes it, the main thread may wait on.
    """
    send = getattr(ctypes.CDLL(None), "tgkill", None)
    if send is None or send(process.pid, process.pid, signal.SIGINT):
        process.send_signal(signal.SIGINT)


@contextlib.contextmanager
def engine_program(
    module: str, settings: Mapping[str, Any], *, name: str, stop_seconds: float = STOP_SECONDS
) -> Iterator[RunningEngine]:
    """Run `python -m module` with `settings` as JSON in its argument until the block is left; it may still be starting.

    The program gets two settings more: `port_file`, into which it writes the port that it listens on, `health`, a path at which
    it answers 200 once it is ready, and `parent`, this process.
    stop_seconds  how long it may take to end when it is asked to, before it is killed
    """
    with tempfile.TemporaryDirectory(prefix="hpml-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        health = f"/health-{secrets.token_hex(8)}"
        extra = {"port_file": str(folder / "port"), "health": health, "parent": os.getpid()}
        command = [sys.executable, "-P", "-m", module, json.dumps({**settings, **extra})]
        environment = python_environment({"TMPDIR": made, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"})
        with (folder / "log").open("wb") as log:
            with started(command, env=environment, cwd=folder, stdout=log, stderr=subprocess.STDOUT) as program:
                engine = RunningEngine(name, program, folder, health)
                try:
                    yield engine
                finally:
                    engine.ask_to_end()
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        program.wait(stop_seconds)


def is_gone(engine: RunningEngine, seconds: float = 5.0) -> bool:
    """Whether no process of the engine's group runs any more, nothing listens on its port, and its folder is deleted."""
    deadline = time.monotonic() + seconds
    while _group_runs(engine.process.pid) and time.monotonic() < deadline:  # killed processes need a moment
        time.sleep(POLL_SECONDS)
    return not (_group_runs(engine.process.pid) or engine._is_healthy() or engine._folder.exists())


def _group_runs(leader: int) -> bool:
    """Whether a process of the group runs; one that has ended, and that its new parent has not asked about, does not."""
    import psutil

    for process in psutil.process_iter(["status"]):
        with contextlib.suppress(ProcessLookupError, PermissionError, AttributeError):  # Windows has no groups
            if os.getpgid(process.pid) == leader and process.info["status"] != psutil.STATUS_ZOMBIE:
                return True
    return False
