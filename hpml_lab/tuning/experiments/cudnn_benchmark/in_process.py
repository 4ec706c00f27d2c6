"""Convolutions in a process that has cuDNN's search off or on from its start."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from time import perf_counter

import numpy as np
import torch
from torch.nn import functional as F

from hpml_lab.core.timing.clock import captured
from hpml_lab.core.timing.counting import kernels, synchronize
from hpml_lab.tuning.experiments.turns import one_sample


@dataclass(frozen=True)
class ConvolutionCase:
    """A 3 × 3 convolution: images (batch, channels, side, side), number format and layout.

    tf32  let a GPU multiply float32 in the format TF32, as torch does by default
    """

    batch: int
    channels: int
    side: int
    dtype: torch.dtype = torch.float32
    tf32: bool = True
    layout: torch.memory_format = torch.contiguous_format

    def tensors(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Random images and filters, the same in every process; both need a gradient."""
        torch.manual_seed(0)
        x = torch.randn(self.batch, self.channels, self.side, self.side, device=device)
        weight = torch.randn(self.channels, self.channels, 3, 3, device=device)
        placed = dict(dtype=self.dtype, memory_format=self.layout)
        return x.to(**placed).requires_grad_(), weight.to(**placed).requires_grad_()


class Convolutions:
    """Convolutions of random images, in a process that has cuDNN's search off or on from its start.

    One process cannot compare the two. PyTorch keeps the plan that it ran for a shape, looks it up before it looks at
    cudnn.benchmark, and the flag is not part of the key (run_single_conv in ATen/native/cudnn/Conv_v8.cpp): whatever runs
    first with a shape decides for both. Number format, layout and TF32 are part of the key.
    """

    WORKS = ("forward", "forward + backward")

    def __init__(self, search: bool, device: torch.device, cases: dict[str, ConvolutionCase]) -> None:
        self.search, self.device, self.cases = search, device, cases
        self._tensors = {name: case.tensors(device) for name, case in cases.items()}
        self._replays: dict[tuple[str, str], Callable[[], None]] = {}

    def run(self, case: str, work: str) -> object:
        """Run one of WORKS for one of the cases."""
        x, weight = self._tensors[case]
        with self._settings(self.cases[case]):
            y = F.conv2d(x, weight, padding=1)
            return y if work == "forward" else torch.autograd.grad(y.sum(), (x, weight))

    def _settings(self, case: ConvolutionCase) -> AbstractContextManager:
        """cuDNN's settings for that case. A new object for each `with`: torch's can be entered only once."""
        return torch.backends.cudnn.flags(enabled=True, benchmark=self.search, allow_tf32=case.tf32)

    def seconds(self, case: str, work: str) -> float:
        """One sample of the seconds that the GPU spends on one of WORKS.

        It replays a captured graph, so that Python's launches do not hide which algorithm is faster.
        """
        if self.device.type != "cuda":
            return one_sample(partial(self.run, case, work))
        if (case, work) not in self._replays:
            self._replays[case, work] = captured(partial(self.run, case, work), self.device)
        return one_sample(self._replays[case, work], self.device)

    def longest_kernel(self, case: str, work: str) -> str:
        ran = kernels(partial(self.run, case, work), self.device)
        return ran[0].name if ran else ""  # none where the profiler is not allowed to see the GPU

    def output(self, case: str) -> np.ndarray:
        return self.run(case, "forward").detach().float().cpu().numpy()

    def first_calls(self, shapes: int) -> float:
        """Median seconds of the first call with a shape, over so many new shapes: the first case, a little larger each time."""
        first, seconds = next(iter(self.cases.values())), []
        for index in range(1, shapes + 2):
            x, weight = replace(first, side=first.side + 2 * index).tensors(self.device)
            synchronize(self.device)
            start = perf_counter()
            with self._settings(first):
                F.conv2d(x, weight, padding=1)
            synchronize(self.device)
            seconds.append(perf_counter() - start)
        return median(seconds[1:])  # the very first also loads kernels
