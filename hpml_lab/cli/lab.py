"""`hpml-lab lab SCRIPT [ARGS]`: the steps of a lab on a training script of one's own, as one page and one JSON file."""

import argparse
from pathlib import Path

from hpml_lab.cli.shared import FINE, YEAR, number
from hpml_lab.core.system import machine

PAGE = "lab.html"


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "lab",
        help="take a training script through a lab's steps: parts, workers, profile, optimizers, ranks …; one page",
        usage="hpml-lab lab [--steps NAMES] [--again] [--seconds S] [--out FOLDER] SCRIPT [ARGS]\n"
        "       hpml-lab lab [--out FOLDER] --predict STEP TEXT | --explain STEP TEXT SCRIPT [ARGS]",
        description="The script is not edited. It runs many times, most of them in this folder, over its own checkpoints. A"
        " step that is done stays done until the script changes: the same command goes on where it was interrupted. A script to"
        " start from: `hpml-lab template --of lab .`",
    )
    parser.add_argument("--steps", default="", metavar="NAMES", help="these steps only: parts,workers")
    parser.add_argument("--again", action="store_true", help="also the steps that are done already")
    parser.add_argument(
        "--seconds", type=number(1, YEAR), default=60.0, metavar="S", help="after which a step begins nothing new (default: 60)"
    )
    parser.add_argument("--out", type=Path, default=Path("lab"), metavar="FOLDER", help="for report and page (default: lab)")
    parser.add_argument("--predict", nargs=2, metavar=("STEP", "TEXT"), help="write down what you expect, before it runs")
    parser.add_argument("--explain", nargs=2, metavar=("STEP", "TEXT"), help="write down what you make of it, afterwards")
    parser.add_argument("script", nargs=argparse.REMAINDER, metavar="SCRIPT [ARGS ...]", help="as after `python`")
    parser.set_defaults(command=lab)


def lab(chosen: argparse.Namespace) -> int:
    """Run what is not done yet, and write the page after it."""
    from hpml_lab.cli.foreign import foreign_command, ours_first
    from hpml_lab.cli.shared import require_writable

    ours_first()
    from hpml_lab.profilers.script_profile import check_script

    script = foreign_command(chosen.script, "hpml-lab lab train.py")
    check_script(script)
    machine.require_torch()
    from hpml_lab.core.system.files import atomic_write
    from hpml_lab.profilers.beside import say

    require_writable(chosen.out, "--out")
    from hpml_lab.your_script.tools.lab import remark, require_steps, run_lab
    from hpml_lab.your_script.tools.lab_report import report_in
    from hpml_lab.your_script.views.lab_page import lab_page

    remarks = [(words, field) for words, field in ((chosen.predict, "prediction"), (chosen.explain, "sentence")) if words]
    steps = [*filter(None, chosen.steps.split(","))]
    require_steps(script, [*steps, *(step for (step, _), _ in remarks)])
    try:
        for (step, text), field in remarks:
            remark(script, chosen.out, step, **{field: text})
        if not remarks:
            run_lab(script, chosen.out, steps=steps, again=chosen.again, seconds=chosen.seconds, say=say)
    finally:  # an interrupted lab has a page of what is done
        print(atomic_write(chosen.out / PAGE, lab_page(report_in(chosen.out, script, measured_here=False))))
    return FINE
