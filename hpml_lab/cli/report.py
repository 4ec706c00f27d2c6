"""`hpml-lab report [DIR]`: one HTML page of the results in a folder."""

import argparse
from pathlib import Path

from hpml_lab.cli.shared import FINE, RESULTS_FOLDER, named_or_kept, print_error
from hpml_lab.core.system import machine


def add_parser(commands) -> None:
    parser = commands.add_parser("report", help="make one HTML page of the results in a folder")
    parser.add_argument("folder", type=Path, nargs="?", metavar="DIR", help=f"of results (default: {RESULTS_FOLDER})")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the page (default: DIR/report.html)")
    parser.set_defaults(command=make_report)


def make_report(chosen: argparse.Namespace) -> int:
    from hpml_lab.core.experiment.results_folder import require_folder

    require_folder(folder := named_or_kept(chosen.folder))
    machine.require_torch()
    from hpml_lab.report import write_report

    page, left_out = write_report(folder, chosen.out)
    for name, why in left_out:
        print_error(f"left out {name}: {why}")
    print(page)
    return FINE
