"""Crops and flips that move the boxes of a detection data set too, by torchvision and by DALI, tested with a rectangle."""

import torch

HEIGHT, WIDTH = 180, 240
GROUND, BRIGHT = 100, 255  # levels: the ground is noise up to 100, the rectangle is 255


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
    """Where the bright pixels of (3, H, W) lie: (1, 4) as left, top, right, bottom; ∞ where there are none."""
    bright = (image > (GROUND + BRIGHT) // 2).all(dim=0)
    rows, columns = bright.any(dim=1).nonzero(), bright.any(dim=0).nonzero()
    if not len(rows):
        return torch.full((1, 4), float("inf"))
    return torch.tensor([[columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]], dtype=torch.float32)


def move_together(image: torch.Tensor, box: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A random crop that keeps a part of the box, and a flip in half of all cases, of image and box."""
    from torchvision import tv_tensors
    from torchvision.transforms import v2

    boxes = tv_tensors.BoundingBoxes(box.clone(), format="XYXY", canvas_size=image.shape[-2:])
    return v2.Compose([v2.RandomIoUCrop(), v2.RandomHorizontalFlip()])(tv_tensors.Image(image), boxes)
