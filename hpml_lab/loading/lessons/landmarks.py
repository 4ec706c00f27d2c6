"""The lecture's FaceLandmarksDataset with today's pandas and torchvision: image and landmarks move together."""

import operator
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch.utils.data import Dataset

from hpml_lab.core.system.errors import LabError
from hpml_lab.loading.tools.landmark_table import LandmarkTable


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
        self.table = LandmarkTable(self.csv_file, self.root_dir)
        names, rows = self.table.lines()
        good = []
        for line, row in rows:
            try:
                values = self.table.numbers(line, row, len(names) - 1)
                self.table.check_inside(line, row[0], values, self.table.image(line, row[0], whole=on_damage == "skip").size)
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
        image = functional.to_image(self.table.image(line, name, whole=True))
        # The lecture: .as_matrix().astype('float'); pandas dropped as_matrix in 1.0.
        landmarks = self.landmarks_frame.iloc[idx, 1:].to_numpy(dtype=float).reshape(-1, 2)
        points = tv_tensors.KeyPoints(torch.tensor(landmarks, dtype=torch.float32), canvas_size=image.shape[-2:])
        sample = {"image": image, "landmarks": points}
        if self.transform:
            sample = self.transform(sample)
        return sample
