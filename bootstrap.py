"""The workbook's two commands on every system, to be called with Python 3.11 to 3.14:

    python bootstrap.py lab     opens it in JupyterLab; what follows is passed on, such as --no-browser
    python bootstrap.py test    runs the tests and every notebook; what follows is passed on to pytest

Both make the environment first; `python bootstrap.py` alone does only that.

Uses only the standard library. Creates `.venv`, installs exactly `requirements.lock` into it and the package itself,
and does nothing when that has been done already. It can be interrupted and run again at any time: the stamp is written last
and removed first, and a `.venv` without one is made anew, from what was fetched before. Of the user's settings for
Python, pip and uv only those count that say how packages are reached: no other can lead an installation out of `.venv`.
"""

import ast
import contextlib
import ctypes
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
STAMP = VENV / "installed.sha256"
# Defaults of this environment's JupyterLab, which asks at its first start about news, over the text; a user's own settings win.
QUIET = {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false"}}
SUPPORTED = ("3.14", "3.13", "3.12", "3.11")
DISK_NEEDED_GB = 9  # 7.3 GB of packages on Linux, and room to unpack them
# In the names of pip's and uv's settings that say how packages are reached. All others say what is installed, or where.
REACHES = re.compile("INDEX|FIND_LINKS|OFFLINE|KEYRING|TLS|CERT|HOST|PROXY|TIMEOUT|RETRIES|CACHE|CONCURRENT|CONFIG|FEATURE")
# uv reads no settings of pip's: where only pip was set up, uv is given the same.
AS_UV_CALLS_IT = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_TRUSTED_HOST": "UV_INSECURE_HOST",
    "PIP_PROXY": "ALL_PROXY",
    "PIP_CERT": "SSL_CERT_FILE",
}
LEADS_AWAY = ("PYTHONHOME", "PYTHONPATH")  # from .venv, when something runs in it


def fail(problem: str, fix: str) -> None:
    sys.exit(f"\nbootstrap: {problem}\nWhat to do: {fix}")


def own_environment() -> dict[str, str]:
    """The variables without Python's own (PYTHONHOME, PYTHONPATH, PYTHONWARNINGS …), and of pip's and uv's those that REACHES.

    Temporary files of a set-up lie in `.venv`, whose disk was found to be large enough.
    """
    ours = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PIP_", "UV_")) or not name.startswith("PYTHON") and REACHES.search(name)
    }
    if (temporary := VENV / "tmp").is_dir():
        ours |= dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary))
    return ours | {"PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "VIRTUAL_ENV": str(VENV)}


def installers_environment() -> dict[str, str]:
    """The same for pip and uv: pip's files are read here, for what REACHES, and a cache that cannot be written is replaced."""
    ours = own_environment()
    command = [str(BIN / "python"), "-m", "pip", "config", "list"]
    every_file = {"PIP_USER": "0"}  # `user = true` in one of them would be taken for `pip config --user list`
    listed = subprocess.run(command, env=ours | every_file, cwd=ROOT, capture_output=True, text=True, errors="replace")
    if listed.returncode:
        fail(f"pip cannot read its settings: {listed.stderr.strip()}", "correct that file, or set PIP_CONFIG_FILE=/dev/null.")
    for section in ("global", "install"):  # the second goes before the first, and a variable before both
        for key, value in re.findall(rf"^{section}\.([\w-]+)=(.*)$", listed.stdout, re.MULTILINE):
            name = "PIP_" + key.upper().replace("-", "_")
            if REACHES.search(name) and name not in os.environ:
                ours[name] = " ".join(ast.literal_eval(value).split())
    home = Path(os.path.expanduser("~"))
    files = [Path(ours.get("XDG_CONFIG_HOME") or home / ".config") / "uv" / "uv.toml", Path("/etc/uv/uv.toml")]
    if not any(name.startswith("UV_") and "INDEX" in name for name in ours) and not any(path.is_file() for path in files):
        ours = {theirs: ours[name] for name, theirs in AS_UV_CALLS_IT.items() if name in ours} | ours
        if "PIP_NO_INDEX" in ours and "PIP_FIND_LINKS" in ours:  # packages lie in folders, which uv separates by commas
            ours |= {"UV_NO_INDEX": ours["PIP_NO_INDEX"], "UV_FIND_LINKS": ",".join(ours["PIP_FIND_LINKS"].split())}
    cache = Path(ours.get("UV_CACHE_DIR") or ours.get("XDG_CACHE_HOME") or home / ".cache")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=cache).close()
    except OSError:  # the new one is removed at the end, and symbolic links into it would lead to nothing
        ours |= {"UV_CACHE_DIR": str(VENV / "tmp" / "cache"), "UV_LINK_MODE": "hardlink"}
    return ours | {"PIP_CONFIG_FILE": os.devnull}


