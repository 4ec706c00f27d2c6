"""Which operator runs in which dtype under autocast."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hpml_lab.core.experiment import Row, column


class DtypeRecorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, torch.dtype]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        found = [x.dtype for x in tree_leaves(out) if isinstance(x, torch.Tensor) and x.is_floating_point()]
        if found:
            self.seen.append((func.overloadpacket.__name__, found[0]))
        return out


def dtypes(work: Callable[[], object]) -> list[tuple[str, torch.dtype]]:
    """The operators that `work()` runs, in order and after autocast's casts, each with the dtype of its result."""
    with DtypeRecorder() as mode:
        work()
    return mode.seen


# {name: (the operator that runs, the call)}
PROBES = {
    "linear": ("addmm", lambda x, w: F.linear(x, w, w[0])),
    "matmul": ("mm", lambda x, w: x @ w),
    "conv2d": ("convolution", lambda x, w: F.conv2d(x[None, None], w[None, None, :3, :3])),
    "relu": ("relu", lambda x, w: (x @ w).relu()),
    "add": ("add", lambda x, w: (x @ w) + (x @ w)),
    "softmax": ("_softmax", lambda x, w: (x @ w).softmax(1)),
    "layer_norm": ("native_layer_norm", lambda x, w: F.layer_norm(x @ w, (len(w),))),
    "exp": ("exp", lambda x, w: (x @ w).exp()),
    "sum": ("sum", lambda x, w: (x @ w).sum()),
    "mse_loss": ("mse_loss", lambda x, w: F.mse_loss(x @ w, x)),
    # On CUDA the log-softmax inside is rounded to 16 bits, because cross_entropy asks for its input's dtype; the loss is not.
    "cross_entropy": (
        "nll_loss_forward",
        lambda x, w: F.cross_entropy(x @ w, torch.zeros(len(x), dtype=torch.int64, device=x.device)),
    ),
}
# What each device's list computes in float32. Products are computed in 16 bits; all others use the dtype of their input, here
# the result of a product.
FLOAT32 = {"cpu": {"mse_loss", "cross_entropy"}, "cuda": {"softmax", "layer_norm", "exp", "sum", "mse_loss", "cross_entropy"}}


@dataclass
class OperatorDtype(Row):
    """The dtype in which one operator runs under autocast."""

    operator: str = column("operator")
    result: str = column("result")
    expected: str = column("by the device's list")


def autocast_table(device: torch.device | str, dtype: torch.dtype) -> list[OperatorDtype]:
    """Run each of PROBES under autocast."""
    device = torch.device(device)
    x, w = torch.randn(2, 8, 8, device=device)
    rows = []
    for name, (operator, call) in PROBES.items():
        with torch.autocast(device.type, dtype=dtype):
            seen = dtypes(lambda call=call: call(x, w))
        results = [result for found, result in seen if found == operator]
        expected = torch.float32 if name in FLOAT32[device.type] else dtype
        rows.append(OperatorDtype(name, short_name(results[-1]), short_name(expected)))
    return rows


def short_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
