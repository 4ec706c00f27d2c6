"""What the processor does to the sums of int8 products."""

import pytest
import torch


@pytest.fixture(scope="session")
def int8_saturates():
    """Whether torch's int8 product is wrong here: without VNNI oneDNN adds two products in 16 bits, which saturate."""
    a = torch.full((32, 64), 127, dtype=torch.int8)
    return not torch.equal(torch._int_mm(a, a.T.contiguous()), a.int() @ a.T.int())
