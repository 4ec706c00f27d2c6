"""`hpml-lab profile SCRIPT [ARGS]`: flame graph, functions, lines and torch's operators of anybody's script, in one page."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from hpml_lab.cli.shared import YEAR, number, require_writable

if TYPE_CHECKING:
    from hpml_lab.profilers.script_profile import ScriptProfile


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "profile",
        help="profile a Python script: flame graph, functions, lines and torch's operators in one HTML page",
        usage="hpml-lab profile [--out FILE] [--rate N] [--operator-seconds S] [--subprocesses] SCRIPT | -m MODULE [ARGS]\n"
        "       hpml-lab profile [...] -- what follows `python`, such as -W error -c CODE [ARGS]",
        epilog="CPU it costs: the script 0.2 to 0.7 s (3 to 13 % where it trains for 3 to 11 s); outside, the page 0.3 to 0.6 s"
        " and py-spy 0.4 to 2.5 s, most of them while modules are imported. At --rate 100 py-spy takes 2 to 10 s.",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("profile.html"),
        metavar="FILE",
        help="the page (default: profile.html); next to it, as FILE with .speedscope.json and .operators.json, the samples for "
        "speedscope.app and torch's operators",
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
    parser.add_argument(
        "script",
        nargs=argparse.REMAINDER,
        metavar="SCRIPT [ARGS ...]",
        help="whatever `python` runs: a file, a folder, a zip application, - for the standard input",
    )
    parser.set_defaults(command=profile)


def profile(chosen: argparse.Namespace) -> int:
    """Run the script, write the page, and return the script's own exit code."""
    from hpml_lab.cli.foreign import foreign_command, ours_first, output_file

    ours_first()
    from hpml_lab.profilers.beside import say
    from hpml_lab.profilers.script_profile import profile_script, write_page

    require_writable(chosen.out.parent, "--out")  # it is made where it is not there
    output_file(chosen.out, "--out")
    words = ["-m", *chosen.module, *chosen.script] if chosen.module else chosen.script

    def report(profile: "ScriptProfile") -> None:
        written = write_page(profile, chosen.out)
        say(f"the profile is in {', '.join(map(str, written))}")

    return profile_script(
        foreign_command(words, "hpml-lab profile train.py"),
        rate=chosen.rate,
        operator_seconds=chosen.operator_seconds,
        subprocesses=chosen.subprocesses,
        report=report,
    ).exit_code
