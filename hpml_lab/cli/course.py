"""`hpml-lab assignment [NOTEBOOK…] [--lab N] --out COURSE` and `hpml-lab class-page COURSE`: handing out, and collecting."""

import argparse
from pathlib import Path

from hpml_lab.cli.shared import FINE, number
from hpml_lab.core.system import machine
from hpml_lab.core.system.errors import LabError


def add_parser(commands) -> None:
    assignment = commands.add_parser("assignment", help="exercises of notebooks, or labs, as assignments of an nbgrader course")
    assignment.add_argument("notebooks", nargs="*", metavar="NOTEBOOK", help="such as 05_adaptive")
    assignment.add_argument(
        "--lab",
        type=number(1, 99, whole=True),
        action="append",
        default=[],
        metavar="N",
        help="lab 1, 2 or 6, with questions and a job file",
    )
    assignment.add_argument("--out", type=Path, required=True, metavar="COURSE", help="the folder of the nbgrader course")
    assignment.set_defaults(command=write)
    page = commands.add_parser(
        "class-page", help="one page of a class: exercise, named mistake, how often; or of its lab reports"
    )
    page.add_argument(
        "course",
        type=Path,
        metavar="COURSE",
        help="an nbgrader course after autograde; or a folder of students, each with a report.json",
    )
    page.add_argument("--out", type=Path, metavar="FILE", help="default: COURSE/class.html")
    page.set_defaults(command=write_class_page)


def write(chosen: argparse.Namespace) -> int:
    from hpml_lab.core.experiment.catalogue import notebook_file

    if not (chosen.notebooks or chosen.lab):
        raise LabError("nothing to hand out was named.", "Name notebooks, such as 05_adaptive, or --lab 1.")
    for name in chosen.notebooks:  # before torch is imported
        notebook_file(name)
    machine.require_torch()
    from hpml_lab.course.assignment import write_assignments
    from hpml_lab.course.lab_assignment import lab_sheet, write_lab

    for lab in chosen.lab:  # before anything is written
        lab_sheet(lab)
    names = []
    for path, count in write_assignments(chosen.notebooks, chosen.out):
        print(f"{path}: {count} exercises")
        names.append(path.parent.name)
    for lab in chosen.lab:
        written = write_lab(lab, chosen.out)
        print(*written, sep="\n")
        names.append(written[0].parent.name)
    for name in names:
        print(f"Next, in {chosen.out}: nbgrader generate_assignment {name}")
    return FINE


def write_class_page(chosen: argparse.Namespace) -> int:
    from hpml_lab.core.system.files import atomic_write

    if any(path for form in ("*/report.json", "*/lab*/report.json") for path in chosen.course.glob(form)):
        machine.require_torch()
        from hpml_lab.course.lab_reports import reports_page as page
    else:
        from hpml_lab.course.class_page import class_page as page

    print(atomic_write(chosen.out or chosen.course / "class.html", page(chosen.course)))
    return FINE
