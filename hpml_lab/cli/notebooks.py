"""`hpml-lab notebooks DIR`: the workbook's notebooks, written out of an installed package."""

import argparse
from pathlib import Path

from hpml_lab.cli.shared import FINE, print_error, require_writable


def add_parser(commands) -> None:
    parser = commands.add_parser("notebooks", help="write the notebooks into a folder")
    parser.add_argument("folder", type=Path, metavar="DIR", help="where to; what is there already is kept")
    parser.set_defaults(command=write_notebooks)


def write_notebooks(chosen: argparse.Namespace) -> int:
    from hpml_lab.core.system.files import atomic_write
    from hpml_lab.core.system.paths import NOTEBOOKS

    require_writable(chosen.folder, "another DIR")
    found = sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))
    kept = [path.name for path in found if (chosen.folder / path.name).exists()]
    for path in found:
        if path.name not in kept:
            atomic_write(chosen.folder / path.name, path.read_bytes())
    print(f"{len(found) - len(kept)} notebooks written to {chosen.folder}.")
    print(f"To start: jupyter lab {chosen.folder / found[0].name}")
    if kept:
        print_error(f"{len(kept)} were there already and are kept as they are: {', '.join(kept)}.")
    return FINE
