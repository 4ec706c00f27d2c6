"""`hpml-lab profile SCRIPT [ARGS]`: flame graph, functions, lines and torch's operators of anybody's script, in one page."""

import argparse
import sys
from pathlib import Path

from hpml_lab.cli.shared import YEAR, number


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "profile",
        help="profile a Python script: flame graph, functions, lines and torch's operators in one HTML page",
        usage="hpml-lab profile [--out FILE] [--rate N] [--operator-seconds S] [--subprocesses] SCRIPT | -m MODULE [ARGS]",
        epilog="CPU it costs: the script 0.2 to 0.7 s (3 to 13 % where it trains for 3 to 11 s); outside, the page 0.3 to 0.6 s"
        " and py-spy 0.4 to 2.5 s, most of them while modules are imported. At --rate 100 py-spy takes 2 to 10 s.",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("profile.html"),
        metavar="FILE",
        help="the page (default: profile.html); next to it the samples for speedscope.app, as FILE with .speedscope.json",
    )
    parser.add_argument(
        "--rate", type=number(1, 1000, whole=True), default=25, metavar="N", help="samples a second (default: 25)"
    )
    parser.add_argument(
        "--operator-seconds",
        type=number(0, YEAR),
        default=3.0,
        metavar="S",
        help="how long to record torch's operators, at most 20,000 of them (default: 3; 0: no)",
    )
    parser.add_argument("--subprocesses", action="store_true", help="watch what the script starts too, such as loader workers")
    parser.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE [ARGS ...]", help="a module, as python -m runs it"
    )
    parser.add_argument("script", nargs=argparse.REMAINDER, metavar="SCRIPT [ARGS ...]", help="a Python file")
    parser.set_defaults(command=profile)


def profile(chosen: argparse.Namespace) -> int:
    """Run the script, write the page, and return the script's own exit code."""
    from hpml_lab.cli.foreign import foreign_command, output_file
    from hpml_lab.profilers.script_profile import profile_script, write_page

    if chosen.out.parent.is_dir():  # it is made otherwise
        output_file(chosen.out, "--out")
    words = chosen.script if not chosen.module else ["-m", *chosen.module]
    found = profile_script(
        foreign_command(words, "hpml-lab profile train.py"),
        rate=chosen.rate,
        operator_seconds=chosen.operator_seconds,
        subprocesses=chosen.subprocesses,
    )
    page, *others = write_page(found, chosen.out)
    print(f"hpml-lab: the profile is in {', '.join(map(str, [page, *others]))}", file=sys.stderr, flush=True)
    return found.exit_code
