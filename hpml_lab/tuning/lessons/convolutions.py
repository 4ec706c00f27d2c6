"""A convolution computed in two more ways, as cuDNN's algorithms do: as a matrix product, and by Fourier transform."""

import torch
from torch.nn import functional as F


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
