"""`hpml-lab bottleneck -- COMMAND`: what bounds a command, and by what evidence."""

import argparse
import sys


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "bottleneck",
        help="name what bounds a command (input, CPU, a single thread, a lock, the GPU), with the evidence",
        usage="hpml-lab bottleneck -- COMMAND [ARGS ...]",
    )
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND [ARGS ...]", help="such as python train.py")
    parser.set_defaults(command=bottleneck)


def bottleneck(chosen: argparse.Namespace) -> int:
    """Run the command, print the diagnosis on stderr, and return the command's own exit code."""
    from hpml_lab.cli.foreign import foreign_command
    from hpml_lab.profiling.command_watch import diagnose_command

    diagnosis, code, notes = diagnose_command(foreign_command(chosen.words, "hpml-lab bottleneck -- python train.py"))
    print(f"hpml-lab: {diagnosis.text()}", *notes, sep="\n", file=sys.stderr, flush=True)
    return code
