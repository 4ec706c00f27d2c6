"""`hpml-lab referee A B`: is B faster than A beyond noise, and does it train the same? For reviews, by people and programs."""

import argparse
import json
import shlex
from pathlib import Path

from hpml_lab.cli.foreign import turn_options
from hpml_lab.cli.shared import FAILED, FINE


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "referee",
        help="whether script B is faster than script A beyond noise, and trains the same",
        usage="hpml-lab referee [--allow CLASS] [--steps N] [--isolate] [--json FILE] A B\n"
        "       hpml-lab referee --commits A B [...] SCRIPT [ARGS]",
        description="A and B are scripts, or scripts with arguments in quotes: 'train.py --fused'. Copies take turns, and"
        " each writes the script's own files, without --isolate. The exit"
        " code is 0 only if B is faster beyond what A differs from itself, and the training is the same.",
    )
    turn_options(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the verdict to FILE as one JSON object")
    parser.add_argument(
        "--commits",
        nargs=2,
        metavar=("A", "B"),
        help="two commits of this repository, with one script; what git does not track, such as data, is as it is here "
        "now, and a script that writes there without --isolate changes it",
    )
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="A B", help="two scripts; with --commits one, and arguments")
    parser.set_defaults(command=referee)


def referee(chosen: argparse.Namespace) -> int:
    """Print the verdict; 0 if B is faster and trains the same, 1 otherwise."""
    from hpml_lab.cli.foreign import ours_first, output_file

    ours_first()
    from hpml_lab.core.system.errors import LabError
    from hpml_lab.core.system.files import atomic_write
    from hpml_lab.profilers.script_profile import check_script

    if chosen.json is not None:
        output_file(chosen.json, "--json")
    if chosen.commits and not chosen.words:
        raise LabError("--commits needs a script.", "For example: hpml-lab referee --commits main HEAD train.py")
    if not chosen.commits and len(chosen.words) != 2:
        raise LabError(f"{len(chosen.words)} scripts were given.", "Give two: hpml-lab referee train.py 'train.py --fused'")
    options = {"allow": chosen.allow, "steps": chosen.steps, "isolate": chosen.isolate}
    scripts = [] if chosen.commits else [shlex.split(words) for words in chosen.words]
    for script in scripts:
        check_script(script)
    from hpml_lab.referee.verdict import compare_commits, compare_scripts

    verdict = (
        compare_commits(chosen.commits, chosen.words, **options) if chosen.commits else compare_scripts(*scripts, **options)
    )
    print(verdict.text())
    if chosen.json is not None:
        atomic_write(chosen.json, json.dumps(verdict.as_dict(), indent=1) + "\n")
    return FINE if verdict.accepted else FAILED