def end_with_parent() -> None:
    """In a child, before it runs its program: let the kernel kill it when this process ends, however that happens."""
    set_parent_death_signal = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


CHILD = {"preexec_fn": end_with_parent} if sys.platform == "linux" else {}  # options of a child that must not outlive us


def answer(python: str, code: str) -> list[str]:
    """The lines that an interpreter prints for `code`; none if it does not start."""
    options = {"capture_output": True, "encoding": "utf-8", "errors": "surrogateescape", "timeout": 120}
    try:
        done = subprocess.run([python, "-X", "utf8", "-c", code], env=own_environment(), **options, **CHILD)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def version_of(python: str) -> str | None:
    """`3.12` for an interpreter that starts, None for one that does not."""
    return next(iter(answer(python, "import sys; print('%d.%d' % sys.version_info[:2])")), None)


def packages() -> set[str]:
    """Where `.venv` is and what lies in its folder of packages, as its own interpreter sees it; versions are left out."""
    code = "import os, sys, sysconfig; print(sys.prefix, *os.listdir(sysconfig.get_path('purelib')), sep='\\n')"
    return {name for name in answer(str(BIN / "python"), code) if not name.endswith((".dist-info", "__pycache__"))}


def find_python() -> str:
    """The interpreter that runs this script if its version is supported, else the newest supported one on PATH."""
    own = getattr(sys, "_base_executable", sys.executable)  # not the one of a `.venv` that is about to be made anew
    candidates = [own, *(f"python{v}" for v in SUPPORTED)]
    for python in candidates:
        if version_of(python) in SUPPORTED:
            return python
    fail(
        f"Python {sys.version.split()[0]} is not supported, and none of python3.11 to python3.14 is on PATH.",
        "install one of them, or call it by name: python3.12 bootstrap.py lab",
    )


