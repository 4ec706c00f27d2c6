"""`hpml-lab data fetch NAME`: data sets that do not ship with the workbook."""

import argparse
from pathlib import Path

from hpml_lab.cli.shared import FINE
from hpml_lab.core.system import machine
from hpml_lab.core.system.errors import LabError


def add_parser(commands) -> None:
    parser = commands.add_parser("data", help="data sets that do not ship with the workbook")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    fetching = actions.add_parser("fetch", help="download a data set, check it, and keep it")
    fetching.add_argument("name", metavar="NAME", help="mnist")
    fetching.add_argument(
        "--to", type=Path, metavar="DIR", help="the data folder (default: HPML_DATA, else the project's data/)"
    )
    fetching.set_defaults(command=fetch)


def fetch(chosen: argparse.Namespace) -> int:
    if chosen.name != "mnist":
        raise LabError(f"no data set that can be fetched is called {chosen.name!r}.", "Use mnist.")
    machine.require_torch()
    from hpml_lab.data.fetch import fetch_mnist

    print(f"MNIST is complete and checked: {fetch_mnist(chosen.to)}")
    return FINE
