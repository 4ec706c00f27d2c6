"""Drives a real JupyterLab in Chromium: a server with settings of its own, and what a user does in a notebook."""

import contextlib
import functools
import http.server
import os
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]


@contextlib.contextmanager
def lab_server(root: Path, scratch: Path):
    """JupyterLab over `root`; yields (address, token). All its settings, news and state stay in `scratch`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(16)
    settings = scratch / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    quiet = '{"fetchNews": "false", "checkForUpdates": false}'
    (settings / "notification.jupyterlab-settings").write_text(quiet)
    folders = {"CONFIG_DIR": "config", "RUNTIME_DIR": "runtime", "DATA_DIR": "data"}
    env = (
        os.environ
        | {f"JUPYTER_{name}": str(scratch / folder) for name, folder in folders.items()}
        | {"JUPYTERLAB_SETTINGS_DIR": str(scratch / "settings"), "JUPYTERLAB_WORKSPACES_DIR": str(scratch / "workspaces")}
    )
    env.pop("MPLBACKEND", None)  # as a user's kernel would find it
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--allow-root",
        "--no-browser",
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={root}",
        "--LabApp.expose_app_in_browser=True",
        "--LanguageServerManager.autodetect=False",
    ]
    log = scratch / "lab.log"
    with log.open("w") as sink:
        server = subprocess.Popen(command, env=env, stdout=sink, stderr=subprocess.STDOUT)
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 600
        while True:
            try:
                urllib.request.urlopen(f"{address}/api/status?token={token}", timeout=2)
                break
            except OSError:
                if server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()[-2000:]}") from None
                time.sleep(0.3)
        yield address, token
    finally:
        server.terminate()
        server.wait(30)


@contextlib.contextmanager
def served(folder: Path):
    """The address of a server of the files in a folder."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        extensions_map = http.server.SimpleHTTPRequestHandler.extensions_map | {".mjs": "text/javascript"}

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def decoded_width(picture) -> int:
    """The width of an <img> in its own pixels; 0 if it is never decoded. A newer picture interrupts an older one."""
    return picture.evaluate(
        """async image => {
          for (let tries = 0; tries < 200; tries++) {
            try { await image.decode(); return image.naturalWidth; }
            catch { await new Promise(resolve => setTimeout(resolve, 50)); }
          }
          return 0;
        }"""
    )


@contextlib.contextmanager
def browser(profile: Path, width: int = 1300, height: int = 1000):
    """A fresh Chromium that may talk to this machine only; `context.refused` lists what it wanted elsewhere."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            profile, executable_path=CHROMIUM, headless=True, args=FLAGS, viewport={"width": width, "height": height}
        )
        context.refused = []
        context.set_default_timeout(180_000)  # milliseconds, for a machine that is busy elsewhere

        def guard(route):
            if route.request.url.startswith(("http://127.0.0.1", "data:", "blob:")):
                route.continue_()
            else:
                context.refused.append(route.request.url)
                route.abort()

        context.route("**/*", guard)
        try:
            yield context
        finally:
            context.close()


def open_notebook(context, address: str, token: str, path: str):
    """Open one notebook in a fresh workspace; `page.errors` collects what the console reports."""
    page = context.new_page()
    page.errors = []
    page.on("console", lambda message: page.errors.append(message.text) if message.type == "error" else None)
    page.goto(f"{address}/doc/tree/{path}?token={token}&reset")
    page.wait_for_selector(".jp-NotebookPanel")
    return page


def run_all_cells(page, seconds: float = 600) -> None:
    """Run all cells and wait for the last. The application is asked for the kernel's state: the toolbar says idle too early."""
    page.wait_for_function(
        """() => { const s = window.jupyterapp?.shell?.currentWidget?.sessionContext, k = s?.session?.kernel;
                   return !!(s?.isReady && k?.connectionStatus === 'connected' && k.status === 'idle') }"""
    )
    state = page.evaluate(
        """async t => { const done = window.jupyterapp.commands.execute('notebook:run-all-cells').then(() => 'done');
                        return Promise.race([done, new Promise(f => setTimeout(() => f('too slow'), t * 1000))]) }""",
        seconds,
    )
    assert state == "done", state


def cell_errors(page) -> list[str]:
    """The error outputs of all cells, by the notebook's own model (cells out of sight are not in the page)."""
    return page.evaluate(
        """() => [...window.jupyterapp.shell.currentWidget.content.model.cells].flatMap(cell =>
                 (cell.toJSON().outputs ?? []).filter(o => o.output_type === 'error').map(o => o.ename + ': ' + o.evalue))"""
    )