def wanted() -> str:
    """One hash over all that decides what is installed."""
    parts = [(ROOT / name).read_bytes() for name in ("requirements.lock", "pyproject.toml")]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def stamped() -> tuple[str, set[str]]:
    """What the environment was completed for, and what was in it then; the first is empty if it never was completed."""
    lines = STAMP.read_text(encoding="utf-8", errors="surrogateescape").splitlines() if STAMP.is_file() else []
    return (lines[0], set(lines[1:])) if lines else ("", set())


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Wait until no other set-up of this folder runs. An installer whose bootstrap.py was killed counts: it holds the lock."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        with contextlib.suppress(ImportError, OSError):  # Windows, and file systems without locks
            import fcntl

            os.set_inheritable(file.fileno(), True)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print("Another set-up of this folder is running: waiting for its end.", flush=True)
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make_venv() -> None:
    """Make `.venv` anew, whatever is there: nothing at all, what an interruption left, or one whose folder was moved."""
    if not os.access(ROOT, os.W_OK):
        fail(f"{ROOT} is read-only for you.", "copy the folder to a place where you may write, and run the command there.")
    if os.path.lexists(VENV) and not VENV.is_dir():
        fail(".venv is there, but it is not a folder.", "rename or remove it.")
    made_by = VENV / "pyvenv.cfg"
    ours = made_by.is_file() and str(VENV) in made_by.read_text(errors="replace")  # as a set-up that was interrupted left it
    if VENV.is_symlink() and any(VENV.iterdir()) and not ours:
        fail(f".venv is a link to {VENV.resolve()}, which may be another project's.", "empty that folder, or remove the link.")
    free = shutil.disk_usage(ROOT).free / 1e9
    if free < DISK_NEEDED_GB:
        fail(f"only {free:.1f} GB of disk are free; the packages need up to {DISK_NEEDED_GB} GB.", "free some space.")
    python = find_python()
    print(f"Making .venv with Python {version_of(python)}", flush=True)
    # Without pip at first: it is unpacked where temporary files lie.
    for command in ([python, "-m", "venv", "--clear", "--without-pip", str(VENV)], [str(BIN / "python"), "-m", "ensurepip"]):
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
        done = subprocess.run(command, env=own_environment(), close_fds=False, **options, **CHILD)
        if done.returncode:
            print(done.stdout)
            debian = "No module named ensurepip" in done.stdout
            fix = (
                "on Debian or Ubuntu: sudo apt-get install python3-venv"
                if debian
                else "the text above says what was in the way."
            )
            fail("Python could not make a virtual environment.", fix)
        (VENV / "tmp").mkdir(exist_ok=True)


def installed_gb() -> float:
    """Bytes under .venv, counted by directory entries; files that come and go meanwhile are left out."""
    total = 0
    for folder, _, names in os.walk(VENV):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                pass
    return total / 1e9


def run_with_progress(label: str, command: list[str]) -> None:
    """Run a quiet installer and show one line that moves; on failure show what it said and what to do."""
    log, environment = VENV / "install.log", installers_environment()
    options = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT, "cwd": ROOT, "close_fds": False}
    start, moving = time.monotonic(), sys.stdout.isatty()
    with log.open("w") as sink:
        process = subprocess.Popen(command, stdout=sink, env=environment, **options, **CHILD)
        shown = -1.0
        while process.poll() is None:
            elapsed = time.monotonic() - start
            if moving or elapsed - shown >= 10 or shown < 0:
                shown = elapsed
                line = f"{label}: {elapsed:4.0f} s, {installed_gb():.1f} GB installed"
                print(f"\r{line}" if moving else line, end="" if moving else "\n", flush=True)
            time.sleep(0.5)
    if process.returncode:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        print(f"\n{tail}")
        names = [name for name in environment if name.startswith(("PIP_", "UV_")) and REACHES.search(name)]
        names.remove("PIP_CONFIG_FILE")
        settings = f", and your settings ({', '.join(sorted(names))})" if names else ""
        fail(
            f"{label} failed (the whole log: {log.relative_to(ROOT)}).",
            f"check the network and the free disk space{settings}, then run the same command again:"
            " it goes on where it stopped.",
        )
    print(f"{chr(13) if moving else ''}{label}: done in {time.monotonic() - start:.0f} s" + " " * 20, flush=True)


