"""The table of a landmark data set and its images: reads them, and says with file and line what is damaged."""

import csv
import io
import math
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.readers import TABLE, reader, reason, text_of
from hpml_lab.data.images import image_of

MARGIN = 0.25  # of a side: the well-known table guesses where the landmarks of a face lie that the image's edge cuts


@reader("a CSV file", "Check the path and that it is a CSV file.")
def table_rows(path: Path) -> list[tuple[int, list[str]]]:
    """(line number, cells) of each line of a CSV file that is not empty."""
    table = csv.reader(io.StringIO(text_of(path, TABLE, "utf-8-sig"), newline=""))  # spreadsheets write a mark first
    return [(table.line_num, row) for row in table if row]


@dataclass(frozen=True)
class LandmarkTable:
    """A CSV file, one row an image, and the folder with the images."""

    csv_file: Path
    root_dir: Path

    def lines(self) -> tuple[list[str], list[tuple[int, list[str]]]]:
        """The names of the columns, and (line number, cells) of each further line that is not empty."""
        rows = table_rows(self.csv_file)
        if not rows or len(rows[0][1]) < 3 or len(rows[0][1]) % 2 == 0 or rows[0][1][0] != "image_name":
            raise LabError(
                f"{self.csv_file}, line 1: not the first line of a landmark table.",
                "It reads image_name,part_0_x,part_0_y,part_1_x,part_1_y,…",
            )
        return rows[0][1], rows[1:]

    def _damage(self, line: int, name: str, wrong: str, fix: str) -> LabError:
        return LabError(f"{self.csv_file.name}, line {line}, {name[:100] or '(no image name)'}: {wrong[:300]}.", fix)

    def numbers(self, line: int, row: list[str], expected: int) -> list[float]:
        """The positions in a row, as numbers."""
        name, *cells = row
        if len(cells) != expected:
            raise self._damage(line, name, f"{len(cells)} numbers where the first line names {expected}", "Correct the row.")
        values = []
        for column, cell in enumerate(cells):
            column_name = f"part_{column // 2}_{'xy'[column % 2]}"
            if not cell.strip():
                raise self._damage(line, name, f"{column_name} is missing", "Fill it in or remove the row.")
            try:
                value = float(cell)
            except ValueError:
                raise self._damage(
                    line, name, f"{column_name} is {cell!r}, which is not a number", "Correct the row."
                ) from None
            if not math.isfinite(value):
                raise self._damage(
                    line, name, f"{column_name} is {cell.strip()}, which is not a position in an image", "Correct the row."
                )
            values.append(value)
        return values

    def image(self, line: int, name: str, whole: bool) -> Image.Image:
        """The image of a row, as `image_of` reads it."""
        try:
            return image_of(self.root_dir / name, whole)
        except FileNotFoundError:
            raise self._damage(
                line, name, f"there is no such image in {self.root_dir.name}", "Restore it or remove the row."
            ) from None
        except Exception as error:  # of a damaged file Pillow raises whatever its parts raise, SyntaxErrors among them
            wrong = reason(error)
            if isinstance(error, UnidentifiedImageError):
                wrong = "its content is of no known format"
            elif "truncated" in wrong.lower():  # Pillow tells the end that came too soon in several ways
                wrong = "the file is truncated"
            raise self._damage(
                line, name, f"the image cannot be read: {wrong}", "Restore the file or remove the row."
            ) from error

    def check_inside(self, line: int, name: str, values: list[float], size: tuple[int, int]) -> None:
        """A landmark may lie in the image or up to MARGIN of its side outside; beyond that, table and image do not match."""
        for part, (x, y) in enumerate(zip(values[::2], values[1::2], strict=True)):
            if not all(-MARGIN * side <= at <= (1 + MARGIN) * side for at, side in zip((x, y), size, strict=True)):
                raise self._damage(
                    line,
                    name,
                    f"landmark {part} at ({x:g}, {y:g}) lies outside the image of {size[0]} × {size[1]} pixels",
                    "Is it the table of another size of these images?",
                )
