"""A convolution computed in different ways, as cuDNN's algorithms do, and measured with cuDNN's search off or on."""

from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter

import numpy as np
import torch
from torch.nn import functional as F

from hpml_lab.core.counting import kernels, synchronize
from hpml_lab.core.timing import captured
from hpml_lab.tuning.turns import one_sample


def by_product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Convolution (stride 1, same size) as a matrix product: each column holds the pixels under the filter at one place."""
    columns = F.unfold(x, weight.shape[-1], padding=weight.shape[-1] // 2)
    return (weight.flatten(1) @ columns).view(len(x), len(weight), *x.shape[2:])


def by_fft(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The same by Fourier transform, where a convolution is a product; conj, because a layer does not flip its filter."""
    half = weight.shape[-1] // 2
    size = [side + 2 * half for side in x.shape[2:]]
    spectrum = torch.einsum("nchw,ochw->nohw", torch.fft.rfft2(x, size), torch.fft.rfft2(weight, size).conj())
    return torch.fft.irfft2(spectrum, size).roll((half, half), (2, 3))[..., : x.shape[2], : x.shape[3]]


class Convolution:
    """A 3 × 3 convolution of random images, in a process that has cuDNN's search off or on from its start.

    One process cannot compare the two. PyTorch keeps the plan that it ran for a shape, looks it up before it looks at
    cudnn.benchmark, and the flag is not part of the key (run_single_conv in ATen/native/cudnn/Conv_v8.cpp): whatever runs
    first with a shape decides for both.
    """

    WORKS = ("forward", "forward + backward")

    def __init__(self, search: bool, device: torch.device, batch: int, channels: int, side: int) -> None:
        if torch.backends.cudnn.benchmark != search:  # torch freezes its flags where its own test suite is loaded
            torch.backends.cudnn.benchmark = search
        torch.manual_seed(0)
        self.device = device
        self.x = torch.randn(batch, channels, side, side).to(device).requires_grad_()
        self.weight = torch.randn(channels, channels, 3, 3).to(device).requires_grad_()
        self._replays: dict[str, Callable[[], None]] = {}

    def run(self, work: str) -> object:
        """Run one of WORKS."""
        y = F.conv2d(self.x, self.weight, padding=1)
        return y if work == "forward" else torch.autograd.grad(y.sum(), (self.x, self.weight))

    def seconds(self, work: str) -> float:
        """One sample of the seconds that the GPU spends on one of WORKS.

        It replays a captured graph, so that Python's launches do not hide which algorithm is faster.
        """
        if self.device.type != "cuda":
            return one_sample(partial(self.run, work))
        if work not in self._replays:
            self._replays[work] = captured(partial(self.run, work), self.device)
        return one_sample(self._replays[work], self.device)

    def longest_kernel(self, work: str) -> str:
        return kernels(partial(self.run, work), self.device)[0].name[:60]

    def output(self) -> np.ndarray:
        return self.run("forward").detach().cpu().numpy()

    def first_calls(self, shapes: int) -> float:
        """Median seconds of the first call with a shape, over so many new shapes."""
        batch, channels, side, _ = self.x.shape
        seconds = []
        for index in range(1, shapes + 2):
            x = torch.randn(batch, channels, side + 2 * index, side + 2 * index, device=self.device)
            call = partial(F.conv2d, x, self.weight.detach(), padding=1)
            synchronize(self.device)
            start = perf_counter()
            call()
            synchronize(self.device)
            seconds.append(perf_counter() - start)
        return median(seconds[1:])  # the very first also loads kernels
