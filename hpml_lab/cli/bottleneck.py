"""`hpml-lab bottleneck -- COMMAND`: what bounds a command, and by what evidence."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from hpml_lab.cli.shared import FINE

if TYPE_CHECKING:
    from hpml_lab.profilers.command_verdict import CommandDiagnosis

from hpml_lab.cli.shared import YEAR, number


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "bottleneck",
        help="name what bounds a program (a quota, input, disk, CPU, one thread, the GIL, a lock, the GPU), with the evidence",
        usage="hpml-lab bottleneck [--seconds S] [--json FILE] (--pid PID | -- COMMAND [ARGS ...])",
        description="Watches a program from outside, and changes nothing in it. The verdict comes on stderr when the program "
        "ends, also by a signal (`timeout 60 hpml-lab bottleneck -- COMMAND`); imports are left out.",
    )
    parser.add_argument(
        "--pid",
        type=number(1, 2**31 - 1, whole=True),
        metavar="PID",
        help="watch this process, and what it starts, instead of a command; Ctrl-C ends the watch, not the process",
    )
    parser.add_argument(
        "--seconds",
        type=number(1e-3, YEAR),
        metavar="S",
        help="judge the first S seconds only; a command then goes on to its end, and its exit code is passed on as ever",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the verdict and its evidence to FILE as one JSON object"
    )
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND [ARGS ...]", help="such as python train.py")
    parser.set_defaults(command=bottleneck)


def bottleneck(chosen: argparse.Namespace) -> int:
    """Print the diagnosis on stderr, and return the command's own exit code (0 with --pid)."""
    from hpml_lab.cli.foreign import foreign_command, ours_first, output_file

    ours_first()
    from hpml_lab.core.system.errors import LabError
    from hpml_lab.profilers.beside import say
    from hpml_lab.profilers.command_watch import diagnose_command, diagnose_process

    if chosen.pid is not None and chosen.words:
        raise LabError("--pid watches a process that runs already; there is a command too.", "Give one of them.")
    path = output_file(chosen.json, "--json") if chosen.json is not None else None

    def report(diagnosis: "CommandDiagnosis") -> None:
        say(diagnosis.text())
        if path is not None:
            from hpml_lab.core.system.files import atomic_write

            atomic_write(path, json.dumps(diagnosis.as_dict(), indent=1) + "\n")

    if chosen.pid is not None:
        report(diagnose_process(chosen.pid, chosen.seconds))
        return FINE
    command = foreign_command(chosen.words, "hpml-lab bottleneck -- python train.py")
    return diagnose_command(command, chosen.seconds, report)[1]
