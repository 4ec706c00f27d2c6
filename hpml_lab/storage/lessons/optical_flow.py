"""Optical flow: where each block of a frame is in the next one, by trying all places nearby. GPUs have an engine for it."""

import torch
from torch.nn import functional as F


def block_flow(before: torch.Tensor, after: torch.Tensor, block: int = 16, reach: int = 4) -> torch.Tensor:
    """How many pixels each block moves to the right and down: (H / block, W / block, 2), by block matching.

    before, after  gray frames (H, W), float
    reach          pixels: each block is compared with all places that are not farther; the least mean difference wins
    """
    moves = [(right, down) for down in range(-reach, reach + 1) for right in range(-reach, reach + 1)]
    differences = [(before - after.roll((-down, -right), dims=(0, 1))).abs() for right, down in moves]
    of_blocks = F.avg_pool2d(torch.stack(differences)[:, None], block)[:, 0]  # (moves, H / block, W / block)
    return torch.tensor(moves, dtype=torch.float32)[of_blocks.argmin(dim=0)]