def pinned(name: str) -> str:
    """The lines of requirements.lock that pin one package."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    return re.search(rf"^{name}==(?:.*\\\n)*.*\n", lock, re.MULTILINE)[0]


def is_complete() -> bool:
    """Whether `.venv` is what the lock asks for. A package whose folder was removed is noticed, a file in it is not."""
    made_for, names = stamped()
    return made_for == wanted() and names <= packages()


def set_up() -> None:
    made_for, names = stamped()
    python = str(BIN / "python")
    whole = made_for and names <= packages() and version_of(python) in SUPPORTED
    with contextlib.suppress(OSError):  # make_venv says what is in the way
        STAMP.unlink(missing_ok=True)
    if not whole:
        make_venv()
    (VENV / "tmp").mkdir(exist_ok=True)
    # Bytecode is written now, because a Python that must not write it (PYTHONDONTWRITEBYTECODE, as in many containers) would
    # compile torch anew in every process: 5 s each. What has to be built here is built by packages of the lock.
    (VENV / "uv.txt").write_text(pinned("uv"), encoding="utf-8")
    fetch = [python, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(VENV / "uv.txt")]
    run_with_progress("Fetching the installer", fetch)
    uv = [python, "-m", "uv", "pip", "install", "--python", python]
    hashes = ["--require-hashes", "--build-constraint", "requirements.lock", "-r", "requirements.lock"]
    run_with_progress("Installing packages", [*uv, "--compile-bytecode", *hashes])
    run_with_progress("Installing hpml-lab", [*uv, "--offline", "--no-deps", "--no-build-isolation", "-e", "."])
    defaults = VENV / "share" / "jupyter" / "lab" / "settings" / "overrides.json"
    defaults.parent.mkdir(parents=True, exist_ok=True)
    defaults.write_text(json.dumps(QUIET), encoding="utf-8")
    shutil.rmtree(VENV / "tmp", ignore_errors=True)
    if not (found := packages()):
        fail(
            "the Python in .venv does not start.",
            f"see what `{python} -c 1` says. In a folder whose name is not ASCII, Python 3.11 and 3.12 need a locale"
            " that can write it: LC_ALL=C.UTF-8",
        )
    if "jupyterlab" not in found:
        fail(
            "uv has installed into another folder than .venv.",
            "take `target` and `prefix` out of your uv.toml, or set UV_NO_CONFIG=1.",
        )
    STAMP.write_text("\n".join([wanted(), *sorted(packages())]), encoding="utf-8", errors="surrogateescape")


def make_environment() -> None:
    if is_complete():
        return
    with alone():
        if not is_complete():  # the set-up that this one has waited for may have done it
            set_up()


def main(command: str | None = None, *arguments: str) -> int:
    """Make the environment, then become the command in it with further arguments; on Windows, return its exit code."""
    as_root = (
        ["--allow-root"] if getattr(os, "geteuid", lambda: 1)() == 0 else []
    )  # JupyterLab asks for it, as in most containers
    commands = {
        None: [],
        "lab": ["jupyterlab", *as_root, "--ServerApp.root_dir=.", "--LabApp.default_url=/lab/tree/notebooks/00_start.ipynb"],
        "test": ["pytest", "-n", "auto"],
    }
    if command in ("-h", "--help"):
        print(__doc__)
        return 0
    if command not in commands:
        fail(f"{command!r} is not one of its commands.", "python bootstrap.py lab, or: python bootstrap.py test")
    make_environment()
    if command == "test":  # containers often set it; each of the 300 processes that tests start would compile the package again
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if not command:
        return 0
    if left_out := [name for name in LEADS_AWAY if os.environ.get(name)]:
        print(
            f"bootstrap: without {' and '.join(left_out)}, which would put other packages in front of those in .venv.",
            file=sys.stderr,
        )
    environment = {name: value for name, value in os.environ.items() if name not in LEADS_AWAY}
    environment["VIRTUAL_ENV"] = str(VENV)  # as an activation sets it: IPython puts another one's packages in front
    line = [str(BIN / "python"), "-m", *commands[command], *arguments]
    os.chdir(ROOT)
    if os.name != "nt":  # signals are the command's, from Ctrl-C to SIGKILL, because this process becomes the command
        sys.stdout.flush()
        os.execve(line[0], line, environment)
    # Ctrl-C is the command's: JupyterLab asks whether it is meant, pytest ends its kernels. `call` kills both after 0.25 s.
    handler = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        return subprocess.call(line, env=environment)
    finally:
        signal.signal(signal.SIGINT, handler)


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("\nbootstrap: interrupted. Run the same command again: it goes on where it stopped.")
