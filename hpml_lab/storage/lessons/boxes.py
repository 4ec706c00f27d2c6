"""Crops and flips that move the boxes of a detection data set too, by torchvision and by DALI, tested with a rectangle."""

from typing import Any

import torch

from hpml_lab.core.show.png import encode_png
from hpml_lab.storage.lessons import dali_pipelines

HEIGHT, WIDTH = 180, 240
GROUND, BRIGHT = 100, 255  # levels: the ground is noise up to 100, the rectangle is 255
PIXEL = 1.5  # DALI's windows lie between pixels: an edge may be rounded by one, and half a pixel is not yet an edge


def box_scene(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """An image (3, 180, 240), uint8, of noise with one bright rectangle, and its box (1, 4) as left, top, right, bottom."""
    generator = torch.Generator().manual_seed(seed)
    image = torch.randint(0, GROUND, (3, HEIGHT, WIDTH), dtype=torch.uint8, generator=generator)
    wide, high = (int(torch.randint(40, 90, (), generator=generator)) for _ in "wh")
    left = int(torch.randint(0, WIDTH - wide, (), generator=generator))
    top = int(torch.randint(0, HEIGHT - high, (), generator=generator))
    image[:, top : top + high, left : left + wide] = BRIGHT
    return image, torch.tensor([[left, top, left + wide, top + high]], dtype=torch.float32)


def bright_extent(image: torch.Tensor) -> torch.Tensor:
    """Where the bright pixels of (3, H, W) lie: (1, 4) as left, top, right, bottom; NaN where there are none."""
    bright = (image > (GROUND + BRIGHT) // 2).all(dim=0)
    rows, columns = bright.any(dim=1).nonzero(), bright.any(dim=0).nonzero()
    if not len(rows):
        return torch.full((1, 4), float("nan"))
    return torch.tensor([[columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]], dtype=torch.float32)


def move_together(image: torch.Tensor, box: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A random crop that keeps a part of the box, and a flip in half of all cases, of image and box."""
    from torchvision import tv_tensors
    from torchvision.transforms import v2

    boxes = tv_tensors.BoundingBoxes(box.clone(), format="XYXY", canvas_size=image.shape[-2:])
    return v2.Compose([v2.RandomIoUCrop(), v2.RandomHorizontalFlip()])(tv_tensors.Image(image), boxes)


def flip_gaps(scenes: int) -> tuple[list[float], list[float]]:
    """Largest distance in pixels of a rectangle from its box per scene: moved together, and with only the image flipped."""
    moved_together, image_alone = [], []
    for seed in range(scenes):
        image, box = box_scene(seed)
        torch.manual_seed(seed)
        moved, boxes = move_together(image, box)
        moved_together.append((bright_extent(moved) - boxes).abs().max().item())
        image_alone.append((bright_extent(image.flip(-1)) - box).abs().max().item())
    return moved_together, image_alone


def dali_gaps(crops: int) -> list[float]:
    """The same distances after DALI's random_bbox_crop, flip and bb_flip."""
    image, box = box_scene(0)
    png = encode_png(image.permute(1, 2, 0).numpy())
    parts = box / torch.tensor([WIDTH, HEIGHT, WIDTH, HEIGHT])
    pipeline: Any = dali_pipelines.boxed_pipeline(png, parts, torch.tensor([1]), crops)
    pipeline.build()
    images, boxes, _ = pipeline.run()
    gaps = []
    for number in range(crops):
        picture = torch.from_numpy(images.at(number)).permute(2, 0, 1)
        height, width = picture.shape[-2:]
        given = torch.from_numpy(boxes.at(number)) * torch.tensor([width, height, width, height])
        gaps.append((bright_extent(picture) - given).abs().max().item())
    return gaps
