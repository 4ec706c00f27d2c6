"""The 3-D network that says where nodules are, and its training."""

import torch
from torch import Tensor, nn

WIDTH = 8
RARE = -4.0  # the first logit: before training nearly every cell is empty, as in the data


class Detector(nn.Module):
    """A patch (n, 1, 32, 32, 32), 0 to 1, to 8 x 8 x 8 cells: logit, place of the center in the cell (3), log radius / 2 mm.

    Four convolutions, two of them with stride 2, each with batch normalization; then 1 x 1 x 1: 45,485 parameters at width 8.
    """

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        widths = [(1, width, 2), (width, 2 * width, 2), (2 * width, 4 * width, 1), (4 * width, 4 * width, 1)]
        self.body = nn.Sequential(*(block(*sizes) for sizes in widths))
        self.head = nn.Conv3d(4 * width, 5, 1)
        with torch.no_grad():
            self.head.bias.zero_()
            self.head.bias[0] = RARE

    def forward(self, patches: Tensor) -> Tensor:
        return self.head(self.body(patches))


def block(before: int, after: int, stride: int) -> nn.Sequential:
    """3 x 3 x 3 convolution, batch normalization, ReLU."""
    return nn.Sequential(nn.Conv3d(before, after, 3, stride, 1, bias=False), nn.BatchNorm3d(after), nn.ReLU(inplace=True))
