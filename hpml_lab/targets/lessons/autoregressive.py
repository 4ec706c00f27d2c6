"""An autoregressive model of small images: a distribution for each pixel, given the pixels before it in the order of reading.

    p(image) = Π_i p(x_i | x_1, …, x_{i−1})

Pixels have L levels, stored as 0, 1/(L − 1), …, 1. The last layer of the net is a head: L logits, or the parameters of
Gaussians, which are read as probabilities of the same L levels, so that all heads are compared by one likelihood.

    outputs = net(images)                                        # (B, pixels, n)
    loss = -log_p(outputs).gather(2, level[..., None]).mean()    # log_p: log_softmax, or mixture_levels of some Gaussians

Source: A. van den Oord, N. Kalchbrenner, K. Kavukcuoglu, Pixel Recurrent Neural Networks, 2016 (the PixelCNN).
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn


class MaskedConv2d(nn.Conv2d):
    """A convolution that reads only what is above or to the left in the same row; and the pixel itself, if it `sees_itself`."""

    def __init__(self, inputs: int, outputs: int, size: int, sees_itself: bool) -> None:
        super().__init__(inputs, outputs, size, padding=size // 2)
        before = torch.arange(size * size) < size * size // 2 + sees_itself
        self.register_buffer("before", before.view(size, size).float())

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.conv2d(x, self.weight * self.before, self.bias, padding=self.padding)


class PixelNet(nn.Module):
    """n outputs for each pixel (B, pixels, n), from the pixels before it: images (B, 1, side, side)."""

    def __init__(self, side: int, outputs: int, channels: int) -> None:
        super().__init__()
        self.first = MaskedConv2d(1, channels, 7, sees_itself=False)
        self.position = nn.Parameter(torch.zeros(channels, side, side))
        self.rest = nn.ModuleList(MaskedConv2d(channels, channels, 3, sees_itself=True) for _ in range(2))
        self.head = nn.Conv2d(channels, outputs, 1)

    def forward(self, images: Tensor) -> Tensor:
        x = self.first(images) + self.position
        for layer in self.rest:
            x = x + layer(x.relu())
        return self.head(x.relu()).flatten(2).transpose(1, 2)


def normal_levels(mu: Tensor, sigma: Tensor, levels: int) -> Tensor:
    """log P(k) (…, L) of a Gaussian with mean μ and width σ (…), in levels: its probability between k − ½ and k + ½.

    What lies below the lowest level and above the highest is lost, so the sum is less than 1. In the right tail the difference
    Φ(b) − Φ(a) is taken as Φ(−a) − Φ(−b): both would round to 1.
    """
    k = torch.arange(levels, device=mu.device)
    a, b = (k - 0.5 - mu[..., None]) / sigma[..., None], (k + 0.5 - mu[..., None]) / sigma[..., None]
    right = a + b > 0
    a, b = torch.where(right, -b, a), torch.where(right, -a, b)
    log_a, log_b = torch.special.log_ndtr(a), torch.special.log_ndtr(b)
    return log_b + torch.log(-torch.expm1(log_a - log_b))


def mixture_levels(log_pi: Tensor, mu: Tensor, sigma: Tensor, levels: int) -> Tensor:
    """log P(k) (…, L) of a mixture of K Gaussians (…, K)."""
    return torch.logsumexp(log_pi[..., None] + normal_levels(mu, sigma, levels), -2)


@torch.no_grad()
def draw_images(net: nn.Module, log_p: Callable[[Tensor], Tensor], count: int, side: int, generator: torch.Generator) -> Tensor:
    """`count` new images (count, 1, side, side): each pixel is drawn from what the net predicts after those before it."""
    images = torch.zeros(count, side * side, device=generator.device)
    for i in range(side * side):
        p = log_p(net(images.view(-1, 1, side, side))[:, i]).exp()
        images[:, i] = torch.multinomial(p, 1, generator=generator)[:, 0] / (p.shape[1] - 1)
    return images.view(-1, 1, side, side)
