"""Damages rows and files of a set of faces on purpose, to see what a reader says about each."""

import csv
from pathlib import Path

from hpml_lab.core.system.errors import LabError


def damage(folder: Path, table: Path) -> dict[str, int]:
    """Damage eight rows and files of a set of at least ten faces, each in another way: {kind of damage: line of the table}."""
    with open(table, newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    rows[1][3] = ""
    rows[2][4] = "twelve"
    rows[3] = rows[3][:-1]
    rows[4].append("1.0")
    (folder / rows[5][0]).unlink()
    photo = folder / rows[6][0]
    photo.write_bytes(photo.read_bytes()[: photo.stat().st_size // 2])
    rows[7][1] = "5000"
    (folder / rows[8][0]).write_bytes(b"this is no image")
    with open(table, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    kinds = (
        "missing value",
        "not a number",
        "too few values",
        "too many values",
        "missing image",
        "truncated JPEG",
        "point outside the image",
        "not an image file",
    )
    return {kind: line for line, kind in enumerate(kinds, start=2)}


def message_for_row(folder: Path, header: list[str], row: list[str]) -> str:
    """What the reader says to a table that has only this row."""
    from hpml_lab.loading.landmarks import FaceLandmarksDataset  # with pandas

    table = folder / "one_row.csv"
    with open(table, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, row])
    try:
        FaceLandmarksDataset(table, folder)[0]
    except LabError as error:
        return error.problem
    finally:
        table.unlink()
    return "works"
