"""`hpml-lab progress`: which exercises are right, as the checks on this machine found."""

import argparse
from pathlib import Path

from hpml_lab.cli.shared import FINE, RESULTS_FOLDER, named_or_kept


def add_parser(commands) -> None:
    parser = commands.add_parser("progress", help="which exercises are right, tried, and still open")
    parser.add_argument("folder", type=Path, nargs="?", metavar="DIR", help=f"of results (default: {RESULTS_FOLDER})")
    parser.set_defaults(command=show_progress)


def show_progress(chosen: argparse.Namespace) -> int:
    from hpml_lab.core.experiment.catalogue import exercise_modules
    from hpml_lab.core.experiment.results_folder import tried_exercises

    tried = tried_exercises(named_or_kept(chosen.folder))
    by_notebook: dict[str, list[str]] = {}
    for name, (notebook, _) in exercise_modules().items():
        by_notebook.setdefault(notebook, []).append(name)
    for notebook, names in by_notebook.items():
        right = [name for name in names if tried.get(name)]
        print(f"{notebook:18} {len(right)} of {len(names)} right")
        for name in names:
            print(f"    {'right' if tried.get(name) else 'tried' if name in tried else '-':6} {name}")
    return FINE
