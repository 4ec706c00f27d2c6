"""`hpml-lab list`: all experiments."""

import argparse

from hpml_lab.cli.shared import FINE


def add_parser(commands) -> None:
    parser = commands.add_parser("list", help="all experiments: slug, notebook, lectures, title")
    parser.set_defaults(command=list_experiments)


def list_experiments(_: argparse.Namespace) -> int:
    from hpml_lab.core.experiment.catalogue import catalogue

    rows = [("slug", "notebook", "lectures", "reference", "title")]
    rows += [(row.slug, row.notebook, row.lecture, "yes" if row.recorded else "no", row.title) for row in catalogue()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return FINE
