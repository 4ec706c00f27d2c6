"""`hpml-lab doctor`: what this machine is, and what each notebook can show on it."""

import argparse
import shutil
import sys

from hpml_lab.cli.shared import FAILED, FINE

NARROWEST = 60  # characters: the last column begins at the 26th; a narrower terminal breaks the lines itself


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "doctor", help="what this machine is, what each notebook can show on it, and how to fix the rest"
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.set_defaults(command=examine_machine)


def examine_machine(chosen: argparse.Namespace) -> int:
    from hpml_lab.start.tools.doctor import examine

    print("Looking at this machine; loading torch takes some seconds.", file=sys.stderr, flush=True)
    found = examine()
    width = min(max(shutil.get_terminal_size().columns, NARROWEST), 110)
    print(found.as_json() if chosen.json else found.as_text(width))
    return FINE if found.ready else FAILED
