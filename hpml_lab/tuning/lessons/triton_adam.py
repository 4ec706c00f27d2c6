"""Adam as one kernel in Triton: all parameters of a model in one launch, each number read once and written once.

    g ← g + λ p                            weight decay λ
    m ← β₁ m + (1 − β₁) g                  mean of the gradient
    v ← β₂ v + (1 − β₂) g²                 mean of its square
    p ← p − (α / (1 − β₁ᵗ)) m / (√v / √(1 − β₂ᵗ) + ε)

Each element moves 7 numbers: p, g, m, v are read and p, m, v are written, 28 bytes in all. The arithmetic takes less time
than that, so no Adam can be faster than 28 bytes per element divided by the memory bandwidth.

A model has many tensors of different sizes. A table in the device's memory holds their addresses. Each program of the kernel
looks up its tensor there and updates BLOCK elements of it. The gradients' addresses stand in a column of their own, because
they may change in every step. Importing this module raises LabError if Triton is not installed.
"""

import math
import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from hpml_lab.core.system.errors import LabError
from hpml_lab.tuning.tools.triton_kernel import TritonKernel, require_triton

require_triton()
import triton.language as tl  # noqa: E402

BLOCK, WARPS = 1024, 4  # elements and warps of 32 threads per program: 8 elements and two 16-byte loads per thread
COLUMNS = 4  # of the table: addresses of p, m, v; elements


