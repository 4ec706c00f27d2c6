"""The lecture's FaceLandmarksDataset with today's pandas and torchvision: image and landmarks move together."""

import csv
import math
import operator
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from PIL import Image, UnidentifiedImageError
from torch.utils.data import Dataset

from hpml_lab.core.system.errors import LabError

MARGIN = 0.25  # of a side: the well-known table guesses where the landmarks of a face lie that the image's edge cuts


class FaceLandmarksDataset(Dataset):
    """Images of a folder and their landmarks from a CSV file.

    A sample is a dict: "image" is (3, H, W), uint8; "landmarks" is (K, 2), x and y in pixels.

    csv_file   the table: a first line image_name,part_0_x,part_0_y,part_1_x,…; then one line an image
    root_dir   the folder with the images
    transform  applied to each sample; the transforms of torchvision.transforms.v2 move the landmarks with the image
    on_damage  "raise": a LabError names the file and the row. "skip": the row is left out and reported in `skipped`

    Rows and the images' headers are read at the start. Whether an image is complete is known only when its pixels are decoded:
    "raise" leaves that to the moment it is asked for; "skip" must know its length, so it decodes every image at the start.
    """

    def __init__(self, csv_file: Path | str, root_dir: Path | str, transform: Any = None, on_damage: str = "raise") -> None:
        if on_damage not in ("raise", "skip"):
            raise LabError(f"on_damage={on_damage!r} is not a valid policy.", 'Use "raise" or "skip".')
        self.csv_file, self.root_dir, self.transform = Path(csv_file), Path(root_dir), transform
        self.skipped: list[str] = []
        names, rows = self._read_lines()
        good = []
        for line, row in rows:
            try:
                values = self._numbers(line, row, len(names) - 1)
                self._inside(line, row[0], values, self._open(line, row[0], whole=on_damage == "skip").size)
            except LabError as damage:
                if on_damage == "raise":
                    raise
                self.skipped.append(damage.problem)
            else:
                good.append((line, row[0], *values))
        self.landmarks_frame = pd.DataFrame(good, columns=["line", *names]).set_index("line")  # the index: lines of the file

    def __len__(self) -> int:
        return len(self.landmarks_frame)

    def __getitem__(self, idx: int | torch.Tensor) -> dict[str, torch.Tensor]:
        from torchvision import tv_tensors
        from torchvision.transforms.v2 import functional

        idx = operator.index(idx)  # a sampler over a tensor of indices gives tensors
        line, name = int(self.landmarks_frame.index[idx]), self.landmarks_frame.iloc[idx, 0]
        image = functional.to_image(self._open(line, name, whole=True))
        # The lecture: .as_matrix().astype('float'); pandas dropped as_matrix in 1.0.
        landmarks = self.landmarks_frame.iloc[idx, 1:].to_numpy(dtype=float).reshape(-1, 2)
        points = tv_tensors.KeyPoints(torch.tensor(landmarks, dtype=torch.float32), canvas_size=image.shape[-2:])
        sample = {"image": image, "landmarks": points}
        if self.transform:
            sample = self.transform(sample)
        return sample

    def _read_lines(self) -> tuple[list[str], list[tuple[int, list[str]]]]:
        """The names of the columns, and (line number, cells) of each further line that is not empty."""
        try:
            with open(self.csv_file, newline="", encoding="utf-8-sig") as file:  # spreadsheets write a mark first
                reader = csv.reader(file)
                rows = [(reader.line_num, row) for row in reader if row]
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise LabError(
                f"{self.csv_file} could not be read ({error}).", "Check the path and that it is a CSV file."
            ) from error
        if not rows or len(rows[0][1]) < 3 or len(rows[0][1]) % 2 == 0 or rows[0][1][0] != "image_name":
            raise LabError(
                f"{self.csv_file}, line 1: not the first line of a landmark table.",
                "It reads image_name,part_0_x,part_0_y,part_1_x,part_1_y,…",
            )
        return rows[0][1], rows[1:]

    def _damage(self, line: int, name: str, wrong: str, fix: str) -> LabError:
        return LabError(f"{self.csv_file.name}, line {line}, {name or '(no image name)'}: {wrong}.", fix)

    def _numbers(self, line: int, row: list[str], expected: int) -> list[float]:
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

    def _open(self, line: int, name: str, whole: bool) -> Image.Image:
        """The image as RGB, decoded where `whole`; else only its header has been read."""
        path = self.root_dir / name
        try:
            with Image.open(path) as file:
                return file.convert("RGB") if whole else file
        except FileNotFoundError:
            raise self._damage(
                line, name, f"there is no such image in {self.root_dir.name}", "Restore it or remove the row."
            ) from None
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            # Pillow has SyntaxErrors and ValueErrors for some broken files, the system a ValueError for a NUL in a name.
            if isinstance(error, UnidentifiedImageError):
                wrong = "its content is of no known format"
            else:  # Pillow tells the end that came too soon in several ways
                wrong = "the file is truncated" if "truncated" in str(error).lower() else str(error)
            raise self._damage(
                line, name, f"the image cannot be read: {wrong}", "Restore the file or remove the row."
            ) from error

    def _inside(self, line: int, name: str, values: list[float], size: tuple[int, int]) -> None:
        """A landmark may lie in the image or up to MARGIN of its side outside; beyond that, table and image do not match."""
        for part, (x, y) in enumerate(zip(values[::2], values[1::2], strict=True)):
            if not all(-MARGIN * side <= at <= (1 + MARGIN) * side for at, side in zip((x, y), size, strict=True)):
                raise self._damage(
                    line,
                    name,
                    f"landmark {part} at ({x:g}, {y:g}) lies outside the image of {size[0]} × {size[1]} pixels",
                    "Is it the table of another size of these images?",
                )
