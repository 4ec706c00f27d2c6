"""Make the environment of the workbook: `python3 bootstrap.py` (what `make lab` and `make test` call first).

Uses only the standard library. Creates `.venv`, installs exactly `requirements.lock` into it and the package itself,
and does nothing when that has been done already. It can be interrupted and run again at any time.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
STAMP = VENV / "installed.sha256"
UV = "uv==0.13.8"
SUPPORTED = ("3.13", "3.12", "3.11")
DISK_NEEDED_GB = 9  # 5 GB of packages unpacked on Linux, and the same again while they are downloaded


def fail(problem: str, fix: str) -> None:
    sys.exit(f"\nmake: {problem}\nWhat to do: {fix}")


def version_of(python: str) -> str | None:
    """`3.12` for an interpreter that starts, None for one that does not."""
    try:
        done = subprocess.run(
            [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True, timeout=20
        )
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def find_python() -> str:
    """The interpreter that runs this script if its version is supported, else the newest supported one on PATH."""
    candidates = [sys.executable, *(f"python{v}" for v in SUPPORTED)]
    for python in candidates:
        if version_of(python) in SUPPORTED:
            return python
    fail(
        f"Python {sys.version.split()[0]} is not supported, and no python3.11, python3.12 or python3.13 is on PATH.",
        "install one of them, or name one: make lab PYTHON=/path/to/python3.12",
    )


def wanted() -> str:
    """One hash over all that decides what is installed and where."""
    parts = [(ROOT / name).read_bytes() for name in ("requirements.lock", "pyproject.toml")]
    return hashlib.sha256(b"\0".join([*parts, str(ROOT).encode()])).hexdigest()


def make_venv() -> None:
    if version_of(str(BIN / "python")) in SUPPORTED:
        return
    shutil.rmtree(VENV, ignore_errors=True)  # absent, or broken by a moved folder or a removed Python
    python = find_python()
    print(f"Making .venv with Python {version_of(python)}", flush=True)
    if subprocess.run([python, "-m", "venv", str(VENV)], capture_output=True).returncode:
        shutil.rmtree(VENV, ignore_errors=True)
        fail("Python could not make a virtual environment.", "on Debian or Ubuntu: sudo apt-get install python3-venv")


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
    log = VENV / "install.log"
    start, moving = time.monotonic(), sys.stdout.isatty()
    with log.open("w") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT, cwd=ROOT)
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
        fail(
            f"{label} failed (the whole log: {log.relative_to(ROOT)}).",
            "check the network and the free disk space, then run the same command again: it goes on where it stopped.",
        )
    print(f"{chr(13) if moving else ''}{label}: done in {time.monotonic() - start:.0f} s" + " " * 20, flush=True)


def main() -> None:
    if STAMP.is_file() and STAMP.read_text() == wanted() and version_of(str(BIN / "python")):
        return
    free = shutil.disk_usage(ROOT).free / 1e9
    if free < DISK_NEEDED_GB:
        fail(f"only {free:.1f} GB of disk are free; the packages need up to {DISK_NEEDED_GB} GB.", "free some space.")
    make_venv()
    python = str(BIN / "python")
    run_with_progress("Fetching the installer", [python, "-m", "pip", "install", "--quiet", UV])
    uv = [python, "-m", "uv", "pip"]
    # uv itself stays: `sync` would remove what the lock does not name. Bytecode is written now, because a Python that must
    # not write it (PYTHONDONTWRITEBYTECODE, as in many containers) would compile torch anew in every process: 5 s each.
    install = [*uv, "install", "--python", python, "--compile-bytecode", "--require-hashes", "-r", "requirements.lock"]
    run_with_progress("Installing packages", install)
    run_with_progress("Installing hpml-lab", [*uv, "install", "--python", python, "--no-deps", "-e", "."])
    STAMP.write_text(wanted())


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nmake: interrupted. Run the same command again: it goes on where it stopped.")
