"""What the commands share that run somebody else's command."""

import argparse
import contextlib
import os
import sys
from pathlib import Path

from hpml_lab.cli.shared import number, require_writable
from hpml_lab.core.system.errors import LabError


def ours_first() -> None:
    """Let modules of PYTHONPATH and of the current folder, which are the program's, come after this environment's: one may be
    called `statistics`.
    """
    with contextlib.suppress(FileNotFoundError):  # the current folder is gone
        theirs = {os.path.abspath(folder) for folder in ("", *os.environ.get("PYTHONPATH", "").split(os.pathsep))}
        sys.path.sort(key=theirs.__contains__)


def foreign_command(words: list[str], example: str) -> list[str]:
    """The command after the options, with or without a `--` before it; LabError if there is none."""
    command = words[1:] if words[:1] == ["--"] else words
    if not command:
        raise LabError("there is no command to run.", f"For example: {example}")
    return command


def turn_options(parser: argparse.ArgumentParser) -> None:
    """The options of commands that run copies of a script in turns."""
    parser.add_argument(
        "--allow",
        choices=("bitwise", "rounding", "precision"),
        default="rounding",
        help="how far the training may differ for a change to be kept (default: rounding); unless it is bitwise, `tuneup` also"
        " keeps one that draws samples or random numbers in another order, which `referee` refuses",
    )
    parser.add_argument("--steps", type=number(1, 10**6, whole=True), metavar="N", help="steps of a turn (default: 0.1 s)")
    parser.add_argument(
        "--isolate", action="store_true", help="let each copy run in a copy of this folder; what it writes there is thrown away"
    )


def output_file(path: Path, option: str) -> Path:
    """A file's name from the command line, checked before the command runs; LabError if nothing can be written there."""
    if path.name in ("", "..") or path.is_dir():
        raise LabError(f"{option} {str(path)!r} names a folder.", f"Name a file in it, such as {path / 'run'}.")
    if not path.parent.is_dir():
        raise LabError(f"{option} {path}: there is no folder {path.parent}.", "Make it first, or name another.")
    require_writable(path.parent, option)
    return path