@TritonKernel
def adam_kernel(
    table, gradients, block_tensor, block_start, step_size, beta1, beta2, rest1, rest2, root, eps, decay,
    DECAY: tl.constexpr, MAXIMIZE: tl.constexpr, GPU: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program updates BLOCK elements of one tensor.

    step_size = α/(1 − β₁ᵗ), rest1 = 1 − β₁, rest2 = 1 − β₂, root = √(1 − β₂ᵗ), decay = λ
    """
    program = tl.program_id(0)
    start = tl.load(block_start + program)
    tensor = tl.load(block_tensor + program)
    row = table + tensor * COLUMNS
    index = start + tl.arange(0, BLOCK)  # 64 bits: a tensor may have more than 2³¹ elements
    p_start, m_start, v_start, size = tl.load(row + 0), tl.load(row + 1), tl.load(row + 2), tl.load(row + 3)
    g_start = tl.load(gradients + tensor)
    p_address = p_start.to(tl.pointer_type(tl.float32)) + index
    g_address = g_start.to(tl.pointer_type(tl.float32)) + index
    m_address = m_start.to(tl.pointer_type(tl.float32)) + index
    v_address = v_start.to(tl.pointer_type(tl.float32)) + index
    whole = (start + BLOCK <= size) & (((p_start | g_start | m_start | v_start) & 15) == 0)
    inside = index < size

    if whole:  # no mask is needed and the block starts at a multiple of 16 bytes: each load takes 4 numbers at once
        p = tl.load(tl.multiple_of(p_address, 16))
        g = tl.load(tl.multiple_of(g_address, 16))
        m = tl.load(tl.multiple_of(m_address, 16))
        v = tl.load(tl.multiple_of(v_address, 16))
    else:
        p = tl.load(p_address, mask=inside)
        g = tl.load(g_address, mask=inside)
        m = tl.load(m_address, mask=inside)
        v = tl.load(v_address, mask=inside)

    if MAXIMIZE:
        g = -g
    if DECAY:
        g = tl.fma(p, decay, g)  # fma(a, b, c) is a·b + c, rounded once
    if GPU:  # torch's kernels round differently on the two devices, and this kernel follows both
        m = tl.fma(beta1, m, tl.fma(-beta1, g, g))
        v = tl.fma(beta2, v, tl.fma(-beta2, g * g, g * g))
    else:
        m = tl.fma(rest1, g - m, m) if rest1 < 0.5 else tl.fma(rest1 - 1.0, g - m, g)
        v = tl.fma(rest2 * g, g, beta2 * v)
    p = p - tl.div_rn(step_size * m, tl.div_rn(tl.sqrt_rn(v), root) + eps)

    if whole:
        tl.store(tl.multiple_of(p_address, 16), p)
        tl.store(tl.multiple_of(m_address, 16), m)
        tl.store(tl.multiple_of(v_address, 16), v)
    else:
        tl.store(p_address, p, mask=inside)
        tl.store(m_address, m, mask=inside)
        tl.store(v_address, v, mask=inside)


class TensorTable:
    """The addresses of all tensors in one launch, and which program updates which part of which tensor.

    tensors  p, m, v of each parameter
    """

    def __init__(self, tensors: list[tuple[Tensor, ...]]) -> None:
        self.device = tensors[0][0].device
        self.addresses = addresses(tensors)
        sizes = torch.tensor([p.numel() for p, *_ in tensors])
        self.rows = torch.cat([torch.tensor(self.addresses), sizes[:, None]], 1).to(self.device)
        blocks = -(-sizes // BLOCK)
        first = (blocks.cumsum(0) - blocks).repeat_interleave(blocks)
        self.programs = int(blocks.sum())
        self.tensor = torch.arange(len(tensors)).repeat_interleave(blocks).to(self.device)
        self.start = ((torch.arange(self.programs) - first) * BLOCK).to(self.device)
        self._gradients, self._gradient_addresses = torch.empty(0), []

    def gradients(self, gradients: list[Tensor]) -> Tensor:
        """The gradients' addresses on the device, sent there only if one has changed, and without waiting for the GPU.

        zero_grad sets gradients to None, so the next backward pass may allocate them elsewhere. A copy from ordinary memory
        would wait until the GPU has finished all earlier work; one from page-locked memory takes its turn in the stream.
        """
        now = [gradient.data_ptr() for gradient in gradients]
        if now != self._gradient_addresses:
            host = torch.tensor(now, pin_memory=self.device.type == "cuda")
            self._gradients, self._gradient_addresses = host.to(self.device, non_blocking=True), now
        return self._gradients


def addresses(tensors: list[tuple[Tensor, ...]]) -> list[list[int]]:
    """The addresses of the tensors, as the table holds them."""
    return [[tensor.data_ptr() for tensor in parameter_tensors] for parameter_tensors in tensors]


class TritonAdam(torch.optim.Optimizer):
    """Adam in one kernel launch per step, with a subset of the options of torch.optim.Adam.

    params        float32 parameters on one device. On the CPU, Triton's interpreter runs the kernel: correct, but slow
    lr, betas, eps, weight_decay, maximize   as in torch.optim.Adam; lr is a number

    The state has torch's names: step, exp_avg (m), exp_avg_sq (v). Raises LabError for other dtypes, sparse gradients and
    non-dense layouts.
    """

    launches = 1  # for each table

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        if not (lr >= 0 and eps >= 0 and weight_decay >= 0 and len(betas) == 2 and all(0 <= beta < 1 for beta in betas)):
            raise ValueError(f"{lr=}, {betas=}, {eps=}, {weight_decay=}: two betas in [0, 1), the rest ≥ 0")
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize))
        self._tables: dict[tuple[int, ...], TensorTable] = {}

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update all parameters that have a gradient: one launch for each group and each count of earlier steps."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None and p.numel()]
            for p in params:
                if not self.state[p]:
                    check_parameter(p)
                    zeros = {name: torch.zeros_like(p) for name in ("exp_avg", "exp_avg_sq")}
                    self.state[p].update(step=torch.tensor(0.0), **zeros)
            if params:
                torch._foreach_add_([self.state[p]["step"] for p in params], 1)
            launches: dict[tuple[int, torch.device], list[Tensor]] = {}
            for p in params:
                launches.setdefault((int(self.state[p]["step"]), p.device), []).append(p)
            for (step, device), batch in launches.items():
                self._launch(group, step, device, batch)
        return loss

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Drop the tables, because copied or unpickled tensors have new addresses. LabError for an unsupported update rule."""
        for group in state["param_groups"]:  # load_state_dict calls this too, and would silently apply a different rule
            if group.get("amsgrad") or (group.get("decoupled_weight_decay") and group["weight_decay"]):
                raise LabError(
                    "this is the state of an Adam with amsgrad or decoupled weight decay, which the kernel does not support.",
                    "Load it into torch.optim.Adam or AdamW.",
                )
        super().__setstate__(state)
        self._tables = {}

    def _table(self, params: list[Tensor]) -> TensorTable:
        """The table of these parameters; a new one where a tensor of theirs has moved."""
        tensors = [(p, self.state[p]["exp_avg"], self.state[p]["exp_avg_sq"]) for p in params]
        key = tuple(map(id, params))
        table = self._tables.get(key)
        if table is None or table.addresses != addresses(tensors):
            table = self._tables[key] = TensorTable(tensors)
        return table

    def _launch(self, group: dict[str, Any], step: int, device: torch.device, params: list[Tensor]) -> None:
        gradients, table = [dense_gradient(p) for p in params], self._table(params)
        beta1, beta2 = group["betas"]
        step_size, root = bias_corrected(group["lr"], beta1, beta2, step, device)
        scalars = map(
            rounded_to_float32, (step_size, beta1, beta2, 1 - beta1, 1 - beta2, root, group["eps"], group["weight_decay"])
        )
        with torch.cuda.device_of(params[0]):
            adam_kernel.on(device)[(table.programs,)](
                table.rows, table.gradients(gradients), table.tensor, table.start, *scalars,
                DECAY=group["weight_decay"] != 0, MAXIMIZE=group["maximize"], GPU=device.type == "cuda",
                COLUMNS=COLUMNS, BLOCK=BLOCK, num_warps=WARPS, enable_fp_fusion=False,
            )  # fmt: skip


def check_parameter(p: Tensor) -> None:
    """Raise LabError for a parameter that the kernel cannot update: it needs dense float32."""
    if p.dtype != torch.float32 or p.device.type not in ("cpu", "cuda"):
        raise LabError(
            f"the kernel takes float32 on the CPU or a CUDA GPU, not {p.dtype} on {p.device.type}.", "Use model.float()."
        )
    if not (p.layout == torch.strided and torch.empty_like(p).stride() == p.stride()):
        raise LabError("a parameter's elements have holes between them in memory.", "Use p.contiguous().")


def dense_gradient(p: Tensor) -> Tensor:
    """The gradient of p, with its elements in the same order in memory as those of p."""
    g = p.grad
    if g.layout != torch.strided:
        raise LabError("the kernel does not take sparse gradients.", "Use torch.optim.SparseAdam.")
    return g if g.stride() == p.stride() else torch.empty_like(p).copy_(g)


def bias_corrected(lr: float, beta1: float, beta2: float, step: int, device: torch.device) -> tuple[float, float]:
    """α/(1 − β₁ᵗ) and √(1 − β₂ᵗ) as torch computes them: in double precision for the CPU, in single precision for a GPU."""
    if device.type == "cpu":
        return lr / (1 - beta1**step), math.sqrt(1 - beta2**step)
    ahead = 256  # steps computed at once, because each read from the GPU waits for it
    first, second = (powers(beta, step // ahead * ahead, ahead, device)[step % ahead] for beta in (beta1, beta2))
    return float(torch.tensor(lr) / (1 - first)), float((1 - second).sqrt())


def rounded_to_float32(number: float) -> float:
    """`number` rounded to float32, as a GPU kernel receives it. The interpreter would keep all its digits."""
    return struct.unpack("f", struct.pack("f", number))[0]


@lru_cache(maxsize=8)
def powers(beta: float, start: int, count: int, device: torch.device) -> Tensor:
    """βᵗ for t = start … start + count − 1, computed in float32 by the GPU's `pow` and copied to the CPU."""
    steps = torch.arange(start, start + count, device=device, dtype=torch.float32)
    return torch.pow(torch.full_like(steps, beta), steps).cpu()
