"""`hpml-lab report [DIR]`: one HTML page of the results in a folder."""

import argparse
from pathlib import Path

from hpml_lab.cli.shared import FINE, load_registry, print_error


def add_parser(commands) -> None:
    parser = commands.add_parser("report", help="make one HTML page of the results in a folder")
    parser.add_argument(
        "folder",
        type=Path,
        nargs="?",
        metavar="DIR",
        help="the folder that `hpml-lab run --out DIR` filled (default: results here, or else where the notebooks keep theirs)",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="the page (default: DIR/report.html)")
    parser.set_defaults(command=make_report)


def make_report(chosen: argparse.Namespace) -> int:
    load_registry()
    from hpml_lab.core.experiment.kept import results_folder
    from hpml_lab.report import write_report

    here = Path("results")
    folder = chosen.folder or (here if here.is_dir() else results_folder() or here)
    page, left_out = write_report(folder, chosen.out)
    for name, why in left_out:
        print_error(f"left out {name}: {why}")
    print(page)
    return FINE
