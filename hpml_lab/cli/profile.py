"""`hpml-lab profile SCRIPT [ARGS]`: a flame graph, the top functions and torch's operators of anybody's script, in one page."""

import argparse
import sys
from pathlib import Path


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "profile",
        help="profile a Python script: flame graph, functions and torch's operators in one HTML page",
        usage="hpml-lab profile [--out FILE] [--rate N] [--operator-seconds S] [--subprocesses] SCRIPT [ARGS ...]",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("profile.html"), metavar="FILE", help="the page (default: profile.html)"
    )
    parser.add_argument("--rate", type=int, default=100, metavar="N", help="samples a second (default: 100)")
    parser.add_argument(
        "--operator-seconds",
        type=float,
        default=3.0,
        metavar="S",
        help="how long to record torch's operators (default: 3; 0: no)",
    )
    parser.add_argument("--subprocesses", action="store_true", help="watch what the script starts too, such as loader workers")
    parser.add_argument(
        "script", nargs=argparse.REMAINDER, metavar="SCRIPT [ARGS ...]", help="a Python file, or -m and a module"
    )
    parser.set_defaults(command=profile)


def profile(chosen: argparse.Namespace) -> int:
    """Run the script, write the page, and return the script's own exit code."""
    from hpml_lab.cli.foreign import foreign_command
    from hpml_lab.profiling.script_profile import profile_script, write_page

    found = profile_script(
        foreign_command(chosen.script, "hpml-lab profile train.py --epochs 3"),
        rate=chosen.rate,
        operator_seconds=chosen.operator_seconds,
        subprocesses=chosen.subprocesses,
    )
    print(f"hpml-lab: the profile is in {write_page(found, chosen.out)}", file=sys.stderr, flush=True)
    return found.exit_code
