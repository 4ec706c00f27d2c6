"""Sums of products that are rounded to a format after each addition."""

import torch


def accumulate(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype, every: tuple[int, ...]) -> dict[int, torch.Tensor]:
    """Add the products a[:, k]·b[:, k] one after the other, rounding the sum to `dtype` each time: {K: sums (rows,)}.

    The products are computed in fp32, where the product of two fp16 or bf16 numbers is exact.
    """
    products = (a.float() * b.float()).t().contiguous()
    total, seen = torch.zeros(a.shape[0], dtype=dtype, device=a.device), {}
    for k, column in enumerate(products, start=1):
        total = (total.float() + column).to(dtype)
        if k in every:
            seen[k] = total.double()
    return seen
