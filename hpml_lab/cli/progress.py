"""`hpml-lab progress`: which exercises are right, as the checks on this machine found."""

import argparse
from pathlib import Path

from hpml_lab.cli.shared import FINE


def add_parser(commands) -> None:
    parser = commands.add_parser("progress", help="which exercises are right, tried, and still open")
    parser.add_argument("folder", type=Path, nargs="?", metavar="DIR", help="of results (default: HPML_RESULTS, else results/)")
    parser.set_defaults(command=show_progress)


def show_progress(chosen: argparse.Namespace) -> int:
    from hpml_lab.core.experiment.kept import results_folder, tried_exercises
    from hpml_lab.core.judge.exercises import all_exercises
    from hpml_lab.core.system import machine

    machine.require_torch()
    folder = chosen.folder or results_folder()
    tried = tried_exercises(folder) if folder else {}
    by_notebook: dict[str, list[str]] = {}
    for found in all_exercises():
        by_notebook.setdefault(found.notebook, []).append(found.name)
    for notebook, names in by_notebook.items():
        right = [name for name in names if tried.get(name)]
        print(f"{notebook:18} {len(right)} of {len(names)} right")
        for name in names:
            print(f"    {'right' if tried.get(name) else 'tried' if name in tried else '-':6} {name}")
    return FINE
