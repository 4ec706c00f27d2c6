"""`hpml-lab list`: all experiments."""

import argparse

from hpml_lab.cli.shared import FINE, load_registry


def add_parser(commands) -> None:
    parser = commands.add_parser("list", help="all experiments: slug, notebook, lectures, title")
    parser.set_defaults(command=list_experiments)


def list_experiments(_: argparse.Namespace) -> int:
    from hpml_lab.core.system.paths import REFERENCE

    rows = [("slug", "notebook", "lectures", "reference", "title")]
    for found in load_registry().all_experiments():
        recorded = "yes" if (REFERENCE / f"{found.slug}.json").is_file() else "no"
        rows.append((found.slug, found.notebook, found.lecture, recorded, found.title))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return FINE
