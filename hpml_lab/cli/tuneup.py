"""`hpml-lab tuneup SCRIPT [ARGS]`: what each tip of the guide gains on anybody's script, and whether it trains the same."""

import argparse
import json
from pathlib import Path

from hpml_lab.cli.foreign import turn_options
from hpml_lab.cli.shared import FINE, YEAR, number


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "tuneup",
        help="try the tuning guide's changes on a training script, one at a time: the gain of each, and if it trains the same",
        usage="hpml-lab tuneup [--only NAMES] [--skip NAMES] [--allow CLASS] [--steps N] [--minutes M]\n"
        "                       [--isolate] [--out FILE] [--json FILE] SCRIPT | -m MODULE [ARGS]",
        description="The script is not edited: copies of it take turns, each with one change, the others stopped meanwhile."
        " Each copy writes the script's own files, without --isolate. Ctrl-C ends it with what is known by then.",
    )
    parser.add_argument(
        "--only", help="these changes only, by name or its beginning: workers,fused", default="", metavar="NAMES"
    )
    parser.add_argument("--skip", help="all but these", default="", metavar="NAMES")
    turn_options(parser)
    parser.add_argument(
        "--minutes", type=number(0, YEAR), default=5.0, metavar="M", help="after which nothing new is begun (default: 5)"
    )
    parser.add_argument("--out", type=Path, default=Path("tuneup.html"), metavar="FILE", help="the page (default: tuneup.html)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what was found to FILE as one JSON object")
    parser.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE [ARGS ...]", help="a module, as python -m runs it"
    )
    parser.add_argument("script", nargs=argparse.REMAINDER, metavar="SCRIPT [ARGS ...]", help="as after `python`")
    parser.set_defaults(command=tuneup)


def tuneup(chosen: argparse.Namespace) -> int:
    """Print the ladder and the lines of what is kept, write the page, and return 0."""
    from hpml_lab.cli.foreign import foreign_command, ours_first, output_file

    ours_first()
    from hpml_lab.core.system.files import atomic_write
    from hpml_lab.profilers.beside import printable, say
    from hpml_lab.profilers.script_profile import check_script

    for path, option in ((chosen.out, "--out"), (chosen.json, "--json")):
        if path is not None:
            output_file(path, option)
    words = ["-m", *chosen.module, *chosen.script] if chosen.module else chosen.script
    script = foreign_command(words, "hpml-lab tuneup --isolate train.py --folder own")
    check_script(script)
    from hpml_lab.referee.tuneup import page
    from hpml_lab.referee.tuneup import tuneup as tune_up

    if not chosen.isolate:
        say(f"each copy of {' '.join(script)} writes the script's own files here; --isolate gives it a folder.")
    found = tune_up(
        script,
        only=[*filter(None, chosen.only.split(","))],
        skip=[*filter(None, chosen.skip.split(","))],
        allow=chosen.allow,
        steps=chosen.steps,
        minutes=chosen.minutes,
        isolate=chosen.isolate,
        say=say,
    )
    print(found.text())
    atomic_write(chosen.out, printable(page(found)))
    say(f"the page is {chosen.out}")
    if chosen.json is not None:
        atomic_write(chosen.json, json.dumps(found.as_dict(), indent=1) + "\n")
    return FINE
